//! An item that was taken from a queue.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::items::{Content, Item, Outcome};
use crate::error::{Error, LossReason};
use crate::guard::{Guard, Lost};
use crate::key::Holder;

/// An item of a [`Queue`](crate::Queue), lent to a worker.
///
/// It is a lease: the watchdog renews it until it is settled, and if its process ends, the item is delivered again when the
/// lease ends. Settle it with [`ack`](Self::ack), [`retry`](Self::retry) or [`reject`](Self::reject). Dropping it is a retry
/// at once, in the background.
///
/// It has no owner and may move to other tasks and threads.
#[must_use = "the item is delivered again when it is dropped"]
pub struct Delivery {
    guard: Guard,
    item: Arc<Item>,
    content: Content,
}

impl Delivery {
    pub(super) fn new(guard: Guard, item: Arc<Item>, content: Content) -> Self {
        item.is_seen(guard.holder().text().clone(), &content);
        Self { guard, item, content }
    }

    /// Returns the queue's name.
    pub fn queue(&self) -> &str {
        self.guard.name()
    }

    /// Returns what was pushed.
    pub fn payload(&self) -> &[u8] {
        &self.content.payload
    }

    /// Returns how often the item was delivered, this time included: 1 for the first time.
    pub fn deliveries(&self) -> u32 {
        self.content.deliveries
    }

    /// Returns the text that names it on the server, as in [`QueueStatus::lent`](crate::QueueStatus::lent).
    pub fn holder(&self) -> Holder {
        self.guard.holder()
    }

    /// Returns true if certainly nobody else has the item at this moment. It costs no I/O: call it as often as you like.
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Returns how long the item is certainly not delivered to anybody else if nothing renews it; zero if it is lost.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Returns a future that resolves when the delivery is lost: another worker may get the item. See [`Guard::lost`].
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

    /// Runs a future, and cancels it if the delivery is lost before it ends.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the delivery was lost; `future` was dropped at its current await.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops `future`; the item is still lent.
    pub async fn run_until_lost<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.guard.run_until_lost(future).await
    }

    /// Extends the lease so that it lasts for at least `lease` from now (10 ms to 30 days, and no longer than the
    /// `restart_quarantine` if there is one). It never shortens it.
    ///
    /// Use it on a queue with a [fixed lease](crate::Queue::with_lease); the watchdog renews other deliveries anyway.
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

    /// Reports the item as done, and waits until the server has confirmed it. Nobody gets it again.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the delivery had been lost: the item is delivered again, or was. [`Error::Unavailable`] if the
    /// server did not confirm it within the response timeout: the client repeats it in the background, and if it never
    /// succeeds, the item is delivered again at the end of the lease.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the item is reported as done in the background.
    pub fn ack(self) -> impl Future<Output = Result<(), Error>> + Send {
        let decided = self.will_be_done();
        self.settled(decided)
    }

    /// Gives the item back. It is delivered again after `after`, 0 to 30 days, before those that nobody has had yet. If it was
    /// delivered [as often as it may be](crate::Queue::with_max_deliveries), it is dead then, once a worker asks for an item.
    ///
    /// # Errors
    ///
    /// The same as [`ack`](Self::ack); [`Error::InvalidArgument`] for a time out of range, and then it is delivered again at
    /// once.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the item is given back in the background.
    pub fn retry(self, after: Duration) -> impl Future<Output = Result<(), Error>> + Send {
        let decided = self.will_be_retried(after);
        self.settled(decided)
    }

    /// Declares the item dead: it is not delivered again unless somebody calls [`redrive`](crate::Queue::redrive).
    ///
    /// # Errors
    ///
    /// The same as [`ack`](Self::ack).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the item is declared dead in the background.
    pub fn reject(self) -> impl Future<Output = Result<(), Error>> + Send {
        let decided = self.will_be_dead();
        self.settled(decided)
    }

    /// Gives it back as was `decided`, which is so before this future begins: it may be dropped until then.
    async fn settled(mut self, decided: Result<(), Error>) -> Result<(), Error> {
        decided?;
        self.give_back().await
    }

    /// Decides how the delivery ends. What is lost already does not end so: its worker is told that it was lost.
    fn will_end_as(&self, outcome: Outcome) -> Result<(), Error> {
        self.guard.check()?;
        self.item.ends_as(outcome);
        Ok(())
    }

    /// Reports the item as done when it is given back.
    pub(crate) fn will_be_done(&self) -> Result<(), Error> {
        self.will_end_as(Outcome::Ack)
    }

    /// Has the item be delivered again when it is given back.
    pub(crate) fn will_be_retried(&self, after: Duration) -> Result<(), Error> {
        if after > LONGEST {
            return Err(Error::argument(format!(
                "retry after {after:?}: it must be 30 days at most"
            )));
        }
        self.will_end_as(Outcome::Retry(after))
    }

    /// Declares the item dead when it is given back.
    pub(crate) fn will_be_dead(&self) -> Result<(), Error> {
        self.will_end_as(Outcome::Reject)
    }

    /// Gives the item back, and waits for the confirmation. The delivery must not be used afterwards.
    pub(crate) async fn give_back(&mut self) -> Result<(), Error> {
        self.guard.give_back().await
    }

    /// Gives the item back, and waits for the confirmation, for at most `limit`. Returns true if it came in time.
    pub(crate) async fn give_back_within(&mut self, limit: Duration) -> bool {
        self.guard.give_back_within(limit).await
    }

    /// Returns true if the item was given back already.
    pub(crate) fn is_given_back(&self) -> bool {
        self.guard.is_given_back()
    }
}

/// A retry comes at most so late.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("queue", &self.queue())
            .field("bytes", &self.payload().len())
            .field("deliveries", &self.deliveries())
            .field("remaining", &self.remaining())
            .finish()
    }
}
