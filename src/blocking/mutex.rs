//! The handle to a reentrant lock, for threads.

use std::fmt;
use std::time::Duration;

use super::Guard;
use super::caller::{Caller, NamedOwner, ThisThread};
use crate::error::Error;
use crate::key::Holder;
use crate::owner::Owner;
use crate::primitives::run::Outcome;
use crate::primitives::status::LockStatus;

/// A handle to a reentrant lock, for threads; see [`leasehold::Mutex`](crate::Mutex).
pub struct Mutex<O = ThisThread> {
    mutex: crate::Mutex,
    caller: Caller<O>,
}

impl<O> Mutex<O> {
    pub(super) fn new(mutex: crate::Mutex, caller: Caller<O>) -> Self {
        Self { mutex, caller }
    }

    /// Returns the lock's name, which is its key on the servers.
    pub fn name(&self) -> &str {
        self.mutex.name()
    }

    /// Takes the lock, and waits for as long as another holder has it; see [`leasehold::Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn lock(&self) -> Result<Guard<O>, Error> {
        self.caller.take(self.owned().lock())
    }

    /// Takes the lock, and waits for at most `timeout`; see
    /// [`leasehold::Mutex::lock_with_timeout`](crate::Mutex::lock_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn lock_with_timeout(&self, timeout: Duration) -> Result<Guard<O>, Error> {
        self.caller.take(self.owned().lock_with_timeout(timeout))
    }

    /// Takes the lock if it is free now; see [`leasehold::Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_lock(&self) -> Result<Option<Guard<O>>, Error> {
        self.caller.try_take(self.owned().try_lock())
    }

    /// Takes the lock, and waits for at most `timeout`. Returns `None` if another holder kept it; see
    /// [`leasehold::Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_lock_for(&self, timeout: Duration) -> Result<Option<Guard<O>>, Error> {
        self.caller.try_take(self.owned().try_lock_for(timeout))
    }

    /// Takes the lock, runs `body` under it, and releases it.
    ///
    /// A thread cannot be stopped: if the lock is lost in the meantime, `body` goes on. It can learn of the loss from
    /// [`Guard::is_held`], and another thread from [`Guard::watch`]. [`run_with_outcome`](Self::run_with_outcome) keeps its result even
    /// then.
    ///
    /// # Errors
    ///
    /// The same as [`lock`](Self::lock); [`Error::Lost`] if the lock was lost before it was released: the result of
    /// `body` is dropped.
    ///
    /// # Panics
    ///
    /// It panics if `body` does; the lock is released.
    #[track_caller]
    pub fn run<T>(&self, body: impl FnOnce(&Guard<O>) -> T) -> Result<T, Error> {
        self.run_with_outcome(body)?.into_result()
    }

    /// Takes the lock and runs `body` like [`run`](Self::run), but keeps the result of `body` even if the lock was lost.
    ///
    /// ```no_run
    /// # fn bill() -> Result<u64, std::io::Error> { Ok(7) }
    /// # fn example(client: leasehold::blocking::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let outcome = client.mutex("orders:42").run_with_outcome(|_| bill())?;
    /// if let Err(lost) = outcome.released {
    ///     eprintln!("billed, but another may have done so, too: {lost}");
    /// }
    /// let invoice = outcome.output?;
    /// # let _ = invoice; Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`lock`](Self::lock). The [`Outcome`] reports a loss.
    ///
    /// # Panics
    ///
    /// It panics if `body` does; the lock is released.
    #[track_caller]
    pub fn run_with_outcome<T>(
        &self,
        body: impl FnOnce(&Guard<O>) -> T,
    ) -> Result<Outcome<T>, Error> {
        let guard = self.lock()?;
        let output = body(&guard);
        Ok(Outcome::new(output, guard.release()))
    }

    /// Returns a handle whose holds end after `lease`; see [`leasehold::Mutex::with_lease`](crate::Mutex::with_lease).
    #[must_use = "it returns another handle"]
    pub fn with_lease(&self, lease: Duration) -> Self {
        self.with(self.mutex.with_lease(lease))
    }

    /// Returns a handle with another TTL; see [`leasehold::Mutex::with_ttl`](crate::Mutex::with_ttl).
    #[must_use = "it returns another handle"]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        self.with(self.mutex.with_ttl(ttl))
    }

    /// Returns a handle whose holds are renewed for a limited time; see
    /// [`leasehold::Mutex::with_max_hold`](crate::Mutex::with_max_hold).
    #[must_use = "it returns another handle"]
    pub fn with_max_hold(&self, max_hold: Duration) -> Self {
        self.with(self.mutex.with_max_hold(max_hold))
    }

    /// Returns a handle whose locks stay taken for at least `min_hold`; see
    /// [`leasehold::Mutex::with_min_hold`](crate::Mutex::with_min_hold).
    #[must_use = "it returns another handle"]
    pub fn with_min_hold(&self, min_hold: Duration) -> Self {
        self.with(self.mutex.with_min_hold(min_hold))
    }

    /// Returns a handle whose acquisitions wait for at most `wait`; see
    /// [`leasehold::Mutex::with_wait`](crate::Mutex::with_wait).
    #[must_use = "it returns another handle"]
    pub fn with_wait(&self, wait: Duration) -> Self {
        self.with(self.mutex.with_wait(wait))
    }

    /// Returns a handle whose acquisitions belong to `owner` instead of the thread, and whose guards may move to other
    /// threads.
    #[must_use = "it returns another handle"]
    pub fn owned_by(&self, owner: &Owner) -> Mutex<NamedOwner> {
        Mutex::new(self.mutex.clone(), self.caller.named(owner))
    }

    /// Asks the servers for all that they know about the lock; see [`leasehold::Mutex::status`](crate::Mutex::status).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn status(&self) -> Result<LockStatus, Error> {
        self.caller.wait(self.mutex.status())
    }

    /// Asks the servers whether anybody holds the lock; see [`leasehold::Mutex::is_locked`](crate::Mutex::is_locked).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn is_locked(&self) -> Result<bool, Error> {
        self.caller.wait(self.mutex.is_locked())
    }

    /// Asks the servers who holds the lock; see [`leasehold::Mutex::holder`](crate::Mutex::holder).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn holder(&self) -> Result<Option<Holder>, Error> {
        self.caller.wait(self.mutex.holder())
    }

    /// Asks the servers when the lock expires; see [`leasehold::Mutex::remaining_ttl`](crate::Mutex::remaining_ttl).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn remaining_ttl(&self) -> Result<Option<Duration>, Error> {
        self.caller.wait(self.mutex.remaining_ttl())
    }

    /// Frees the lock whoever holds it; see [`leasehold::Mutex::force_unlock`](crate::Mutex::force_unlock).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn force_unlock(&self) -> Result<bool, Error> {
        self.caller.wait(self.mutex.force_unlock())
    }

    /// Frees the lock if `holder` still holds it; see
    /// [`leasehold::Mutex::force_unlock_if`](crate::Mutex::force_unlock_if).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn force_unlock_if(&self, holder: &Holder) -> Result<bool, Error> {
        self.caller.wait(self.mutex.force_unlock_if(holder))
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.mutex.is_same(&other.mutex)
    }

    pub(super) fn caller(&self) -> &Caller<O> {
        &self.caller
    }

    /// Returns the handle whose acquisitions belong to the caller.
    pub(super) fn owned(&self) -> crate::Mutex {
        self.mutex.owned_by(&self.caller.owner())
    }

    fn with(&self, mutex: crate::Mutex) -> Self {
        Self::new(mutex, self.caller.clone())
    }
}

impl<O> Clone for Mutex<O> {
    fn clone(&self) -> Self {
        Self::new(self.mutex.clone(), self.caller.clone())
    }
}

impl<O> fmt::Debug for Mutex<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mutex.fmt(f)
    }
}
