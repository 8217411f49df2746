//! What follows from a change of a gate's state: it is done once the mutex is free, see `update.rs`.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::hold::{Answer, Hold, PendingRelease};
use super::wait_list::{Offer, SlowWait, Turn};
use crate::clock::Timestamp;
use crate::engine::kind::Refusal;
use crate::engine::lease::Lease;
use crate::error::{Error, Fault, LossReason};
use crate::monitor::HoldEnd;

#[derive(Default)]
pub(super) struct Effects {
    /// Waits that have ended.
    pub(super) turns: SmallVec<[(Turn, Result<Offer, Error>); 1]>,
    /// A lost hold was evicted.
    pub(super) evicted: Option<Evicted>,
    /// A hold that ended before, and of which it is known by now how.
    pub(super) ended: Option<(Arc<Hold>, HoldEnd, Timestamp)>,
    /// A lease that nobody uses, which is to be looked after.
    pub(super) unattended: Option<Arc<Lease>>,
    /// A release that was sent instead of its unlock, which is told the answer.
    pub(super) sent: Option<Box<(PendingRelease, oneshot::Sender<Answer>)>>,
    /// An ask was answered that somebody may wait for who does not ask.
    pub(super) answered: bool,
    /// Waits that somebody is to be told of.
    pub(super) slow: Option<Box<SlowWaits>>,
}

/// Slow waits for one lock, and what is known of why they go on.
pub(super) struct SlowWaits {
    pub(super) waits: Vec<SlowWait>,
    pub(super) now: Timestamp,
    /// How many wait in this process.
    pub(super) waiters: usize,
    /// Who of this process holds the lock.
    pub(super) hold: Option<Arc<Hold>>,
    pub(super) refusal: Option<Refusal>,
    pub(super) fault: Option<Fault>,
}

/// The release of a lost hold's lease. Nobody waits for its answer.
pub(super) struct Evicted {
    pub(super) release: PendingRelease,
    /// The loss was found out just now, and must be reported.
    pub(super) newly_lost: Option<LossReason>,
}
