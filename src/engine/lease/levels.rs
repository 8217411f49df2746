//! Those who use a lease: each is a level with terms of its own, and the lease is renewed for as long as one of them wants.

use super::Lease;
use super::state::end_of_hold;
use crate::clock::Timestamp;
use crate::config::Terms;

impl Lease {
    /// Adds one that uses it, on `terms` from `from` on. Returns its number, and when the watchdog has to look, if that has
    /// changed.
    pub(crate) fn enter(&self, terms: Terms, from: Timestamp) -> (u64, Option<Timestamp>) {
        let mut state = self.state.lock();
        (state.enter(end_of_hold(terms, from)), state.settle())
    }

    /// Adds one that may not look at it any more: until it is [taken up](Self::take_up), the lease is renewed for a part of the
    /// TTL only, so that it ends a TTL after it was offered.
    pub(crate) fn offer(&self, terms: Terms, now: Timestamp) -> (u64, Option<Timestamp>) {
        let mut state = self.state.lock();
        let until = state.end_of_offer(terms, now);
        (state.enter(until), state.settle())
    }

    /// Has one that uses it already be [taken up](Self::take_up), too.
    pub(crate) fn await_take_up(
        &self,
        level: u64,
        terms: Terms,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let mut state = self.state.lock();
        let until = state.end_of_offer(terms, now);
        state.limit(level, until);
        state.settle()
    }

    /// Sets the terms of one that was offered it. Returns whether it is ours still, and when the watchdog has to look, if that
    /// has changed.
    pub(crate) fn take_up(
        &self,
        level: u64,
        terms: Terms,
        offered_at: Timestamp,
        now: Timestamp,
    ) -> (bool, Option<Timestamp>) {
        let look_at = {
            let mut state = self.state.lock();
            state.limit(level, end_of_hold(terms, offered_at));
            state.settle()
        };
        // The process may have stood still, and the watchdog has not looked yet.
        (self.check(now).is_ok(), look_at)
    }

    /// Adds one that uses it for as long as another does. Returns its number.
    pub(crate) fn enter_beside(&self, level: u64) -> u64 {
        let mut state = self.state.lock();
        let until = state.until(level).unwrap_or(state.renew_until);
        state.enter(until)
    }

    /// Takes out one that uses it no more: it is renewed for the others only.
    pub(crate) fn leave(&self, level: u64) {
        self.state.lock().leave(level);
    }

    /// Sets the terms of one that uses it, counted from `from`; when the watchdog has to look, if that has changed.
    pub(crate) fn limit(&self, level: u64, terms: Terms, from: Timestamp) -> Option<Timestamp> {
        let mut state = self.state.lock();
        state.limit(level, end_of_hold(terms, from));
        state.settle()
    }
}

#[cfg(test)]
mod tests;
