//! What the handles of all kinds of lock share. A public handle adds only names and documentation.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::status::LockStatus;
use crate::config::{LeaseTerms, Terms};
use crate::engine::acquire::{self, Acquired};
use crate::engine::gate::{Engine, Request, Until};
use crate::engine::kind::Kind;
use crate::engine::quorum::{Answers, Quorum};
use crate::error::{Error, Fault, LossReason};
use crate::events;
use crate::guard::Guard;
use crate::key::{self, Holder};
use crate::owner::{LockKey, Owner};
use crate::script::{Call, Reply};

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
    owner: Option<Owner>,
}

impl Handle {
    pub(super) fn new(engine: &Arc<Engine>, lock: Arc<dyn Inspect>) -> Self {
        let terms = Terms::of(LeaseTerms::Watched(engine.config.ttl));
        Self { engine: engine.clone(), lock, terms, owner: None }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        self.lock.name()
    }

    /// Returns a handle to the same lock on other terms.
    pub(super) fn on_terms(&self, change: impl FnOnce(&mut Terms)) -> Self {
        let mut handle = self.clone();
        change(&mut handle.terms);
        handle
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
            let request = handle.request(timeout)?;
            let Request { terms, began_at, .. } = request;
            let span = span(handle.name(), &request.owner, caller);
            let Self { engine, lock, .. } = handle;
            let kind: Arc<dyn Kind> = lock;
            let acquired = acquire::acquire(&engine, &kind, request).instrument(span.clone()).await;
            if !span.is_disabled() {
                record(&span, &acquired, engine.clock.now().since(began_at));
            }
            let guard = Guard::new(acquired?.entry);
            // This comes last, so that an acquisition that is dropped at the last moment keeps nobody out.
            guard.keep_for(terms.min_hold);
            Ok(guard)
        }
    }

    /// Takes the lock like [`acquire`](Self::acquire), but returns `None` instead of [`Error::Timeout`].
    pub(super) fn try_acquire(
        &self,
        timeout: Duration,
        caller: &'static Location<'static>,
    ) -> impl Future<Output = Result<Option<Guard>, Error>> + Send + use<> {
        let acquire = self.acquire(timeout, caller);
        async {
            match acquire.await {
                Ok(guard) => Ok(Some(guard)),
                Err(Error::Timeout { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        }
    }

    /// Checks the name and the terms, and determines the owner.
    fn request(&self, timeout: Duration) -> Result<Request, Error> {
        let name = self.name();
        self.check_name()?;
        let terms = self.terms.outlasting_min_hold();
        self.engine.config.check_terms(&terms)?;
        let key = LockKey { client: self.engine.key(), name };
        let began_at = self.engine.clock.now();
        let until = match timeout {
            Duration::ZERO => Until::Once,
            Duration::MAX => Until::Ever,
            timeout => Until::At(began_at.plus(timeout)),
        };
        Ok(Request { owner: Owner::resolve(self.owner.as_ref(), key), terms, until, began_at })
    }

    /// Asks the servers for all that they know about the lock.
    pub(super) async fn status(&self) -> Result<LockStatus, Error> {
        let quorum = self.quorum();
        let (nodes, majority) = (quorum.sites().len(), quorum.majority());
        let read = |reply: &Reply| self.lock.read_status(reply, nodes == 1);
        let agree = |replies: &[&Reply]| {
            let answers: Vec<_> = replies.iter().filter_map(|reply| read(reply)).collect();
            let same = |one: &LockStatus| {
                answers.iter().filter(|other| other.holder == one.holder).count()
            };
            answers.iter().any(|answer| same(answer) >= majority)
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

    async fn ask(&self, call: Call, enough: impl Fn(&[&Reply]) -> bool) -> Result<Answers, Error> {
        let name = self.name();
        self.check_name()?;
        let quorum = self.quorum();
        quorum.ask(call, enough).await.map_err(|fault| quorum.error(Some(name), fault))
    }

    fn unexpected(&self, reply: &Reply) -> Error {
        let fault = Fault::Unexpected(format!("{reply:?}").into());
        self.quorum().error(Some(self.name()), fault)
    }

    fn check_name(&self) -> Result<(), Error> {
        let name = self.name();
        Error::check_name(name, key::lock_name_problem(name))?;
        Error::check_name(name, self.engine.fleet.name_problem(name))
    }

    fn quorum(&self) -> Arc<Quorum> {
        self.engine.quorum_of(&*self.lock)
    }

    /// Formats a public handle of the type called `type_name`.
    pub(super) fn debug(&self, type_name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(type_name)
            .field("name", self.name())
            .field("terms", &self.terms)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
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
