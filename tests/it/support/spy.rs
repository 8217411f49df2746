//! What a server was told, in its order: every run of a script, read with MONITOR.

use std::sync::Arc;

use futures_util::StreamExt;
use parking_lot::Mutex;

use super::Server;

/// A run of one of our scripts.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) script: &'static str,
    /// KEYS, then ARGV.
    pub(crate) words: Vec<String>,
}

impl Run {
    /// The lease that the run was about.
    pub(crate) fn id(&self) -> &str {
        let keys = match self.script {
            "lock_acquire" => 3,
            "lock_renew" => 1,
            "lock_release" | "fence_raise" => 2,
            other => panic!("{other} is not about a lease"),
        };
        &self.words[keys]
    }

    /// The milliseconds that an acquire or a renewal asked for.
    pub(crate) fn ttl_ms(&self) -> u64 {
        let at = if self.script == "lock_acquire" { 5 } else { 3 };
        self.words[at].parse().expect("a number")
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
    let (name, _) = SCRIPTS.iter().find(|known| by(known, script))?;
    Some(Run { script: name, words: words[3..].to_vec() })
}

fn first_line(name: &str) -> &'static str {
    let (_, body) = SCRIPTS.iter().find(|(known, _)| *known == name).expect("a script of ours");
    body.lines().next().expect("a first line")
}

const SCRIPTS: [(&str, &str); 4] = [
    ("lock_acquire", include_str!("../../../lua/lock_acquire.lua")),
    ("lock_renew", include_str!("../../../lua/lock_renew.lua")),
    ("lock_release", include_str!("../../../lua/lock_release.lua")),
    ("fence_raise", include_str!("../../../lua/fence_raise.lua")),
];
