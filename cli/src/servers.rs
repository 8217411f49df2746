//! The connection to the servers.

use std::env::{self, VarError};
use std::fs;
use std::time::Duration;

use leasehold::{Client, ClientBuilder};

use crate::args::Servers;
use crate::exit::{self, Failure};
use crate::settings::Settings;

const PREFIX: &str = "LEASEHOLD_NAME_PREFIX";

impl Servers {
    /// Reads the file with settings, if there is one, and the prefix of the environment. What is asked of this value before does not
    /// know them.
    pub fn read_settings(&mut self) -> Result<(), Failure> {
        if let Some(file) = self.settings.as_ref().filter(|file| !file.as_os_str().is_empty()) {
            self.file = Settings::read(file)?;
        }
        // An option that is empty overrules the file; a variable that is set to nothing counts as not set.
        if self.name_prefix.is_none()
            && let Some(prefix) = env::var_os(PREFIX).filter(|prefix| !prefix.is_empty())
        {
            self.name_prefix = Some(prefix.into_string().map_err(|_| not_utf8(PREFIX))?);
        }
        Ok(())
    }

    /// Returns the URLs: of the command line, else of the file of URLs, else of the settings, else of the environment.
    pub fn urls(&self) -> Result<Vec<String>, Failure> {
        if !self.redis.is_empty() {
            return Ok(self.redis.clone());
        }
        // A variable that is set to nothing counts as not set.
        if let Some(file) = self.redis_file.as_ref().filter(|file| !file.as_os_str().is_empty()) {
            let shown = format!("--redis-file {}", file.display());
            let text = fs::read_to_string(file)
                .map_err(|error| Failure::new(exit::CONFIG, format!("{shown}: {error}")))?;
            let urls: Vec<_> = urls_in(&text, '\n');
            return match urls.is_empty() {
                true => Err(Failure::new(exit::CONFIG, format!("{shown} names no server"))),
                false => Ok(urls),
            };
        }
        if !self.file.nodes.is_empty() {
            return Ok(self.file.nodes.clone());
        }
        for (variable, separator) in [("LEASEHOLD_NODES", ','), ("REDIS_URL", '\n')] {
            match env::var(variable) {
                Ok(text) if !text.trim().is_empty() => return Ok(urls_in(&text, separator)),
                Err(VarError::NotUnicode(_)) => return Err(not_utf8(variable)),
                _ => (),
            }
        }
        Err(Failure::new(
            exit::USAGE,
            "which servers? Give --redis redis://host:6379 or --redis-file FILE, or `nodes` in --settings FILE, or set LEASEHOLD_NODES or REDIS_URL",
        ))
    }

    /// Connects with the given TTL, or with that of the settings, or with the library's own.
    pub async fn connect(&self, ttl: Option<Duration>) -> Result<Client, Failure> {
        Ok(self.builder(ttl)?.connect().await?)
    }

    /// Returns the builder of such a client.
    pub fn builder(&self, ttl: Option<Duration>) -> Result<ClientBuilder, Failure> {
        let urls = self.urls()?;
        let builder = self.file.builder().map_err(|problem| Failure::new(exit::CONFIG, problem))?;
        let mut builder = builder.nodes(urls.iter().map(String::as_str));
        if let Some(name) = self.name.as_ref().filter(|name| !name.is_empty()) {
            builder = builder.name(name.as_str());
        }
        builder = builder.name_prefix(self.prefix());
        if let Some(name) = self.masters_name.as_ref().filter(|name| !name.is_empty()) {
            builder = builder.masters_name(name.as_str());
        }
        if let Some(ttl) = ttl.or(self.file.ttl) {
            builder = builder.ttl(ttl);
        }
        Ok(builder)
    }

    /// Returns a lock's name as the servers know it.
    pub fn whole_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix())
    }

    /// Returns the prefix of all names, or nothing.
    pub fn prefix(&self) -> &str {
        self.name_prefix.as_ref().or(self.file.name_prefix.as_ref()).map_or("", String::as_str)
    }

    /// Returns the servers' addresses without logins, in order: two `run`s with the same ones mean the same locks.
    pub fn addresses(&self) -> Result<String, Failure> {
        let mut addresses: Vec<_> = self.urls()?.iter().map(|url| address(url)).collect();
        addresses.sort_unstable();
        Ok(addresses.join(","))
    }
}

fn urls_in(text: &str, separator: char) -> Vec<String> {
    // A URL of Sentinels or of a cluster has commas of its own.
    let scheme = text.trim_start().split("://").next().unwrap_or_default().to_ascii_lowercase();
    let is_whole = ["+sentinel", "+cluster"].iter().any(|kind| scheme.ends_with(kind));
    let separator = if is_whole { '\n' } else { separator };
    let lines = text.split(separator).map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

fn not_utf8(variable: &str) -> Failure {
    Failure::new(exit::CONFIG, format!("{variable} is not valid UTF-8"))
}

/// Returns the address that a URL names, without the login: the same for all URLs that the library takes for the same servers.
fn address(url: &str) -> String {
    let Some((scheme, rest)) = url.trim().split_once("://") else { return url.to_owned() };
    let scheme = scheme.to_ascii_lowercase().replacen("valkey", "redis", 1);
    if scheme.ends_with("unix") {
        return socket(rest);
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    // As in the library.
    let port = if scheme.ends_with("+sentinel") { 26379 } else { 6379 };
    let mut hosts: Vec<_> = hosts.split(',').map(|host| with_port(host, port)).collect();
    // Who names the same Sentinels, or the same nodes of a cluster, in another order means the same servers.
    hosts.sort_unstable();
    let path = format!("/{path}");
    let path = path.trim_end_matches('/');
    // The database that is meant if none is named.
    let path = path.strip_suffix("/0").unwrap_or(path);
    format!("{scheme}://{}{path}", hosts.join(","))
}

/// Returns the address of a socket. Its database and its login are in the query.
fn socket(rest: &str) -> String {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let means_nothing = |part: &&str| {
        part.is_empty() || *part == "db=0" || part.starts_with("user=") || part.starts_with("pass=")
    };
    let left: Vec<_> = query.split('&').filter(|part| !means_nothing(part)).collect();
    let mark = if left.is_empty() { "" } else { "?" };
    format!("unix://{path}{mark}{}", left.join("&"))
}

fn with_port(host: &str, port: u16) -> String {
    let host = host.trim().to_ascii_lowercase();
    // The colons of an IPv6 address are in brackets.
    match host.rsplit(']').next().is_some_and(|end| end.contains(':')) {
        true => host,
        false => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_separated_by_commas_or_lines() {
        assert_eq!(urls_in("redis://a, redis://b", ','), ["redis://a", "redis://b"]);
        assert_eq!(
            urls_in("# masters\nredis://a\n\nredis://b\n", '\n'),
            ["redis://a", "redis://b"]
        );
        for url in ["redis+cluster://a,b", "rediss+sentinel://a,b/main", "Valkey+Cluster://a,b"] {
            assert_eq!(urls_in(url, ','), [url]);
        }
        assert_eq!(
            urls_in("redis+unix:///a,redis+unix:///b", ','),
            ["redis+unix:///a", "redis+unix:///b"]
        );
    }

    #[test]
    fn addresses_have_no_logins() {
        assert_eq!(address("redis://user:se@cret@host:1/2"), "redis://host:1/2");
        assert_eq!(address("redis+sentinel://u:p?q@a:1,b:2/m"), "redis+sentinel://a:1,b:2/m");
        assert_eq!(address("unix:///run/redis.sock"), "unix:///run/redis.sock");
        assert_eq!(address("host"), "host");
        let with_login = "redis+unix:///run/redis.sock?user=u&pass=s&db=2";
        assert_eq!(address(with_login), "unix:///run/redis.sock?db=2");
        assert_eq!(address("unix:///a?pass=s"), "unix:///a");
    }

    /// Otherwise a `run` inside a `run` would wait for its own parent for ever.
    #[test]
    fn one_server_has_one_address_however_it_is_written() {
        let same: [&[&str]; 6] = [
            &[
                "redis://h",
                "redis://h:6379",
                "redis://h/",
                "redis://h/0",
                "redis://H",
                "Redis://u:p@h",
                "valkey://h",
                " redis://h\n",
            ],
            &["rediss://[::1]/2", "rediss://[::1]:6379/2", "VALKEYS://[::1]/2"],
            &[
                "redis+sentinel://a,b/m",
                "Valkey+Sentinel://b:26379,A/m/0",
                "redis+sentinel://b,a/m/",
            ],
            &["redis+cluster://a,b", "redis+cluster://u:p@b:6379,a/0", "valkey+cluster://A,B/"],
            &["unix:///Run/s", "redis+unix:///Run/s?db=0", "VALKEY+UNIX:///Run/s?user=u&pass=p"],
            &["unix:///Run/s?db=1", "redis+unix:///Run/s?pass=p&db=1"],
        ];
        for (index, urls) in same.iter().enumerate() {
            let addresses: Vec<_> = urls.iter().map(|url| address(url)).collect();
            assert!(addresses.iter().all(|it| *it == addresses[0]), "{addresses:?}");
            let others = same.iter().take(index).flat_map(|urls| urls.iter());
            assert!(!others.map(|url| address(url)).any(|it| it == addresses[0]), "{addresses:?}");
        }
        for (one, other) in [
            ("redis://h", "rediss://h"),
            ("redis://h", "redis://h:6380"),
            ("redis://h", "redis://h/1"),
            ("redis://h", "redis+cluster://h"),
            ("redis+sentinel://a/m", "redis+sentinel://a/M"),
            ("redis+sentinel://a/m", "redis+sentinel://a:6379/m"),
            ("unix:///Run/s", "unix:///run/s"),
        ] {
            assert_ne!(address(one), address(other));
        }
    }
}
