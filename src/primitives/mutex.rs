//! The handle to a reentrant lock.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::handle::Handle;
use super::lock::Lock;
use super::status::LockStatus;
use crate::config::{LeaseTerms, Terms};
use crate::engine::gate::Engine;
use crate::error::Error;
use crate::guard::Guard;
use crate::key::Holder;
use crate::owner::Owner;

/// A handle to a reentrant lock. The handle itself holds nothing, and making one costs no I/O.
///
/// Acquisitions nest only if they have the same [`Owner`]: each has one of its own unless you name it with
/// [`owned_by`](Self::owned_by) or [`Owner::scope`], or are inside the body of [`run`](Self::run). See [`lock`](Self::lock).
///
/// You may clone it and keep it for any time. The `with_*` methods and [`owned_by`](Self::owned_by) return
/// another handle to the same lock. The first call that acquires reports a bad name or setting.
///
/// Every method that acquires returns a `'static` future, so you can spawn it. The [`Owner`] is determined when that future is
/// first polled.
#[doc(alias = "RLock")]
#[doc(alias = "RFencedLock")]
#[doc(alias = "RedissonLock")]
#[derive(Clone)]
pub struct Mutex {
    pub(super) handle: Handle,
}

impl Mutex {
    pub(crate) fn new(engine: &Arc<Engine>, name: Arc<str>) -> Self {
        let lock = Arc::new(Lock::new(&engine.config, name, engine.fleet.is_sharded()));
        Self { handle: Handle::new(engine, lock) }
    }

    /// Returns a handle whose acquisitions each have a place of their own in the server's queue.
    pub(crate) fn fair(&self) -> Self {
        self.on_terms(|terms| terms.fair = true)
    }

    /// Returns the lock's name, which is its key on the servers.
    pub fn name(&self) -> &str {
        self.handle.name()
    }

    /// Returns true if both are handles of one client to the same lock.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.name() == other.name() && self.handle.client() == other.handle.client()
    }

    pub(super) fn on_terms(&self, change: impl FnOnce(&mut Terms)) -> Self {
        Self { handle: self.handle.on_terms(change) }
    }

    /// Takes the lock, and waits for as long as another holder has it, or as [`with_wait`](Self::with_wait) says.
    ///
    /// **A task that holds the lock and calls this again waits for itself**, unless both calls have the same owner: here an
    /// owner is not the task, as it is the thread in Java. Name one for both with [`owned_by`](Self::owned_by) or
    /// [`Owner::scope`], or use [`Guard::reenter`]. A task that is spawned by the holder waits for it, too; see
    /// [`Owner::current`]. With [`SelfWait::Fail`](crate::SelfWait::Fail), a task that waits for itself gets an error instead.
    ///
    /// A free lock costs one round trip, and a nested acquisition none.
    ///
    /// Except over several masters, clients get the lock in the order in which they asked the server for it; a release
    /// passes it to the first of them by a message. The tasks of a client share one place in this queue. They are served
    /// in the order of their arrival, and pass the lock among themselves for up to the
    /// [`handoff_window`](crate::ClientBuilder::handoff_window); with
    /// [`Client::fair_mutex`](crate::Client::fair_mutex) each task has its own. Over several masters, and between this
    /// library and Redisson, no order is guaranteed.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] once the servers have not answered for
    /// [`unavailable_after`](crate::ClientBuilder::unavailable_after); [`Error::Lost`] if the owner still has
    /// guards of a lost hold of this lock; [`Error::Timeout`] if [`with_wait`](Self::with_wait) limits the wait;
    /// [`Error::Deadlock`] if the wait is part of a circle of owners, and [`deadlocks`](crate::ClientBuilder::deadlocks) makes that
    /// an error; without
    /// waiting, [`Error::SelfWait`] if this task holds the lock for another owner and the client was built
    /// [`with SelfWait::Fail`](crate::ClientBuilder::self_wait), [`Error::InvalidName`], [`Error::InvalidConfig`],
    /// [`Error::WrongType`], [`Error::Denied`] and [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing behind: neither a place in a queue nor a lock.
    ///
    /// Poll it or drop it. A future that is kept, but not polled, can be given the lock, and keeps all others out for a TTL and a
    /// third. Then it has lost its place, and waits again when it is polled.
    #[doc(alias = "lockInterruptibly")]
    #[doc(alias = "lock_owned")]
    #[doc(alias = "lockAndGetToken")]
    #[doc(alias = "acquire")]
    #[track_caller]
    pub fn lock(&self) -> impl Future<Output = Result<Guard, Error>> + Send + use<> {
        self.handle.acquire(self.handle.wait(), Location::caller())
    }

    /// Takes the lock, and waits for at most `timeout`. Zero means one attempt, and [`Duration::MAX`] means no limit.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], which names the holder, if another holder kept the lock; [`Error::Unavailable`] if the servers did not
    /// answer, even if only because `timeout` is shorter than a round trip; otherwise the same as [`lock`](Self::lock).
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
        self.handle.acquire(timeout, Location::caller())
    }

    /// Takes the lock if it is free now. Returns `None` if another holder has it, or if others wait for it: except
    /// over several masters it overtakes nobody.
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
        self.handle.try_acquire(Duration::ZERO, Location::caller())
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
        self.handle.try_acquire(timeout, Location::caller())
    }

    /// Returns a handle whose holds end after `lease` (10 ms to 30 days, and no longer than the `restart_quarantine` if there is
    /// one). The watchdog does not renew them.
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
        self.on_terms(|terms| terms.lease = LeaseTerms::Fixed(lease))
    }

    /// Returns a handle whose holds the watchdog renews every third of `ttl` (10 ms to 30 days, and no longer than the
    /// `restart_quarantine` if there is one). A crashed holder's lock is free after at most `ttl`. The default is the client's TTL.
    #[doc(alias = "lockWatchdogTimeout")]
    #[must_use = "it returns another handle"]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        self.on_terms(|terms| terms.lease = LeaseTerms::Watched(ttl))
    }

    /// Returns a handle whose holds the watchdog stops renewing after `max_hold`: a safety net for a holder that
    /// hangs. The hold is then lost within one TTL. A nested acquisition with a later end, or with none, postpones the
    /// end of the whole hold.
    #[must_use = "it returns another handle"]
    pub fn with_max_hold(&self, max_hold: Duration) -> Self {
        self.on_terms(|terms| terms.max_hold = Some(max_hold))
    }

    /// Returns a handle whose locks stay taken for `min_hold` after they were acquired, even if they are released
    /// earlier: nobody gets the lock in that time, not even this process. The limit is 30 days, or the
    /// [`restart_quarantine`](crate::ClientBuilder::restart_quarantine), if there is one; zero is the default.
    ///
    /// It is for jobs that several hosts start at about the same moment: if a job takes less time than their clocks
    /// differ, a host that is late would run it again. An early release only shortens the key's TTL, so the process may
    /// end after it. It also holds after a crash: the TTL is at least `min_hold`. A
    /// [fixed lease](Self::with_lease) must be at least as long, or acquiring fails with [`Error::InvalidConfig`]. Nested
    /// acquisitions work as usual. Until the time is over, [`status`](Self::status) shows the last holder.
    /// [`force_unlock`](Self::force_unlock) frees the lock at once.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    ///
    /// let report = client.mutex("report:2026-11-22").with_min_hold(Duration::from_secs(30));
    /// if let Some(guard) = report.try_lock().await? {
    ///     println!("this host writes the report");
    ///     guard.unlock().await?; // free for others 30 s after it was acquired
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use = "it returns another handle"]
    pub fn with_min_hold(&self, min_hold: Duration) -> Self {
        self.on_terms(|terms| terms.min_hold = min_hold)
    }

    /// Returns a handle whose acquisitions wait for at most `wait`, and then fail with [`Error::Timeout`]: those by
    /// [`lock`](Self::lock), [`run`](Self::run), and the other methods that begin with `run`. Zero means one attempt, and
    /// [`Duration::MAX`], the default, no limit.
    ///
    /// It limits the wait alone; a body that runs under the lock may take any time. The methods that are given a time, and
    /// those whose names begin with `try_`, wait as they say.
    ///
    /// ```no_run
    /// # async fn bill() {}
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    ///
    /// let order = client.mutex("orders:42").with_wait(Duration::from_secs(5));
    /// match order.run(async |_| bill().await).await {
    ///     Ok(()) => println!("billed"),
    ///     Err(error) if error.is_timeout() => println!("not billed: {error}"), // it names the holder
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "run_with_timeout")]
    #[doc(alias = "waitTime")]
    #[must_use = "it returns another handle"]
    pub fn with_wait(&self, wait: Duration) -> Self {
        Self { handle: self.handle.waiting(wait) }
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
        Self { handle: self.handle.owned_by(owner) }
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
        Ok(self.status().await?.remaining_ttl())
    }

    /// Asks the servers for all that they know about the lock: its holder and hold count, its age and end, and which
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
        self.handle.status().await
    }

    /// Frees the lock whoever holds it, so that the next waiter gets it. Returns true if it was held.
    ///
    /// This is a tool for operators: it breaks the guarantee that the holder has. The holder learns of the loss at its next
    /// renewal, or at the end of a fixed lease, and may go on writing until then. Prefer
    /// [`force_unlock_if`](Self::force_unlock_if): over several masters, this call may come to one of them only when the next hold
    /// has begun, and then ends that one there.
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status). If the servers did not answer, the lock may have been freed.
    #[doc(alias = "forceUnlock")]
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        self.handle.force_unlock(None).await
    }

    /// Frees the lock if `holder` (from [`status`](Self::status) or an [`Error::Timeout`]) still holds it, and returns
    /// whether it did.
    ///
    /// It never frees the next hold instead. A lease that a client took while somebody waited may pass from one task to the next
    /// in its first moments, which the server does not see. So for such a lease the call returns `false`, although that holder
    /// still has the lock, unless the lease was older than 1.5 s and a response timeout, 2.5 s with the defaults, and up to 12.5 s
    /// over several masters, when the holder was seen. Look at what it returns; on `false`, get the [`status`](Self::status) again
    /// after a moment, and call it with the holder that is shown then.
    ///
    /// # Errors
    ///
    /// The same as [`force_unlock`](Self::force_unlock).
    pub async fn force_unlock_if(&self, holder: &Holder) -> Result<bool, Error> {
        self.handle.force_unlock(Some(holder)).await
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.debug("Mutex", f)
    }
}
