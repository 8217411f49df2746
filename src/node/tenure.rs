//! The slots that a node of a cluster owns, and when grants in each of them count. Pure.
//!
//! A slot may come from a master that has lost grants, or from one that was not asked at all since it is dead. Nothing on
//! the servers tells which. So with each slot that a server did not have before begins a quarantine, of that slot alone. The
//! server's mark names the slots, each with the time from which on clients have known the server with it.

use std::time::Duration;

use crate::clock::Timestamp;

/// The slots that a server says it owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owned {
    /// The first and the last slot of each range, in order.
    pub(crate) ranges: Vec<(u16, u16)>,
    /// Hash tags of a few of them. Clients that see the same slots choose the same, and after a change of some slots most
    /// of them stay.
    pub(crate) tags: Vec<String>,
}

impl Owned {
    /// Returns the slots as `grace_mark.lua` takes them.
    pub(super) fn text(&self) -> String {
        let ranges = self.ranges.iter().map(|(first, last)| format!("{first}-{last}"));
        ranges.collect::<Vec<_>>().join(" ")
    }
}

/// Since when clients have known a server with each of its slots, by the server's clock in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Noted(Box<[u64]>);

impl Noted {
    /// No slot is known yet.
    pub(super) fn nothing() -> Self {
        Self(vec![u64::MAX; SLOTS].into())
    }

    /// Takes in one mark's ranges.
    pub(super) fn read(&mut self, ranges: &[i64]) {
        for range in ranges.chunks_exact(3) {
            let [first, last, since] = [range[0], range[1], range[2]];
            let (Ok(first), Ok(last)) = (usize::try_from(first), usize::try_from(last)) else {
                continue;
            };
            let since = u64::try_from(since).unwrap_or(u64::MAX);
            for known in self.0.get_mut(first..=last).into_iter().flatten() {
                *known = since.min(*known);
            }
        }
    }

    /// Takes in what another mark of the same server says. For each slot the latest counts: what left while a mark was away itself,
    /// with the slot in which it is, and came back meanwhile, that mark does not know.
    pub(super) fn absorb(&mut self, other: &Self) {
        for (known, since) in self.0.iter_mut().zip(&other.0) {
            *known = (*known).max(*since);
        }
    }

    fn since(&self, slot: u16) -> Option<u64> {
        self.0.get(usize::from(slot)).copied().filter(|since| *since != u64::MAX)
    }
}

/// When grants in one slot count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) counts_from: Timestamp,
    /// Until then a lease of the slot that the server does not have may be put back.
    pub(super) reclaims_until: Timestamp,
    /// What was granted before has tokens below this; zero if that is not known.
    pub(crate) tokens_from: u64,
}

/// The slots of a node, as far as this client has noted them.
#[derive(Debug, Default)]
pub(super) struct Tenure(Vec<(u16, u16, Standing)>);

impl Tenure {
    /// Returns the slots.
    pub(super) fn ranges(&self) -> Vec<(u16, u16)> {
        let mut joined: Vec<(u16, u16)> = Vec::new();
        for &(first, last, _) in &self.0 {
            match joined.last_mut() {
                Some(before) if before.1 + 1 == first => before.1 = last,
                _ => joined.push((first, last)),
            }
        }
        joined
    }

    /// Returns when grants in a slot count; `None` if it is not known that the server has it.
    pub(super) fn of(&self, slot: u16) -> Option<Standing> {
        let at = self.0.partition_point(|(_, last, _)| *last < slot);
        let (first, _, standing) = self.0.get(at)?;
        (*first <= slot).then_some(*standing)
    }

    /// The server owns these slots now. One that it had already stands as before; `of_new` tells how another one does.
    pub(super) fn renew(&mut self, owned: &[(u16, u16)], of_new: impl Fn(u16) -> Standing) {
        let mut renewed: Vec<(u16, u16, Standing)> = Vec::new();
        for slot in owned.iter().flat_map(|&(first, last)| first..=last) {
            let standing = self.of(slot).unwrap_or_else(|| of_new(slot));
            match renewed.last_mut() {
                Some((_, last, before)) if *last + 1 == slot && *before == standing => *last = slot,
                _ => renewed.push((slot, slot, standing)),
            }
        }
        self.0 = renewed;
    }

    /// Forgets all slots: the server is another one.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// What a server's marks say of its slots, and when they were read.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    pub(super) owned: Owned,
    /// `None` if the marks could not be read.
    pub(super) noted: Option<Noted>,
    /// The server's clock when the first mark was read, in microseconds.
    pub(super) now_us: u64,
    pub(super) asked_at: Timestamp,
    pub(super) heard_at: Timestamp,
}

impl Slots {
    /// Returns how grants in a slot stand that the client has not known the server with before. Those of the server itself,
    /// which are `all`, are the least.
    pub(super) fn standing(&self, slot: u16, length: Duration, all: Standing) -> Standing {
        let since = self.noted.as_ref().and_then(|noted| noted.since(slot));
        let Some(since) = since else {
            let counts_from = self.heard_at.plus(length);
            return Standing { counts_from, reclaims_until: counts_from, tokens_from: 0 };
        };
        let age = Duration::from_micros(self.now_us.saturating_sub(since));
        let counts_from = self.heard_at.plus(length.saturating_sub(age - age / 100));
        let others_count_from = self.asked_at.plus(length.saturating_sub(age + age / 50));
        let counts_from = counts_from.max(all.counts_from);
        Standing {
            counts_from,
            reclaims_until: others_count_from.min(counts_from),
            // The clock of the server that had it before may have been ahead.
            tokens_from: all.tokens_from.max(since + length.as_micros() as u64),
        }
    }
}

/// How many slots a cluster has.
const SLOTS: usize = 16384;

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(seconds))
    }

    fn standing(seconds: u64) -> Standing {
        Standing { counts_from: at(seconds), reclaims_until: at(seconds), tokens_from: 0 }
    }

    #[test]
    fn a_slot_that_stays_stands_as_before_and_one_that_comes_does_not() {
        let mut tenure = Tenure::default();
        assert_eq!((tenure.of(0), tenure.ranges()), (None, vec![]));
        tenure.renew(&[(0, 9), (20, 29)], |_| standing(1));
        tenure.renew(&[(5, 12), (20, 20)], |slot| standing(u64::from(slot)));
        let found = [4, 5, 9, 10, 12, 13, 19, 20, 21].map(|slot| tenure.of(slot));
        let [was, ten, twelve] = [1, 10, 12].map(|second| Some(standing(second)));
        assert_eq!(found, [None, was, was, ten, twelve, None, None, was, None]);
        assert_eq!(tenure.ranges(), [(5, 12), (20, 20)]);
        tenure.renew(&[(0, 9)], |_| standing(7));
        assert_eq!((tenure.of(4), tenure.of(5)), (Some(standing(7)), was), "it left, and is back");
        tenure.clear();
        assert_eq!(tenure.of(5), None);
    }

    #[test]
    fn of_several_marks_the_latest_counts_for_each_slot() {
        let marks =
            [&[0, 9, 500, 10, 19, 700][..], &[0, 4, 500, 5, 19, 600, 16383, 16384, 1, -1, 3]];
        let [mut noted, other] = marks.map(|ranges| {
            let mut noted = Noted::nothing();
            noted.read(ranges);
            noted
        });
        noted.absorb(&other);
        let since = [0, 4, 5, 9, 10, 19, 20, 16383].map(|slot| noted.since(slot));
        let [a, b, c] = [500, 600, 700].map(Some);
        assert_eq!(since, [a, a, b, b, c, c, None, None]);
    }

    #[test]
    fn grants_in_a_slot_count_a_quarantine_after_clients_have_known_the_server_with_it() {
        let mut noted = Noted::nothing();
        noted.read(&[0, 0, 100_000_000, 1, 1, 190_000_000, 2, 2, 200_000_000]);
        let slots = Slots {
            owned: Owned::default(),
            noted: Some(noted),
            now_us: 200_000_000,
            asked_at: at(999),
            heard_at: at(1000),
        };
        for (slot, counts_from, reclaims_until) in
            [(0, 1000.0, 999.0), (1, 1050.1, 1048.8), (2, 1060.0, 1059.0), (3, 1060.0, 1060.0)]
        {
            let standing = slots.standing(slot, MINUTE, standing(0));
            let seconds = [standing.counts_from, standing.reclaims_until]
                .map(|time| time.since(Timestamp::default()).as_secs_f64());
            for (found, expected) in seconds.into_iter().zip([counts_from, reclaims_until]) {
                assert!((found - expected).abs() < 0.01, "{slot}: {found}");
            }
        }
        let late = slots.standing(0, MINUTE, standing(1030));
        assert_eq!(late.counts_from, at(1030), "not before those of the server itself");
        assert_eq!(late.reclaims_until, at(999));
        assert_eq!(slots.standing(1, MINUTE, standing(0)).tokens_from, 250_000_000);
        assert_eq!(slots.standing(3, MINUTE, standing(0)).tokens_from, 0, "it is not known");
    }
}
