//! The handle to a semaphore, for threads.

use std::fmt;
use std::time::Duration;

use super::Permit;
use super::runtime::Runtime;
use crate::error::Error;
use crate::primitives::run::Outcome;
use crate::primitives::semaphore_status::{PermitHolder, SemaphoreStatus};

/// A handle to a semaphore, for threads; see [`leasehold::Semaphore`](crate::Semaphore).
///
/// ```no_run
/// # fn convert() {}
/// # fn example(client: leasehold::blocking::Client) -> Result<(), leasehold::Error> {
/// let conversions = client.semaphore("conversions").with_permits(4);
/// let permit = conversions.acquire()?; // at most 4 at once, in all processes
/// convert();
/// permit.release()
/// # }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    semaphore: crate::Semaphore,
    runtime: Runtime,
}

impl Semaphore {
    pub(super) fn new(semaphore: crate::Semaphore, runtime: &Runtime) -> Self {
        Self { semaphore, runtime: runtime.clone() }
    }

    /// Returns the semaphore's name, which is its key on the server.
    pub fn name(&self) -> &str {
        self.semaphore.name()
    }

    /// Returns a handle that makes the semaphore where it does not exist yet; see
    /// [`leasehold::Semaphore::with_permits`](crate::Semaphore::with_permits).
    #[must_use = "it returns another handle"]
    pub fn with_permits(&self, permits: u32) -> Self {
        self.with(self.semaphore.with_permits(permits))
    }

    /// Returns a handle whose permits end after `lease`; see
    /// [`leasehold::Semaphore::with_lease`](crate::Semaphore::with_lease).
    #[must_use = "it returns another handle"]
    pub fn with_lease(&self, lease: Duration) -> Self {
        self.with(self.semaphore.with_lease(lease))
    }

    /// Returns a handle with another TTL; see [`leasehold::Semaphore::with_ttl`](crate::Semaphore::with_ttl).
    #[must_use = "it returns another handle"]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        self.with(self.semaphore.with_ttl(ttl))
    }

    /// Returns a handle whose permits are renewed for a limited time; see
    /// [`leasehold::Semaphore::with_max_hold`](crate::Semaphore::with_max_hold).
    #[must_use = "it returns another handle"]
    pub fn with_max_hold(&self, max_hold: Duration) -> Self {
        self.with(self.semaphore.with_max_hold(max_hold))
    }

    /// Returns a handle whose acquisitions wait for at most `wait`; see
    /// [`leasehold::Semaphore::with_wait`](crate::Semaphore::with_wait).
    #[must_use = "it returns another handle"]
    pub fn with_wait(&self, wait: Duration) -> Self {
        self.with(self.semaphore.with_wait(wait))
    }

    fn with(&self, semaphore: crate::Semaphore) -> Self {
        Self::new(semaphore, &self.runtime)
    }

    /// Acquires a permit, and waits until one is free; see
    /// [`leasehold::Semaphore::acquire`](crate::Semaphore::acquire).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn acquire(&self) -> Result<Permit, Error> {
        self.take(self.semaphore.acquire())
    }

    /// Acquires several permits at once; see [`leasehold::Semaphore::acquire_many`](crate::Semaphore::acquire_many).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn acquire_many(&self, weight: u32) -> Result<Permit, Error> {
        self.take(self.semaphore.acquire_many(weight))
    }

    /// Acquires a permit, and waits for at most `timeout`; see
    /// [`leasehold::Semaphore::acquire_with_timeout`](crate::Semaphore::acquire_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn acquire_with_timeout(&self, timeout: Duration) -> Result<Permit, Error> {
        self.take(self.semaphore.acquire_with_timeout(timeout))
    }

    /// Acquires several permits at once, and waits for at most `timeout`; see
    /// [`leasehold::Semaphore::acquire_many_with_timeout`](crate::Semaphore::acquire_many_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn acquire_many_with_timeout(
        &self,
        weight: u32,
        timeout: Duration,
    ) -> Result<Permit, Error> {
        self.take(self.semaphore.acquire_many_with_timeout(weight, timeout))
    }

    /// Acquires a permit if there is one now and nobody waits for it; see
    /// [`leasehold::Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_acquire(&self) -> Result<Option<Permit>, Error> {
        self.try_take(self.semaphore.try_acquire())
    }

    /// Acquires several permits if that many are free and nobody waits; see
    /// [`leasehold::Semaphore::try_acquire_many`](crate::Semaphore::try_acquire_many).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_acquire_many(&self, weight: u32) -> Result<Option<Permit>, Error> {
        self.try_take(self.semaphore.try_acquire_many(weight))
    }

    /// Acquires a permit, and waits for at most `timeout`. Returns `None` if there was none; see
    /// [`leasehold::Semaphore::try_acquire_for`](crate::Semaphore::try_acquire_for).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_acquire_for(&self, timeout: Duration) -> Result<Option<Permit>, Error> {
        self.try_take(self.semaphore.try_acquire_for(timeout))
    }

    /// Acquires several permits at once, and waits for at most `timeout`. Returns `None` if too few were free; see
    /// [`leasehold::Semaphore::try_acquire_many_for`](crate::Semaphore::try_acquire_many_for).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_acquire_many_for(
        &self,
        weight: u32,
        timeout: Duration,
    ) -> Result<Option<Permit>, Error> {
        self.try_take(self.semaphore.try_acquire_many_for(weight, timeout))
    }

    /// Acquires a permit, runs `body`, and releases the permit.
    ///
    /// A thread cannot be stopped: if the permit is lost in the meantime, `body` goes on. It can learn of the loss from
    /// [`Permit::is_held`] or [`Permit::wait_lost`].
    ///
    /// # Errors
    ///
    /// The same as [`acquire`](Self::acquire); [`Error::Lost`] if the permit was lost before it was released: the result of
    /// `body` is dropped.
    ///
    /// # Panics
    ///
    /// It panics if `body` does; the permit is released.
    #[track_caller]
    pub fn run<T>(&self, body: impl FnOnce(&Permit) -> T) -> Result<T, Error> {
        self.run_with_outcome(body)?.into_result()
    }

    /// Works like [`run`](Self::run), but keeps the result of `body` even if the permit was lost.
    ///
    /// # Errors
    ///
    /// The same as [`acquire`](Self::acquire). The [`Outcome`] reports a loss.
    ///
    /// # Panics
    ///
    /// It panics if `body` does; the permit is released.
    #[track_caller]
    pub fn run_with_outcome<T>(
        &self,
        body: impl FnOnce(&Permit) -> T,
    ) -> Result<Outcome<T>, Error> {
        let permit = self.acquire()?;
        let output = body(&permit);
        Ok(Outcome::new(output, permit.release()))
    }

    /// Sets how many permits there are; see [`leasehold::Semaphore::set_permits`](crate::Semaphore::set_permits).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn set_permits(&self, permits: u32) -> Result<(), Error> {
        self.runtime.wait(self.semaphore.set_permits(permits))?
    }

    /// Adds permits; see [`leasehold::Semaphore::add_permits`](crate::Semaphore::add_permits).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn add_permits(&self, permits: u32) -> Result<(), Error> {
        self.runtime.wait(self.semaphore.add_permits(permits))?
    }

    /// Asks the server how many permits nobody has; see
    /// [`leasehold::Semaphore::available_permits`](crate::Semaphore::available_permits).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn available_permits(&self) -> Result<u32, Error> {
        self.runtime.wait(self.semaphore.available_permits())?
    }

    /// Asks the server for all that it knows about the semaphore; see
    /// [`leasehold::Semaphore::status`](crate::Semaphore::status).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn status(&self) -> Result<SemaphoreStatus, Error> {
        self.runtime.wait(self.semaphore.status())?
    }

    /// Waits until nobody has a permit; see [`leasehold::Semaphore::returned`](crate::Semaphore::returned).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn returned(&self) -> Result<(), Error> {
        self.runtime.wait(self.semaphore.returned())?
    }

    /// Waits until nobody has a permit, for at most `timeout`; see
    /// [`leasehold::Semaphore::returned_with_timeout`](crate::Semaphore::returned_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn returned_with_timeout(&self, timeout: Duration) -> Result<(), Error> {
        self.runtime.wait(self.semaphore.returned_with_timeout(timeout))?
    }

    /// Takes a holder's permits back; see
    /// [`leasehold::Semaphore::force_release`](crate::Semaphore::force_release).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn force_release(&self, holder: &PermitHolder) -> Result<bool, Error> {
        self.runtime.wait(self.semaphore.force_release(holder))?
    }

    fn take(
        &self,
        acquire: impl Future<Output = Result<crate::Permit, Error>>,
    ) -> Result<Permit, Error> {
        Ok(Permit::new(self.runtime.wait(acquire)??, &self.runtime))
    }

    fn try_take(
        &self,
        acquire: impl Future<Output = Result<Option<crate::Permit>, Error>>,
    ) -> Result<Option<Permit>, Error> {
        let permit = self.runtime.wait(acquire)??;
        Ok(permit.map(|permit| Permit::new(permit, &self.runtime)))
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.semaphore.fmt(f)
    }
}
