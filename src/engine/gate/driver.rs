//! The driver of a gate: the task that asks the servers for those who wait, until nobody does.
//!
//! It subscribes, asks again, then waits for a message, the holder's end, a reset of the connection or a random
//! moment some seconds off, whichever is first: messages make it fast, the timers make it certain (invariant 8). So
//! the servers see one contender per client, however many wait.

use std::sync::Arc;
use std::time::Duration;

use super::Gate;
use super::state::{LastRelease, State};
use crate::clock::Timestamp;
use crate::engine::ballot::{self, Ballot, Count};
use crate::engine::kind::Refusal;
use crate::engine::lease::Lease;
use crate::engine::line::Line;
use crate::engine::quorum::{Ears, Outcome};
use crate::error::Fault;
use crate::node::Signal;

impl Gate {
    pub(super) fn spawn_driver(self: &Arc<Self>) {
        // Made here, so that it is dropped, and says so, even if the future is never polled.
        let mut driver = Driver::new(self.clone());
        let drive = async move { driver.run().await };
        self.engine.tasks.spawn_on(drive, self.engine.clock.runtime());
    }

    /// Returns what the driver has to do now. `unlisten` is called, under the mutex, when nobody waits.
    fn next_step(self: &Arc<Self>, unlisten: impl FnOnce()) -> Step {
        let now = self.engine.clock.now();
        self.update(|state, effects| {
            state.evict_lost(now, effects);
            state.next_step(now, unlisten)
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
    fn fail_unanswered(self: &Arc<Self>) {
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
    fn fail_all(self: &Arc<Self>, fault: &Fault) {
        self.update(|state, effects| {
            state.fail_waiters(effects, |_| true, || self.error(fault.clone()));
        });
    }
}

impl State {
    fn next_step(&mut self, now: Timestamp, unlisten: impl FnOnce()) -> Step {
        let hold = self.current_hold();
        // Who holds the lock leaves the line, and its next place is at the end.
        if hold.is_some() || self.waiters.is_empty() {
            unlisten();
        }
        if let Some(hold) = hold {
            // The driver stays while somebody here holds the lock: the next waiter is likely soon.
            return Step::Rest(Some(hold.lease.clone()));
        }
        if self.waiters.is_empty() {
            self.driven = false;
            return Step::End;
        }
        self.forget_old_release(now);
        if self.asking {
            return Step::Stand;
        }
        match self.last_release {
            LastRelease::Pending { .. } if !self.may_ask() => Step::Rest(None),
            LastRelease::Received { others, .. } => {
                self.last_release = LastRelease::Over;
                Step::Join(others)
            }
            LastRelease::Over | LastRelease::Pending { .. } => {
                Step::Turn { refusal: self.refusal.as_ref().map(|seen| seen.refusal.clone()) }
            }
        }
    }
}

/// What the driver has to do.
enum Step {
    /// Nobody waits any more.
    End,
    /// Nothing, until the gate changes, or this lease is lost; what was known of the line is old then.
    Rest(Option<Arc<Lease>>),
    /// Nothing, until somebody else's ask has ended.
    Stand,
    /// Take a place behind that many others.
    Join(u32),
    /// The lock is not held here, and nobody else asks. The last ask was refused, if one was.
    Turn { refusal: Option<Refusal> },
}

struct Driver {
    gate: Arc<Gate>,
    order: Order,
    ears: Option<Ears>,
    /// Until when not to ask; `None`: ask.
    pause: Option<Timestamp>,
    /// Over several nodes, how long after a majority can be free to ask: drawn once for each ask.
    delay: Duration,
    /// Asks in a row without a usable answer.
    failures: u32,
    done: bool,
}

/// What says when to ask: a place in line on one server, a count of the free ones over several.
enum Order {
    Line(Line),
    Ballot(Ballot),
}

impl Driver {
    fn new(gate: Arc<Gate>) -> Self {
        Self {
            order: match gate.quorum.nodes() {
                [_] => Order::Line(Line::default()),
                nodes => Order::Ballot(Ballot::new(nodes.len())),
            },
            ears: None,
            pause: None,
            delay: Duration::ZERO,
            failures: 0,
            done: false,
            gate,
        }
    }

    async fn run(&mut self) {
        loop {
            let ears = &mut self.ears;
            match self.gate.next_step(|| *ears = None) {
                Step::End => {
                    self.done = true;
                    return;
                }
                Step::Rest(lease) => self.rest(lease).await,
                Step::Stand => self.gate.changed.notified().await,
                Step::Join(others) => {
                    self.join(others);
                    self.listen();
                    self.linger().await;
                }
                Step::Turn { .. } if self.pause.is_some() => self.linger().await,
                // Somebody asked before there was a driver: listen first, then ask again.
                Step::Turn { refusal: Some(refusal) } if self.ears.is_none() => {
                    self.refused(&refusal, None);
                    self.linger().await;
                }
                Step::Turn { .. } => self.ask().await,
            }
        }
    }

    /// Until the gate changes, or the lease that is in use here is lost.
    async fn rest(&mut self, lease: Option<Arc<Lease>>) {
        self.pause = None;
        match lease {
            Some(lease) => {
                tokio::select! {
                    biased;
                    () = lease.lost().cancelled() => self.gate.notice_loss(),
                    () = self.gate.changed.notified() => {}
                }
            }
            None => {
                // Who waits for the answer to our release may not be polled any more.
                let within = self.gate.engine.config.response_timeout;
                let until = self.now().plus(within);
                let changed = self.gate.changed.notified();
                if self.gate.engine.clock.until(until, changed).await.is_none() {
                    self.gate.pass_over_release();
                }
            }
        }
    }

    /// Until it is time to ask, or the gate changes.
    async fn linger(&mut self) {
        let Some(pause) = self.pause else { return };
        let clock = self.gate.engine.clock.clone();
        let until = match &self.order {
            Order::Line(line) => line.silence_at().map_or(pause, |at| at.min(pause)),
            Order::Ballot(_) => pause,
        };
        let timer = clock.sleep_until(until);
        tokio::select! {
            biased;
            (node, signal) = heard(&self.ears) => self.heard(node, signal),
            () = self.gate.changed.notified() => {}
            () = timer => self.pause = None,
        }
        self.gate.fail_unanswered();
    }

    fn heard(&mut self, node: usize, signal: Signal) {
        let (now, round_trip) = (self.now(), self.round_trip());
        match (&mut self.order, signal) {
            // What was said before may have been missed, unless a place in line was taken just now.
            (Order::Line(line), Signal::Subscribed) => {
                if line.silence_at().is_none() {
                    self.pause = None;
                }
            }
            (Order::Line(line), Signal::Messages(messages)) => {
                for _ in 0..messages {
                    if line.message(now, round_trip) {
                        self.pause = None;
                    }
                }
            }
            (Order::Ballot(ballot), Signal::Subscribed | Signal::Messages(_)) => {
                let counts_from = self.gate.quorum.nodes()[node].counts_from();
                if ballot.freed(node, counts_from, now) {
                    self.plan(now);
                }
            }
        }
    }

    /// Others heard of our release: they come first.
    fn join(&mut self, others: u32) {
        let (now, round_trip) = (self.now(), self.round_trip());
        self.pause = Some(self.safety_pause(now));
        match &mut self.order {
            Order::Line(line) => line.join(others - 1, now, round_trip),
            Order::Ballot(ballot) => {
                ballot.released(others);
                self.draw();
                self.plan(now.plus(ballot::unit(round_trip)));
            }
        }
    }

    fn draw(&mut self) {
        let Order::Ballot(ballot) = &self.order else { return };
        let spread = ballot.spread(self.round_trip());
        self.delay = self.gate.engine.clock.jitter(Duration::ZERO, spread);
    }

    /// Ends the pause, over several nodes, a random time after a majority can be free, from `from` on.
    fn plan(&mut self, from: Timestamp) {
        let Order::Ballot(ballot) = &self.order else { return };
        let at = ballot.may_win_at(from).plus(self.delay);
        self.pause = self.pause.map(|pause| pause.min(at)).filter(|pause| *pause > self.now());
    }

    async fn ask(&mut self) {
        let Some(claim) = self.gate.claim_for_waiters() else { return };
        if let Order::Line(line) = &mut self.order {
            line.asked();
        }
        match claim.ask(Timestamp::NEVER).await {
            Ok(Outcome::Granted(grant)) => {
                self.failures = 0;
                claim.granted_to_waiters(grant);
                // The new holder comes before the driver's own affairs.
                tokio::task::yield_now().await;
            }
            Ok(Outcome::Refused(refusal, count)) => {
                self.failures = 0;
                self.refused(&refusal, Some(&count));
                claim.refused(refusal);
            }
            Err(fault) if fault.may_pass() => {
                let pause = self.gate.engine.clock.back_off(self.failures, LONGEST_BACK_OFF);
                self.failures += 1;
                self.pause = Some(self.now().plus(pause));
                claim.failed(&fault, true);
                self.gate.fail_unanswered();
            }
            Err(fault) => {
                drop(claim);
                self.gate.fail_all(&fault);
            }
        }
    }

    /// The lock is held. Over several nodes `count` says how each of them stands, if that is known.
    fn refused(&mut self, refusal: &Refusal, count: Option<&Count>) {
        let now = self.now();
        let listening = self.ears.as_ref().is_some_and(Ears::is_listening);
        let others = refusal.subscribers.saturating_sub(listening.into());
        let mut pause = self.safety_pause(now);
        match (&mut self.order, count) {
            (Order::Line(line), _) => {
                line.refused(others, !listening);
                if let Some(remaining) = refusal.remaining {
                    // A key is gone a little after its last millisecond began.
                    pause = pause.min(now.plus(remaining + Duration::from_millis(1)));
                }
                self.pause = Some(pause);
            }
            (Order::Ballot(ballot), count) => {
                let end = refusal.remaining.map_or(Timestamp::NEVER, |left| now.plus(left));
                match count {
                    Some(count) => ballot.refused(count, others),
                    None => ballot.held(end.plus(Duration::from_millis(1)), others),
                }
                self.pause = Some(pause);
                self.draw();
                self.plan(now);
            }
        }
        self.listen();
    }

    /// Subscribes, if that was not done. Its confirmation ends the pause: then the lock is asked for again.
    fn listen(&mut self) {
        if self.ears.is_none() {
            let kind = &*self.gate.kind;
            self.ears = Some(self.gate.quorum.subscribe(kind));
        }
    }

    fn safety_pause(&self, now: Timestamp) -> Timestamp {
        now.plus(self.gate.engine.clock.jitter(SAFETY_POLL, SAFETY_POLL * 2))
    }

    fn now(&self) -> Timestamp {
        self.gate.engine.clock.now()
    }

    fn round_trip(&self) -> Duration {
        self.gate.quorum.round_trip()
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

async fn heard(ears: &Option<Ears>) -> (usize, Signal) {
    match ears {
        Some(ears) => ears.next().await,
        None => std::future::pending().await,
    }
}

const SAFETY_POLL: Duration = Duration::from_secs(2);
const LONGEST_BACK_OFF: Duration = Duration::from_millis(500);
