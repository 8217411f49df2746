//! The driver of a gate: the task that gets the lock for those who wait in this process, until nobody does.
//!
//! So the servers see one contender per client, however many tasks wait. When to ask is for the [`Strategy`]: on one
//! server the waiters stand in its queue, over several they back off. Messages make both fast; timers make them
//! certain (invariant 8).

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::Gate;
use super::asks::{Asked, Asks, Heard};
use super::backing_off::BackingOff;
use super::queueing::Queueing;
use super::seat::Seat;
use super::situation::Situation;
use crate::clock::Timestamp;
use crate::engine::quorum::Outcome;
use crate::error::Fault;
use crate::node::Letter;

impl Gate {
    pub(super) fn spawn_driver(self: &Arc<Self>) {
        // Made here, so that it is dropped, and says so, even if the future is never polled.
        let mut driver = Driver::new(self.clone());
        let drive = async move { driver.run().await };
        self.engine.tasks.spawn_on(drive, self.engine.clock.runtime());
    }

    /// Takes in that nothing is asked for any more. Returns false if somebody has come meanwhile.
    fn driver_ends(self: &Arc<Self>) -> bool {
        let unused = self.update(|state, _| {
            let ends = matches!(state.seat, Seat::Free) && state.waiters.is_empty();
            state.driven = !ends;
            ends.then(|| state.begun.take())
        });
        unused.is_some()
    }

    /// Ends the waits without a limit that have lasted through `unavailable_after` without an answer.
    pub(super) fn fail_unanswered(self: &Arc<Self>) {
        let now = self.engine.clock.now();
        let patience = self.engine.config.unavailable_after;
        self.update(|state, effects| {
            // Who waits for a holder of this process needs no answer.
            if state.passes_on() {
                return;
            }
            let Some(trouble) = state.trouble.clone() else { return };
            let began = |joined_at| trouble.since.max(joined_at);
            state.fail_waiters(
                effects,
                |waiter| waiter.for_ever && now.since(began(waiter.joined_at)) >= patience,
                || self.error(trouble.fault.clone()),
            );
        });
    }

    /// Ends all waits with a fault that waiting cannot mend.
    pub(super) fn fail_all(self: &Arc<Self>, fault: &Fault) {
        self.update(|state, effects| {
            state.fail_waiters(effects, |_| true, || self.error(fault.clone()));
        });
    }
}

/// When to ask: the only thing that differs between one server and several.
enum Strategy {
    Queueing(Box<Queueing>),
    BackingOff(Box<BackingOff>),
}

struct Driver {
    gate: Arc<Gate>,
    /// Dropped first, so that what asks is over before what waits.
    asks: Asks,
    strategy: Strategy,
    done: bool,
}

impl Driver {
    fn new(gate: Arc<Gate>) -> Self {
        let strategy = match gate.quorum.has_queue() {
            true => Strategy::Queueing(Box::new(Queueing::new(gate.clone()))),
            false => Strategy::BackingOff(Box::new(BackingOff::new(gate.clone()))),
        };
        Self { gate, asks: Asks::default(), strategy, done: false }
    }

    async fn run(&mut self) {
        // Behind the runtime's end all timers are over: whoever went on would never let it end.
        while !self.gate.engine.clock.is_stopped() {
            let Some(mut situation) = self.gate.situation() else {
                // First what was asked for is given back: a shutdown waits for the driver, and then for releases.
                self.asks = Asks::default();
                self.strategy.clear();
                self.done = self.gate.driver_ends();
                if self.done {
                    return;
                }
                continue;
            };
            self.strategy.look(&mut situation);
            self.strategy.ask(&situation, &mut self.asks);
            self.wait(&situation).await;
            self.gate.fail_unanswered();
        }
    }

    /// Waits until it is time to ask, something is answered or heard, the gate changes, or the lease that is in use here is
    /// lost.
    async fn wait(&mut self, situation: &Situation) {
        let gate = self.gate.clone();
        let until = self.strategy.asks_at(situation).min(situation.until);
        let timer = gate.engine.clock.sleep_until(until);
        let lost = async {
            match &situation.held {
                Some(lease) => lease.lost().cancelled().await,
                None => std::future::pending().await,
            }
        };
        let (mut heard, mut asked) = (None, None);
        tokio::select! {
            biased;
            () = lost => gate.notice_loss(),
            what = self.strategy.listen() => heard = Some(what),
            answer = self.asks.next() => asked = Some(answer),
            () = gate.changed.notified() => {}
            () = timer => {}
        }
        // Only now: what changes by it would wake this task, and a thread for it, if it still listened for changes.
        let mut granted = false;
        if let Some(heard) = heard {
            granted = matches!(heard, Heard::Letter(Letter::Grant(_)));
            self.strategy.take_in(heard);
        }
        // Those sent together are answered together: one look is enough for all.
        while let Some(answer) = asked {
            granted = matches!(answer.answer, Ok(Outcome::Granted(_)));
            self.strategy.answered(answer);
            asked = if granted { None } else { self.asks.next().now_or_never() };
        }
        if granted {
            // The new holder comes before the driver's own affairs.
            tokio::task::yield_now().await;
        }
    }
}

impl Strategy {
    /// Learns how the gate stands. Requests for others than those who wait leave the queue, and keep nobody out any more.
    fn look(&mut self, situation: &mut Situation) {
        match self {
            Self::Queueing(queueing) => queueing.look(situation),
            Self::BackingOff(backing_off) => backing_off.look(situation),
        }
    }

    /// Gives back all that was asked for.
    fn clear(&mut self) {
        match self {
            Self::Queueing(queueing) => queueing.clear(),
            Self::BackingOff(backing_off) => backing_off.clear(),
        }
    }

    /// Returns when to ask.
    fn asks_at(&self, situation: &Situation) -> Timestamp {
        match self {
            Self::Queueing(queueing) => queueing.asks_at(situation),
            Self::BackingOff(backing_off) => backing_off.asks_at(situation),
        }
    }

    /// Begins to ask whatever is due.
    fn ask(&mut self, situation: &Situation, asks: &mut Asks) {
        match self {
            Self::Queueing(queueing) => queueing.ask(situation, asks),
            Self::BackingOff(backing_off) => backing_off.ask(situation, asks),
        }
    }

    fn answered(&mut self, asked: Asked) {
        match self {
            Self::Queueing(queueing) => queueing.answered(asked),
            Self::BackingOff(backing_off) => backing_off.answered(asked),
        }
    }

    /// Waits until something is heard. Dropping the future loses nothing.
    async fn listen(&self) -> Heard {
        match self {
            Self::Queueing(queueing) => queueing.listen().await,
            Self::BackingOff(backing_off) => backing_off.listen().await,
        }
    }

    fn take_in(&mut self, heard: Heard) {
        match self {
            Self::Queueing(queueing) => queueing.take_in(heard),
            Self::BackingOff(backing_off) => backing_off.take_in(heard),
        }
    }
}

/// The runtime drops its tasks: nobody will ever ask again for those who wait.
impl Drop for Driver {
    fn drop(&mut self) {
        if !self.done {
            let error = || self.gate.error(Fault::Closed);
            self.gate.update(|state, effects| {
                state.driven = false;
                state.fail_waiters(effects, |_| true, error);
            });
        }
    }
}

impl Gate {
    /// Returns a random time after which a waiter that hears nothing asks.
    pub(super) fn poll_pause(&self) -> Duration {
        self.engine.clock.jitter(POLL, POLL * 2)
    }

    /// Returns how long to wait after so many asks in a row had no usable answer.
    pub(super) fn failure_pause(&self, failures: u32) -> Duration {
        self.engine.clock.back_off(failures, LONGEST_FAILURE_PAUSE)
    }

    /// Returns how long to wait after an ask that failed by `fault`, as so many in a row before it.
    pub(super) fn pause_after(&self, fault: &Fault, failures: u32) -> Duration {
        // Nothing is granted before the end of a quarantine, and everything may be from then on.
        let left = fault.quarantine().filter(|left| !left.is_zero());
        left.unwrap_or_else(|| self.failure_pause(failures))
    }
}

const POLL: Duration = Duration::from_secs(2);
const LONGEST_FAILURE_PAUSE: Duration = Duration::from_millis(500);
