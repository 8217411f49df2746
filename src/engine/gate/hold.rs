//! A lease in use: the hold, and its end.

use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::Gate;
use super::holding::Slots;
use super::wanted::Wanting;
use crate::clock::Timestamp;
use crate::engine::circles::Party;
use crate::engine::kind::{Refusal, Released, Sharing};
use crate::engine::lease::Lease;
use crate::engine::quorum::Release;
use crate::error::Fault;
use crate::events::{self, Use};
use crate::key::Holder;
use crate::monitor::HoldEnd;
use crate::owner::{Owner, Place};

/// A lease in use by an owner.
pub(crate) struct Hold {
    pub(crate) gate: Arc<Gate>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) owner: Owner,
    pub(crate) token: u64,
    pub(crate) since: Timestamp,
    pub(super) place: Place,
    /// The line of code that took it.
    pub(crate) taken_at: &'static Location<'static>,
    /// Its first guard was there, which counts.
    pub(super) begun: AtomicBool,
    /// How often it was reported as long.
    pub(super) told: AtomicU32,
    /// Where it counts as something that its owner holds, and whether it does so no more.
    pub(super) counted: Slots,
    pub(super) uncounted: AtomicBool,
    /// How many guards there are. Changed under the gate's mutex.
    pub(super) depth: AtomicU32,
    /// It ended with its last guard. A loss after that is not its own.
    pub(super) over: AtomicBool,
    /// Made when a guard is first asked whether others want the lock.
    pub(super) wanting: OnceLock<Wanting>,
}

// As for the engine: it changes under the gate's mutex, which is never held while the caller's code runs.
impl UnwindSafe for Hold {}
impl RefUnwindSafe for Hold {}

impl Hold {
    pub(crate) fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Returns its fencing token. `None` of what several can have at once: that has none.
    pub(crate) fn fencing_token(&self) -> Option<u64> {
        (!matches!(self.lease.kind.sharing(), Sharing::Each { .. })).then_some(self.token)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(super) fn is_live(&self) -> bool {
        !self.is_over() && !self.lease.remaining(self.gate.engine.clock.now()).is_zero()
    }

    /// Returns true if it has had a guard, and its end was not told yet.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Counts it when it has its first guard, and returns whether this is the first.
    pub(crate) fn begin(&self) -> bool {
        let is_first = !self.has_begun() && !self.begun.swap(true, Ordering::Relaxed);
        if is_first {
            self.gate.engine.events.hold_began(&self.gate.name);
        }
        is_first
    }

    /// Ends it with its last guard.
    pub(super) fn end(&self) {
        self.depth.store(0, Ordering::Relaxed);
        self.over.store(true, Ordering::Release);
        if let Some(wanting) = self.wanting.get() {
            wanting.end();
        }
        // What its waiter did not take any more ends wherever it was to be given.
        if self.has_begun() && self.is_of_permits() && self.place != Place::here() {
            self.gate.engine.process.permits_out.pass_on(self.taken_at);
        }
        self.uncount();
    }

    /// Returns true if somebody else is known to want the lock. The first call begins to look.
    pub(crate) fn is_wanted(&self) -> bool {
        let wanting = self.wanting();
        if self.gate.waiters() > 0 {
            // That one may give up before the task sees it.
            wanting.found();
        }
        wanting.has_found()
    }

    /// Waits until somebody else wants the lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn wanted(&self) {
        self.wanting().until(|| self.is_wanted()).await;
    }

    fn wanting(&self) -> &Wanting {
        self.wanting.get_or_init(|| Wanting::begin(&self.gate, &self.lease))
    }

    pub(super) fn party(&self) -> Party {
        Party { owner: self.owner.clone(), place: self.place }
    }

    /// How many units it has of what several can have at once.
    pub(super) fn weight(&self) -> u64 {
        match self.lease.kind.sharing() {
            Sharing::Each { weight } => weight,
            Sharing::Alone | Sharing::Together => 1,
        }
    }

    /// Returns true if it is of permits, and may be in the way of others.
    pub(super) fn is_of_permits(&self) -> bool {
        self.gate.is_of_one() && self.lease.kind.all_units().is_some()
    }

    /// Its owner does not have it any more, although somebody may still look at it.
    pub(super) fn uncount(&self) {
        if !self.uncounted.swap(true, Ordering::Relaxed) {
            self.forget_order();
            if self.is_of_permits() {
                self.gate.engine.process.permits_out.take_out(self);
            }
            self.gate.engine.process.holdings.take_out(self.counted);
        }
    }

    /// Sets the number of guards, under the gate's mutex, and has the watchdog write it to the servers.
    pub(super) fn set_depth(&self, depth: u32) {
        self.depth.store(depth, Ordering::Relaxed);
        // The count of a shared lease would say nothing of any of its users.
        if self.lease.kind.sharing() == Sharing::Together {
            return;
        }
        if let Some(update) = self.lease.set_count(depth) {
            self.gate.engine.watchdog.adopt_count(&self.lease, update);
        }
    }

    /// Has the watchdog look at the lease, if when to do so has changed.
    pub(super) fn watch_again(&self, look_at: Option<Timestamp>) {
        if look_at.is_some() {
            self.gate.engine.watchdog.watch(&self.lease);
        }
    }

    pub(super) fn tell_released(&self, end: HoldEnd, now: Timestamp) {
        events::lock_released(self.as_use(), || now.since(self.since));
        self.count_end(end, now);
    }

    /// What was given to a waiter who did not take it up was no hold to anybody. It is told once, although two may leave the last
    /// levels of a hold that was lost at the same moment.
    pub(super) fn count_end(&self, end: HoldEnd, now: Timestamp) {
        if self.begun.swap(false, Ordering::Relaxed) {
            let held = now.since(self.since);
            self.gate.engine.events.hold_ended(&self.gate.name, end, held);
        }
    }

    pub(super) fn as_use(&self) -> Use<'_> {
        Use {
            lock: &self.gate.name,
            lease: self.lease.id(),
            owner: Some(&self.owner),
            token: self.token,
        }
    }

    pub(crate) fn as_refusal(&self, now: Timestamp) -> Refusal {
        Refusal {
            holder: Holder::new(self.lease.id().0.clone()),
            owner: Some(self.owner.clone()),
            remaining: Some(self.lease.remaining(now)),
            subscribers: 0,
            queue: None,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.uncount();
    }
}

/// The release of a lease that waits for its answer, and the number by which the gate knows it.
pub(crate) struct PendingRelease {
    pub(super) lease: Arc<Lease>,
    /// Boxed: it is large, and what it is in is moved a few times, also where nothing is released.
    pub(super) release: Box<Release>,
    pub(super) number: u64,
}

/// The answer to a release, as an unlock hears of it that had none sent.
pub(super) type Answer = Result<Released, Fault>;
