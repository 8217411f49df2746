//! The two ways to come by a lock: a place in the gate's queue, and the right to ask the servers.

use std::sync::Arc;

use parking_lot::MutexGuard;
use tokio::sync::oneshot;

use super::hold::{Entry, Heirs};
use super::state::{Seat, SeenRefusal, State, Trouble};
use super::{Gate, Request, Service, Until};
use crate::clock::Timestamp;
use crate::config::Terms;
use crate::engine::kind::Refusal;
use crate::engine::quorum::Grant;
use crate::error::{Error, Fault};
use crate::owner::Place;

/// A place in the gate's queue. Dropping it gives the place up.
pub(crate) struct Waiting {
    pub(super) gate: Arc<Gate>,
    pub(super) arrival: u64,
    pub(super) granted: oneshot::Receiver<Result<Entry, Error>>,
}

impl Waiting {
    /// The lock, or why not by `until`.
    pub(crate) async fn turn(mut self, request: &Request) -> Result<Entry, Error> {
        let until = match request.until {
            Until::At(at) => at,
            Until::Once | Until::Ever => Timestamp::NEVER,
        };
        let clock = &self.gate.engine.clock;
        match clock.until(until, &mut self.granted).await {
            Some(turn) => turn.unwrap_or(Err(Error::Closed)),
            None if clock.is_stopped() => Err(Error::Closed),
            None => {
                self.give_up();
                // A grant may have come at the last moment.
                let waited = clock.now().since(request.began_at);
                let in_vain = || self.gate.why_in_vain(Timestamp::default(), waited);
                self.granted.try_recv().unwrap_or_else(|_| Err(in_vain()))
            }
        }
    }

    fn give_up(&self) {
        let mut state = self.gate.state.lock();
        let waiter = state.waiters.remove(&self.arrival);
        let left = waiter.is_some() && state.waiters.is_empty();
        drop(state);
        // Wakes who waits for its turn.
        drop(waiter);
        if left {
            self.gate.changed.notify_one();
            self.gate.engine.left.notify_waiters();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The right to ask the servers. Dropping it gives the right back.
pub(crate) struct Claim {
    pub(super) gate: Arc<Gate>,
    pub(super) arrival: u64,
    pub(super) ask: u64,
    pub(super) began_at: Timestamp,
    /// What is asked for.
    pub(crate) terms: Terms,
    pub(crate) block: u64,
    pub(super) open: bool,
}

impl Claim {
    /// The lock is ours: for the one who asked.
    pub(crate) fn granted(mut self, grant: Grant, request: &Request) -> Entry {
        let gate = self.gate.clone();
        let now = gate.engine.clock.now();
        let (lease, token) = gate.lease(grant, self.block, request.terms);
        let hold = gate.hold(lease, request.owner.clone(), Place::here(), token, now);
        let entry = Entry::new(&hold);
        let mut state = gate.state.lock();
        self.open = false;
        state.answered();
        let rest = gate.seat(&mut state, hold);
        drop(state);
        Heirs { first: None, rest }.wake();
        // The driver is to watch over this lease for those who wait behind it.
        gate.changed.notify_one();
        gate.settled.notify_waiters();
        entry
    }

    /// The lock is ours: for the first who waits and can use it, or for nobody.
    pub(crate) fn granted_to_waiters(mut self, grant: Grant) {
        let terms = self.terms;
        let gate = self.gate.clone();
        let now = gate.engine.clock.now();
        let (lease, token) = gate.lease(grant, self.block, terms);
        let mut state = gate.state.lock();
        self.open = false;
        state.answered();
        let fits = state
            .waiters
            .first_key_value()
            .is_some_and(|(_, waiter)| waiter.terms.lease == terms.lease);
        let waiter = if fits { state.waiters.pop_first() } else { None };
        if let Some((_, waiter)) = waiter {
            if let Some(at) = lease.limit(waiter.terms.max_hold) {
                gate.engine.watchdog.watch(&lease, at);
            }
            let heirs = gate.seat_waiter(&mut state, lease, waiter, token, now);
            drop(state);
            heirs.wake();
            gate.settled.notify_waiters();
            return;
        }
        let parting = state.release(&lease, now);
        drop(state);
        gate.after_burial(Some(parting));
        gate.settled.notify_waiters();
    }

    /// Another holds it.
    pub(crate) fn refused(mut self, refusal: Refusal) {
        let gate = self.gate.clone();
        let mut state = gate.state.lock();
        self.open = false;
        state.answered();
        state.refused_ask = self.ask;
        let now = gate.engine.clock.now();
        state.met(&refusal, now);
        state.refusal = Some(Box::new(SeenRefusal { refusal, at: now }));
        self.give_back(state);
    }

    /// The servers gave no usable answer. `had_time`: they had as long as an answer may take.
    pub(crate) fn failed(mut self, fault: &Fault, had_time: bool) {
        // A short wait that ends is no trouble of the servers.
        if fault.is_silence() && !had_time {
            return;
        }
        let gate = self.gate.clone();
        let mut state = gate.state.lock();
        self.open = false;
        let since = state.trouble.as_ref().map_or(self.began_at, |trouble| trouble.since);
        state.trouble = Some(Box::new(Trouble { since, fault: fault.clone() }));
        self.give_back(state);
    }

    /// Goes to the queue, to the place of its arrival, unless the client was shut down meanwhile.
    pub(crate) fn queue(&self, request: &Request) -> Result<Waiting, Error> {
        let mut state = self.gate.state.lock();
        self.gate.engine.check_service(Service::Draining)?;
        let waiting = self.gate.queue(&mut state, self.arrival, request);
        let spawns = !std::mem::replace(&mut state.driven, true);
        drop(state);
        if spawns {
            self.gate.spawn_driver();
        }
        Ok(waiting)
    }

    fn give_back(&self, mut state: MutexGuard<'_, State>) {
        state.seat = Seat::Free;
        let idle = state.is_idle();
        drop(state);
        self.gate.changed.notify_one();
        self.gate.settled.notify_waiters();
        self.gate.engine.left.notify_waiters();
        if idle {
            self.gate.retire_if_idle();
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.open {
            self.give_back(self.gate.state.lock());
        }
    }
}
