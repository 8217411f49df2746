//! Items as JSON, for threads.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Delivery, Queue};
use crate::error::Error;

impl Queue {
    /// Adds a value as an item, in JSON; see [`leasehold::Queue::push_json`](crate::Queue::push_json).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn push_json<T: Serialize + ?Sized>(&self, value: &T) -> Result<u64, Error> {
        self.runtime.wait(self.queue.push_json(value))?
    }
}

impl Delivery {
    /// Reads the payload as a value in JSON; see [`leasehold::Delivery::json`](crate::Delivery::json).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPayload`]; the item stays lent.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.delivery.json()
    }
}
