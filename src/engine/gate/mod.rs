//! The gate of a lock: who in this process holds it, who waits, and who may ask the servers.
//!
//! A client holds at most one lease per lock, and at most one of its tasks asks for it at a time. Who in the
//! process uses the lease is decided here, first come first served, without the servers.
//!
//! | seat   | becomes | when                                                                           |
//! |--------|---------|--------------------------------------------------------------------------------|
//! | `Free` | `Held`  | an ask is granted                                                              |
//! | `Held` | `Held`  | the last guard goes and the lease passes to the next waiter                    |
//! | `Held` | `Held`  | another joins, or leaves, those who share the lease; see `sharing.rs`          |
//! | `Held` | `Free`  | the last guard goes and the release is in every node's queue; or it is lost    |
//!
//! The state changes in [`Gate::update`] only, which wakes whoever has to learn of it once the mutex is free.
//! Nothing is awaited under the mutex.

mod arrival;
mod asks;
mod backing_off;
mod circle;
mod claim;
mod confirming;
mod deadlock;
mod driver;
mod effects;
mod engine;
mod entry;
mod hold;
mod holding;
mod leaving;
mod long_holds;
pub mod machine;
mod noting;
mod ordering;
mod parting;
mod permits_out;
mod process;
mod queueing;
mod replacing;
mod request;
mod seat;
mod seating;
mod sharing;
mod situation;
mod state;
mod unsent;
mod update;
mod wait_list;
mod waiting;
mod wanted;

use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) use arrival::{Arrived, Attempted};
pub(crate) use claim::Claim;
use engine::GateKey;
pub(crate) use engine::{Engine, Service};
pub(crate) use entry::{Departure, Entry};
pub(crate) use hold::Hold;
pub(crate) use request::{Request, Until};
pub(crate) use waiting::Waiting;

use super::lease::Lease;
use super::quorum::Quorum;
use crate::error::{ClosedReason, Error, Fault, LossReason};
use crate::owner::{Owner, Place};
use state::State;

/// One lock in one process, or one acquisition of a lock that several can have at once.
pub(crate) struct Gate {
    key: GateKey,
    pub(crate) engine: Arc<Engine>,
    pub(crate) name: Arc<str>,
    /// Where its releases are told.
    channel: Arc<str>,
    /// The servers that the lock lives on.
    pub(crate) quorum: Arc<Quorum>,
    state: Mutex<State>,
    /// Wakes the driver: there may be something else to do.
    changed: Notify,
    /// Wakes those who wait for the end of somebody else's ask.
    pub(crate) asked: Notify,
}

/// Who takes a lock, and where.
struct TakenBy<'a> {
    owner: &'a Owner,
    place: Place,
    /// The line of code that asked.
    at: &'static Location<'static>,
}

impl Gate {
    fn enter_again(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        enter: impl FnOnce(&Arc<Hold>) -> Entry,
    ) -> Result<Entry, LossReason> {
        // Before the mutex: it reports a loss that it finds. One that comes later is found by whoever asks next.
        hold.lease.check(self.engine.clock.now())?;
        let _state = self.state.lock();
        hold.lease.loss().map_or(Ok(()), Err)?;
        Ok(enter(hold))
    }

    /// Takes the gate out of the client's list if nobody needs it (invariant 7).
    pub(crate) fn retire_if_idle(self: &Arc<Self>) {
        let now = self.engine.clock.now();
        let mut gates = self.engine.gates.lock();
        let mut state = self.state.lock();
        state.forget_old_release(now);
        if !state.retired && state.is_idle() {
            state.retired = true;
            gates.remove(&self.key);
        }
    }

    /// Notices a lost hold at once, so that others get in.
    pub(crate) fn notice_loss(self: &Arc<Self>) {
        let now = self.engine.clock.now();
        self.update(|state, effects| state.evict_lost(now, effects));
    }

    /// Returns the hold of this process, or the first of several that share a lease.
    pub(crate) fn current_hold(&self) -> Option<Arc<Hold>> {
        self.state.lock().seat.current_hold().cloned()
    }

    /// Returns all holds of this process.
    pub(crate) fn current_holds(&self) -> Vec<Arc<Hold>> {
        self.state.lock().seat.holds().to_vec()
    }

    /// Returns why those are in vain who wait for the answer to an ask that began after number `seen`, if there is one.
    pub(crate) fn in_vain_since(&self, seen: u64, request: &Request) -> Option<Error> {
        let state = self.state.lock();
        // Beside a lease that it could share it is kept out by those who wait, and has their answer.
        let is_shared = |lease: &Arc<Lease>| lease.kind.is_shared_with(&*request.wanted.side);
        if state.seat.lease().is_some_and(|lease| !is_shared(lease)) {
            return None;
        }
        if let Some(refused) = state.refusal.as_ref().filter(|_| state.refused_ask > seen) {
            let waited = self.engine.clock.now().since(request.began_at);
            let refusal = refused.refusal.clone();
            return Some(refusal.into_timeout(&*request.wanted.side, waited));
        }
        // Who is alone asks itself.
        let failed = state.failed_ask > seen && !state.waiters.is_empty();
        let trouble = state.trouble.as_ref().filter(|_| failed)?;
        Some(self.error(trouble.fault_at(self.engine.clock.now())))
    }

    /// Returns true if somebody asks the servers now, or is about to.
    pub(crate) fn is_contended(&self) -> bool {
        let state = self.state.lock();
        state.asking.is_some() || !state.waiters.is_empty()
    }

    /// Returns what a fault means to a caller who wants this lock.
    pub(crate) fn error(&self, fault: Fault) -> Error {
        self.quorum.error(Some(&self.name), fault)
    }

    pub(crate) fn waiters(&self) -> usize {
        self.state.lock().waiters.len()
    }

    /// Returns true if anybody here holds the lock, asks or waits for it, or gives it back.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.lock().is_busy()
    }

    /// Ends the waits of those who may wait for ever. The client is drained already: nobody of them comes to wait any more.
    pub(crate) fn drain(self: &Arc<Self>) {
        let drained = || Error::Closed { reason: ClosedReason::Drained };
        self.update(|state, effects| {
            state.fail_waiters(effects, |waiter| waiter.is_patient(), drained)
        });
    }

    /// Ends all waits, and what is held here as lost. The client is closed already: nobody comes to wait any more.
    pub(crate) fn shut(self: &Arc<Self>) {
        // First the waits: whatever is granted or handed on from here on finds nobody to take it.
        let closed = || Error::closed(&self.engine.clock);
        let now = self.engine.clock.now();
        self.update(|state, effects| {
            state.fail_waiters(effects, |_| true, closed);
            state.send_unsent(effects, now);
        });
        if let Some(hold) = self.current_hold() {
            hold.lease.lose(LossReason::Shutdown);
        }
        self.notice_loss();
        self.changed.notify_one();
    }
}

#[cfg(test)]
pub(crate) mod tests;
