//! The handle to a semaphore of leased permits.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::permit::Permit;
use super::permit_handle::PermitHandle;
use super::pool::Resize;
use super::semaphore_status::{PermitHolder, SemaphoreStatus};
use crate::config::LeaseTerms;
use crate::engine::gate::Engine;
use crate::error::Error;

/// A handle to a semaphore: a number of permits that all processes share. The handle itself holds nothing, and making one
/// costs no I/O.
///
/// A permit is a lease, as a lock is: the watchdog renews it while it is held, and the permits of a process that crashed
/// come back after the TTL at most. Each acquisition stands in the server's queue by itself, so waiters get permits
/// first come, first served, across processes. If the first one waits for several permits, those behind it wait, too.
///
/// The semaphore exists on the server from its first permits on: give their number with
/// [`with_permits`](Self::with_permits), or by [`set_permits`](Self::set_permits). It is never deleted. Redisson's
/// `RPermitExpirableSemaphore` and `RSemaphore` of the same name share its permits. Do not use both `orders` and `{orders}` as names
/// of semaphores: in Redisson's format, and so here, the list of those who have permits is the same for both.
///
/// Permits end by the server's clock. A replica that takes over, and a master to which the semaphore's slot moves, have the ends
/// as the times that they are. So their clocks must not be ahead of the old master's by more than 1 % of the TTL: otherwise a
/// permit may come back while its holder has it still, until its next renewal.
///
/// It is on one server, or on a master of a cluster. With [several independent masters](crate::ClientBuilder::nodes) every call
/// fails with [`Error::SingleServerOnly`]: three clients could each get a majority of them for two permits.
///
/// ```no_run
/// # async fn convert() {}
/// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
/// let conversions = client.semaphore("conversions").with_permits(4);
/// let permit = conversions.acquire().await?; // at most 4 at once, in all processes
/// permit.run_until_lost(convert()).await?;
/// permit.release().await?;
/// # Ok(()) }
/// ```
#[doc(alias = "RSemaphore")]
#[doc(alias = "RPermitExpirableSemaphore")]
#[derive(Clone)]
pub struct Semaphore {
    handle: PermitHandle,
}

impl Semaphore {
    pub(crate) fn new(engine: &Arc<Engine>, name: Arc<str>) -> Self {
        Self { handle: PermitHandle::new(engine, name) }
    }

    /// Returns the semaphore's name, which is its key on the server.
    pub fn name(&self) -> &str {
        self.handle.name()
    }

    /// Returns a handle that makes the semaphore with `permits` permits where it does not exist yet, at most 2^31 - 1. It
    /// does not change one that exists; [`set_permits`](Self::set_permits) does.
    #[must_use = "it returns another handle"]
    pub fn with_permits(&self, permits: u32) -> Self {
        Self { handle: self.handle.with_permits(permits) }
    }

    /// Returns a handle whose permits end after `lease` (10 ms to 30 days, and no longer than the `restart_quarantine` if there is
    /// one). The watchdog does not renew them.
    #[must_use = "it returns another handle"]
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { handle: self.handle.on_terms(|terms| terms.lease = LeaseTerms::Fixed(lease)) }
    }

    /// Returns a handle whose permits the watchdog renews every third of `ttl` (10 ms to 30 days, and no longer than the
    /// `restart_quarantine` if there is one). The permits of a crashed process come back after at most `ttl`. The default is the
    /// client's TTL.
    #[must_use = "it returns another handle"]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        Self { handle: self.handle.on_terms(|terms| terms.lease = LeaseTerms::Watched(ttl)) }
    }

    /// Returns a handle whose permits are renewed for `max_hold` at most, and are lost at the end of the lease that they
    /// have then. It must not be zero.
    #[must_use = "it returns another handle"]
    pub fn with_max_hold(&self, max_hold: Duration) -> Self {
        Self { handle: self.handle.on_terms(|terms| terms.max_hold = Some(max_hold)) }
    }

    /// Returns a handle whose acquisitions by [`acquire`](Self::acquire), [`acquire_many`](Self::acquire_many) and the `run`
    /// methods wait for at most `wait`, and then fail with [`Error::Timeout`]; see
    /// [`Mutex::with_wait`](crate::Mutex::with_wait).
    #[must_use = "it returns another handle"]
    pub fn with_wait(&self, wait: Duration) -> Self {
        Self { handle: self.handle.waiting(wait) }
    }

    /// Acquires a permit, and waits until one is free, or as [`with_wait`](Self::with_wait) says.
    ///
    /// If the semaphore does not exist and the handle has no [`with_permits`](Self::with_permits), it waits until somebody
    /// makes the semaphore, and the client logs that at `WARN`.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] once the server has not answered for
    /// [`unavailable_after`](crate::ClientBuilder::unavailable_after); [`Error::Timeout`] if [`with_wait`](Self::with_wait) limits
    /// the wait; [`Error::Deadlock`] with [`Deadlocks::Fail`](crate::Deadlocks::Fail); [`Error::SingleServerOnly`];
    /// [`Error::InvalidName`] and [`Error::InvalidConfig`]; [`Error::WrongType`]; [`Error::Denied`]; [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the acquisition leaves the queue, and a permit that it was given comes back.
    #[track_caller]
    pub fn acquire(&self) -> impl Future<Output = Result<Permit, Error>> + Send + use<> {
        self.handle.acquire(1, self.handle.wait(), Location::caller())
    }

    /// Acquires `weight` permits at once, 1 to 1000, and waits until that many are free. Later requests wait behind
    /// it, even if enough permits for them are free.
    ///
    /// If the semaphore never has that many permits, it waits forever. On a handle made
    /// [`with_permits(n)`](Self::with_permits), asking for more than `n` fails at once.
    ///
    /// # Errors
    ///
    /// The same as [`acquire`](Self::acquire); [`Error::InvalidArgument`] for a `weight` out of range.
    ///
    /// # Cancel safety
    ///
    /// The same as [`acquire`](Self::acquire): all permits, or none.
    #[track_caller]
    pub fn acquire_many(
        &self,
        weight: u32,
    ) -> impl Future<Output = Result<Permit, Error>> + Send + use<> {
        self.handle.acquire(weight, self.handle.wait(), Location::caller())
    }

    /// Acquires a permit, and waits for at most `timeout`.
    ///
    /// # Errors
    ///
    /// The same as [`acquire`](Self::acquire), and [`Error::Timeout`].
    ///
    /// # Cancel safety
    ///
    /// The same as [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_with_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Permit, Error>> + Send + use<> {
        self.handle.acquire(1, timeout, Location::caller())
    }

    /// Acquires `weight` permits at once, 1 to 1000, and waits for at most `timeout`. Later requests wait behind it in that
    /// time.
    ///
    /// # Errors
    ///
    /// The same as [`acquire_many`](Self::acquire_many), and [`Error::Timeout`].
    ///
    /// # Cancel safety
    ///
    /// The same as [`acquire`](Self::acquire): all permits, or none.
    #[track_caller]
    pub fn acquire_many_with_timeout(
        &self,
        weight: u32,
        timeout: Duration,
    ) -> impl Future<Output = Result<Permit, Error>> + Send + use<> {
        self.handle.acquire(weight, timeout, Location::caller())
    }

    /// Acquires a permit if there is one now and nobody waits for it.
    ///
    /// # Errors
    ///
    /// The same as [`acquire`](Self::acquire); [`Error::Unavailable`] after the response timeout.
    ///
    /// # Cancel safety
    ///
    /// The same as [`acquire`](Self::acquire).
    #[track_caller]
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<Permit>, Error>> + Send + use<> {
        self.handle.try_acquire(1, Duration::ZERO, Location::caller())
    }

    /// Acquires `weight` permits, 1 to 1000, if that many are free and nobody waits.
    ///
    /// # Errors
    ///
    /// The same as [`try_acquire`](Self::try_acquire); [`Error::InvalidArgument`] for a `weight` out of range.
    ///
    /// # Cancel safety
    ///
    /// The same as [`acquire`](Self::acquire).
    #[track_caller]
    pub fn try_acquire_many(
        &self,
        weight: u32,
    ) -> impl Future<Output = Result<Option<Permit>, Error>> + Send + use<> {
        self.handle.try_acquire(weight, Duration::ZERO, Location::caller())
    }

    /// Acquires a permit, and waits for at most `timeout`. Returns `None` if there was none.
    ///
    /// # Errors
    ///
    /// The same as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// The same as [`acquire`](Self::acquire).
    #[track_caller]
    pub fn try_acquire_for(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Option<Permit>, Error>> + Send + use<> {
        self.handle.try_acquire(1, timeout, Location::caller())
    }

    /// Acquires `weight` permits at once, 1 to 1000, and waits for at most `timeout`. Returns `None` if too few were free.
    ///
    /// # Errors
    ///
    /// The same as [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    ///
    /// The same as [`acquire`](Self::acquire): all permits, or none.
    #[track_caller]
    pub fn try_acquire_many_for(
        &self,
        weight: u32,
        timeout: Duration,
    ) -> impl Future<Output = Result<Option<Permit>, Error>> + Send + use<> {
        self.handle.try_acquire(weight, timeout, Location::caller())
    }

    /// Sets how many permits there are, at most 2^31 - 1, and makes the semaphore if it does not exist.
    ///
    /// It takes no permit from its holder: if more are held, none are given out until enough have come back. It also repairs
    /// a semaphore from which permits were lost, those of a Redisson client's `RSemaphore` that crashed, for example.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]: the server may have done it nevertheless; [`Error::SingleServerOnly`],
    /// [`Error::InvalidName`], [`Error::InvalidConfig`], [`Error::WrongType`], [`Error::Denied`], [`Error::Closed`];
    /// [`Error::InvalidArgument`] if there would be too many, and then nothing has changed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server may do it or not.
    pub async fn set_permits(&self, permits: u32) -> Result<(), Error> {
        self.handle.resize("set_permits", Resize::To(permits)).await
    }

    /// Adds permits, and makes the semaphore if it does not exist. There are never more than 2^31 - 1.
    ///
    /// It is sent once. Without an answer the permits may have been added or not.
    ///
    /// # Errors
    ///
    /// The same as [`set_permits`](Self::set_permits).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server may do it or not.
    pub async fn add_permits(&self, permits: u32) -> Result<(), Error> {
        self.handle.resize("add_permits", Resize::By(permits)).await
    }

    /// Asks the server how many permits nobody has; zero if more are held than there are.
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status).
    pub async fn available_permits(&self) -> Result<u32, Error> {
        let available = self.status().await?.available;
        Ok(u32::try_from(available.max(0)).unwrap_or(u32::MAX))
    }

    /// Asks the server for all that it knows about the semaphore. It changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], [`Error::SingleServerOnly`], [`Error::InvalidName`], [`Error::WrongType`], [`Error::Denied`],
    /// [`Error::Closed`].
    pub async fn status(&self) -> Result<SemaphoreStatus, Error> {
        self.handle.status().await
    }

    /// Waits until nobody has a permit: all that were acquired have come back, or were forgotten. With it, a semaphore is a wait
    /// group that survives crashes: each participant holds a permit while it works, and the permit of one that crashed comes back
    /// after its TTL. A permit that has come back does not tell whether its holder has finished its work.
    ///
    /// If nobody has a permit yet, it returns at once, or at the end of a `restart_quarantine` that goes on. So let the
    /// participants take their permits before you wait. The caller hears of a release by a message, and otherwise, as when the last
    /// permit is [forgotten](crate::Permit::forget), within 4 s. On the server it counts as a client that waits. The permits of
    /// Redisson's `RSemaphore` are not seen.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if permits were held that a server does not know because it has taken over or was restarted, and there is no
    /// [`restart_quarantine`](crate::ClientBuilder::restart_quarantine): their holders may still work. Only the call that saw those
    /// permits knows of them: call it again, and it says that all are back. With a quarantine, it waits until that is over, whoever
    /// calls; [`Error::Unavailable`] once the server has not answered for
    /// [`unavailable_after`](crate::ClientBuilder::unavailable_after); otherwise the same as [`status`](Self::status).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let importers = client.semaphore("import:42").with_permits(8);
    /// importers.returned().await?; // none of them runs any more
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn returned(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.returned_with_timeout(Duration::MAX)
    }

    /// Waits until nobody has a permit, for at most `timeout`. Zero means one look, and [`Duration::MAX`] no limit.
    ///
    /// # Errors
    ///
    /// [`Error::StillWaiting`], with the number of permits that are held; otherwise the same as [`returned`](Self::returned).
    ///
    /// # Cancel safety
    ///
    /// The same as [`returned`](Self::returned).
    #[track_caller]
    pub fn returned_with_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (handle, caller) = (self.handle.clone(), Location::caller());
        async move { handle.returned(timeout, caller).await }
    }

    /// Takes a holder's permits back. Returns true if it had them all until then. The holder learns of
    /// it at its next renewal; one of this client learns of it at once.
    ///
    /// # Errors
    ///
    /// The same as [`set_permits`](Self::set_permits).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let conversions = client.semaphore("conversions");
    /// for holder in conversions.status().await?.holders {
    ///     if holder.holder.client() == Some("decommissioned-7") {
    ///         conversions.force_release(&holder).await?;
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn force_release(&self, holder: &PermitHolder) -> Result<bool, Error> {
        self.handle.force_release(holder).await
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}
