//! The handle to a reentrant lock.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use super::lock::Lock;
use super::status::LockStatus;
use crate::config::{LeaseTerms, Terms};
use crate::engine::contend;
use crate::engine::gate::{Engine, Request, Until};
use crate::engine::kind::Kind;
use crate::engine::quorum::Answers;
use crate::error::{Error, Fault, LossReason};
use crate::events;
use crate::guard::Guard;
use crate::key::{self, Holder};
use crate::owner::{LockKey, Owner};
use crate::script::{Call, Reply};

/// A handle to a reentrant lock. The handle itself holds nothing, and making one costs no I/O.
///
/// You may clone it and keep it for any time. The `with_*` methods and [`owned_by`](Self::owned_by) return
/// another handle to the same lock. The first call that acquires reports a bad name or setting.
///
/// Every method that acquires returns a future that borrows nothing. The [`Owner`] is determined when that future is first
/// polled.
#[doc(alias = "RLock")]
#[doc(alias = "RFencedLock")]
#[doc(alias = "RedissonLock")]
#[derive(Clone)]
pub struct Mutex {
    engine: Arc<Engine>,
    lock: Arc<Lock>,
    terms: Terms,
    owner: Option<Owner>,
}

impl Mutex {
    pub(crate) fn new(engine: &Arc<Engine>, name: Arc<str>) -> Self {
        let config = &engine.config;
        Self {
            engine: engine.clone(),
            lock: Arc::new(Lock::new(config, name)),
            terms: Terms::of(LeaseTerms::Watched(config.ttl)),
            owner: None,
        }
    }

    /// Returns the lock's name, which is its key on the servers.
    pub fn name(&self) -> &str {
        &self.lock.name
    }

    /// Returns a handle whose holds end after `lease`, 10 ms to 30 days. The watchdog does not renew them.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    ///
    /// let guard = client.mutex("nightly").with_lease(Duration::from_secs(10)).lock().await?;
    /// assert!(guard.remaining() <= Duration::from_secs(10));
    /// # Ok(()) }
    /// ```
    #[doc(alias = "leaseTime")]
    #[must_use = "it returns another handle"]
    pub fn with_lease(&self, lease: Duration) -> Self {
        self.on_terms(Terms { lease: LeaseTerms::Fixed(lease), ..self.terms })
    }

    /// Returns a handle whose holds the watchdog renews every third of `ttl`, 10 ms to 30 days. A crashed holder's lock
    /// is free after at most `ttl`. The default is the client's TTL.
    #[doc(alias = "lockWatchdogTimeout")]
    #[must_use = "it returns another handle"]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        self.on_terms(Terms { lease: LeaseTerms::Watched(ttl), ..self.terms })
    }

    /// Returns a handle whose holds the watchdog stops renewing after `max_hold`: a safety net for a holder that
    /// hangs. The hold is then lost within one TTL. A nested acquisition with a later end, or with none, postpones the
    /// end of the whole hold.
    #[must_use = "it returns another handle"]
    pub fn with_max_hold(&self, max_hold: Duration) -> Self {
        self.on_terms(Terms { max_hold: Some(max_hold), ..self.terms })
    }

    /// Returns a handle whose locks stay taken for `min_hold` after they were acquired, even if they are released
    /// earlier: nobody gets the lock in that time, not even this process. The limit is 30 days; zero is the default.
    ///
    /// It is for jobs that several hosts start at about the same moment: if a job takes less time than their clocks
    /// differ, a host that is late would run it again. An early release only shortens the key's TTL, so the process may
    /// end after it. A crash makes no difference either: the TTL is raised to `min_hold` if it is shorter. A
    /// [fixed lease](Self::with_lease) must be at least as long, or acquiring fails with [`Error::InvalidConfig`]. Nested
    /// acquisitions work as usual. Until the time is over, [`status`](Self::status) shows the last holder.
    /// [`force_unlock`](Self::force_unlock) frees the lock at once.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    ///
    /// let report = client.mutex("report:2026-11-22").with_min_hold(Duration::from_secs(60));
    /// if let Some(guard) = report.try_lock().await? {
    ///     println!("this host writes the report");
    ///     guard.unlock().await?; // free for others a minute after it was acquired
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use = "it returns another handle"]
    pub fn with_min_hold(&self, min_hold: Duration) -> Self {
        self.on_terms(Terms { min_hold, ..self.terms })
    }

    /// Returns a handle whose acquisitions belong to `owner`, so that they nest.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let me = client.owner();
    /// let account = client.mutex("account:7").owned_by(&me);
    /// let outer = account.lock().await?;
    /// let inner = account.lock().await?; // the same hold, without a round trip
    /// assert_eq!((inner.hold_count(), inner.token()), (2, outer.token()));
    /// # Ok(()) }
    /// ```
    #[must_use = "it returns another handle"]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self { owner: Some(owner.clone()), ..self.clone() }
    }

    fn on_terms(&self, terms: Terms) -> Self {
        Self { terms, ..self.clone() }
    }

    /// Takes the lock, and waits for as long as another holder has it.
    ///
    /// A free lock costs one round trip, and a nested acquisition none. Waiters of one process are served in the order of
    /// their arrival. Between processes no order is guaranteed: a client that is far from the server may get few turns, or
    /// none, while nearer ones keep the lock busy.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] once the servers have not answered for
    /// [`unavailable_after`](crate::ClientBuilder::unavailable_after); [`Error::Lost`] if the owner still has
    /// guards of a lost hold of this lock; without waiting, [`Error::InvalidName`], [`Error::InvalidConfig`],
    /// [`Error::WrongType`], [`Error::Denied`] and [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing behind: neither a place in a queue nor a lock.
    #[doc(alias = "lockInterruptibly")]
    #[doc(alias = "lock_owned")]
    #[doc(alias = "lockAndGetToken")]
    #[doc(alias = "acquire")]
    #[track_caller]
    pub fn lock(&self) -> impl Future<Output = Result<Guard, Error>> + Send + use<> {
        self.acquire(Duration::MAX, Location::caller())
    }

    /// Takes the lock, and waits for at most `timeout`. Zero means one attempt, and [`Duration::MAX`] means no limit.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], which names the holder, if another holder kept the lock; [`Error::Unavailable`] if the
    /// servers did not answer; otherwise the same as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// The same as [`lock`](Self::lock).
    #[doc(alias = "tryLock")]
    #[doc(alias = "waitTime")]
    #[track_caller]
    pub fn lock_with_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Guard, Error>> + Send + use<> {
        self.acquire(timeout, Location::caller())
    }

    /// Takes the lock if it is free now. Returns `None` if another holder has it.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the servers do not answer within the response timeout; otherwise the same as
    /// [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// The same as [`lock`](Self::lock).
    #[doc(alias = "tryLock")]
    #[doc(alias = "try_lock_owned")]
    #[track_caller]
    pub fn try_lock(&self) -> impl Future<Output = Result<Option<Guard>, Error>> + Send + use<> {
        let attempt = self.acquire(Duration::ZERO, Location::caller());
        async { none_on_timeout(attempt.await) }
    }

    /// Takes the lock, and waits for at most `timeout`. Returns `None` if another holder kept it.
    ///
    /// # Errors
    ///
    /// The same as [`lock_with_timeout`](Self::lock_with_timeout), except for the timeout.
    ///
    /// # Cancel safety
    ///
    /// The same as [`lock`](Self::lock).
    #[doc(alias = "tryLock")]
    #[track_caller]
    pub fn try_lock_for(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Option<Guard>, Error>> + Send + use<> {
        let wait = self.acquire(timeout, Location::caller());
        async { none_on_timeout(wait.await) }
    }

    /// The lock as the bodies of `run` know it.
    pub(super) fn key(&self) -> (usize, Arc<str>) {
        (self.engine.key(), self.lock.name.clone())
    }

    fn acquire(
        &self,
        timeout: Duration,
        caller: &'static Location<'static>,
    ) -> impl Future<Output = Result<Guard, Error>> + Send + use<> {
        let Self { engine, lock, terms, owner } = self.clone();
        async move {
            Error::check_name(&lock.name, key::lock_name_problem(&lock.name))?;
            let terms = terms.outlasting_min_hold();
            engine.config.check_terms(&terms)?;
            let key = LockKey { client: engine.key(), name: &lock.name };
            let began_at = engine.clock.now();
            let request = Request {
                owner: Owner::resolve(owner.as_ref(), key),
                terms,
                until: match timeout {
                    Duration::ZERO => Until::Once,
                    Duration::MAX => Until::Ever,
                    timeout => Until::At(began_at.plus(timeout)),
                },
                began_at,
            };
            let span = tracing::debug_span!(
                target: events::LOCK,
                "lock",
                lock = &*lock.name,
                owner = %request.owner,
                at = %caller,
                token = tracing::field::Empty,
                wait_us = tracing::field::Empty,
                contended = tracing::field::Empty,
                outcome = tracing::field::Empty,
            );
            let kind: Arc<dyn Kind> = lock;
            let acquire = contend::acquire(&engine, &kind, request);
            let acquired = acquire.instrument(span.clone()).await;
            if !span.is_disabled() {
                span.record("wait_us", engine.clock.now().since(began_at).as_micros() as u64);
                match &acquired {
                    Ok(acquired) => {
                        span.record("contended", acquired.contended);
                        span.record("token", acquired.entry.hold().token);
                        span.record("outcome", "held");
                    }
                    Err(error) => {
                        span.record("contended", matches!(error, Error::Timeout { .. }));
                        span.record("outcome", tracing::field::display(error));
                    }
                }
            }
            let guard = Guard::new(acquired?.entry);
            // This comes last, so that an acquisition that is dropped at the last moment keeps nobody out.
            guard.keep_for(terms.min_hold);
            Ok(guard)
        }
    }

    /// Asks the servers whether anybody holds the lock.
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status).
    #[doc(alias = "isLocked")]
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.status().await?.holder.is_some())
    }

    /// Asks the servers who holds the lock.
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status).
    pub async fn holder(&self) -> Result<Option<Holder>, Error> {
        Ok(self.status().await?.holder)
    }

    /// Asks the servers when the lock expires unless it is renewed. Returns `None` if it is free, and [`Duration::MAX`]
    /// if it never expires (a key made by hand).
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status).
    #[doc(alias = "remainTimeToLive")]
    pub async fn remaining_ttl(&self) -> Result<Option<Duration>, Error> {
        let status = self.status().await?;
        Ok(status.holder.map(|_| status.remaining.unwrap_or(Duration::MAX)))
    }

    /// Asks the servers for all that they know about the lock: its holder and hold count, its age and end, and how many
    /// clients wait for it.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the servers do not answer within the response timeout; [`Error::WrongType`],
    /// [`Error::Denied`], [`Error::InvalidName`], [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn status(&self) -> Result<LockStatus, Error> {
        let quorum = &self.engine.quorum;
        let (nodes, majority) = (quorum.nodes().len(), quorum.majority());
        let read = |reply: &Reply| LockStatus::read(&self.lock.name, reply, nodes == 1);
        let settled = |replies: &[&Reply]| {
            let answers: Vec<_> = replies.iter().filter_map(|reply| read(reply)).collect();
            let same = |one: &LockStatus| {
                answers.iter().filter(|other| other.holder == one.holder).count()
            };
            answers.iter().any(|answer| same(answer) >= majority)
        };
        let mut answers = Vec::new();
        for reply in &self.ask(self.lock.status(), settled).await?.replies {
            answers.push(read(reply).ok_or_else(|| self.unexpected(reply))?);
        }
        Ok(LockStatus::of_majority(&self.lock.name, answers, majority))
    }

    /// Frees the lock whoever holds it, and wakes those who wait. Returns true if it was held.
    ///
    /// This is a tool for operators: it breaks the guarantee that the holder has. The holder learns of the loss at its
    /// next renewal, and may go on writing until then. Prefer [`force_unlock_if`](Self::force_unlock_if).
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status). If the servers did not answer, the lock may have been freed.
    #[doc(alias = "forceUnlock")]
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        self.force(None).await
    }

    /// Frees the lock if `holder` (from [`status`](Self::status) or an [`Error::Timeout`]) still holds it, and returns
    /// whether it did.
    ///
    /// It never frees the next hold instead. A lease that a client took for several waiters may pass from one to the
    /// next in its first moments. If you saw the holder in the first seconds of such a lease, the call frees nothing and
    /// returns `false`: ask for the [`status`](Self::status) again.
    ///
    /// # Errors
    ///
    /// The same as [`force_unlock`](Self::force_unlock).
    pub async fn force_unlock_if(&self, holder: &Holder) -> Result<bool, Error> {
        self.force(Some(holder)).await
    }

    async fn force(&self, holder: Option<&Holder>) -> Result<bool, Error> {
        let call = self.lock.force_unlock(holder, self.engine.config.response_timeout);
        // The hold of this client is determined before the lock is freed: a later hold is a different one.
        let gate = self.engine.existing_gate(&*self.lock);
        let held_here = gate
            .as_ref()
            .and_then(|gate| gate.current_hold())
            .filter(|hold| holder.is_none_or(|holder| *holder.text() == hold.lease.id.0));
        // The call frees the lock on all nodes that answer in time, not only on a majority.
        let quorum = &self.engine.quorum;
        let answers = self.ask(call, |_| false).await?;
        let mut freed = 0;
        for reply in &answers.replies {
            freed += usize::from(reply.number().ok_or_else(|| self.unexpected(reply))? == 1);
        }
        let missing = quorum.nodes().len() - answers.replies.len();
        if (1..quorum.majority()).contains(&freed) && freed + missing >= quorum.majority() {
            return Err(quorum.error(Some(&self.lock.name), answers.missing));
        }
        let freed = freed >= quorum.majority();
        if let (true, Some(hold), Some(gate)) = (freed, held_here, gate) {
            hold.lease.lose(LossReason::Gone);
            gate.notice_loss();
        }
        events::force_unlocked(&self.lock.name, holder, freed);
        Ok(freed)
    }

    async fn ask(&self, call: Call, enough: impl Fn(&[&Reply]) -> bool) -> Result<Answers, Error> {
        Error::check_name(&self.lock.name, key::lock_name_problem(&self.lock.name))?;
        let quorum = &self.engine.quorum;
        let answers = quorum.ask(call, enough).await;
        answers.map_err(|fault| quorum.error(Some(&self.lock.name), fault))
    }

    fn unexpected(&self, reply: &Reply) -> Error {
        let fault = Fault::Unexpected(format!("{reply:?}").into());
        self.engine.quorum.error(Some(&self.lock.name), fault)
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("name", &self.lock.name)
            .field("terms", &self.terms)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

fn none_on_timeout(acquired: Result<Guard, Error>) -> Result<Option<Guard>, Error> {
    match acquired {
        Ok(guard) => Ok(Some(guard)),
        Err(Error::Timeout { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
