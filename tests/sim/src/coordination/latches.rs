//! What the processes know of latches. Pure: a latch opens when so many counts were made, and not before.

use std::collections::BTreeMap;

use super::Forgotten;

/// The latches, by their numbers, each of which is set once.
#[derive(Default)]
pub struct Latches {
    latches: BTreeMap<u64, Latch>,
    forgotten: Forgotten,
    /// The one that is used.
    pub current: Option<u64>,
}

#[derive(Clone, Copy)]
struct Latch {
    counts: u64,
    /// When it was asked for, and when it ends by itself, at the earliest; `None`: never.
    ends_at: Option<u64>,
    /// How many counts processes have asked for, and how many of them were confirmed.
    asked: u64,
    confirmed: u64,
    deleting: bool,
    deleted: bool,
    /// The fewest that were left when its server forgot something.
    least_forgotten: Option<u64>,
}

/// How many counts of a latch may be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub least: u64,
    pub most: u64,
}

impl Latches {
    /// A latch is shut since some time before `now`, until so many counts, or until its end `ttl_ms` after that.
    pub fn set(&mut self, latch: u64, counts: u64, asked_at: u64, ttl_ms: Option<u64>) {
        // The servers' clocks are a little faster or slower.
        let ends_at = ttl_ms.map(|ttl_ms| asked_at + ttl_ms - ttl_ms / 100);
        // What sets it may be forgotten.
        let deleting = self.forgotten.since(asked_at);
        let new = Latch {
            counts,
            ends_at,
            asked: 0,
            confirmed: 0,
            deleting,
            deleted: false,
            least_forgotten: None,
        };
        self.latches.insert(latch, new);
        self.current = Some(latch);
    }

    /// Somebody makes one of its counts. Returns how many may be left when that was done, as far as it is known now.
    pub fn counting(&mut self, latch: u64) -> u64 {
        let Some(it) = self.latches.get_mut(&latch) else { return 0 };
        it.asked += 1;
        it.most_left().saturating_sub(1)
    }

    pub fn counted(&mut self, latch: u64, asked_at: u64) {
        if self.forgotten.since(asked_at) {
            return;
        }
        if let Some(it) = self.latches.get_mut(&latch) {
            it.confirmed += 1;
        }
    }

    pub fn deleting(&mut self, latch: u64) {
        if let Some(it) = self.latches.get_mut(&latch) {
            it.deleting = true;
        }
    }

    pub fn deleted(&mut self, latch: u64, asked_at: u64) {
        if self.forgotten.since(asked_at) {
            return;
        }
        if let Some(it) = self.latches.get_mut(&latch) {
            it.deleted = true;
        }
    }

    /// How many counts may be left at most when one looks who begins to look now.
    pub fn most_left(&self, latch: u64) -> u64 {
        self.latches.get(&latch).map_or(0, Latch::most_left)
    }

    /// How many counts may be left if somebody has looked who began at `asked_at`, with `most_left`.
    pub fn bounds(&self, latch: u64, now: u64, most: u64, asked_at: u64) -> Bounds {
        let Some(it) = self.latches.get(&latch) else { return Bounds { least: 0, most } };
        let least = it.least_left(now);
        if self.forgotten.since(asked_at) {
            // It was asked before or after that.
            let least = least.min(it.least_forgotten.unwrap_or(least));
            return Bounds { least, most: most.max(it.counts) };
        }
        Bounds { least, most }
    }

    /// Its server has forgotten the last that it did, and has so many counts left of each; none if it is open there. What was
    /// asked for and not confirmed may be done still.
    pub fn forgot(&mut self, now: u64, left: impl Fn(u64) -> u64) {
        self.forgotten.at(now);
        for (latch, it) in &mut self.latches {
            let least = it.least_left(now);
            it.least_forgotten = Some(least.min(it.least_forgotten.unwrap_or(least)));
            it.counts = left(*latch);
            it.asked -= it.confirmed.min(it.asked);
            (it.confirmed, it.deleted) = (0, false);
        }
    }

    /// Whether its end may have come by itself.
    pub fn may_have_ended(&self, latch: u64, now: u64) -> bool {
        let ends_at = self.latches.get(&latch).and_then(|it| it.ends_at);
        ends_at.is_some_and(|ends_at| ends_at <= now)
    }

    /// Nobody needs to make any more counts of the one that is used, or nobody will.
    pub fn is_used_up(&self, now: u64) -> bool {
        let current = self.current.and_then(|latch| self.latches.get(&latch));
        current.is_none_or(|it| it.has_ended(now) || it.asked > it.counts)
    }

    /// Nobody uses those before the current one.
    pub fn forget_earlier(&mut self) {
        let current = self.current;
        self.latches.retain(|latch, _| Some(*latch) == current);
    }
}

impl Latch {
    fn least_left(&self, now: u64) -> u64 {
        if self.has_ended(now) { 0 } else { self.counts.saturating_sub(self.asked) }
    }

    fn most_left(&self) -> u64 {
        if self.deleted { 0 } else { self.counts.saturating_sub(self.confirmed) }
    }

    fn has_ended(&self, now: u64) -> bool {
        self.deleting || self.ends_at.is_some_and(|ends_at| ends_at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_two() -> Latches {
        let mut latches = Latches::default();
        latches.set(1, 2, 1000, Some(10_000));
        latches
    }

    fn left(latches: &Latches, now: u64) -> (u64, u64) {
        let Bounds { least, most } = latches.bounds(1, now, latches.most_left(1), now);
        (least, most)
    }

    #[test]
    fn a_count_is_made_at_most_as_often_as_it_was_asked_for_and_at_least_as_often_as_confirmed() {
        let mut latches = of_two();
        assert_eq!(left(&latches, 2000), (2, 2));
        assert_eq!(latches.counting(1), 1);
        assert_eq!(left(&latches, 2000), (1, 2), "perhaps");
        latches.counted(1, 2000);
        assert_eq!(left(&latches, 2000), (1, 1));
        assert_eq!((latches.counting(1), left(&latches, 2000)), (0, (0, 1)));
        latches.counted(1, 2000);
        assert_eq!(left(&latches, 2000), (0, 0));
    }

    #[test]
    fn it_may_be_open_after_its_end_and_when_somebody_deletes_it() {
        let mut latches = of_two();
        assert_eq!((left(&latches, 10_899), left(&latches, 10_900)), ((2, 2), (0, 2)));
        latches.deleting(1);
        assert_eq!(left(&latches, 2000), (0, 2));
        latches.deleted(1, 2000);
        assert_eq!(left(&latches, 2000), (0, 0));
    }
}
