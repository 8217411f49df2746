//! The proof that permits of a semaphore are held, for threads.

use std::fmt;
use std::time::Duration;

use super::runtime::{PATIENCE, Runtime};
use super::watch::{End, LossWatch};
use crate::error::{Error, LossReason};
use crate::key::Holder;

/// Holds permits of a [`Semaphore`](super::Semaphore); see [`leasehold::Permit`](crate::Permit). It may move to other
/// threads.
///
/// Dropping it gives the permits back, even in a panic, and waits for at most 250 ms for the server's answer. In async code,
/// the drop gives them back in the background.
#[must_use = "the permits are given back when it is dropped"]
pub struct Permit {
    // This is dropped before the runtime, which completes its release.
    permit: crate::Permit,
    runtime: Runtime,
    end: End,
}

impl Permit {
    pub(super) fn new(permit: crate::Permit, runtime: &Runtime) -> Self {
        runtime.answered(true);
        Self { permit, runtime: runtime.clone(), end: End::default() }
    }

    /// Returns the semaphore's name.
    pub fn name(&self) -> &str {
        self.permit.name()
    }

    /// Returns how many permits it holds.
    pub fn weight(&self) -> u32 {
        self.permit.weight()
    }

    /// Returns the text that names it on the server.
    pub fn holder(&self) -> Holder {
        self.permit.holder()
    }

    /// Returns true if the permits are certainly held at this moment. It costs no I/O: call it as often as you like.
    pub fn is_held(&self) -> bool {
        self.permit.is_held()
    }

    /// Returns how long the permits are certainly held if nothing renews them; zero if they are lost.
    pub fn remaining(&self) -> Duration {
        self.permit.remaining()
    }

    /// Waits until the permits are lost, for at most `timeout`. Returns `None` if they were not lost.
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncContext`]; [`Error::Closed`] in a fork of the process, or in the destructor of a thread-local.
    pub fn wait_lost(&self, timeout: Duration) -> Result<Option<LossReason>, Error> {
        self.runtime.wait(self.permit.lost_within(timeout))
    }

    /// Returns a watcher of the loss, which can be sent to other threads; see [`Guard::watch`](super::Guard::watch).
    pub fn watch(&self) -> LossWatch {
        self.end.watch(self.permit.lost(), &self.runtime)
    }

    /// Extends the lease so that it lasts for at least `lease` from now; see
    /// [`leasehold::Permit::extend`](crate::Permit::extend).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.runtime.wait(self.permit.extend(lease))?
    }

    /// Gives the permits back, and waits until the server has confirmed it; see
    /// [`leasehold::Permit::release`](crate::Permit::release).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`]; the permits are then given back in the background.
    pub fn release(mut self) -> Result<(), Error> {
        self.runtime.wait(self.permit.give_back())?
    }

    /// Uses the permits up: they return when their lease ends; see
    /// [`leasehold::Permit::spend`](crate::Permit::spend). It waits for the server's answer as a drop does.
    pub fn spend(self) {
        self.permit.will_be_spent();
    }

    /// Takes the permits out of the semaphore for good; see [`leasehold::Permit::forget`](crate::Permit::forget).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`]; the permits are then forgotten in the background.
    pub fn forget(mut self) -> Result<(), Error> {
        self.permit.will_be_forgotten()?;
        self.runtime.wait(self.permit.give_back())?
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // In async code, the drop of the field gives them back in the background.
        if !self.permit.is_given_back()
            && self.runtime.answers()
            && let Ok(answered) = self.runtime.wait(self.permit.give_back_within(PATIENCE))
        {
            self.runtime.answered(answered);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.permit.fmt(f)
    }
}
