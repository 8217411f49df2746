//! The handle to a read-write lock, for threads.

use std::fmt;
use std::time::Duration;

use super::caller::{Caller, NamedOwner, ThisThread};
use super::{ReadGuard, WriteGuard};
use crate::error::Error;
use crate::key::Holder;
use crate::owner::Owner;
use crate::primitives::run::Outcome;
use crate::primitives::status::LockStatus;

/// A handle to a read-write lock, for threads; see [`leasehold::RwLock`](crate::RwLock). A thread that writes may also read;
/// one that reads cannot write.
pub struct RwLock<O = ThisThread> {
    lock: crate::RwLock,
    caller: Caller<O>,
}

impl<O> RwLock<O> {
    pub(super) fn new(lock: crate::RwLock, caller: Caller<O>) -> Self {
        Self { lock, caller }
    }

    /// Returns the lock's name, which is its key on the servers.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// Returns a handle whose holds end after `lease`; see [`leasehold::RwLock::with_lease`](crate::RwLock::with_lease).
    #[must_use = "it returns another handle"]
    pub fn with_lease(&self, lease: Duration) -> Self {
        self.with(self.lock.with_lease(lease))
    }

    /// Returns a handle with another TTL; see [`leasehold::RwLock::with_ttl`](crate::RwLock::with_ttl).
    #[must_use = "it returns another handle"]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        self.with(self.lock.with_ttl(ttl))
    }

    /// Returns a handle whose holds are renewed for a limited time; see
    /// [`leasehold::RwLock::with_max_hold`](crate::RwLock::with_max_hold).
    #[must_use = "it returns another handle"]
    pub fn with_max_hold(&self, max_hold: Duration) -> Self {
        self.with(self.lock.with_max_hold(max_hold))
    }

    /// Returns a handle whose readers and writers keep their part for at least `min_hold`; see
    /// [`leasehold::RwLock::with_min_hold`](crate::RwLock::with_min_hold).
    #[must_use = "it returns another handle"]
    pub fn with_min_hold(&self, min_hold: Duration) -> Self {
        self.with(self.lock.with_min_hold(min_hold))
    }

    /// Returns a handle whose acquisitions wait for at most `wait`; see
    /// [`leasehold::RwLock::with_wait`](crate::RwLock::with_wait).
    #[must_use = "it returns another handle"]
    pub fn with_wait(&self, wait: Duration) -> Self {
        self.with(self.lock.with_wait(wait))
    }

    /// Returns a handle whose acquisitions belong to `owner` instead of the thread, and whose guards may move to other
    /// threads.
    #[must_use = "it returns another handle"]
    pub fn owned_by(&self, owner: &Owner) -> RwLock<NamedOwner> {
        RwLock::new(self.lock.clone(), self.caller.named(owner))
    }

    fn with(&self, lock: crate::RwLock) -> Self {
        Self::new(lock, self.caller.clone())
    }

    /// Takes the lock for reading, and waits for as long as that takes; see [`leasehold::RwLock::read`](crate::RwLock::read).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn read(&self) -> Result<ReadGuard<O>, Error> {
        Ok(ReadGuard::new(self.caller.wait(self.owned().read())?, self.caller.runtime()))
    }

    /// Takes the lock for reading, and waits for at most `timeout`; see
    /// [`leasehold::RwLock::read_with_timeout`](crate::RwLock::read_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn read_with_timeout(&self, timeout: Duration) -> Result<ReadGuard<O>, Error> {
        let guard = self.caller.wait(self.owned().read_with_timeout(timeout))?;
        Ok(ReadGuard::new(guard, self.caller.runtime()))
    }

    /// Takes the lock for reading if that can be done now; see [`leasehold::RwLock::try_read`](crate::RwLock::try_read).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_read(&self) -> Result<Option<ReadGuard<O>>, Error> {
        self.try_read_for(Duration::ZERO)
    }

    /// Takes the lock for reading, and waits for at most `timeout`. Returns `None` on a timeout; see
    /// [`leasehold::RwLock::try_read_for`](crate::RwLock::try_read_for).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_read_for(&self, timeout: Duration) -> Result<Option<ReadGuard<O>>, Error> {
        let guard = self.caller.wait(self.owned().try_read_for(timeout))?;
        Ok(guard.map(|guard| ReadGuard::new(guard, self.caller.runtime())))
    }

    /// Takes the lock for reading, runs `body` under it, and releases it; see
    /// [`blocking::Mutex::run`](crate::blocking::Mutex::run).
    ///
    /// # Errors
    ///
    /// The same as [`read`](Self::read); [`Error::Lost`] if the lock was lost before it was released.
    ///
    /// # Panics
    ///
    /// It panics if `body` does; the lock is released.
    #[track_caller]
    pub fn run_read<T>(&self, body: impl FnOnce(&ReadGuard<O>) -> T) -> Result<T, Error> {
        self.run_read_with_outcome(body)?.into_result()
    }

    /// Works like [`run_read`](Self::run_read), but keeps the result of `body` even if the lock was lost; see
    /// [`blocking::Mutex::run_with_outcome`](crate::blocking::Mutex::run_with_outcome).
    ///
    /// # Errors
    ///
    /// The same as [`read`](Self::read). The [`Outcome`] reports a loss.
    ///
    /// # Panics
    ///
    /// It panics if `body` does; the lock is released.
    #[track_caller]
    pub fn run_read_with_outcome<T>(
        &self,
        body: impl FnOnce(&ReadGuard<O>) -> T,
    ) -> Result<Outcome<T>, Error> {
        let guard = self.read()?;
        let output = body(&guard);
        Ok(Outcome::new(output, guard.release()))
    }

    /// Takes the lock for writing, and waits for as long as that takes; see
    /// [`leasehold::RwLock::write`](crate::RwLock::write).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn write(&self) -> Result<WriteGuard<O>, Error> {
        Ok(WriteGuard::new(self.caller.wait(self.owned().write())?, self.caller.runtime()))
    }

    /// Takes the lock for writing, and waits for at most `timeout`; see
    /// [`leasehold::RwLock::write_with_timeout`](crate::RwLock::write_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn write_with_timeout(&self, timeout: Duration) -> Result<WriteGuard<O>, Error> {
        let guard = self.caller.wait(self.owned().write_with_timeout(timeout))?;
        Ok(WriteGuard::new(guard, self.caller.runtime()))
    }

    /// Takes the lock for writing if it is free now; see [`leasehold::RwLock::try_write`](crate::RwLock::try_write).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_write(&self) -> Result<Option<WriteGuard<O>>, Error> {
        self.try_write_for(Duration::ZERO)
    }

    /// Takes the lock for writing, and waits for at most `timeout`. Returns `None` on a timeout; see
    /// [`leasehold::RwLock::try_write_for`](crate::RwLock::try_write_for).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_write_for(&self, timeout: Duration) -> Result<Option<WriteGuard<O>>, Error> {
        let guard = self.caller.wait(self.owned().try_write_for(timeout))?;
        Ok(guard.map(|guard| WriteGuard::new(guard, self.caller.runtime())))
    }

    /// Takes the lock for writing, runs `body` under it, and releases it; see
    /// [`blocking::Mutex::run`](crate::blocking::Mutex::run).
    ///
    /// # Errors
    ///
    /// The same as [`write`](Self::write); [`Error::Lost`] if the lock was lost before it was released.
    ///
    /// # Panics
    ///
    /// It panics if `body` does; the lock is released.
    #[track_caller]
    pub fn run_write<T>(&self, body: impl FnOnce(&WriteGuard<O>) -> T) -> Result<T, Error> {
        self.run_write_with_outcome(body)?.into_result()
    }

    /// Works like [`run_write`](Self::run_write), but keeps the result of `body` even if the lock was lost; see
    /// [`blocking::Mutex::run_with_outcome`](crate::blocking::Mutex::run_with_outcome).
    ///
    /// # Errors
    ///
    /// The same as [`write`](Self::write). The [`Outcome`] reports a loss.
    ///
    /// # Panics
    ///
    /// It panics if `body` does; the lock is released.
    #[track_caller]
    pub fn run_write_with_outcome<T>(
        &self,
        body: impl FnOnce(&WriteGuard<O>) -> T,
    ) -> Result<Outcome<T>, Error> {
        let guard = self.write()?;
        let output = body(&guard);
        Ok(Outcome::new(output, guard.release()))
    }

    /// Asks the servers whether anybody reads or writes; see [`leasehold::RwLock::is_locked`](crate::RwLock::is_locked).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn is_locked(&self) -> Result<bool, Error> {
        self.caller.wait(self.lock.is_locked())
    }

    /// Asks the servers who holds the lock: the writer, or one of the readers; see
    /// [`leasehold::RwLock::holder`](crate::RwLock::holder).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn holder(&self) -> Result<Option<Holder>, Error> {
        self.caller.wait(self.lock.holder())
    }

    /// Asks the servers when the whole lock expires; see
    /// [`leasehold::RwLock::remaining_ttl`](crate::RwLock::remaining_ttl).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn remaining_ttl(&self) -> Result<Option<Duration>, Error> {
        self.caller.wait(self.lock.remaining_ttl())
    }

    /// Asks the servers who holds the lock, and who waits for it; see [`leasehold::RwLock::status`](crate::RwLock::status).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn status(&self) -> Result<LockStatus, Error> {
        self.caller.wait(self.lock.status())
    }

    /// Frees the lock, whoever reads or writes; see [`leasehold::RwLock::force_unlock`](crate::RwLock::force_unlock).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn force_unlock(&self) -> Result<bool, Error> {
        self.caller.wait(self.lock.force_unlock())
    }

    /// Ends the part of `holder`; see [`leasehold::RwLock::force_unlock_if`](crate::RwLock::force_unlock_if).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn force_unlock_if(&self, holder: &Holder) -> Result<bool, Error> {
        self.caller.wait(self.lock.force_unlock_if(holder))
    }

    /// Returns the handle whose acquisitions belong to the caller.
    fn owned(&self) -> crate::RwLock {
        self.lock.owned_by(&self.caller.owner())
    }
}

impl<O> Clone for RwLock<O> {
    fn clone(&self) -> Self {
        Self::new(self.lock.clone(), self.caller.clone())
    }
}

impl<O> fmt::Debug for RwLock<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}
