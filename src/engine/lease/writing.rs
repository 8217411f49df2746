//! What the users of a lease change about it: its hold count, and how long it lasts.

use std::time::Duration;

use super::Lease;
use super::reclaiming::Missing;
use super::state::{Phase, State};
use crate::clock::Timestamp;
use crate::config::{LeaseTerms, Terms, drift};
use crate::engine::quorum::Renewal;
use crate::error::{Fault, LossReason};

/// Why a renewal was not confirmed.
pub(crate) enum Unconfirmed {
    Lost(LossReason),
    Unknown(Fault),
}

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
        now: Timestamp,
    ) -> Option<Renewal> {
        // An answer that comes after the end comes too late.
        let standing = self.check(now);
        let mut state = self.state.lock();
        state.count_in_flight = false;
        if standing.is_err() || state.phase != Phase::Held {
            return None;
        }
        let next = match answer {
            Ok(true) => {
                state.believe(update);
                self.noted(&mut state, update);
                self.absorb(&mut state, update, now);
                self.write_count(&mut state)
            }
            Ok(false) => match self.missing(&mut state, update, now) {
                Missing::Reclaiming(reclaim) => {
                    state.renewing = true;
                    Some(*reclaim)
                }
                Missing::Unknown(_) => None,
                Missing::Lost(reason) => {
                    drop(state);
                    self.lose(reason);
                    return None;
                }
            },
            // The next renewal writes it, or the next question.
            Err(_) => {
                state.confirmed = false;
                self.absorb(&mut state, update, now);
                None
            }
        };
        self.tell_news(state);
        next
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

    /// Sends what makes the lease last as `terms` of a level ask, if it would not do so anyway.
    pub(crate) fn widen(
        &self,
        level: u64,
        terms: Terms,
        now: Timestamp,
    ) -> Option<Result<Renewal, Fault>> {
        let mut state = self.state.lock();
        let ttl = terms.ttl();
        let lasts = match terms.lease {
            // A renewal that is overdue says that nobody wanted any.
            LeaseTerms::Watched(_) => {
                let is_renewed = state.watched && (state.renewing || now < state.renew_at);
                is_renewed && ttl <= state.ttl && now.plus(terms.min_hold) <= state.deadline
            }
            LeaseTerms::Fixed(_) => {
                let is_covered = now.plus(ttl).minus(drift(ttl)) <= state.deadline;
                let is_renewed = state.watched && state.renew_until == Timestamp::NEVER;
                if is_renewed && !is_covered {
                    // Also if those leave by then who have it renewed now.
                    state.limit(level, now.plus(ttl));
                }
                is_covered || is_renewed
            }
        };
        if lasts || state.phase != Phase::Held {
            return None;
        }
        Some(self.send_renewal(&mut state, ttl))
    }

    /// Sends what makes the lease last for `ttl` from now on at least.
    pub(crate) fn lengthen(&self, ttl: Duration) -> Result<Renewal, Fault> {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Held => self.send_renewal(&mut state, ttl),
            _ => Err(Fault::Closed),
        }
    }

    /// Asks whether the servers have it still. A lease that is renewed is lengthened by the way, and another one lasts as long
    /// as before.
    pub(crate) fn inquire(&self, now: Timestamp) -> Result<Renewal, Unconfirmed> {
        let mut state = self.state.lock();
        let renews = state.watched && now < state.renew_until;
        let ttl = if renews { state.ttl } else { state.deadline.since(now) };
        match state.phase {
            Phase::Held => self.send_renewal(&mut state, ttl).map_err(Unconfirmed::Unknown),
            Phase::Lost(reason) => Err(Unconfirmed::Lost(reason)),
            // Its last user has left.
            Phase::Released => Err(Unconfirmed::Lost(LossReason::Ended)),
        }
    }

    /// Waits, until `until`, for the servers to confirm a renewal, and puts the lease back if that can be. Returns when the
    /// watchdog has to look.
    pub(crate) async fn confirmed(
        &self,
        mut renewal: Renewal,
        terms: Terms,
        until: Timestamp,
    ) -> Result<Timestamp, Unconfirmed> {
        // For as long as an answer about the new lease may take, and no longer than the old one lasts.
        let within = self.quorum.patience(renewal.ttl).max(self.patience(renewal.sent_at()));
        let within = within.min(self.time_left(renewal.sent_at()));
        loop {
            let within = within.min(until.since(renewal.sent_at()));
            let answer = self.answer(&mut renewal, within).await;
            let now = self.clock.now();
            match answer {
                Ok(true) => {
                    return self.widened(&mut renewal, terms, now).map_err(Unconfirmed::Lost);
                }
                Ok(false) => match self.not_widened(&renewal, now) {
                    Missing::Reclaiming(reclaim) => renewal = *reclaim,
                    Missing::Unknown(fault) => return Err(self.unknown(fault, now)),
                    Missing::Lost(reason) => return Err(Unconfirmed::Lost(reason)),
                },
                Err(fault) => return Err(self.unknown(fault, now)),
            }
        }
    }

    fn unknown(&self, fault: Fault, now: Timestamp) -> Unconfirmed {
        self.check(now).map_or_else(Unconfirmed::Lost, |()| Unconfirmed::Unknown(fault))
    }

    pub(super) fn send_renewal(&self, state: &mut State, ttl: Duration) -> Result<Renewal, Fault> {
        let renewal = self.quorum.renew(&*self.kind, self.id(), state.count, ttl)?;
        state.asked_for(ttl, renewal.sent_at());
        Ok(renewal)
    }

    /// Takes in that the server does not have the lease that a widening asked about.
    pub(super) fn not_widened(&self, renewal: &Renewal, now: Timestamp) -> Missing {
        if let Err(reason) = self.check(now) {
            return Missing::Lost(reason);
        }
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
    pub(super) fn widened(
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
            }
            state.ttl = state.ttl.max(ttl);
            let doubted = state.is_doubted_since(renewal);
            let third = renewal.sent_at().plus(state.ttl.min(renewal.ttl) / 3);
            state.renew_at = if doubted { now } else { third };
        }
        let next_at = state.next_at();
        self.tell_news(state);
        Ok(next_at)
    }
}

#[cfg(test)]
mod tests;
