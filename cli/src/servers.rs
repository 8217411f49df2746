//! The connection to the servers.

use std::env;
use std::fs;
use std::time::Duration;

use leasehold::Client;

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
            let no_text = |_| Failure::new(exit::CONFIG, format!("{PREFIX} is no text"));
            self.name_prefix = Some(prefix.into_string().map_err(no_text)?);
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
            let text = fs::read_to_string(file).map_err(|error| {
                Failure::new(exit::CONFIG, format!("{}: {error}", file.display()))
            })?;
            let urls: Vec<_> = urls_in(&text, '\n');
            return match urls.is_empty() {
                true => {
                    Err(Failure::new(exit::CONFIG, format!("{} names no server", file.display())))
                }
                false => Ok(urls),
            };
        }
        if !self.file.nodes.is_empty() {
            return Ok(self.file.nodes.clone());
        }
        for (variable, separator) in [("LEASEHOLD_NODES", ','), ("REDIS_URL", '\n')] {
            match env::var(variable) {
                Ok(text) if !text.trim().is_empty() => return Ok(urls_in(&text, separator)),
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
        Ok(builder.connect().await?)
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
        let mut addresses: Vec<_> = self.urls()?.iter().map(|url| without_login(url)).collect();
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

fn without_login(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    // That of a socket is in the query.
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let is_login = |part: &&str| ["user=", "pass="].iter().any(|key| part.starts_with(key));
    let rest: Vec<_> =
        query.split('&').filter(|part| !part.is_empty() && !is_login(part)).collect();
    let mark = if rest.is_empty() { "" } else { "?" };
    format!("{scheme}://{host}{path}{mark}{}", rest.join("&"))
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
        assert_eq!(without_login("redis://user:se@cret@host:1/2"), "redis://host:1/2");
        assert_eq!(without_login("unix:///run/redis.sock"), "unix:///run/redis.sock");
        assert_eq!(without_login("host"), "host");
        let socket = "redis+unix:///run/redis.sock?user=u&pass=s&db=2";
        assert_eq!(without_login(socket), "redis+unix:///run/redis.sock?db=2");
        assert_eq!(without_login("unix:///a?pass=s"), "unix:///a");
    }
}
