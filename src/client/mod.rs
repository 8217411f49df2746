//! The client, which holds the connections and hands out locks.

mod builder;
mod check;
mod findings;
mod handles;
mod stats;

use std::fmt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::FutureExt;
use tokio_util::task::TaskTracker;

pub use builder::ClientBuilder;
#[cfg(feature = "__test-seam")]
pub use builder::Seams;
pub use findings::{Finding, FindingKind};
pub use stats::{HeldLock, Stats};

use crate::engine::gate::{Engine, Service};
use crate::error::{Blocked, Error};
use crate::node::{Node, NodeStatus};
use crate::owner::Owner;
use crate::primitives::listing::Listing;

/// A client holds the connections to one or several Redis or Valkey servers, and the locks taken through them.
///
/// Clones are handles to the same client. One per process is enough: it uses at most two connections to each server, however many
/// locks there are; [`synced`](ClientBuilder::synced) and a cluster's sharded channels add one each. Its tasks run on the runtime
/// that connected it. When that runtime is gone, every call fails with [`Error::Closed`]; so do not keep a client in a `static`
/// that the runtime of a test connects.
///
/// A client of [`blocking`](crate::blocking) has a runtime of its own, and may be in a
/// [`LazyLock`](std::sync::LazyLock), if a plain thread is the first to use it. For async code, connect at the start of
/// `main`, and pass clones on.
///
/// Guards keep working after the client is dropped.
///
/// # Ending a process
///
/// A process leaves no lock behind when its `main` returns, even with an error through `?`, or when it panics and
/// unwinds. When the runtime ends, it drops the client's tasks; the releases that are still unsent then go out over a
/// new connection. This blocks the thread that ends the runtime, or that drops a guard afterwards, until the servers
/// have answered: for at most 250 ms in total, and only if there is something to send.
///
/// A lock stays until its TTL is over
/// * after `std::process::exit`, an abort or a kill;
/// * if its guard or the runtime is never dropped: leaked, in a `static`, or on a thread or in a task that `main`
///   does not wait for, with [`shutdown_background`](tokio::runtime::Runtime::shutdown_background);
/// * if the server does not answer in that time.
///
/// [`shutdown`](Self::shutdown) waits longer, and also releases what guards still hold;
/// [`shutdown_after`](Self::shutdown_after) calls it however the work ends.
///
/// # Forking
///
/// A client must not be used in a child that was made by fork(2) without exec: the child has copies of the guards and
/// of the connections, but not of the threads. There, `is_held` reports on the parent's hold, calls of a blocking client fail
/// ([`ClosedReason::Forked`](crate::ClosedReason::Forked)), and other calls hang or
/// disturb the parent's connections. Connect after the fork. When the child ends, it sends no releases over a new
/// connection, so the parent keeps its locks.
///
/// ```no_run
/// # async fn example() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("redis://127.0.0.1:6379").await?;
/// let guard = client.mutex("orders:42").lock().await?;
/// guard.unlock().await?;
/// # Ok(()) }
/// ```
#[doc(alias = "RedissonClient")]
#[derive(Clone)]
pub struct Client {
    engine: Arc<Engine>,
}

impl Client {
    /// Returns a new owner without a name, as [`Owner::new`] does.
    pub fn owner(&self) -> Owner {
        Owner::new()
    }

    /// Returns this client's name, by which the servers know its holds.
    pub fn name(&self) -> &str {
        &self.engine.config.name
    }

    /// Lists the locks that this client holds, oldest first. Each acquisition of a semaphore's permits is one of them, and so is
    /// each [delivery](crate::Delivery) of a queue, until it is done; these have no token.
    pub fn holds(&self) -> Vec<HeldLock> {
        HeldLock::all(&self.engine)
    }

    /// Lists the locks on the servers whose names begin with `prefix`, whoever holds them: mutexes, elections, read-write locks and
    /// semaphores, those of Redisson included. Nothing is asked before [`Listing::next`] is called.
    ///
    /// `prefix` is taken literally, behind the client's [`name_prefix`](ClientBuilder::name_prefix); an empty prefix matches every
    /// name.
    ///
    /// * Servers keep no list of locks, so all keys are looked at, a thousand at a time. In between there are pauses, so that it
    ///   takes at most a fifth of a server's time. A million keys take ten to twenty seconds;
    ///   [`Listing::fast`] leaves out the pauses.
    /// * A lock that is held all the time is listed, once. One that is taken or released meanwhile may be missing, and so may
    ///   one whose slot a cluster moves.
    /// * Of several masters, enough are looked at that each majority has one of them, and what a majority says is
    ///   shown.
    /// * Latches, signals and queues are not locks.
    ///
    /// The server's user needs the right `scan`, which lets it see the names of all keys; with `dbsize`,
    /// [`Listing::progress`] is known.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let mut locks = client.list("orders:");
    /// while let Some(lock) = locks.next().await? {
    ///     println!("{} is held by {:?}, {} wait", lock.name, lock.holders, lock.waiting_clients);
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "scan")]
    #[doc(alias = "keys")]
    pub fn list(&self, prefix: impl AsRef<str>) -> Listing {
        Listing::of_held(&self.engine, prefix.as_ref())
    }

    /// Lists the locks that somebody waits for, those of Redisson included. Nothing is asked before [`Listing::next`] is called.
    ///
    /// First come those that this client itself waits for, and those whose waiters listen for their releases: all over several
    /// masters, and those of Redisson. For the queues of one server or of a cluster, all keys are looked at, with pauses, as by
    /// [`list`](Self::list); it takes about half as long. All names begin with the client's
    /// [`name_prefix`](ClientBuilder::name_prefix). A lock that is free, and on its way to somebody who listens, may be missing.
    ///
    /// The server's user needs the rights `scan` and `pubsub|channels`, and in a cluster with sharded channels
    /// `pubsub|shardchannels`.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let mut locks = client.contended();
    /// while let Some(lock) = locks.next().await? {
    ///     println!("{} wait for {}", lock.waiting_clients, lock.name);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn contended(&self) -> Listing {
        Listing::of_waited(&self.engine)
    }

    /// Returns which holders of these locks wait for another lock, which holders of those do, and so on.
    ///
    /// The names are those that [`ListedLock::name`](crate::ListedLock::name) and [`LockStatus::name`](crate::LockStatus::name)
    /// show, with the [`name_prefix`](ClientBuilder::name_prefix). The parts come in the order of what they hold.
    ///
    /// * A waiter notes it on the servers once it has waited for a second, if it holds another lock and its client looks for
    ///   [deadlocks](ClientBuilder::deadlocks). Redisson's clients note nothing, nor is anything noted of permits of a
    ///   semaphore, whether they are held or waited for.
    /// * The notes are read one after the other, so a circle of them may be over, and parts of it may never have stood at once.
    ///   If it is there again some seconds later, it is a deadlock; [`Error::Deadlock`] is told only when that is proved.
    /// * All locks that you name are looked at, and those that they lead to until 256 have been looked at. Names that no lock can
    ///   have are skipped.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] if this user may not use the keys `leasehold_wait:..` of these locks; [`Error::Closed`]. Of servers that
    /// do not answer within the response timeout, nothing is returned, nor of locks to which those that you name lead, if this user
    /// may not use them.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// for part in client.blocked(["orders"]).await? {
    ///     println!("{} of {} holds {:?} and waits for {:?}", part.owner, part.client, part.holds, part.waits_for);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn blocked(
        &self,
        locks: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Vec<Blocked>, Error> {
        self.engine.check_service(Service::Draining)?;
        let locks = locks.into_iter().map(|lock| lock.as_ref().into()).collect();
        self.engine.blocked(locks).await
    }

    /// Returns counts of what this client is busy with, such as locks, waiters and pending releases, and of what it has done so
    /// far.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.engine)
    }

    /// Reports the state of each server, without I/O: in the order in which the servers were named, and on a cluster in that of
    /// their addresses.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.engine.fleet.status()
    }

    /// Asks the servers about settings that can break a lock's guarantees, and returns the findings. It changes nothing.
    /// Only while this client holds a lock, or once one of its holders has waited, can it say whether the user has the rights to
    /// find deadlocks over several processes.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if no majority of them answers within 5 s (on a cluster: if none does), or if the client cannot
    /// reach them within the response timeout; [`Error::Denied`] if they refuse the login; [`Error::InvalidConfig`] if they are
    /// used with other masters; [`Error::Closed`].
    pub async fn check(&self) -> Result<Vec<Finding>, Error> {
        Finding::ask(&self.engine).await
    }

    /// Returns true if, as far as this client knows, locks can be taken now: enough servers are connected, and their
    /// grants count. It does no I/O, so a readiness probe may call it as often as it likes. If it returns false,
    /// [`nodes`](Self::nodes) shows which servers are missing.
    ///
    /// * During a quarantine (after a restart or a failover, and at the first start of new servers) it is false, since no
    ///   grant counts. Locks that are held stay held: do not stop a process for it that holds some.
    /// * Behind Sentinels it is false from the loss of the master until the next one is connected and its quarantine is over.
    /// * Over several masters a majority is enough: with one of three down it stays true, and with two it is false.
    /// * On a cluster it needs an owner for each slot, and each master that this client uses. One master that is down or in a
    ///   quarantine makes it false, although locks on the others can be taken. A slot that has moved to another master, where
    ///   its locks have to wait, does not: most locks can be taken.
    pub fn is_ready(&self) -> bool {
        self.engine.check_service(Service::Open).is_ok()
            && self.engine.fleet.is_ready(self.engine.clock.now())
    }

    /// Returns the tracker of the client's tasks.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.engine.tasks
    }

    /// Refuses new acquisitions, and waits until this client holds nothing, for at most `limit`. Returns true if it
    /// holds nothing.
    ///
    /// New acquisitions fail with [`Error::Closed`]. Nested ones by a holder and those that are waiting already go on, except those
    /// of workers that wait at a queue and of candidates of an election: what they wait for may never come, so they fail, too.
    /// Items can still be pushed, and waits for signals and latches go on.
    ///
    /// # Cancel safety
    ///
    /// The client stays drained.
    #[must_use = "it returns whether everything was released"]
    pub async fn drain(&self, limit: Duration) -> bool {
        self.engine.service_ends(Service::Draining);
        for gate in self.engine.gates() {
            gate.drain();
        }
        let until = self.engine.clock.now().plus(limit);
        let nothing_held = async {
            loop {
                let mut left = std::pin::pin!(self.engine.left.notified());
                left.as_mut().enable();
                let over = self.holds().is_empty() && !self.is_busy();
                if over || self.engine.clock.is_stopped() {
                    return;
                }
                left.await;
            }
        };
        let ended = self.engine.clock.until(until, nothing_held).await;
        ended.is_some() && self.holds().is_empty()
    }

    /// Closes the client, and releases all locks that it holds.
    ///
    /// Waiting calls fail with [`Error::Closed`], and holders see their locks as lost. The call returns when the servers
    /// have confirmed the releases, or after the response timeout.
    ///
    /// # Cancel safety
    ///
    /// The client is closed; the releases go on in the background.
    pub async fn shutdown(&self) {
        self.engine.service_ends(Service::Closed);
        for gate in self.engine.gates() {
            gate.shut();
        }
        let until = self.engine.clock.now().plus(self.engine.config.response_timeout);
        let released = async {
            while self.is_busy() {
                let mut left = std::pin::pin!(self.engine.left.notified());
                left.as_mut().enable();
                if self.is_busy() {
                    left.await;
                }
            }
            self.engine.watchdog.idle().await;
            self.engine.fleet.all_released().await;
        };
        self.engine.clock.until(until, released).await;
    }

    /// Runs `work`, and then [shuts the client down](Self::shutdown), even if `work` returns an error or panics.
    ///
    /// ```no_run
    /// # async fn serve(_: &leasehold::Client) -> Result<(), leasehold::Error> { Ok(()) }
    /// #[tokio::main]
    /// async fn main() -> Result<(), leasehold::Error> {
    ///     let client = leasehold::Client::connect("redis://127.0.0.1:6379").await?;
    ///     client.shutdown_after(serve(&client)).await
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// It panics if `work` does, after the shutdown.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`. The client is then not shut down, unless `work` had already ended.
    pub async fn shutdown_after<F: Future>(&self, work: F) -> F::Output {
        let output = AssertUnwindSafe(work).catch_unwind().await;
        self.shutdown().await;
        output.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Returns true if this client holds a lock, requests one, waits for one or releases one.
    fn is_busy(&self) -> bool {
        self.engine.gates().iter().any(|gate| gate.is_busy())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.engine.config.name)
            .field(
                "servers",
                &self.engine.fleet.nodes().iter().map(Node::address).collect::<Vec<_>>(),
            )
            .finish_non_exhaustive()
    }
}
