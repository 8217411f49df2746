//! The client for threads.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use super::caller::Caller;
use super::runtime::Runtime;
use super::{
    Election, Latch, Listing, MultiLock, Mutex, Queue, RwLock, Semaphore, Signal, SignalGroup,
};
use crate::client::{ClientBuilder, Finding, HeldLock, Stats};
use crate::error::{Blocked, Error};
use crate::node::NodeStatus;
use crate::owner::Owner;

/// A client for threads: [`leasehold::Client`](crate::Client) with calls that block.
///
/// Clones are handles to the same client. Its tasks run on a thread of its own, which ends once all clones, handles,
/// guards and watchers of the client are gone and every release is sent. You may drop a client anywhere, even in async code.
///
/// # Ending a process
///
/// A process leaves no lock behind when its `main` returns, even with an error through `?`, or when it panics and
/// unwinds. A guard's drop waits for the server's answer to the release, and the drop of the last clone,
/// handle or guard waits until the thread has ended, each for at most 250 ms. After a drop that got no answer, drops do not
/// wait; they wait again once a lock has been taken. In async code, drops never wait.
///
/// A lock stays until its TTL is over
/// * after `std::process::exit`, an abort or a kill;
/// * if its guard is never dropped, for example on a thread that still runs when `main` returns: join such threads;
/// * if the server does not answer in that time.
///
/// For fork(2), see [`leasehold::Client`](crate::Client#forking).
#[derive(Clone)]
pub struct Client {
    client: crate::Client,
    runtime: Runtime,
}

impl Client {
    /// Connects to `url` with the default settings; see [`leasehold::Client::connect`](crate::Client::connect).
    ///
    /// # Errors
    ///
    /// The same as [`ClientBuilder::connect`], and [`Error::InAsyncContext`].
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().nodes([url]).connect_blocking()
    }

    /// Returns a builder, to connect with other settings than the defaults. Call [`ClientBuilder::connect_blocking`] at
    /// the end.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Returns a handle to the lock called `name`; the thread that takes the lock owns it. See
    /// [`leasehold::Client::mutex`](crate::Client::mutex).
    #[doc(alias = "getLock")]
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self.client.mutex(name), Caller::this_thread(&self.runtime))
    }

    /// Returns a handle to the lock called `name` that serves all its waiters in the order of their arrival at the server;
    /// see [`leasehold::Client::fair_mutex`](crate::Client::fair_mutex).
    #[doc(alias = "getFairLock")]
    pub fn fair_mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self.client.fair_mutex(name), Caller::this_thread(&self.runtime))
    }

    /// Returns a handle to the locks called `names`, which are taken together: all of them, or none. The thread that takes
    /// them owns them. See [`leasehold::Client::multi_lock`](crate::Client::multi_lock).
    #[doc(alias = "getMultiLock")]
    pub fn multi_lock(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> MultiLock {
        MultiLock::of(names.into_iter().map(|name| self.mutex(name)))
    }

    /// Returns a handle to the queue called `name`; see [`leasehold::Client::queue`](crate::Client::queue).
    #[doc(alias = "getQueue")]
    #[doc(alias = "getBlockingQueue")]
    #[doc(alias = "getDeque")]
    pub fn queue(&self, name: impl AsRef<str>) -> Queue {
        Queue::new(self.client.queue(name), &self.runtime)
    }

    /// Returns a handle to the semaphore called `name`; see [`leasehold::Client::semaphore`](crate::Client::semaphore).
    #[doc(alias = "getSemaphore")]
    #[doc(alias = "getPermitExpirableSemaphore")]
    pub fn semaphore(&self, name: impl AsRef<str>) -> Semaphore {
        Semaphore::new(self.client.semaphore(name), &self.runtime)
    }

    /// Returns a handle to the election called `name`; see [`leasehold::Client::election`](crate::Client::election).
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.client.election(name), &self.runtime)
    }

    /// Returns a handle to the latch called `name`; see [`leasehold::Client::latch`](crate::Client::latch).
    #[doc(alias = "getCountDownLatch")]
    pub fn latch(&self, name: impl AsRef<str>) -> Latch {
        Latch::new(self.client.latch(name), &self.runtime)
    }

    /// Returns a handle to the signal called `name`; see [`leasehold::Client::signal`](crate::Client::signal).
    #[doc(alias = "getTopic")]
    pub fn signal(&self, name: impl AsRef<str>) -> Signal {
        Signal::new(self.client.signal(name), &self.runtime)
    }

    /// Returns a handle to the group of signals called `name`; see
    /// [`leasehold::Client::signal_group`](crate::Client::signal_group).
    #[doc(alias = "getPatternTopic")]
    pub fn signal_group(&self, name: impl AsRef<str>) -> SignalGroup {
        SignalGroup::new(self.client.signal_group(name), &self.runtime)
    }

    /// Returns a handle to the read-write lock called `name`; see [`leasehold::Client::rw_lock`](crate::Client::rw_lock).
    #[doc(alias = "rwlock")]
    #[doc(alias = "getReadWriteLock")]
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.client.rw_lock(name), Caller::this_thread(&self.runtime))
    }

    /// Returns a new owner without a name, as [`Owner::new`] does.
    pub fn owner(&self) -> Owner {
        self.client.owner()
    }

    /// Returns this client's name, by which the servers know its holds.
    pub fn name(&self) -> &str {
        self.client.name()
    }

    /// Lists the locks that this client holds, oldest first; see [`leasehold::Client::holds`](crate::Client::holds).
    pub fn holds(&self) -> Vec<HeldLock> {
        self.client.holds()
    }

    /// Lists the locks on the servers whose names begin with `prefix`, whoever holds them; see
    /// [`leasehold::Client::list`](crate::Client::list).
    ///
    /// ```no_run
    /// # fn example(client: leasehold::blocking::Client) -> Result<(), leasehold::Error> {
    /// for lock in client.list("orders:") {
    ///     let lock = lock?;
    ///     println!("{} is held by {:?}, {} wait", lock.name, lock.holders, lock.waiting_clients);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn list(&self, prefix: impl AsRef<str>) -> Listing {
        Listing::new(self.client.list(prefix), &self.runtime)
    }

    /// Lists the locks that somebody waits for; see [`leasehold::Client::contended`](crate::Client::contended).
    pub fn contended(&self) -> Listing {
        Listing::new(self.client.contended(), &self.runtime)
    }

    /// Returns which holders of these locks wait for another lock, and so on; see
    /// [`leasehold::Client::blocked`](crate::Client::blocked).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn blocked(
        &self,
        locks: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Vec<Blocked>, Error> {
        self.runtime.wait(self.client.blocked(locks))?
    }

    /// Reports the state of each server, without I/O: in the order in which the servers were named, and on a cluster in that of
    /// their addresses.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.client.nodes()
    }

    /// Returns true if, as far as this client knows, locks can be taken now; see
    /// [`leasehold::Client::is_ready`](crate::Client::is_ready).
    pub fn is_ready(&self) -> bool {
        self.client.is_ready()
    }

    /// Returns counts of what this client is busy with, such as locks, waiters and pending releases, and of what it has done so
    /// far.
    pub fn stats(&self) -> Stats {
        self.client.stats()
    }

    /// Asks the servers about settings that can break a lock's guarantees; see
    /// [`leasehold::Client::check`](crate::Client::check).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn check(&self) -> Result<Vec<Finding>, Error> {
        self.runtime.wait(self.client.check())?
    }

    /// Refuses new acquisitions, and waits until nothing is held, for at most `limit`. Returns true if nothing is held; see
    /// [`leasehold::Client::drain`](crate::Client::drain).
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncContext`]; [`Error::Closed`] in a fork of the process, or in the destructor of a thread-local.
    pub fn drain(&self, limit: Duration) -> Result<bool, Error> {
        self.runtime.wait(self.client.drain(limit))
    }

    /// Closes the client, and releases all locks that it holds; see
    /// [`leasehold::Client::shutdown`](crate::Client::shutdown).
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncContext`]; [`Error::Closed`] in a fork of the process, or in the destructor of a thread-local.
    pub fn shutdown(&self) -> Result<(), Error> {
        self.runtime.wait(self.client.shutdown())
    }

    /// Runs `work`, and then [shuts the client down](Self::shutdown), even if `work` panics.
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncContext`]; [`Error::Closed`] as [`ClosedReason`](crate::ClosedReason) says. `work` was then not run.
    ///
    /// # Panics
    ///
    /// It panics if `work` does, after the shutdown.
    pub fn shutdown_after<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        self.runtime.wait(std::future::ready(()))?;
        let output = catch_unwind(AssertUnwindSafe(work));
        self.shutdown()?;
        output.map_or_else(|panic| resume_unwind(panic), Ok)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}

impl ClientBuilder {
    /// Connects a client for threads, which has its own runtime; [`runtime`](Self::runtime) has no effect.
    ///
    /// # Errors
    ///
    /// The same as [`connect`](Self::connect), and [`Error::InAsyncContext`].
    pub fn connect_blocking(self) -> Result<Client, Error> {
        let runtime = Runtime::start()?;
        let client = runtime.wait(self.runtime(runtime.handle()).connect())??;
        runtime.keep_for(client.tasks());
        Ok(Client { client, runtime })
    }
}
