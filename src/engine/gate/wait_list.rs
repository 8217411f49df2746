//! The callers of this process that wait for one lock, in the order of their arrival.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::hold::Entry;
use crate::clock::Timestamp;
use crate::config::Terms;
use crate::engine::kind::Wanted;
use crate::error::Error;
use crate::owner::{Owner, Place};

/// Everyone joins by [`join`](Self::join), and leaves by [`take`](Self::take). Each costs a search in a tree, however many
/// wait.
#[derive(Default)]
pub(super) struct WaitList {
    /// Those who get the lock one after the other in one request.
    ordinary: BTreeMap<u64, Waiter>,
    /// Those of fair handles, each with a request of its own.
    fair: BTreeMap<u64, Waiter>,
    /// Those of fair handles who came or left since the driver looked.
    moved: Vec<u64>,
}

pub(super) struct Waiter {
    pub(super) owner: Owner,
    pub(super) wanted: Wanted,
    pub(super) place: Place,
    pub(super) joined_at: Timestamp,
    /// It waits until it gets the lock, or until the servers have been away for too long.
    pub(super) for_ever: bool,
    pub(super) turn: Turn,
}

impl Waiter {
    fn is_fair(&self) -> bool {
        self.wanted.terms.fair
    }
}

/// For whom a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Seeker {
    /// For the ordinary waiters of this process, of whom the first gets the lock.
    Ordinary,
    /// For one waiter of a fair handle, by its arrival.
    Fair(u64),
}

impl Seeker {
    pub(super) fn of(terms: Terms, arrival: u64) -> Self {
        if terms.fair { Self::Fair(arrival) } else { Self::Ordinary }
    }
}

/// How a waiter learns that its wait is over.
pub(super) type Turn = oneshot::Sender<Result<Offer, Error>>;

/// What a waiter is given, until it takes it up.
pub(super) struct Offer {
    pub(super) entry: Entry,
    /// When it was given.
    pub(super) at: Timestamp,
}

impl WaitList {
    pub(super) fn join(&mut self, arrival: u64, waiter: Waiter) {
        if waiter.is_fair() {
            self.fair.insert(arrival, waiter);
            self.moved.push(arrival);
        } else {
            self.ordinary.insert(arrival, waiter);
        }
    }

    /// The one door: whoever stops waiting, for whatever reason, leaves here.
    pub(super) fn take(&mut self, arrival: u64) -> Option<Waiter> {
        if let Some(waiter) = self.ordinary.remove(&arrival) {
            return Some(waiter);
        }
        let waiter = self.fair.remove(&arrival)?;
        self.moved.push(arrival);
        Some(waiter)
    }

    /// Takes all that `which` selects, in the order of their arrival.
    pub(super) fn take_all(&mut self, which: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let all = self.ordinary.iter().chain(&self.fair);
        let selected = all.filter(|(_, waiter)| which(waiter));
        let mut arrivals: Vec<u64> = selected.map(|(arrival, _)| *arrival).collect();
        arrivals.sort_unstable();
        arrivals.into_iter().filter_map(|arrival| self.take(arrival)).collect()
    }

    /// Returns the first of the ordinary waiters, which get the lock one after the other in one request.
    pub(super) fn first(&self) -> Option<(u64, &Waiter)> {
        self.ordinary.first_key_value().map(|(arrival, waiter)| (*arrival, waiter))
    }

    /// Returns the waiter for whom a request asks, if it still waits.
    pub(super) fn of(&self, seeker: Seeker) -> Option<(u64, &Waiter)> {
        match seeker {
            Seeker::Ordinary => self.first(),
            Seeker::Fair(arrival) => self.fair.get(&arrival).map(|waiter| (arrival, waiter)),
        }
    }

    /// Returns the waiters of fair handles that came or left since this was asked last, with what those want who wait.
    pub(super) fn take_moved(&mut self) -> Vec<(Seeker, Option<Wanted>)> {
        let wanted = |arrival| self.fair.get(&arrival).map(|waiter| waiter.wanted.clone());
        let moved = std::mem::take(&mut self.moved).into_iter();
        moved.map(|arrival| (Seeker::Fair(arrival), wanted(arrival))).collect()
    }

    pub(super) fn fair_len(&self) -> usize {
        self.fair.len()
    }

    pub(super) fn ordinary_len(&self) -> usize {
        self.ordinary.len()
    }

    pub(super) fn len(&self) -> usize {
        self.ordinary.len() + self.fair.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ordinary.is_empty() && self.fair.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::LeaseTerms;
    use crate::engine::kind::Sharing;
    use crate::engine::kind::plain::Plain;

    fn terms(fair: bool) -> Terms {
        Terms { fair, ..Terms::of(LeaseTerms::Watched(std::time::Duration::from_secs(1))) }
    }

    fn waiter(owner: &Owner, terms: Terms) -> Waiter {
        Waiter {
            owner: owner.clone(),
            wanted: Wanted { side: Arc::new(Plain::new(Sharing::Alone, 0)), terms },
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
            list.join(arrival, waiter(owner, terms(false)));
        }
        assert_eq!(list.first().map(|(arrival, _)| arrival), Some(3));
        let taken = list.take_all(|waiter| waiter.owner == one);
        assert!(taken.len() == 2 && list.len() == 1 && list.take(4).is_none());
        assert!(list.take(3).is_some_and(|waiter| waiter.owner == other) && list.is_empty());
    }

    #[test]
    fn a_request_asks_for_one_fair_waiter_or_for_all_others() {
        assert_eq!(Seeker::of(terms(true), 5), Seeker::Fair(5));
        assert_eq!(Seeker::of(terms(false), 5), Seeker::Ordinary);
    }

    #[test]
    fn a_fair_waiter_has_a_request_of_its_own_and_the_others_share_one() {
        let owner = Owner::new();
        let mut list = WaitList::default();
        for (arrival, fair) in [(1, true), (2, false), (3, false), (4, true)] {
            list.join(arrival, waiter(&owner, terms(fair)));
        }
        let moved = |list: &mut WaitList| -> Vec<_> {
            list.take_moved()
                .into_iter()
                .map(|(seeker, wanted)| (seeker, wanted.is_some()))
                .collect()
        };
        assert_eq!(moved(&mut list), [(Seeker::Fair(1), true), (Seeker::Fair(4), true)]);
        assert_eq!(moved(&mut list), []);
        assert_eq!(list.first().map(|(arrival, _)| arrival), Some(2));
        assert_eq!((list.len(), list.fair_len(), list.ordinary_len()), (4, 2, 2));
        assert!(list.of(Seeker::Fair(4)).is_some() && list.take(4).is_some());
        assert_eq!(moved(&mut list), [(Seeker::Fair(4), false)]);
        assert_eq!((list.len(), list.fair_len(), list.ordinary_len()), (3, 1, 2));
        assert!(list.take(2).is_some());
        assert_eq!((list.len(), list.fair_len(), list.ordinary_len()), (2, 1, 1));
        assert!(list.of(Seeker::Fair(4)).is_none() && list.of(Seeker::Ordinary).is_some());
    }
}
