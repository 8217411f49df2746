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
                if let Some(what) = reader.read(&line) {
                    journal.write(what);
                }
            }
        }
        tokio::time::sleep(TICK).await;
    }
}

/// Reads the lines of one connection, such as `1700000000.000000 [0 127.0.0.1:1234] "EVALSHA" "<hash>" ..`.
#[derive(Debug)]
pub struct Reader {
    node: usize,
    /// The script that runs, and for which lease.
    running: Option<(&'static str, String)>,
}

impl Reader {
    pub fn new(node: usize) -> Self {
        Self { node, running: None }
    }

    pub fn read(&mut self, line: &str) -> Option<What> {
        let (from, command) = line.split_once(']')?;
        let words = words(command);
        let node = self.node;
        if !from.ends_with(" lua") {
            self.running = script(&words);
            // A replica does what its master tells it, and slots move with their locks.
            if words.first().is_some_and(|verb| CHANGES_OF_OTHERS.contains(&&*verb.to_uppercase()))
            {
                return Some(What::Watched { node });
            }
            let (script, id) = self.running.clone()?;
            return Some(What::Ran { node, script: script.to_owned(), id });
        }
        let (script, id) = self.running.clone()?;
        let verb = WRITES.iter().find(|verb| words[0].eq_ignore_ascii_case(verb))?;
        let (script, verb, key) = (script.to_owned(), (*verb).to_owned(), words.get(1)?.clone());
        let field = match &*verb {
            // Counters are set, too, and tell nothing of leases.
            "SET" if !is_said_by_leader(&key) => return None,
            "SET" => words.get(2)?.split(' ').next().map(str::to_owned),
            _ => words.get(2).filter(|_| verb.starts_with('H')).cloned(),
        };
        Some(What::Changed { node, script, id, verb, key, field })
    }
}

/// Which script it is, and the lease that it is about.
fn script(words: &[String]) -> Option<(&'static str, String)> {
    let [command, which, keys, rest @ ..] = words else { return None };
    let (name, ..) = SCRIPTS.iter().find(|(_, body, hash)| match &**command {
        "EVALSHA" => hash == which,
        "EVAL" => body == which,
        _ => false,
    })?;
    Some((name, rest.get(keys.parse::<usize>().ok()?)?.clone()))
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

macro_rules! script {
    ($($name:literal),+) => {
        concat!($(include_str!(concat!("../../../lua/", $name, ".lua"))),+)
    };
}

/// Name, body and hash of each that is about one lease.
static SCRIPTS: LazyLock<Vec<(&str, &str, String)>> = LazyLock::new(|| {
    let each = [
        ("lock_acquire", script!("queue", "lock_acquire")),
        ("lock_renew", script!("lock_renew")),
        ("lock_release", script!("queue", "lock_release")),
        ("lock_reclaim", script!("lock_reclaim")),
        ("rw_release", script!("rw", "rw_release")),
        ("read_renew", script!("read_renew")),
        ("rw_reclaim", script!("rw", "rw_reclaim")),
        ("permit_release", script!("queue", "permits", "permit_release")),
        ("permit_renew", script!("permit_renew")),
        ("permit_reclaim", script!("queue", "permits", "permit_reclaim")),
        ("leader_proclaim", script!("leader_proclaim")),
    ];
    let known = |(name, body)| (name, body, redis::Script::new(body).get_hash().to_owned());
    each.into_iter().map(known).collect()
});
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
