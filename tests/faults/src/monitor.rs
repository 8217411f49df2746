//! What servers run about leases, as `MONITOR` tells it: in the order in which they run it.
//!
//! A server tells of a script first, and then, as of a client `lua`, of the commands that the script runs; not of
//! those that it refuses the script.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::{event::What, journal::Journal, locks::is_said_by_leader};

/// Writes down what a server runs. Connects again for as long as the run lasts: what is missed meanwhile is
/// not checked, and that something may have been missed is written down, too.
pub(crate) async fn watch(node: usize, port: u16, journal: Journal, over: Arc<AtomicBool>) {
    while !over.load(Ordering::SeqCst) {
        // Not through a proxy, and not as the user whose connections are killed.
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await
            && stream.write_all(b"MONITOR\r\n").await.is_ok()
        {
            journal.write(What::Watched { node });
            let mut reader = Reader::new(node);
            let mut lines = BufReader::new(stream).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                reader.read(&line).into_iter().for_each(|what| journal.write(what));
            }
        }
        tokio::time::sleep(TICK).await;
    }
}

/// Reads the lines of one connection, such as `1700000000.000000 [0 127.0.0.1:1234] "EVALSHA" "<hash>" ..`.
#[derive(Debug)]
pub struct Reader {
    node: usize,
    running: Option<Running>,
}

/// The script that runs.
#[derive(Debug)]
struct Running {
    script: &'static str,
    /// The leases that it is about, each with its first key: several if they are renewed together.
    leases: Vec<(String, String)>,
}

impl Running {
    /// Returns the lease that a command of the script is about: the one that it names, or else the one whose key it changes.
    fn lease_of(&self, words: &[String]) -> Option<&String> {
        let names = |(_, id): &&(String, String)| words.iter().any(|word| word.contains(&**id));
        let has_key = |(key, _): &&(String, String)| words.get(1) == Some(key);
        let mut leases = self.leases.iter();
        let named = leases.clone().find(names).or_else(|| leases.clone().find(has_key));
        let lease = if self.leases.len() == 1 { leases.next() } else { named };
        lease.map(|(_, id)| id)
    }
}

impl Reader {
    pub fn new(node: usize) -> Self {
        Self { node, running: None }
    }

    /// Returns what a line tells: several things if it is a call that renews several leases.
    pub fn read(&mut self, line: &str) -> Vec<What> {
        let Some((from, command)) = line.split_once(']') else { return Vec::new() };
        let words = words(command);
        if from.ends_with(" lua") {
            return self.changed(&words).into_iter().collect();
        }
        let node = self.node;
        self.running = running(&words);
        // A replica does what its master tells it, and slots move with their locks.
        if words.first().is_some_and(|verb| CHANGES_OF_OTHERS.contains(&&*verb.to_uppercase())) {
            return vec![What::Watched { node }];
        }
        let Some(Running { script, leases }) = &self.running else { return Vec::new() };
        let ran = |(_, id): &(String, String)| What::Ran {
            node,
            script: (*script).into(),
            id: id.clone(),
        };
        leases.iter().map(ran).collect()
    }

    /// Returns what a command of the script that runs changes of a lease.
    fn changed(&self, words: &[String]) -> Option<What> {
        let running = self.running.as_ref()?;
        let verb = WRITES.iter().find(|verb| words[0].eq_ignore_ascii_case(verb))?;
        let (script, verb) = (running.script.to_owned(), (*verb).to_owned());
        let (id, key) = (running.lease_of(words)?.clone(), words.get(1)?.clone());
        let field = match &*verb {
            // Counters are set, too, and tell nothing of leases.
            "SET" if !is_said_by_leader(&key) => return None,
            "SET" => words.get(2)?.split(' ').next().map(str::to_owned),
            _ => words.get(2).filter(|_| verb.starts_with('H')).cloned(),
        };
        Some(What::Changed { node: self.node, script, id, verb, key, field })
    }
}

/// Which script it is, and the leases that it is about.
fn running(words: &[String]) -> Option<Running> {
    let [command, which, keys, rest @ ..] = words else { return None };
    let known = SCRIPTS.iter().find(|known| match &**command {
        "EVALSHA" => known.hash == *which,
        "EVAL" => known.body == which,
        _ => false,
    })?;
    let (keys, args) = rest.split_at_checked(keys.parse().ok()?)?;
    let (per_key, per_arg, args) = match (known.several, args) {
        (false, _) => (keys.len(), args.len(), args),
        (true, [per_key, per_arg, args @ ..]) => {
            (per_key.parse().ok()?, per_arg.parse().ok()?, args)
        }
        (true, _) => return None,
    };
    let leases = keys.chunks(per_key).zip(args.chunks(per_arg));
    let leases = leases.map(|(keys, args)| (keys[0].clone(), args[0].clone())).collect();
    Some(Running { script: known.name, leases })
}

/// The words between quotation marks, as they were before the server made them readable.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.chars();
    while rest.by_ref().any(|letter| letter == '"') {
        let mut word = String::new();
        while let Some(letter) = rest.next().filter(|letter| *letter != '"') {
            word.push(match letter {
                '\\' => match rest.next() {
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('t') => '\t',
                    // Bytes that are no ASCII are written as `\x..`, and are in nothing that is looked at.
                    other => other.unwrap_or('\\'),
                },
                letter => letter,
            });
        }
        words.push(word);
    }
    words
}

/// A script that is about one lease, or that does for several what the one of that name does for one.
struct Script {
    name: &'static str,
    several: bool,
    body: &'static str,
    hash: String,
}

static SCRIPTS: LazyLock<Vec<Script>> = LazyLock::new(|| {
    let one = ONE.map(|name| (name, name, false));
    let several = SEVERAL.map(|(several, one)| (several, one, true));
    let known = |(sent, name, several)| {
        let body = text(sent);
        Script { name, several, body, hash: redis::Script::new(body).get_hash().to_owned() }
    };
    one.into_iter().chain(several).map(known).collect()
});

/// Returns the text of a script, as the library sends it.
pub fn text(name: &str) -> &'static str {
    let mut scripts = leasehold::seam::scripts();
    scripts.find(|(known, _)| *known == name).expect("a script of the library").1
}

const ONE: [&str; 11] = [
    "lock_acquire",
    "lock_renew",
    "lock_release",
    "lock_reclaim",
    "rw_release",
    "read_renew",
    "rw_reclaim",
    "permit_release",
    "permit_renew",
    "permit_reclaim",
    "leader_proclaim",
];
/// Those for several leases, and those for one.
const SEVERAL: [(&str, &str); 3] = [
    ("locks_renew", "lock_renew"),
    ("reads_renew", "read_renew"),
    ("permits_renew", "permit_renew"),
];
/// What can change the hash of a lock, or its end, or what a leader said.
const WRITES: [&str; 10] =
    ["DEL", "UNLINK", "RENAME", "HSET", "HDEL", "HINCRBY", "EXPIRE", "PEXPIRE", "PERSIST", "SET"];
/// What changes locks without a script.
const CHANGES_OF_OTHERS: [&str; 9] = [
    "DEL",
    "UNLINK",
    "HSET",
    "HDEL",
    "PEXPIRE",
    "PEXPIREAT",
    "RESTORE",
    "RESTORE-ASKING",
    "MIGRATE",
];
const TICK: Duration = Duration::from_millis(10);
