//! What is wrong with a URL, in words that say what to write instead. They repeat no part of it that could belong to a
//! password.

use std::borrow::Cow;

/// Returns a common problem of the URL of one server, and its correction.
pub(super) fn problem(url: &str) -> Option<Cow<'static, str>> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Some(NO_SCHEME.into());
    };
    let scheme = scheme.to_ascii_lowercase();
    if !cfg!(feature = "tls") && ["rediss", "valkeys"].contains(&&*scheme) {
        return Some(NO_TLS.into());
    }
    if scheme.contains("sentinel") {
        return Some(SENTINEL.into());
    }
    if scheme.contains("cluster") {
        let path = rest.split_once('/').map_or("", |(_, path)| path);
        return Some(match () {
            () if path.contains('@') => NOT_PARSED.into(),
            () if !path.is_empty() => CLUSTER_DATABASE.into(),
            () => CLUSTER.into(),
        });
    }
    if !SCHEMES.contains(&&*scheme) {
        return Some(OTHER_SCHEME.into());
    }
    if scheme.contains("unix") {
        return option_problem(rest, &["db", "user", "pass"]);
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if rest[authority.len()..].contains('@') {
        return Some(NOT_PARSED.into());
    }
    if let Some(problem) = option_problem(rest, &[]) {
        return Some(problem);
    }
    let host = host_in(rest);
    if host.contains(',') {
        return Some(SEVERAL_HOSTS.into());
    }
    let is_bare_ipv6 = !host.contains('[') && host.matches(':').count() > 1;
    is_bare_ipv6.then_some(BARE_IPV6.into())
}

/// As [`problem`], of a URL that names a whole deployment: only what would be taken for a part of something else.
pub(super) fn compound_problem(url: &str) -> Option<Cow<'static, str>> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    if !scheme.contains("sentinel") && !scheme.contains("cluster") {
        return None;
    }
    let (_, behind) = rest.rsplit_once('@').unwrap_or(("", rest));
    option_problem(behind, &[])
}

/// Nothing behind a `?` or a `#` is ignored, since whoever writes it relies on it. And nothing there may weaken a check:
/// redis-rs takes `#insecure` for a wish to connect to anybody.
fn option_problem(rest: &str, known: &[&str]) -> Option<Cow<'static, str>> {
    let (before, fragment) = match rest.split_once('#') {
        Some((before, fragment)) => (before, Some(fragment)),
        None => (rest, None),
    };
    if fragment == Some("insecure") {
        return Some(INSECURE.into());
    }
    if fragment.is_some() {
        return Some(FRAGMENT.into());
    }
    let (_, options) = before.split_once('?')?;
    let mut names = options.split('&').map(|option| option.split_once('='));
    let mut has_password = false;
    let unknown = names.find(|option| {
        let name = option.map(|(name, _)| name).filter(|name| known.contains(name));
        // What follows may belong to it, with an `&` that should be `%26`.
        has_password |= name == Some("pass");
        name.is_none()
    })?;
    let is_word = |name: &&str| {
        (1..=24).contains(&name.len())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    };
    let what = match unknown.map(|(name, _)| name).filter(is_word) {
        Some(_) if has_password => {
            "what follows `pass=` and an `&` (in a password, write `&` as %26)".into()
        }
        Some(name) => format!("its option `{name}`"),
        None => "what follows the `?`".into(),
    };
    Some(format!("{what} is not supported: {FORMAT}; all else is set by `ClientBuilder`").into())
}

/// Returns the problem of which this message tells: redis-rs did not take the URL.
pub(super) fn parse_problem(text: &str) -> &'static str {
    let problems = [
        ("wildcard", WILDCARD),
        ("database", DATABASE),
        ("hostname", NO_HOST),
        ("path", NO_SOCKET),
    ];
    let known = problems.iter().find(|(word, _)| text.contains(word));
    known.map_or(NOT_PARSED, |(_, problem)| problem)
}

/// Returns true if the URL says at which port its host listens.
pub(super) fn names_port(url: &str) -> bool {
    let host = host_in(url.split_once("://").map_or(url, |(_, rest)| rest));
    host.rsplit(']').next().is_some_and(|end| end.contains(':'))
}

/// Returns the host and the port of a URL, as they stand there.
fn host_in(rest: &str) -> &str {
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    host.rsplit('@').next().unwrap_or_default()
}

const SCHEMES: [&str; 7] =
    ["redis", "rediss", "valkey", "valkeys", "unix", "redis+unix", "valkey+unix"];

const NO_SCHEME: &str = "it has no scheme: begin with `redis://` (`rediss://` for TLS, `unix://` for a socket), as in \
                         redis://localhost:6379";
const OTHER_SCHEME: &str = "its scheme is none of redis, rediss, valkey, valkeys and unix: write `redis://`, as in \
                            redis://localhost:6379";
const NO_TLS: &str = "this build does not support rediss:// addresses: enable the feature \"tls\"";
const SENTINEL: &str = "name Sentinels with `ClientBuilder::sentinel`, each as redis://host:26379, or all in one URL, as in \
                        redis+sentinel://host:26379,host:26379/mymaster";
const CLUSTER: &str = "name nodes of a cluster with `ClientBuilder::cluster`, each as redis://host:6379, or all in one URL, as in \
     redis+cluster://host:6379,host:6379";
const CLUSTER_DATABASE: &str = "a cluster has no databases: nothing may follow its hosts";
const SEVERAL_HOSTS: &str = "it names several hosts: pass a URL for each to `ClientBuilder::nodes` or \
                             `ClientBuilder::cluster`, or write redis+cluster://host,host or redis+sentinel://host,host/mymaster";
const BARE_IPV6: &str = "an IPv6 address needs brackets in a URL, as in redis://[::1]:6379";
const WILDCARD: &str = "0.0.0.0 and :: are addresses where a server listens: name its host, as in redis://localhost:6379";
const DATABASE: &str = "what follows the host must be the number of a database, like the 2 in redis://localhost:6379/2";
const NO_HOST: &str = "it names no host: add one, as in redis://localhost:6379";
const NO_SOCKET: &str = "it names no socket: give its whole path, as in unix:///run/redis.sock";
const INSECURE: &str = "`#insecure` is not supported: a server's certificate is always checked; name your own authority \
                        with `ClientBuilder::root_certificates`";
const FRAGMENT: &str = "the part after the `#` is not supported (in a password, write `#` as %23)";
const FORMAT: &str = "a URL reads redis://[user:password@]host[:port][/database], or \
                      unix:///path/to.sock[?db=..&user=..&pass=..]";
const NOT_PARSED: &str = "it cannot be parsed: write redis://[user:password@]host[:port][/database], with `@`, `:`, `/`, `?`, \
                          `#` and `%` in user and password as %40, %3A, %2F, %3F, %23 and %25";

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "tls")]
    #[test]
    fn no_url_switches_a_check_off() {
        for url in [
            "rediss://localhost/#insecure",
            "rediss://localhost#insecure",
            "rediss://u:p@[::1]:1/2#insecure",
            "valkeys://localhost/?#insecure",
            "redis://localhost/#insecure",
            "unix:///a#insecure",
        ] {
            assert_eq!(problem(url).as_deref(), Some(INSECURE), "{url}");
        }
        for url in ["rediss+sentinel://a,b/m#insecure", "rediss+cluster://u:p@a,b/#insecure"] {
            assert_eq!(compound_problem(url).as_deref(), Some(INSECURE), "{url}");
        }
        for url in ["rediss://localhost#", "rediss://a#Insecure", "redis://a/1#x", "unix:///a#x"] {
            assert_eq!(problem(url).as_deref(), Some(FRAGMENT), "{url}");
        }
    }

    const PASSWORD: &str = "what follows `pass=` and an `&` (in a password, write `&` as %26)";

    #[test]
    fn an_option_that_would_be_ignored_is_refused_by_name() {
        let name = |problem: Option<Cow<'static, str>>| {
            problem.and_then(|text| Some(text.split_once(" is not supported")?.0.to_owned()))
        };
        for (url, refused) in [
            ("redis://localhost?timeout=5", "its option `timeout`"),
            ("redis://localhost/2?protocol=resp3&db=1", "its option `protocol`"),
            ("unix:///a?db=1&protocol=3", "its option `protocol`"),
            ("unix:///a?db=1&user=u&x_y=&pass=p", "its option `x_y`"),
            ("unix:///a?pass=Tr0ub&4dor=3", PASSWORD),
            ("unix:///a?db=1&pass=p&user=u&x_y=", PASSWORD),
            ("redis://localhost?pass=p", "its option `pass`"),
            ("redis://localhost/?canary", "what follows the `?`"),
            ("redis://localhost/?", "what follows the `?`"),
            ("redis://localhost/?can/ary=1", "what follows the `?`"),
        ] {
            assert_eq!(name(problem(url)).as_deref(), Some(refused), "{url}");
        }
        for url in ["redis+sentinel://u:p@a,b/m?timeout=5", "redis+cluster://a?timeout=5,b"] {
            assert_eq!(name(compound_problem(url)).as_deref(), Some("its option `timeout`"));
        }
        for url in ["redis://localhost/2", "unix:///a?db=1&user=u&pass=p@q?", "unix:///a"] {
            assert_eq!(problem(url), None, "{url}");
        }
        assert_eq!(compound_problem("redis+sentinel://u:p?q#r@a,b/m/2"), None, "a password");
    }

    #[test]
    fn what_may_belong_to_a_password_is_told_how_to_be_written_and_not_shown() {
        for url in [
            "redis://u:a/canary@h",
            "redis://u:a?canary=1@h",
            "redis://u:a#canary@h",
            "redis://u:a@b/canary@h",
            "redis://u:a,b/canary@h",
        ] {
            assert_eq!(problem(url).as_deref(), Some(NOT_PARSED), "{url}");
        }
    }

    #[test]
    fn what_follows_the_hosts_of_a_cluster_is_told() {
        for (url, told) in [
            ("redis+cluster://a,b/1", CLUSTER_DATABASE),
            ("redis+cluster://u:a/canary@h", NOT_PARSED),
            ("cluster://a", CLUSTER),
        ] {
            assert_eq!(problem(url).as_deref(), Some(told), "{url}");
        }
    }

    #[test]
    fn several_hosts_in_one_url_are_no_ipv6_address() {
        for url in ["redis://a,b", "redis://a:1,b:2", "redis://u:p@a:1,b:2/0"] {
            assert_eq!(problem(url).as_deref(), Some(SEVERAL_HOSTS), "{url}");
        }
        assert_eq!(problem("redis://u:p,q@a:1"), None);
    }

    #[test]
    fn an_ipv6_address_without_brackets_is_named_as_what_is_wrong() {
        for url in ["redis://[::1]", "redis://[fe80::1:2]:6379", "redis://a:b:c@localhost:1"] {
            assert_eq!(problem(url), None, "{url}");
        }
        for url in ["redis://::1", "redis://fe80::1:2:6379/0", "redis://a:b@::1"] {
            assert_eq!(problem(url).as_deref(), Some(BARE_IPV6), "{url}");
        }
        assert_eq!(problem("unix://a:b:c"), None);
    }
}
