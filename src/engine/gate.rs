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

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio_util::task::TaskTracker;

use super::lease::Lease;
use super::primitive::{Primitive, Refusal, Released};
use super::quorum::{Grant, Quorum, Release, Renewal};
use super::watchdog::Watchdog;
use crate::clock::{Clock, Timestamp};
use crate::config::{Config, LeaseTerms, SelfWait, Terms};
use crate::error::{Error, Fault, LossReason};
use crate::key::Holder;
use crate::owner::{Owner, Place};

/// What all locks of one client share.
pub(crate) struct Engine {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Clock,
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) watchdog: Watchdog,
    pub(crate) tasks: TaskTracker,
    /// By channel, which is unique per kind and name.
    gates: Mutex<HashMap<Arc<str>, Arc<Gate>>>,
    phase: AtomicU8,
    /// Wakes those who wait until nothing is held.
    pub(crate) left: Notify,
}

/// How much a client still does; in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Service {
    Open,
    /// Holders finish; nobody new waits.
    Draining,
    Closed,
}

impl Engine {
    pub(crate) fn new(
        config: Arc<Config>,
        clock: Clock,
        quorum: Arc<Quorum>,
        tasks: TaskTracker,
    ) -> Arc<Self> {
        Arc::new(Self {
            watchdog: Watchdog::start(clock.clone(), config.clone(), &tasks),
            config,
            clock,
            quorum,
            tasks,
            gates: Mutex::default(),
            phase: AtomicU8::new(Service::Open as u8),
            left: Notify::new(),
        })
    }

    /// Which client this is, among those of the process.
    pub(crate) fn key(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self) as usize
    }

    pub(crate) fn service_ends(&self, phase: Service) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
    }

    pub(crate) fn check_service(&self, most: Service) -> Result<(), Error> {
        if self.phase.load(Ordering::Acquire) > most as u8 || self.clock.is_stopped() {
            return Err(Error::Closed);
        }
        Ok(())
    }

    pub(crate) fn gates(&self) -> Vec<Arc<Gate>> {
        self.gates.lock().values().cloned().collect()
    }

    fn gate(self: &Arc<Self>, primitive: &Arc<dyn Primitive>) -> Arc<Gate> {
        let mut gates = self.gates.lock();
        if let Some(gate) = gates.get(primitive.channel()) {
            return gate.clone();
        }
        let gate = Arc::new(Gate {
            engine: self.clone(),
            primitive: primitive.clone(),
            state: Mutex::default(),
            changed: Notify::new(),
            settled: Notify::new(),
        });
        gates.insert(primitive.channel().clone(), gate.clone());
        gate
    }

    /// The gate of a lock if somebody uses it.
    pub(crate) fn existing_gate(&self, primitive: &dyn Primitive) -> Option<Arc<Gate>> {
        self.gates.lock().get(primitive.channel()).cloned()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.quorum.node().close();
    }
}

/// One lock in one process.
pub(crate) struct Gate {
    pub(crate) engine: Arc<Engine>,
    pub(crate) primitive: Arc<dyn Primitive>,
    state: Mutex<State>,
    /// Wakes the driver: there may be something else to do.
    pub(crate) changed: Notify,
    /// Wakes those who wait for somebody else's ask to end.
    pub(crate) settled: Notify,
}

#[derive(Default)]
struct State {
    seat: Seat,
    /// Lost holds with guards still around.
    dead: Vec<Arc<Hold>>,
    /// By arrival.
    waiters: BTreeMap<u64, Waiter>,
    arrivals: u64,
    /// How many asks have begun, and the number of the last that was refused.
    asks: u64,
    refused_ask: u64,
    /// The driver task runs.
    driven: bool,
    /// The driver hears messages, our own included.
    listening: bool,
    /// Messages of our own that the driver will hear.
    echoes: u32,
    aftermath: Aftermath,
    refusal: Option<SeenRefusal>,
    /// Since when the servers have not answered, and how.
    trouble: Option<(Timestamp, Fault)>,
    /// Tokens that the last lease used.
    tokens_used: u64,
    /// Taken out of the client's list: it is not to be used any more.
    retired: bool,
}

#[derive(Default)]
enum Seat {
    #[default]
    Free,
    Asking,
    Held(Arc<Hold>),
}

/// What the last release of this client left.
#[derive(Clone, Copy, Default)]
enum Aftermath {
    #[default]
    Nothing,
    /// Its answer is not there yet. `heard`: the driver listened when it was sent.
    Pending { number: u64, heard: bool },
    /// Others heard of it and come before us, if we ask before `until`.
    Others { others: u32, until: Timestamp },
}

struct SeenRefusal {
    refusal: Refusal,
    at: Timestamp,
}

struct Waiter {
    owner: Owner,
    terms: Terms,
    place: Place,
    joined_at: Timestamp,
    /// It waits until it gets the lock, or until the servers have been away for too long.
    for_ever: bool,
    turn: Turn,
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

/// A lease in use by an owner.
pub(crate) struct Hold {
    pub(crate) gate: Arc<Gate>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) owner: Owner,
    pub(crate) token: u64,
    pub(crate) since: Timestamp,
    place: Place,
    /// How many guards there are. Changed under the gate's mutex.
    depth: AtomicU32,
    /// It ended with its last guard. A loss after that is not its own.
    over: AtomicBool,
}

impl Hold {
    pub(crate) fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn enter(self: &Arc<Self>) -> (Entry, Option<Renewal>) {
        let depth = self.depth.fetch_add(1, Ordering::Relaxed) + 1;
        (Entry::new(self), self.lease.set_count(depth))
    }
}

/// One level of a hold. Dropping it leaves that level.
pub(crate) struct Entry {
    /// `None` once it was left.
    hold: Option<Arc<Hold>>,
}

impl Entry {
    fn new(hold: &Arc<Hold>) -> Self {
        Self { hold: Some(hold.clone()) }
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        self.hold.as_ref().expect("BUG: an entry that was left is gone")
    }

    /// Leaves it here and now; what remains to be waited for.
    pub(crate) fn leave(mut self) -> Departure {
        match self.hold.take() {
            Some(hold) => hold.gate.clone().leave(&hold),
            None => Departure::Nested,
        }
    }

    /// Another level of the same hold.
    pub(crate) fn again(&self) -> Result<Self, LossReason> {
        let hold = self.hold();
        hold.gate.enter_again(hold)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        let gate = hold.gate.clone();
        let departure = gate.leave(&hold);
        drop(hold);
        if let Departure::Released(release) = departure {
            gate.see_through(release);
        }
    }
}

/// What leaving came to.
pub(crate) enum Departure {
    /// The owner has other guards.
    Nested,
    /// The lease went to the next waiter.
    HandedOff,
    /// The release is on its way.
    Released(Parting),
    /// It had been lost.
    Lost(LossReason),
}

/// The release of a lease, and the number by which the gate knows it.
pub(crate) struct Parting {
    lease: Arc<Lease>,
    release: Release,
    number: u64,
}

impl Gate {
    /// Comes to the gate of a lock.
    pub(crate) fn come(
        engine: &Arc<Engine>,
        primitive: &Arc<dyn Primitive>,
        request: &Request,
    ) -> Result<(Arc<Self>, Entered), Error> {
        loop {
            let gate = engine.gate(primitive);
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
        let entered = self.enter_locked(&mut state, request, now);
        let spawns =
            matches!(entered, Ok(Entered::Wait(_))) && !std::mem::replace(&mut state.driven, true);
        let idle = entered.is_err() && state.is_idle();
        drop(state);
        self.after_burial(buried);
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
        let name = self.primitive.name();
        if let Some(hold) = state.dead.iter().find(|hold| hold.owner == request.owner) {
            let reason = hold.lease.check(now).err().unwrap_or(LossReason::NotRenewed);
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
                Seat::Free => Entered::Claim(self.claim(state)),
                Seat::Asking => Entered::Busy(state.asks),
                Seat::Held(hold) => Entered::HeldHere(hold.as_refusal(now)),
            });
        }
        state.forget_old_aftermath(now);
        let free = matches!(state.seat, Seat::Free)
            && state.waiters.is_empty()
            && matches!(state.aftermath, Aftermath::Nothing);
        if free {
            return Ok(Entered::Claim(self.claim(state)));
        }
        if let Seat::Held(hold) = &state.seat
            && hold.place == Place::here()
        {
            self.suspect_self_wait(hold)?;
        }
        state.arrivals += 1;
        let arrival = state.arrivals;
        Ok(Entered::Wait(self.queue(state, arrival, request)))
    }

    fn suspect_self_wait(&self, hold: &Hold) -> Result<(), Error> {
        let lock = self.primitive.name();
        if self.engine.config.self_wait == SelfWait::Fail {
            return Err(Error::SelfWait { lock: lock.clone() });
        }
        tracing::warn!(
            lock = &**lock,
            owner = %hold.owner,
            "this task waits for a lock that it took itself under another owner: it may wait for ever; \
             name the owner with `owned_by` or `Owner::scope` to nest"
        );
        Ok(())
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

    fn claim(self: &Arc<Self>, state: &mut State) -> Claim {
        state.seat = Seat::Asking;
        state.arrivals += 1;
        state.asks += 1;
        Claim { gate: self.clone(), arrival: state.arrivals, ask: state.asks, open: true }
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
        let _state = self.state.lock();
        hold.lease.check(self.engine.clock.now())?;
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
                self.engine.watchdog.forget(&hold.lease);
                state.tokens_used = hold.lease.tokens_used();
                state.refusal = None;
                Departure::Released(state.release(&hold.lease))
            }
            _ => {
                if depth == 0 {
                    state.dead.retain(|dead| !Arc::ptr_eq(dead, hold));
                }
                Departure::Lost(hold.lease.check(now).err().unwrap_or(LossReason::NotRenewed))
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
        let window = self.engine.config.handoff_window;
        let token = hold.lease.hand_off(now, terms, window)?;
        let (_, waiter) = state.waiters.pop_first()?;
        let heirs = self.seat_waiter(state, hold.lease.clone(), waiter, token, now);
        // The driver has nobody left to listen for.
        if state.waiters.is_empty() && state.listening {
            self.changed.notify_one();
        }
        Some(heirs)
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
                    same.push((Entry::new(&hold), waiter.turn));
                } else {
                    state.waiters.insert(arrival, waiter);
                }
            }
        }
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
        Parting { lease, release, number }: Parting,
    ) -> Result<Released, Fault> {
        let within = self.engine.config.response_timeout(lease.ttl());
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
        let Aftermath::Pending { number: latest, heard } = state.aftermath else {
            return;
        };
        if latest != number {
            return;
        }
        if heard && !released.is_some_and(|released| released.held) {
            state.echoes = state.echoes.saturating_sub(1);
        }
        let others = released.map_or(0, |released| released.receivers.saturating_sub(heard.into()));
        state.aftermath = if others == 0 || window.is_zero() {
            Aftermath::Nothing
        } else {
            Aftermath::Others { others, until: now.plus(window) }
        };
        let idle = state.is_idle();
        drop(state);
        self.changed.notify_one();
        if idle {
            self.retire_if_idle();
        } else if others > 0 {
            let gate = self.clone();
            self.engine.watchdog.adopt(Box::pin(async move {
                gate.engine.clock.sleep(window).await;
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
            gates.remove(self.primitive.channel());
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

    /// Ends what is held here as lost, and all waits.
    pub(crate) fn shut(self: &Arc<Self>) {
        if let Some(hold) = self.current_hold() {
            hold.lease.lose(LossReason::Shutdown);
        }
        self.notice_loss();
        self.fail_waiters(|_| true, || Error::Closed);
        self.changed.notify_one();
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
    }

    /// Why a wait that ends now was in vain.
    fn why_in_vain(&self, waited: Duration) -> Error {
        let now = self.engine.clock.now();
        let state = self.state.lock();
        let lock = self.primitive.name();
        let refusal = match (&state.seat, &state.trouble, &state.refusal) {
            (Seat::Held(hold), _, _) => hold.as_refusal(now),
            (_, Some((_, fault)), _) => return self.engine.quorum.error(lock, fault.clone()),
            (_, None, Some(seen)) => Refusal {
                remaining: seen
                    .refusal
                    .remaining
                    .map(|left| left.saturating_sub(now.since(seen.at))),
                ..seen.refusal.clone()
            },
            (_, None, None) => return self.engine.quorum.error(lock, Fault::NoAnswer(waited)),
        };
        refusal.into_timeout(lock, waited)
    }

    // What follows is the driver's side; the driver is in contend.rs.

    fn spawn_driver(self: &Arc<Self>) {
        let driver = super::contend::drive(self.clone());
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

    fn step_locked(
        self: &Arc<Self>,
        state: &mut State,
        now: Timestamp,
        unlisten: impl FnOnce(),
    ) -> Step {
        if state.waiters.is_empty() {
            unlisten();
            state.listening = false;
            state.echoes = 0;
            // It stays while somebody here holds the lock: the next waiter is likely soon.
            if !matches!(state.seat, Seat::Held(_)) {
                state.driven = false;
                return Step::End;
            }
        }
        state.forget_old_aftermath(now);
        match (&state.seat, state.aftermath) {
            (Seat::Held(hold), _) => Step::Rest(Some(hold.lease.clone())),
            (Seat::Free, Aftermath::Pending { .. }) => Step::Rest(None),
            (Seat::Asking, _) => Step::Stand,
            (Seat::Free, Aftermath::Others { others, .. }) => {
                state.aftermath = Aftermath::Nothing;
                Step::Join(others)
            }
            (Seat::Free, Aftermath::Nothing) => {
                Step::Turn { refusal: state.refusal.as_ref().map(|seen| seen.refusal.clone()) }
            }
        }
    }

    /// Takes the claim for the first waiter, if it is to be had.
    pub(crate) fn claim_for_waiters(self: &Arc<Self>) -> Option<(Claim, Terms, u64)> {
        let mut state = self.state.lock();
        let terms = state.waiters.first_key_value()?.1.terms;
        if !matches!(state.seat, Seat::Free) {
            return None;
        }
        let block = state.block(terms, self.engine.config.handoff_window);
        Some((self.claim(&mut state), terms, block))
    }

    /// The driver hears messages from now on, or does not any more.
    pub(crate) fn set_listening(&self, listening: bool) {
        let mut state = self.state.lock();
        state.listening = listening;
        state.echoes = 0;
    }

    /// How many of `messages` are not our own.
    pub(crate) fn without_echoes(&self, messages: u32) -> u32 {
        let mut state = self.state.lock();
        let echoes = state.echoes.min(messages);
        state.echoes -= echoes;
        messages - echoes
    }

    /// Ends the waits without a limit that have lasted through `unavailable_after` without an answer.
    pub(crate) fn fail_unanswered(&self) {
        let now = self.engine.clock.now();
        let Some((since, fault)) = self.state.lock().trouble.clone() else {
            return;
        };
        let patience = self.engine.config.unavailable_after;
        self.fail_waiters(
            |waiter| waiter.for_ever && now.since(since.max(waiter.joined_at)) >= patience,
            || self.engine.quorum.error(self.primitive.name(), fault.clone()),
        );
    }

    /// Ends all waits with what waiting cannot mend.
    pub(crate) fn fail_all(&self, fault: &Fault) {
        self.fail_waiters(
            |_| true,
            || self.engine.quorum.error(self.primitive.name(), fault.clone()),
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

impl State {
    /// Moves a lost hold out of the way, and sends its release.
    fn bury(&mut self, now: Timestamp) -> Option<Parting> {
        let Seat::Held(hold) = &self.seat else {
            return None;
        };
        hold.lease.check(now).err()?;
        let hold = hold.clone();
        self.tokens_used = 0;
        if hold.depth() > 0 {
            self.dead.push(hold.clone());
        }
        Some(self.release(&hold.lease))
    }

    /// Sends the release of a lease, and frees the seat behind it.
    fn release(&mut self, lease: &Arc<Lease>) -> Parting {
        let release = lease.release();
        self.arrivals += 1;
        self.aftermath = Aftermath::Pending { number: self.arrivals, heard: self.listening };
        self.echoes += u32::from(self.listening);
        self.seat = Seat::Free;
        Parting { lease: lease.clone(), release, number: self.arrivals }
    }

    fn forget_old_aftermath(&mut self, now: Timestamp) {
        if matches!(self.aftermath, Aftermath::Others { until, .. } if until <= now) {
            self.aftermath = Aftermath::Nothing;
        }
    }

    fn is_idle(&self) -> bool {
        matches!(self.seat, Seat::Free)
            && matches!(self.aftermath, Aftermath::Nothing)
            && self.dead.is_empty()
            && self.waiters.is_empty()
            && !self.driven
    }

    /// How many tokens an acquire for the first waiter takes: as many as the hand-offs it may serve.
    fn block(&self, terms: Terms, window: Duration) -> u64 {
        let others = self.waiters.len() as u64 - 1;
        if others == 0 || matches!(terms.lease, LeaseTerms::Fixed(_)) {
            return 1;
        }
        let most = (window.as_micros() as u64).max(1);
        (1 + others).max(2 * self.tokens_used).min(most)
    }
}

impl Hold {
    fn as_refusal(&self, now: Timestamp) -> Refusal {
        Refusal {
            holder: Holder::new(self.lease.id.0.clone()),
            remaining: Some(self.lease.remaining(now)),
            subscribers: 0,
        }
    }
}

impl Refusal {
    pub(crate) fn into_timeout(self, lock: &Arc<str>, waited: Duration) -> Error {
        Error::Timeout {
            lock: lock.clone(),
            holder: self.holder,
            remaining: self.remaining,
            waited,
        }
    }
}

/// Those who get the lock now: to be told outside the gate's mutex.
struct Heirs {
    first: Option<(Entry, Turn)>,
    rest: Vec<(Entry, Turn)>,
}

type Turn = oneshot::Sender<Result<Entry, Error>>;

impl Heirs {
    /// An entry that its waiter does not take any more is dropped here, and so goes to the next one.
    fn wake(self) {
        for (entry, turn) in self.first.into_iter().chain(self.rest) {
            let _ = turn.send(Ok(entry));
        }
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

/// A place in the gate's queue. Dropping it gives the place up.
pub(crate) struct Waiting {
    gate: Arc<Gate>,
    arrival: u64,
    granted: oneshot::Receiver<Result<Entry, Error>>,
}

impl Waiting {
    /// The lock, or why not by `until`.
    pub(crate) async fn turn(mut self, request: &Request) -> Result<Entry, Error> {
        let clock = self.gate.engine.clock.clone();
        let until = match request.until {
            Until::At(at) => at,
            Until::Once | Until::Ever => Timestamp::NEVER,
        };
        match clock.until(until, &mut self.granted).await {
            Some(turn) => turn.unwrap_or(Err(Error::Closed)),
            None => {
                self.give_up();
                // A grant may have come at the last moment.
                let waited = clock.now().since(request.began_at);
                self.granted.try_recv().unwrap_or_else(|_| Err(self.gate.why_in_vain(waited)))
            }
        }
    }

    fn give_up(&self) {
        let mut state = self.gate.state.lock();
        let left = state.waiters.remove(&self.arrival).is_some() && state.waiters.is_empty();
        drop(state);
        if left {
            self.gate.changed.notify_one();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The right to ask the servers. Dropping it gives the right back.
pub(crate) struct Claim {
    gate: Arc<Gate>,
    arrival: u64,
    ask: u64,
    open: bool,
}

impl Claim {
    /// The lock is ours: for the one who asked.
    pub(crate) fn granted(mut self, grant: Grant, request: &Request) -> Entry {
        let gate = self.gate.clone();
        let now = gate.engine.clock.now();
        let (lease, token) = gate.lease(grant, 1, request.terms);
        let hold = gate.hold(lease, request.owner.clone(), Place::here(), token, now);
        let entry = Entry::new(&hold);
        let mut state = gate.state.lock();
        self.open = false;
        state.answered();
        let rest = gate.seat(&mut state, hold);
        drop(state);
        Heirs { first: None, rest }.wake();
        gate.settled.notify_waiters();
        entry
    }

    /// The lock is ours: for the first who waits and can use it. Whether somebody could.
    pub(crate) fn granted_to_waiters(mut self, grant: Grant, block: u64, terms: Terms) -> bool {
        let gate = self.gate.clone();
        let now = gate.engine.clock.now();
        let (lease, token) = gate.lease(grant, block, terms);
        let mut state = gate.state.lock();
        self.open = false;
        state.answered();
        let fits = state
            .waiters
            .first_key_value()
            .is_some_and(|(_, waiter)| waiter.terms.lease == terms.lease);
        let waiter = if fits { state.waiters.pop_first() } else { None };
        if let Some((_, waiter)) = waiter {
            lease.limit(waiter.terms.max_hold);
            let heirs = gate.seat_waiter(&mut state, lease, waiter, token, now);
            drop(state);
            heirs.wake();
            gate.settled.notify_waiters();
            return true;
        }
        let parting = state.release(&lease);
        drop(state);
        gate.after_burial(Some(parting));
        gate.settled.notify_waiters();
        false
    }

    /// Another holds it.
    pub(crate) fn refused(mut self, refusal: Refusal) {
        let gate = self.gate.clone();
        let mut state = gate.state.lock();
        self.open = false;
        state.answered();
        state.refused_ask = self.ask;
        state.refusal = Some(SeenRefusal { refusal, at: gate.engine.clock.now() });
        self.give_back(state);
    }

    /// The servers gave no usable answer.
    pub(crate) fn failed(mut self, fault: &Fault) {
        let gate = self.gate.clone();
        let mut state = gate.state.lock();
        self.open = false;
        let now = gate.engine.clock.now();
        let since = state.trouble.as_ref().map_or(now, |(since, _)| *since);
        state.trouble = Some((since, fault.clone()));
        self.give_back(state);
    }

    /// Goes to the queue, to the place of its arrival. What it learnt has been told before.
    pub(crate) fn queue(&self, request: &Request) -> Waiting {
        let mut state = self.gate.state.lock();
        let waiting = self.gate.queue(&mut state, self.arrival, request);
        let spawns = !std::mem::replace(&mut state.driven, true);
        drop(state);
        if spawns {
            self.gate.spawn_driver();
        }
        waiting
    }

    fn give_back(&self, mut state: parking_lot::MutexGuard<'_, State>) {
        state.seat = Seat::Free;
        let idle = state.is_idle();
        drop(state);
        self.gate.changed.notify_one();
        self.gate.settled.notify_waiters();
        if idle {
            self.gate.retire_if_idle();
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.open {
            self.give_back(self.gate.state.lock());
        }
    }
}

impl State {
    /// The servers answered.
    fn answered(&mut self) {
        self.trouble = None;
        self.refusal = None;
    }
}

impl Gate {
    /// A new lease, watched from here on, and its first token.
    fn lease(self: &Arc<Self>, grant: Grant, block: u64, terms: Terms) -> (Arc<Lease>, u64) {
        let engine = &self.engine;
        let lease = Arc::new(Lease::new(
            grant,
            block,
            terms,
            self.primitive.clone(),
            engine.quorum.clone(),
            engine.clock.clone(),
        ));
        engine.watchdog.watch(&lease, lease.first_look());
        let token = lease.take_token().expect("BUG: a block has a token at least");
        (lease, token)
    }
}
