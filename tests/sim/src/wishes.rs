//! Who asks whether the lock that it holds is wanted, and who has wanted it.

use std::collections::BTreeMap;

use crate::history::Ask;
use crate::kinds::SEVERAL;

/// A guard that is asked from then on whether somebody wants its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asking {
    pub host: usize,
    pub lock: usize,
    pub since: u64,
}

#[derive(Default)]
pub struct Wishes {
    /// By the numbers of the guards.
    asking: BTreeMap<u64, Asking>,
    /// When somebody last began or ended to ask for each lock.
    last: BTreeMap<usize, u64>,
}

impl Wishes {
    pub fn begun(&mut self, guard: u64, asking: Asking) {
        self.asking.insert(guard, asking);
    }

    pub fn ended(&mut self, guard: u64) -> Option<Asking> {
        self.asking.remove(&guard)
    }

    pub fn gone_with(&mut self, host: usize) {
        self.asking.retain(|_, asking| asking.host != host);
    }

    /// Somebody asks for a lock, or does so no more.
    pub fn asked(&mut self, lock: usize, now: u64) {
        self.last.insert(lock, now);
    }

    /// Whether a lock may be said to be wanted: somebody asks for it, or did so not long ago. What a process that is gone has
    /// asked for stays in the queue until its turn comes.
    pub fn may_be_told(&self, lock: usize, now: u64, pending: &BTreeMap<u64, Ask>) -> bool {
        // Whoever wants several locks waits for one of those that are not somebody's own.
        let wants = |asked: usize| asked == lock || asked == SEVERAL && !is_own(lock);
        pending.values().any(|ask| wants(ask.lock))
            || self.last.iter().any(|(asked, at)| wants(*asked) && at + REMEMBERED_MS >= now)
    }

    /// The guards that are asked and say no, though somebody waits for the lock; each since both are so.
    pub fn untold(&self, pending: &BTreeMap<u64, Ask>) -> Vec<(u64, Asking)> {
        let waits =
            |lock: usize| pending.values().filter(move |ask| ask.lock == lock && ask.waits());
        let untold = self.asking.iter().filter_map(|(guard, asking)| {
            let first = waits(asking.lock).map(|ask| ask.since).min()?;
            Some((*guard, Asking { since: asking.since.max(first), ..*asking }))
        });
        untold.collect()
    }
}

/// The number of the lock that only one worker of a host takes.
pub fn own_lock(host: usize, worker: usize) -> usize {
    OWN + host * 10 + worker
}

pub fn is_own(lock: usize) -> bool {
    (OWN..OWN + 100).contains(&lock)
}

const OWN: usize = 600;
/// So long somebody is still said to want a lock who did so once.
const REMEMBERED_MS: u64 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(lock: usize, how: &'static str, since: u64) -> Ask {
        Ask { host: 1, lock, how, since, weight: 1 }
    }

    #[test]
    fn a_lock_is_wanted_while_somebody_asks_for_it_and_for_a_while_after() {
        let mut wishes = Wishes::default();
        let pending = BTreeMap::from([(1, ask(3, "lock", 10))]);
        assert!(wishes.may_be_told(3, 90_000, &pending));
        assert!(!wishes.may_be_told(4, 90_000, &pending));
        wishes.asked(4, 60_000);
        assert!(wishes.may_be_told(4, 80_000, &pending));
        assert!(!wishes.may_be_told(4, 80_001, &pending));
        let several = BTreeMap::from([(1, ask(SEVERAL, "multi lock", 10))]);
        assert!(wishes.may_be_told(4, 90_000, &several));
        assert!(!wishes.may_be_told(own_lock(1, 2), 90_000, &several));
    }

    #[test]
    fn who_waits_behind_a_guard_that_says_no_is_found() {
        let mut wishes = Wishes::default();
        wishes.begun(7, Asking { host: 0, lock: 3, since: 100 });
        let attempt = BTreeMap::from([(1, ask(3, "try_lock", 50)), (2, ask(4, "lock", 50))]);
        assert_eq!(wishes.untold(&attempt), [], "nobody waits for it");
        for (since, both) in [(50, 100), (150, 150)] {
            let waits = BTreeMap::from([(1, ask(3, "lock", since))]);
            let found = Asking { host: 0, lock: 3, since: both };
            assert_eq!(wishes.untold(&waits), [(7, found)]);
        }
        wishes.ended(7);
        let waits = BTreeMap::from([(1, ask(3, "lock", 50))]);
        assert_eq!(wishes.untold(&waits), []);
    }
}
