//! Bodies that run under a mutex.

use std::future::Future;

use super::{Boxed, Outcome, run_under};
use crate::error::Error;
use crate::guard::Guard;
use crate::primitives::mutex::Mutex;

impl Mutex {
    /// Takes the lock, runs `body` under it, and releases the lock. If the lock is lost, `body` is cancelled.
    ///
    /// Inside `body`, handles of the same client re-enter this lock without a named owner. A task that `body` spawns does
    /// not, and waits for the lock: have it run in the owner of the guard, as in
    /// `tokio::spawn(async move { owner.scope(..).await })` with `guard.owner().clone()`.
    ///
    /// [`with_wait`](Self::with_wait) limits the wait for the lock; a timeout around the call would also cancel `body`.
    /// [`run_with_outcome`](Self::run_with_outcome) keeps the result of `body` even if the release finds that the lock
    /// was lost. [`run_boxed`](Self::run_boxed) is for generic code that spawns tasks.
    ///
    /// Write `async |guard| ..`, not `|guard| async ..`: only the former can borrow the guard.
    ///
    /// # Errors
    ///
    /// The same as [`lock`](Self::lock); [`Error::Lost`] if the lock was lost before `body` had ended and the lock was
    /// released. The result of `body`, if there is one, is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` at its current await, and releases the lock in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let total = client.mutex("stock:7").run(async |guard| {
    ///     println!("holding with token {}", guard.token());
    ///     40 + 2
    /// }).await?;
    /// # assert_eq!(total, 42); Ok(()) }
    /// ```
    ///
    /// A body that can fail names the type of its error, and there are two results to look at:
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let stock = client.mutex("stock:7").run(async |_| {
    ///     let text = tokio::fs::read_to_string("stock").await?;
    ///     Ok::<_, std::io::Error>(text.len())
    /// });
    /// println!("{} bytes", stock.await??);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn run<T, F>(&self, body: F) -> impl Future<Output = Result<T, Error>> + use<T, F>
    where
        F: AsyncFnOnce(&Guard) -> T,
    {
        let outcome = self.run_with_outcome(body);
        async move { outcome.await?.into_result() }
    }

    /// Takes the lock and runs `body` like [`run`](Self::run), but keeps the result of `body` even if the lock is lost
    /// afterwards.
    ///
    /// Use it if the effects of `body` cannot be repeated: a lock can expire between the end of `body` and the answer to
    /// the release. The [`Outcome`] contains both the result of `body` and that of [`Guard::release`].
    ///
    /// # Errors
    ///
    /// The same as [`lock`](Self::lock); [`Error::Lost`] if the lock was lost while `body` ran: `body` was cancelled, and
    /// has no result.
    ///
    /// # Cancel safety
    ///
    /// The same as [`run`](Self::run).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn bill() -> Result<u64, std::io::Error> { Ok(7) }
    /// # async fn example(client: leasehold::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let outcome = client.mutex("orders:42").run_with_outcome(async |_| bill().await).await?;
    /// if let Err(lost) = outcome.released {
    ///     eprintln!("billed, but another may have done so, too: {lost}");
    /// }
    /// let invoice = outcome.output?;
    /// # let _ = invoice; Ok(()) }
    /// ```
    #[track_caller]
    pub fn run_with_outcome<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<Outcome<T>, Error>> + use<T, F>
    where
        F: AsyncFnOnce(&Guard) -> T,
    {
        run_under(self.lock(), body)
    }

    /// Works like [`run`](Self::run), but its future is [`Send`] whatever the type of `body` is.
    ///
    /// The future of [`run`](Self::run) is `Send` only if that of the body is. If the body's type is a parameter, the
    /// compiler cannot know this, and `tokio::spawn` refuses the future. Here the body returns a boxed future.
    ///
    /// # Errors
    ///
    /// The same as [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// The same as [`run`](Self::run).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use leasehold::{Error, Guard, Mutex};
    /// use tokio::task::JoinHandle;
    ///
    /// type Boxed<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
    ///
    /// fn spawn_under<T, F>(lock: &Mutex, job: F) -> JoinHandle<Result<T, Error>>
    /// where
    ///     T: Send + 'static,
    ///     F: for<'a> FnOnce(&'a Guard) -> Boxed<'a, T> + Send + 'static,
    /// {
    ///     tokio::spawn(lock.run_boxed(job))
    /// }
    ///
    /// # fn example(client: leasehold::Client) {
    /// spawn_under(&client.mutex("nightly"), |guard| {
    ///     Box::pin(async move { println!("token {}", guard.token()) })
    /// });
    /// # }
    /// ```
    #[track_caller]
    pub fn run_boxed<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, F>
    where
        T: Send,
        F: for<'a> FnOnce(&'a Guard) -> Boxed<'a, T> + Send,
    {
        self.run(async move |guard: &Guard| body(guard).await)
    }
}
