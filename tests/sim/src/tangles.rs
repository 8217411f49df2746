//! Locks that are taken one under the other, in any order: who waits for whom, and whether a deadlock that is told was one.
//!
//! A task keeps what it holds while it waits for the next lock, so a wait stands for its holds, too. What is known here is the
//! truth: nothing of it comes from the servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use leasehold::{Blocked, Error, Guard, Owner};
use tokio::time::sleep;

use crate::checker::Rule;
use crate::host::{Process, Proof};
use crate::scenario::client_name;
use crate::workload::{Attempt, Held, Worker, lock_name, millis, some};

/// All waits of those who hold something, also those that ended lately.
#[derive(Default)]
pub struct Tangles {
    waits: BTreeMap<u64, Wait>,
    /// Since when a circle stands, which is known by its waits.
    circles: BTreeMap<Vec<u64>, u64>,
    /// All circles that were seen or told.
    seen: BTreeSet<Vec<u64>>,
}

struct Wait {
    client: String,
    holds: Vec<Kept>,
    wants: usize,
    /// It ends by itself.
    is_limited: bool,
    from: u64,
    to: Option<u64>,
}

struct Kept {
    lock: usize,
    token: u64,
    lease: String,
    proof: Weak<dyn Proof>,
}

impl Wait {
    fn is_of(&self, part: &Blocked) -> bool {
        let holds = |kept: &Kept| *lock_name(kept.lock) == *part.holds && kept.token == part.token;
        *self.client == *part.client
            && *lock_name(self.wants) == *part.waits_for
            && self.holds.iter().any(holds)
    }
}

impl Kept {
    fn is_held(&self) -> bool {
        self.proof.upgrade().is_some_and(|proof| !proof.remaining().is_zero())
    }
}

/// A wait that goes on until this is dropped.
struct Waiting {
    process: Arc<Process>,
    number: u64,
}

impl Waiting {
    fn begin(process: &Arc<Process>, held: &[Held], wants: usize, is_limited: bool) -> Self {
        let holds = held.iter().map(|held| {
            let guard = held.shared();
            let lease = guard.holder().as_str().to_owned();
            let guard: Arc<dyn Proof> = guard;
            Kept { lock: held.lock, token: held.token, lease, proof: Arc::downgrade(&guard) }
        });
        let (holds, client) = (holds.collect(), client_name(process.host, process.generation));
        let mut history = process.history.lock();
        let (number, from) = (history.fresh(), history.now);
        let wait = Wait { client, holds, wants, is_limited, from, to: None };
        history.tangles.waits.retain(|_, wait| wait.to.is_none_or(|to| to + KNOWN_MS > from));
        history.tangles.waits.insert(number, wait);
        drop(history);
        Self { process: process.clone(), number }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut history = self.process.history.lock();
        let now = history.now;
        if let Some(wait) = history.tangles.waits.get_mut(&self.number) {
            wait.to = Some(now);
        }
    }
}

impl Tangles {
    /// D1: there was a moment in which all of a circle waited, each for a lock that the next one held.
    pub fn was_real(&self, circle: &[Blocked]) -> bool {
        let after = circle.iter().cycle().skip(1);
        let is_closed = circle.iter().zip(after).all(|(part, next)| part.waits_for == next.holds);
        let stood = |part: &Blocked, at: u64| {
            let at = |wait: &&Wait| wait.from <= at && wait.to.is_none_or(|to| at <= to);
            self.waits.values().filter(at).any(|wait| wait.is_of(part))
        };
        let all_stood = |at: u64| circle.iter().all(|part| stood(part, at));
        is_closed && self.waits.values().any(|wait| all_stood(wait.from))
    }

    fn going_on(&self) -> impl Iterator<Item = (&u64, &Wait)> {
        self.waits.iter().filter(|(_, wait)| wait.to.is_none() && !wait.is_limited)
    }

    /// Returns the circle that stands now and that a wait is in, by its waits.
    fn circle(&self, start: u64, is_held: impl Fn(&Kept) -> bool) -> Option<Vec<u64>> {
        let mut holder_of: BTreeMap<usize, u64> = BTreeMap::new();
        for (number, wait) in self.going_on() {
            let held = wait.holds.iter().filter(|kept| is_held(kept));
            holder_of.extend(held.map(|kept| (kept.lock, *number)));
        }
        let mut path = vec![start];
        loop {
            let wants = self.waits.get(path.last()?)?.wants;
            let after = *holder_of.get(&wants)?;
            if after == start {
                path.sort_unstable();
                return Some(path);
            }
            if path.contains(&after) {
                return None;
            }
            path.push(after);
        }
    }

    /// Takes in the circles that stand now, as the servers say who holds what: lock and lease.
    pub fn look(&mut self, has: impl Fn(usize, &str) -> bool) {
        let is_held = |kept: &Kept| kept.proof.strong_count() > 0 && has(kept.lock, &kept.lease);
        let starts: Vec<u64> = self.going_on().map(|(number, _)| *number).collect();
        let found = starts.iter().filter_map(|start| self.circle(*start, is_held));
        let found: Vec<Vec<u64>> = found.collect();
        self.seen.extend(found);
    }

    /// How many circles there were that stood for a moment, or were told.
    pub fn came_about(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Takes in a circle that is told and was one.
    fn told(&mut self, circle: &[Blocked]) {
        let newest = |part: &Blocked| {
            let mut waits = self.waits.iter().rev();
            waits.find(|(_, wait)| wait.is_of(part)).map(|(number, _)| *number)
        };
        let numbers: Option<BTreeSet<u64>> = circle.iter().map(newest).collect();
        self.seen.extend(numbers.map(|numbers| numbers.into_iter().collect()));
    }

    /// Returns the circles that stand now, each with the time since when it was seen to stand. Waits with a limit end by
    /// themselves.
    pub fn standing(&mut self, now: u64) -> Vec<(String, u64)> {
        let mut standing = BTreeMap::new();
        for (start, _) in self.going_on() {
            if let Some(circle) = self.circle(*start, Kept::is_held) {
                let since = self.circles.get(&circle).copied().unwrap_or(now);
                standing.insert(circle, since);
            }
        }
        self.circles = standing;
        let shown = |number: &u64| {
            let Wait { client, holds, wants, .. } = &self.waits[number];
            let holds: Vec<usize> = holds.iter().map(|kept| kept.lock).collect();
            format!("{client} holds {holds:?} and waits for {wants}")
        };
        let told = |circle: &Vec<u64>| circle.iter().map(shown).collect::<Vec<_>>().join("; ");
        self.circles.iter().map(|(circle, since)| (told(circle), *since)).collect()
    }
}

impl Worker {
    /// Takes two or three locks one under the other, in any order, and waits for each of them for as long as it takes, mostly.
    pub(crate) async fn tangle(&mut self) {
        let (owner, number) = (Owner::new(), self.process.history.lock().fresh());
        let mut left: Vec<usize> = (0..self.workload.locks as usize).collect();
        let mut held: Vec<Held> = Vec::new();
        for _ in 0..self.rng.between(2, 4) {
            let lock = left.swap_remove(self.rng.below(left.len() as u64) as usize);
            let handle = self.client.mutex(lock_name(lock)).owned_by(&owner);
            let is_limited = self.rng.chance(150);
            let limit = millis(self.rng.between(500, 6000));
            let waiting =
                (!held.is_empty()).then(|| Waiting::begin(&self.process, &held, lock, is_limited));
            let (how, patience, future): (_, _, Attempt<Guard>) = match is_limited {
                true => {
                    let future = Box::pin(some(handle.lock_with_timeout(limit)));
                    ("lock_with_timeout", Some(limit), future)
                }
                false => ("lock", None, Box::pin(some(handle.lock()))),
            };
            let taken = self.attempt(lock, how, patience, future).await;
            drop(waiting);
            let Some((asked_at, guard)) = taken else {
                // It works on with what it holds: it blocks others, and is not blocked itself.
                if self.rng.chance(300) {
                    sleep(millis(self.rng.skewed(4000))).await;
                }
                break;
            };
            held.push(Held::new(&self.process, lock, number, asked_at, guard));
            sleep(millis(self.rng.skewed(300))).await;
        }
        while let Some(next) = held.pop() {
            self.let_go(next).await;
        }
    }

    /// Takes in that a wait failed as part of a deadlock.
    pub(crate) fn told_deadlock(&self, error: &Error) {
        let Error::Deadlock { cycle, .. } = error else { return };
        let mut history = self.process.history.lock();
        history.checker.checked(Rule::FalseDeadlock);
        let own = client_name(self.process.host, self.process.generation);
        let elsewhere = cycle.iter().any(|part| *part.client != *own);
        history.count(if elsewhere { "deadlocks_elsewhere" } else { "deadlocks_inside" }, 1);
        if history.tangles.was_real(cycle) {
            history.tangles.told(cycle);
        } else {
            history.violated(Rule::FalseDeadlock, error.to_string());
        }
    }
}

/// For so long a wait is known after its end.
const KNOWN_MS: u64 = 120_000;
