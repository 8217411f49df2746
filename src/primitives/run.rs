//! Running a body under a lock, in the forms that callers need.

use std::borrow::Borrow;
use std::future::Future;
use std::pin::Pin;

use super::mutex::Mutex;
use crate::error::Error;
use crate::guard::Guard;

impl Mutex {
    /// Takes the lock, runs `body` under it, and releases the lock. If the lock is lost, `body` is cancelled.
    ///
    /// Inside `body`, handles of the same client re-enter this lock without a named owner.
    ///
    /// [`run_with_outcome`](Self::run_with_outcome) keeps the result of `body` even if the release finds that the lock
    /// was lost; [`run_boxed`](Self::run_boxed) is for generic code that spawns tasks.
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
    /// the release. The [`Outcome`] contains both the result of `body` and that of [`Guard::unlock`].
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
        F: for<'a> FnOnce(&'a Guard) -> Pin<Box<dyn Future<Output = T> + Send + 'a>> + Send,
    {
        self.run(async move |guard: &Guard| body(guard).await)
    }
}

/// Runs `body` under the guard that `acquire` returns, and then releases the lock.
pub(super) async fn run_under<G, T, F>(
    acquire: impl Future<Output = Result<G, Error>>,
    body: F,
) -> Result<Outcome<T>, Error>
where
    G: Borrow<Guard> + Into<Guard>,
    F: AsyncFnOnce(&G) -> T,
{
    let of_kind = acquire.await?;
    let guard: &Guard = of_kind.borrow();
    let body = guard.owner().run_body(guard.key(), body(&of_kind));
    let output = guard.run_until_lost(body).await?;
    Ok(Outcome::new(output, of_kind.into().unlock().await))
}

/// The result of a body that ran to its end under a lock; see [`Mutex::run_with_outcome`].
#[derive(Debug)]
#[must_use = "the lock may have been lost before it was released"]
#[non_exhaustive]
pub struct Outcome<T> {
    /// The value that the body returned.
    pub output: T,
    /// The result of [`Guard::unlock`]: [`Error::Lost`] if the lock was not held until its release. A release that no
    /// server has confirmed yet goes on in the background, and is not an error here.
    pub released: Result<(), Error>,
}

impl<T> Outcome<T> {
    /// Returns the output if the lock was held until it was released; otherwise drops the output and returns the error.
    ///
    /// # Errors
    ///
    /// The error of [`released`](Self::released).
    pub fn into_result(self) -> Result<T, Error> {
        self.released.map(|()| self.output)
    }

    pub(crate) fn new(output: T, unlocked: Result<(), Error>) -> Self {
        let released = match unlocked {
            // The body has ended, and had the lock all the time; the release goes on in the background.
            Err(Error::Unavailable { .. }) => Ok(()),
            unlocked => unlocked,
        };
        Self { output, released }
    }
}
