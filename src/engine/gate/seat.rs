//! The seat of a gate: the lease that is in use in this process, and who uses it.
//!
//! Most leases have one user, and pass from one to the next. A shared lease ([`Sharing::Together`]) has several at once, who
//! join and leave without the servers. So that those who wait in other processes get their turn, newcomers join for a
//! window only. Afterwards they wait, and the driver asks for one of them: if that is granted, nobody else was before them,
//! and the seat is open again; otherwise the request stands in the server's queue behind those that were.
//!
//! A grant does not say that the lease in use is still there: somebody may have removed it, and others may have written since.
//! So each ask of one who would share it inquires about it, too, behind the ask: on one server both are answered in one round
//! trip. If it is gone, it is lost, and the grant takes its place.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::Gate;
use super::effects::Effects;
use super::hold::{Entry, Hold};
use super::state::State;
use super::unsent::Unsent;
use super::wait_list::{Offer, Waiter};
use crate::clock::Timestamp;
use crate::config::{LeaseTerms, Terms};
use crate::engine::kind::{Kind, Sharing};
use crate::engine::lease::{Lease, Unconfirmed};
use crate::engine::quorum::{Beside, Renewal};
use crate::error::Fault;
use crate::owner::Owner;

/// Who holds the lock in this process.
#[derive(Default)]
pub(super) enum Seat {
    #[default]
    Free,
    Held(Seated),
    /// Nobody uses it any more, and its release is still to be sent.
    Unsent(Unsent),
}

/// A lease in use.
pub(super) struct Seated {
    pub(super) lease: Arc<Lease>,
    /// Who uses it: one hold, or several if the lease is shared.
    holds: SmallVec<[Arc<Hold>; 1]>,
    /// Until when newcomers may share it without asking the servers whether others wait.
    open_until: Timestamp,
    /// The number of the last ask during which it was seen on the servers, its own included; or zero.
    seen_in: u64,
}

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
        let hold = state.current_hold().filter(|hold| hold.lease.kind.is_shared_with(wanted))?;
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
    /// Seats a hold, and with it all who wait for the same owner. If its lease is shared, others may join within `window`.
    pub(super) fn seat(
        &mut self,
        hold: Arc<Hold>,
        window: Duration,
        effects: &mut Effects,
        now: Timestamp,
    ) {
        let mut depth = 1;
        if hold.owner.is_shared() && !self.waiters.is_empty() {
            let kind = &hold.lease.kind;
            let is_own =
                |waiter: &Waiter| waiter.owner == hold.owner && kind.contains(&*waiter.wanted.side);
            for waiter in self.waiters.take_all(is_own) {
                let entry = Entry::offered(&hold, true, waiter.wanted.terms, now);
                effects.turns.push((waiter.turn, Ok(Offer { entry, at: now })));
                depth += 1;
            }
        }
        hold.set_depth(depth);
        self.sit(hold, window);
    }

    /// Seats a hold alone.
    pub(super) fn sit(&mut self, hold: Arc<Hold>, window: Duration) {
        let lease = hold.lease.clone();
        lease.used_by(&hold.owner, hold.token);
        let open_until = lease.acquired_at.plus(window);
        let holds = SmallVec::from_buf([hold]);
        self.seat = Seat::Held(Seated { lease, holds, open_until, seen_in: 0 });
    }

    /// Returns the lease that this process has, whether it is in use or not.
    pub(super) fn lease(&self) -> Option<&Arc<Lease>> {
        match &self.seat {
            Seat::Free => None,
            Seat::Held(seated) => Some(&seated.lease),
            Seat::Unsent(unsent) => Some(unsent.lease()),
        }
    }

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
        seated.open_until = seated.open_until.max(lease.acquired_at.plus(window));
        true
    }

    /// Takes the first ordinary waiter, if it shares the lease in use.
    pub(super) fn take_next_to_join(&mut self) -> Option<Box<Waiter>> {
        let Seat::Held(seated) = &self.seat else { return None };
        let (arrival, waiter) = self.waiters.first()?;
        let joins = seated.lease.kind.is_shared_with(&*waiter.wanted.side);
        if joins { self.waiters.take(arrival) } else { None }
    }

    /// Returns the hold of this process, or the first of several that share a lease.
    pub(super) fn current_hold(&self) -> Option<&Arc<Hold>> {
        self.holds().first()
    }

    /// Returns the one who uses the lease, or who was the last to.
    pub(super) fn last_user(&self) -> Option<&Arc<Hold>> {
        match &self.seat {
            Seat::Unsent(unsent) => Some(unsent.hold()),
            Seat::Free | Seat::Held(_) => self.current_hold(),
        }
    }

    pub(super) fn holds(&self) -> &[Arc<Hold>] {
        match &self.seat {
            Seat::Free | Seat::Unsent(_) => &[],
            Seat::Held(seated) => &seated.holds,
        }
    }

    /// Returns the hold of `owner`.
    pub(super) fn hold_of(&self, owner: &Owner) -> Option<&Arc<Hold>> {
        self.holds().iter().find(|hold| hold.owner == *owner)
    }
}
