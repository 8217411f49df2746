//! A lease in use: the hold, its levels, and its end.

use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::Gate;
use super::holding::Slots;
use super::unsent::Parting;
use super::wanted::Wanting;
use crate::clock::Timestamp;
use crate::config::Terms;
use crate::engine::circles::Party;
use crate::engine::kind::{Refusal, Sharing};
use crate::engine::lease::Lease;
use crate::engine::quorum::{Release, Renewal};
use crate::error::{Fault, LossReason};
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

    /// Counts it when it has its first guard, and returns whether this is the first.
    pub(crate) fn begin(&self) -> bool {
        let is_first =
            !self.begun.load(Ordering::Relaxed) && !self.begun.swap(true, Ordering::Relaxed);
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
        let was_used = self.begun.load(Ordering::Relaxed);
        if was_used && self.is_of_permits() && self.place != Place::here() {
            self.gate.engine.process.permits_out.pass_on(self.taken_at);
        }
        self.uncount();
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

    /// Adds a level, on `terms` from `now` on.
    pub(super) fn enter(self: &Arc<Self>, terms: Terms, now: Timestamp) -> Entry {
        self.set_depth(self.depth() + 1);
        Entry::joining(self, terms, now)
    }

    /// Adds a level like another one.
    fn enter_beside(self: &Arc<Self>, level: u64) -> Entry {
        self.set_depth(self.depth() + 1);
        Entry { hold: Some(self.clone()), joined: true, level: self.lease.enter_beside(level) }
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
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.uncount();
    }
}

/// One level of a hold. Dropping it leaves that level.
pub(crate) struct Entry {
    /// `None` once it was left.
    hold: Option<Arc<Hold>>,
    joined: bool,
    /// What its lease knows it by.
    level: u64,
}

impl Entry {
    /// The first level of a hold, which was taken on `terms`, and began at `from`.
    pub(super) fn new(hold: &Arc<Hold>, terms: Terms, from: Timestamp) -> Self {
        Self::of(hold, false, terms, from)
    }

    /// A level of a hold that was taken on somebody else's terms.
    pub(super) fn joining(hold: &Arc<Hold>, terms: Terms, now: Timestamp) -> Self {
        Self::of(hold, true, terms, now)
    }

    /// A level of a hold for a waiter, who may be polled no more: until it is [taken up](Self::take_up), it keeps the lease for
    /// a part of the TTL only.
    pub(super) fn offered(hold: &Arc<Hold>, joined: bool, terms: Terms, now: Timestamp) -> Self {
        let (level, look_at) = hold.lease.offer(terms, now);
        hold.watch_again(look_at);
        Self { hold: Some(hold.clone()), joined, level }
    }

    /// Limits it like one that was [offered](Self::offered).
    pub(super) fn await_take_up(&self, terms: Terms, now: Timestamp) {
        let hold = self.hold();
        hold.watch_again(hold.lease.await_take_up(self.level, terms, now));
    }

    /// Keeps the hold on those terms, which it was offered on at `offered_at`. Returns `None` if it has ended meanwhile.
    pub(super) fn take_up(self, terms: Terms, offered_at: Timestamp) -> Option<Self> {
        let hold = self.hold();
        let (held, look_at) = hold.lease.take_up(self.level, terms, offered_at);
        hold.watch_again(look_at);
        held.then_some(self)
    }

    fn of(hold: &Arc<Hold>, joined: bool, terms: Terms, from: Timestamp) -> Self {
        let (level, look_at) = hold.lease.enter(terms, from);
        hold.watch_again(look_at);
        Self { hold: Some(hold.clone()), joined, level }
    }

    /// Sets the terms on which this level keeps the hold, from `now` on.
    pub(crate) fn limit(&self, terms: Terms, now: Timestamp) {
        let hold = self.hold();
        hold.watch_again(hold.lease.limit(self.level, terms, now));
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

    /// Sets its terms, and sends what makes the lease last as they ask, if need be.
    pub(crate) fn widen(&self, terms: Terms, now: Timestamp) -> Option<Result<Renewal, Fault>> {
        self.limit(terms, now);
        self.hold().lease.widen(self.level, terms, now)
    }

    /// Leaves it here and now; what remains to be waited for, which the caller does.
    pub(crate) fn leave(&mut self) -> Departure {
        match self.hold.take() {
            Some(hold) => hold.leave(self.level, true),
            None => Departure::Nested,
        }
    }

    /// Takes the entry out of its hold, which has ended otherwise.
    pub(super) fn forget(&mut self) {
        self.hold = None;
    }

    /// Another level of the same hold.
    pub(crate) fn again(&self) -> Result<Self, LossReason> {
        let hold = self.hold();
        hold.gate.enter_again(hold, |hold| hold.enter_beside(self.level))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        if let Departure::Released(release) = hold.leave(self.level, false) {
            hold.gate.finish_in_background(release);
        }
    }
}

/// What leaving came to.
pub(crate) enum Departure {
    /// The owner has other guards.
    Nested,
    /// The lease went to the next waiter, or is in use by others who share it.
    HandedOff,
    /// The release is on its way.
    Released(PendingRelease),
    /// The release is sent when the other tasks have had their turn, unless one of them takes the lease.
    Unsent(Parting),
    /// It had been lost.
    Lost(LossReason),
}

/// The release of a lease that waits for its answer, and the number by which the gate knows it.
pub(crate) struct PendingRelease {
    pub(super) lease: Arc<Lease>,
    /// Boxed: it is large, and what it is in is moved a few times, also where nothing is released.
    pub(super) release: Box<Release>,
    pub(super) number: u64,
}

impl Hold {
    /// Leaves one level of it.
    fn leave(self: &Arc<Self>, level: u64, awaited: bool) -> Departure {
        let (departure, now) = self.gate.leave(self, level, awaited);
        match departure {
            Departure::HandedOff => self.tell_released(HoldEnd::HandedOff, now),
            Departure::Released(_) => self.tell_released(HoldEnd::Released, now),
            Departure::Lost(_) if self.depth() == 0 => self.count_end(HoldEnd::Lost, now),
            Departure::Lost(_) | Departure::Nested | Departure::Unsent(_) => {}
        }
        departure
    }

    /// Has the watchdog look at the lease, if when to do so has changed.
    fn watch_again(&self, look_at: Option<Timestamp>) {
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
    fn count_end(&self, end: HoldEnd, now: Timestamp) {
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
