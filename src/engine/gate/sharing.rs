//! A lease that several in this process use at once ([`Sharing::Together`]): they join and leave without the servers.
//!
//! So that those who wait in other processes get their turn, newcomers join for a window only. Afterwards they wait, and the
//! driver asks for one of them: if that is granted, nobody else was before them, and the seat is open again; otherwise the
//! request stands in the server's queue behind those that were.
//!
//! A grant does not say that the lease in use is still there: somebody may have removed it, and others may have written since.
//! So each ask of one who would share it inquires about it, too, behind the ask: on one server both are answered in one round
//! trip. If it is gone, it is lost, and the grant takes its place.

use std::sync::Arc;
use std::time::Duration;

use super::Gate;
use super::hold::Hold;
use super::seat::Seat;
use super::state::State;
use super::wait_list::Waiter;
use crate::clock::Timestamp;
use crate::config::{LeaseTerms, Terms};
use crate::engine::kind::{Kind, Sharing};
use crate::engine::lease::{Lease, Unconfirmed};
use crate::engine::quorum::{Beside, Renewal};
use crate::error::Fault;

impl Gate {
    /// Inquires whether the servers have the lease still that is in use here, if a grant of `wanted` would be shared with it.
    pub(super) fn inquire(self: &Arc<Self>, wanted: &dyn Kind, ask: u64) -> Option<Beside> {
        if wanted.sharing() != Sharing::Together {
            return None;
        }
        let lease = self.shared_with(wanted)?;
        let sent = lease.inquire(self.engine.clock.now());
        Some(Box::pin(self.clone().inquired(lease, sent, ask)))
    }

    async fn inquired(
        self: Arc<Self>,
        lease: Arc<Lease>,
        sent: Result<Renewal, Unconfirmed>,
        ask: u64,
    ) -> Result<(), Fault> {
        let mut seen = is_there(&lease, sent).await;
        if matches!(seen, Err(Unconfirmed::Unknown(_))) {
            // The servers have granted a lease by now, so they can be asked.
            seen = is_there(&lease, lease.inquire(self.engine.clock.now())).await;
        }
        match seen {
            Ok(_) => self.engine.watchdog.watch(&lease),
            Err(Unconfirmed::Lost(_)) => self.notice_loss(),
            Err(Unconfirmed::Unknown(fault)) => return Err(fault),
        }
        self.update(|state, _| state.seen(&lease, ask));
        Ok(())
    }

    /// Returns true if a lease is in use here that a grant of `wanted` would be shared with.
    pub(super) fn shares(&self, wanted: &dyn Kind) -> bool {
        self.shared_with(wanted).is_some()
    }

    fn shared_with(&self, wanted: &dyn Kind) -> Option<Arc<Lease>> {
        let state = self.state.lock();
        let hold =
            state.seat.current_hold().filter(|hold| hold.lease.kind.is_shared_with(wanted))?;
        Some(hold.lease.clone())
    }
}

/// Waits for the answer to an inquiry about a lease.
async fn is_there(
    lease: &Lease,
    sent: Result<Renewal, Unconfirmed>,
) -> Result<Timestamp, Unconfirmed> {
    let sent = sent?;
    let as_it_is = Terms::of(LeaseTerms::Fixed(sent.ttl));
    lease.confirmed(sent, as_it_is, Timestamp::NEVER).await
}

impl State {
    /// Takes in that a lease was seen on the servers during that ask.
    pub(super) fn seen(&mut self, lease: &Arc<Lease>, ask: u64) {
        if let Seat::Held(seated) = &mut self.seat
            && Arc::ptr_eq(&seated.lease, lease)
        {
            seated.seen_in = seated.seen_in.max(ask);
        }
    }

    /// Returns true unless a lease is in use that a grant of `wanted` would be shared with, and that was not seen during that
    /// ask, or may not have been since the grant.
    pub(super) fn is_seen(&self, wanted: &dyn Kind, ask: Option<u64>) -> bool {
        let Seat::Held(seated) = &self.seat else { return true };
        let is_seen = ask.is_some_and(|ask| ask <= seated.seen_in);
        is_seen || !seated.lease.kind.is_shared_with(wanted)
    }

    /// Adds a hold to those that share the lease in use.
    pub(super) fn join(&mut self, hold: Arc<Hold>) {
        if let Seat::Held(seated) = &mut self.seat {
            seated.lease.used_by(&hold.owner, hold.token);
            seated.holds.push(hold);
        }
    }

    /// Takes a hold from those that share the lease in use, which has ended. Returns false if there are no others.
    pub(super) fn others_share(&mut self, hold: &Arc<Hold>) -> bool {
        let Seat::Held(seated) = &mut self.seat else { return false };
        if seated.holds.len() == 1 {
            return false;
        }
        seated.holds.retain(|seated| !Arc::ptr_eq(seated, hold));
        true
    }

    /// Returns true if a newcomer may share the lease in use, without asking the servers: nobody of this process is before
    /// it, and a short while ago nobody else was (invariant 11).
    pub(super) fn is_open_to(&self, wanted: &dyn Kind, now: Timestamp) -> bool {
        let Seat::Held(seated) = &self.seat else { return false };
        seated.lease.kind.is_shared_with(wanted)
            && now < seated.open_until
            && self.waiters.is_empty()
            && seated.lease.has_time(now)
    }

    /// Takes in that the servers granted `lease`, too, which is shared with the one in use. Returns false if none is.
    pub(super) fn reopen(&mut self, lease: &Lease, window: Duration, now: Timestamp) -> bool {
        let Seat::Held(seated) = &mut self.seat else { return false };
        if seated.lease.remaining(now).is_zero() || !seated.lease.kind.is_shared_with(&*lease.kind)
        {
            return false;
        }
        seated.open_until = seated.open_until.max(lease.passes_from.plus(window));
        true
    }

    /// Takes the first ordinary waiter, if it shares the lease in use.
    pub(super) fn take_next_to_join(&mut self) -> Option<Box<Waiter>> {
        let Seat::Held(seated) = &self.seat else { return None };
        let (arrival, waiter) = self.waiters.first()?;
        let joins = seated.lease.kind.is_shared_with(&*waiter.wanted.side);
        if joins { self.waiters.take(arrival) } else { None }
    }
}
