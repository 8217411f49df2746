//! The handle to an election.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::handle::Handle;
use super::leader::{ElectionState, Leader, Pulpit};
use super::leadership::{Leadership, check_value};
use super::lock::Lock;
use super::observer::Observer;
use crate::config::LeaseTerms;
use crate::engine::gate::Engine;
use crate::error::Error;
use crate::owner::Owner;

/// A handle to an election: of all candidates in all processes, one leads at a time. The handle itself is no candidate, and
/// making one costs no I/O.
///
/// An election is the lock of its name, with a place where the leader says who it is. So
/// [`Client::mutex`](crate::Client::mutex) of that name shows by [`status`](crate::Mutex::status) who leads and which clients are
/// candidates, and can end a leadership by [`force_unlock_if`](crate::Mutex::force_unlock_if); whoever takes that lock, also a Redisson
/// client, keeps all candidates from leading.
///
/// At most one [`Leadership`] [`is_held`](Leadership::is_held) at a time, under the same conditions as for a lock. What a former
/// leader does that was paused, and does not know yet that it leads no more, is stopped by the [term](Leadership::term) only.
///
/// A candidate that goes away leaves nothing on the servers. The leadership of a process that is killed ends with its TTL.
///
/// # Examples
///
/// ```no_run
/// # async fn plan_the_next_hour() {}
/// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
/// let election = client.election("scheduler").with_value("http://10.0.0.7:8080");
/// election.run(async |leadership| {
///     println!("leading in term {}", leadership.term());
///     plan_the_next_hour().await; // cancelled if the leadership is lost, and begun again in the next term
/// }).await?;
/// # Ok(()) }
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
        let pulpit = Pulpit::new(Handle::new(engine, Arc::new(lock)));
        Self { pulpit, value: "".into() }
    }

    /// Returns the election's name, which is the name of its lock.
    pub fn name(&self) -> &str {
        self.pulpit.handle.name()
    }

    /// Returns a handle whose leaders are renewed every third of `ttl`, 10 ms to 30 days. The leadership of a crashed process
    /// is over after at most `ttl`. The default is the client's TTL.
    #[must_use = "it returns another handle"]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        let handle = self.pulpit.handle.on_terms(|terms| terms.lease = LeaseTerms::Watched(ttl));
        Self { pulpit: Pulpit::new(handle), value: self.value.clone() }
    }

    /// Returns a handle whose leaders say `value` when they begin, for example their address; see
    /// [`Leadership::proclaim`]. The default is an empty text.
    #[must_use = "it returns another handle"]
    pub fn with_value(&self, value: impl Into<Arc<str>>) -> Self {
        Self { pulpit: self.pulpit.clone(), value: value.into() }
    }

    /// Becomes a candidate, and waits until it leads.
    ///
    /// On one server, clients lead in the order in which their candidates came; a leader that resigns and campaigns again
    /// goes to the end of the queue. The candidates of one client have one place together. Each call is a candidate of its own, whatever
    /// [`Owner`] it is made by.
    ///
    /// # Errors
    ///
    /// The same as [`Mutex::lock`](crate::Mutex::lock); [`Error::Unavailable`] also if the servers did not confirm what the new leader said, and
    /// [`Error::InvalidConfig`] if its value is too long. After an error it does not lead.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing behind: neither a candidate nor a leader.
    #[doc(alias = "lock")]
    #[track_caller]
    pub fn campaign(&self) -> impl Future<Output = Result<Leadership, Error>> + Send + use<> {
        self.campaign_until(Duration::MAX, Location::caller())
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

    /// Waits to become leader, runs `body`, and resigns when it ends. If the leadership is lost, `body` is cancelled, and
    /// started again when this process leads again. Servers that do not answer are waited for. Each term runs a clone of `body`, so
    /// what it captures must be [`Clone`], as references are.
    ///
    /// # Errors
    ///
    /// The same as [`campaign`](Self::campaign), except for [`Error::Unavailable`] and [`Error::Lost`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` at its current await, and resigns in the background.
    #[track_caller]
    pub fn run<T, F>(&self, body: F) -> impl Future<Output = Result<T, Error>> + use<T, F>
    where
        F: AsyncFnOnce(&Leadership) -> T + Clone,
    {
        let (election, caller) = (self.clone(), Location::caller());
        async move {
            let mut failures = 0;
            loop {
                match election.campaign_until(Duration::MAX, caller).await {
                    Ok(leadership) => {
                        failures = 0;
                        let ended = leadership.run_until_lost(body.clone()(&leadership)).await;
                        if let Ok(output) = ended {
                            // The body has ended; if the leadership was lost since, others have their turn anyway.
                            let _ = leadership.resign().await;
                            return Ok(output);
                        }
                    }
                    Err(Error::Unavailable { .. } | Error::Lost { .. }) => {
                        let clock = election.pulpit.handle.clock();
                        clock.sleep(clock.back_off(failures, LONGEST_PAUSE)).await;
                        failures += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
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
    ///     ElectionState::Silent(holder) => println!("{holder} has the lock, and says nothing"),
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

    /// Returns an observer of who leads and of each change. No I/O; observing does not make you a candidate.
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

const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pulpit.handle.debug("Election", f)
    }
}
