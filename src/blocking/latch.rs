//! The handle to a latch, for threads.

use std::fmt;
use std::time::Duration;

use super::runtime::Runtime;
use crate::error::Error;

/// A handle to a latch, for threads; see [`leasehold::Latch`](crate::Latch).
///
/// ```no_run
/// # use std::time::Duration;
/// # fn warm_up() {}
/// # fn example(client: leasehold::blocking::Client) -> Result<(), leasehold::Error> {
/// let ready = client.latch("deploy:42:ready");
/// ready.try_set_count(3, Duration::from_secs(3600))?; // whoever comes first
/// warm_up();
/// ready.count_down()?;
/// ready.wait_with_timeout(Duration::from_secs(60)) // until all three are ready
/// # }
/// ```
#[doc(alias = "RCountDownLatch")]
#[derive(Clone)]
pub struct Latch {
    latch: crate::Latch,
    runtime: Runtime,
}

impl Latch {
    pub(super) fn new(latch: crate::Latch, runtime: &Runtime) -> Self {
        Self { latch, runtime: runtime.clone() }
    }

    /// Returns the latch's name, which is its key on the server.
    pub fn name(&self) -> &str {
        self.latch.name()
    }

    /// Shuts the latch until `count` counts were made, if it is open; see
    /// [`leasehold::Latch::try_set_count`](crate::Latch::try_set_count).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn try_set_count(&self, count: u64, ttl: Duration) -> Result<bool, Error> {
        self.runtime.wait(self.latch.try_set_count(count, ttl))?
    }

    /// Makes one of the counts, and returns how many are left; see
    /// [`leasehold::Latch::count_down`](crate::Latch::count_down).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn count_down(&self) -> Result<u64, Error> {
        self.runtime.wait(self.latch.count_down())?
    }

    /// Asks the server how many counts are left; see [`leasehold::Latch::count`](crate::Latch::count).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn count(&self) -> Result<u64, Error> {
        self.runtime.wait(self.latch.count())?
    }

    /// Waits until the latch is open; see [`leasehold::Latch::wait`](crate::Latch::wait).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn wait(&self) -> Result<(), Error> {
        self.runtime.wait(self.latch.wait())?
    }

    /// Waits until the latch is open, for at most `timeout`; see
    /// [`leasehold::Latch::wait_with_timeout`](crate::Latch::wait_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn wait_with_timeout(&self, timeout: Duration) -> Result<(), Error> {
        self.runtime.wait(self.latch.wait_with_timeout(timeout))?
    }

    /// Deletes the latch, which opens it; see [`leasehold::Latch::delete`](crate::Latch::delete).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn delete(&self) -> Result<bool, Error> {
        self.runtime.wait(self.latch.delete())?
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.latch.fmt(f)
    }
}
