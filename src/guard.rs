//! The guard: proof that a lock is held.

mod lost;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub use lost::Lost;

use crate::clock::Timestamp;
use crate::config::Terms;
use crate::engine::acquire;
use crate::engine::gate::{Departure, Entry, Hold};
use crate::engine::kind::Sharing;
use crate::error::{Error, LossReason};
use crate::key::{Holder, LeaseId};
use crate::owner::{LockKey, Owner};

/// A guard holds a lock. Dropping it releases the lock in the background; [`unlock`](Self::unlock) waits for the
/// release, and reports whether the lock was held until then.
///
/// You may drop a guard anywhere: on another runtime, outside any runtime, after its client, in a panic. The drop does
/// not block while the client's runtime lives. Afterwards, the drop sends the release itself; see
/// [Ending a process](crate::Client#ending-a-process).
///
/// The lock is held until the last guard of its owner is gone. Guards may be dropped in any order. A panic releases the lock like
/// any other end of a scope: there is no poisoning. A guard that is leaked, for example with [`std::mem::forget`], keeps the lock
/// until the client is shut down or its runtime ends, unless [`with_max_hold`](crate::Mutex::with_max_hold) or
/// [`with_lease`](crate::Mutex::with_lease) limits that.
///
/// Bind it to a name such as `_guard`. `let _ = lock.lock().await?;` drops it at once, and releases the lock.
///
/// Every guard of a lock, a permit or a leadership has a method [`release`](Self::release). [`unlock`](Self::unlock) is another
/// name for it on locks, and [`resign`](crate::Leadership::resign) for leaderships.
#[doc(alias = "MutexGuard")]
#[doc(alias = "OwnedMutexGuard")]
#[doc(alias = "permit")]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    entry: Entry,
}

impl Guard {
    pub(crate) fn new(entry: Entry) -> Self {
        Self { entry }
    }

    fn hold(&self) -> &Arc<Hold> {
        self.entry.hold()
    }

    pub(crate) fn lease_id(&self) -> &LeaseId {
        self.hold().lease.id()
    }

    /// Returns what the guard is proof of, which goes on without it.
    pub(crate) fn into_entry(self) -> Entry {
        self.entry
    }

    /// Returns the lock as the bodies of `run` know it.
    pub(crate) fn key(&self) -> LockKey<'_> {
        let gate = &self.hold().gate;
        LockKey { client: gate.engine.key(), name: &gate.name }
    }

    /// Keeps the lock taken for `min_hold` from now, even if the guard is dropped earlier.
    pub(crate) fn keep_for(&self, min_hold: Duration) {
        let hold = self.hold();
        if !min_hold.is_zero() {
            hold.lease.keep_until(hold.gate.engine.clock.now().plus(min_hold));
        }
    }

    /// Makes the terms true of a lock that was taken without them, as one of several: all are held from now on. The
    /// shortest hold is left to [`keep_for`](Self::keep_for). The servers are waited for until `until`.
    pub(crate) async fn settle(&self, terms: Terms, until: Timestamp) -> Result<(), Error> {
        if self.entry.joined() || !terms.min_hold.is_zero() {
            return Box::pin(acquire::widen(&self.entry, terms, until)).await;
        }
        self.entry.limit(terms, self.hold().gate.engine.clock.now());
        Ok(())
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &str {
        &self.hold().gate.name
    }

    /// Returns the fencing token, which is higher than that of every earlier hold of this lock. Nested guards share it. Readers
    /// that hold the lock together share theirs, which is at least that of every earlier writer.
    ///
    /// Send it along with every write, and let the resource refuse a token lower than the highest it has seen:
    /// only that protects a write against a process that was stopped between
    /// [`is_held`](Self::is_held) and the write. A token is below 2^53, so it fits a JSON number and a Redis integer.
    #[doc(alias = "fencing_token")]
    #[doc(alias = "getToken")]
    #[doc(alias = "fencing")]
    pub fn token(&self) -> u64 {
        self.hold().token
    }

    /// Returns the version that a reader of a read-write lock reads. `None` for every other guard, and for a reader in a hold
    /// that is a writer's: its owner may write while it reads.
    pub(crate) fn version(&self) -> Option<ReadVersion> {
        let hold = self.hold();
        (hold.lease.kind.sharing() == Sharing::Together).then_some(ReadVersion(hold.token))
    }

    /// Returns true if it is known that nobody took the lock for writing between the reader of `seen` and this guard.
    pub(crate) fn follows(&self, seen: Option<ReadVersion>) -> bool {
        let hold = self.hold();
        let before = hold.lease.token_before(hold.token).map(ReadVersion);
        before.is_some() && before == seen
    }

    /// Returns true if the lock is certainly held at this moment. It costs no I/O: call it as often as you like.
    ///
    /// It is false from the local deadline on, even if no server answers, or if the host was suspended.
    #[doc(alias = "isHeldByCurrentThread")]
    #[doc(alias = "isHeldByThread")]
    pub fn is_held(&self) -> bool {
        self.check().is_ok()
    }

    /// Fails if the lock is lost.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let hold = self.hold();
        let checked = hold.lease.check(hold.gate.engine.clock.now());
        checked.map_err(|reason| Error::lost(&hold.gate.name, reason))
    }

    /// Returns how long the lock is certainly held if nothing renews it; zero if it is lost.
    pub fn remaining(&self) -> Duration {
        let hold = self.hold();
        hold.lease.remaining(hold.gate.engine.clock.now())
    }

    /// Returns how many guards of its owner hold the lock now.
    #[doc(alias = "getHoldCount")]
    pub fn hold_count(&self) -> u32 {
        self.hold().depth()
    }

    /// Returns the owner of the hold. Pass it to [`Mutex::owned_by`](crate::Mutex::owned_by) to nest.
    pub fn owner(&self) -> &Owner {
        &self.hold().owner
    }

    /// Returns the holder: the text that names this hold on the servers.
    pub fn holder(&self) -> Holder {
        Holder::new(self.hold().lease.id().0.clone())
    }

    /// Returns a future that resolves when the lock is lost: at its deadline if no renewal was confirmed, when a server
    /// reports that it is gone, or when the client or its runtime ends. After the host was suspended, it may be a
    /// second late.
    ///
    /// The future never resolves after a release: await it together with the work that the lock protects.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: leasehold::Guard, work: impl Future<Output = ()>) {
    /// tokio::select! {
    ///     () = work => println!("done"),
    ///     reason = guard.lost() => println!("stopped: {reason}"),
    /// }
    /// # }
    /// ```
    pub fn lost(&self) -> Lost {
        Lost::of(self.hold().clone())
    }

    /// Returns true if somebody else is known to want the lock: a task of this process that waits for it, or another client. It
    /// is a hint, and nothing happens by itself: keep the lock over a batch, and give it back when somebody wants it.
    ///
    /// ```no_run
    /// # async fn step(_: u32) {}
    /// # async fn example(lock: leasehold::Mutex) -> Result<(), leasehold::Error> {
    /// let mut guard = lock.lock().await?;
    /// for number in 0..1000 {
    ///     if guard.is_wanted() {
    ///         guard.unlock().await?;
    ///         guard = lock.lock().await?; // behind those who wait
    ///     }
    ///     step(number).await;
    /// }
    /// guard.unlock().await
    /// # }
    /// ```
    ///
    /// The call itself costs no I/O. The first one has the client look in the background, so it knows of this process only, and
    /// later ones tell what was found:
    ///
    /// | who waits | is known |
    /// |---|---|
    /// | a task or thread with this client | at once |
    /// | another client of this library, on one server, Sentinel or a cluster | by a message of the server, within 4 s if that is lost |
    /// | the same, if this lock was taken before the client's first question | within 0.4 s |
    /// | a client of Redisson; a writer, if other clients read, too | within 4 s |
    /// | anybody, over several masters | within 0.4 s |
    ///
    /// Once somebody was found, it stays true for this guard, even if that one gives up. Any subscriber of the lock's channel
    /// counts: while a tool listens there, every holder is told that somebody wants the lock. The same happens if this client may
    /// not unsubscribe. While the servers do not answer, nobody is known to wait.
    pub fn is_wanted(&self) -> bool {
        self.hold().is_wanted()
    }

    /// Waits until somebody else wants the lock; see [`is_wanted`](Self::is_wanted). It never ends if nobody does, or if the lock
    /// is lost before: await it together with the work, or with [`lost`](Self::lost).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: leasehold::Guard) -> Result<(), leasehold::Error> {
    /// // Keeps the lock until somebody wants it, but for 5 s at most.
    /// let _ = tokio::time::timeout(std::time::Duration::from_secs(5), guard.wanted()).await;
    /// guard.unlock().await
    /// # }
    /// ```
    pub async fn wanted(&self) {
        self.hold().wanted().await;
    }

    /// Waits until somebody else wants the lock, for at most `timeout`. Returns true if somebody does.
    pub(crate) async fn wanted_within(&self, timeout: Duration) -> bool {
        let clock = &self.hold().gate.engine.clock;
        clock.until(clock.now().plus(timeout), self.wanted()).await.is_some()
    }

    /// Releases the lock, and waits for the confirmation, for at most `limit`. Returns true if the servers answered in time.
    pub(crate) async fn give_back_within(&mut self, limit: Duration) -> bool {
        let clock = self.hold().gate.engine.clock.clone();
        let until = clock.now().plus(limit);
        let given_back = clock.until(until, self.give_back()).await;
        !matches!(given_back, None | Some(Err(Error::Unavailable { .. })))
    }

    /// Waits for the loss of the lock, for at most `timeout`, and returns its reason.
    pub(crate) async fn lost_within(&self, timeout: Duration) -> Option<LossReason> {
        let clock = &self.hold().gate.engine.clock;
        clock.until(clock.now().plus(timeout), self.lost()).await
    }

    /// Runs a future, and cancels it if the lock is lost before the future ends.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost; `future` was dropped at its current await.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops `future`; the guard still holds the lock.
    pub async fn run_until_lost<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        tokio::select! {
            biased;
            reason = self.lost() => Err(Error::lost(&self.hold().gate.name, reason)),
            output = future => Ok(output),
        }
    }

    /// Returns a nested guard of the same hold, without I/O.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost.
    pub fn reenter(&self) -> Result<Self, Error> {
        match self.entry.again() {
            Ok(entry) => Ok(Self { entry }),
            Err(reason) => Err(Error::lost(&self.hold().gate.name, reason)),
        }
    }

    /// Extends the lock so that it lasts for at least `lease` from now (10 ms to 30 days, and no longer than the
    /// `restart_quarantine` if there is one). It never shortens the lock.
    ///
    /// Use it for a lock with a [fixed lease](crate::Mutex::with_lease); the watchdog renews other locks anyway.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]; [`Error::Unavailable`] if the servers did not confirm it in time, so that the lease ends
    /// when it would have ended; [`Error::InvalidArgument`] for a duration out of range; [`Error::Denied`] if the
    /// server's user lacks a right; [`Error::Closed`] if the client's runtime has ended.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the servers may have extended the lease already; for this client it ends as before.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let config = &self.entry.hold().gate.engine.config;
        config.check_lease("lease", lease).map_err(Error::of_argument)?;
        acquire::extend(&self.entry, lease).await
    }

    /// Releases the lock, and waits until the servers have confirmed it.
    ///
    /// While its owner has other guards, the call only ends this level of nesting. If the lock passes to another task of
    /// this process, `Ok` means that by the local clock it was held until then.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was no longer held: another holder may have had it in the meantime.
    /// [`Error::Unavailable`] if no server confirmed the release within the response timeout: the client repeats it in
    /// the background, and the lock expires with its TTL at the latest. [`Error::Denied`] if the server's user lacks a right;
    /// [`Error::Closed`] if the client's runtime has ended.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the release goes on in the background.
    pub async fn release(mut self) -> Result<(), Error> {
        self.give_back().await
    }

    /// Releases the lock: another name for [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// The same as [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// The same as [`release`](Self::release).
    pub async fn unlock(self) -> Result<(), Error> {
        self.release().await
    }

    /// Returns true if the guard has been released already.
    pub(crate) fn is_given_back(&self) -> bool {
        self.entry.is_left()
    }

    /// Releases like [`release`](Self::release). The guard must not be used afterwards.
    pub(crate) async fn give_back(&mut self) -> Result<(), Error> {
        let hold = self.hold().clone();
        let gate = &hold.gate;
        let lock = &gate.name;
        let lost = |reason| Err(Error::lost(lock, reason));
        let answer = match self.entry.leave() {
            Departure::Nested | Departure::HandedOff => return Ok(()),
            Departure::Lost(reason) => return lost(reason),
            Departure::Released(release) => Box::pin(gate.finish_release(release)).await,
            Departure::Unsent(parting) => match parting.settle().await {
                Some(answer) => answer,
                None => return Ok(()),
            },
        };
        match answer {
            Ok(released) if released.held => Ok(()),
            Ok(_) => lost(hold.lease.why_missing()),
            Err(fault) => Err(gate.quorum.error(Some(lock), fault)),
        }
    }
}

/// The version of what a read-write lock protects, as a reader saw it; see
/// [`ReadGuard::version`](crate::ReadGuard::version).
///
/// Versions of different locks must not be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ReadVersion(u64);

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("lock", &self.name())
            .field("owner", self.owner())
            .field("token", &self.token())
            .field("remaining", &self.remaining())
            .finish()
    }
}
