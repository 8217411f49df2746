//! The addresses of servers.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::error::Error;
use crate::secret::Secrets;

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

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

const SCHEMES: [&str; 7] =
    ["redis", "rediss", "valkey", "valkeys", "unix", "redis+unix", "valkey+unix"];

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
}
