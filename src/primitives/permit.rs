//! The proof that permits of a semaphore are held.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::permits::Permits;
use crate::error::{Error, LossReason};
use crate::guard::{Guard, Lost};
use crate::key::Holder;

/// Holds one permit of a [`Semaphore`](crate::Semaphore), or several that were acquired together.
///
/// It is a lease: the watchdog renews it until it is dropped, and if its process ends, the permits come back when the lease
/// ends. Dropping it gives the permits back in the background; [`release`](Self::release) waits for that, and reports
/// whether they were held until then.
///
/// It has no owner and may move to other tasks and threads. You may drop it anywhere, like a [`Guard`].
#[must_use = "the permits are given back when it is dropped"]
pub struct Permit {
    guard: Guard,
    permits: Arc<Permits>,
}

impl Permit {
    pub(super) fn new(guard: Guard, permits: Arc<Permits>) -> Self {
        Self { guard, permits }
    }

    /// Returns the semaphore's name.
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// Returns how many permits it holds.
    pub fn weight(&self) -> u32 {
        self.permits.weight()
    }

    /// Returns the text that names it on the server, as in [`SemaphoreStatus::holders`](crate::SemaphoreStatus::holders).
    pub fn holder(&self) -> Holder {
        self.guard.holder()
    }

    /// Returns true if the permits are certainly held at this moment. It costs no I/O: call it as often as you like.
    ///
    /// It is false from the local deadline on, even if no server answers, or if the host was suspended.
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Returns how long the permits are certainly held if nothing renews them; zero if they are lost.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Returns a future that resolves when the permits are lost; see [`Guard::lost`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub fn lost(&self) -> Lost {
        self.guard.lost()
    }

    /// Waits for the loss, for at most `timeout`, and returns its reason.
    pub(crate) async fn lost_within(&self, timeout: Duration) -> Option<LossReason> {
        self.guard.lost_within(timeout).await
    }

    /// Runs a future, and cancels it if the permits are lost before it ends.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the permits were lost; `future` was dropped at its current await.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops `future`; the permits are still held.
    pub async fn run_until_lost<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.guard.run_until_lost(future).await
    }

    /// Extends the lease so that it lasts for at least `lease` from now (10 ms to 30 days, and no longer than the
    /// `restart_quarantine` if there is one). It never shortens it.
    ///
    /// Use it for permits with a [fixed lease](crate::Semaphore::with_lease); the watchdog renews others anyway.
    ///
    /// # Errors
    ///
    /// The same as [`Guard::extend`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server may have extended the lease already; for this client it ends as before.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.guard.extend(lease).await
    }

    /// Gives the permits back, and waits until the server has confirmed it.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if they were no longer held: others may have had them in the meantime. [`Error::Unavailable`] if the
    /// server did not confirm it within the response timeout: the client repeats it in the background, and the permits come
    /// back at the end of their lease at the latest.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the release goes on in the background.
    pub async fn release(mut self) -> Result<(), Error> {
        self.give_back().await
    }

    /// Uses the permits up: they are not released, and return when their lease ends. Without a fixed lease, that is a TTL
    /// after this call.
    ///
    /// With a [fixed lease](crate::Semaphore::with_lease) this makes a rate limit: of `n` permits with a lease of a second,
    /// the server gives out `n` at most in any second, by its own clock.
    ///
    /// ```no_run
    /// # async fn send() {}
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    ///
    /// let rate = client.semaphore("mails per second").with_permits(10);
    /// rate.with_lease(Duration::from_secs(1)).acquire().await?.spend();
    /// send().await;
    /// # Ok(()) }
    /// ```
    pub fn spend(self) {
        self.will_be_spent();
    }

    /// Takes the permits out of the semaphore for good: there are fewer from now on. It waits until the server has
    /// confirmed it.
    ///
    /// With [`add_permits`](crate::Semaphore::add_permits) this hands out work that survives crashes: a worker that acquires a
    /// permit does a piece of work, and then forgets the permit. If the process ends before, the permit comes back, and another
    /// does the work.
    ///
    /// # Errors
    ///
    /// The same as [`release`](Self::release). After [`Error::Lost`] the permits are not forgotten: they had come back
    /// before.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the permits are forgotten in the background.
    pub fn forget(mut self) -> impl Future<Output = Result<(), Error>> + Send {
        // At once: the future may be dropped before it begins.
        let decided = self.will_be_forgotten();
        async move {
            decided?;
            self.give_back().await
        }
    }

    /// Releases, or forgets, and waits for the confirmation. The permit must not be used afterwards.
    pub(crate) async fn give_back(&mut self) -> Result<(), Error> {
        self.guard.give_back().await
    }

    /// Has the release leave the permits out until their lease ends.
    pub(crate) fn will_be_spent(&self) {
        self.guard.keep_for(LONGER_THAN_ANY_LEASE);
    }

    /// Has the release take the permits out of the semaphore. Those that are lost already come back: their worker is told so.
    pub(crate) fn will_be_forgotten(&self) -> Result<(), Error> {
        self.guard.check()?;
        self.permits.forget();
        Ok(())
    }

    /// Gives the permits back, and waits for the confirmation, for at most `limit`. Returns true if it came in time.
    pub(crate) async fn give_back_within(&mut self, limit: Duration) -> bool {
        self.guard.give_back_within(limit).await
    }

    /// Returns true if the permits were given back already.
    pub(crate) fn is_given_back(&self) -> bool {
        self.guard.is_given_back()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("semaphore", &self.name())
            .field("weight", &self.weight())
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// The release comes before that is over. How long they stay out then is said by [`Permits`].
const LONGER_THAN_ANY_LEASE: Duration = Duration::from_secs(40 * 24 * 60 * 60);
