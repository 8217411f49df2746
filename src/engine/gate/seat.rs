//! The seat of a gate: the lease that is in use in this process, and who uses it.
//!
//! Most leases have one user, and pass from one to the next. A shared one has several at once: see `sharing.rs`.

use std::sync::Arc;

use smallvec::SmallVec;

use super::hold::Hold;
use crate::clock::Timestamp;
use crate::engine::lease::Lease;
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

/// What is in the seat between the end of a hold and the release of its lease.
pub(super) struct Unsent {
    /// It is over.
    pub(super) hold: Arc<Hold>,
    /// Tells this end of a hold from others.
    pub(super) number: u64,
}

/// A lease in use.
pub(super) struct Seated {
    pub(super) lease: Arc<Lease>,
    /// Who uses it: one hold, or several if the lease is shared.
    pub(super) holds: SmallVec<[Arc<Hold>; 1]>,
    /// Until when newcomers may share it without asking the servers whether others wait.
    pub(super) open_until: Timestamp,
    /// The number of the last ask during which it was seen on the servers, its own included; or zero.
    pub(super) seen_in: u64,
}

impl Seat {
    /// Returns the lease that this process has, whether it is in use or not.
    pub(super) fn lease(&self) -> Option<&Arc<Lease>> {
        match self {
            Self::Free => None,
            Self::Held(seated) => Some(&seated.lease),
            Self::Unsent(unsent) => Some(&unsent.hold.lease),
        }
    }

    pub(super) fn holds(&self) -> &[Arc<Hold>] {
        match self {
            Self::Free | Self::Unsent(_) => &[],
            Self::Held(seated) => &seated.holds,
        }
    }

    /// Returns the hold of this process, or the first of several that share a lease.
    pub(super) fn current_hold(&self) -> Option<&Arc<Hold>> {
        self.holds().first()
    }

    /// Returns the hold of `owner`.
    pub(super) fn hold_of(&self, owner: &Owner) -> Option<&Arc<Hold>> {
        self.holds().iter().find(|hold| hold.owner == *owner)
    }

    /// Returns the one who uses the lease, or who was the last to.
    pub(super) fn last_user(&self) -> Option<&Arc<Hold>> {
        match self {
            Self::Unsent(unsent) => Some(&unsent.hold),
            Self::Free | Self::Held(_) => self.current_hold(),
        }
    }
}
