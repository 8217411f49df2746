//! The seat of a gate: the lease that is in use in this process, and who uses it.
//!
//! Most leases have one user, and pass from one to the next. A shared lease ([`Sharing::Together`]) has several at once, who
//! join and leave without the servers. So that those who wait in other processes get their turn, newcomers join for a
//! window only. Afterwards they wait, and the driver asks for one of them: if that is granted, nobody else was before them,
//! and the seat is open again; otherwise the request stands in the server's queue behind those that were.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::effects::Effects;
use super::hold::{Entry, Hold};
use super::state::State;
use super::wait_list::Waiter;
use crate::clock::Timestamp;
use crate::engine::kind::{Kind, Sharing};
use crate::engine::lease::Lease;
use crate::owner::Owner;

/// Who holds the lock in this process.
#[derive(Default)]
pub(super) enum Seat {
    #[default]
    Free,
    Held(Seated),
}

/// A lease in use.
pub(super) struct Seated {
    pub(super) lease: Arc<Lease>,
    /// Who uses it: one hold, or several if the lease is shared.
    holds: SmallVec<[Arc<Hold>; 1]>,
    /// Until when newcomers may share it without asking the servers whether others wait.
    open_until: Timestamp,
}

impl State {
    /// Seats a hold, and with it all who wait for the same owner. If its lease is shared, others may join within `window`.
    pub(super) fn seat(&mut self, hold: Arc<Hold>, window: Duration, effects: &mut Effects) {
        let mut depth = 1;
        if hold.owner.is_shared() && !self.waiters.is_empty() {
            let kind = &hold.lease.kind;
            let is_own =
                |waiter: &Waiter| waiter.owner == hold.owner && kind.contains(&*waiter.wanted.side);
            for waiter in self.waiters.take_all(is_own) {
                effects.turns.push((waiter.turn, Ok(Entry::joining(&hold))));
                depth += 1;
            }
        }
        hold.lease.used_by(&hold.owner, hold.token);
        hold.set_depth(depth);
        let lease = hold.lease.clone();
        let open_until = lease.acquired_at.plus(window);
        self.seat = Seat::Held(Seated { lease, holds: SmallVec::from_buf([hold]), open_until });
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
    pub(super) fn take_next_to_join(&mut self) -> Option<Waiter> {
        let Seat::Held(seated) = &self.seat else { return None };
        let (arrival, waiter) = self.waiters.first()?;
        let joins = seated.lease.kind.is_shared_with(&*waiter.wanted.side);
        if joins { self.waiters.take(arrival) } else { None }
    }

    /// Returns the hold of this process, or the first of several that share a lease.
    pub(super) fn current_hold(&self) -> Option<&Arc<Hold>> {
        self.holds().first()
    }

    pub(super) fn holds(&self) -> &[Arc<Hold>] {
        match &self.seat {
            Seat::Free => &[],
            Seat::Held(seated) => &seated.holds,
        }
    }

    /// Returns the hold of `owner`.
    pub(super) fn hold_of(&self, owner: &Owner) -> Option<&Arc<Hold>> {
        self.holds().iter().find(|hold| hold.owner == *owner)
    }

    /// Returns true if one hold of this process has the lock, and shares it with nobody.
    pub(super) fn is_held_alone(&self) -> bool {
        matches!(&self.seat, Seat::Held(seated) if seated.lease.kind.sharing() == Sharing::Alone)
    }
}
