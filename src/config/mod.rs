//! The settings of a client and of a lock, and their checks.

mod address;
mod compound;
mod deployment;
mod masters;
mod place;
mod terms;
mod url;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use address::Address;
pub use deployment::PubSub;
pub(crate) use deployment::{Deployment, overlap};
pub(crate) use masters::{Conflict, Masters};
pub(crate) use place::{AddressMap, Named, Place, Watched};
pub use terms::LeaseTerms;
pub(crate) use terms::{Terms, drift};

use crate::error::Error;
use crate::key::{self, LockKind};

/// The reaction to a task that waits for a lock that it holds itself.
///
/// The default is the same with and without debug assertions: a program that fails in tests must not hang in production, nor the
/// other way round. It is not [`Fail`](Self::Fail), since two branches of a `join!` are one task, and one of them may well wait
/// until the other has released the lock; nor can the client know of a guard that was moved to another task or thread, which will
/// release it. Where neither occurs, set `Fail` in production, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[non_exhaustive]
pub enum SelfWait {
    /// The call logs a warning and waits. The warning can be wrong for branches of a `join!`, and where the guard was moved to
    /// another task or thread.
    #[default]
    #[cfg_attr(feature = "serde", serde(alias = "warn"))]
    Warn,
    /// The call fails with [`Error::SelfWait`]. Use it in tests, and in production where neither of the above occurs.
    #[cfg_attr(feature = "serde", serde(alias = "fail"))]
    Fail,
}

/// The reaction to a wait that closes a circle, in which each waits for what the next one holds.
///
/// Circles inside this process are found over all its clients, at the moment in which the last wait of them begins. Circles
/// over several processes, whose clients use the same servers, are found some seconds later: of the waits in such a circle,
/// the one whose hold is the youngest is told. One that ends by itself, because a wait has a time limit or a lease is not
/// renewed, is only logged.
///
/// Circles through the permits of a semaphore are found inside this process, where the handle that waits says how many there are by
/// [`with_permits`](crate::Semaphore::with_permits), and if enough of their holders are blocked. A permit may go to another task or
/// thread, so they never count as certain.
///
/// The client looks only at waits whose owner, task or thread held something when they began. Candidates of elections and workers
/// at a queue may wait for as long as they like, so their waits count for nothing. Nothing is known of locks that Redisson holds,
/// and of waits for anything else, such as a mutex of tokio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[non_exhaustive]
pub enum Deadlocks {
    /// Nobody looks for circles, and other processes do not see those through this client.
    #[cfg_attr(feature = "serde", serde(alias = "off"))]
    Off,
    /// The call logs a warning and waits.
    #[cfg_attr(feature = "serde", serde(alias = "warn"))]
    Warn,
    /// The call fails with [`Error::Deadlock`] if the circle certainly lasts: each part of it is a thread that waits in a
    /// blocking call, with guards that cannot leave the thread. Otherwise it logs a warning and waits. It can be wrong only if the
    /// owner of such a guard was named for a handle of another thread, which re-entered the hold.
    #[default]
    #[cfg_attr(feature = "serde", serde(alias = "certain"))]
    Certain,
    /// The call fails with [`Error::Deadlock`] even if tasks, named owners or permits are part of the circle. That can be wrong for
    /// a task that waits for something else at the same time, as in `select!`, and if another task drops its guards or permits.
    #[cfg_attr(feature = "serde", serde(alias = "fail"))]
    Fail,
}

/// What happens when a task, thread or owner asks for a lock under another one in an order that contradicts an earlier pair,
/// whether or not anybody waits: two that do both at once would wait for each other.
///
/// All clients of the process are looked at together. Locks whose names are equal up to the last `:`, or, without a `:`, up to a
/// number at their end, are of one class, such as `order1` and `order2`. Of two classes, the locks of one are always taken first;
/// within a class, the names go up or down, as texts or with their digits as numbers. Single attempts, candidates of elections and
/// semaphores count for nothing. A guard that another task drops counts for the one that took it.
///
/// Each contradiction is told once, with the line of code of each lock. The last 4096 pairs of classes are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[non_exhaustive]
pub enum LockOrder {
    /// Nobody looks. The default where the crate is built without `debug_assertions`.
    #[cfg_attr(feature = "serde", serde(alias = "off"))]
    Off,
    /// A warning is logged, and the call goes on. The default where the crate is built with `debug_assertions`.
    #[cfg_attr(feature = "serde", serde(alias = "warn"))]
    Warn,
}

impl Default for LockOrder {
    fn default() -> Self {
        if cfg!(debug_assertions) { Self::Warn } else { Self::Off }
    }
}

/// The settings of a client.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) name: Arc<str>,
    /// The prefix of all lock names.
    pub(crate) name_prefix: Arc<str>,
    /// What the user calls the list of the masters, if it is not told by their addresses.
    pub(crate) masters_name: Option<Arc<str>>,
    pub(crate) ttl: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) unavailable_after: Duration,
    pub(crate) handoff_window: Duration,
    pub(crate) token_retention: Duration,
    pub(crate) redisson_fencing: bool,
    pub(crate) self_wait: SelfWait,
    /// `None`: long holds are not reported.
    pub(crate) warn_held_after: Option<Duration>,
    pub(crate) deadlocks: Deadlocks,
    pub(crate) lock_order: LockOrder,
    /// A grant with less time left than this is released again.
    pub(crate) min_validity: Duration,
    /// `None` means the default for this deployment.
    pub(crate) restart_quarantine: Option<Duration>,
    pub(crate) deployment: Deployment,
    /// The number of replicas that must have a grant or a renewal before it counts.
    pub(crate) synced: u32,
    /// The kind of channels that a cluster has for releases.
    pub(crate) pubsub: PubSub,
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), Error> {
        Error::check_name(&self.name, key::client_name_problem(&self.name))?;
        Error::check_name(&self.name_prefix, key::name_prefix_problem(&self.name_prefix))?;
        if let Some(name) = &self.masters_name {
            Error::check_name(name, key::masters_name_problem(name))?;
            if !self.deployment.is_quorum() {
                return Err(Error::config("masters_name is for several independent masters"));
            }
        }
        if self.synced > 0 && self.deployment.is_quorum() {
            return Err(Error::config(
                "synced is for one server, Sentinel or a cluster: independent masters have no replicas, and a majority of \
                 them must grant anyway",
            ));
        }
        if self.pubsub != PubSub::Auto && self.deployment != Deployment::Cluster {
            return Err(Error::config("pubsub is for a cluster: elsewhere all channels are plain"));
        }
        check_range("restart_quarantine", self.quarantine(), Duration::ZERO, LONGEST_TTL)?;
        self.check_lease("ttl", self.ttl)?;
        check_range("min_validity", self.min_validity, Duration::ZERO, self.ttl / 2)?;
        check_range("response_timeout", self.response_timeout, MILLISECOND, DAY)?;
        check_range("connect_timeout", self.connect_timeout, MILLISECOND, DAY)?;
        check_range("unavailable_after", self.unavailable_after, MILLISECOND, LONGEST_TTL)?;
        if let Some(after) = self.warn_held_after {
            check_range("warn_held_after", after, MILLISECOND, LONGEST_TTL)?;
        }
        check_range("token_retention", self.token_retention, MINUTE, DAY * 365)?;
        check_range("handoff_window", self.handoff_window, Duration::ZERO, Duration::from_secs(1))
    }

    /// Returns the whole name of the lock that the program calls `name`.
    pub(crate) fn prefixed(&self, name: &str) -> Arc<str> {
        // An empty name stays empty, so that it is refused as empty.
        if self.name_prefix.is_empty() || name.is_empty() {
            return name.into();
        }
        format!("{}{name}", self.name_prefix).into()
    }

    /// Checks the terms of an acquisition.
    pub(crate) fn check_terms(&self, terms: &Terms) -> Result<(), Error> {
        if terms.fair && self.deployment.is_quorum() {
            return Err(Error::SingleServerOnly {
                kind: LockKind::FairMutex,
                why: "independent servers share no order of arrival".into(),
            });
        }
        match terms.lease {
            // It was raised to `min_hold`, if that is longer.
            LeaseTerms::Watched(ttl) if ttl == terms.min_hold && !ttl.is_zero() => {
                self.check_lease("min_hold", ttl)?
            }
            LeaseTerms::Watched(ttl) => self.check_lease("ttl", ttl)?,
            LeaseTerms::Fixed(lease) => self.check_lease("lease", lease)?,
        }
        if terms.min_hold > terms.ttl() {
            // This is a fixed lease: others were raised to `min_hold`.
            return Err(Error::config(format!(
                "min_hold is {:?}, longer than the fixed lease of {:?}",
                terms.min_hold,
                terms.ttl()
            )));
        }
        check_range("min_validity", self.min_validity, Duration::ZERO, terms.ttl() / 2)?;
        match terms.max_hold {
            Some(Duration::ZERO) => Err(Error::config("max_hold is 0ns; it must be longer")),
            _ => Ok(()),
        }
    }

    /// Checks the length of a lease. A restarted server is trusted again after the quarantine, so no lease may be longer.
    pub(crate) fn check_lease(&self, what: &str, lease: Duration) -> Result<(), Error> {
        check_ttl(what, lease)?;
        let quarantine = self.quarantine();
        if !quarantine.is_zero() && lease > quarantine {
            return Err(Error::config(format!(
                "{what} is {lease:?}, longer than the restart_quarantine of {quarantine:?}: \
                 raise the quarantine in all clients of these servers"
            )));
        }
        Ok(())
    }

    /// Returns the time for which the grants of a restarted server do not count.
    pub(crate) fn quarantine(&self) -> Duration {
        self.restart_quarantine.unwrap_or(self.deployment.usual_quarantine())
    }

    /// Returns the number of microseconds to which tokens round the servers' clocks: with several nodes, the rounded
    /// clocks must agree.
    ///
    /// It is at most half a quarantine. After a counter was lost, the next grant comes a quarantine later, and its time,
    /// rounded down, must be above the last token.
    pub(crate) fn grain_us(&self) -> u64 {
        match self.quarantine() {
            _ if !self.deployment.is_quorum() => 1,
            Duration::ZERO => USUAL_GRAIN.as_micros() as u64,
            quarantine => ((quarantine / 2).min(USUAL_GRAIN).as_micros() as u64).max(1),
        }
    }

    /// Returns the time limit for the answer to a call about a lease of `ttl`.
    pub(crate) fn response_timeout(&self, ttl: Duration) -> Duration {
        self.response_timeout.min(ttl / 3)
    }

    /// Returns the time for which a server waits for its replicas. A call that is answered in time may have to wait for
    /// the `WAIT` of others before its own.
    pub(crate) fn sync_timeout(&self) -> Duration {
        self.response_timeout / 3
    }

    /// Returns the milliseconds for which a counter is kept after its last use; 0 means forever, as in Redisson.
    pub(crate) fn retention_ms(&self) -> u64 {
        if self.redisson_fencing { 0 } else { self.token_retention.as_millis() as u64 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: key::default_client_name(),
            name_prefix: "".into(),
            masters_name: None,
            ttl: Duration::from_secs(30),
            response_timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(5),
            unavailable_after: Duration::from_secs(10),
            handoff_window: Duration::from_millis(20),
            token_retention: DAY,
            redisson_fencing: false,
            self_wait: SelfWait::Warn,
            warn_held_after: None,
            deadlocks: Deadlocks::Certain,
            lock_order: LockOrder::default(),
            min_validity: Duration::ZERO,
            restart_quarantine: None,
            deployment: Deployment::Server,
            synced: 0,
            pubsub: PubSub::Auto,
        }
    }
}

fn check_ttl(what: &str, ttl: Duration) -> Result<(), Error> {
    check_range(what, ttl, SHORTEST_TTL, LONGEST_TTL)
}

fn check_range(what: &str, value: Duration, least: Duration, most: Duration) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::config(format!("{what} is {value:?}; it must be from {least:?} to {most:?}")))
}

const USUAL_GRAIN: Duration = Duration::from_secs(10);
const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SHORTEST_TTL: Duration = Duration::from_millis(10);
const LONGEST_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

#[cfg(test)]
mod tests;
