//! The addresses of servers.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use super::place::Access;
use super::url;
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
        let addresses: Vec<Self> =
            urls.iter().map(|url| Self::parse(url)).collect::<Result<_, _>>()?;
        Self::check_unique(&addresses)?;
        Ok(addresses)
    }

    fn check_unique(addresses: &[Self]) -> Result<(), Error> {
        for (index, address) in addresses.iter().enumerate() {
            if addresses[..index].iter().any(|other| other.shown == address.shown) {
                return Err(Error::config(format!("{} is named twice", address.shown)));
            }
        }
        Ok(())
    }

    /// Parses the URLs of Sentinels.
    pub(crate) fn parse_sentinels(urls: &[String]) -> Result<Vec<Self>, Error> {
        let mut addresses = Vec::new();
        for url in urls {
            let mut address = Self::parse(url)?;
            if let (false, ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }) =
                (url::names_port(url.trim()), address.info.addr())
            {
                address = address.at(&host.clone(), SENTINEL_PORT);
            }
            if address.info.redis_settings().db() != 0 {
                return Err(Error::config(format!(
                    "{}: Sentinels have no databases: call `server_database`",
                    address.shown
                )));
            }
            addresses.push(address);
        }
        Self::check_unique(&addresses)?;
        Ok(addresses)
    }

    /// Parses the URLs of some nodes of a cluster, which say how all its nodes are reached.
    pub(crate) fn parse_seeds(urls: &[String]) -> Result<Vec<Self>, Error> {
        let seeds = Self::parse_all(urls)?;
        let Some(first) = seeds.first() else {
            return Err(Error::config("cluster: no node was named"));
        };
        let login = |seed: &Self| {
            let settings = seed.info.redis_settings();
            (settings.username().map(str::to_owned), settings.password().map(str::to_owned))
        };
        for seed in &seeds {
            let shown = &seed.shown;
            let problem = if seed.host_and_port().is_none() {
                "a node of a cluster has a host and a port"
            } else if seed.info.redis_settings().db() != 0 {
                "a cluster has no databases"
            } else if login(seed) != login(first) || seed.is_tls() != first.is_tls() {
                "all nodes of a cluster have the same login and TLS"
            } else {
                continue;
            };
            return Err(Error::config(format!("cluster: {shown}: {problem}")));
        }
        Ok(seeds)
    }

    /// Returns an address with everything but the host and the port, for [`at`](Self::at).
    pub(crate) fn of_servers(access: &Access) -> Result<Self, Error> {
        let Access { login, tls, database } = access;
        let scheme = if *tls { "rediss" } else { "redis" };
        let mut address = Self::parse(&format!("{scheme}://server/{database}"))?;
        if let Some((user, password)) = login {
            let settings = address.info.redis_settings().clone();
            let settings = settings.set_password(password);
            let settings = if user.is_empty() { settings } else { settings.set_username(user) };
            address.info = address.info.set_redis_settings(settings);
            address.secrets = Secrets::of("", Some(password));
        }
        Ok(address)
    }

    /// Returns the same address with another host and port.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        let mut addr = self.info.addr().clone();
        if let ConnectionAddr::Tcp(its_host, its_port)
        | ConnectionAddr::TcpTls { host: its_host, port: its_port, .. } = &mut addr
        {
            (*its_host, *its_port) = (host.to_owned(), port);
        }
        let shown = shown(&addr).into();
        let info = self.info.clone().set_addr(addr);
        Self { info, shown, secrets: self.secrets.clone() }
    }

    /// Checks a URL that may name a whole deployment, before it is taken apart.
    pub(super) fn check_compound(url: &str) -> Result<(), Error> {
        url::compound_problem(url).map_or(Ok(()), |problem| Err(not_valid(&problem)))
    }

    /// Parses a URL. No error message repeats the URL, or a part of it that could belong to a password.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let url = url.trim();
        if let Some(problem) = url::problem(url) {
            return Err(not_valid(&problem));
        }
        let made = url.into_connection_info();
        let info = made.map_err(|error| not_valid(url::parse_problem(&error.to_string())))?;
        // There would be no login, and so the rights of the default user.
        let login = info.redis_settings();
        if login.password().is_none() && login.username().is_some_and(|user| user != "default") {
            return Err(not_valid(
                "it names a user and no password, without which there is no login: add one \
                 (a user with `nopass` accepts any)",
            ));
        }
        let shown = shown(info.addr());
        if !info.addr().is_supported() {
            return Err(Error::config(format!(
                "{shown}: such addresses are not supported on this platform"
            )));
        }
        let secrets = Secrets::of(url, info.redis_settings().password());
        Ok(Self { info, shown: shown.into(), secrets })
    }

    /// Returns the host and the port, if it is not the path of a socket.
    pub(crate) fn host_and_port(&self) -> Option<(&str, u16)> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host, *port))
            }
            _ => None,
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }
}

/// Returns an address as a URL without a login.
fn shown(addr: &ConnectionAddr) -> String {
    match addr {
        ConnectionAddr::Tcp(host, port) => format!("redis://{}:{port}", bracketed(host)),
        ConnectionAddr::TcpTls { host, port, .. } => {
            format!("rediss://{}:{port}", bracketed(host))
        }
        ConnectionAddr::Unix(path) => format!("unix://{}", path.display()),
        _ => "a server".to_owned(),
    }
}

fn bracketed(host: &str) -> Cow<'_, str> {
    if host.contains(':') { format!("[{host}]").into() } else { host.into() }
}

fn not_valid(problem: &str) -> Error {
    Error::config(format!("the server's URL is not valid: {problem}"))
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

const SENTINEL_PORT: u16 = 26379;

#[cfg(test)]
mod tests;
