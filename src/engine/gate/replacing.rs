//! A lease that takes the place of another one: at the downgrade of a writer to a reader, and if the other one was lost.

use std::sync::Arc;
use std::time::Duration;

use super::entry::Entry;
use super::hold::{Hold, PendingRelease};
use super::seat::Seat;
use super::state::ABANDONED;
use super::{Claim, Gate, Request, Service, Until};
use crate::clock::Timestamp;
use crate::engine::kind::{Kind, Wanted};
use crate::engine::lease::Lease;
use crate::engine::quorum::Outcome;
use crate::error::{Error, LossReason};
use crate::events;
use crate::monitor::HoldEnd;

impl Gate {
    /// Asks for `wanted` by `asks`, which the servers grant in the place of the lease of `entry`, and returns its entry. If the
    /// owner has other levels of that hold, it keeps it as it is.
    ///
    /// From here on the old hold is over, whatever comes of it: without an answer nobody knows whether others share the lock
    /// already.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, both leases are released in the background.
    pub(crate) async fn replace(
        mut entry: Entry,
        asks: Arc<dyn Kind>,
        wanted: Wanted,
    ) -> Result<Entry, Error> {
        let hold = entry.hold().clone();
        let gate = hold.gate.clone();
        let lost = |reason| Error::lost(&gate.name, reason);
        let began_at = gate.engine.clock.now();
        hold.lease.check(began_at).map_err(lost)?;
        let Some((claim, replaced)) = gate.vacate(&hold, asks, &wanted).map_err(lost)? else {
            events::not_downgraded(&gate.name, &hold.owner, hold.depth());
            return Ok(entry);
        };
        entry.forget();
        let owner = hold.owner.clone();
        let request = Request::new(owner, wanted, Until::Once, began_at, hold.taken_at);
        // Dropped before the old lease is: on a connection its release then follows the acquire.
        let mut attempt = claim.attempt();
        // What it may have got is kept for the shortest hold, as the old lease would be.
        attempt.keep(hold.lease.kept_until().since(began_at));
        match claim.ask(&mut attempt, Timestamp::NEVER).await {
            Ok(Outcome::Granted(grant)) => {
                let entry = claim.granted(grant, &request);
                let entry = entry.ok_or_else(|| lost(hold.lease.why_missing()))?;
                entry.hold().lease.keep_until(hold.lease.kept_until());
                // After a shutdown, what was granted is released, and then what it took the place of.
                gate.engine.check_service(Service::Draining)?;
                entry.hold().begin();
                Ok(entry)
            }
            Ok(Outcome::Refused(..)) => {
                attempt.keep(Duration::ZERO);
                drop((claim, attempt, replaced));
                Err(lost(hold.lease.why_missing()))
            }
            Err(fault) => {
                attempt.keep(hold.lease.kept_until().since(gate.engine.clock.now()));
                drop((claim, attempt, replaced));
                Err(gate.error(fault))
            }
        }
    }

    /// Takes a hold with one level from the seat, whose lease is still to be released, and gives out the right to ask.
    fn vacate(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        asks: Arc<dyn Kind>,
        wanted: &Wanted,
    ) -> Result<Option<(Claim, Replaced)>, LossReason> {
        let vacated = self.update(|state, _| {
            if !state.seat.holds().iter().any(|seated| Arc::ptr_eq(seated, hold)) {
                return Err(hold.lease.loss().unwrap_or(LossReason::NotRenewed));
            }
            if hold.depth() > 1 {
                return Ok(None);
            }
            hold.end();
            hold.lease.retire();
            state.seat = Seat::Free;
            let now = self.engine.clock.now();
            state.refusal = None;
            state.given_back(&hold.lease, Some(hold.owner.clone()), now);
            let asks = Wanted { side: asks, terms: wanted.terms };
            let claim = self.claim(state, asks, 0);
            if let Some(asking) = &mut state.asking {
                // Who takes the right from it may be seated first, and to this one the lock would be lost. So it has the time of an
                // answer.
                let answered_within = self.engine.config.response_timeout(wanted.terms.ttl());
                asking.patience = answered_within + ABANDONED;
            }
            Ok(Some(claim))
        })?;
        let Some(claim) = vacated else { return Ok(None) };
        self.engine.watchdog.forget(&hold.lease);
        hold.tell_released(HoldEnd::Released, self.engine.clock.now());
        let replaced = Replaced { gate: self.clone(), lease: hold.lease.clone() };
        Ok(Some((claim, replaced)))
    }

    /// Ends the hold of this process, if there is one: the server has granted the lock to another request of ours, which it
    /// does only when the last lease has ended there, or is shared with `granted`.
    pub(super) fn lose_what_is_held(self: &Arc<Self>, granted: &dyn Kind) {
        if let Some(hold) = self.current_hold() {
            if !hold.lease.kind.is_shared_with(granted) {
                hold.lease.lose(hold.lease.why_missing());
            }
            self.notice_loss();
        }
        self.send_unsent();
    }
}

/// A lease that nobody uses any more, and that is released when this is dropped.
struct Replaced {
    gate: Arc<Gate>,
    lease: Arc<Lease>,
}

impl Drop for Replaced {
    fn drop(&mut self) {
        let release = Box::new(self.lease.release());
        let pending = PendingRelease { lease: self.lease.clone(), release, number: 0 };
        self.gate.finish_in_background(pending);
    }
}
