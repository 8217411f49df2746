//! The handle to several locks that are taken together.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::asking::record_outcome;
use super::handle::unless_too_late;
use super::multi_guard::MultiGuard;
use super::mutex::Mutex;
use super::status::LockStatus;
use super::together::Together;
use crate::config::{LeaseTerms, Terms};
use crate::error::Error;
use crate::events;
use crate::guard::Guard;
use crate::owner::Owner;
use crate::text::shortened;

/// A handle to several locks that are taken together: all of them, or none.
///
/// [`Client::multi_lock`](crate::Client::multi_lock) makes one from names, and [`of`](Self::of) one from any mutexes. The handle
/// itself holds nothing, and making one costs no I/O. The first call that acquires reports a bad name or setting.
///
/// Each lock is an ordinary [`Mutex`]: others may take it alone, or together with other locks, in this and other
/// processes. If all locks are free, taking them costs one round trip, however many there are. It makes no difference in which
/// order the names are given: while one lock is waited for, only locks whose names come before it are held, so multi locks
/// cannot wait for each other in a circle. They can do so together with code that takes one of the locks alone and then,
/// while it holds that, waits for another one. If a client of another library has the lock that is to be waited for, none of the
/// others is held meanwhile: it may wait for one of them, in an order of its own. But it may also take that lock during the wait,
/// and then wait for one that is held here. So take locks that Redisson's clients take, too, in one order everywhere (that of the
/// bytes of their names), or by a multi lock on both sides, with limits on the wait.
///
/// A name that is given twice counts once.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
/// use std::time::Duration;
///
/// let accounts = client.multi_lock(["account:7", "account:3"]);
/// let guard = accounts.lock_with_timeout(Duration::from_secs(5)).await?; // the timeout error names the lock and its holder
/// for (name, token) in guard.tokens() {
///     println!("{name} with fencing token {token}");
/// }
/// guard.unlock().await?; // an error if one of them was lost before this point
/// # Ok(()) }
/// ```
#[doc(alias = "RedissonMultiLock")]
#[doc(alias = "getMultiLock")]
#[derive(Clone)]
pub struct MultiLock {
    /// In the order in which they were given.
    locks: Arc<[Mutex]>,
    /// How long an acquisition waits that names no time itself.
    wait: Duration,
}

impl MultiLock {
    /// Returns a handle to the locks of `mutexes`, which may be of several clients. Their terms and owners are kept, but not
    /// how long they [wait](Mutex::with_wait).
    ///
    /// Locks of two clients must have different names, or acquiring fails with [`Error::InvalidConfig`]: it could not be
    /// told which of them comes first. So it does for a mutex with a [fixed lease](Mutex::with_lease), which would go on ending
    /// while the other locks are waited for.
    ///
    /// ```no_run
    /// # async fn example(here: leasehold::Client, there: leasehold::Client) -> Result<(), leasehold::Error> {
    /// use leasehold::MultiLock;
    ///
    /// let both = MultiLock::of([here.mutex("stock:7"), there.fair_mutex("shipment:7")]);
    /// both.run(async |_| println!("both are held")).await?;
    /// # Ok(()) }
    /// ```
    pub fn of(mutexes: impl IntoIterator<Item = Mutex>) -> Self {
        let mut locks: Vec<Mutex> = Vec::new();
        for mutex in mutexes {
            if !locks.iter().any(|known| known.is_same(&mutex)) {
                locks.push(mutex);
            }
        }
        Self { locks: locks.into(), wait: Duration::MAX }
    }

    /// Returns the names of the locks, in the order in which they were given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.locks.iter().map(Mutex::name)
    }

    /// Returns a handle whose holds the watchdog renews every third of `ttl` (10 ms to 30 days, and no longer than the
    /// `restart_quarantine` if there is one); see [`Mutex::with_ttl`].
    #[must_use = "it returns another handle"]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        self.on_terms(|terms| terms.lease = LeaseTerms::Watched(ttl))
    }

    /// Returns a handle whose holds the watchdog stops renewing `max_hold` after all locks were held; see
    /// [`Mutex::with_max_hold`].
    #[must_use = "it returns another handle"]
    pub fn with_max_hold(&self, max_hold: Duration) -> Self {
        self.on_terms(|terms| terms.max_hold = Some(max_hold))
    }

    /// Returns a handle whose acquisitions by [`lock`](Self::lock) and the `run` methods wait for at most `wait` for all locks
    /// together, and then fail with [`Error::Timeout`]; see [`Mutex::with_wait`].
    #[must_use = "it returns another handle"]
    pub fn with_wait(&self, wait: Duration) -> Self {
        Self { wait, ..self.clone() }
    }

    /// Returns a handle whose acquisitions belong to `owner`, so that each of its locks nests; see [`Mutex::owned_by`].
    #[must_use = "it returns another handle"]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        self.with(|mutex| mutex.owned_by(owner))
    }

    fn on_terms(&self, change: impl Fn(&mut Terms)) -> Self {
        self.with(|mutex| mutex.on_terms(&change))
    }

    fn with(&self, change: impl Fn(&Mutex) -> Mutex) -> Self {
        Self { locks: self.locks.iter().map(change).collect(), wait: self.wait }
    }

    /// Takes all locks, and waits for as long as other holders have any of them, or as [`with_wait`](Self::with_wait) says.
    ///
    /// Locks that are free cost one round trip together, and those that the owner holds already none. While one of them is
    /// waited for, those whose names come before it are held, and renewed. Otherwise each wait is as that of
    /// [`Mutex::lock`].
    ///
    /// # Errors
    ///
    /// The same as [`Mutex::lock`], for any of the locks; [`Error::InvalidArgument`] if there are none; [`Error::InvalidConfig`]
    /// if one has a fixed lease. After an error none of them is held.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing behind: neither a place in a queue nor any of the locks.
    #[doc(alias = "acquire")]
    #[track_caller]
    pub fn lock(&self) -> impl Future<Output = Result<MultiGuard, Error>> + Send + use<> {
        self.acquire(self.wait, Location::caller())
    }

    /// Takes all locks, and waits for at most `timeout`. Zero means one attempt, and [`Duration::MAX`] means no limit.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], which names the lock that was waited for last and its holder; [`Error::Unavailable`] if the
    /// servers did not answer; otherwise the same as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// The same as [`lock`](Self::lock).
    #[doc(alias = "tryLock")]
    #[track_caller]
    pub fn lock_with_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<MultiGuard, Error>> + Send + use<> {
        self.acquire(timeout, Location::caller())
    }

    /// Takes all locks if they are free now, in one round trip. Returns `None` if another holder has one of them, or if
    /// others wait for it. Of two such attempts at the same moment, each may find a lock that the other one has, and both
    /// get `None`.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the servers do not answer within the response timeout; otherwise the same as
    /// [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// The same as [`lock`](Self::lock).
    #[doc(alias = "tryLock")]
    #[track_caller]
    pub fn try_lock(
        &self,
    ) -> impl Future<Output = Result<Option<MultiGuard>, Error>> + Send + use<> {
        self.try_acquire(Duration::ZERO, Location::caller())
    }

    /// Takes all locks, and waits for at most `timeout`. Returns `None` if other holders kept one of them.
    ///
    /// # Errors
    ///
    /// The same as [`lock_with_timeout`](Self::lock_with_timeout), except for the timeout.
    ///
    /// # Cancel safety
    ///
    /// The same as [`lock`](Self::lock).
    #[doc(alias = "tryLock")]
    #[track_caller]
    pub fn try_lock_for(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Option<MultiGuard>, Error>> + Send + use<> {
        self.try_acquire(timeout, Location::caller())
    }

    /// Asks the servers for all that they know about each of the locks, in the order in which they were given.
    ///
    /// # Errors
    ///
    /// The same as [`Mutex::status`], for any of the locks.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn status(&self) -> Result<Vec<LockStatus>, Error> {
        try_join_all(self.locks.iter().map(Mutex::status)).await
    }

    fn acquire(
        &self,
        timeout: Duration,
        caller: &'static Location<'static>,
    ) -> impl Future<Output = Result<MultiGuard, Error>> + Send + use<> {
        let locks = self.locks.clone();
        async move {
            let places = in_common_order(&locks)?;
            let handles = places.iter().map(|place| locks[*place].handle.clone()).collect();
            let mut together = Together::begin(handles, timeout, caller)?;
            let span = span(&locks, caller);
            let taken = together.take().instrument(span.clone()).await;
            record(&span, &taken, together.waited());
            Ok(MultiGuard::new(places.into_iter().zip(taken?)))
        }
    }

    fn try_acquire(
        &self,
        timeout: Duration,
        caller: &'static Location<'static>,
    ) -> impl Future<Output = Result<Option<MultiGuard>, Error>> + Send + use<> {
        unless_too_late(self.acquire(timeout, caller))
    }
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiLock").field(&self.locks).finish()
    }
}

/// Returns the places of the locks in the order in which every process takes them.
fn in_common_order(locks: &[Mutex]) -> Result<Vec<usize>, Error> {
    let mut places: Vec<usize> = (0..locks.len()).collect();
    places.sort_by_key(|place| locks[*place].name());
    match places.windows(2).find(|pair| locks[pair[0]].name() == locks[pair[1]].name()) {
        // Other processes do not know these clients, so they could not know which lock comes first.
        Some(pair) => Err(Error::config(format!(
            "a multi lock names lock {:?} of two clients: use different names",
            shortened(locks[pair[0]].name())
        ))),
        None => Ok(places),
    }
}

/// The span of an acquisition, around those of its locks. [`record`] completes it.
fn span(locks: &[Mutex], caller: &Location<'_>) -> Span {
    tracing::debug_span!(
        target: events::LOCK,
        "multi_lock",
        locks = ?Names(locks),
        at = %caller,
        wait_us = Empty,
        outcome = Empty,
    )
}

struct Names<'a>(&'a [Mutex]);

impl fmt::Debug for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(Mutex::name)).finish()
    }
}

fn record(span: &Span, taken: &Result<Vec<Guard>, Error>, waited: Duration) {
    span.record("wait_us", waited.as_micros() as u64);
    record_outcome(span, "held", taken.as_ref().err());
}
