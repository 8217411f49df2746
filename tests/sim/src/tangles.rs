//! Locks that are taken one under the other, in any order: who waits for whom, and whether a deadlock that is told was one.
//!
//! A task keeps what it holds while it waits for the next lock, so a wait stands for its holds, too. What is known here is the
//! truth: nothing of it comes from the servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold::{Blocked, Error, Guard, Owner, Permit};
use tokio::time::sleep;

use crate::checker::{Rule, Share};
use crate::host::{Process, Proof};
use crate::kinds::{self, PERMITS, Part, SEMAPHORE, SEMAPHORE_NAME};
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
    /// `None` of permits.
    token: Option<u64>,
    lease: String,
    proof: Weak<dyn Proof>,
}

/// What a task holds while it waits for more.
enum Mine {
    Lock(Held),
    Permit(kinds::Kept<Permit>),
}

impl Mine {
    fn known(&self) -> Kept {
        match self {
            Self::Lock(held) => {
                let guard = held.shared();
                let lease = guard.holder().as_str().to_owned();
                let guard: Arc<dyn Proof> = guard;
                let token = Some(held.token);
                Kept { lock: held.lock, token, lease, proof: Arc::downgrade(&guard) }
            }
            Self::Permit(kept) => {
                let lease = kept.proof().holder().as_str().to_owned();
                Kept { lock: SEMAPHORE, token: None, lease, proof: kept.watched() }
            }
        }
    }
}

fn name_of(lock: usize) -> String {
    if lock == SEMAPHORE { SEMAPHORE_NAME.to_owned() } else { lock_name(lock) }
}

impl Wait {
    fn is_of(&self, part: &Blocked) -> bool {
        let holds = |kept: &Kept| {
            let is_the_one = kept.token == part.token;
            *name_of(kept.lock) == *part.holds && is_the_one
        };
        *self.client == *part.client
            && *name_of(self.wants) == *part.waits_for
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
    fn begin(process: &Arc<Process>, held: &[Mine], wants: usize, is_limited: bool) -> Self {
        let holds = held.iter().map(Mine::known);
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
        let through_permits = circle.iter().any(|part| *part.waits_for == *SEMAPHORE_NAME);
        let all_blocked = |at: u64| {
            let waits = |(_, wait): &(&u64, &Wait)| {
                !wait.is_limited && wait.from <= at && wait.to.is_none_or(|to| at <= to)
            };
            let blocked = blocked(self.waits.iter().filter(waits), |_| true);
            circle.iter().all(|part| blocked.values().any(|wait| wait.is_of(part)))
        };
        let all_stood = |at: u64| {
            circle.iter().all(|part| stood(part, at)) && (!through_permits || all_blocked(at))
        };
        is_closed && self.waits.values().any(|wait| all_stood(wait.from))
    }

    fn going_on(&self) -> impl Iterator<Item = (&u64, &Wait)> {
        self.waits.iter().filter(|(_, wait)| wait.to.is_none() && !wait.is_limited)
    }

    /// Returns the circle that stands now and that a wait is in, by its waits.
    fn circle(&self, start: u64, is_held: impl Fn(&Kept) -> bool) -> Option<Vec<u64>> {
        // A task that waits for permits needs one of any holder, so all of them must be blocked. Of each lock one is enough.
        let mut holder_of: BTreeMap<usize, u64> = BTreeMap::new();
        for (number, wait) in blocked(self.going_on(), &is_held) {
            let held = wait.holds.iter().filter(|kept| is_held(kept));
            holder_of.extend(held.map(|kept| (kept.lock, number)));
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

/// Returns those of the waits that stay blocked by each other.
fn blocked<'a>(
    waits: impl Iterator<Item = (&'a u64, &'a Wait)>,
    is_held: impl Fn(&Kept) -> bool,
) -> BTreeMap<u64, &'a Wait> {
    let mut blocked: BTreeMap<u64, &Wait> = waits.map(|(number, wait)| (*number, wait)).collect();
    loop {
        let held = blocked.values().flat_map(|wait| &wait.holds).filter(|kept| is_held(kept));
        let mut out: BTreeMap<usize, u32> = BTreeMap::new();
        held.for_each(|kept| *out.entry(kept.lock).or_default() += 1);
        let before = blocked.len();
        blocked.retain(|_, wait| {
            let all = if wait.wants == SEMAPHORE { PERMITS } else { 1 };
            out.get(&wait.wants).is_some_and(|out| *out >= all)
        });
        if blocked.len() == before {
            return blocked;
        }
    }
}

impl Worker {
    /// Takes two or three locks one under the other, in any order, and waits for each of them for as long as it takes, mostly.
    pub(crate) async fn tangle(&mut self) {
        let (owner, number) = (Owner::new(), self.process.history.lock().fresh());
        let mut left: Vec<usize> = (0..self.workload.locks as usize).collect();
        if self.workload.tangled_permits {
            left.push(SEMAPHORE);
        }
        let mut held: Vec<Mine> = Vec::new();
        for _ in 0..self.rng.between(2, 4) {
            let lock = left.swap_remove(self.rng.below(left.len() as u64) as usize);
            let is_limited = self.rng.chance(150);
            let limit = is_limited.then(|| millis(self.rng.between(500, 6000)));
            let waiting =
                (!held.is_empty()).then(|| Waiting::begin(&self.process, &held, lock, is_limited));
            let taken = match lock {
                SEMAPHORE => self.permit(number, limit).await.map(Mine::Permit),
                lock => self.lock(lock, number, &owner, limit).await.map(Mine::Lock),
            };
            drop(waiting);
            let Some(taken) = taken else {
                // It works on with what it holds: it blocks others, and is not blocked itself.
                if self.rng.chance(300) {
                    sleep(millis(self.rng.skewed(4000))).await;
                }
                break;
            };
            held.push(taken);
            sleep(millis(self.rng.skewed(300))).await;
        }
        while let Some(next) = held.pop() {
            match next {
                Mine::Lock(held) => self.let_go(held).await,
                Mine::Permit(kept) => self.give_back(kept).await,
            }
        }
    }

    async fn lock(
        &mut self,
        lock: usize,
        number: u64,
        owner: &Owner,
        limit: Option<Duration>,
    ) -> Option<Held> {
        let handle = self.client.mutex(lock_name(lock)).owned_by(owner);
        let (how, future): (_, Attempt<Guard>) = match limit {
            Some(limit) => ("lock_with_timeout", Box::pin(some(handle.lock_with_timeout(limit)))),
            None => ("lock", Box::pin(some(handle.lock()))),
        };
        let (asked_at, guard) = self.attempt(lock, how, limit, future).await?;
        Some(Held::new(&self.process, lock, number, asked_at, guard))
    }

    async fn permit(
        &mut self,
        number: u64,
        limit: Option<Duration>,
    ) -> Option<kinds::Kept<Permit>> {
        let semaphore = self.client.semaphore(SEMAPHORE_NAME).with_permits(PERMITS);
        let (how, future): (_, Attempt<Permit>) = match limit {
            Some(limit) => {
                ("acquire_with_timeout", Box::pin(some(semaphore.acquire_with_timeout(limit))))
            }
            None => ("acquire", Box::pin(some(semaphore.acquire()))),
        };
        let (asked_at, permit) = self.attempt(SEMAPHORE, how, limit, future).await?;
        let share = Share::Permits { weight: permit.weight(), all: PERMITS };
        let key = permit.holder().as_str().to_owned();
        let part = Part { lock: SEMAPHORE, token: 0, key, share };
        Some(kinds::Kept::new(&self.process, number, asked_at, permit, vec![part]))
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
