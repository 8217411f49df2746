//! Bodies that run under several locks.

use std::future::Future;

use super::{Boxed, Outcome, run_under};
use crate::error::Error;
use crate::primitives::multi_guard::MultiGuard;
use crate::primitives::multi_lock::MultiLock;

impl MultiLock {
    /// Takes all locks, runs `body` under them, and releases them. If one of them is lost, `body` is cancelled.
    ///
    /// Inside `body`, handles of the same clients re-enter these locks without a named owner.
    /// [`with_wait`](Self::with_wait) limits the wait for the locks.
    ///
    /// # Errors
    ///
    /// The same as [`lock`](Self::lock); [`Error::Lost`] if a lock was lost before `body` had ended and the locks were released. The result of
    /// `body`, if there is one, is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` at its current await, and releases the locks in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let moved = client.multi_lock(["account:7", "account:3"]).run(async |guard| {
    ///     println!("both are held: {}", guard.is_held());
    ///     100
    /// }).await?;
    /// # assert_eq!(moved, 100); Ok(()) }
    /// ```
    #[track_caller]
    pub fn run<T, F>(&self, body: F) -> impl Future<Output = Result<T, Error>> + use<T, F>
    where
        F: AsyncFnOnce(&MultiGuard) -> T,
    {
        let outcome = self.run_with_outcome(body);
        async move { outcome.await?.into_result() }
    }

    /// Works like [`run`](Self::run), but keeps the result of `body` even if one of the locks is lost afterwards; see
    /// [`Mutex::run_with_outcome`](crate::Mutex::run_with_outcome).
    ///
    /// # Errors
    ///
    /// The same as [`lock`](Self::lock); [`Error::Lost`] if one of the locks was lost while `body` ran: `body` was
    /// cancelled, and has no result.
    ///
    /// # Cancel safety
    ///
    /// The same as [`run`](Self::run).
    #[track_caller]
    pub fn run_with_outcome<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<Outcome<T>, Error>> + use<T, F>
    where
        F: AsyncFnOnce(&MultiGuard) -> T,
    {
        run_under(self.lock(), body)
    }

    /// Works like [`run`](Self::run), but its future is [`Send`] whatever the type of `body` is, so that generic code can
    /// spawn it; see [`Mutex::run_boxed`](crate::Mutex::run_boxed).
    ///
    /// # Errors
    ///
    /// The same as [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// The same as [`run`](Self::run).
    #[track_caller]
    pub fn run_boxed<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, F>
    where
        T: Send,
        F: for<'a> FnOnce(&'a MultiGuard) -> Boxed<'a, T> + Send,
    {
        self.run(async move |guard: &MultiGuard| body(guard).await)
    }
}
