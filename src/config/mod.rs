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
use crate::key;

/// The reaction to a task that waits for a lock that it holds itself.
///
/// The default is the same with and without debug assertions: a program that fails in tests must not hang in production, nor the
/// other way round. It is not [`Fail`](Self::Fail), since two branches of a `join!` are one task, and one of them may well wait
/// until the other has released the lock. Where that does not occur, set `Fail` in production, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[non_exhaustive]
pub enum SelfWait {
    /// The call logs a warning and waits. The warning can be wrong for branches of a `join!`.
    #[default]
    #[cfg_attr(feature = "serde", serde(alias = "warn"))]
    Warn,
    /// The call fails with [`Error::SelfWait`]. Use it in tests.
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
/// Only waits are looked at whose owner, task or thread held something when they began. Nothing is known of the permits of
/// semaphores, of locks that Redisson holds, and of waits for anything else, such as a mutex of tokio.
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
    /// The call fails with [`Error::Deadlock`] also if tasks or named owners are part of the circle. That can be wrong for a
    /// task that waits for something else at the same time, as in `select!`, and if another task drops its guards.
    #[cfg_attr(feature = "serde", serde(alias = "fail"))]
    Fail,
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
            return Err(Error::SingleServerOnly {
                what: "`synced`",
                why: "the servers of a quorum have no replicas, and a majority of them must grant anyway",
            });
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
                what: "a fair mutex",
                why: "independent servers share no order of arrival",
            });
        }
        match terms.lease {
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
mod tests {
    use super::*;

    /// Returns the problem, or an empty string.
    fn problem(config: Config) -> String {
        config.check().map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn replicas_have_a_third_of_the_response_timeout() {
        let config = Config { response_timeout: 900 * MILLISECOND, ..Config::default() };
        assert_eq!(config.sync_timeout(), 300 * MILLISECOND);
    }

    #[test]
    fn each_setting_has_its_range() {
        type Set = fn(&mut Config, Duration);
        let settings: [(&str, Set, Duration, Duration); 8] = [
            ("ttl", |c, value| c.ttl = value, SHORTEST_TTL, LONGEST_TTL),
            ("min_validity", |c, value| c.min_validity = value, Duration::ZERO, MINUTE / 4),
            ("response_timeout", |c, value| c.response_timeout = value, MILLISECOND, DAY),
            ("connect_timeout", |c, value| c.connect_timeout = value, MILLISECOND, DAY),
            ("unavailable_after", |c, value| c.unavailable_after = value, MILLISECOND, DAY * 30),
            ("token_retention", |c, value| c.token_retention = value, MINUTE, DAY * 365),
            ("handoff_window", |c, value| c.handoff_window = value, Duration::ZERO, MINUTE / 60),
            (
                "restart_quarantine",
                |c, value| c.restart_quarantine = Some(value),
                MINUTE / 2,
                DAY * 30,
            ),
        ];
        for (name, set, least, most) in settings {
            let with = |value| {
                let mut config = Config::default();
                set(&mut config, value);
                problem(config)
            };
            assert_eq!((with(least), with(most)), (String::new(), String::new()), "{name}");
            let too_much = with(most + Duration::from_nanos(1));
            assert!(too_much.contains(&format!("{name} is ")), "{name}: {too_much:?}");
            if let Some(too_little) = least.checked_sub(Duration::from_nanos(1)) {
                let too_little = with(too_little);
                assert!(too_little.contains(name), "{name}: {too_little:?}");
            }
        }
        assert_eq!(problem(Config { name: "a.b_C-1".into(), ..Config::default() }), "");
        assert_ne!(problem(Config { name: "a b".into(), ..Config::default() }), "");
        assert_eq!(problem(Config { name_prefix: "a b:".into(), ..Config::default() }), "");
        assert_ne!(problem(Config { name_prefix: "{a}".into(), ..Config::default() }), "");
        let plain = |deployment| Config { deployment, pubsub: PubSub::Plain, ..Config::default() };
        assert!(problem(plain(Deployment::Sentinel)).contains("pubsub"));
        assert_eq!(problem(plain(Deployment::Cluster)), "");
    }

    #[test]
    fn the_defaults_are_those_that_the_builder_documents() {
        let config = Config::default();
        assert_eq!((config.ttl, config.quarantine()), (MINUTE / 2, Duration::ZERO));
        assert_eq!(config.response_timeout, Duration::from_secs(1));
        assert_eq!(config.connect_timeout, Duration::from_secs(5));
        assert_eq!(config.unavailable_after, Duration::from_secs(10));
        assert_eq!(config.handoff_window, Duration::from_millis(20));
        assert_eq!((config.token_retention, config.redisson_fencing), (DAY, false));
        assert_eq!((config.min_validity, &*config.name_prefix), (Duration::ZERO, ""));
        assert_eq!(Config { deployment: Deployment::Masters(3), ..config }.quarantine(), MINUTE);
    }

    #[test]
    fn a_prefix_is_put_before_every_name_but_an_empty_one() {
        let prefixed = |prefix: &str, name| {
            Config { name_prefix: prefix.into(), ..Config::default() }.prefixed(name)
        };
        assert_eq!((&*prefixed("p:", "n"), &*prefixed("", "n")), ("p:n", "n"));
        assert_eq!(&*prefixed("p:", ""), "");
    }

    #[test]
    fn no_lease_is_longer_than_the_quarantine() {
        let checked = |nodes, quarantine: Option<u64>, ttl: u64| {
            let restart_quarantine = quarantine.map(Duration::from_secs);
            let deployment = Deployment::of_servers(nodes);
            let config = Config { deployment, restart_quarantine, ..Config::default() };
            config.check_lease("ttl", Duration::from_secs(ttl)).is_ok()
        };
        for (nodes, quarantine, longest) in [(3, None, 60), (3, Some(90), 90), (1, Some(40), 40)] {
            assert!(checked(nodes, quarantine, longest));
            assert!(!checked(nodes, quarantine, longest + 1), "{nodes} nodes, {quarantine:?}");
        }
        assert!(checked(1, None, 86_400) && checked(3, Some(0), 86_400), "there is none");
    }

    #[test]
    fn terms_leave_something_to_hold() {
        let config = Config { min_validity: Duration::from_secs(5), ..Config::default() };
        let checked = |ttl: u64, max_hold| {
            let lease = LeaseTerms::Watched(Duration::from_secs(ttl));
            config.check_terms(&Terms { max_hold, ..Terms::of(lease) }).is_ok()
        };
        assert!(checked(10, None));
        assert!(!checked(9, None), "half of it is less than min_validity");
        assert!(checked(10, Some(Duration::from_nanos(1))));
        assert!(!checked(10, Some(Duration::ZERO)));
        let checked = |min_hold: u64| {
            let lease = LeaseTerms::Fixed(Duration::from_secs(10));
            let min_hold = Duration::from_secs(min_hold);
            config.check_terms(&Terms { min_hold, ..Terms::of(lease) }).is_ok()
        };
        assert!(checked(10));
        assert!(!checked(11), "the lease ends before");
    }

    #[test]
    fn a_fair_lock_is_on_one_server() {
        let checked = |nodes| {
            let lease = LeaseTerms::Watched(Duration::from_secs(30));
            let deployment = Deployment::of_servers(nodes);
            let config = Config { deployment, ..Config::default() };
            config.check_terms(&Terms { fair: true, ..Terms::of(lease) })
        };
        assert!(checked(1).is_ok());
        assert!(matches!(checked(3), Err(Error::SingleServerOnly { .. })));
    }

    #[test]
    fn what_follows_from_a_lease_is_a_part_of_it() {
        let config = Config::default();
        assert_eq!(config.response_timeout(Duration::from_millis(300)), Duration::from_millis(100));
        assert_eq!(config.response_timeout(MINUTE), Duration::from_secs(1));
        assert_eq!(drift(Duration::from_secs(10)), Duration::from_millis(102));
        assert_eq!(config.retention_ms(), 86_400_000);
        assert_eq!(Config { redisson_fencing: true, ..config }.retention_ms(), 0);
    }

    #[test]
    fn tokens_round_clocks_to_less_than_a_quarantine() {
        let grain = |nodes, seconds| {
            let restart_quarantine = Some(Duration::from_secs_f64(seconds));
            let deployment = Deployment::of_servers(nodes);
            Config { deployment, restart_quarantine, ..Config::default() }.grain_us()
        };
        assert_eq!(grain(1, 60.0), 1);
        for (quarantine, us) in
            [(60.0, 10_000_000), (20.0, 10_000_000), (2.0, 1_000_000), (1e-6, 1), (0.0, 10_000_000)]
        {
            assert_eq!(grain(3, quarantine), us, "{quarantine} s");
        }
    }

    #[test]
    fn durations_out_of_range_are_refused() {
        for ttl in [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_millis(9),
            LONGEST_TTL + MILLISECOND,
            Duration::MAX,
        ] {
            for lease in [LeaseTerms::Watched(ttl), LeaseTerms::Fixed(ttl)] {
                let terms = Terms::of(lease);
                let checked = Config::default().check_terms(&terms);
                assert!(matches!(checked, Err(Error::InvalidConfig { .. })), "{terms:?}");
            }
        }
    }
}
