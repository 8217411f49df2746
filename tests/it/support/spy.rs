//! What a server was told, in its order: every run of a script, read with MONITOR.

use std::sync::Arc;

use futures_util::StreamExt;
use parking_lot::Mutex;

use super::{Server, lua};

/// A run of one of our scripts.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) script: &'static str,
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
        assert!(["lock_acquire", "lock_renew"].contains(&self.script), "{self:?} has no TTL");
        self.words[self.keys + 2].parse().expect("a number")
    }
}

/// Listens until dropped.
pub(crate) struct Spy {
    runs: Arc<Mutex<Vec<Run>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Spy {
    pub(crate) async fn on(server: &Server) -> Self {
        let client = redis::Client::open(server.url()).expect("a valid URL");
        let monitor = client.get_async_monitor().await.expect("connected");
        let runs = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn({
            let runs = runs.clone();
            async move {
                let mut lines = monitor.into_on_message::<String>();
                while let Some(line) = lines.next().await {
                    runs.lock().extend(parse(&line));
                }
            }
        });
        Self { runs, task }
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        self.runs.lock().clone()
    }

    /// How many runs of a script there were.
    pub(crate) fn count(&self, script: &str) -> usize {
        self.runs.lock().iter().filter(|run| run.script == script).count()
    }
}

impl Drop for Spy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// `1700000000.000000 [0 127.0.0.1:1234] "EVALSHA" "<hash>" "3" "name" ..`
fn parse(line: &str) -> Option<Run> {
    let words: Vec<String> = line.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    let (command, script) = (words.first()?, words.get(1)?);
    let by = match command.as_str() {
        "EVALSHA" => {
            |(_, body): &&(&str, &str), script: &str| redis::Script::new(body).get_hash() == script
        }
        // The whole text has quotes and line ends of its own: its name is in none of its words.
        "EVAL" => |(name, _): &&(&str, &str), script: &str| script.contains(first_line(name)),
        _ => return None,
    };
    let (name, _) = lua::ALL.iter().find(|known| by(known, script))?;
    if !ABOUT_A_LEASE.contains(name) {
        return None;
    }
    let keys = words[2].parse().ok()?;
    Some(Run { script: name, keys, words: words[3..].to_vec() })
}

fn first_line(name: &str) -> &'static str {
    let (_, body) = lua::ALL.iter().find(|(known, _)| *known == name).expect("a script of ours");
    let own = body.strip_prefix(lua::QUEUE).unwrap_or(body);
    own.lines().next().expect("a first line")
}

const ABOUT_A_LEASE: [&str; 4] = ["lock_acquire", "lock_renew", "lock_release", "fence_raise"];
