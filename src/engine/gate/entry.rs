//! The levels of a hold: an entry for each, and what comes of leaving one.

use std::sync::Arc;

use super::hold::{Hold, PendingRelease};
use super::parting::Parting;
use crate::clock::Timestamp;
use crate::config::Terms;
use crate::engine::quorum::Renewal;
use crate::error::{Fault, LossReason};
use crate::monitor::HoldEnd;

/// One level of a hold. Dropping it leaves that level.
pub(crate) struct Entry {
    /// `None` once it was left.
    hold: Option<Arc<Hold>>,
    joined: bool,
    /// What its lease knows it by.
    level: u64,
}

impl Entry {
    /// The first level of a hold, which was taken on `terms`, and began at `from`.
    pub(super) fn new(hold: &Arc<Hold>, terms: Terms, from: Timestamp) -> Self {
        Self::of(hold, false, terms, from)
    }

    /// A level of a hold that was taken on somebody else's terms.
    pub(super) fn joining(hold: &Arc<Hold>, terms: Terms, now: Timestamp) -> Self {
        Self::of(hold, true, terms, now)
    }

    /// A level of a hold for a waiter, who may be polled no more: until it is [taken up](Self::take_up), it keeps the lease for
    /// a part of the TTL only.
    pub(super) fn offered(hold: &Arc<Hold>, joined: bool, terms: Terms, now: Timestamp) -> Self {
        let (level, look_at) = hold.lease.offer(terms, now);
        hold.watch_again(look_at);
        Self { hold: Some(hold.clone()), joined, level }
    }

    /// Limits it like one that was [offered](Self::offered).
    pub(super) fn await_take_up(&self, terms: Terms, now: Timestamp) {
        let hold = self.hold();
        hold.watch_again(hold.lease.await_take_up(self.level, terms, now));
    }

    /// Keeps the hold on those terms, which it was offered on at `offered_at`. Returns `None` if it has ended meanwhile.
    pub(super) fn take_up(
        self,
        terms: Terms,
        offered_at: Timestamp,
        now: Timestamp,
    ) -> Option<Self> {
        let hold = self.hold();
        let (held, look_at) = hold.lease.take_up(self.level, terms, offered_at, now);
        hold.watch_again(look_at);
        held.then_some(self)
    }

    fn of(hold: &Arc<Hold>, joined: bool, terms: Terms, from: Timestamp) -> Self {
        let (level, look_at) = hold.lease.enter(terms, from);
        hold.watch_again(look_at);
        Self { hold: Some(hold.clone()), joined, level }
    }

    /// Sets the terms on which this level keeps the hold, from `now` on.
    pub(crate) fn limit(&self, terms: Terms, now: Timestamp) {
        let hold = self.hold();
        hold.watch_again(hold.lease.limit(self.level, terms, now));
    }

    /// Whether the hold was taken on somebody else's terms.
    pub(crate) fn joined(&self) -> bool {
        self.joined
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        self.hold.as_ref().expect("BUG: an entry that was left is gone")
    }

    /// Whether it was left.
    pub(crate) fn is_left(&self) -> bool {
        self.hold.is_none()
    }

    /// Sets its terms, and sends what makes the lease last as they ask, if need be.
    pub(crate) fn widen(&self, terms: Terms, now: Timestamp) -> Option<Result<Renewal, Fault>> {
        self.limit(terms, now);
        self.hold().lease.widen(self.level, terms, now)
    }

    /// Leaves it here and now; what remains to be waited for, which the caller does.
    pub(crate) fn leave(&mut self) -> Departure {
        match self.hold.take() {
            Some(hold) => hold.leave(self.level, true),
            None => Departure::Nested,
        }
    }

    /// Takes the entry out of its hold, which has ended otherwise.
    pub(super) fn forget(&mut self) {
        self.hold = None;
    }

    /// Another level of the same hold.
    pub(crate) fn again(&self) -> Result<Self, LossReason> {
        let hold = self.hold();
        hold.gate.enter_again(hold, |hold| hold.enter_beside(self.level))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        if let Departure::Released(release) = hold.leave(self.level, false) {
            hold.gate.finish_in_background(release);
        }
    }
}

/// What leaving came to.
pub(crate) enum Departure {
    /// The owner has other guards.
    Nested,
    /// The lease went to the next waiter, or is in use by others who share it.
    HandedOff,
    /// The release is on its way.
    Released(PendingRelease),
    /// The release is sent when the other tasks have had their turn, unless one of them takes the lease.
    Unsent(Parting),
    /// It had been lost.
    Lost(LossReason),
}

impl Hold {
    /// Adds a level, on `terms` from `now` on.
    pub(super) fn enter(self: &Arc<Self>, terms: Terms, now: Timestamp) -> Entry {
        self.set_depth(self.depth() + 1);
        Entry::joining(self, terms, now)
    }

    /// Adds a level like another one.
    fn enter_beside(self: &Arc<Self>, level: u64) -> Entry {
        self.set_depth(self.depth() + 1);
        Entry { hold: Some(self.clone()), joined: true, level: self.lease.enter_beside(level) }
    }

    /// Leaves one level of it.
    fn leave(self: &Arc<Self>, level: u64, awaited: bool) -> Departure {
        let (departure, now) = self.gate.leave(self, level, awaited);
        match departure {
            Departure::HandedOff => self.tell_released(HoldEnd::HandedOff, now),
            Departure::Released(_) => self.tell_released(HoldEnd::Released, now),
            Departure::Lost(_) if self.depth() == 0 => self.count_end(HoldEnd::Lost, now),
            Departure::Lost(_) | Departure::Nested | Departure::Unsent(_) => {}
        }
        departure
    }
}
