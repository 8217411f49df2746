//! The end of a hold: the lease passes to the next waiter of this process, or is released.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Gate;
use super::effects::Effects;
use super::entry::Departure;
use super::hold::{Hold, PendingRelease};
use super::state::State;
use crate::clock::Timestamp;
use crate::engine::kind::{Released, Sharing, Wanted};
use crate::engine::lease::Lease;
use crate::engine::quorum::Release;
use crate::error::{Fault, LossReason};

impl Gate {
    /// Leaves one level of a hold. Returns what came of it, and the time. `awaited`: the caller waits for what comes of it.
    pub(super) fn leave(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        level: u64,
        awaited: bool,
    ) -> (Departure, Timestamp) {
        let now = self.engine.clock.now();
        let departure = self.update(|state, effects| {
            state.evict_lost(now, effects);
            hold.lease.leave(level);
            self.leave_as(state, effects, hold, awaited, now)
        });
        if let Departure::Released(release) = &departure {
            self.engine.watchdog.forget(&release.lease);
        }
        (departure, now)
    }

    fn leave_as(
        self: &Arc<Self>,
        state: &mut State,
        effects: &mut Effects,
        hold: &Arc<Hold>,
        awaited: bool,
        now: Timestamp,
    ) -> Departure {
        let depth = hold.depth() - 1;
        if !state.seat.holds().iter().any(|seated| Arc::ptr_eq(seated, hold)) {
            hold.set_depth(depth);
            if depth == 0 {
                state.lost.retain(|lost| !Arc::ptr_eq(lost, hold));
                hold.uncount();
            }
            return Departure::Lost(hold.lease.loss().unwrap_or(LossReason::NotRenewed));
        }
        if depth > 0 {
            hold.set_depth(depth);
            return Departure::Nested;
        }
        hold.end();
        if state.others_share(hold) || self.hand_off(state, effects, hold, now) {
            return Departure::HandedOff;
        }
        state.refusal = None;
        if awaited && let Some(parting) = self.leave_unsent(state, effects, hold, now) {
            return Departure::Unsent(parting);
        }
        state.tokens_used = hold.lease.tokens_used();
        Departure::Released(state.release(&hold.lease, now))
    }

    /// Gives the lease of `hold`, whose last guard goes, to the next waiter if it can use it as it is.
    fn hand_off(
        self: &Arc<Self>,
        state: &mut State,
        effects: &mut Effects,
        hold: &Arc<Hold>,
        now: Timestamp,
    ) -> bool {
        // The lease of a fair handle has one token, so it passes to nobody.
        let Some((arrival, waiter)) = state.waiters.first() else { return false };
        let Some(token) = self.pass_on(state, &hold.lease, &waiter.wanted, now) else {
            return false;
        };
        self.seat_waiter(state, effects, &hold.lease, arrival, token, now);
        true
    }

    /// Lets the next hold use a lease as it is. Returns its token, or `None` if that cannot be: a fair one passes nobody,
    /// also in other processes.
    pub(super) fn pass_on(
        &self,
        state: &State,
        lease: &Lease,
        wanted: &Wanted,
        now: Timestamp,
    ) -> Option<u64> {
        let window = state.window(self.engine.config.handoff_window, now);
        let fits = lease.kind.sharing() == Sharing::Alone
            && lease.kind.side() == wanted.side.side()
            && !wanted.terms.fair;
        if fits { lease.hand_off(now, wanted.terms, window) } else { None }
    }

    /// Waits for a release's answer. Without one the release stays pending.
    pub(crate) fn finish_release(
        self: &Arc<Self>,
        PendingRelease { lease, release, number }: PendingRelease,
    ) -> impl Future<Output = Result<Released, Fault>> + Send + use<> {
        // Reported to the gate also when the future is dropped half-way, or before it begins.
        let outcome = ReleaseOutcome { gate: self.clone(), number, released: None };
        ReleaseOutcome::of(release, lease, outcome)
    }

    /// Has the watchdog wait for a release's answer.
    pub(super) fn finish_in_background(self: &Arc<Self>, release: PendingRelease) {
        let answer = self.finish_release(release);
        self.engine.watchdog.adopt(Box::pin(async move {
            let _ = answer.await;
        }));
    }

    /// Takes in what became of a release.
    fn released(self: &Arc<Self>, number: u64, released: Option<Released>) {
        let window = self.engine.config.handoff_window;
        let now = self.engine.clock.now();
        let others = released.map(|released| released.receivers);
        if !self.update(|state, _| state.released(number, others, now, window)) {
            return;
        }
        let rest = Rest { gate: self.clone(), over: false };
        self.engine.watchdog.adopt(Box::pin(rest.pass(window)));
    }
}

/// The time in which others come first. At its end the gate is retired, if nobody needs it.
struct Rest {
    gate: Arc<Gate>,
    over: bool,
}

impl Rest {
    async fn pass(mut self, window: Duration) {
        // A little longer: timers and the clock need not agree to the last.
        self.gate.engine.clock.sleep(window + Duration::from_millis(1)).await;
        self.over = true;
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        if !self.over {
            // The runtime has ended: nobody will ask again.
            self.gate.update(|state, _| state.forget_release());
        }
        self.gate.retire_if_idle();
    }
}

/// Reports to the gate what became of a release, whatever becomes of the future that waits for it.
struct ReleaseOutcome {
    gate: Arc<Gate>,
    number: u64,
    released: Option<Released>,
}

impl ReleaseOutcome {
    /// Waits for the answer to the release of `lease`. If this is dropped before it begins, the release is dropped before the gate:
    /// the client may end with that, and what is owed has to be left before.
    async fn of(
        release: Box<Release>,
        lease: Arc<Lease>,
        mut outcome: Self,
    ) -> Result<Released, Fault> {
        let engine = &outcome.gate.engine;
        // After the deadline another may have had the lock: the answer would say nothing any more.
        let now = engine.clock.now();
        let within = lease.patience(now).min(lease.time_left(now));
        let answer = release.answer(within).await;
        if let Ok(released) = &answer {
            let passed = &engine.events.queue.dead_waiters_passed;
            passed.fetch_add(released.passed_over.into(), Relaxed);
        }
        outcome.released = answer.as_ref().ok().copied();
        answer
    }
}

impl Drop for ReleaseOutcome {
    fn drop(&mut self) {
        self.gate.released(self.number, self.released);
    }
}
