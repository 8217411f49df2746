//! An item that was taken from a queue, for threads.

use std::fmt;
use std::time::Duration;

use super::runtime::{PATIENCE, Runtime};
use super::watch::{End, LossWatch};
use crate::error::{Error, LossReason};
use crate::key::Holder;

/// An item of a [`Queue`](super::Queue), lent to a worker; see [`leasehold::Delivery`](crate::Delivery). It may move to other
/// threads.
///
/// Dropping it gives the item back, to be delivered again, even in a panic, and waits for at most 250 ms for the server's answer.
/// In async code, the drop gives it back in the background.
#[must_use = "the item is delivered again when it is dropped"]
pub struct Delivery {
    // This is dropped before the runtime, which completes its release.
    pub(super) delivery: crate::Delivery,
    end: End,
    runtime: Runtime,
}

impl Delivery {
    pub(super) fn new(delivery: crate::Delivery, runtime: &Runtime) -> Self {
        runtime.answered(true);
        Self { delivery, end: End::default(), runtime: runtime.clone() }
    }

    /// Returns the queue's name.
    pub fn queue(&self) -> &str {
        self.delivery.queue()
    }

    /// Returns what was pushed.
    pub fn payload(&self) -> &[u8] {
        self.delivery.payload()
    }

    /// Returns how often the item was delivered, this time included: 1 for the first time.
    pub fn deliveries(&self) -> u32 {
        self.delivery.deliveries()
    }

    /// Returns the text that names it on the server.
    pub fn holder(&self) -> Holder {
        self.delivery.holder()
    }

    /// Returns true if certainly nobody else has the item at this moment. It costs no I/O: call it as often as you like.
    pub fn is_held(&self) -> bool {
        self.delivery.is_held()
    }

    /// Returns how long the item is certainly not delivered to anybody else if nothing renews it; zero if it is lost.
    pub fn remaining(&self) -> Duration {
        self.delivery.remaining()
    }

    /// Returns a watcher of the loss, which can be sent to other threads; see [`Guard::watch`](super::Guard::watch).
    pub fn watch(&self) -> LossWatch {
        self.end.watch(self.delivery.lost(), &self.runtime)
    }

    /// Waits until the delivery is lost, for at most `timeout`. Returns `None` if it was not lost.
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncContext`]; [`Error::Closed`] in a fork of the process, or in the destructor of a thread-local.
    pub fn wait_lost(&self, timeout: Duration) -> Result<Option<LossReason>, Error> {
        self.runtime.wait(self.delivery.lost_within(timeout))
    }

    /// Extends the lease so that it lasts for at least `lease` from now; see
    /// [`leasehold::Delivery::extend`](crate::Delivery::extend).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.runtime.wait(self.delivery.extend(lease))?
    }

    /// Reports the item as done; see [`leasehold::Delivery::ack`](crate::Delivery::ack).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`]; the item is then reported as done in the background.
    pub fn ack(mut self) -> Result<(), Error> {
        self.delivery.will_be_done()?;
        self.runtime.wait(self.delivery.give_back())?
    }

    /// Gives the item back, to be delivered again after `after`; see
    /// [`leasehold::Delivery::retry`](crate::Delivery::retry).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`]; the item is then given back in the background.
    pub fn retry(mut self, after: Duration) -> Result<(), Error> {
        self.delivery.will_be_retried(after)?;
        self.runtime.wait(self.delivery.give_back())?
    }

    /// Declares the item dead; see [`leasehold::Delivery::reject`](crate::Delivery::reject).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`]; the item is then declared dead in the background.
    pub fn reject(mut self) -> Result<(), Error> {
        self.delivery.will_be_dead()?;
        self.runtime.wait(self.delivery.give_back())?
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        // In async code, the drop of the field gives it back in the background.
        if !self.delivery.is_given_back()
            && self.runtime.answers()
            && let Ok(answered) = self.runtime.wait(self.delivery.give_back_within(PATIENCE))
        {
            self.runtime.answered(answered);
        }
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.delivery.fmt(f)
    }
}
