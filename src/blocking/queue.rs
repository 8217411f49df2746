//! The handle to a queue, for threads.

use std::fmt;
use std::time::Duration;

use super::Delivery;
use super::runtime::Runtime;
use crate::error::Error;
use crate::primitives::queue_status::{DeadItem, QueueStatus};

/// A handle to a queue of items, for threads; see [`leasehold::Queue`](crate::Queue).
///
/// ```no_run
/// # fn send(mail: &[u8]) {}
/// # fn example(client: leasehold::blocking::Client) -> Result<(), leasehold::Error> {
/// let mails = client.queue("mails");
/// loop {
///     let mail = mails.pop()?; // waits for one
///     send(mail.payload());
///     mail.ack()?;
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Queue {
    pub(super) queue: crate::Queue,
    pub(super) runtime: Runtime,
}

impl Queue {
    pub(super) fn new(queue: crate::Queue, runtime: &Runtime) -> Self {
        Self { queue, runtime: runtime.clone() }
    }

    fn with(&self, queue: crate::Queue) -> Self {
        Self::new(queue, &self.runtime)
    }

    /// Returns the queue's name, which is its key on the server.
    pub fn name(&self) -> &str {
        self.queue.name()
    }

    /// Returns a handle that takes the newest item first; see
    /// [`leasehold::Queue::newest_first`](crate::Queue::newest_first).
    #[must_use = "it returns another handle"]
    pub fn newest_first(&self) -> Self {
        self.with(self.queue.newest_first())
    }

    /// Returns a handle that delivers an item at most that many times, or with `None` any number of times; see
    /// [`leasehold::Queue::with_max_deliveries`](crate::Queue::with_max_deliveries).
    #[must_use = "it returns another handle"]
    pub fn with_max_deliveries(&self, times: impl Into<Option<u32>>) -> Self {
        self.with(self.queue.with_max_deliveries(times))
    }

    /// Returns a handle whose pushes fail if the queue is full, or with `None` never is; see
    /// [`leasehold::Queue::with_capacity`](crate::Queue::with_capacity).
    #[must_use = "it returns another handle"]
    pub fn with_capacity(&self, items: impl Into<Option<u32>>) -> Self {
        self.with(self.queue.with_capacity(items))
    }

    /// Returns a handle with another TTL; see [`leasehold::Queue::with_ttl`](crate::Queue::with_ttl).
    #[must_use = "it returns another handle"]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        self.with(self.queue.with_ttl(ttl))
    }

    /// Returns a handle whose deliveries end after `lease`; see
    /// [`leasehold::Queue::with_lease`](crate::Queue::with_lease).
    #[must_use = "it returns another handle"]
    pub fn with_lease(&self, lease: Duration) -> Self {
        self.with(self.queue.with_lease(lease))
    }

    /// Returns a handle whose deliveries are renewed for a limited time; see
    /// [`leasehold::Queue::with_max_hold`](crate::Queue::with_max_hold).
    #[must_use = "it returns another handle"]
    pub fn with_max_hold(&self, max_hold: Duration) -> Self {
        self.with(self.queue.with_max_hold(max_hold))
    }

    /// Adds an item; see [`leasehold::Queue::push`](crate::Queue::push).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn push(&self, payload: impl AsRef<[u8]>) -> Result<u64, Error> {
        self.runtime.wait(self.queue.push(payload))?
    }

    /// Adds items, all or none; see [`leasehold::Queue::push_many`](crate::Queue::push_many).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn push_many(
        &self,
        payloads: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<u64, Error> {
        self.runtime.wait(self.queue.push_many(payloads))?
    }

    /// Takes an item, and waits until there is one; see [`leasehold::Queue::pop`](crate::Queue::pop).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn pop(&self) -> Result<Delivery, Error> {
        let delivery = self.runtime.wait(self.queue.pop())??;
        Ok(Delivery::new(delivery, &self.runtime))
    }

    /// Takes an item, and waits for at most `timeout`, or fails; see
    /// [`leasehold::Queue::pop_with_timeout`](crate::Queue::pop_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn pop_with_timeout(&self, timeout: Duration) -> Result<Delivery, Error> {
        let delivery = self.runtime.wait(self.queue.pop_with_timeout(timeout))??;
        Ok(Delivery::new(delivery, &self.runtime))
    }

    /// Takes an item if there is one now; see [`leasehold::Queue::try_pop`](crate::Queue::try_pop).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_pop(&self) -> Result<Option<Delivery>, Error> {
        let delivery = self.runtime.wait(self.queue.try_pop())??;
        Ok(delivery.map(|delivery| Delivery::new(delivery, &self.runtime)))
    }

    /// Takes an item, and waits for at most `timeout`, or returns `None`; see
    /// [`leasehold::Queue::try_pop_for`](crate::Queue::try_pop_for).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_pop_for(&self, timeout: Duration) -> Result<Option<Delivery>, Error> {
        let delivery = self.runtime.wait(self.queue.try_pop_for(timeout))??;
        Ok(delivery.map(|delivery| Delivery::new(delivery, &self.runtime)))
    }

    /// Asks the server how many items nobody has had yet.
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status).
    pub fn len(&self) -> Result<u64, Error> {
        self.runtime.wait(self.queue.len())?
    }

    /// Asks the server whether there is no item that nobody has had yet.
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status).
    pub fn is_empty(&self) -> Result<bool, Error> {
        self.runtime.wait(self.queue.is_empty())?
    }

    /// Asks the server for all that it knows about the queue; see [`leasehold::Queue::status`](crate::Queue::status).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn status(&self) -> Result<QueueStatus, Error> {
        self.runtime.wait(self.queue.status())?
    }

    /// Asks the server for the oldest dead items; see [`leasehold::Queue::dead`](crate::Queue::dead).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn dead(&self, limit: u32) -> Result<Vec<DeadItem>, Error> {
        self.runtime.wait(self.queue.dead(limit))?
    }

    /// Has dead items delivered again; see [`leasehold::Queue::redrive`](crate::Queue::redrive).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn redrive(&self, limit: u32) -> Result<u64, Error> {
        self.runtime.wait(self.queue.redrive(limit))?
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.queue.fmt(f)
    }
}
