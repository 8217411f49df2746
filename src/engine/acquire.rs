//! Getting a lock: by asking once if nobody of this process is in the way, else by waiting for the gate's driver.

use std::sync::Arc;
use std::time::Duration;

use super::gate::{Arrived, Attempted, Claim, Engine, Entry, Gate, Request, Until, Waiting};
use super::lease::Unconfirmed;
use super::quorum::{Outcome, Renewal};
use crate::clock::{Clock, Timestamp};
use crate::config::{LeaseTerms, Terms};
use crate::error::{Error, Fault};
use crate::monitor::{self, Path};

/// What a successful acquisition says of itself.
pub(crate) struct Acquired {
    pub(crate) entry: Entry,
    /// It had to wait for another holder.
    pub(crate) contended: bool,
}

/// Takes a lock, or says by `request.until` why not.
pub(crate) async fn acquire(engine: &Arc<Engine>, request: &Request) -> Result<Acquired, Error> {
    let counted = Counted { engine, request, over: false };
    let acquired = get(engine, request).await;
    counted.ended(&acquired);
    acquired
}

async fn get(engine: &Arc<Engine>, request: &Request) -> Result<Acquired, Error> {
    let (mut contended, mut in_vain) = (false, InVain::default());
    loop {
        let (entry, had_to_wait) = match request.until {
            Until::Once => (Box::pin(attempt(engine, request)).await?, false),
            Until::At(_) | Until::Ever => wait(engine, request).await?,
        };
        if had_to_wait {
            // The servers have answered since.
            (contended, in_vain) = (true, InVain::default());
        }
        let is_kept = !request.wanted.terms.min_hold.is_zero();
        let may_be_short = entry.joined() || is_kept && entry.hold().lease.is_short();
        if !may_be_short || !request.widens {
            return Ok(Acquired { entry, contended });
        }
        // Mostly there is nothing to send, and so no future to make.
        let Some(sent) = entry.widen(request.wanted.terms, engine.clock.now()) else {
            return Ok(Acquired { entry, contended });
        };
        if let Some(entry) = Box::pin(settle(engine, request, entry, sent, &mut in_vain)).await? {
            return Ok(Acquired { entry, contended });
        }
    }
}

/// A loop that goes on after an error without a wait must let others run, and its runtime end.
async fn let_others_run(error: Error) -> Error {
    tokio::task::coop::consume_budget().await;
    error
}

/// Counts an acquisition when it ends, in whatever way. Of one that is patient, only the hold counts.
struct Counted<'a> {
    engine: &'a Engine,
    request: &'a Request,
    over: bool,
}

impl Counted<'_> {
    /// A hold says when it began, and a nested one is of interest to a monitor alone: the clock is not read here without need.
    fn ended(mut self, acquired: &Result<Acquired, Error>) {
        self.over = true;
        let (events, request) = (&self.engine.events, self.request);
        match acquired {
            Ok(Acquired { entry, contended }) => {
                let is_first = entry.hold().begin();
                if request.patient {
                    return;
                }
                if is_first {
                    let path = if *contended { Path::Contended } else { Path::Free };
                    let took = entry.hold().since.since(request.began_at);
                    events.acquired(request.name(), path, took);
                } else if events.is_monitored() {
                    events.entered_again(request.name(), waited(self.engine, request));
                }
            }
            Err(error) => self.in_vain(monitor::Outcome::of(error)),
        }
    }

    fn in_vain(&self, outcome: monitor::Outcome) {
        if self.request.patient {
            return;
        }
        let path = match outcome {
            monitor::Outcome::TimedOut | monitor::Outcome::Cancelled => Path::Contended,
            _ => Path::Free,
        };
        let took = waited(self.engine, self.request);
        self.engine.events.not_acquired(self.request.name(), outcome, path, took);
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.in_vain(monitor::Outcome::Cancelled);
        }
    }
}

/// How often, and since when, the terms of a hold were not confirmed.
#[derive(Default)]
pub(crate) struct InVain {
    times: u32,
    since: Option<Timestamp>,
}

impl InVain {
    /// Returns true if who waits until `until` tries once more after `error`, for `patience` if there is no limit.
    pub(crate) fn goes_on(
        &mut self,
        until: Until,
        error: &Error,
        patience: Duration,
        now: Timestamp,
    ) -> bool {
        let since = *self.since.get_or_insert(now);
        match until {
            // What was lost is another's: it is asked for anew.
            _ if error.is_lost() => true,
            Until::Once => false,
            Until::At(at) => error.is_retryable() && now < at,
            Until::Ever => error.is_retryable() && now.since(since) < patience,
        }
    }

    /// Waits for a while, which grows each time, but not beyond `until`.
    pub(crate) async fn pause(&mut self, clock: &Clock, until: Timestamp) {
        let pause = clock.back_off(self.times, LONGEST_PAUSE);
        self.times += 1;
        clock.sleep_until(clock.now().plus(pause).min(until)).await;
    }
}

/// Waits until what was `sent` makes the terms of a request true of the hold that it entered. Whoever shares another's lease
/// waits for the servers like one that has asked for its own: `None` means that the entry was left, and that the wait goes on.
async fn settle(
    engine: &Engine,
    request: &Request,
    entry: Entry,
    sent: Result<Renewal, Fault>,
    in_vain: &mut InVain,
) -> Result<Option<Entry>, Error> {
    let until = match request.until {
        Until::At(at) => at,
        Until::Once => last_moment(engine, request),
        Until::Ever => Timestamp::NEVER,
    };
    let is_nested = entry.hold().depth() > 1;
    let Err(error) = confirm(&entry, sent, request.wanted.terms, until).await else {
        return Ok(Some(entry));
    };
    if is_nested {
        return Err(error);
    }
    let patience = engine.config.unavailable_after;
    if !in_vain.goes_on(request.until, &error, patience, engine.clock.now()) {
        return Err(error);
    }
    drop(entry);
    in_vain.pause(&engine.clock, until).await;
    Ok(None)
}

async fn wait(engine: &Arc<Engine>, request: &Request) -> Result<(Entry, bool), Error> {
    loop {
        // Matched before the ask is awaited: what has arrived would take room in the future until then.
        let arrived = match Gate::arrive(engine, request) {
            Err(error) => return Err(Box::pin(let_others_run(error)).await),
            Ok(Arrived::Again(entry)) => return Ok((entry, false)),
            Ok(Arrived::Wait(waiting)) => Ok(waiting),
            // Boxed, as all that is rare here: the future of a hand-off stays small.
            Ok(Arrived::Claim(claim)) => Err(Box::pin(ask_or_join(claim, request))),
        };
        engine.check_order(request);
        let mut waiting = match arrived {
            Ok(waiting) => waiting,
            Err(ask) => match ask.await? {
                Asked::Granted(Some(entry)) => return Ok((entry, false)),
                Asked::Granted(None) => continue,
                Asked::Joined(waiting) => waiting,
            },
        };
        waiting.note(request)?;
        if let Some(entry) = waiting.turn(request).await? {
            return Ok((entry, true));
        }
        // What it was given is over, since nobody polled it: it begins anew.
    }
}

/// What came of the first ask of a caller that can wait.
enum Asked {
    /// `None`: the answer was looked at too late.
    Granted(Option<Entry>),
    /// It joined the waiters before the claim was given back.
    Joined(Waiting),
}

/// Asks the servers once, and joins the waiters if the lock is not to be had yet.
async fn ask_or_join(claim: Claim, request: &Request) -> Result<Asked, Error> {
    let gate = claim.gate().clone();
    let engine = &gate.engine;
    let until = match request.until {
        Until::At(at) => at,
        Until::Once | Until::Ever => Timestamp::NEVER,
    };
    // Its time ends this ask at the latest; then what was asked for is released.
    let mut attempt = claim.first_attempt();
    let outcome = claim.ask(&mut attempt, until).await;
    let join = |attempt, refusal| match engine.clock.now() < until {
        true => claim.join(request, attempt, refusal).map(Some),
        false => Ok(None),
    };
    match outcome {
        Ok(Outcome::Granted(grant)) => claim.granted_in_service(grant, request).map(Asked::Granted),
        Ok(Outcome::Refused(refusal, _)) => {
            gate.quorum.open_mailbox();
            let joined = join(attempt, Some(&refusal))?;
            claim.refused(refusal.clone());
            let side = &*request.wanted.side;
            let in_vain = || refusal.into_timeout(side, waited(engine, request));
            joined.map(Asked::Joined).ok_or_else(in_vain)
        }
        Err(fault) if fault.may_pass() => {
            let joined = join(attempt, None)?;
            claim.failed(&fault, last_moment(engine, request) <= engine.clock.now());
            joined.map(Asked::Joined).ok_or_else(|| gate.error(fault))
        }
        Err(fault) => Err(gate.error(fault)),
    }
}

/// Makes one attempt: asks once, or takes the result of an ask of this process that begins from now on.
async fn attempt(engine: &Arc<Engine>, request: &Request) -> Result<Entry, Error> {
    // A held lock of this process is refused without a wait: a loop of attempts must let others run.
    tokio::task::coop::consume_budget().await;
    let mut met: Option<(Arc<Gate>, u64)> = None;
    loop {
        let (gate, ask, again) = match Gate::try_enter(engine, request, met.as_ref())? {
            Attempted::Again(entry) => return Ok(entry),
            Attempted::Claim(claim) => match ask_once(claim, request).await? {
                Some(entry) => return Ok(entry),
                None => continue,
            },
            Attempted::HeldHere(refusal) => {
                return Err(refusal.into_timeout(&*request.wanted.side, waited(engine, request)));
            }
            Attempted::Busy { gate, ask, again } => (gate, ask, again),
        };
        let (first, seen) = met.get_or_insert_with(|| (gate.clone(), ask));
        // Every ask of a gate that was made since then has begun since then.
        let seen = if Arc::ptr_eq(first, &gate) { *seen } else { 0 };
        let mut asked = std::pin::pin!(gate.asked.notified());
        asked.as_mut().enable();
        if gate.in_vain_since(seen, request).is_none() && gate.is_contended() {
            let last = last_moment(engine, request);
            let heard = engine.clock.until(last.min(again), asked).await;
            if heard.is_none() && last <= engine.clock.now() {
                return Err(gate.why_in_vain(request.began_at, request));
            }
        }
        // The gate may be retired by now, and another one would not know.
        if let Some(error) = gate.in_vain_since(seen, request) {
            return Err(error);
        }
    }
}

async fn ask_once(claim: Claim, request: &Request) -> Result<Option<Entry>, Error> {
    let gate = claim.gate().clone();
    let until = last_moment(&gate.engine, request);
    let mut attempt = claim.attempt();
    match claim.ask(&mut attempt, until).await {
        Ok(Outcome::Granted(grant)) => claim.granted_in_service(grant, request),
        Ok(Outcome::Refused(refusal, _)) => {
            // What it may have got is given back before anybody else of this process asks.
            drop(attempt);
            claim.refused(refusal.clone());
            Err(refusal.into_timeout(&*request.wanted.side, waited(&gate.engine, request)))
        }
        Err(fault) => {
            drop(attempt);
            if fault.may_pass() {
                claim.failed(&fault, until <= gate.engine.clock.now());
            }
            // Another one of this process, from which it took over, may have it by now.
            let side = &*request.wanted.side;
            match gate.current_hold().filter(|hold| !hold.lease.kind.is_shared_with(side)) {
                Some(hold) if fault.is_silence() => {
                    let refusal = hold.as_refusal(gate.engine.clock.now());
                    Err(refusal.into_timeout(side, waited(&gate.engine, request)))
                }
                _ => Err(gate.error(fault)),
            }
        }
    }
}

/// Returns the end of one attempt: it has the time of one answer, whoever of this process asks.
fn last_moment(engine: &Engine, request: &Request) -> Timestamp {
    request.began_at.plus(engine.config.response_timeout(request.wanted.terms.ttl()))
}

fn waited(engine: &Engine, request: &Request) -> Duration {
    engine.clock.now().since(request.began_at)
}

/// Makes a nested acquisition's terms true of the hold that it entered, and waits for that until `until`.
pub(crate) async fn widen(entry: &Entry, terms: Terms, until: Timestamp) -> Result<(), Error> {
    let hold = entry.hold();
    let engine = &hold.gate.engine;
    match entry.widen(terms, engine.clock.now()) {
        Some(sent) => confirm(entry, sent, terms, until).await,
        None => Ok(()),
    }
}

/// Sends what lengthens the hold to `lease` from now on, and waits until it is confirmed.
pub(crate) async fn extend(entry: &Entry, lease: Duration) -> Result<(), Error> {
    let hold = entry.hold();
    let terms = Terms::of(LeaseTerms::Fixed(lease));
    confirm(entry, hold.lease.lengthen(lease), terms, Timestamp::NEVER).await
}

async fn confirm(
    entry: &Entry,
    sent: Result<Renewal, Fault>,
    terms: Terms,
    until: Timestamp,
) -> Result<(), Error> {
    let hold = entry.hold();
    let (engine, quorum) = (&hold.gate.engine, &hold.gate.quorum);
    let lease = &hold.lease;
    let lock = lease.kind.name();
    let lost = |reason| Error::lost(lock, reason);
    lease.check(engine.clock.now()).map_err(lost)?;
    let sent = sent.map_err(|fault| quorum.error(Some(lock), fault))?;
    match lease.confirmed(sent, terms, until).await {
        Ok(_) => {
            engine.watchdog.watch(lease);
            Ok(())
        }
        Err(Unconfirmed::Lost(reason)) => Err(lost(reason)),
        Err(Unconfirmed::Unknown(fault)) => Err(quorum.error(Some(lock), fault)),
    }
}

const LONGEST_PAUSE: Duration = Duration::from_millis(500);
