//! The right of one task of this process to ask the servers for a lock.

use std::sync::Arc;

use super::effects::Effects;
use super::hold::Entry;
use super::state::{Seat, SeenRefusal, State, Trouble};
use super::waiting::Waiting;
use super::{Gate, Request, Service};
use crate::clock::Timestamp;
use crate::config::Terms;
use crate::engine::kind::Refusal;
use crate::engine::quorum::{Grant, Outcome};
use crate::error::{Error, Fault};
use crate::key::LeaseId;
use crate::owner::Place;

/// The right to ask the servers. Dropping it gives the right back.
pub(crate) struct Claim {
    gate: Arc<Gate>,
    /// The place that its holder has among the waiters, should it wait.
    arrival: u64,
    ask: u64,
    began_at: Timestamp,
    /// What is asked for.
    pub(crate) terms: Terms,
    block: u64,
    open: bool,
}

impl Gate {
    /// Gives out the right to ask on `terms`, with `others` waiting behind.
    pub(super) fn claim(self: &Arc<Self>, state: &mut State, terms: Terms, others: usize) -> Claim {
        let now = self.engine.clock.now();
        let window = state.window(self.engine.config.handoff_window, now);
        state.asking = true;
        state.arrivals += 1;
        state.asks += 1;
        Claim {
            gate: self.clone(),
            arrival: state.arrivals,
            ask: state.asks,
            began_at: now,
            terms,
            block: state.block(terms, others, window),
            open: true,
        }
    }

    /// Gives out the right to ask for the first waiter, if nobody of this process holds the lock or asks for it.
    pub(super) fn claim_for_waiters(self: &Arc<Self>) -> Option<Claim> {
        self.update(|state, _| {
            let terms = state.waiters.first()?.1.terms;
            if !matches!(state.seat, Seat::Free) || state.asking {
                return None;
            }
            let others = state.waiters.len() - 1;
            Some(self.claim(state, terms, others))
        })
    }
}

impl Claim {
    /// Asks the servers once, as soon as a majority is connected, and waits for the answer until `until`, but no
    /// longer than an answer may take.
    pub(crate) async fn ask(&self, until: Timestamp) -> Result<Outcome, Fault> {
        let gate = &self.gate;
        let (clock, config) = (&gate.engine.clock, &gate.engine.config);
        let (ttl, block) = (self.terms.ttl(), self.block);
        let until = until.min(clock.now().plus(config.response_timeout(ttl)));
        let id = || LeaseId::new(&config.name, clock.uuid(), block);
        let attempt = match gate.quorum.attempt(&gate.kind, id(), ttl, block) {
            Err(fault) if fault.may_pass() => {
                gate.quorum.up(until).await?;
                gate.quorum.attempt(&gate.kind, id(), ttl, block)?
            }
            attempt => attempt?,
        };
        attempt.outcome(until).await
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Seats the one who asked, unless the client was shut down meanwhile: then the lock is released.
    pub(crate) fn granted_in_service(
        self,
        grant: Grant,
        request: &Request,
    ) -> Result<Entry, Error> {
        let gate = self.gate.clone();
        let entry = self.granted(grant, request);
        // Dropping the entry releases it.
        gate.engine.check_service(Service::Draining)?;
        Ok(entry)
    }

    fn granted(mut self, grant: Grant, request: &Request) -> Entry {
        let gate = self.gate.clone();
        let now = gate.engine.clock.now();
        let (lease, token) = gate.lease(grant, self.block, request.terms);
        let hold = gate.hold(lease, request.owner.clone(), Place::here(), token, now);
        let entry = Entry::new(&hold);
        gate.update(|state, effects| {
            self.close(state);
            state.answered();
            state.seat(hold, effects);
        });
        entry
    }

    /// Seats the first who waits and can use the lease. Without one it is released.
    pub(crate) fn granted_to_waiters(mut self, grant: Grant) {
        let gate = self.gate.clone();
        let now = gate.engine.clock.now();
        let terms = self.terms;
        let (lease, token) = gate.lease(grant, self.block, terms);
        let unused = gate.update(|state, effects| {
            self.close(state);
            state.answered();
            let first = state.waiters.first();
            let fits = first.filter(|(_, waiter)| waiter.terms.lease == terms.lease);
            let Some((arrival, waiter)) = fits else {
                return Some(state.release(&lease, now));
            };
            if let Some(at) = lease.limit(waiter.terms.max_hold) {
                gate.engine.watchdog.watch(&lease, at);
            }
            gate.seat_waiter(state, effects, &lease, arrival, token, now);
            None
        });
        if let Some(release) = unused {
            gate.engine.watchdog.forget(&release.lease);
            gate.finish_in_background(release);
        }
    }

    /// Gives the right back: another holds the lock.
    pub(crate) fn refused(mut self, refusal: Refusal) {
        let gate = self.gate.clone();
        let now = gate.engine.clock.now();
        gate.update(|state, _| {
            self.close(state);
            state.answered();
            state.refused_ask = self.ask;
            state.met(&refusal, now);
            state.refusal = Some(Box::new(SeenRefusal { refusal, at: now }));
        });
    }

    /// Gives the right back: the servers gave no usable answer. `had_time` is true if they had as long as an answer
    /// may take.
    pub(crate) fn failed(mut self, fault: &Fault, had_time: bool) {
        // A short wait that ends does not mean that the servers have failed.
        if fault.is_silence() && !had_time {
            return;
        }
        let gate = self.gate.clone();
        gate.update(|state, _| {
            self.close(state);
            let since = state.trouble.as_ref().map_or(self.began_at, |trouble| trouble.since);
            state.trouble = Some(Box::new(Trouble { since, fault: fault.clone() }));
        });
    }

    /// Joins the waiters, at the place of its arrival, unless the client was shut down meanwhile.
    pub(crate) fn join(&self, request: &Request) -> Result<Waiting, Error> {
        self.gate.update(|state, _| {
            self.gate.engine.check_service(Service::Draining)?;
            Ok(self.gate.queue(state, self.arrival, request))
        })
    }

    fn close(&mut self, state: &mut State) {
        state.asking = false;
        self.open = false;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.open {
            let gate = self.gate.clone();
            gate.update(|state, _: &mut Effects| self.close(state));
        }
    }
}
