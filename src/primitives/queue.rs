//! The handle to a queue of items.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::asking::{ask_one, check_name};
use super::delivery::Delivery;
use super::items::Items;
use super::queue_status::{DeadItem, QueueStatus};
use super::replies::LISTED;
use crate::clock::Timestamp;
use crate::config::{LeaseTerms, Terms};
use crate::engine::gate::{Engine, Until};
use crate::error::Error;
use crate::key::LockKind;
use crate::script::{Call, Reply};

/// A handle to a queue of items on one server: a list that loses nothing when a worker dies.
///
/// A worker that [pops](Self::pop) an item has it on loan: the [`Delivery`] is a lease that is renewed while it exists.
/// [`Delivery::ack`] reports the item as done. If the worker ends before that, is stopped, or gives the item back, the item is
/// delivered again, to another worker. A worker whose delivery was lost learns it, as the holder of a lock does.
///
/// * Each item is at any moment in exactly one place: waiting, lent, given back for a retry, dead, or done. It is never in two
///   deliveries that are both [`is_held`](Delivery::is_held).
/// * Each item is delivered **at least once**: a worker may have done its work and end before the `ack`. Make the work safe to
///   repeat.
/// * Items come in the order of their pushes, or [newest first](Self::newest_first); those that are delivered again come first.
/// * Workers get items in the order in which they asked, in all processes. A push hands its item to the first that waits, by a
///   message, which brings an item of at most 8 KiB along. A longer one costs the worker a request, and so does each one with a
///   `restart_quarantine`, which Sentinel and Cluster have by default, and with [`synced`](crate::ClientBuilder::synced).
/// * An item that was delivered [ten times](Self::with_max_deliveries) is dead: see [`dead`](Self::dead) and
///   [`redrive`](Self::redrive).
///
/// It is no job framework: it has no schedules, priorities or results. It needs one server, behind Sentinels or in a cluster
/// as well; a failover or restart that loses the server's last writes loses the pushes among them.
///
/// The list is that of Redisson's `RQueue` and `RDeque` with a codec of strings or bytes, so a Java program may push.
/// An item that Java polls is not lent: it is gone.
///
/// # Examples
///
/// ```no_run
/// # async fn send(mail: &[u8]) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
/// use std::time::Duration;
///
/// let mails = client.queue("mails");
/// mails.push("to: kim").await?;
///
/// let mail = mails.pop().await?; // waits for one
/// match mail.run_until_lost(send(mail.payload())).await? {
///     Ok(()) => mail.ack().await?,
///     Err(_) => mail.retry(Duration::from_secs(30)).await?,
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "RQueue")]
#[doc(alias = "RBlockingQueue")]
#[doc(alias = "RDeque")]
#[derive(Clone)]
pub struct Queue {
    pub(super) engine: Arc<Engine>,
    pub(super) items: Items,
    pub(super) terms: Terms,
}

impl Queue {
    pub(crate) fn new(engine: &Arc<Engine>, name: &Arc<str>) -> Self {
        // Each worker has a place of its own in the server's queue.
        let terms = Terms { fair: true, ..Terms::of(LeaseTerms::Watched(engine.config.ttl)) };
        Self { engine: engine.clone(), items: Items::new(name), terms }
    }

    /// Returns the queue's name, which is its key on the server.
    pub fn name(&self) -> &str {
        self.items.name()
    }

    fn with_items(&self, change: impl FnOnce(&mut Items)) -> Self {
        let mut queue = self.clone();
        change(&mut queue.items);
        queue
    }

    fn on_terms(&self, change: impl FnOnce(&mut Terms)) -> Self {
        let mut queue = self.clone();
        change(&mut queue.terms);
        queue
    }

    /// Returns a handle that takes the newest item first: a stack. Workers of both sorts may take from one queue.
    #[must_use = "it returns another handle"]
    pub fn newest_first(&self) -> Self {
        self.with_items(|items| items.newest_first = true)
    }

    /// Returns a handle that delivers an item `times` times at most, 1 to 1,000,000; `None` means any number of times. An item
    /// that comes back after that is dead. The default is 10. The first call fails with [`Error::InvalidConfig`] if the number
    /// is zero or above that range.
    ///
    /// A delivery that its worker never saw, since the future of the pop was dropped, is not counted.
    #[must_use = "it returns another handle"]
    pub fn with_max_deliveries(&self, times: impl Into<Option<u32>>) -> Self {
        self.with_items(|items| items.most_often = times.into())
    }

    /// Returns a handle whose pushes fail with [`Error::QueueFull`] if there would be more than `items` items that are neither
    /// done nor dead; one push of more than `items` fails with [`Error::InvalidArgument`]. It may be 1 to [`u32::MAX`]; `None`, the
    /// default, means any number. With zero, nothing could ever be pushed: the first call fails with [`Error::InvalidConfig`].
    #[must_use = "it returns another handle"]
    pub fn with_capacity(&self, items: impl Into<Option<u32>>) -> Self {
        self.with_items(|all| all.capacity = items.into())
    }

    /// Returns a handle whose deliveries the watchdog renews every third of `ttl` (10 ms to 30 days, and no longer than the
    /// `restart_quarantine` if there is one; default: the client's TTL). A crashed worker's item comes again after at most `ttl`.
    #[must_use = "it returns another handle"]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        self.on_terms(|terms| terms.lease = LeaseTerms::Watched(ttl))
    }

    /// Returns a handle whose deliveries end after `lease`, with the range of [`with_ttl`](Self::with_ttl), and are not renewed.
    #[must_use = "it returns another handle"]
    pub fn with_lease(&self, lease: Duration) -> Self {
        self.on_terms(|terms| terms.lease = LeaseTerms::Fixed(lease))
    }

    /// Returns a handle whose deliveries are renewed for `max_hold` at most, and are lost at the end of the lease that they
    /// have then: a worker that hangs does not keep its item forever. It must not be zero.
    #[must_use = "it returns another handle"]
    pub fn with_max_hold(&self, max_hold: Duration) -> Self {
        self.on_terms(|terms| terms.max_hold = Some(max_hold))
    }

    /// Adds an item of at most 16 MiB. Returns how many items there are now that are neither done nor dead.
    ///
    /// It is sent once. Without an answer the item may have been added or not.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]; [`Error::QueueFull`]; [`Error::SingleServerOnly`]; [`Error::InvalidName`] and
    /// [`Error::InvalidConfig`]; [`Error::InvalidArgument`] if the item is too large; [`Error::WrongType`]; [`Error::Denied`];
    /// [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the item may be added or not.
    #[doc(alias = "offer")]
    pub async fn push(&self, payload: impl AsRef<[u8]>) -> Result<u64, Error> {
        self.push_many([payload]).await
    }

    /// Adds items in this order, all or none: at most 10,000, 16 MiB together, and as many as the
    /// [capacity](Self::with_capacity). Returns how many items there are now that are neither done nor dead.
    ///
    /// # Errors
    ///
    /// The same as [`push`](Self::push).
    ///
    /// # Cancel safety
    ///
    /// The same as [`push`](Self::push).
    pub async fn push_many(
        &self,
        payloads: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<u64, Error> {
        let payloads: Vec<Arc<[u8]>> =
            payloads.into_iter().map(|payload| payload.as_ref().into()).collect();
        let bytes: usize = payloads.iter().map(|payload| payload.len()).sum();
        self.check()?;
        let room = self.items.capacity.map_or(usize::MAX, |items| items as usize);
        for (count, most, what) in [
            (payloads.len(), MOST_ITEMS, "items go at once"),
            (payloads.len(), room, "items have room in the queue"),
            (bytes, MOST_BYTES, "bytes go at once"),
        ] {
            if count > most {
                return Err(Error::argument(format!("push of {count}: at most {most} {what}")));
            }
        }
        let read = |reply: &Reply| {
            let [done, count] = reply.list()? else { return None };
            Some((done.number()? == 1, u64::try_from(count.number()?).ok()?))
        };
        match self.ask(self.items.push(payloads), read).await? {
            (true, count) => Ok(count),
            (false, items) => {
                let capacity = self.items.capacity.unwrap_or(0);
                Err(Error::QueueFull { queue: self.items.name().clone(), items, capacity })
            }
        }
    }

    /// Takes an item, and waits until there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] once the server has not answered for
    /// [`unavailable_after`](crate::ClientBuilder::unavailable_after); [`Error::SingleServerOnly`];
    /// [`Error::InvalidName`] and [`Error::InvalidConfig`]; [`Error::WrongType`]; [`Error::Denied`]; [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the worker leaves the queue. An item that it was given goes to the next one, and that counts
    /// as no delivery.
    #[doc(alias = "take")]
    #[track_caller]
    pub fn pop(&self) -> impl Future<Output = Result<Delivery, Error>> + Send + use<> {
        let caller = Location::caller();
        let queue = self.clone();
        // Only a limit ends the wait.
        async move { queue.take(Until::within(Duration::MAX, queue.now()), caller).await }
    }

    /// Takes an item, and waits for at most `timeout`. Zero means one attempt, and [`Duration::MAX`] means no limit.
    ///
    /// # Errors
    ///
    /// [`Error::StillWaiting`] if there was none: it says how many items were lent, and how many others waited for one;
    /// otherwise the same as [`pop`](Self::pop).
    ///
    /// # Cancel safety
    ///
    /// The same as [`pop`](Self::pop).
    #[doc(alias = "poll")]
    #[track_caller]
    pub fn pop_with_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Delivery, Error>> + Send + use<> {
        let caller = Location::caller();
        let queue = self.clone();
        async move { queue.take(Until::within(timeout, queue.now()), caller).await }
    }

    /// Takes an item if there is one now and nobody waits for it.
    ///
    /// # Errors
    ///
    /// The same as [`pop`](Self::pop); [`Error::Unavailable`] after the response timeout.
    ///
    /// # Cancel safety
    ///
    /// The same as [`pop`](Self::pop).
    #[doc(alias = "poll")]
    #[track_caller]
    pub fn try_pop(&self) -> impl Future<Output = Result<Option<Delivery>, Error>> + Send + use<> {
        self.try_pop_for(Duration::ZERO)
    }

    /// Takes an item, and waits for at most `timeout`. Returns `None` if there was none.
    ///
    /// # Errors
    ///
    /// The same as [`pop_with_timeout`](Self::pop_with_timeout), except for the timeout.
    ///
    /// # Cancel safety
    ///
    /// The same as [`pop`](Self::pop).
    #[doc(alias = "poll")]
    #[track_caller]
    pub fn try_pop_for(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Option<Delivery>, Error>> + Send + use<> {
        let caller = Location::caller();
        let queue = self.clone();
        async move {
            match queue.take(Until::within(timeout, queue.now()), caller).await {
                Ok(delivery) => Ok(Some(delivery)),
                Err(error) if error.is_timeout() => Ok(None),
                Err(error) => Err(error),
            }
        }
    }

    /// Asks the server how many items nobody has had yet.
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status).
    pub async fn len(&self) -> Result<u64, Error> {
        Ok(self.look(0, 0).await?.0.waiting_items)
    }

    /// Asks the server whether there is no item that nobody has had yet. Others may be lent, or come again.
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status).
    pub async fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len().await? == 0)
    }

    /// Asks the server for all that it knows about the queue. It changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], [`Error::SingleServerOnly`], [`Error::InvalidName`], [`Error::InvalidConfig`],
    /// [`Error::WrongType`], [`Error::Denied`], [`Error::Closed`].
    pub async fn status(&self) -> Result<QueueStatus, Error> {
        Ok(self.look(LISTED, 0).await?.0)
    }

    /// Asks the server for the oldest dead items, at most `limit`. It changes nothing.
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status).
    pub async fn dead(&self, limit: u32) -> Result<Vec<DeadItem>, Error> {
        Ok(self.look(0, limit).await?.1)
    }

    /// Asks for the status. What is listed of it costs the server a look at each payload.
    async fn look(&self, listed: u64, dead: u32) -> Result<(QueueStatus, Vec<DeadItem>), Error> {
        self.ask(self.items.status(listed, dead), |reply| self.items.read_status(reply)).await
    }

    /// Has dead items delivered again as if they were new: the oldest `limit` of those that are dead now. Returns how many.
    ///
    /// The server moves a thousand or 16 MiB at a time. Each request is sent once: without an answer, its items may have been
    /// moved or not, and those of the requests before it have been.
    ///
    /// # Errors
    ///
    /// The same as [`status`](Self::status).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server may have moved some of them, or all.
    pub async fn redrive(&self, limit: u32) -> Result<u64, Error> {
        let read = |reply: &Reply| reply.number()?.try_into().ok();
        // What workers reject meanwhile is dead again, and would be moved without end.
        let (status, _) = self.look(0, 0).await?;
        let limit = u64::from(limit).min(status.dead_items) as u32;
        let (mut moved, mut now): (u32, u32) = (0, 1);
        while moved < limit && now > 0 {
            now = self.ask(self.items.redrive(REDRIVEN_AT_ONCE.min(limit - moved)), read).await?;
            moved = limit.min(moved.saturating_add(now));
        }
        Ok(moved.into())
    }

    pub(super) fn now(&self) -> Timestamp {
        self.engine.clock.now()
    }

    /// Checks what every call needs.
    pub(super) fn check(&self) -> Result<(), Error> {
        check_name(&self.engine, self.items.name())?;
        let within = 1..=MOST_DELIVERIES;
        if let Some(times) = self.items.most_often.filter(|times| !within.contains(times)) {
            return Err(Error::config(format!(
                "with_max_deliveries is {times}; it must be 1 to {MOST_DELIVERIES}, or `None` for any number of times"
            )));
        }
        // The server takes zero for no limit.
        if self.items.capacity == Some(0) {
            return Err(Error::config(
                "with_capacity is 0; it must be 1 or more, or `None` for any number of items",
            ));
        }
        if self.engine.config.deployment.is_quorum() {
            return Err(Error::SingleServerOnly {
                kind: LockKind::Queue,
                why: "two workers could each get an item from another server's copy of the list"
                    .into(),
            });
        }
        Ok(())
    }

    pub(super) async fn ask<T>(
        &self,
        call: Call,
        read: impl Fn(&Reply) -> Option<T>,
    ) -> Result<T, Error> {
        self.check()?;
        ask_one(&self.engine, self.items.name(), call, read).await
    }
}

/// One push has so many items at most: more would keep the server busy for too long.
const MOST_ITEMS: usize = 10_000;
const MOST_BYTES: usize = 16 << 20;
const MOST_DELIVERIES: u32 = 1_000_000;
const REDRIVEN_AT_ONCE: u32 = 1_000;

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("name", &self.name())
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
