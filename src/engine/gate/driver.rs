//! The driver of a gate: the task that gets the lock for those who wait in this process, until nobody does.
//!
//! So the servers see one contender per client, however many tasks wait. When to ask is for the [`Strategy`]: on one
//! server the waiters stand in its queue, over several they back off. Messages make both fast; timers make them
//! certain (invariant 8).

use std::sync::Arc;
use std::time::Duration;

use super::Gate;
use super::backing_off::BackingOff;
use super::queueing::Queueing;
use super::state::{Begun, LastRelease, State};
use super::wait_list::Seeker;
use crate::clock::Timestamp;
use crate::engine::kind::{Refusal, Sharing, Wanted};
use crate::engine::lease::Lease;
use crate::error::Fault;
use crate::node::Letter;

impl Gate {
    pub(super) fn spawn_driver(self: &Arc<Self>) {
        // Made here, so that it is dropped, and says so, even if the future is never polled.
        let mut driver = Driver::new(self.clone());
        let drive = async move { driver.run().await };
        self.engine.tasks.spawn_on(drive, self.engine.clock.runtime());
    }

    /// Returns what the driver has to do now.
    fn next_step(self: &Arc<Self>) -> Step {
        let now = self.engine.clock.now();
        self.update(|state, effects| {
            state.evict_lost(now, effects);
            state.next_step(now)
        })
    }

    /// Asks on without the answer to a release: nobody may be there to take it in.
    fn pass_over_release(self: &Arc<Self>) {
        self.update(|state, _| {
            if state.last_release.is_pending() {
                state.last_release = LastRelease::Over;
            }
        });
    }

    /// Ends the waits without a limit that have lasted through `unavailable_after` without an answer.
    pub(super) fn fail_unanswered(self: &Arc<Self>) {
        let now = self.engine.clock.now();
        let patience = self.engine.config.unavailable_after;
        self.update(|state, effects| {
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

impl State {
    fn next_step(&mut self, now: Timestamp) -> Step {
        let held = self.current_hold().map(|hold| hold.lease.clone());
        if let Some(lease) = held {
            // A lease that one holder has alone may pass to the next ordinary waiter. If it is shared, those who could use it
            // have joined: the others ask, so that the servers let no more of other processes in before them.
            let seekers: Vec<_> = match self.is_held_alone() {
                true => self.waiters.fair().collect(),
                false => self.waiters.seekers(),
            };
            return match seekers.is_empty() {
                // The driver stays while somebody here holds the lock: the next waiter is likely soon.
                true => Step::Rest(lease),
                false if self.asking => Step::Idle,
                false => Step::Contend {
                    held: Some(lease),
                    seekers,
                    begun: self.begun.take(),
                    refusal: None,
                },
            };
        }
        if self.waiters.is_empty() {
            self.driven = false;
            return Step::End { _unused: self.begun.take() };
        }
        self.forget_old_release(now);
        if self.asking {
            return Step::Idle;
        }
        match self.last_release {
            LastRelease::Pending { .. } if !self.may_ask() => Step::AwaitRelease,
            LastRelease::Received { others, .. } => {
                self.last_release = LastRelease::Over;
                Step::StandBack { others }
            }
            LastRelease::Over | LastRelease::Pending { .. } => Step::Contend {
                held: None,
                seekers: self.waiters.seekers(),
                begun: self.begun.take(),
                refusal: self.refusal.as_ref().map(|seen| seen.refusal.clone()),
            },
        }
    }
}

/// What the driver has to do.
enum Step {
    /// Nothing any more: nobody waits. A request that nobody needs leaves the queue.
    End { _unused: Option<Box<Begun>> },
    /// Nothing, until the gate changes or this lease, which is in use here, is lost.
    Rest(Arc<Lease>),
    /// Nothing, until the gate changes: somebody else asks.
    Idle,
    /// Nothing, until the answer to our release says whether others come first.
    AwaitRelease,
    /// Let that many others come first.
    StandBack { others: u32 },
    /// Get the lock for these: nobody else asks.
    Contend {
        /// The lease, if it is held here.
        held: Option<Arc<Lease>>,
        seekers: Vec<(Seeker, Wanted)>,
        /// The request of a waiter that stands in the queue already.
        begun: Option<Box<Begun>>,
        /// The answer to the last ask, if it was refused.
        refusal: Option<Refusal>,
    },
}

/// When to ask: the only thing that differs between one server and several.
enum Strategy {
    Queueing(Box<Queueing>),
    BackingOff(Box<BackingOff>),
}

/// What those who wait may learn while nobody asks.
pub(super) enum Heard {
    /// A letter about the request at this place.
    Letter { about: usize, letter: Letter },
    /// A release on this node, or the subscription, before which a release may have been missed.
    Release { node: usize },
    /// The queue is on another server.
    Moved,
}

struct Driver {
    gate: Arc<Gate>,
    strategy: Strategy,
    done: bool,
}

impl Driver {
    fn new(gate: Arc<Gate>) -> Self {
        let strategy = match gate.quorum.has_queue() {
            true => Strategy::Queueing(Box::new(Queueing::new(gate.clone()))),
            false => Strategy::BackingOff(Box::new(BackingOff::new(gate.clone()))),
        };
        Self { gate, strategy, done: false }
    }

    async fn run(&mut self) {
        loop {
            match self.gate.next_step() {
                Step::End { .. } => {
                    self.done = true;
                    return;
                }
                Step::Rest(lease) => self.rest(&lease).await,
                Step::Idle => self.gate.changed.notified().await,
                Step::AwaitRelease => self.await_release().await,
                Step::StandBack { others } => self.strategy.stand_back(others),
                Step::Contend { held, seekers, begun, refusal } => {
                    self.strategy.take_over(begun, refusal);
                    self.strategy.serve(seekers);
                    if self.strategy.ask_at() <= self.gate.engine.clock.now() {
                        self.strategy.ask().await;
                    } else {
                        self.linger(held.as_deref()).await;
                    }
                }
            }
        }
    }

    async fn rest(&mut self, lease: &Lease) {
        // A request for nobody would keep those out whom the servers let share the lock.
        if lease.kind.sharing() != Sharing::Alone {
            self.strategy.serve(Vec::new());
        }
        self.strategy.rest();
        tokio::select! {
            biased;
            () = lease.lost().cancelled() => self.gate.notice_loss(),
            () = self.gate.changed.notified() => {}
        }
    }

    async fn await_release(&mut self) {
        self.strategy.hold_off();
        let clock = &self.gate.engine.clock;
        let until = clock.now().plus(self.gate.engine.config.response_timeout);
        if clock.until(until, self.gate.changed.notified()).await.is_none() {
            // Who waits for the answer may not be polled any more.
            self.gate.pass_over_release();
        }
    }

    /// Waits until it is time to ask, something is heard, the gate changes, or the lease that is in use here is lost.
    async fn linger(&mut self, held: Option<&Lease>) {
        let gate = self.gate.clone();
        let timer = gate.engine.clock.sleep_until(self.strategy.ask_at());
        let lost = async {
            match held {
                Some(lease) => lease.lost().cancelled().await,
                None => std::future::pending().await,
            }
        };
        let mut heard = None;
        tokio::select! {
            biased;
            () = lost => gate.notice_loss(),
            what = self.strategy.listen() => heard = Some(what),
            () = gate.changed.notified() => {}
            () = timer => {}
        }
        // Only now: what changes by it would wake this task, and a thread for it, if it still listened for changes.
        if let Some(heard) = heard {
            self.strategy.take_in(heard);
        }
        gate.fail_unanswered();
    }
}

impl Strategy {
    /// The lock is in use here: what was known of others is out of date by the time it matters.
    fn rest(&mut self) {
        match self {
            Self::Queueing(queueing) => queueing.rest(),
            Self::BackingOff(backing_off) => backing_off.rest(),
        }
    }

    /// We have just released the lock, and do not know yet who learned of it. Requests keep their places in the queue.
    fn hold_off(&mut self) {
        match self {
            Self::Queueing(queueing) => queueing.hold_off(),
            Self::BackingOff(backing_off) => backing_off.hold_off(),
        }
    }

    /// We have just released the lock, and `others` learned of it: they come first.
    fn stand_back(&mut self, others: u32) {
        match self {
            Self::Queueing(queueing) => queueing.stand_back(),
            Self::BackingOff(backing_off) => backing_off.stand_back(others),
        }
    }

    /// Takes over from a caller of this process that asked before there was a driver.
    fn take_over(&mut self, begun: Option<Box<Begun>>, refusal: Option<Refusal>) {
        match (self, begun, refusal) {
            (Self::Queueing(queueing), Some(begun), refusal) => queueing.take_over(*begun, refusal),
            (Self::BackingOff(backing_off), begun, refusal) => {
                backing_off.take_over(begun, refusal.as_ref());
            }
            _ => {}
        }
    }

    /// Learns for whom to ask. Requests for others leave the queue, and keep nobody out any more.
    fn serve(&mut self, seekers: Vec<(Seeker, Wanted)>) {
        match self {
            Self::Queueing(queueing) => queueing.serve(seekers),
            Self::BackingOff(backing_off) => backing_off.serve(&seekers),
        }
    }

    /// Returns when to ask.
    fn ask_at(&self) -> Timestamp {
        match self {
            Self::Queueing(queueing) => queueing.ask_at(),
            Self::BackingOff(backing_off) => backing_off.ask_at(),
        }
    }

    async fn ask(&mut self) {
        match self {
            Self::Queueing(queueing) => queueing.ask().await,
            Self::BackingOff(backing_off) => backing_off.ask().await,
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
        match (self, heard) {
            (Self::Queueing(queueing), Heard::Letter { about, letter }) => {
                queueing.read(about, letter);
            }
            (Self::Queueing(queueing), Heard::Release { .. }) => queueing.released(),
            (Self::BackingOff(backing_off), Heard::Release { node }) => backing_off.released(node),
            // A request in the old queue is dropped when it is next looked for whom to ask.
            (_, Heard::Moved) | (Self::BackingOff(_), Heard::Letter { .. }) => {}
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
}

const POLL: Duration = Duration::from_secs(2);
const LONGEST_FAILURE_PAUSE: Duration = Duration::from_millis(500);
