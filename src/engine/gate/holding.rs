//! Who may hold something: a wait of one who holds nothing closes no circle, and so costs nothing.
//!
//! Holds are counted by what their owner, and their task or thread, hash to. So a count that is zero is certain, and another one
//! may be somebody else's: then the wait is noted without need.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::engine::circles::Party;
use crate::owner::{Owner, Place};

const SLOT_BITS: u32 = 10;

static HOLDS: [AtomicU32; 1 << SLOT_BITS] = [const { AtomicU32::new(0) }; 1 << SLOT_BITS];

/// Counts a hold until it is dropped.
pub(super) struct Counted(Slots);

#[derive(Clone, Copy)]
struct Slots {
    place: usize,
    /// An owner that was not named has no other acquisition.
    owner: Option<usize>,
}

impl Counted {
    pub(super) fn new(owner: &Owner, place: Place) -> Self {
        let slots = Slots::of(owner, place);
        // Who waits later learned of this hold before, from whoever counts it here: there is nothing to order.
        slots.counts().for_each(|count| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        Self(slots)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.counts().for_each(|count| {
            count.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

impl Slots {
    fn of(owner: &Owner, place: Place) -> Self {
        Self { place: slot(&place), owner: owner.is_shared().then(|| slot(owner)) }
    }

    fn counts(self) -> impl Iterator<Item = &'static AtomicU32> {
        [Some(self.place), self.owner].into_iter().flatten().map(|slot| &HOLDS[slot])
    }
}

/// Returns false if the owner holds nothing in this process, and neither does its task or thread.
pub(super) fn may_hold(party: &Party) -> bool {
    let mut counts = Slots::of(&party.owner, party.place).counts();
    counts.any(|count| count.load(Ordering::Relaxed) > 0)
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
        let counted = Counted::new(&owner, elsewhere);
        assert!(may_hold(&party(&owner, Place::here())), "the owner waits elsewhere");
        assert!(may_hold(&party(&other, elsewhere)), "the thread waits under another owner");
        let counts =
            || Slots::of(&owner, elsewhere).counts().map(|count| count.load(Ordering::Relaxed));
        let before: Vec<u32> = counts().collect();
        drop(counted);
        assert!(counts().zip(before).all(|(now, before)| now < before));
    }

    #[test]
    fn numbers_that_are_counted_up_share_few_slots() {
        let slots: std::collections::HashSet<usize> =
            (0..512_u64).map(|number| slot(&number)).collect();
        assert!(slots.len() > 400, "{}", slots.len());
    }
}
