//! What a semaphore's handle does. The public handle adds names and documentation.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::asking::{ask_one, check_name};
use super::handle::unless_too_late;
use super::permit::Permit;
use super::permits::Permits;
use super::pool::{MOST_AT_ONCE, Pool, Resize};
use super::semaphore_status::{PermitHolder, SemaphoreStatus};
use super::subject::{Answer, Look, Sort, Subject};
use crate::clock::Timestamp;
use crate::config::{LeaseTerms, Terms};
use crate::engine::acquire::{self, Acquired};
use crate::engine::gate::{Engine, Request, Until};
use crate::engine::kind::{Kind, Wanted};
use crate::error::{Error, LossReason};
use crate::events;
use crate::guard::Guard;
use crate::key::LockKind;
use crate::node::Source;
use crate::owner::Owner;
use crate::script::{Call, Reply};

/// A semaphore, and the terms on which its permits are taken.
#[derive(Clone)]
pub(super) struct PermitHandle {
    engine: Arc<Engine>,
    pool: Pool,
    terms: Terms,
    /// How long an acquisition waits that names no time itself.
    wait: Duration,
}

impl PermitHandle {
    pub(super) fn new(engine: &Arc<Engine>, name: Arc<str>) -> Self {
        let pool = Pool::new(name, engine.fleet.is_sharded());
        // Each acquisition has a place of its own in the server's queue.
        let terms = Terms { fair: true, ..Terms::of(LeaseTerms::Watched(engine.config.ttl)) };
        Self { engine: engine.clone(), pool, terms, wait: Duration::MAX }
    }

    pub(super) fn name(&self) -> &str {
        &self.pool.name
    }

    pub(super) fn with_permits(&self, permits: u32) -> Self {
        let mut handle = self.clone();
        handle.pool.initial = Some(permits);
        handle
    }

    pub(super) fn on_terms(&self, change: impl FnOnce(&mut Terms)) -> Self {
        let mut handle = self.clone();
        change(&mut handle.terms);
        handle
    }

    /// Returns a handle whose acquisitions wait for at most `wait` if they name no time themselves.
    pub(super) fn waiting(&self, wait: Duration) -> Self {
        Self { wait, ..self.clone() }
    }

    pub(super) fn wait(&self) -> Duration {
        self.wait
    }

    /// Acquires `weight` permits, and waits for at most `timeout`: zero means one attempt, and [`Duration::MAX`] no limit.
    pub(super) fn acquire(
        &self,
        weight: u32,
        timeout: Duration,
        caller: &'static Location<'static>,
    ) -> impl Future<Output = Result<Permit, Error>> + Send + use<> {
        let handle = self.clone();
        async move {
            let permits = handle.permits(weight);
            let request = handle.request(&permits, weight, timeout, caller)?;
            let span = span(handle.name(), weight, caller);
            let engine = &handle.engine;
            let acquired = acquire::acquire(engine, &request).instrument(span.clone()).await;
            if !span.is_disabled() {
                record(&span, &acquired, engine.clock.now().since(request.began_at));
            }
            Ok(Permit::new(Guard::new(acquired?.entry), permits))
        }
    }

    /// Acquires permits like [`acquire`](Self::acquire), but returns `None` instead of [`Error::Timeout`].
    pub(super) fn try_acquire(
        &self,
        weight: u32,
        timeout: Duration,
        caller: &'static Location<'static>,
    ) -> impl Future<Output = Result<Option<Permit>, Error>> + Send + use<> {
        unless_too_late(self.acquire(weight, timeout, caller))
    }

    /// Changes how many permits there are. It is sent once: without an answer it may have been done or not.
    pub(super) async fn resize(&self, what: &str, resize: Resize) -> Result<(), Error> {
        let (Resize::To(permits) | Resize::By(permits)) = resize;
        check_permits(what, permits).map_err(Error::of_argument)?;
        let done = |reply: &Reply| reply.list().map(|counts| !counts.is_empty());
        if self.ask(self.pool.resize(resize), done).await? {
            return Ok(());
        }
        Err(Error::argument(format!(
            "{what} is {permits}; the semaphore would have more than {MOST_PERMITS} permits"
        )))
    }

    pub(super) async fn status(&self) -> Result<SemaphoreStatus, Error> {
        self.ask(self.pool.status(), |reply| self.pool.read_status(reply)).await
    }

    /// Waits until nobody has a permit, for at most `timeout`. Zero means one look, and [`Duration::MAX`] no limit.
    pub(super) async fn returned(
        &self,
        timeout: Duration,
        caller: &'static Location<'static>,
    ) -> Result<(), Error> {
        let Pool { name, channel, .. } = &self.pool;
        let subject = Subject::new(&self.engine, name.clone(), channel.clone(), SEMAPHORE);
        // The server of the last look, and who had permits there. Of very many, those that are listed.
        let mut seen: Option<(Source, HashSet<Arc<str>>)> = None;
        // Who had permits on a server before this one, and has not been seen here. They may be at work still, for as long as they
        // may put them back.
        let mut missing = HashSet::new();
        let mut until = Timestamp::default();
        let grace = self.engine.config.quarantine();
        // For how long the server is in a grace.
        let bar = || match self.engine.quorum_of(name).check_electorate() {
            Err(fault) if !grace.is_zero() => fault.quarantine().unwrap_or(SOON),
            _ => Duration::ZERO,
        };
        let mut barred_for = bar();
        let look = |answer: Answer| {
            let status = self.pool.read_status(&answer.reply);
            let status = status.ok_or_else(|| subject.unexpected(&answer.reply))?;
            let holders = status.holders.iter().map(|holder| holder.holder.text().clone());
            let holders: HashSet<_> = holders.collect();
            if let Some((_, before)) = seen.take_if(|(source, _)| *source != answer.source) {
                missing.extend(before);
                until = self.engine.clock.now().plus(grace);
            }
            missing.retain(|holder| !holders.contains(holder));
            seen = Some((answer.source, holders));
            let missing_for = match missing.is_empty() {
                true => Duration::ZERO,
                false => until.since(self.engine.clock.now()),
            };
            // Others may put theirs back still, of whom this call never heard; also behind an answer from before its end.
            let before = std::mem::replace(&mut barred_for, bar());
            let left = missing_for.max(match barred_for.is_zero() {
                true => before.min(SOON),
                false => barred_for,
            });
            match status.held {
                0 if !left.is_zero() => Ok(Look::Wait(
                    Some(left),
                    "permits may be in use that a new server has lost".into(),
                )),
                0 if grace.is_zero() && !missing.is_empty() => {
                    Err(Error::lost(name, LossReason::Failover))
                }
                0 => Ok(Look::Over(())),
                held => {
                    let ends = status.holders.iter().filter_map(|holder| holder.remaining).min();
                    let are =
                        if held == 1 { "1 permit is" } else { &format!("{held} permits are") };
                    Ok(Look::Wait(ends, format!("{are} held")))
                }
            }
        };
        self.check()?;
        subject.wait(timeout, caller, self.pool.status(), look).await
    }

    /// Takes a holder's permits back. Returns true if it had them all until then.
    pub(super) async fn force_release(&self, holder: &PermitHolder) -> Result<bool, Error> {
        let kind = self.permits(1);
        let call = self.pool.force_release(holder);
        let freed = self.ask(call, |reply| kind.read_release(reply)).await?.held;
        // Whether or not it had all of them until then, it has none of this semaphore now. Those of another are still its own.
        for gate in self.engine.gates_of(&*kind) {
            let hold = gate.current_hold();
            if let Some(hold) = hold.filter(|hold| *hold.lease.id().0 == **holder.holder.text()) {
                hold.lease.lose(LossReason::Gone);
                gate.notice_loss();
            }
        }
        events::force_unlocked(&self.pool.name, Some(&holder.holder), freed);
        Ok(freed)
    }

    fn permits(&self, weight: u32) -> Arc<Permits> {
        Arc::new(Permits::new(self.pool.clone(), weight, self.terms.lease))
    }

    fn request(
        &self,
        permits: &Arc<Permits>,
        weight: u32,
        timeout: Duration,
        caller: &'static Location<'static>,
    ) -> Result<Request, Error> {
        self.check()?;
        self.engine.config.check_terms(&self.terms)?;
        let most = self.pool.initial.unwrap_or(MOST_AT_ONCE).clamp(1, MOST_AT_ONCE);
        if !(1..=most).contains(&weight) {
            return Err(Error::argument(format!(
                "{weight} permits are asked for at once; it must be from 1 to {most}"
            )));
        }
        let began_at = self.engine.clock.now();
        let until = Until::within(timeout, began_at);
        let wanted = Wanted { side: permits.clone(), terms: self.terms };
        let owner = Owner::single();
        Ok(Request::new(owner, wanted, until, began_at, caller))
    }

    /// Checks what every call needs.
    fn check(&self) -> Result<(), Error> {
        check_name(&self.engine, &self.pool.name)?;
        if let Some(permits) = self.pool.initial {
            check_permits("with_permits", permits)?;
        }
        if self.engine.config.deployment.is_quorum() {
            let Sort { kind, why_one_server: why } = SEMAPHORE;
            return Err(Error::SingleServerOnly { kind, why: why.into() });
        }
        Ok(())
    }

    async fn ask<T>(&self, call: Call, read: impl Fn(&Reply) -> Option<T>) -> Result<T, Error> {
        self.check()?;
        ask_one(&self.engine, &self.pool.name, call, read).await
    }
}

/// For what is about to change.
const SOON: Duration = Duration::from_millis(100);

const SEMAPHORE: Sort = Sort {
    kind: LockKind::Semaphore,
    why_one_server: "three clients could each get two of three servers for two permits",
};

impl fmt::Debug for PermitHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name())
            .field("permits", &self.pool.initial)
            .field("terms", &self.terms)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

fn check_permits(what: &str, permits: u32) -> Result<(), Error> {
    if permits > MOST_PERMITS {
        return Err(Error::config(format!(
            "{what} is {permits}; it must be at most {MOST_PERMITS}"
        )));
    }
    Ok(())
}

/// The span of an acquisition. [`record`] completes it.
fn span(semaphore: &str, weight: u32, caller: &Location<'_>) -> Span {
    tracing::debug_span!(
        target: events::LOCK,
        "permits",
        semaphore,
        weight,
        at = %caller,
        wait_us = Empty,
        contended = Empty,
        outcome = Empty,
    )
}

fn record(span: &Span, acquired: &Result<Acquired, Error>, waited: Duration) {
    span.record("wait_us", waited.as_micros() as u64);
    match acquired {
        Ok(acquired) => {
            span.record("contended", acquired.contended);
            span.record("outcome", "held");
        }
        Err(error) => {
            span.record("contended", error.is_timeout());
            span.record("outcome", tracing::field::display(error));
        }
    }
}

/// Redisson counts them in 32 bits with a sign.
const MOST_PERMITS: u32 = i32::MAX as u32;
