//! The gate as its driver sees it; the driver is in `contend.rs`.

use std::sync::Arc;

use super::Gate;
use super::claim::Claim;
use super::state::{Aftermath, Seat, State};
use crate::clock::Timestamp;
use crate::engine::kind::Refusal;
use crate::engine::lease::Lease;
use crate::error::Fault;

impl Gate {
    pub(super) fn spawn_driver(self: &Arc<Self>) {
        let driver = crate::engine::contend::drive(self.clone());
        self.engine.tasks.spawn_on(driver, self.engine.clock.runtime());
    }

    /// What the driver is to do now. `unlisten` is called, under the mutex, when nobody waits.
    pub(crate) fn next_step(self: &Arc<Self>, unlisten: impl FnOnce()) -> Step {
        let now = self.engine.clock.now();
        let mut state = self.state.lock();
        let buried = state.bury(now);
        let step = self.step_locked(&mut state, now, unlisten);
        drop(state);
        self.after_burial(buried);
        if matches!(step, Step::End) {
            self.retire_if_idle();
        }
        step
    }

    pub(super) fn step_locked(
        self: &Arc<Self>,
        state: &mut State,
        now: Timestamp,
        unlisten: impl FnOnce(),
    ) -> Step {
        let held = matches!(state.seat, Seat::Held(_));
        // Who holds the lock leaves the line, and its next place is at the end.
        if held || state.waiters.is_empty() {
            unlisten();
        }
        // It stays while somebody here holds the lock: the next waiter is likely soon.
        if state.waiters.is_empty() && !held {
            state.driven = false;
            return Step::End;
        }
        state.forget_old_aftermath(now);
        match (&state.seat, state.aftermath) {
            (Seat::Held(hold), _) => Step::Rest(Some(hold.lease.clone())),
            (Seat::Asking, _) => Step::Stand,
            (Seat::Free, Aftermath::Pending { .. }) if !state.may_ask() => Step::Rest(None),
            (Seat::Free, Aftermath::Others { others, .. }) => {
                state.aftermath = Aftermath::Nothing;
                Step::Join(others)
            }
            (Seat::Free, Aftermath::Nothing | Aftermath::Pending { .. }) => {
                Step::Turn { refusal: state.refusal.as_ref().map(|seen| seen.refusal.clone()) }
            }
        }
    }

    /// Takes the claim for the first waiter, if it is to be had.
    pub(crate) fn claim_for_waiters(self: &Arc<Self>) -> Option<Claim> {
        let mut state = self.state.lock();
        let terms = state.waiters.first_key_value()?.1.terms;
        if !matches!(state.seat, Seat::Free) {
            return None;
        }
        let others = state.waiters.len() - 1;
        Some(self.claim(&mut state, terms, others))
    }

    /// Asks on without the answer to a release: nobody may be there to take it in.
    pub(crate) fn pass_over_release(&self) {
        let mut state = self.state.lock();
        if matches!(state.aftermath, Aftermath::Pending { .. }) {
            state.aftermath = Aftermath::Nothing;
        }
    }

    /// The driver is gone, with its runtime: nobody will ever ask for those who wait.
    pub(crate) fn abandoned(&self) {
        self.state.lock().driven = false;
        self.fail_all(&Fault::Closed);
    }

    /// Ends the waits without a limit that have lasted through `unavailable_after` without an answer.
    pub(crate) fn fail_unanswered(&self) {
        let now = self.engine.clock.now();
        let Some(trouble) = self.state.lock().trouble.clone() else {
            return;
        };
        let patience = self.engine.config.unavailable_after;
        self.fail_waiters(
            |waiter| waiter.for_ever && now.since(trouble.since.max(waiter.joined_at)) >= patience,
            || self.engine.quorum.error(Some(self.kind.name()), trouble.fault.clone()),
        );
    }

    /// Ends all waits with what waiting cannot mend.
    pub(crate) fn fail_all(&self, fault: &Fault) {
        self.fail_waiters(
            |_| true,
            || self.engine.quorum.error(Some(self.kind.name()), fault.clone()),
        );
    }
}

/// What the driver is to do.
pub(crate) enum Step {
    /// Nobody waits any more.
    End,
    /// Nothing, until the gate changes, or this lease is lost; what was known of the line is old then.
    Rest(Option<Arc<Lease>>),
    /// Nothing, until somebody else's ask has ended.
    Stand,
    /// Stand behind that many others.
    Join(u32),
    /// The lock is not held here, and nobody else asks. The last ask was refused, if one was.
    Turn { refusal: Option<Refusal> },
}
