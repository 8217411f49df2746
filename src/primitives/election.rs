//! The handle to an election.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::handle::{Handle, unless_too_late};
use super::leader::{ElectionState, Leader, Pulpit};
use super::leadership::{Leadership, check_value};
use super::lock::Lock;
use super::observer::Observer;
use crate::clock::Clock;
use crate::config::LeaseTerms;
use crate::engine::gate::Engine;
use crate::error::Error;
use crate::owner::Owner;

/// A handle to an election: of all candidates in all processes, one leads at a time. The handle itself is no candidate, and
/// making one costs no I/O.
///
/// An election is the lock of its name; beside it, the leader publishes a value that says who it is. So
/// [`Client::mutex`](crate::Client::mutex) of that name shows by [`status`](crate::Mutex::status) who leads and which clients are
/// candidates, and can end a leadership by [`force_unlock_if`](crate::Mutex::force_unlock_if); a process that takes that lock, even
/// a Redisson client, keeps all candidates from leading.
///
/// At most one [`Leadership`] [`is_held`](Leadership::is_held) at a time, under the same conditions as for a lock. A leader that
/// was paused may not know yet that it leads no more. Only the [term](Leadership::term) stops what it does then.
///
/// A candidate that goes away leaves nothing on the servers. The leadership of a process that is killed ends with its TTL.
///
/// # Examples
///
/// ```no_run
/// # async fn plan_the_next_hour() {}
/// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
/// let election = client.election("scheduler").with_value("http://10.0.0.7:8080");
/// election.run_each_term(async |leadership| {
///     println!("leading in term {}", leadership.term());
///     loop {
///         plan_the_next_hour().await; // cancelled if the leadership is lost, and begun again in the next term
///     }
/// }).await
/// # }
/// ```
#[doc(alias = "LeaderElection")]
#[doc(alias = "LeaderSelector")]
#[doc(alias = "leader")]
#[derive(Clone)]
pub struct Election {
    pulpit: Pulpit,
    value: Arc<str>,
}

impl Election {
    pub(crate) fn new(engine: &Arc<Engine>, name: Arc<str>) -> Self {
        let lock = Lock::new(&engine.config, name, engine.fleet.is_sharded()).of_election();
        let pulpit = Pulpit::new(Handle::new(engine, Arc::new(lock)).patient());
        Self { pulpit, value: "".into() }
    }

    /// Returns the election's name, which is the name of its lock.
    pub fn name(&self) -> &str {
        self.pulpit.handle.name()
    }

    /// Returns a handle whose leaders are renewed every third of `ttl` (10 ms to 30 days, and no longer than the
    /// `restart_quarantine` if there is one). The leadership of a crashed process is over after at most `ttl`. The default is the
    /// client's TTL.
    #[must_use = "it returns another handle"]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        self.with(self.pulpit.handle.on_terms(|terms| terms.lease = LeaseTerms::Watched(ttl)))
    }

    /// Returns a handle whose leaders are renewed for `max_hold` at most: a safety net for a leader that hangs. The leadership
    /// is then lost within one TTL. It must not be zero.
    #[must_use = "it returns another handle"]
    pub fn with_max_hold(&self, max_hold: Duration) -> Self {
        self.with(self.pulpit.handle.on_terms(|terms| terms.max_hold = Some(max_hold)))
    }

    /// Returns a handle whose [`campaign`](Self::campaign) and `run` methods wait for at most `wait` to lead, and then fail
    /// with [`Error::Timeout`]; see [`Mutex::with_wait`](crate::Mutex::with_wait).
    #[must_use = "it returns another handle"]
    pub fn with_wait(&self, wait: Duration) -> Self {
        self.with(self.pulpit.handle.waiting(wait))
    }

    /// Returns a handle whose leaders say `value` when they begin, for example their address; see
    /// [`Leadership::proclaim`]. The default is an empty text.
    #[must_use = "it returns another handle"]
    pub fn with_value(&self, value: impl Into<Arc<str>>) -> Self {
        Self { pulpit: self.pulpit.clone(), value: value.into() }
    }

    fn with(&self, handle: Handle) -> Self {
        Self { pulpit: Pulpit::new(handle), value: self.value.clone() }
    }

    /// Becomes a candidate, and waits until it leads.
    ///
    /// Except over several independent masters, clients lead in the order in which their candidates came; a leader that resigns and
    /// campaigns again goes to the end of the queue. The candidates of one client have one place together. Each call is a candidate
    /// of its own, whatever [`Owner`] it is made by.
    ///
    /// # Errors
    ///
    /// The same as [`Mutex::lock`](crate::Mutex::lock); [`Error::Unavailable`] also if the servers did not confirm what the new
    /// leader said, and [`Error::InvalidConfig`] if its value is too long. After an error it does not lead.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing behind: neither a candidate nor a leader.
    #[doc(alias = "lock")]
    #[track_caller]
    pub fn campaign(&self) -> impl Future<Output = Result<Leadership, Error>> + Send + use<> {
        self.campaign_at(Location::caller())
    }

    /// Becomes a candidate, and waits until it leads, for at most `timeout`. Zero means one attempt, and [`Duration::MAX`] no
    /// limit. The answer to what a new leader says may come a little later.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], which names the holder that leads, if others led; otherwise the same as
    /// [`campaign`](Self::campaign).
    ///
    /// # Cancel safety
    ///
    /// The same as [`campaign`](Self::campaign).
    #[track_caller]
    pub fn campaign_with_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Leadership, Error>> + Send + use<> {
        self.campaign_until(timeout, Location::caller())
    }

    /// Becomes leader if nobody leads now, and no candidate waits. Returns `None` otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the servers do not answer within the response timeout; otherwise the same as
    /// [`campaign`](Self::campaign).
    ///
    /// # Cancel safety
    ///
    /// The same as [`campaign`](Self::campaign).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// match client.election("scheduler").try_campaign().await? {
    ///     Some(leadership) => println!("leading in term {}", leadership.term()),
    ///     None => println!("somebody else leads"),
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "tryLock")]
    #[track_caller]
    pub fn try_campaign(
        &self,
    ) -> impl Future<Output = Result<Option<Leadership>, Error>> + Send + use<> {
        unless_too_late(self.campaign_until(Duration::ZERO, Location::caller()))
    }

    /// Becomes a candidate, and waits until it leads, for at most `timeout`. Returns `None` if others led.
    ///
    /// # Errors
    ///
    /// The same as [`campaign_with_timeout`](Self::campaign_with_timeout), except for the timeout.
    ///
    /// # Cancel safety
    ///
    /// The same as [`campaign`](Self::campaign).
    #[track_caller]
    pub fn try_campaign_for(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Option<Leadership>, Error>> + Send + use<> {
        unless_too_late(self.campaign_until(timeout, Location::caller()))
    }

    /// Asks the servers who leads. Returns `None` if nobody is known to: [`state`](Self::state) says why. Right after a
    /// failover it may be an earlier leader, until the present one has put its lease back.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the servers do not answer within the response timeout; [`Error::WrongType`],
    /// [`Error::Denied`], [`Error::InvalidName`], [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        Ok(self.state().await?.into_leader())
    }

    /// Asks the servers who leads, and if nobody is known to, why: whether the election's lock is free, or is held by one that
    /// has said nothing.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// use leasehold::ElectionState;
    ///
    /// match client.election("scheduler").state().await? {
    ///     ElectionState::Led(leader) => println!("{} leads in term {}", leader.value, leader.term),
    ///     ElectionState::Vacant => println!("nobody leads"),
    ///     ElectionState::Silent { holder, .. } => println!("{holder} has the lock, and says nothing"),
    ///     other => println!("{other:?}"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`leader`](Self::leader).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn state(&self) -> Result<ElectionState, Error> {
        Ok(self.pulpit.look().await?.0)
    }

    /// Returns an observer of who leads. No I/O; observing does not make you a candidate.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let mut observer = client.election("scheduler").observe();
    /// loop {
    ///     match observer.changed().await? {
    ///         Some(leader) => println!("term {}: {}", leader.term, leader.value),
    ///         None => println!("nobody leads"),
    ///     }
    /// }
    /// # }
    /// ```
    pub fn observe(&self) -> Observer {
        Observer::new(self.pulpit.clone())
    }

    pub(super) fn clock(&self) -> &Clock {
        self.pulpit.handle.clock()
    }

    /// Campaigns for `caller`, and waits for as long as the handle says.
    pub(super) fn campaign_at(
        &self,
        caller: &'static Location<'static>,
    ) -> impl Future<Output = Result<Leadership, Error>> + Send + use<> {
        self.campaign_until(self.pulpit.handle.wait(), caller)
    }

    fn campaign_until(
        &self,
        timeout: Duration,
        caller: &'static Location<'static>,
    ) -> impl Future<Output = Result<Leadership, Error>> + Send + use<> {
        let Self { pulpit, value } = self.clone();
        async move {
            check_value(&value)?;
            // Not the owner around it: it would lead twice, and resign twice.
            let own = pulpit.handle.owned_by(&Owner::single());
            let guard = own.acquire(timeout, caller).await?;
            // This comes first: dropping it undoes what follows.
            let leadership = Leadership::new(guard, pulpit);
            leadership.proclaim(&value).await?;
            Ok(leadership)
        }
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pulpit.handle.debug("Election", f)
    }
}
