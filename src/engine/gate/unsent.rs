//! A lease that its last user has left, and whose release is not sent yet: the next of this process to come takes it.
//!
//! Two tasks that take turns mostly meet like that: at the moment of the unlock the other one is about to ask, and does not
//! wait. So an unlock that is awaited lets the other tasks go first, once, if the lease could be handed on. Then its release
//! is sent, unless somebody has the lease by now. To all others that is a hand-off: it is bounded by the same window.
//!
//! Whoever cannot use the lease as it is has the release sent at once, and so do a loss, a shutdown and the end of the
//! window: an unlock that nobody polls keeps nobody out for longer. The answer is for the unlock, if it waits for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::effects::Effects;
use super::hold::{Entry, Hold, PendingRelease};
use super::seat::Seat;
use super::state::State;
use super::{Gate, Request, Service, TakenBy};
use crate::clock::Timestamp;
use crate::engine::kind::{Released, Sharing};
use crate::engine::lease::Lease;
use crate::error::Fault;
use crate::monitor::HoldEnd;
use crate::owner::Place;

/// What is in the seat between the end of a hold and the release of its lease.
pub(super) struct Unsent {
    /// It is over.
    hold: Arc<Hold>,
    /// Tells this end of a hold from others.
    number: u64,
}

impl Unsent {
    pub(super) fn lease(&self) -> &Arc<Lease> {
        &self.hold.lease
    }

    pub(super) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }
}

/// The answer to a release, as an unlock hears of it that had none sent.
pub(super) type Answer = Result<Released, Fault>;

/// An unlock whose release is not sent yet. Dropping it sends that.
pub(crate) struct Parting {
    gate: Arc<Gate>,
    number: u64,
    over: bool,
}

/// Has the release of a lease sent when it is dropped, if it was not sent before, and nobody uses the lease.
pub(super) struct Overseer {
    gate: Arc<Gate>,
    lease: Arc<Lease>,
}

/// What has become of a release that was not sent.
enum Fate {
    /// Somebody else of this process has the lease.
    TakenBack,
    /// It was sent just now.
    Sent(PendingRelease),
    /// Somebody else had it sent.
    Told(oneshot::Receiver<Answer>),
}

impl Gate {
    /// Leaves the lease of `hold`, which has ended, to whoever comes next, if it could be handed on.
    pub(super) fn leave_unsent(
        self: &Arc<Self>,
        state: &mut State,
        effects: &mut Effects,
        hold: &Arc<Hold>,
        now: Timestamp,
    ) -> Option<Parting> {
        let lease = &hold.lease;
        let window = state.window(self.engine.config.handoff_window, now);
        let may = lease.kind.sharing() == Sharing::Alone
            && state.waiters.is_empty()
            && state.asking.is_none()
            && lease.may_pass(now, window)
            && self.engine.check_service(Service::Draining).is_ok();
        if !may {
            return None;
        }
        if state.overseen.as_ref() != Some(lease.id()) {
            state.overseen = Some(lease.id().clone());
            effects.overseer = Some(Overseer { gate: self.clone(), lease: lease.clone() });
        }
        state.arrivals += 1;
        let number = state.arrivals;
        state.seat = Seat::Unsent(Unsent { hold: hold.clone(), number });
        Some(Parting { gate: self.clone(), number, over: false })
    }

    /// Takes the lease that nobody uses any more, if it fits as it is. Nobody of this process is before the one who asks.
    /// Otherwise its release is sent, so that the ask follows it.
    pub(super) fn take_back(
        self: &Arc<Self>,
        state: &mut State,
        effects: &mut Effects,
        request: &Request,
        now: Timestamp,
    ) -> Option<Entry> {
        let Seat::Unsent(Unsent { hold: left, .. }) = &state.seat else { return None };
        let left = left.clone();
        let Some(token) = self.pass_on(state, &left.lease, &request.wanted, now) else {
            state.send_unsent(effects, now);
            return None;
        };
        effects.ended = Some((left.clone(), HoldEnd::HandedOff, now));
        let by = TakenBy { owner: &request.owner, place: Place::here(), at: request.caller };
        let hold = self.hold(left.lease.clone(), by, token, now);
        let entry = Entry::new(&hold, request.wanted.terms, now);
        state.sit(hold, self.engine.config.handoff_window);
        Some(entry)
    }

    /// Sends a release that was not sent yet, before something that is not asked for by way of the gate.
    pub(crate) fn send_unsent(self: &Arc<Self>) {
        let now = self.engine.clock.now();
        self.update(|state, effects| state.send_unsent(effects, now));
    }
}

impl State {
    /// Sends a release that was not sent yet, if there is one. Its unlock is told the answer.
    pub(super) fn send_unsent(&mut self, effects: &mut Effects, now: Timestamp) {
        let Seat::Unsent(Unsent { number, .. }) = &self.seat else { return };
        let number = *number;
        let Some(release) = self.send_left(number, effects, now) else { return };
        let (tell, told) = oneshot::channel();
        self.told.push((number, told));
        effects.sent = Some(Box::new((release, tell)));
    }

    /// Sends the release of that number, unless it was sent, or somebody has the lease.
    fn send_left(
        &mut self,
        number: u64,
        effects: &mut Effects,
        now: Timestamp,
    ) -> Option<PendingRelease> {
        let hold = match &self.seat {
            Seat::Unsent(unsent) if unsent.number == number => unsent.hold.clone(),
            _ => return None,
        };
        self.tokens_used = hold.lease.tokens_used();
        let release = self.release(&hold.lease, now);
        effects.ended = Some((hold, HoldEnd::Released, now));
        Some(release)
    }
}

impl Parting {
    /// Lets the other tasks go first, and then sends the release. Returns its answer, or `None` if somebody else of this
    /// process has the lease by now.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the release goes on in the background.
    pub(crate) async fn settle(mut self) -> Option<Answer> {
        let until = self.gate.engine.clock.now().plus(LINGER);
        for _ in 0..MOST_TURNS {
            tokio::task::yield_now().await;
            if !self.is_unsent() || until <= self.gate.engine.clock.now() {
                break;
            }
        }
        match self.fate() {
            Fate::TakenBack => None,
            Fate::Sent(release) => Some(Box::pin(self.gate.finish_release(release)).await),
            // Without an answer its task is gone, and the runtime with it.
            Fate::Told(told) => Some(told.await.unwrap_or(Err(Fault::Closed))),
        }
    }

    fn is_unsent(&self) -> bool {
        let state = self.gate.state.lock();
        matches!(&state.seat, Seat::Unsent(unsent) if unsent.number == self.number)
    }

    fn fate(&mut self) -> Fate {
        self.over = true;
        let (number, now) = (self.number, self.gate.engine.clock.now());
        let fate = self.gate.update(|state, effects| {
            if let Some(at) = state.told.iter().position(|(told, _)| *told == number) {
                return Fate::Told(state.told.swap_remove(at).1);
            }
            match state.send_left(number, effects, now) {
                Some(release) => Fate::Sent(release),
                None => Fate::TakenBack,
            }
        });
        if let Fate::Sent(release) = &fate {
            self.gate.engine.watchdog.forget(&release.lease);
        }
        fate
    }
}

impl Overseer {
    /// Has the release sent at the end of the window, whatever becomes of the unlock: its future may be kept and not polled.
    ///
    /// Without its runtime it is dropped at once, and so must not be called under the gate's mutex.
    pub(super) fn begin(self) {
        let engine = self.gate.engine.clone();
        // A little longer: timers and the clock need not agree to the last, and no other one comes for this lease.
        let window = engine.config.handoff_window + Duration::from_millis(1);
        let until = self.lease.acquired_at.plus(window);
        engine.watchdog.adopt(Box::pin(async move {
            let engine = &self.gate.engine;
            tokio::select! {
                () = engine.clock.sleep_until(until) => {}
                () = engine.closed() => {}
            }
        }));
    }
}

impl Drop for Overseer {
    fn drop(&mut self) {
        let now = self.gate.engine.clock.now();
        self.gate.update(|state, effects| {
            if state.lease().is_some_and(|lease| Arc::ptr_eq(lease, &self.lease)) {
                state.send_unsent(effects, now);
            }
        });
    }
}

impl Drop for Parting {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if let Fate::Sent(release) = self.fate() {
            self.gate.finish_in_background(release);
        }
    }
}

/// For how long at most a release is put off: a fraction of a round trip. A turn of the others may take longer.
const LINGER: Duration = Duration::from_micros(20);
/// How many turns the others have at most. An idle runtime needs about a microsecond for one.
const MOST_TURNS: u32 = 16;
