//! The same locks for threads: every call blocks its thread.
//!
//! The calling **thread** is the owner, as in Java: a nested `lock()` on the same thread re-enters, and another thread
//! waits. A guard therefore stays on its thread. With [`Mutex::owned_by`], a named owner replaces the thread, and the
//! guard may move to other threads.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use leasehold::blocking::Client;
//!
//! fn main() -> Result<(), leasehold::Error> {
//!     let client = Client::connect("redis://127.0.0.1:6379")?;
//!     client.shutdown_after(|| bill(&client))? // releases all locks, even after an error
//! }
//!
//! fn bill(client: &Client) -> Result<(), leasehold::Error> {
//!     let orders = client.mutex("orders:42");
//!     let guard = orders.lock_with_timeout(Duration::from_secs(5))?;
//!     let nested = orders.lock()?; // the same thread: no round trip
//!     assert_eq!(nested.token(), guard.token());
//!     drop(nested);
//!     guard.unlock()
//! }
//! ```
//!
//! A thread of the client renews locks while yours computes or sleeps. You may call from plain threads, in
//! `spawn_blocking` and `block_in_place`, and under a runtime's `enter()`. In async code, calls fail with
//! [`Error::InAsyncContext`]. Under tokio's `unconstrained`, async code cannot be detected: there, calls block
//! the executor. In the destructor of a thread-local, they may fail with [`Error::Closed`].

mod runtime;

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use crate::client::{ClientBuilder, Finding, HeldLock, Stats};
use crate::error::{Error, LossReason};
use crate::key::Holder;
use crate::node::NodeStatus;
use crate::owner::Owner;
use crate::primitives::run::Outcome;
use crate::primitives::status::LockStatus;
use runtime::Runtime;

/// A client for threads: [`leasehold::Client`](crate::Client) with calls that block.
///
/// Clones are handles to the same client. Its tasks run on a thread of its own, which ends after the last clone and
/// the last guard are gone and every release is sent. You may drop a client anywhere, even in async code.
///
/// # Ending a process
///
/// A process leaves no lock behind when its `main` returns, even with an error through `?`, or when it panics and
/// unwinds. A guard's drop waits for the server's answer to the release, and the last drop of the client waits until
/// its thread has ended, each for at most 250 ms. After a drop that got no answer, later drops do not wait until a lock
/// has been taken again. In async code, drops never wait.
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
        Mutex {
            mutex: self.client.mutex(name),
            runtime: self.runtime.clone(),
            owner: None,
            ownership: PhantomData,
        }
    }

    /// Returns a new owner without a name, as [`Owner::new`] does.
    pub fn owner(&self) -> Owner {
        self.client.owner()
    }

    /// Returns this client's name, by which the servers know its holds.
    pub fn name(&self) -> &str {
        self.client.name()
    }

    /// Lists the locks that this client holds, oldest first.
    pub fn holds(&self) -> Vec<HeldLock> {
        self.client.holds()
    }

    /// Reports the state of each server, in the order in which they were named, without I/O.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.client.nodes()
    }

    /// Returns true if, as far as this client knows, locks can be taken now; see
    /// [`leasehold::Client::is_ready`](crate::Client::is_ready).
    pub fn is_ready(&self) -> bool {
        self.client.is_ready()
    }

    /// Returns counts of what this client is busy with: locks, waiters, connections and pending releases.
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

    /// Refuses new acquisitions, and waits until nothing is held; see [`leasehold::Client::drain`](crate::Client::drain).
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncContext`].
    pub fn drain(&self, limit: Duration) -> Result<bool, Error> {
        self.runtime.wait(self.client.drain(limit))
    }

    /// Closes the client, and releases all locks that it holds; see
    /// [`leasehold::Client::shutdown`](crate::Client::shutdown).
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncContext`].
    pub fn shutdown(&self) -> Result<(), Error> {
        self.runtime.wait(self.client.shutdown())
    }

    /// Runs `work`, and then [shuts the client down](Self::shutdown), even if `work` panics.
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncContext`]; `work` was then not run.
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

/// Marks guards that the locking thread owns. They stay on that thread.
#[derive(Debug)]
pub struct ThisThread(PhantomData<*const ()>);

/// Marks guards that a named owner owns. They may move to any thread.
#[derive(Debug)]
pub struct NamedOwner(());

/// A handle to a reentrant lock, for threads; see [`leasehold::Mutex`](crate::Mutex).
pub struct Mutex<O = ThisThread> {
    mutex: crate::Mutex,
    runtime: Runtime,
    /// `None` means that the thread is the owner.
    owner: Option<Owner>,
    ownership: PhantomData<fn() -> O>,
}

impl<O> Mutex<O> {
    /// Returns the lock's name, which is its key on the servers.
    pub fn name(&self) -> &str {
        self.mutex.name()
    }

    /// Returns a handle whose holds end after `lease`; see [`leasehold::Mutex::with_lease`](crate::Mutex::with_lease).
    #[must_use = "it returns another handle"]
    pub fn with_lease(&self, lease: Duration) -> Self {
        self.with(self.mutex.with_lease(lease))
    }

    /// Returns a handle with another TTL; see [`leasehold::Mutex::with_ttl`](crate::Mutex::with_ttl).
    #[must_use = "it returns another handle"]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        self.with(self.mutex.with_ttl(ttl))
    }

    /// Returns a handle whose holds are renewed for a limited time; see
    /// [`leasehold::Mutex::with_max_hold`](crate::Mutex::with_max_hold).
    #[must_use = "it returns another handle"]
    pub fn with_max_hold(&self, max_hold: Duration) -> Self {
        self.with(self.mutex.with_max_hold(max_hold))
    }

    /// Returns a handle whose locks stay taken for at least `min_hold`; see
    /// [`leasehold::Mutex::with_min_hold`](crate::Mutex::with_min_hold).
    #[must_use = "it returns another handle"]
    pub fn with_min_hold(&self, min_hold: Duration) -> Self {
        self.with(self.mutex.with_min_hold(min_hold))
    }

    /// Returns a handle whose acquisitions belong to `owner` instead of the thread, and whose guards may move to other
    /// threads.
    #[must_use = "it returns another handle"]
    pub fn owned_by(&self, owner: &Owner) -> Mutex<NamedOwner> {
        Mutex {
            mutex: self.mutex.clone(),
            runtime: self.runtime.clone(),
            owner: Some(owner.clone()),
            ownership: PhantomData,
        }
    }

    fn with(&self, mutex: crate::Mutex) -> Self {
        Self { mutex, ..self.clone() }
    }

    /// Takes the lock, and waits for as long as another holder has it; see [`leasehold::Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn lock(&self) -> Result<Guard<O>, Error> {
        let guard = self.runtime.wait(self.owned().lock())??;
        Ok(Guard::new(guard, &self.runtime))
    }

    /// Takes the lock, and waits for at most `timeout`; see
    /// [`leasehold::Mutex::lock_with_timeout`](crate::Mutex::lock_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn lock_with_timeout(&self, timeout: Duration) -> Result<Guard<O>, Error> {
        let guard = self.runtime.wait(self.owned().lock_with_timeout(timeout))??;
        Ok(Guard::new(guard, &self.runtime))
    }

    /// Takes the lock if it is free now; see [`leasehold::Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_lock(&self) -> Result<Option<Guard<O>>, Error> {
        let guard = self.runtime.wait(self.owned().try_lock())??;
        Ok(guard.map(|guard| Guard::new(guard, &self.runtime)))
    }

    /// Takes the lock, and waits for at most `timeout`. Returns `None` if another holder kept it; see
    /// [`leasehold::Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_lock_for(&self, timeout: Duration) -> Result<Option<Guard<O>>, Error> {
        let guard = self.runtime.wait(self.owned().try_lock_for(timeout))??;
        Ok(guard.map(|guard| Guard::new(guard, &self.runtime)))
    }

    /// Takes the lock, runs `body` under it, and releases it.
    ///
    /// A thread cannot be stopped: if the lock is lost in the meantime, `body` goes on. It can learn of the loss from
    /// [`Guard::is_held`] or [`Guard::wait_lost`]. [`run_with_outcome`](Self::run_with_outcome) keeps its result even
    /// then.
    ///
    /// # Errors
    ///
    /// The same as [`lock`](Self::lock); [`Error::Lost`] if the lock was lost before it was released: the result of
    /// `body` is dropped.
    ///
    /// # Panics
    ///
    /// It panics if `body` does; the lock is released.
    #[track_caller]
    pub fn run<T>(&self, body: impl FnOnce(&Guard<O>) -> T) -> Result<T, Error> {
        self.run_with_outcome(body)?.into_result()
    }

    /// Takes the lock and runs `body` like [`run`](Self::run), but keeps the result of `body` even if the lock was lost.
    ///
    /// ```no_run
    /// # fn bill() -> Result<u64, std::io::Error> { Ok(7) }
    /// # fn example(client: leasehold::blocking::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let outcome = client.mutex("orders:42").run_with_outcome(|_| bill())?;
    /// if let Err(lost) = outcome.released {
    ///     eprintln!("billed, but another may have done so, too: {lost}");
    /// }
    /// let invoice = outcome.output?;
    /// # let _ = invoice; Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`lock`](Self::lock). The [`Outcome`] reports a loss.
    ///
    /// # Panics
    ///
    /// It panics if `body` does; the lock is released.
    #[track_caller]
    pub fn run_with_outcome<T>(
        &self,
        body: impl FnOnce(&Guard<O>) -> T,
    ) -> Result<Outcome<T>, Error> {
        let guard = self.lock()?;
        let output = body(&guard);
        Ok(Outcome::new(output, guard.unlock()))
    }

    /// Asks the servers for all that they know about the lock; see [`leasehold::Mutex::status`](crate::Mutex::status).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn status(&self) -> Result<LockStatus, Error> {
        self.runtime.wait(self.mutex.status())?
    }

    /// Asks the servers whether anybody holds the lock; see [`leasehold::Mutex::is_locked`](crate::Mutex::is_locked).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn is_locked(&self) -> Result<bool, Error> {
        self.runtime.wait(self.mutex.is_locked())?
    }

    /// Asks the servers who holds the lock; see [`leasehold::Mutex::holder`](crate::Mutex::holder).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn holder(&self) -> Result<Option<Holder>, Error> {
        self.runtime.wait(self.mutex.holder())?
    }

    /// Asks the servers when the lock expires; see [`leasehold::Mutex::remaining_ttl`](crate::Mutex::remaining_ttl).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn remaining_ttl(&self) -> Result<Option<Duration>, Error> {
        self.runtime.wait(self.mutex.remaining_ttl())?
    }

    /// Frees the lock whoever holds it; see [`leasehold::Mutex::force_unlock`](crate::Mutex::force_unlock).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn force_unlock(&self) -> Result<bool, Error> {
        self.runtime.wait(self.mutex.force_unlock())?
    }

    /// Frees the lock if `holder` still holds it; see
    /// [`leasehold::Mutex::force_unlock_if`](crate::Mutex::force_unlock_if).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn force_unlock_if(&self, holder: &Holder) -> Result<bool, Error> {
        self.runtime.wait(self.mutex.force_unlock_if(holder))?
    }

    /// Returns the handle with a named owner.
    fn owned(&self) -> crate::Mutex {
        match &self.owner {
            Some(owner) => self.mutex.owned_by(owner),
            None => self.mutex.owned_by(&Owner::this_thread()),
        }
    }
}

impl<O> Clone for Mutex<O> {
    fn clone(&self) -> Self {
        Self {
            mutex: self.mutex.clone(),
            runtime: self.runtime.clone(),
            owner: self.owner.clone(),
            ownership: PhantomData,
        }
    }
}

impl<O> fmt::Debug for Mutex<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mutex.fmt(f)
    }
}

/// A guard holds a lock; see [`leasehold::Guard`](crate::Guard). Dropping it releases the lock, even in a panic, and waits
/// for at most 250 ms for the server's answer. In async code, the drop releases the lock in the background.
///
/// `Guard<ThisThread>` stays on its thread:
///
/// ```compile_fail
/// fn elsewhere(guard: leasehold::blocking::Guard) {
///     std::thread::spawn(move || drop(guard));
/// }
/// ```
///
/// `Guard<NamedOwner>` may move:
///
/// ```
/// # use leasehold::blocking::{Guard, NamedOwner};
/// fn elsewhere(guard: Guard<NamedOwner>) {
///     std::thread::spawn(move || drop(guard));
/// }
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard<O = ThisThread> {
    // This is dropped before the runtime, which completes its release.
    guard: crate::Guard,
    runtime: Runtime,
    ownership: PhantomData<O>,
}

impl<O> Guard<O> {
    fn new(guard: crate::Guard, runtime: &Runtime) -> Self {
        runtime.answered(true);
        Self { guard, runtime: runtime.clone(), ownership: PhantomData }
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// Returns the fencing token; see [`leasehold::Guard::token`](crate::Guard::token).
    pub fn token(&self) -> u64 {
        self.guard.token()
    }

    /// Returns true if the lock is certainly held at this moment. It costs no I/O: call it as often as you like.
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Returns how long the lock is certainly held if nothing renews it; zero if it is lost.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Returns how many guards of its owner hold the lock now.
    pub fn hold_count(&self) -> u32 {
        self.guard.hold_count()
    }

    /// Returns the owner of the hold.
    pub fn owner(&self) -> &Owner {
        self.guard.owner()
    }

    /// Returns the holder: the text that names this hold on the servers.
    pub fn holder(&self) -> Holder {
        self.guard.holder()
    }

    /// Waits until the lock is lost, for at most `timeout`. Returns `None` if it was not lost.
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncContext`].
    pub fn wait_lost(&self, timeout: Duration) -> Result<Option<LossReason>, Error> {
        self.runtime.wait(self.guard.lost_within(timeout))
    }

    /// Returns a nested guard of the same hold; see [`leasehold::Guard::reenter`](crate::Guard::reenter).
    ///
    /// # Errors
    ///
    /// The same errors.
    pub fn reenter(&self) -> Result<Self, Error> {
        Ok(Self::new(self.guard.reenter()?, &self.runtime))
    }

    /// Extends the lock so that it lasts for at least `lease` from now; see
    /// [`leasehold::Guard::extend`](crate::Guard::extend).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.runtime.wait(self.guard.extend(lease))?
    }

    /// Releases the lock, and waits until the servers have confirmed it; see
    /// [`leasehold::Guard::unlock`](crate::Guard::unlock).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`]; the lock is then released in the background.
    pub fn unlock(mut self) -> Result<(), Error> {
        self.runtime.wait(self.guard.give_back())?
    }
}

impl<O> Drop for Guard<O> {
    fn drop(&mut self) {
        // In async code, the drop of the field releases the lock in the background.
        if !self.guard.is_given_back()
            && self.runtime.answers()
            && let Ok(answered) = self.runtime.wait(self.guard.give_back_within(PATIENCE))
        {
            self.runtime.answered(answered);
        }
    }
}

impl<O> fmt::Debug for Guard<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

/// How long a drop waits for the servers.
const PATIENCE: Duration = Duration::from_millis(250);
