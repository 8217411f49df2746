//! The settings of a client and of a lock, and their checks.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::error::Error;
use crate::key;
use crate::secret::Secrets;

/// The reaction to a task that waits for a lock that it holds itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[non_exhaustive]
pub enum SelfWait {
    /// The call logs a warning and waits. The warning can be wrong for branches of a `join!`.
    #[default]
    Warn,
    /// The call fails with [`Error::SelfWait`]. Use it in tests.
    Fail,
}

/// The settings of a client.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) name: Arc<str>,
    /// The prefix of all lock names.
    pub(crate) name_prefix: Arc<str>,
    pub(crate) ttl: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) unavailable_after: Duration,
    pub(crate) handoff_window: Duration,
    pub(crate) token_retention: Duration,
    pub(crate) redisson_fencing: bool,
    pub(crate) self_wait: SelfWait,
    /// A grant with less time left than this is released again.
    pub(crate) min_validity: Duration,
    /// `None` means the default for this number of nodes.
    pub(crate) restart_quarantine: Option<Duration>,
    /// The number of nodes.
    pub(crate) nodes: usize,
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), Error> {
        Error::check_name(&self.name, key::client_name_problem(&self.name))?;
        Error::check_name(&self.name_prefix, key::name_prefix_problem(&self.name_prefix))?;
        check_nodes(self.nodes)?;
        check_range("restart_quarantine", self.quarantine(), Duration::ZERO, LONGEST_TTL)?;
        self.check_lease("ttl", self.ttl)?;
        check_range("min_validity", self.min_validity, Duration::ZERO, self.ttl / 2)?;
        check_range("response_timeout", self.response_timeout, MILLISECOND, DAY)?;
        check_range("connect_timeout", self.connect_timeout, MILLISECOND, DAY)?;
        check_range("unavailable_after", self.unavailable_after, MILLISECOND, LONGEST_TTL)?;
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
        if terms.fair && self.nodes > 1 {
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
            Some(Duration::ZERO) => Err(Error::config("max_hold must not be zero")),
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
        let usual = if self.nodes > 1 { USUAL_QUARANTINE } else { Duration::ZERO };
        self.restart_quarantine.unwrap_or(usual)
    }

    /// Returns the number of microseconds to which tokens round the servers' clocks: with several nodes, the rounded
    /// clocks must agree.
    ///
    /// It is at most half a quarantine. After a counter was lost, the next grant comes a quarantine later, and its time,
    /// rounded down, must be above the last token.
    pub(crate) fn grain_us(&self) -> u64 {
        match self.quarantine() {
            _ if self.nodes == 1 => 1,
            Duration::ZERO => USUAL_GRAIN.as_micros() as u64,
            quarantine => ((quarantine / 2).min(USUAL_GRAIN).as_micros() as u64).max(1),
        }
    }

    /// Returns the time limit for the answer to a call about a lease of `ttl`.
    pub(crate) fn response_timeout(&self, ttl: Duration) -> Duration {
        self.response_timeout.min(ttl / 3)
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
            ttl: Duration::from_secs(30),
            response_timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(5),
            unavailable_after: Duration::from_secs(10),
            handoff_window: Duration::from_millis(20),
            token_retention: DAY,
            redisson_fencing: false,
            self_wait: SelfWait::Warn,
            min_validity: Duration::ZERO,
            restart_quarantine: None,
            nodes: 1,
        }
    }
}

/// The terms of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) lease: LeaseTerms,
    /// The watchdog stops renewing that long after the hold began.
    pub(crate) max_hold: Option<Duration>,
    /// The lock stays taken for at least this time, even if it is released earlier.
    pub(crate) min_hold: Duration,
    /// Each acquisition has a place of its own in the server's queue, and nothing is handed over inside the process.
    pub(crate) fair: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseTerms {
    /// Renewed by the watchdog for as long as it is held.
    Watched(Duration),
    /// Ends when its time is over.
    Fixed(Duration),
}

impl Terms {
    pub(crate) fn of(lease: LeaseTerms) -> Self {
        Self { lease, max_hold: None, min_hold: Duration::ZERO, fair: false }
    }

    /// Returns the same terms with a lease of at least `min_hold`, so that it lasts even if its holder crashes at once.
    pub(crate) fn outlasting_min_hold(self) -> Self {
        match self.lease {
            LeaseTerms::Watched(ttl) => {
                Self { lease: LeaseTerms::Watched(ttl.max(self.min_hold)), ..self }
            }
            LeaseTerms::Fixed(_) => self,
        }
    }

    pub(crate) fn ttl(&self) -> Duration {
        match self.lease {
            LeaseTerms::Watched(ttl) | LeaseTerms::Fixed(ttl) => ttl,
        }
    }
}

/// The part of a lease of `ttl` that is given up for clocks that run at different rates.
pub(crate) fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

fn check_ttl(what: &str, ttl: Duration) -> Result<(), Error> {
    check_range(what, ttl, SHORTEST_TTL, LONGEST_TTL)
}

/// Checks the number of nodes. Two nodes stop when either fails, so they are less available than one.
fn check_nodes(nodes: usize) -> Result<(), Error> {
    let problem = match nodes {
        0 => "no server was named: call `nodes`",
        2 => {
            "two servers were named: a majority needs both, so the locks would be unavailable if either \
             fails; name one, or three"
        }
        3.. if nodes > MOST_NODES => "more than 31 servers were named",
        _ => return Ok(()),
    };
    Err(Error::config(problem))
}

fn check_range(what: &str, value: Duration, least: Duration, most: Duration) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::config(format!("{what} is {value:?}; it must be from {least:?} to {most:?}")))
}

/// The address of a server, and the login for it. It may contain a password, so it is never shown whole.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) info: ConnectionInfo,
    /// The address without credentials.
    pub(crate) shown: Arc<str>,
    pub(crate) secrets: Secrets,
}

impl Address {
    /// Parses all URLs. No two may be the same, since they would be one vote.
    pub(crate) fn parse_all(urls: &[String]) -> Result<Vec<Self>, Error> {
        let mut addresses: Vec<Self> = Vec::new();
        for url in urls {
            let address = Self::parse(url)?;
            if addresses.iter().any(|other| other.shown == address.shown) {
                return Err(Error::config(format!("{} is named twice", address.shown)));
            }
            addresses.push(address);
        }
        Ok(addresses)
    }

    /// Parses a URL. No error message repeats the URL, or a part of it that could belong to a password.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let not_valid =
            |problem: &str| Error::config(format!("the server's URL is not valid: {problem}"));
        if let Some(problem) = url_problem(url) {
            return Err(not_valid(problem));
        }
        let info = url.into_connection_info().map_err(|error| not_valid(parse_problem(&error)))?;
        let shown = match info.addr() {
            ConnectionAddr::Tcp(host, port) => format!("redis://{}:{port}", bracketed(host)),
            ConnectionAddr::TcpTls { host, port, .. } => {
                format!("rediss://{}:{port}", bracketed(host))
            }
            ConnectionAddr::Unix(path) => format!("unix://{}", path.display()),
            _ => "a server".to_owned(),
        };
        if !info.addr().is_supported() {
            return Err(Error::config(format!(
                "{shown}: such addresses are not supported on this platform"
            )));
        }
        let secrets = Secrets::of(url, info.redis_settings().password());
        Ok(Self { info, shown: shown.into(), secrets })
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }
}

fn bracketed(host: &str) -> Cow<'_, str> {
    if host.contains(':') { format!("[{host}]").into() } else { host.into() }
}

/// Returns a common problem of a URL, and its correction.
fn url_problem(url: &str) -> Option<&'static str> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Some(
            "it has no scheme: begin with `redis://` (`rediss://` for TLS, `unix://` for a socket), as in \
             redis://localhost:6379",
        );
    };
    let scheme = scheme.to_ascii_lowercase();
    if !cfg!(feature = "tls") && ["rediss", "valkeys"].contains(&&*scheme) {
        return Some("this build does not support rediss:// addresses: enable the feature \"tls\"");
    }
    if scheme.contains("sentinel") {
        return Some(
            "Sentinels are not supported: name the master that they watch, as in redis://host:6379",
        );
    }
    if scheme.contains("cluster") {
        return Some(
            "Redis Cluster is not supported: name a server that is in no cluster, as in redis://host:6379",
        );
    }
    if !SCHEMES.contains(&&*scheme) {
        return Some(
            "its scheme is none of redis, rediss and unix: write `redis://`, as in redis://localhost:6379",
        );
    }
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    let is_bare_ipv6 =
        !scheme.contains("unix") && !host.contains('[') && host.matches(':').count() > 1;
    is_bare_ipv6.then_some("an IPv6 address needs brackets in a URL, as in redis://[::1]:6379")
}

fn parse_problem(error: &redis::RedisError) -> &'static str {
    let text = error.to_string();
    let problems = [
        (
            "wildcard",
            "0.0.0.0 and :: are addresses where a server listens: name its host, as in redis://localhost:6379",
        ),
        (
            "database",
            "what follows the host must be the number of a database, like the 2 in redis://localhost:6379/2",
        ),
        ("hostname", "it names no host: add one, as in redis://localhost:6379"),
        ("path", "it names no socket: give its whole path, as in unix:///run/redis.sock"),
        ("fragment", "the part after the `#` is not supported"),
    ];
    let known = problems.iter().find(|(word, _)| text.contains(word));
    known.map_or(
        "it cannot be parsed: write redis://[user:password@]host[:port][/database], with `@`, `:`, `/`, `?`, `#` and `%` \
         in user and password as %40, %3A, %2F, %3F, %23 and %25",
        |(_, problem)| problem,
    )
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Twice the default TTL.
const USUAL_QUARANTINE: Duration = Duration::from_secs(60);
const USUAL_GRAIN: Duration = Duration::from_secs(10);
const SCHEMES: [&str; 7] =
    ["redis", "rediss", "valkey", "valkeys", "unix", "redis+unix", "valkey+unix"];
/// The highest number of nodes: more would only be slower.
const MOST_NODES: usize = 31;
const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SHORTEST_TTL: Duration = Duration::from_millis(10);
const LONGEST_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        let address = Address::parse("redis://user:canary@localhost:7000/2").expect("a valid URL");
        assert_eq!(format!("{address:?}"), "redis://localhost:7000");
        let error = Address::parse("redis://user:canary@:bad port/").expect_err("not a URL");
        assert!(!format!("{error} {error:?}").contains("canary"));
    }

    #[test]
    fn an_address_is_shown_with_its_kind_and_named_once() {
        for (url, shown) in [
            ("redis://localhost", "redis://localhost:6379"),
            ("redis+unix:///run/redis.sock", "unix:///run/redis.sock"),
            #[cfg(feature = "tls")]
            ("rediss://localhost:1", "rediss://localhost:1"),
        ] {
            assert_eq!(&*Address::parse(url).expect("a valid URL").shown, shown);
        }
        let all = |urls: &[&str]| {
            Address::parse_all(&urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(all(&["redis://a", "redis://b", "redis://a:1"]).expect("three").len(), 3);
        let error = all(&["redis://a", "redis://b", "redis://u:canary@a/1"]).expect_err("twice");
        assert!(error.to_string().contains("redis://a:6379 is named twice"), "{error}");
    }

    #[test]
    fn an_ipv6_address_without_brackets_is_named_as_what_is_wrong() {
        let problem =
            |url| Address::parse(url).map_or_else(|error| error.to_string(), |_| String::new());
        for url in ["redis://[::1]", "redis://[fe80::1:2]:6379", "redis://a:b:c@localhost:1"] {
            assert_eq!(problem(url), "", "{url}");
        }
        for url in ["redis://::1", "redis://fe80::1:2:6379/0", "redis://a:b@::1"] {
            assert!(problem(url).contains("brackets"), "{url}: {}", problem(url));
        }
        let socket = problem("unix://a:b:c");
        assert!(!socket.is_empty() && !socket.contains("brackets"), "{socket}");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn the_scheme_says_whether_a_server_is_reached_by_tls() {
        for (url, is_tls) in [("redis://a", false), ("rediss://a", true), ("unix:///a", false)] {
            assert_eq!(Address::parse(url).expect("a valid URL").is_tls(), is_tls, "{url}");
        }
    }

    /// Returns the problem, or an empty string.
    fn problem(config: Config) -> String {
        config.check().map_or_else(|error| error.to_string(), |()| String::new())
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
        assert_eq!(Config { nodes: 3, ..config }.quarantine(), MINUTE);
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
    fn one_server_or_three_to_31_can_be_named() {
        let with = |nodes| problem(Config { nodes, ..Config::default() });
        for nodes in [1, 3, 4, 31] {
            assert_eq!(with(nodes), "");
        }
        for (nodes, why) in [(0, "no server"), (2, "two servers"), (32, "more than 31")] {
            assert!(with(nodes).contains(why), "{nodes}: {}", with(nodes));
        }
    }

    #[test]
    fn no_lease_is_longer_than_the_quarantine() {
        let checked = |nodes, quarantine: Option<u64>, ttl: u64| {
            let restart_quarantine = quarantine.map(Duration::from_secs);
            let config = Config { nodes, restart_quarantine, ..Config::default() };
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
            let config = Config { nodes, ..Config::default() };
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
            Config { nodes, restart_quarantine, ..Config::default() }.grain_us()
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
