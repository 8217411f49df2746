//! The handle to a read-write lock.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::handle::Handle;
use super::rw::{Access, Side};
use super::rw_guards::{ReadGuard, WriteGuard};
use super::status::LockStatus;
use crate::config::{LeaseTerms, Terms};
use crate::engine::gate::Engine;
use crate::error::Error;
use crate::key::Holder;
use crate::owner::Owner;

/// A handle to a read-write lock: many readers hold it at once, or one writer alone. The handle itself holds nothing, and
/// making one costs no I/O.
///
/// Except over several independent masters, readers and writers wait in one queue: a writer that waits lets no new readers in
/// before it, and a release lets in the next writer, or all readers up to the next writer. The readers of a client share one lease.
/// While it is held, another reader of the client joins without a request for the length of the
/// [`handoff_window`](crate::ClientBuilder::handoff_window); then one request asks for all of them whether somebody else waits.
///
/// Over [several independent masters](crate::ClientBuilder::nodes), each reader and each writer needs a majority of them. They
/// share no queue. A writer that waits keeps new readers out all the same, but of several writers any may be the next, and a
/// release lets readers and writers race. If a waiting writer's process dies, readers wait for up to 5 s more.
///
/// **Nesting.** An owner that writes may also read and write: its guards are guards of the same hold, and the lock stays
/// locked for writing until the last of them is gone. An owner that reads may read again, even if a writer waits. It cannot
/// write: waiting for that fails with [`Error::SelfWait`] at once. [`WriteGuard::unchanged_since`] tells a writer whether what
/// was read before still holds. Beware of reading in one process while it waits for another process that reads the same
/// lock: if a writer came in between, all three wait.
///
/// **Redisson.** The lock is the one that Redisson's `RReadWriteLock` of the same name is. The
/// [TTL](Self::with_ttl), a [fixed lease](Self::with_lease) and a [shortest hold](Self::with_min_hold) must not be greater than the
/// `lockWatchdogTimeout` of the Java clients (30 s by default, as our TTL): the watchdog of a Java reader sets the TTL of the whole
/// lock to that time.
#[doc(alias = "RReadWriteLock")]
#[doc(alias = "getReadWriteLock")]
#[doc(alias = "shared lock")]
#[derive(Clone)]
pub struct RwLock {
    side: Arc<Side>,
    read: Handle,
    write: Handle,
}

impl RwLock {
    pub(crate) fn new(engine: &Arc<Engine>, name: Arc<str>) -> Self {
        let is_sharded = engine.fleet.is_sharded();
        let side = |access| Arc::new(Side::new(&engine.config, name.clone(), access, is_sharded));
        let write = side(Access::Write);
        Self {
            read: Handle::new(engine, side(Access::Read)),
            write: Handle::new(engine, write.clone()),
            side: write,
        }
    }

    /// Returns the lock's name, which is its key on the servers.
    pub fn name(&self) -> &str {
        self.write.name()
    }

    /// Returns a handle whose holds end after `lease` (10 ms to 30 days, and no longer than the `restart_quarantine` if there is
    /// one). The watchdog does not renew them. Readers of a client share a lease, which lasts as long as the longest of those asked
    /// for that still read, and up to a TTL of theirs longer. Beside Redisson it must not be greater than `lockWatchdogTimeout`:
    /// otherwise a reader may lose the lock early, and is told at its release only.
    #[doc(alias = "leaseTime")]
    #[must_use = "it returns another handle"]
    pub fn with_lease(&self, lease: Duration) -> Self {
        self.on_terms(|terms| terms.lease = LeaseTerms::Fixed(lease))
    }

    /// Returns a handle whose holds the watchdog renews every third of `ttl` (10 ms to 30 days, and no longer than the
    /// `restart_quarantine` if there is one). A crashed holder's part of the lock is free after at most `ttl`. The default is the
    /// client's TTL. Beside Redisson it must not be greater than `lockWatchdogTimeout`.
    #[doc(alias = "lockWatchdogTimeout")]
    #[must_use = "it returns another handle"]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        self.on_terms(|terms| terms.lease = LeaseTerms::Watched(ttl))
    }

    /// Returns a handle whose holds the watchdog stops renewing after `max_hold`: a safety net for a holder that hangs. The
    /// hold is then lost within one TTL. A reader that shares the lease, or a nested acquisition, with a later end, or with
    /// none, postpones the end for as long as it lasts itself.
    #[must_use = "it returns another handle"]
    pub fn with_max_hold(&self, max_hold: Duration) -> Self {
        self.on_terms(|terms| terms.max_hold = Some(max_hold))
    }

    /// Returns a handle whose readers and writers keep their part for `min_hold` after they got it, even if they give it back
    /// earlier. A writer keeps everybody out in that time, this process, too; a reader keeps writers out. A downgraded
    /// writer keeps writers out for the rest of it. The limit is 30 days, or the
    /// `restart_quarantine` if there is one; zero is the default. A [fixed lease](Self::with_lease) must be at least as long. See
    /// [`Mutex::with_min_hold`](crate::Mutex::with_min_hold), which has an example.
    ///
    /// A writer of Redisson goes by the end of the whole lock. If several read, it may wait for up to a TTL longer. Beside Redisson
    /// the time must not be greater than `lockWatchdogTimeout`, as for [`with_ttl`](Self::with_ttl).
    #[must_use = "it returns another handle"]
    pub fn with_min_hold(&self, min_hold: Duration) -> Self {
        self.on_terms(|terms| terms.min_hold = min_hold)
    }

    /// Returns a handle whose acquisitions by [`read`](Self::read), [`write`](Self::write) and the `run` methods wait for at most
    /// `wait`, and then fail with [`Error::Timeout`]; see [`Mutex::with_wait`](crate::Mutex::with_wait).
    #[must_use = "it returns another handle"]
    pub fn with_wait(&self, wait: Duration) -> Self {
        Self { read: self.read.waiting(wait), write: self.write.waiting(wait), ..self.clone() }
    }

    /// Returns a handle whose acquisitions belong to `owner`, so that they nest.
    #[must_use = "it returns another handle"]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self { read: self.read.owned_by(owner), write: self.write.owned_by(owner), ..self.clone() }
    }

    fn on_terms(&self, change: impl Fn(&mut Terms)) -> Self {
        let (read, write) = (self.read.on_terms(&change), self.write.on_terms(&change));
        Self { read, write, ..self.clone() }
    }

    /// Takes the lock for reading, and waits while a writer holds it or is ahead in the queue, or as
    /// [`with_wait`](Self::with_wait) says.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let config = client.rw_lock("config");
    /// let one = config.read().await?;
    /// let other = config.read().await?; // at the same time, without a round trip
    /// assert_eq!(one.token(), other.token()); // the version that both read
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] once the servers have not answered for
    /// [`unavailable_after`](crate::ClientBuilder::unavailable_after); [`Error::Lost`] if the owner still has guards of a lost
    /// hold of this lock; [`Error::Timeout`] if [`with_wait`](Self::with_wait) limits the wait; [`Error::Deadlock`] as for
    /// [`Mutex::lock`](crate::Mutex::lock); without waiting, [`Error::SelfWait`], [`Error::InvalidName`],
    /// [`Error::InvalidConfig`], [`Error::WrongType`] (even if the key is a lock, but of another kind), [`Error::Denied`] and
    /// [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing behind: neither a place in a queue nor a lock.
    #[doc(alias = "readLock")]
    #[track_caller]
    pub fn read(&self) -> impl Future<Output = Result<ReadGuard, Error>> + Send + use<> {
        self.read_with_timeout(self.read.wait())
    }

    /// Takes the lock for reading, and waits for at most `timeout`. Zero means one attempt, and [`Duration::MAX`] no limit.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], which names a holder, or the writer ahead of this reader; otherwise the same as
    /// [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// The same as [`read`](Self::read).
    #[track_caller]
    pub fn read_with_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<ReadGuard, Error>> + Send + use<> {
        let acquire = self.read.acquire(timeout, Location::caller());
        async { Ok(ReadGuard::new(acquire.await?)) }
    }

    /// Takes the lock for reading if that can be done now. Returns `None` if a writer has it, or waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the servers do not answer within the response timeout; otherwise the same as
    /// [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// The same as [`read`](Self::read).
    #[track_caller]
    pub fn try_read(
        &self,
    ) -> impl Future<Output = Result<Option<ReadGuard>, Error>> + Send + use<> {
        self.try_read_for(Duration::ZERO)
    }

    /// Takes the lock for reading, and waits for at most `timeout`. Returns `None` on a timeout.
    ///
    /// # Errors
    ///
    /// The same as [`read_with_timeout`](Self::read_with_timeout), except for the timeout.
    ///
    /// # Cancel safety
    ///
    /// The same as [`read`](Self::read).
    #[track_caller]
    pub fn try_read_for(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Option<ReadGuard>, Error>> + Send + use<> {
        let acquire = self.read.try_acquire(timeout, Location::caller());
        async { Ok(acquire.await?.map(ReadGuard::new)) }
    }

    /// Takes the lock for writing, and waits while others read or write, or are ahead in the queue, or as
    /// [`with_wait`](Self::with_wait) says.
    ///
    /// # Errors
    ///
    /// [`Error::SelfWait`] if the owner reads: that would never end; otherwise the same as [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// The same as [`read`](Self::read).
    #[doc(alias = "writeLock")]
    #[track_caller]
    pub fn write(&self) -> impl Future<Output = Result<WriteGuard, Error>> + Send + use<> {
        self.write_with_timeout(self.write.wait())
    }

    /// Takes the lock for writing, and waits for at most `timeout`. Zero means one attempt, and [`Duration::MAX`] no limit.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], which names a holder; otherwise the same as [`write`](Self::write).
    ///
    /// # Cancel safety
    ///
    /// The same as [`read`](Self::read).
    #[track_caller]
    pub fn write_with_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<WriteGuard, Error>> + Send + use<> {
        let acquire = self.write.acquire(timeout, Location::caller());
        let (side, terms) = (self.side.clone(), self.write.terms());
        async move { Ok(WriteGuard::new(acquire.await?, side, terms)) }
    }

    /// Takes the lock for writing if it is free now. Returns `None` if another holder has it, or if others wait for it.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the servers do not answer within the response timeout; otherwise the same as
    /// [`write`](Self::write).
    ///
    /// # Cancel safety
    ///
    /// The same as [`read`](Self::read).
    #[track_caller]
    pub fn try_write(
        &self,
    ) -> impl Future<Output = Result<Option<WriteGuard>, Error>> + Send + use<> {
        self.try_write_for(Duration::ZERO)
    }

    /// Takes the lock for writing, and waits for at most `timeout`. Returns `None` on a timeout.
    ///
    /// # Errors
    ///
    /// The same as [`write_with_timeout`](Self::write_with_timeout), except for the timeout.
    ///
    /// # Cancel safety
    ///
    /// The same as [`read`](Self::read).
    #[track_caller]
    pub fn try_write_for(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Option<WriteGuard>, Error>> + Send + use<> {
        let acquire = self.write.try_acquire(timeout, Location::caller());
        let (side, terms) = (self.side.clone(), self.write.terms());
        async move { Ok(acquire.await?.map(|guard| WriteGuard::new(guard, side, terms))) }
    }

    /// Asks the servers whether anybody reads or writes.
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status).
    #[doc(alias = "isLocked")]
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.status().await?.holder.is_some())
    }

    /// Asks the servers who holds the lock: the writer, or one of the readers. [`LockStatus::readers`] has them all.
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status).
    pub async fn holder(&self) -> Result<Option<Holder>, Error> {
        Ok(self.status().await?.holder)
    }

    /// Asks the servers when the whole lock expires unless it is renewed: that of readers with the last of them. Returns `None`
    /// if it is free, and [`Duration::MAX`] if it never expires (a key made by hand).
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status).
    #[doc(alias = "remainTimeToLive")]
    pub async fn remaining_ttl(&self) -> Result<Option<Duration>, Error> {
        Ok(self.status().await?.remaining_ttl())
    }

    /// Asks the servers who holds the lock, and who waits for it. While it is held for reading,
    /// [`readers`](LockStatus::readers) lists a holder for each client that reads, and `holder` is one of them. Over several
    /// masters, a client reads if a majority lists it.
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
        self.write.status().await
    }

    /// Frees the lock, whoever reads or writes, so that those who wait get it. Returns true if it was held. See
    /// [`Mutex::force_unlock`](crate::Mutex::force_unlock).
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status). If the servers did not answer, the lock may have been freed.
    #[doc(alias = "forceUnlock")]
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        self.write.force_unlock(None).await
    }

    /// Ends the part of `holder` (from [`status`](Self::status) or an [`Error::Timeout`]) if it still has one, and returns
    /// whether it had. Other readers go on reading. See [`Mutex::force_unlock_if`](crate::Mutex::force_unlock_if).
    ///
    /// # Errors
    ///
    /// The same as [`force_unlock`](Self::force_unlock).
    pub async fn force_unlock_if(&self, holder: &Holder) -> Result<bool, Error> {
        self.write.force_unlock(Some(holder)).await
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write.debug("RwLock", f)
    }
}
