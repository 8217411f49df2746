//! What the users of a lease change about it: its hold count, and how long it lasts.

use std::time::Duration;

use super::Lease;
use super::reclaiming::Missing;
use super::state::{Phase, State, end_of_hold};
use crate::clock::Timestamp;
use crate::config::{LeaseTerms, Terms, drift};
use crate::engine::quorum::Renewal;
use crate::error::{Fault, LossReason};

impl Lease {
    /// Sets the hold count. The servers are told behind the caller's back, one update at a time.
    pub(crate) fn set_count(&self, count: u32) -> Option<Renewal> {
        let mut state = self.state.lock();
        state.count = count;
        self.write_count(&mut state)
    }

    /// Takes in the answer to an update of the count. Returns the next one, if the count has changed meanwhile, or what
    /// puts the lease back.
    pub(crate) fn count_written(
        &self,
        update: &mut Renewal,
        answer: Result<bool, Fault>,
    ) -> Option<Renewal> {
        let mut state = self.state.lock();
        state.count_in_flight = false;
        match answer {
            Ok(true) => {
                state.count_written = update.count;
                if state.phase == Phase::Held {
                    self.noted(&mut state, update);
                    self.absorb(&mut state, update, self.clock.now());
                }
                let next = self.write_count(&mut state);
                self.tell_news(state);
                next
            }
            Ok(false) if state.phase != Phase::Held => None,
            Ok(false) => match self.missing(&mut state, update, self.clock.now()) {
                Missing::Reclaiming(reclaim) => {
                    state.renewing = true;
                    Some(*reclaim)
                }
                Missing::Unknown(_) => None,
                Missing::Lost(reason) => {
                    drop(state);
                    self.lose(reason);
                    None
                }
            },
            // The next renewal writes it.
            Err(_) => None,
        }
    }

    pub(super) fn write_count(&self, state: &mut State) -> Option<Renewal> {
        let wanted = state.phase == Phase::Held
            && !state.count_in_flight
            && state.count != state.count_written;
        if !wanted {
            return None;
        }
        self.send_count(state)
    }

    pub(super) fn send_count(&self, state: &mut State) -> Option<Renewal> {
        let sent = self.send_renewal(state, Duration::ZERO).ok()?;
        state.count_in_flight = true;
        Some(sent)
    }

    /// Sends what makes the lease last as `terms` ask, if it would not do so anyway.
    ///
    /// The second value is when the watchdog has to look, if that has changed.
    pub(crate) fn widen(
        &self,
        terms: Terms,
        now: Timestamp,
    ) -> (Option<Result<Renewal, Fault>>, Option<Timestamp>) {
        let mut state = self.state.lock();
        let ttl = terms.ttl();
        let mut look_at = None;
        let lasts = match terms.lease {
            LeaseTerms::Watched(_) => {
                let renew_until = end_of_hold(terms.max_hold, now);
                if state.watched && renew_until > state.renew_until {
                    look_at = state.limit(renew_until);
                }
                state.watched && ttl <= state.ttl
            }
            LeaseTerms::Fixed(_) => {
                (state.watched && state.renew_until == Timestamp::NEVER)
                    || now.plus(ttl).minus(drift(ttl)) <= state.deadline
            }
        };
        if lasts || state.phase != Phase::Held {
            return (None, look_at);
        }
        (Some(self.send_renewal(&mut state, ttl)), look_at)
    }

    /// Sends what makes the lease last for `ttl` from now on at least.
    pub(crate) fn lengthen(&self, ttl: Duration) -> Result<Renewal, Fault> {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Held => self.send_renewal(&mut state, ttl),
            _ => Err(Fault::Closed),
        }
    }

    pub(super) fn send_renewal(&self, state: &mut State, ttl: Duration) -> Result<Renewal, Fault> {
        let renewal = self.quorum.renew(&*self.kind, self.id(), state.count, ttl)?;
        state.asked_for(ttl, renewal.sent_at());
        Ok(renewal)
    }

    /// Takes in that the server does not have the lease that a widening asked about.
    pub(crate) fn not_widened(&self, renewal: &Renewal, now: Timestamp) -> Missing {
        let mut state = self.state.lock();
        let missing = match state.phase {
            Phase::Held => self.missing(&mut state, renewal, now),
            Phase::Lost(reason) => Missing::Lost(reason),
            Phase::Released => Missing::Lost(LossReason::Ended),
        };
        drop(state);
        if let Missing::Lost(reason) = missing {
            self.lose(reason);
        }
        missing
    }

    /// Takes in the answer to a widening: the lease lasts as `terms` ask from now on.
    pub(crate) fn widened(
        &self,
        renewal: &mut Renewal,
        terms: Terms,
        now: Timestamp,
    ) -> Result<Timestamp, LossReason> {
        self.check(now)?;
        let mut state = self.state.lock();
        // What is put back on a node must not come behind the release.
        match state.phase {
            Phase::Held => {}
            Phase::Lost(reason) => return Err(reason),
            Phase::Released => return Err(LossReason::Ended),
        }
        if self.is_late(renewal, now) {
            drop(state);
            self.lose(LossReason::Failover);
            return Err(LossReason::Failover);
        }
        state.confirm(renewal);
        self.noted(&mut state, renewal);
        self.absorb(&mut state, renewal, now);
        if let LeaseTerms::Watched(ttl) = terms.lease {
            if !state.watched {
                state.watched = true;
                state.ttl = ttl;
                state.renew_until = end_of_hold(terms.max_hold, now);
            }
            state.ttl = state.ttl.max(ttl);
            state.renew_at = renewal.sent_at().plus(state.ttl / 3);
        }
        let next_at = state.next_at();
        self.tell_news(state);
        Ok(next_at)
    }
}
