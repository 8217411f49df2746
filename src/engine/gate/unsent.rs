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
use super::entry::Entry;
use super::hold::{Hold, PendingRelease};
use super::parting::{Fate, Parting};
use super::seat::{Seat, Unsent};
use super::state::State;
use super::{Gate, Request, Service, TakenBy};
use crate::clock::Timestamp;
use crate::engine::kind::Sharing;
use crate::engine::lease::Lease;
use crate::monitor::HoldEnd;
use crate::owner::Place;

/// Has the release of a lease sent when it is dropped, if it was not sent before, and nobody uses the lease.
struct Overseer {
    gate: Arc<Gate>,
    lease: Arc<Lease>,
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
            effects.unattended = Some(lease.clone());
        }
        state.arrivals += 1;
        let number = state.arrivals;
        state.seat = Seat::Unsent(Unsent { hold: hold.clone(), number });
        Some(Parting::new(self.clone(), number))
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

    /// Returns true if the release of that number is not sent, and nobody has the lease.
    pub(super) fn is_unsent(&self, number: u64) -> bool {
        self.state.lock().unsent(number).is_some()
    }

    /// Sends the release of that number, if it is not sent, and nobody has the lease. Returns what has become of it.
    pub(super) fn send_unless_taken(self: &Arc<Self>, number: u64) -> Fate {
        let now = self.engine.clock.now();
        let fate = self.update(|state, effects| {
            if let Some(at) = state.told.iter().position(|(told, _)| *told == number) {
                return Fate::Told(state.told.swap_remove(at).1);
            }
            match state.send_left(number, effects, now) {
                Some(release) => Fate::Sent(release),
                None => Fate::TakenBack,
            }
        });
        if let Fate::Sent(release) = &fate {
            self.engine.watchdog.forget(&release.lease);
        }
        fate
    }

    /// Sees to it that the release of a lease that nobody uses is sent at the end of the window, whatever becomes of the unlock:
    /// its future may be kept and not polled.
    ///
    /// Without the runtime it is sent at once, so this must not be called under the gate's mutex.
    pub(super) fn oversee(self: &Arc<Self>, lease: Arc<Lease>) {
        let engine = &self.engine;
        // A little longer: timers and the clock need not agree to the last, and no other one comes for this lease.
        let window = engine.config.handoff_window + Duration::from_millis(1);
        let until = lease.passes_from.plus(window);
        let overseer = Overseer { gate: self.clone(), lease };
        engine.watchdog.adopt(Box::pin(async move {
            let engine = &overseer.gate.engine;
            tokio::select! {
                () = engine.clock.sleep_until(until) => {}
                () = engine.closed() => {}
            }
        }));
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

    /// Returns the hold whose release has that number, if it is not sent, and nobody has the lease.
    fn unsent(&self, number: u64) -> Option<&Arc<Hold>> {
        match &self.seat {
            Seat::Unsent(unsent) if unsent.number == number => Some(&unsent.hold),
            _ => None,
        }
    }

    /// Sends the release of that number, unless it was sent, or somebody has the lease.
    fn send_left(
        &mut self,
        number: u64,
        effects: &mut Effects,
        now: Timestamp,
    ) -> Option<PendingRelease> {
        let hold = self.unsent(number)?.clone();
        self.tokens_used = hold.lease.tokens_used();
        let release = self.release(&hold.lease, now);
        effects.ended = Some((hold, HoldEnd::Released, now));
        Some(release)
    }
}

impl Drop for Overseer {
    fn drop(&mut self) {
        let now = self.gate.engine.clock.now();
        self.gate.update(|state, effects| {
            if state.seat.lease().is_some_and(|lease| Arc::ptr_eq(lease, &self.lease)) {
                state.send_unsent(effects, now);
            }
        });
    }
}
