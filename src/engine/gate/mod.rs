//! The gate of a lock: who in this process holds it, who waits, and who may ask the servers.
//!
//! A client holds at most one lease per lock, and at most one of its tasks asks for it at a time. Who in the
//! process uses the lease is decided here, first come first served, without the servers.
//!
//! | seat     | becomes  | when                                                                        |
//! |----------|----------|-----------------------------------------------------------------------------|
//! | `Free`   | `Asking` | a caller or the driver takes a [`Claim`]                                      |
//! | `Asking` | `Held`   | the claim is granted                                                        |
//! | `Asking` | `Free`   | it is refused, fails, or is dropped                                          |
//! | `Held`   | `Held`   | the last guard goes and the lease passes to the next waiter                  |
//! | `Held`   | `Free`   | the last guard goes and the release is in every node's queue; or it is lost  |
//!
//! Nothing is awaited under the gate's mutex, and nobody is woken under it.

mod claim;
mod driving;
mod engine;
mod hold;
mod state;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

pub(crate) use claim::{Claim, Waiting};
pub(crate) use driving::Step;
pub(crate) use engine::{Engine, Service};
pub(crate) use hold::{Departure, Entry, Hold};

use super::kind::{Kind, Refusal, Released};
use super::lease::Lease;
use super::quorum::Grant;
use crate::clock::Timestamp;
use crate::config::{SelfWait, Terms};
use crate::error::{Error, Fault, LossReason};
use crate::events;
use crate::owner::{Owner, Place};
use hold::{Heirs, Parting, Turn};
use state::{Aftermath, Seat, State, Waiter};

/// One lock in one process.
pub(crate) struct Gate {
    pub(crate) engine: Arc<Engine>,
    pub(crate) kind: Arc<dyn Kind>,
    state: Mutex<State>,
    /// Wakes the driver: there may be something else to do.
    pub(crate) changed: Notify,
    /// Wakes those who wait for somebody else's ask to end.
    pub(crate) settled: Notify,
}

/// Who asks for a lock, and how.
pub(crate) struct Request {
    pub(crate) owner: Owner,
    pub(crate) terms: Terms,
    pub(crate) until: Until,
    pub(crate) began_at: Timestamp,
}

/// How long somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// One attempt.
    Once,
    At(Timestamp),
    Ever,
}

/// What came of coming to the gate.
pub(crate) enum Entered {
    /// The owner holds it already.
    Again(Entry),
    /// Nobody here has it: ask the servers.
    Claim(Claim),
    Wait(Waiting),
    /// Another owner of this process holds it. Only for one attempt.
    HeldHere(Refusal),
    /// Somebody else is asking; this is the number of that ask. Only for one attempt.
    Busy(u64),
}

impl Gate {
    /// Comes to the gate of a lock.
    pub(crate) fn come(
        engine: &Arc<Engine>,
        kind: &Arc<dyn Kind>,
        request: &Request,
    ) -> Result<(Arc<Self>, Entered), Error> {
        loop {
            let gate = engine.gate(kind);
            if let Some(entered) = gate.enter(request)? {
                return Ok((gate, entered));
            }
        }
    }

    /// `None`: the gate was retired meanwhile.
    fn enter(self: &Arc<Self>, request: &Request) -> Result<Option<Entered>, Error> {
        let now = self.engine.clock.now();
        let mut state = self.state.lock();
        if state.retired {
            return Ok(None);
        }
        let buried = state.bury(now);
        let suspect = self.suspect(&state, request);
        let entered = self.enter_locked(&mut state, request, now);
        let spawns =
            matches!(entered, Ok(Entered::Wait(_))) && !std::mem::replace(&mut state.driven, true);
        let idle = entered.is_err() && state.is_idle();
        drop(state);
        self.after_burial(buried);
        if let (Some(owner), Ok(Entered::Wait(_))) = (&suspect, &entered) {
            events::self_wait(self.kind.name(), owner);
        }
        if spawns {
            self.spawn_driver();
        }
        if idle {
            self.retire_if_idle();
        }
        entered.map(Some)
    }

    fn enter_locked(
        self: &Arc<Self>,
        state: &mut State,
        request: &Request,
        now: Timestamp,
    ) -> Result<Entered, Error> {
        let name = self.kind.name();
        if let Some(hold) = state.dead.iter().find(|hold| hold.owner == request.owner) {
            let reason = hold.lease.loss().unwrap_or(LossReason::NotRenewed);
            return Err(Error::lost(name, reason));
        }
        if let Seat::Held(hold) = &state.seat
            && hold.owner == request.owner
        {
            let (entry, count) = hold.enter();
            if let Some(count) = count {
                self.engine.watchdog.adopt_count(&hold.lease, count);
            }
            return Ok(Entered::Again(entry));
        }
        self.engine.check_service(Service::Open)?;
        if request.until == Until::Once {
            return Ok(match &state.seat {
                Seat::Free => Entered::Claim(self.claim(state, request.terms, state.waiters.len())),
                Seat::Asking => Entered::Busy(state.asks),
                Seat::Held(hold) => Entered::HeldHere(hold.as_refusal(now)),
            });
        }
        state.forget_old_aftermath(now);
        let free = matches!(state.seat, Seat::Free) && state.waiters.is_empty() && state.may_ask();
        if free {
            return Ok(Entered::Claim(self.claim(state, request.terms, 0)));
        }
        if self.engine.config.self_wait == SelfWait::Fail && self.suspect(state, request).is_some()
        {
            return Err(Error::SelfWait { lock: name.clone() });
        }
        state.arrivals += 1;
        let arrival = state.arrivals;
        Ok(Entered::Wait(self.queue(state, arrival, request)))
    }

    /// The owner under whom this task took the lock that `request` would wait for.
    fn suspect(&self, state: &State, request: &Request) -> Option<Owner> {
        match &state.seat {
            Seat::Held(hold) if hold.owner != request.owner && hold.place == Place::here() => {
                Some(hold.owner.clone())
            }
            _ => None,
        }
    }

    fn queue(self: &Arc<Self>, state: &mut State, arrival: u64, request: &Request) -> Waiting {
        let (turn, granted) = oneshot::channel();
        let waiter = Waiter {
            owner: request.owner.clone(),
            terms: request.terms,
            place: Place::here(),
            joined_at: request.began_at,
            for_ever: request.until == Until::Ever,
            turn,
        };
        state.waiters.insert(arrival, waiter);
        Waiting { gate: self.clone(), arrival, granted }
    }

    /// The right to ask on `terms`, with `others` waiting behind.
    fn claim(self: &Arc<Self>, state: &mut State, terms: Terms, others: usize) -> Claim {
        let now = self.engine.clock.now();
        let window = state.window(self.engine.config.handoff_window, now);
        state.seat = Seat::Asking;
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

    /// Whether an ask that began after number `seen` was refused.
    pub(crate) fn refused_since(&self, seen: u64) -> Option<Refusal> {
        let state = self.state.lock();
        let refused = state.refused_ask > seen && matches!(state.seat, Seat::Free | Seat::Asking);
        refused.then(|| state.refusal.as_ref().map(|seen| seen.refusal.clone())).flatten()
    }

    /// Whether somebody is asking the servers now.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.state.lock().seat, Seat::Asking)
    }

    fn enter_again(self: &Arc<Self>, hold: &Arc<Hold>) -> Result<Entry, LossReason> {
        // Before the mutex: what it finds out it tells. What ends after it is found out by whoever asks next.
        hold.lease.check(self.engine.clock.now())?;
        let _state = self.state.lock();
        hold.lease.loss().map_or(Ok(()), Err)?;
        let (entry, count) = hold.enter();
        if let Some(count) = count {
            self.engine.watchdog.adopt_count(&hold.lease, count);
        }
        Ok(entry)
    }

    /// Leaves one level of a hold.
    fn leave(self: &Arc<Self>, hold: &Arc<Hold>) -> Departure {
        let now = self.engine.clock.now();
        let mut state = self.state.lock();
        let buried = state.bury(now);
        let depth = hold.depth.fetch_sub(1, Ordering::Relaxed) - 1;
        let departure = match &state.seat {
            Seat::Held(held) if Arc::ptr_eq(held, hold) => {
                if depth > 0 {
                    if let Some(count) = hold.lease.set_count(depth) {
                        self.engine.watchdog.adopt_count(&hold.lease, count);
                    }
                    drop(state);
                    return Departure::Nested;
                }
                hold.over.store(true, Ordering::Release);
                if let Some(heirs) = self.hand_off(&mut state, hold, now) {
                    drop(state);
                    heirs.wake();
                    return Departure::HandedOff;
                }
                state.tokens_used = hold.lease.tokens_used();
                state.refusal = None;
                let parting = state.release(&hold.lease, now);
                self.engine.watchdog.forget(&hold.lease);
                Departure::Released(parting)
            }
            _ => {
                if depth == 0 {
                    state.dead.retain(|dead| !Arc::ptr_eq(dead, hold));
                }
                Departure::Lost(hold.lease.loss().unwrap_or(LossReason::NotRenewed))
            }
        };
        let idle = state.is_idle();
        drop(state);
        self.after_burial(buried);
        self.changed.notify_one();
        self.settled.notify_waiters();
        self.engine.left.notify_waiters();
        if idle {
            self.retire_if_idle();
        }
        departure
    }

    /// Gives the lease of `hold`, whose last guard goes, to the next waiter if it can use it as it is.
    fn hand_off(
        self: &Arc<Self>,
        state: &mut State,
        hold: &Arc<Hold>,
        now: Timestamp,
    ) -> Option<Heirs> {
        let terms = state.waiters.first_key_value()?.1.terms;
        let window = state.window(self.engine.config.handoff_window, now);
        let (token, look_at) = hold.lease.hand_off(now, terms, window)?;
        if let Some(at) = look_at {
            self.engine.watchdog.watch(&hold.lease, at);
        }
        let (_, waiter) = state.waiters.pop_first()?;
        Some(self.seat_waiter(state, hold.lease.clone(), waiter, token, now))
    }

    fn seat_waiter(
        self: &Arc<Self>,
        state: &mut State,
        lease: Arc<Lease>,
        waiter: Waiter,
        token: u64,
        now: Timestamp,
    ) -> Heirs {
        let hold = self.hold(lease, waiter.owner, waiter.place, token, now);
        let first = (Entry::new(&hold), waiter.turn);
        let rest = self.seat(state, hold);
        Heirs { first: Some(first), rest }
    }

    /// Seats a hold, and with it all who wait for the same owner.
    fn seat(self: &Arc<Self>, state: &mut State, hold: Arc<Hold>) -> Vec<(Entry, Turn)> {
        let mut same = Vec::new();
        if hold.owner.is_shared() && !state.waiters.is_empty() {
            let others = std::mem::take(&mut state.waiters);
            for (arrival, waiter) in others {
                if waiter.owner == hold.owner {
                    same.push((Entry::joining(&hold), waiter.turn));
                } else {
                    state.waiters.insert(arrival, waiter);
                }
            }
        }
        hold.lease.used_by(&hold.owner, hold.token);
        let depth = 1 + same.len() as u32;
        hold.depth.store(depth, Ordering::Relaxed);
        if let Some(count) = hold.lease.set_count(depth) {
            self.engine.watchdog.adopt_count(&hold.lease, count);
        }
        state.seat = Seat::Held(hold);
        same
    }

    fn hold(
        self: &Arc<Self>,
        lease: Arc<Lease>,
        owner: Owner,
        place: Place,
        token: u64,
        now: Timestamp,
    ) -> Arc<Hold> {
        Arc::new(Hold {
            gate: self.clone(),
            lease,
            owner,
            token,
            since: now,
            place,
            depth: AtomicU32::new(1),
            over: AtomicBool::new(false),
        })
    }

    /// Waits for a release's answer; it stays owed without one.
    pub(crate) async fn finish_release(
        self: &Arc<Self>,
        Parting { lease, release, number, .. }: Parting,
    ) -> Result<Released, Fault> {
        // After the deadline another may have had the lock: the answer would say nothing any more.
        let now = self.engine.clock.now();
        let within = lease.patience(now).min(lease.time_left(now));
        // Told to the gate also when this future is dropped half-way.
        let mut told = Told { gate: self, number, released: None };
        let answer = release.answer(within).await;
        told.released = answer.as_ref().ok().copied();
        answer
    }

    /// Takes in what became of a release.
    fn released(self: &Arc<Self>, number: u64, released: Option<Released>) {
        let now = self.engine.clock.now();
        let window = self.engine.config.handoff_window;
        let mut state = self.state.lock();
        if !matches!(state.aftermath, Aftermath::Pending { number: latest } if latest == number) {
            return;
        }
        let others = released.map_or(0, |released| released.receivers);
        state.in_company = others > 0;
        state.aftermath = if others == 0 || window.is_zero() {
            Aftermath::Nothing
        } else {
            Aftermath::Others { others, until: now.plus(window) }
        };
        let idle = state.is_idle();
        drop(state);
        self.changed.notify_one();
        self.engine.left.notify_waiters();
        if idle {
            self.retire_if_idle();
        } else if others > 0 {
            let gate = self.clone();
            self.engine.watchdog.adopt(Box::pin(async move {
                // A little longer: timers and the clock need not agree to the last.
                gate.engine.clock.sleep(window + Duration::from_millis(1)).await;
                gate.retire_if_idle();
            }));
        }
    }

    /// Takes the gate out of the client's list if nobody needs it.
    pub(crate) fn retire_if_idle(self: &Arc<Self>) {
        let now = self.engine.clock.now();
        let mut gates = self.engine.gates.lock();
        let mut state = self.state.lock();
        state.forget_old_aftermath(now);
        if !state.retired && state.is_idle() {
            state.retired = true;
            gates.remove(self.kind.name());
        }
    }

    /// Has the watchdog wait for a release's answer.
    fn see_through(self: &Arc<Self>, parting: Parting) {
        let gate = self.clone();
        self.engine.watchdog.adopt(Box::pin(async move {
            let _ = gate.finish_release(parting).await;
        }));
    }

    fn after_burial(self: &Arc<Self>, buried: Option<Parting>) {
        let Some(parting) = buried else { return };
        self.engine.watchdog.forget(&parting.lease);
        if let Some(reason) = parting.newly_lost {
            parting.lease.tell(reason);
        }
        self.see_through(parting);
        self.engine.left.notify_waiters();
    }

    /// Notices a lost hold at once, so that others get in.
    pub(crate) fn notice_loss(self: &Arc<Self>) {
        let now = self.engine.clock.now();
        let mut state = self.state.lock();
        let buried = state.bury(now);
        drop(state);
        self.after_burial(buried);
    }

    /// Who holds it here.
    pub(crate) fn current_hold(&self) -> Option<Arc<Hold>> {
        match &self.state.lock().seat {
            Seat::Held(hold) => Some(hold.clone()),
            _ => None,
        }
    }

    pub(crate) fn waiters(&self) -> usize {
        self.state.lock().waiters.len()
    }

    /// Whether anybody here holds the lock, asks or waits for it, or gives it back.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.lock().is_busy()
    }

    /// Ends all waits, and what is held here as lost. The client is closed already: nobody comes to wait any more.
    pub(crate) fn shut(self: &Arc<Self>) {
        // First the waits: whatever is granted or handed on from here on finds nobody to take it.
        self.fail_waiters(|_| true, || Error::Closed);
        if let Some(hold) = self.current_hold() {
            hold.lease.lose(LossReason::Shutdown);
        }
        self.notice_loss();
        self.changed.notify_one();
    }

    /// Why a wait that ends now was in vain. What was given back here before `since` is no reason.
    pub(crate) fn why_in_vain(&self, since: Timestamp, waited: Duration) -> Error {
        let now = self.engine.clock.now();
        let state = self.state.lock();
        let lock = self.kind.name();
        let refusal = match (&state.seat, &state.trouble, &state.refusal) {
            (Seat::Held(hold), _, _) => hold.as_refusal(now),
            (_, Some(trouble), _) => {
                return self.engine.quorum.error(Some(lock), trouble.fault.clone());
            }
            (_, None, Some(seen)) => Refusal {
                remaining: seen
                    .refusal
                    .remaining
                    .map(|left| left.saturating_sub(now.since(seen.at))),
                ..seen.refusal.clone()
            },
            (_, None, None) => match state.last.as_ref().filter(|last| last.at >= since) {
                Some(last) => last.as_refusal(),
                None => return self.engine.quorum.error(Some(lock), Fault::NoAnswer(waited)),
            },
        };
        refusal.into_timeout(lock, waited)
    }

    /// A new lease, watched from here on, and its first token.
    fn lease(self: &Arc<Self>, grant: Grant, block: u64, terms: Terms) -> (Arc<Lease>, u64) {
        let engine = &self.engine;
        let lease = Arc::new(Lease::new(
            grant,
            block,
            terms,
            self.kind.clone(),
            engine.quorum.clone(),
            engine.clock.clone(),
            engine.left.clone(),
        ));
        engine.watchdog.watch(&lease, lease.first_look());
        let token = lease.take_token().expect("BUG: a block has a token at least");
        (lease, token)
    }

    /// Ends the waits that `which` says.
    fn fail_waiters(&self, which: impl Fn(&Waiter) -> bool, error: impl Fn() -> Error) {
        let mut state = self.state.lock();
        let arrivals: Vec<u64> = state
            .waiters
            .iter()
            .filter(|(_, waiter)| which(waiter))
            .map(|(arrival, _)| *arrival)
            .collect();
        let failed: Vec<Waiter> =
            arrivals.iter().filter_map(|arrival| state.waiters.remove(arrival)).collect();
        drop(state);
        for waiter in failed {
            let _ = waiter.turn.send(Err(error()));
        }
        self.engine.left.notify_waiters();
    }
}

/// Tells the gate what became of a release, whatever becomes of the future that waits for it.
struct Told<'a> {
    gate: &'a Arc<Gate>,
    number: u64,
    released: Option<Released>,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.gate.released(self.number, self.released);
    }
}
