//! What a server was told, in its order: every run of a script, read with MONITOR.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{Server, lua};

/// A run of one of our scripts.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) script: &'static str,
    /// How many runs were asked for by the same call. Several are renewals.
    pub(crate) together: usize,
    /// How many of the words are KEYS.
    keys: usize,
    /// KEYS, then ARGV.
    pub(crate) words: Vec<String>,
}

impl Run {
    /// The lease that the run was about.
    pub(crate) fn id(&self) -> &str {
        &self.words[self.keys]
    }

    /// The milliseconds that an acquire or a renewal asked for.
    pub(crate) fn ttl_ms(&self) -> u64 {
        let place = match self.script {
            "lock_acquire" => 1,
            "lock_renew" => 2,
            _ => panic!("{self:?} has no TTL"),
        };
        self.words[self.keys + place].parse().expect("a number")
    }
}

/// Listens until dropped, on a thread of its own.
///
/// What it tells is complete: `runs` and `count` first send the server a mark and wait until the mark has come back
/// through MONITOR, behind everything that the server ran before.
pub(crate) struct Spy {
    heard: Arc<Heard>,
    /// Sends the marks: their number, and the connection.
    marks: Mutex<(u64, redis::Connection)>,
}

#[derive(Default)]
struct Heard {
    so_far: Mutex<SoFar>,
    more: Condvar,
}

#[derive(Default)]
struct SoFar {
    runs: Vec<Run>,
    mark: u64,
    /// The server is gone, or the spy.
    ended: bool,
}

impl Spy {
    pub(crate) async fn on(server: &Server) -> Self {
        let client = redis::Client::open(server.url()).expect("a valid URL");
        let connect = || client.get_connection().expect("connected");
        let (mut monitor, mut marks) = (connect(), connect());
        redis::cmd("MONITOR").exec(&mut monitor).expect("a monitor");
        let off = redis::cmd("CLIENT").arg("REPLY").arg("OFF").get_packed_command();
        marks.send_packed_command(&off).expect("connected");
        let heard = Arc::new(Heard::default());
        std::thread::spawn({
            let heard = heard.clone();
            move || heard.listen(monitor)
        });
        Self { heard, marks: Mutex::new((0, marks)) }
    }

    /// Every run so far.
    pub(crate) fn runs(&self) -> Vec<Run> {
        self.so_far(|runs| runs.to_vec())
    }

    /// How many runs of a script there were so far.
    pub(crate) fn count(&self, script: &str) -> usize {
        self.so_far(|runs| runs.iter().filter(|run| run.script == script).count())
    }

    fn so_far<T>(&self, look: impl FnOnce(&[Run]) -> T) -> T {
        let mark = self.mark();
        let mut so_far = self.heard.so_far.lock();
        let by = Instant::now() + SOON;
        while so_far.mark < mark && !so_far.ended {
            let late = self.heard.more.wait_until(&mut so_far, by).timed_out();
            assert!(!late, "the server has not answered the spy after {SOON:?}");
        }
        look(&so_far.runs)
    }

    /// A server that is gone is sent nothing: it has said all that it had to say.
    fn mark(&self) -> u64 {
        let mut marks = self.marks.lock();
        let (number, connection) = &mut *marks;
        *number += 1;
        let echo = redis::cmd("ECHO").arg(format!("{MARK}{number}")).get_packed_command();
        let _ = connection.send_packed_command(&echo);
        *number
    }
}

impl Drop for Spy {
    /// The mark wakes the thread, which then sees that nobody listens any more.
    fn drop(&mut self) {
        self.heard.so_far.lock().ended = true;
        self.mark();
    }
}

impl Heard {
    fn listen(&self, mut monitor: redis::Connection) {
        while let Ok(line) = monitor.recv_response() {
            let line: String = redis::from_redis_value(line).expect("a line");
            let runs = parse(&line);
            let mut so_far = self.so_far.lock();
            if so_far.ended {
                return;
            }
            so_far.runs.extend(runs);
            if let Some((_, mark)) = line.split_once(MARK) {
                so_far.mark = mark.trim_end_matches('"').parse().expect("a number");
                self.more.notify_all();
            }
        }
        self.so_far.lock().ended = true;
        self.more.notify_all();
    }
}

const SOON: Duration = Duration::from_secs(10);

const MARK: &str = "spy-mark-";

/// `1700000000.000000 [0 127.0.0.1:1234] "EVALSHA" "<hash>" "3" "name" ..`
fn parse(line: &str) -> Vec<Run> {
    let words: Vec<String> = line.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    let [command, script, keys, words @ ..] = &words[..] else { return Vec::new() };
    let known = match command.as_str() {
        "EVALSHA" => hashes().get(script).copied(),
        // The whole text has quotes and line ends of its own: its name is in none of its words.
        "EVAL" => {
            let mut names = lua::ALL.iter().map(|(name, _)| *name);
            let name = names.find(|name| script.contains(first_line(name)));
            let together = lua::RENEW_TOGETHER.lines().next().expect("a first line");
            name.map(|name| (name, script.contains(together)))
        }
        _ => None,
    };
    let Some((script, together)) = known.filter(|(name, _)| ABOUT_A_LEASE.contains(name)) else {
        return Vec::new();
    };
    let keys = keys.parse().expect("a number");
    match together {
        true => each(script, keys, words),
        false => vec![Run { script, together: 1, keys, words: words.to_vec() }],
    }
}

/// The renewals in one call, each as if it were sent by itself.
fn each(script: &'static str, keys: usize, words: &[String]) -> Vec<Run> {
    let (keys, args) = words.split_at(keys);
    let [per_key, per_arg] = [&args[0], &args[1]].map(|number| number.parse().expect("a number"));
    let together = keys.len() / per_key;
    let leases = keys.chunks(per_key).zip(args[2..].chunks(per_arg));
    let run = |(keys, args): (&[String], &[String])| Run {
        script,
        together,
        keys: per_key,
        words: [keys, args].concat(),
    };
    leases.map(run).collect()
}

/// The scripts' names by their hashes, and whether they renew several leases.
fn hashes() -> &'static HashMap<String, (&'static str, bool)> {
    static HASHES: LazyLock<HashMap<String, (&'static str, bool)>> = LazyLock::new(|| {
        let hash = |body: &str| redis::Script::new(body).get_hash().to_owned();
        let by_hash =
            |together| move |(name, body): &(&'static str, &str)| (hash(body), (*name, together));
        let several = lua::TOGETHER.iter().map(by_hash(true));
        lua::ALL.iter().map(by_hash(false)).chain(several).collect()
    });
    &HASHES
}

fn first_line(name: &str) -> &'static str {
    let (_, body) = lua::ALL.iter().find(|(known, _)| *known == name).expect("a script of ours");
    let shared = [lua::QUEUE, lua::TAKE, lua::RW];
    let own = shared.iter().find_map(|shared| body.strip_prefix(shared)).unwrap_or(body);
    own.lines().next().expect("a first line")
}

const ABOUT_A_LEASE: [&str; 6] =
    ["lock_acquire", "rw_acquire", "lock_renew", "lock_reclaim", "lock_release", "fence_raise"];
