//! The callers of this process that wait for one lock, in the order of their arrival.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::hold::Entry;
use crate::clock::Timestamp;
use crate::config::Terms;
use crate::error::Error;
use crate::owner::{Owner, Place};

/// Everyone joins by [`join`](Self::join), and leaves by [`take`](Self::take).
#[derive(Default)]
pub(super) struct WaitList {
    by_arrival: BTreeMap<u64, Waiter>,
}

pub(super) struct Waiter {
    pub(super) owner: Owner,
    pub(super) terms: Terms,
    pub(super) place: Place,
    pub(super) joined_at: Timestamp,
    /// It waits until it gets the lock, or until the servers have been away for too long.
    pub(super) for_ever: bool,
    pub(super) turn: Turn,
}

/// How a waiter learns that its wait is over.
pub(super) type Turn = oneshot::Sender<Result<Entry, Error>>;

impl WaitList {
    pub(super) fn join(&mut self, arrival: u64, waiter: Waiter) {
        self.by_arrival.insert(arrival, waiter);
    }

    /// The one door: whoever stops waiting, for whatever reason, leaves here.
    pub(super) fn take(&mut self, arrival: u64) -> Option<Waiter> {
        self.by_arrival.remove(&arrival)
    }

    /// Takes all that `which` selects, in the order of their arrival.
    pub(super) fn take_all(&mut self, which: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let selected = self.by_arrival.iter().filter(|(_, waiter)| which(waiter));
        let arrivals: Vec<u64> = selected.map(|(arrival, _)| *arrival).collect();
        arrivals.into_iter().filter_map(|arrival| self.take(arrival)).collect()
    }

    pub(super) fn first(&self) -> Option<(u64, &Waiter)> {
        self.by_arrival.first_key_value().map(|(arrival, waiter)| (*arrival, waiter))
    }

    pub(super) fn len(&self) -> usize {
        self.by_arrival.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_arrival.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LeaseTerms;

    fn waiter(owner: &Owner) -> Waiter {
        Waiter {
            owner: owner.clone(),
            terms: Terms::of(LeaseTerms::Watched(std::time::Duration::from_secs(1))),
            place: Place::here(),
            joined_at: Timestamp::default(),
            for_ever: true,
            turn: oneshot::channel().0,
        }
    }

    #[test]
    fn the_earliest_arrival_comes_first_whenever_it_joined() {
        let (one, other) = (Owner::new(), Owner::new());
        let mut list = WaitList::default();
        for (arrival, owner) in [(5, &one), (3, &other), (4, &one)] {
            list.join(arrival, waiter(owner));
        }
        assert_eq!(list.first().map(|(arrival, _)| arrival), Some(3));
        let taken = list.take_all(|waiter| waiter.owner == one);
        assert!(taken.len() == 2 && list.len() == 1 && list.take(4).is_none());
        assert!(list.take(3).is_some_and(|waiter| waiter.owner == other) && list.is_empty());
    }
}
