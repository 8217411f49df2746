//! What the handles of all kinds of lock share. A public handle adds only names and documentation.

use std::fmt;
use std::future::Future;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::asking::{ask, check_name, unexpected};
use super::status::LockStatus;
use crate::clock::{Clock, Timestamp};
use crate::config::{Config, LeaseTerms, Terms};
use crate::engine::acquire::{self, Acquired};
use crate::engine::gate::{Engine, Gate, Request, Until};
use crate::engine::kind::{Kind, Wanted};
use crate::engine::quorum::{Answers, Quorum};
use crate::error::{Error, Fault, LossReason};
use crate::events;
use crate::guard::Guard;
use crate::key::Holder;
use crate::owner::{LockKey, Owner};
use crate::script::{Call, Reply};
use crate::text::shortened;

/// What a handle asks of the servers besides acquiring.
pub(super) trait Inspect: Kind {
    /// Asks for all that a server knows about the lock.
    fn status(&self) -> Call;

    /// Reads the reply to [`status`](Self::status). `one_server` is true if the lock is on one server only.
    fn read_status(&self, reply: &Reply, one_server: bool) -> Option<LockStatus>;

    /// Frees the lock; if `holder` is given, only if that holder still has it. The reply is 1 if the lock was freed, else 0.
    /// At most `response_timeout` passed between the server's answer that named the holder and its arrival.
    fn force_unlock(&self, holder: Option<&Holder>, response_timeout: Duration) -> Call;
}

/// A lock of any kind, the terms on which it is taken, and its owner.
#[derive(Clone)]
pub(super) struct Handle {
    engine: Arc<Engine>,
    lock: Arc<dyn Inspect>,
    terms: Terms,
    /// How long an acquisition waits that names no time itself.
    wait: Duration,
    owner: Option<Owner>,
    /// Waiting for long is what it is for.
    patient: bool,
    /// Why no acquisition is possible: the name and the terms are checked once.
    problem: Option<Arc<Error>>,
}

// A handle does not change, and what it leads to is left in order by a panic of the caller's; see `Engine`.
impl UnwindSafe for Handle {}
impl RefUnwindSafe for Handle {}

impl Handle {
    pub(super) fn new(engine: &Arc<Engine>, lock: Arc<dyn Inspect>) -> Self {
        let terms = Terms::of(LeaseTerms::Watched(engine.config.ttl));
        let (engine, wait) = (engine.clone(), Duration::MAX);
        Self { engine, lock, terms, wait, owner: None, patient: false, problem: None }.checked()
    }

    pub(super) fn name(&self) -> &Arc<str> {
        self.lock.name()
    }

    pub(super) fn terms(&self) -> Terms {
        self.terms
    }

    /// Returns a handle to the same lock on other terms.
    pub(super) fn on_terms(&self, change: impl FnOnce(&mut Terms)) -> Self {
        let mut handle = self.clone();
        change(&mut handle.terms);
        handle.checked()
    }

    fn checked(mut self) -> Self {
        let name = check_name(&self.engine, self.name());
        let terms = self.terms.outlasting_min_hold();
        let checked = name.and_then(|()| self.engine.config.check_terms(&terms));
        self.problem = checked.err().map(Arc::new);
        self
    }

    /// Returns a handle to the same lock whose acquisitions wait for at most `wait` if they name no time themselves.
    pub(super) fn waiting(&self, wait: Duration) -> Self {
        Self { wait, ..self.clone() }
    }

    /// Returns a handle to the same lock of whose long waits nobody is told.
    pub(super) fn patient(&self) -> Self {
        Self { patient: true, ..self.clone() }
    }

    pub(super) fn wait(&self) -> Duration {
        self.wait
    }

    pub(super) fn owned_by(&self, owner: &Owner) -> Self {
        Self { owner: Some(owner.clone()), ..self.clone() }
    }

    /// Takes the lock, and waits for at most `timeout`: zero means one attempt, and [`Duration::MAX`] no limit.
    pub(super) fn acquire(
        &self,
        timeout: Duration,
        caller: &'static Location<'static>,
    ) -> impl Future<Output = Result<Guard, Error>> + Send + use<> {
        let handle = self.clone();
        async move {
            let request = handle.request(timeout, caller)?;
            let guard = handle.take(&request).await?;
            // This comes last, so that an acquisition that is dropped at the last moment keeps nobody out.
            guard.keep_for(request.wanted.terms.min_hold);
            Ok(guard)
        }
    }

    /// Takes the lock as `request` says, except for its shortest hold.
    async fn take(&self, request: &Request) -> Result<Guard, Error> {
        let span = span(self.name(), &request.owner, request.caller);
        let acquired = if span.is_disabled() {
            acquire::acquire(&self.engine, request).await
        } else {
            // Boxed: where nobody listens, the future has no room for it.
            Box::pin(self.acquire_in(span, request)).await
        };
        acquired.map(|acquired| Guard::new(acquired.entry))
    }

    async fn acquire_in(&self, span: Span, request: &Request) -> Result<Acquired, Error> {
        let acquired = acquire::acquire(&self.engine, request).instrument(span.clone()).await;
        record(&span, &acquired, self.clock().now().since(request.began_at));
        acquired
    }

    /// Takes the lock like [`acquire`](Self::acquire), but returns `None` instead of [`Error::Timeout`].
    pub(super) fn try_acquire(
        &self,
        timeout: Duration,
        caller: &'static Location<'static>,
    ) -> impl Future<Output = Result<Option<Guard>, Error>> + Send + use<> {
        unless_too_late(self.acquire(timeout, caller))
    }

    /// Returns the number of the client among those of this process.
    pub(super) fn client(&self) -> usize {
        self.engine.key()
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.engine.clock
    }

    pub(super) fn config(&self) -> &Config {
        &self.engine.config
    }

    pub(super) fn ttl(&self) -> Duration {
        self.terms.ttl()
    }

    /// Returns the command that publishes on a channel in the slot of the lock.
    pub(super) fn publish(&self) -> &'static str {
        if self.engine.fleet.is_sharded() { "SPUBLISH" } else { "PUBLISH" }
    }

    /// Runs a future until the client is closed.
    pub(super) async fn until_closed<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        tokio::select! {
            biased;
            () = self.engine.closed() => Err(self.engine.ended().await),
            output = future => Ok(output),
        }
    }

    /// Fails if the lock cannot be one of several that are taken together.
    pub(super) fn check_part(&self) -> Result<(), Error> {
        match self.checked_terms()?.lease {
            LeaseTerms::Watched(_) => Ok(()),
            // It would go on ending while others are waited for.
            LeaseTerms::Fixed(_) => Err(Error::config(format!(
                "a multi lock renews its locks, and lock {:?} has a fixed lease",
                shortened(self.name())
            ))),
        }
    }

    /// Returns the owner of an acquisition that begins now: `own`, unless another one is named by the handle or around it.
    pub(super) fn owner_or(&self, own: &Owner) -> Owner {
        let owner = Owner::resolve(self.owner.as_ref(), self.key());
        if owner.is_shared() { owner } else { own.clone() }
    }

    /// Takes the lock as one of several. Its longest and shortest hold, and the terms of a hold that it joins, are left to
    /// [`settle`](Self::settle). If it `goes_on` with what began before, it does so in a drain, too.
    pub(super) async fn take_part(
        &self,
        owner: &Owner,
        until: Until,
        caller: &'static Location<'static>,
        goes_on: bool,
    ) -> Result<Guard, Error> {
        let request = self.part_request(owner, until, self.engine.clock.now(), caller);
        self.take(&Request { goes_on, ..request }).await
    }

    /// Returns why the wait since `began_at` was in vain, as far as this process knows. What was given back here before
    /// `since` is no reason.
    pub(super) fn in_vain(&self, owner: &Owner, since: Timestamp, began_at: Timestamp) -> Error {
        let request = self.part_request(owner, Until::Once, began_at, Location::caller());
        let waited = self.engine.clock.now().since(began_at);
        match self.engine.existing_gate(&*self.lock) {
            Some(gate) => gate.why_in_vain(since, &request),
            None => self.quorum().error(Some(self.name()), Fault::NoAnswer(waited)),
        }
    }

    fn part_request(
        &self,
        owner: &Owner,
        until: Until,
        began_at: Timestamp,
        caller: &'static Location<'static>,
    ) -> Request {
        let terms = self.terms.outlasting_min_hold();
        let terms = Terms { max_hold: None, min_hold: Duration::ZERO, ..terms };
        let request = Request::new(owner.clone(), self.wanted(terms), until, began_at, caller);
        Request { patient: self.patient, ..request }
    }

    /// Makes the terms true of a lock that was taken as one of several, and waits for that until `until`.
    pub(super) async fn settle(&self, guard: &Guard, until: Timestamp) -> Result<(), Error> {
        guard.settle(self.terms.outlasting_min_hold(), until).await
    }

    /// Keeps a lock that was taken as one of several for its shortest hold.
    pub(super) fn keep(&self, guard: &Guard) {
        guard.keep_for(self.terms.min_hold);
    }

    /// Checks the name and the terms, and determines the owner.
    fn request(
        &self,
        timeout: Duration,
        caller: &'static Location<'static>,
    ) -> Result<Request, Error> {
        let terms = self.checked_terms()?;
        let owner = Owner::resolve(self.owner.as_ref(), self.key());
        let began_at = self.engine.clock.now();
        let until = Until::within(timeout, began_at);
        let request = Request::new(owner, self.wanted(terms), until, began_at, caller);
        Ok(Request { widens: true, patient: self.patient, ..request })
    }

    /// Returns the terms of an acquisition, or what is wrong with them or with the name.
    fn checked_terms(&self) -> Result<Terms, Error> {
        match &self.problem {
            None => Ok(self.terms.outlasting_min_hold()),
            Some(problem) => Err(Error::clone(problem)),
        }
    }

    fn wanted(&self, terms: Terms) -> Wanted {
        Wanted { side: self.lock.clone(), terms }
    }

    fn key(&self) -> LockKey<'_> {
        LockKey { client: self.engine.key(), name: self.name() }
    }

    /// Asks the servers for all that they know about the lock.
    pub(super) async fn status(&self) -> Result<LockStatus, Error> {
        let quorum = self.quorum();
        let (nodes, majority) = (quorum.sites().len(), quorum.majority());
        let read = |reply: &Reply| self.lock.read_status(reply, nodes == 1);
        let agree = |replies: &[&Reply]| {
            let answers: Vec<_> = replies.iter().filter_map(|reply| read(reply)).collect();
            LockStatus::is_settled(&answers, majority)
        };
        let mut answers = Vec::new();
        for reply in &self.ask(self.lock.status(), agree).await?.replies {
            answers.push(read(reply).ok_or_else(|| self.unexpected(reply))?);
        }
        Ok(LockStatus::of_majority(self.name(), answers, majority))
    }

    /// Frees the lock; if `holder` is given, only if that holder still has it. Returns true if it freed the lock.
    pub(super) async fn force_unlock(&self, holder: Option<&Holder>) -> Result<bool, Error> {
        let call = self.lock.force_unlock(holder, self.engine.config.response_timeout);
        // The hold of this client is determined before the lock is freed: a later hold is a different one.
        let gate = self.engine.existing_gate(&*self.lock);
        gate.iter().for_each(Gate::send_unsent);
        let held_here = gate
            .as_ref()
            .and_then(|gate| gate.current_hold())
            .filter(|hold| holder.is_none_or(|holder| *holder.text() == hold.lease.id().0));
        // The call frees the lock on all nodes that answer in time, not only on a majority.
        let quorum = self.quorum();
        let answers = self.ask(call, |_| false).await?;
        let mut freed = 0;
        for reply in &answers.replies {
            freed += usize::from(reply.number().ok_or_else(|| self.unexpected(reply))? == 1);
        }
        let missing = quorum.sites().len() - answers.replies.len();
        if (1..quorum.majority()).contains(&freed) && freed + missing >= quorum.majority() {
            return Err(quorum.error(Some(self.name()), answers.missing));
        }
        let freed = freed >= quorum.majority();
        if let (true, Some(hold), Some(gate)) = (freed, held_here, gate) {
            hold.lease.lose(LossReason::Gone);
            gate.notice_loss();
        }
        events::force_unlocked(self.name(), holder, freed);
        Ok(freed)
    }

    pub(super) async fn ask(
        &self,
        call: Call,
        enough: impl Fn(&[&Reply]) -> bool,
    ) -> Result<Answers, Error> {
        ask(&self.engine, self.name(), call, enough).await
    }

    pub(super) fn unexpected(&self, reply: &Reply) -> Error {
        unexpected(&self.engine, self.name(), reply)
    }

    pub(super) fn quorum(&self) -> Arc<Quorum> {
        self.engine.quorum_of(self.name())
    }

    /// Formats a public handle of the type called `type_name`.
    pub(super) fn debug(&self, type_name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(type_name)
            .field("name", self.name())
            .field("terms", &self.terms)
            .field("wait", &self.wait)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

/// Returns what was acquired, or `None` if the time was over first.
pub(super) fn unless_too_late<T>(
    acquire: impl Future<Output = Result<T, Error>>,
) -> impl Future<Output = Result<Option<T>, Error>> {
    // No `async` block, whose future would have room for that of the acquisition twice.
    acquire.map(|acquired| match acquired {
        Ok(acquired) => Ok(Some(acquired)),
        Err(Error::Timeout { .. }) => Ok(None),
        Err(error) => Err(error),
    })
}

/// The span of an acquisition. [`record`] completes it.
fn span(lock: &str, owner: &Owner, caller: &Location<'_>) -> Span {
    tracing::debug_span!(
        target: events::LOCK,
        "lock",
        lock,
        %owner,
        at = %caller,
        token = Empty,
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
            span.record("token", acquired.entry.hold().token);
            span.record("outcome", "held");
        }
        Err(error) => {
            span.record("contended", error.is_timeout());
            span.record("outcome", tracing::field::display(error));
        }
    }
}
