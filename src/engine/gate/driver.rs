//! The driver of a gate: the task that gets the lock for those who wait in this process, until nobody does.
//!
//! So the servers see one contender per client, however many tasks wait. When to ask is for the [`Strategy`]: on one
//! server the waiters stand in its queue, over several they back off. Messages make both fast; timers make them
//! certain (invariant 8).

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::Gate;
use super::backing_off::BackingOff;
use super::claim::Claim;
use super::effects::SlowWaits;
use super::machine::Allowed;
use super::queueing::Queueing;
use super::seat::Seat;
use super::state::{Begun, LastRelease, State};
use super::wait_list::Seeker;
use crate::clock::Timestamp;
use crate::engine::kind::{Refusal, Sharing, Wanted};
use crate::engine::lease::Lease;
use crate::engine::quorum::{Attempt, Outcome};
use crate::error::Fault;
use crate::node::Letter;

impl Gate {
    pub(super) fn spawn_driver(self: &Arc<Self>) {
        // Made here, so that it is dropped, and says so, even if the future is never polled.
        let mut driver = Driver::new(self.clone());
        let drive = async move { driver.run().await };
        self.engine.tasks.spawn_on(drive, self.engine.clock.runtime());
    }

    fn situation(self: &Arc<Self>) -> Option<Situation> {
        let now = self.engine.clock.now();
        let patience = self.engine.config.response_timeout;
        self.update(|state, effects| {
            state.evict_lost(now, effects);
            effects.slow = state.slow_waits(now);
            state.situation(now, patience)
        })
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

impl State {
    /// Returns what the driver has to know, or `None` if nobody needs it.
    fn situation(&mut self, now: Timestamp, patience: Duration) -> Option<Situation> {
        let held = self.lease().cloned();
        if held.is_none() && self.waiters.is_empty() {
            return None;
        }
        let until = self.look_again_at(now).min(self.waiters.slow_at());
        let (stand_back, until) = match held {
            Some(_) => (None, until),
            None => {
                let (stand_back, release_until) = self.await_release(now, patience);
                (stand_back, until.min(release_until))
            }
        };
        let passes_on = self.passes_on();
        let ordinary = self.waiters.first().map(|(_, waiter)| waiter.wanted.clone());
        let waits = ordinary.is_some() || self.waiters.fair_len() > 0;
        let allowed = self.allowed();
        Some(Situation {
            rests: held.is_some() && (passes_on || !waits),
            listens: waits && allowed != Allowed::Nobody,
            passes_on,
            allowed,
            until,
            stand_back,
            ordinary,
            fair: self.waiters.take_moved(),
            hurried: std::mem::take(&mut self.hurried),
            begun: self.begun.take(),
            refusal: self
                .refusal
                .as_ref()
                .filter(|_| held.is_none())
                .map(|seen| seen.refusal.clone()),
            held,
        })
    }

    /// Returns the waits that somebody is to be told of now, and what is known of why they go on.
    fn slow_waits(&mut self, now: Timestamp) -> Option<Box<SlowWaits>> {
        let waits = self.waiters.take_slow(now);
        if waits.is_empty() {
            return None;
        }
        let hold = self.current_hold().cloned();
        let fault = self.trouble.as_ref().filter(|_| hold.is_none());
        Some(Box::new(SlowWaits {
            waits,
            now,
            waiters: self.waiters.len(),
            fault: fault.map(|trouble| trouble.fault_at(now)),
            refusal: self.refusal.as_ref().map(|seen| seen.refusal.clone()),
            hold,
        }))
    }

    /// Takes the right to ask from a caller that nobody polls. Returns when to look at it again.
    fn look_again_at(&mut self, now: Timestamp) -> Timestamp {
        match &self.asking {
            Some(asking) if !asking.by_driver => {
                let until = asking.since.plus(ABANDONED);
                if now < until {
                    return until;
                }
                self.asking = None;
            }
            _ => {}
        }
        Timestamp::NEVER
    }

    /// Looks at the last release: how many others come first, and until when its answer is waited for.
    fn await_release(&mut self, now: Timestamp, patience: Duration) -> (Option<u32>, Timestamp) {
        self.forget_old_release(now);
        match self.last_release {
            LastRelease::Pending { since, .. } if !self.may_ask() => {
                let until = since.plus(patience);
                if now < until {
                    return (None, until);
                }
                // Who waits for the answer may not be polled any more.
                self.last_release = LastRelease::Over;
                (None, Timestamp::NEVER)
            }
            LastRelease::Received { others, .. } => {
                self.last_release = LastRelease::Over;
                (Some(others), Timestamp::NEVER)
            }
            LastRelease::Over | LastRelease::Pending { .. } => (None, Timestamp::NEVER),
        }
    }

    /// Returns who may ask the servers now.
    pub(super) fn allowed(&self) -> Allowed {
        match &self.seat {
            Seat::Free if !self.may_ask() => Allowed::Nobody,
            _ if self.asking.is_some() => Allowed::Fair,
            _ if self.passes_on() => Allowed::Fair,
            Seat::Free | Seat::Held(_) | Seat::Unsent(_) => Allowed::All,
        }
    }

    /// Returns true if a lease is in use here that the next ordinary waiter may get without the servers. A fair one passes to
    /// nobody, and those who can use a shared one have joined.
    fn passes_on(&self) -> bool {
        self.lease().is_some_and(|lease| lease.kind.sharing() == Sharing::Alone && !lease.fair)
    }
}

/// How a gate stands, as its driver sees it.
pub(super) struct Situation {
    /// The lease, if it is held here.
    held: Option<Arc<Lease>>,
    /// The lease that is in use here may pass to the next ordinary waiter.
    pub(super) passes_on: bool,
    /// The lock is in use here, and nobody has to ask, unless by a fair handle.
    pub(super) rests: bool,
    pub(super) allowed: Allowed,
    /// What is told on the lock's channel is of use.
    pub(super) listens: bool,
    /// When to look again, whatever happens.
    until: Timestamp,
    /// We have just released the lock, and that many others learned of it: they come first.
    pub(super) stand_back: Option<u32>,
    /// What the first ordinary waiter wants.
    pub(super) ordinary: Option<Wanted>,
    /// The waiters of fair handles that came or left, and what those want who wait.
    pub(super) fair: Vec<(Seeker, Option<Wanted>)>,
    /// Somebody who does not wait wants to know whether the lock is free.
    pub(super) hurried: bool,
    /// The request of a waiter that stands in the queue already.
    pub(super) begun: Option<Box<Begun>>,
    /// The answer to the last ask, if it was refused.
    pub(super) refusal: Option<Refusal>,
}

/// When to ask: the only thing that differs between one server and several.
enum Strategy {
    Queueing(Box<Queueing>),
    BackingOff(Box<BackingOff>),
}

/// What those who wait may learn.
pub(super) enum Heard {
    Letter(Letter),
    /// A release on this node, or the subscription, before which a release may have been missed.
    Release {
        node: usize,
    },
    /// The queue is on another server.
    Moved,
}

/// A request, and what it was begun for.
pub(super) struct Request {
    pub(super) attempt: Attempt,
    pub(super) wanted: Wanted,
}

/// A request that was answered. If it is dropped, its release goes before the end of the claim.
pub(super) struct Asked {
    pub(super) request: Request,
    pub(super) claim: Claim,
    pub(super) seeker: Seeker,
    pub(super) number: u64,
    pub(super) answer: Result<Outcome, Fault>,
}

/// The requests that ask now.
#[derive(Default)]
pub(super) struct Asks(FuturesUnordered<Pin<Box<dyn Future<Output = Asked> + Send>>>);

impl Asks {
    pub(super) fn push(&mut self, claim: Claim, seeker: Seeker, number: u64, request: Request) {
        let answer = Err(Fault::Closed);
        let mut asked = Asked { request, claim, seeker, number, answer };
        self.0.push(Box::pin(async move {
            asked.answer = asked.claim.ask(&mut asked.request.attempt, Timestamp::NEVER).await;
            asked
        }));
    }

    async fn next(&mut self) -> Asked {
        match self.0.next().await {
            Some(asked) => asked,
            None => std::future::pending().await,
        }
    }
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
        if let Some(heard) = heard {
            self.strategy.take_in(heard);
        }
        // Those sent together are answered together: one look is enough for all.
        while let Some(answer) = asked {
            let granted = matches!(answer.answer, Ok(Outcome::Granted(_)));
            self.strategy.answered(answer);
            if granted {
                // The new holder comes before the driver's own affairs.
                tokio::task::yield_now().await;
                return;
            }
            asked = self.asks.next().now_or_never();
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
}

/// A caller that asked by itself, and has not looked at the answer for so long, is asked for no longer: nobody may poll it.
const ABANDONED: Duration = Duration::from_millis(250);
const POLL: Duration = Duration::from_secs(2);
const LONGEST_FAILURE_PAUSE: Duration = Duration::from_millis(500);
