//! A lease that its server does not have: lost, or put back.
//!
//! | the server that does not have it                          | what becomes of the lease                    |
//! |-----------------------------------------------------------|----------------------------------------------|
//! | was asked before it confirmed the lease last              | nothing: that is over                        |
//! | is the run, with the history, that confirmed it last      | lost: somebody removed it                    |
//! | is another one, and grants to others do not count yet     | put back, unless another holds the lock      |
//! | is another one, and they may                              | lost                                         |
//!
//! It is put back with the same id and the same tokens, before its deadline only. Nobody else can have had a grant that
//! counts since its server was replaced, see `node/quarantine.rs`. So this is for one server; over several, those that
//! have the lease decide, see `foothold.rs`.

use super::Lease;
use super::state::{News, State};
use crate::clock::Timestamp;
use crate::engine::quorum::Renewal;
use crate::error::{Fault, LossReason};

/// What follows from the server's answer that it does not have the lease.
pub(super) enum Missing {
    /// It is being put back; the answer is still to come.
    Reclaiming(Box<Renewal>),
    /// It could not be sent, or the answer is of a time that is over: nothing is known.
    Unknown(Fault),
    Lost(LossReason),
}

impl Lease {
    /// Decides, and sends what puts the lease back. `answered` is the request that the server answered.
    pub(super) fn missing(&self, state: &mut State, answered: &Renewal, now: Timestamp) -> Missing {
        let [foothold] = &*state.footholds else { return Missing::Lost(LossReason::Gone) };
        if answered.reclaims {
            return Missing::Lost(LossReason::Failover);
        }
        if foothold.was_confirmed_since(answered) {
            return Missing::Unknown(Fault::NoAnswer(now.since(answered.sent_at())));
        }
        if foothold.source() == answered.source() {
            return Missing::Lost(LossReason::Gone);
        }
        if !self.quorum.may_reclaim(answered, now) {
            return Missing::Lost(LossReason::Failover);
        }
        let ttl = answered.ttl.max(state.rest(now));
        let tokens = (state.block_end + 1).saturating_sub(state.block)..=state.block_end;
        let call = self.kind.reclaim(&self.ticket, state.count, ttl, tokens);
        match self.quorum.reclaim(call, state.count, ttl) {
            Ok(reclaim) => {
                state.asked_for(ttl, reclaim.sent_at());
                state.footholds[0].reclaimed(&reclaim);
                Missing::Reclaiming(Box::new(reclaim))
            }
            Err(fault) => Missing::Unknown(fault),
        }
    }

    /// Returns the reason for its loss if its release shows that the server did not have it.
    pub(crate) fn why_missing(&self) -> LossReason {
        let state = self.state.lock();
        match (&*state.footholds, self.quorum.source()) {
            ([foothold], Some(source)) if foothold.source() != source => LossReason::Failover,
            _ => LossReason::Gone,
        }
    }

    /// Returns true if a lease was put back so late that another grant may have counted in the meantime.
    pub(super) fn is_late(&self, renewal: &Renewal, now: Timestamp) -> bool {
        renewal.reclaims && !self.quorum.may_reclaim(renewal, now)
    }

    /// Takes in that the only server has the lease.
    pub(super) fn noted(&self, state: &mut State, renewal: &Renewal) {
        if let [foothold] = &mut *state.footholds {
            foothold.confirmed(renewal);
        }
        if renewal.reclaims {
            state.news.push(News::Reclaimed);
        }
    }
}
