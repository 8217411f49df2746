//! What all readers of `export` see: one list of the locks, made again and again by one task.

use std::time::{Duration, SystemTime};

use leasehold::{Blocked, Client, ListedLock, NodeStatus};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::args::Export;
use crate::list;

/// A list of all locks at some time.
#[derive(Clone)]
pub struct Poll {
    /// The last list that is complete: those with the most waiters first.
    pub locks: Vec<ListedLock>,
    /// What their holders wait for, as they have noted it.
    pub blocked: Vec<Blocked>,
    /// When it was complete; `None` if there was none yet.
    pub at: Option<Instant>,
    /// How long it took.
    pub took: Duration,
    /// What failed since.
    pub problem: Option<String>,
    pub nodes: Vec<NodeStatus>,
    /// How many locks are shown one by one.
    pub limit: usize,
    /// Older lists than that are out of date.
    pub stale_after: Duration,
}

impl Poll {
    pub fn none() -> Self {
        Self {
            locks: Vec::new(),
            blocked: Vec::new(),
            at: None,
            took: Duration::ZERO,
            problem: Some("no list is complete yet".to_owned()),
            nodes: Vec::new(),
            limit: 0,
            stale_after: Duration::MAX,
        }
    }

    /// Why it says nothing about now, if it does not.
    pub fn staleness(&self) -> Option<String> {
        let age = self.at.map(|at| at.elapsed());
        match (&self.problem, age) {
            (Some(problem), _) => Some(problem.clone()),
            (None, Some(age)) if age > self.stale_after => {
                Some(format!("the last list is {} s old", age.as_secs()))
            }
            _ => None,
        }
    }

    /// The time of the list, by this host's clock.
    pub fn made_at(&self) -> Option<SystemTime> {
        self.at.and_then(|at| SystemTime::now().checked_sub(at.elapsed()))
    }
}

/// Lists all locks again and again.
pub async fn poll(client: &Client, export: &Export, tell: &watch::Sender<Poll>) {
    loop {
        let begun = Instant::now();
        let listed = all(client, export).await;
        let took = begun.elapsed();
        // On servers with many keys a list takes long: it is made in a fifth of the time.
        let pause = export.every.max(took.saturating_mul(4));
        tell.send_modify(|poll| {
            poll.nodes = client.nodes();
            poll.limit = export.limit;
            match listed {
                Ok((locks, blocked)) => {
                    let stale_after = pause.saturating_add(took).saturating_mul(3);
                    let (at, limit, nodes) =
                        (Some(Instant::now()), poll.limit, std::mem::take(&mut poll.nodes));
                    let problem = None;
                    *poll = Poll { locks, blocked, at, took, problem, nodes, limit, stale_after };
                }
                Err(error) => poll.problem = Some(error.to_string()),
            }
        });
        sleep(pause).await;
    }
}

async fn all(
    client: &Client,
    export: &Export,
) -> Result<(Vec<ListedLock>, Vec<Blocked>), leasehold::Error> {
    let mut listing = client.list(&export.prefix);
    let mut locks = Vec::new();
    while let Some(lock) = listing.next().await? {
        locks.push(lock);
    }
    list::sort(&mut locks);
    let blocked = list::blocked(client, &locks).await;
    Ok((locks, blocked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_long_ago_says_nothing_about_now() {
        let staleness = |age| {
            let at = Instant::now().checked_sub(Duration::from_secs(age));
            let stale_after = Duration::from_secs(60);
            Poll { at, problem: None, stale_after, ..Poll::none() }.staleness()
        };
        assert_eq!(staleness(0), None);
        let problem = staleness(600).unwrap_or_default();
        assert!(problem.starts_with("the last list is 60"), "{problem}");
    }
}
