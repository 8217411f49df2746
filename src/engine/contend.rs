//! Getting a lock: by asking once where nobody of this process is in the way, else through the gate's queue.
//!
//! The queue has one driver. It subscribes, asks again, then waits for a message, the holder's end, a
//! reset of the connection or a random moment some seconds off, whichever is first: messages make it fast,
//! the timers make it certain (invariant 8). So the servers see one contender per client, however many wait.
//! Whom a message wakes is for `line.rs` to say on one server, and for `ballot.rs` over several.

use std::sync::Arc;
use std::time::Duration;

use super::ballot::{self, Ballot, Count};
use super::gate::{Claim, Engine, Entered, Entry, Gate, Request, Service, Step, Until};
use super::kind::{Kind, Refusal};
use super::lease::Lease;
use super::line::Line;
use super::quorum::{Ears, Outcome};
use crate::clock::Timestamp;
use crate::config::{LeaseTerms, Terms};
use crate::error::{Error, Fault, LossReason};
use crate::key::LeaseId;
use crate::node::Signal;

/// What a successful acquisition says of itself.
pub(crate) struct Acquired {
    pub(crate) entry: Entry,
    /// It had to wait for another holder.
    pub(crate) contended: bool,
}

/// Takes a lock, or says by `request.until` why not.
pub(crate) async fn acquire(
    engine: &Arc<Engine>,
    kind: &Arc<dyn Kind>,
    request: Request,
) -> Result<Acquired, Error> {
    let (entry, contended) = match request.until {
        Until::Once => (Box::pin(attempt(engine, kind, &request)).await?, false),
        Until::At(_) | Until::Ever => wait(engine, kind, &request).await?,
    };
    if entry.joined() {
        Box::pin(widen(&entry, request.terms)).await?;
    }
    Ok(Acquired { entry, contended })
}

async fn wait(
    engine: &Arc<Engine>,
    kind: &Arc<dyn Kind>,
    request: &Request,
) -> Result<(Entry, bool), Error> {
    let (_, entered) = Gate::come(engine, kind, request)?;
    let waiting = match entered {
        Entered::Again(entry) => return Ok((entry, false)),
        Entered::Wait(waiting) => waiting,
        // Boxed, as all that is rare here: the future of a hand-off stays small.
        Entered::Claim(claim) => match Box::pin(ask_once(engine, kind, request, claim)).await? {
            Asked::Granted(entry) => return Ok((entry, false)),
            Asked::Refused { queued: Some(waiting), .. }
            | Asked::Failed { queued: Some(waiting), .. } => waiting,
            Asked::Refused { queued: None, refusal } => {
                return Err(refusal.into_timeout(kind.name(), waited(engine, request)));
            }
            Asked::Failed { queued: None, fault } => {
                return Err(engine.quorum.error(Some(kind.name()), fault));
            }
        },
        Entered::HeldHere(_) | Entered::Busy(_) => return Err(Error::Closed),
    };
    Ok((waiting.turn(request).await?, true))
}

/// One attempt: asks once, or lets an ask that begins from now on speak for it.
async fn attempt(
    engine: &Arc<Engine>,
    kind: &Arc<dyn Kind>,
    request: &Request,
) -> Result<Entry, Error> {
    // A held lock of this process is refused without a wait: a loop of attempts must let others run.
    tokio::task::coop::consume_budget().await;
    let mut met: Option<(Arc<Gate>, u64)> = None;
    loop {
        let (gate, entered) = Gate::come(engine, kind, request)?;
        match entered {
            Entered::Again(entry) => return Ok(entry),
            Entered::Claim(claim) => {
                return match ask_once(engine, kind, request, claim).await? {
                    Asked::Granted(entry) => Ok(entry),
                    Asked::Refused { refusal, .. } => {
                        Err(refusal.into_timeout(kind.name(), waited(engine, request)))
                    }
                    Asked::Failed { fault, .. } => {
                        Err(engine.quorum.error(Some(kind.name()), fault))
                    }
                };
            }
            Entered::HeldHere(refusal) => {
                return Err(refusal.into_timeout(kind.name(), waited(engine, request)));
            }
            Entered::Busy(ask) => {
                let (first, seen) = met.get_or_insert_with(|| (gate.clone(), ask));
                // Every ask of a gate that was made since then has begun since then.
                let seen = if Arc::ptr_eq(first, &gate) { *seen } else { 0 };
                let mut settled = std::pin::pin!(gate.settled.notified());
                settled.as_mut().enable();
                if let Some(refusal) = gate.refused_since(seen) {
                    return Err(refusal.into_timeout(kind.name(), waited(engine, request)));
                }
                if !gate.is_asking() {
                    continue;
                }
                if engine.clock.until(last_moment(engine, request), settled).await.is_none() {
                    return Err(gate.why_in_vain(request.began_at, waited(engine, request)));
                }
                // The gate may be retired by now, and another one would not know.
                if let Some(refusal) = gate.refused_since(seen) {
                    return Err(refusal.into_timeout(kind.name(), waited(engine, request)));
                }
            }
            Entered::Wait(_) => return Err(Error::Closed),
        }
    }
}

/// When one attempt is over: it has the time of one answer, whoever of this process asks.
fn last_moment(engine: &Engine, request: &Request) -> Timestamp {
    request.began_at.plus(engine.config.response_timeout(request.terms.ttl()))
}

fn waited(engine: &Engine, request: &Request) -> Duration {
    engine.clock.now().since(request.began_at)
}

/// What one ask came to. Who can wait on stands in the queue before the claim is given back.
enum Asked {
    Granted(Entry),
    Refused { refusal: Refusal, queued: Option<super::gate::Waiting> },
    Failed { fault: Fault, queued: Option<super::gate::Waiting> },
}

/// Asks the servers once. `Err` is what waiting cannot mend.
async fn ask_once(
    engine: &Arc<Engine>,
    kind: &Arc<dyn Kind>,
    request: &Request,
    claim: Claim,
) -> Result<Asked, Error> {
    let until = match request.until {
        Until::At(at) => at,
        Until::Once => last_moment(engine, request),
        Until::Ever => Timestamp::NEVER,
    };
    // It ends with the time at the latest: then it is released behind its back.
    let outcome = ask(engine, kind, claim.terms, claim.block, until).await;
    let waits = request.until != Until::Once && engine.clock.now() < until;
    match outcome {
        Ok(Outcome::Granted(grant)) => {
            let entry = claim.granted(grant, request);
            // Shut down meanwhile: dropping the entry releases it.
            engine.check_service(Service::Draining)?;
            Ok(Asked::Granted(entry))
        }
        Ok(Outcome::Refused(refusal, _)) => {
            let queued = waits.then(|| claim.queue(request)).transpose()?;
            claim.refused(refusal.clone());
            Ok(Asked::Refused { refusal, queued })
        }
        Err(fault) if fault.may_pass() => {
            let queued = waits.then(|| claim.queue(request)).transpose()?;
            claim.failed(&fault, last_moment(engine, request) <= engine.clock.now());
            Ok(Asked::Failed { fault, queued })
        }
        Err(fault) => Err(engine.quorum.error(Some(kind.name()), fault)),
    }
}

/// One acquire from sending to answer, begun as soon as there is a connection.
async fn ask(
    engine: &Arc<Engine>,
    kind: &Arc<dyn Kind>,
    terms: Terms,
    block: u64,
    until: Timestamp,
) -> Result<Outcome, Fault> {
    let clock = &engine.clock;
    let at = until.min(clock.now().plus(engine.config.response_timeout(terms.ttl())));
    let id = || LeaseId::new(&engine.config.name, clock.uuid(), block);
    let attempt = match engine.quorum.attempt(kind, id(), terms.ttl(), block) {
        Err(fault) if fault.may_pass() => {
            engine.quorum.up(at).await?;
            engine.quorum.attempt(kind, id(), terms.ttl(), block)?
        }
        attempt => attempt?,
    };
    attempt.outcome(at).await
}

/// Makes a nested acquisition's terms true of the hold that it entered.
pub(crate) async fn widen(entry: &Entry, terms: Terms) -> Result<(), Error> {
    let hold = entry.hold();
    let engine = &hold.gate.engine;
    let (sent, look_at) = hold.lease.widen(terms, engine.clock.now());
    if let Some(at) = look_at {
        engine.watchdog.watch(&hold.lease, at);
    }
    match sent {
        Some(sent) => confirm(entry, sent, terms).await,
        None => Ok(()),
    }
}

/// Sends what lengthens the hold to `lease` from now on, and waits until it is confirmed.
pub(crate) async fn extend(entry: &Entry, lease: Duration) -> Result<(), Error> {
    let hold = entry.hold();
    let terms = Terms::of(LeaseTerms::Fixed(lease));
    confirm(entry, hold.lease.lengthen(lease), terms).await
}

async fn confirm(
    entry: &Entry,
    sent: Result<super::quorum::Renewal, Fault>,
    terms: Terms,
) -> Result<(), Error> {
    let hold = entry.hold();
    let engine = &hold.gate.engine;
    let lease = &hold.lease;
    let lock = lease.kind.name();
    let lost = |reason| Error::lost(lock, reason);
    lease.check(engine.clock.now()).map_err(lost)?;
    let mut renewal = sent.map_err(|fault| engine.quorum.error(Some(lock), fault))?;
    // For as long as an answer about the new lease may take, and no longer than the old one lasts.
    let within = engine.quorum.patience(renewal.ttl).max(lease.patience(renewal.sent_at()));
    let within = within.min(lease.time_left(renewal.sent_at()));
    match lease.answer(&mut renewal, within).await {
        Ok(true) => {
            let at = lease.widened(&mut renewal, terms, engine.clock.now()).map_err(lost)?;
            engine.watchdog.watch(lease, at);
            Ok(())
        }
        Ok(false) => {
            lease.lose(LossReason::Gone);
            Err(lost(LossReason::Gone))
        }
        Err(fault) => {
            lease.check(engine.clock.now()).map_err(lost)?;
            Err(engine.quorum.error(Some(lock), fault))
        }
    }
}

/// The driver of a gate: asks for those who wait, until nobody does.
pub(crate) fn drive(gate: Arc<Gate>) -> impl Future<Output = ()> + Send {
    // Made here, so that it is dropped, and says so, even if the future is never polled.
    let mut driver = Driver {
        order: match gate.engine.quorum.nodes() {
            [_] => Order::Line(Line::default()),
            nodes => Order::Ballot(Ballot::new(nodes.len())),
        },
        ears: None,
        pause: None,
        delay: Duration::ZERO,
        failures: 0,
        done: false,
        gate,
    };
    async move { driver.run().await }
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
                let counts_from = self.gate.engine.quorum.nodes()[node].counts_from();
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
        let engine = self.gate.engine.clone();
        let kind = self.gate.kind.clone();
        match ask(&engine, &kind, claim.terms, claim.block, Timestamp::NEVER).await {
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
                let pause = engine.clock.back_off(self.failures, LONGEST_BACK_OFF);
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
            self.ears = Some(self.gate.engine.quorum.subscribe(kind));
        }
    }

    fn safety_pause(&self, now: Timestamp) -> Timestamp {
        now.plus(self.gate.engine.clock.jitter(SAFETY_POLL, SAFETY_POLL * 2))
    }

    fn now(&self) -> Timestamp {
        self.gate.engine.clock.now()
    }

    fn round_trip(&self) -> Duration {
        self.gate.engine.quorum.round_trip()
    }
}

/// The runtime drops its tasks: nobody will ever ask again for those who wait.
impl Drop for Driver {
    fn drop(&mut self) {
        if !self.done {
            self.gate.abandoned();
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
