//! Who may hold something: a wait of one who holds nothing closes no circle, and so costs nothing.
//!
//! Holds are counted by what their owner, and their task or thread, hash to. So a count that is zero is certain, and another one
//! may be somebody else's: then the wait is noted without need.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::engine::circles::Party;
use crate::owner::{Owner, Place};

const SLOT_BITS: u32 = 10;

/// How many holds there are, by slots.
pub(super) struct Holdings([AtomicU32; 1 << SLOT_BITS]);

/// Where a hold is counted.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    place: usize,
    /// An owner that was not named has no other acquisition.
    owner: Option<usize>,
}

impl Default for Holdings {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; 1 << SLOT_BITS])
    }
}

impl Holdings {
    /// Counts a hold, until it is [taken out](Self::take_out).
    pub(super) fn count(&self, owner: &Owner, place: Place) -> Slots {
        let slots = Slots::of(owner, place);
        // Who waits later learned of this hold before, from whoever counts it here: there is nothing to order.
        self.counts(slots).for_each(|count| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        slots
    }

    pub(super) fn take_out(&self, slots: Slots) {
        self.counts(slots).for_each(|count| {
            count.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Returns false if the owner holds nothing in this process, and neither does its task or thread.
    pub(super) fn may_hold(&self, party: &Party) -> bool {
        let mut counts = self.counts(Slots::of(&party.owner, party.place));
        counts.any(|count| count.load(Ordering::Relaxed) > 0)
    }

    fn counts(&self, slots: Slots) -> impl Iterator<Item = &AtomicU32> {
        [Some(slots.place), slots.owner].into_iter().flatten().map(|slot| &self.0[slot])
    }
}

impl Slots {
    fn of(owner: &Owner, place: Place) -> Self {
        Self { place: slot(&place), owner: owner.is_shared().then(|| slot(owner)) }
    }
}

fn slot(actor: &impl Hash) -> usize {
    let mut mixed = Mixed(0);
    actor.hash(&mut mixed);
    (mixed.finish() >> (u64::BITS - SLOT_BITS)) as usize
}

/// Numbers that are counted up, spread over all bits.
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio: Knuth's multiplicative hashing.
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_counts_for_its_owner_and_its_place_until_it_is_dropped() {
        let elsewhere = std::thread::spawn(Place::here).join().expect("no panic");
        let party = |owner: &Owner, place| Party { owner: owner.clone(), place };
        let (owner, other) = (Owner::named("x"), Owner::single());
        let holdings = Holdings::default();
        let slots = holdings.count(&owner, elsewhere);
        assert!(holdings.may_hold(&party(&owner, Place::here())), "the owner waits elsewhere");
        assert!(
            holdings.may_hold(&party(&other, elsewhere)),
            "the thread waits under another owner"
        );
        holdings.take_out(slots);
        assert!(!holdings.may_hold(&party(&owner, elsewhere)));
    }

    #[test]
    fn numbers_that_are_counted_up_share_few_slots() {
        let slots: std::collections::HashSet<usize> =
            (0..512_u64).map(|number| slot(&number)).collect();
        assert!(slots.len() > 400, "{}", slots.len());
    }
}
