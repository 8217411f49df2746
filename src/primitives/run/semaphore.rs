//! Bodies that run with a permit.

use std::future::Future;

use super::{Boxed, Outcome, run_with};
use crate::error::Error;
use crate::primitives::permit::Permit;
use crate::primitives::semaphore::Semaphore;

impl Semaphore {
    /// Acquires a permit, runs `body`, and releases the permit. If the permit is lost, `body` is cancelled.
    /// [`with_wait`](Self::with_wait) limits the wait for the permit.
    ///
    /// # Errors
    ///
    /// The same as [`acquire`](Self::acquire); [`Error::Lost`] if the permit was lost before it was released. The result of
    /// `body`, if there is one, is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` at its current await, and releases the permit in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let total = client.semaphore("reports").with_permits(2).run(async |_| 40 + 2).await?;
    /// # assert_eq!(total, 42); Ok(()) }
    /// ```
    #[track_caller]
    pub fn run<T, F>(&self, body: F) -> impl Future<Output = Result<T, Error>> + use<T, F>
    where
        F: AsyncFnOnce(&Permit) -> T,
    {
        let outcome = self.run_with_outcome(body);
        async move { outcome.await?.into_result() }
    }

    /// Works like [`run`](Self::run), but keeps the result of `body` even if the permit is lost afterwards; see
    /// [`Mutex::run_with_outcome`](crate::Mutex::run_with_outcome).
    ///
    /// # Errors
    ///
    /// The same as [`acquire`](Self::acquire); [`Error::Lost`] if the permit was lost while `body` ran: `body` was
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
        F: AsyncFnOnce(&Permit) -> T,
    {
        run_with(self.acquire(), body)
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
        F: for<'a> FnOnce(&'a Permit) -> Boxed<'a, T> + Send,
    {
        self.run(async move |permit: &Permit| body(permit).await)
    }
}
