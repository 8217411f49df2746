//! The callers of this process that wait for one lock, in the order of their arrival.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::TakenBy;
use super::entry::Entry;
use crate::clock::Timestamp;
use crate::config::Terms;
use crate::engine::kind::{Kind, Wanted};
use crate::error::Error;
use crate::owner::{Owner, Place};

/// Everyone joins by [`join`](Self::join), and leaves by [`take`](Self::take). Each costs a search in a tree, however many
/// wait; they are boxed, since a tree moves what it has when somebody comes or leaves.
#[derive(Default)]
pub(super) struct WaitList {
    /// Those who get the lock one after the other in one request.
    ordinary: BTreeMap<u64, Box<Waiter>>,
    /// Those of fair handles, each with a request of its own.
    fair: BTreeMap<u64, Box<Waiter>>,
    /// Those of fair handles who came or left since the driver looked.
    moved: Vec<u64>,
    /// Nobody is to be told of a wait before that. It may be too early, and is of no meaning while nobody waits.
    slow_at: Timestamp,
}

pub(super) struct Waiter {
    pub(super) owner: Owner,
    pub(super) wanted: Wanted,
    pub(super) place: Place,
    pub(super) joined_at: Timestamp,
    /// It waits until it gets the lock, or until the servers have been away for too long.
    pub(super) for_ever: bool,
    /// The line of code that asked.
    pub(super) asked_at: &'static Location<'static>,
    /// When somebody is to be told of its wait next.
    pub(super) slow_at: Timestamp,
    pub(super) turn: Turn,
}

impl Waiter {
    fn is_fair(&self) -> bool {
        self.wanted.terms.fair
    }

    /// It may wait for as long as it likes: nobody is told of it, and a client that is drained has nothing to finish with it.
    pub(super) fn is_patient(&self) -> bool {
        self.slow_at == Timestamp::NEVER
    }

    pub(super) fn taker(&self) -> TakenBy<'_> {
        TakenBy { owner: &self.owner, place: self.place, at: self.asked_at }
    }
}

/// A wait that has lasted so long that somebody is told of it.
pub(super) struct SlowWait {
    pub(super) owner: Owner,
    pub(super) asked_at: &'static Location<'static>,
    pub(super) waited: Duration,
}

/// From this time on, a wait is slow.
pub(super) const SLOW: Duration = Duration::from_secs(1);

/// Returns when a wait is told of next: after 1 s, 10 s and 60 s, and then every 60 s.
fn next_slow_at(joined_at: Timestamp, now: Timestamp) -> Timestamp {
    let minutes = now.since(joined_at).as_secs() / 60;
    let lengths = [1, 10].into_iter().chain([60 * (minutes + 1)]).map(Duration::from_secs);
    let mut moments = lengths.map(|length| joined_at.plus(length));
    moments.find(|at| *at > now).unwrap_or(Timestamp::NEVER)
}

/// For whom a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Seeker {
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
        self.slow_at = self.slow_at().min(waiter.slow_at);
        if waiter.is_fair() {
            self.fair.insert(arrival, Box::new(waiter));
            self.moved.push(arrival);
        } else {
            self.ordinary.insert(arrival, Box::new(waiter));
        }
    }

    /// The one door: whoever stops waiting, for whatever reason, leaves here.
    pub(super) fn take(&mut self, arrival: u64) -> Option<Box<Waiter>> {
        if let Some(waiter) = self.ordinary.remove(&arrival) {
            return Some(waiter);
        }
        let waiter = self.fair.remove(&arrival)?;
        self.moved.push(arrival);
        Some(waiter)
    }

    /// A waiter did not get what its request was granted: it is asked for again, if it still waits.
    pub(super) fn again(&mut self, seeker: Seeker) {
        if let Seeker::Fair(arrival) = seeker {
            self.moved.push(arrival);
        }
    }

    /// Takes all that `which` selects, in the order of their arrival.
    pub(super) fn take_all(&mut self, which: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let all = self.ordinary.iter().chain(&self.fair);
        let selected = all.filter(|(_, waiter)| which(waiter));
        let mut arrivals: Vec<u64> = selected.map(|(arrival, _)| *arrival).collect();
        arrivals.sort_unstable();
        let taken = arrivals.into_iter().filter_map(|arrival| self.take(arrival));
        taken.map(|waiter| *waiter).collect()
    }

    /// Returns the first of the ordinary waiters, which get the lock one after the other in one request.
    pub(super) fn first(&self) -> Option<(u64, &Waiter)> {
        self.ordinary.first_key_value().map(|(arrival, waiter)| (*arrival, &**waiter))
    }

    /// Returns the waiter for whom a request asks, if it still waits.
    pub(super) fn of(&self, seeker: Seeker) -> Option<(u64, &Waiter)> {
        match seeker {
            Seeker::Ordinary => self.first(),
            Seeker::Fair(arrival) => self.fair.get(&arrival).map(|waiter| (arrival, &**waiter)),
        }
    }

    /// Returns what somebody waits for.
    pub(super) fn side_of(&self, arrival: u64) -> Option<Arc<dyn Kind>> {
        let waiter = self.ordinary.get(&arrival).or_else(|| self.fair.get(&arrival))?;
        Some(waiter.wanted.side.clone())
    }

    /// Returns true if somebody has to get the lock first, and waits for as long as it takes, who does not share it with that one.
    pub(super) fn is_behind_others(&self, arrival: u64, side: &dyn Kind) -> bool {
        let first = self.first().filter(|_| self.ordinary.contains_key(&arrival));
        first.is_some_and(|(before, waiter)| {
            before < arrival && waiter.for_ever && !waiter.wanted.side.is_shared_with(side)
        })
    }

    /// Returns what one of them waits for.
    pub(super) fn any_side(&self) -> Option<Arc<dyn Kind>> {
        let waiter = self.ordinary.values().chain(self.fair.values()).next()?;
        Some(waiter.wanted.side.clone())
    }

    /// Returns the waiters of fair handles that came or left since this was asked last, with what those want who wait.
    pub(super) fn take_moved(&mut self) -> Vec<(Seeker, Option<Wanted>)> {
        let wanted = |arrival| self.fair.get(&arrival).map(|waiter| waiter.wanted.clone());
        let moved = std::mem::take(&mut self.moved).into_iter();
        moved.map(|arrival| (Seeker::Fair(arrival), wanted(arrival))).collect()
    }

    /// Returns when to look for waits that are to be told of.
    pub(super) fn slow_at(&self) -> Timestamp {
        if self.is_empty() { Timestamp::NEVER } else { self.slow_at }
    }

    /// Returns the waits that are to be told of at `now`. Only then all are looked at, and so a few times a second at most.
    pub(super) fn take_slow(&mut self, now: Timestamp) -> Vec<SlowWait> {
        if now < self.slow_at() {
            return Vec::new();
        }
        let (mut slow, mut next) = (Vec::new(), Timestamp::NEVER);
        for waiter in self.ordinary.values_mut().chain(self.fair.values_mut()) {
            if waiter.slow_at <= now {
                slow.push(SlowWait {
                    owner: waiter.owner.clone(),
                    asked_at: waiter.asked_at,
                    waited: now.since(waiter.joined_at),
                });
                waiter.slow_at = next_slow_at(waiter.joined_at, now);
            }
            next = next.min(waiter.slow_at);
        }
        self.slow_at = next.max(now.plus(LOOK_AT_MOST_EVERY));
        slow
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

const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
