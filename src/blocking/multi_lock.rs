//! The handle to several locks that are taken together, for threads.

use std::fmt;
use std::time::Duration;

use futures_util::future::FutureExt;

use super::caller::{NamedOwner, ThisThread};
use super::runtime::Runtime;
use super::{MultiGuard, Mutex};
use crate::error::Error;
use crate::owner::Owner;
use crate::primitives::run::Outcome;
use crate::primitives::status::LockStatus;

/// A handle to several locks that are taken together, all of them or none, for threads; see
/// [`leasehold::MultiLock`](crate::MultiLock).
///
/// ```no_run
/// # fn example(client: leasehold::blocking::Client) -> Result<(), leasehold::Error> {
/// let guard = client.multi_lock(["account:7", "account:3"]).lock()?;
/// for (name, token) in guard.tokens() {
///     println!("{name} with fencing token {token}");
/// }
/// guard.unlock()
/// # }
/// ```
#[doc(alias = "RedissonMultiLock")]
#[doc(alias = "getMultiLock")]
pub struct MultiLock<O = ThisThread> {
    locks: Vec<Mutex<O>>,
    wait: Duration,
}

impl<O> MultiLock<O> {
    /// Returns a handle to the locks of `mutexes`, which may be of several clients; see
    /// [`leasehold::MultiLock::of`](crate::MultiLock::of).
    pub fn of(mutexes: impl IntoIterator<Item = Mutex<O>>) -> Self {
        let mut locks: Vec<Mutex<O>> = Vec::new();
        for mutex in mutexes {
            if !locks.iter().any(|known| known.is_same(&mutex)) {
                locks.push(mutex);
            }
        }
        Self { locks, wait: Duration::MAX }
    }

    /// Returns the names of the locks, in the order in which they were given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.locks.iter().map(Mutex::name)
    }

    /// Returns a handle with another TTL; see [`leasehold::MultiLock::with_ttl`](crate::MultiLock::with_ttl).
    #[must_use = "it returns another handle"]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        self.with(|mutex| mutex.with_ttl(ttl))
    }

    /// Returns a handle whose holds are renewed for a limited time; see
    /// [`leasehold::MultiLock::with_max_hold`](crate::MultiLock::with_max_hold).
    #[must_use = "it returns another handle"]
    pub fn with_max_hold(&self, max_hold: Duration) -> Self {
        self.with(|mutex| mutex.with_max_hold(max_hold))
    }

    /// Returns a handle whose acquisitions wait for at most `wait`; see
    /// [`leasehold::MultiLock::with_wait`](crate::MultiLock::with_wait).
    #[must_use = "it returns another handle"]
    pub fn with_wait(&self, wait: Duration) -> Self {
        Self { wait, ..self.clone() }
    }

    /// Returns a handle whose acquisitions belong to `owner` instead of the thread, and whose guards may move to other
    /// threads.
    #[must_use = "it returns another handle"]
    pub fn owned_by(&self, owner: &Owner) -> MultiLock<NamedOwner> {
        self.with(|mutex| mutex.owned_by(owner))
    }

    fn with<P>(&self, change: impl Fn(&Mutex<O>) -> Mutex<P>) -> MultiLock<P> {
        MultiLock { locks: self.locks.iter().map(change).collect(), wait: self.wait }
    }

    /// Takes all locks, and waits for as long as other holders have any of them; see
    /// [`leasehold::MultiLock::lock`](crate::MultiLock::lock).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn lock(&self) -> Result<MultiGuard<O>, Error> {
        self.wait(self.owned().lock()).map(|guard| self.guard(guard))
    }

    /// Takes all locks, and waits for at most `timeout`; see
    /// [`leasehold::MultiLock::lock_with_timeout`](crate::MultiLock::lock_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn lock_with_timeout(&self, timeout: Duration) -> Result<MultiGuard<O>, Error> {
        self.wait(self.owned().lock_with_timeout(timeout)).map(|guard| self.guard(guard))
    }

    /// Takes all locks if they are free now; see [`leasehold::MultiLock::try_lock`](crate::MultiLock::try_lock).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_lock(&self) -> Result<Option<MultiGuard<O>>, Error> {
        let guard = self.wait(self.owned().try_lock())?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Takes all locks, and waits for at most `timeout`. Returns `None` if other holders kept one of them; see
    /// [`leasehold::MultiLock::try_lock_for`](crate::MultiLock::try_lock_for).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_lock_for(&self, timeout: Duration) -> Result<Option<MultiGuard<O>>, Error> {
        let guard = self.wait(self.owned().try_lock_for(timeout))?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Takes all locks, runs `body` under them, and releases them.
    ///
    /// A thread cannot be stopped: if a lock is lost in the meantime, `body` goes on. It can learn of the loss from
    /// [`MultiGuard::is_held`] or [`MultiGuard::wait_lost`].
    ///
    /// # Errors
    ///
    /// The same as [`lock`](Self::lock); [`Error::Lost`] if a lock was lost before it was released: the result of `body` is
    /// dropped.
    ///
    /// # Panics
    ///
    /// It panics if `body` does; the locks are released.
    #[track_caller]
    pub fn run<T>(&self, body: impl FnOnce(&MultiGuard<O>) -> T) -> Result<T, Error> {
        self.run_with_outcome(body)?.into_result()
    }

    /// Works like [`run`](Self::run), but keeps the result of `body` even if a lock was lost; see
    /// [`blocking::Mutex::run_with_outcome`](crate::blocking::Mutex::run_with_outcome).
    ///
    /// # Errors
    ///
    /// The same as [`lock`](Self::lock). The [`Outcome`] reports a loss.
    ///
    /// # Panics
    ///
    /// It panics if `body` does; the locks are released.
    #[track_caller]
    pub fn run_with_outcome<T>(
        &self,
        body: impl FnOnce(&MultiGuard<O>) -> T,
    ) -> Result<Outcome<T>, Error> {
        let guard = self.lock()?;
        let output = body(&guard);
        Ok(Outcome::new(output, guard.release()))
    }

    /// Asks the servers for all that they know about each of the locks; see
    /// [`leasehold::MultiLock::status`](crate::MultiLock::status).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn status(&self) -> Result<Vec<LockStatus>, Error> {
        let together = self.owned();
        self.wait(together.status())
    }

    /// Returns the handle whose acquisitions belong to the caller.
    fn owned(&self) -> crate::MultiLock {
        crate::MultiLock::of(self.locks.iter().map(Mutex::owned)).with_wait(self.wait)
    }

    /// Waits for the answer to a call.
    fn wait<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        match self.locks.first() {
            Some(lock) => lock.caller().wait(call),
            None => call.now_or_never().expect("BUG: without locks there is nothing to wait for"),
        }
    }

    fn guard(&self, guard: crate::MultiGuard) -> MultiGuard<O> {
        let runtimes: Vec<Runtime> =
            self.locks.iter().map(|lock| lock.caller().runtime().clone()).collect();
        MultiGuard::new(guard, runtimes)
    }
}

impl<O> Clone for MultiLock<O> {
    fn clone(&self) -> Self {
        Self { locks: self.locks.clone(), wait: self.wait }
    }
}

impl<O> fmt::Debug for MultiLock<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiLock").field(&self.locks).finish()
    }
}
