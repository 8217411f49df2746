//! A lease in use: the hold, its levels, and its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::oneshot;

use super::Gate;
use crate::clock::Timestamp;
use crate::engine::kind::Refusal;
use crate::engine::lease::Lease;
use crate::engine::quorum::{Release, Renewal};
use crate::error::{Error, LossReason};
use crate::events::{self, Use};
use crate::key::Holder;
use crate::owner::{Owner, Place};

/// A lease in use by an owner.
pub(crate) struct Hold {
    pub(crate) gate: Arc<Gate>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) owner: Owner,
    pub(crate) token: u64,
    pub(crate) since: Timestamp,
    pub(super) place: Place,
    /// How many guards there are. Changed under the gate's mutex.
    pub(super) depth: AtomicU32,
    /// It ended with its last guard. A loss after that is not its own.
    pub(super) over: AtomicBool,
}

impl Hold {
    pub(crate) fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(super) fn enter(self: &Arc<Self>) -> (Entry, Option<Renewal>) {
        let depth = self.depth.fetch_add(1, Ordering::Relaxed) + 1;
        (Entry::joining(self), self.lease.set_count(depth))
    }
}

/// One level of a hold. Dropping it leaves that level.
pub(crate) struct Entry {
    /// `None` once it was left.
    hold: Option<Arc<Hold>>,
    joined: bool,
}

impl Entry {
    pub(super) fn new(hold: &Arc<Hold>) -> Self {
        Self { hold: Some(hold.clone()), joined: false }
    }

    /// A level of a hold that was taken on somebody else's terms.
    pub(super) fn joining(hold: &Arc<Hold>) -> Self {
        Self { hold: Some(hold.clone()), joined: true }
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

    /// Leaves it here and now; what remains to be waited for.
    pub(crate) fn leave(&mut self) -> Departure {
        match self.hold.take() {
            Some(hold) => hold.leave(),
            None => Departure::Nested,
        }
    }

    /// Another level of the same hold.
    pub(crate) fn again(&self) -> Result<Self, LossReason> {
        let hold = self.hold();
        hold.gate.enter_again(hold)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        if let Departure::Released(release) = hold.leave() {
            hold.gate.see_through(release);
        }
    }
}

/// What leaving came to.
#[expect(clippy::large_enum_variant, reason = "made and taken apart at once, for every release")]
pub(crate) enum Departure {
    /// The owner has other guards.
    Nested,
    /// The lease went to the next waiter.
    HandedOff,
    /// The release is on its way.
    Released(Parting),
    /// It had been lost.
    Lost(LossReason),
}

/// The release of a lease, and the number by which the gate knows it.
pub(crate) struct Parting {
    pub(super) lease: Arc<Lease>,
    pub(super) release: Release,
    pub(super) number: u64,
    /// The lease was found lost just now, and nobody was told yet.
    pub(super) newly_lost: Option<LossReason>,
}

impl Hold {
    /// Leaves one level of it.
    fn leave(self: &Arc<Self>) -> Departure {
        let departure = self.gate.leave(self);
        if matches!(departure, Departure::HandedOff | Departure::Released(_)) {
            let of = Use {
                lock: self.gate.kind.name(),
                lease: &self.lease.id,
                owner: Some(&self.owner),
                token: self.token,
            };
            events::lock_released(of, self.gate.engine.clock.now().since(self.since));
        }
        departure
    }

    pub(super) fn as_refusal(&self, now: Timestamp) -> Refusal {
        Refusal {
            holder: Holder::new(self.lease.id.0.clone()),
            owner: Some(self.owner.clone()),
            remaining: Some(self.lease.remaining(now)),
            subscribers: 0,
        }
    }
}

/// Those who get the lock now: to be told outside the gate's mutex.
pub(super) struct Heirs {
    pub(super) first: Option<(Entry, Turn)>,
    pub(super) rest: Vec<(Entry, Turn)>,
}

pub(super) type Turn = oneshot::Sender<Result<Entry, Error>>;

impl Heirs {
    /// An entry that its waiter does not take any more is dropped here, and so goes to the next one.
    pub(super) fn wake(self) {
        for (entry, turn) in self.first.into_iter().chain(self.rest) {
            let _ = turn.send(Ok(entry));
        }
    }
}
