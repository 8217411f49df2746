//! Bodies that read or write under a read-write lock.

use std::future::Future;

use super::{Boxed, Outcome, run_under};
use crate::error::Error;
use crate::primitives::rw_guards::{ReadGuard, WriteGuard};
use crate::primitives::rw_lock::RwLock;

impl RwLock {
    /// Takes the lock for reading, runs `body`, and releases the lock. If the lock is lost, `body` is cancelled; see
    /// [`Mutex::run`](crate::Mutex::run). [`with_wait`](Self::with_wait) limits the wait for the lock.
    ///
    /// # Errors
    ///
    /// The same as [`read`](Self::read); [`Error::Lost`] if the lock was lost before `body` had ended and the lock was
    /// released. The result of
    /// `body`, if there is one, is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` at its current await, and releases the lock in the background.
    #[track_caller]
    pub fn run_read<T, F>(&self, body: F) -> impl Future<Output = Result<T, Error>> + use<T, F>
    where
        F: AsyncFnOnce(&ReadGuard) -> T,
    {
        let outcome = self.run_read_with_outcome(body);
        async move { outcome.await?.into_result() }
    }

    /// Works like [`run_read`](Self::run_read), but keeps the result of `body` even if the lock is lost afterwards; see
    /// [`Mutex::run_with_outcome`](crate::Mutex::run_with_outcome).
    ///
    /// # Errors
    ///
    /// The same as [`read`](Self::read); [`Error::Lost`] if the lock was lost while `body` ran: `body` was
    /// cancelled, and has no result.
    ///
    /// # Cancel safety
    ///
    /// The same as [`run_read`](Self::run_read).
    #[track_caller]
    pub fn run_read_with_outcome<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<Outcome<T>, Error>> + use<T, F>
    where
        F: AsyncFnOnce(&ReadGuard) -> T,
    {
        run_under(self.read(), body)
    }

    /// Works like [`run_read`](Self::run_read), but its future is [`Send`] whatever the type of `body` is, so that generic code can
    /// spawn it; see [`Mutex::run_boxed`](crate::Mutex::run_boxed).
    ///
    /// # Errors
    ///
    /// The same as [`run_read`](Self::run_read).
    ///
    /// # Cancel safety
    ///
    /// The same as [`run_read`](Self::run_read).
    #[track_caller]
    pub fn run_read_boxed<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, F>
    where
        T: Send,
        F: for<'a> FnOnce(&'a ReadGuard) -> Boxed<'a, T> + Send,
    {
        self.run_read(async move |guard: &ReadGuard| body(guard).await)
    }

    /// Takes the lock for writing, runs `body`, and releases the lock. If the lock is lost, `body` is cancelled; see
    /// [`Mutex::run`](crate::Mutex::run). [`with_wait`](Self::with_wait) limits the wait for the lock.
    ///
    /// # Errors
    ///
    /// The same as [`write`](Self::write); [`Error::Lost`] if the lock was lost before `body` had ended and the lock was
    /// released. The result of
    /// `body`, if there is one, is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` at its current await, and releases the lock in the background.
    #[track_caller]
    pub fn run_write<T, F>(&self, body: F) -> impl Future<Output = Result<T, Error>> + use<T, F>
    where
        F: AsyncFnOnce(&WriteGuard) -> T,
    {
        let outcome = self.run_write_with_outcome(body);
        async move { outcome.await?.into_result() }
    }

    /// Works like [`run_write`](Self::run_write), but keeps the result of `body` even if the lock is lost afterwards; see
    /// [`Mutex::run_with_outcome`](crate::Mutex::run_with_outcome).
    ///
    /// # Errors
    ///
    /// The same as [`write`](Self::write); [`Error::Lost`] if the lock was lost while `body` ran: `body` was
    /// cancelled, and has no result.
    ///
    /// # Cancel safety
    ///
    /// The same as [`run_write`](Self::run_write).
    #[track_caller]
    pub fn run_write_with_outcome<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<Outcome<T>, Error>> + use<T, F>
    where
        F: AsyncFnOnce(&WriteGuard) -> T,
    {
        run_under(self.write(), body)
    }

    /// Works like [`run_write`](Self::run_write), but its future is [`Send`] whatever the type of `body` is, so that generic code can
    /// spawn it; see [`Mutex::run_boxed`](crate::Mutex::run_boxed).
    ///
    /// # Errors
    ///
    /// The same as [`run_write`](Self::run_write).
    ///
    /// # Cancel safety
    ///
    /// The same as [`run_write`](Self::run_write).
    #[track_caller]
    pub fn run_write_boxed<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, F>
    where
        T: Send,
        F: for<'a> FnOnce(&'a WriteGuard) -> Boxed<'a, T> + Send,
    {
        self.run_write(async move |guard: &WriteGuard| body(guard).await)
    }
}
