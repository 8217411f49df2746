//! The locks that an outer `run` holds already.

mod process;

use std::env;
use std::ffi::OsString;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use leasehold::{Client, Guard};
use serde::{Deserialize, Serialize};

use self::process::Process;

/// Where a `run` tells those inside its command what it holds.
pub const VARIABLE: &str = "LEASEHOLD_HELD";

/// One lock that a `run` around this process holds. One that holds none itself, since it only borrows, is there without a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Outer {
    lock: String,
    /// The servers' addresses.
    on: String,
    /// The `run` that holds it.
    pid: u32,
    /// Its fencing token. Not told by a `run` of an earlier version.
    #[serde(default)]
    token: Option<u64>,
}

/// All locks that `run`s around this process hold.
pub struct Held(Vec<(Outer, Lender)>);

/// The `run` that holds a lock, and the command that it runs: it holds the lock no more when either of them has ended.
type Lender = [Process; 2];

impl Held {
    /// Reads what the environment says, and believes only what ancestors of this process hold: a process that outlived its
    /// `run` has inherited the variable, but not the lock.
    pub fn inherited() -> Self {
        let text = env::var(VARIABLE).unwrap_or_default();
        let outers: Vec<Outer> = serde_json::from_str(&text).unwrap_or_default();
        let held = outers.into_iter().filter_map(|outer| {
            let command = process::child_towards_us(outer.pid)?;
            let lender = [outer.pid, command].map(Process::open);
            // Either may have ended before it was opened, and others may have their numbers.
            (process::child_towards_us(outer.pid) == Some(command)).then_some((outer, lender))
        });
        Self(held.collect())
    }

    /// Returns the process ids of the `run`s around this process.
    pub fn outer_runs(&self) -> Vec<u32> {
        self.0.iter().map(|(outer, _)| outer.pid).collect()
    }

    pub fn has(&self, on: &str, lock: &str) -> bool {
        self.lender(on, lock).is_some()
    }

    /// Waits until an outer `run` holds one of these locks no more, and returns which. If it holds none, that is never.
    pub async fn end_of(&self, on: &str, locks: &[String]) -> String {
        let mut ends = Vec::new();
        for lock in locks {
            for process in self.lender(on, lock).into_iter().flatten() {
                ends.push((lock, Box::pin(process.ended())));
            }
        }
        poll_fn(|context| {
            let mut ends = ends.iter_mut();
            let over =
                ends.find_map(|(lock, end)| end.as_mut().poll(context).is_ready().then_some(lock));
            over.map_or(Poll::Pending, |lock| Poll::Ready(lock.to_string()))
        })
        .await
    }

    /// Returns the fencing token of a lock that an outer `run` holds.
    fn token(&self, on: &str, lock: &str) -> Option<u64> {
        self.find(on, lock)?.0.token
    }

    fn lender(&self, on: &str, lock: &str) -> Option<&Lender> {
        self.find(on, lock).map(|(_, lender)| lender)
    }

    fn find(&self, on: &str, lock: &str) -> Option<&(Outer, Lender)> {
        self.0.iter().find(|(outer, _)| outer.lock == lock && outer.on == on)
    }

    /// Returns the variables for the command. They replace those of an outer `run`.
    pub fn environment(
        &self,
        on: &str,
        client: Option<&Client>,
        guards: &[Guard],
        lent: &[String],
        ttl: Duration,
    ) -> Vec<(&'static str, OsString)> {
        let pid = std::process::id();
        let ours = guards.iter().map(|guard| Outer {
            lock: guard.name().to_owned(),
            on: on.to_owned(),
            pid,
            token: Some(guard.token()),
        });
        // Its group may have the terminal all the same. No servers have such an address, so nobody takes it for a lock.
        let none = || Outer { lock: String::new(), on: String::new(), pid, token: None };
        let ours = ours.chain(guards.is_empty().then(none));
        let all: Vec<_> = self.0.iter().map(|(outer, _)| outer.clone()).chain(ours).collect();
        let held = serde_json::to_string(&all).unwrap_or_default();
        let mut all = vec![(VARIABLE, held.into())];
        // Who looks sees by the name that an inner `run` waits on behalf of what this one holds.
        all.extend(client.map(|client| ("LEASEHOLD_NAME", client.name().into())));
        let lent = lent.iter().map(|lock| (&**lock, self.token(on, lock)));
        let ours = guards.iter().map(|guard| (guard.name(), Some(guard.token())));
        let (names, tokens): (Vec<_>, Vec<_>) = lent
            .chain(ours)
            // A line for each, whatever is in their names.
            .map(|(lock, token)| {
                (lock.replace('\n', r"\n"), token.map_or_else(String::new, |it| it.to_string()))
            })
            .unzip();
        all.push(("LEASEHOLD_LOCK", names.join("\n").into()));
        all.push(("LEASEHOLD_TOKEN", tokens.join("\n").into()));
        // Otherwise all locks are those of an outer `run`, which told its TTL.
        if !guards.is_empty() {
            all.push(("LEASEHOLD_TTL_MS", ttl.as_millis().to_string().into()));
        }
        all
    }
}
