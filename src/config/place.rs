//! Where the servers are, as the user names them.

use std::fmt;
use std::sync::Arc;

use super::compound::Compound;
use super::{Address, Deployment};
use crate::error::Error;

/// Where the server of one node is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    At(Address),
    /// Where its Sentinels say.
    Watched(Watched),
}

/// The master of a replicated deployment, and who knows where it is.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    /// The name by which the Sentinels know the master.
    pub(crate) master: Arc<str>,
    pub(crate) sentinels: Vec<Address>,
    /// How the servers are reached that the Sentinels name: everything but the host and the port.
    pub(crate) servers: Address,
    pub(crate) address_map: Option<AddressMap>,
}

impl Place {
    /// Returns what the node is called before its server is known.
    pub(crate) fn name(&self) -> &Arc<str> {
        match self {
            Self::At(address) => &address.shown,
            Self::Watched(watched) => &watched.master,
        }
    }

    /// Returns the address of its server, or one without host and port.
    pub(crate) fn server(&self) -> &Address {
        match self {
            Self::At(address) => address,
            Self::Watched(watched) => &watched.servers,
        }
    }

    /// Returns all addresses that it contains.
    #[cfg(feature = "tls")]
    pub(crate) fn addresses(&mut self) -> Vec<&mut Address> {
        match self {
            Self::At(address) => vec![address],
            Self::Watched(watched) => {
                watched.sentinels.iter_mut().chain([&mut watched.servers]).collect()
            }
        }
    }
}

/// How servers are reached whose addresses are not in the settings.
#[derive(Clone, Default)]
pub(crate) struct Access {
    /// User and password.
    pub(crate) login: Option<(String, String)>,
    pub(crate) tls: bool,
    pub(crate) database: u32,
}

/// The user's translation of an address that a server announces into one that the client can reach.
#[derive(Clone)]
pub(crate) struct AddressMap(Arc<Translation>);

type Translation = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

impl AddressMap {
    pub(crate) fn new(
        translation: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(translation))
    }

    pub(crate) fn of(&self, host: &str, port: u16) -> (String, u16) {
        (self.0)(host, port)
    }
}

impl fmt::Debug for AddressMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressMap")
    }
}

/// What the user has said about where the servers are. It contains passwords, so it is never shown.
#[derive(Clone, Default)]
pub(crate) struct Named {
    /// The servers' URLs.
    pub(crate) nodes: Option<Vec<String>>,
    /// The name of the master, and the URLs of the Sentinels that watch it.
    pub(crate) sentinel: Option<(Arc<str>, Vec<String>)>,
    /// The URLs of some nodes of a cluster.
    pub(crate) cluster: Option<Vec<String>>,
    pub(crate) access: Option<Access>,
    pub(crate) address_map: Option<AddressMap>,
}

impl Named {
    /// Returns the settings of the servers without addresses, to change them.
    pub(crate) fn access(&mut self) -> &mut Access {
        self.access.get_or_insert_default()
    }

    /// Checks everything, and returns the places of the nodes.
    pub(crate) fn places(&self) -> Result<(Deployment, Vec<Place>), Error> {
        match (&self.nodes, &self.sentinel, &self.cluster) {
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => {
                Err(Error::config("call one of `nodes`, `sentinel` and `cluster`, and not two"))
            }
            (_, Some((master, urls)), _) => {
                let access = self.access.clone().unwrap_or_default();
                self.watched(master, urls, Address::of_servers(&access)?)
            }
            (.., Some(urls)) => self.members(urls),
            (nodes, None, None) => {
                let urls = nodes.as_deref().unwrap_or_default();
                if let [url] = urls {
                    let url = url.trim();
                    Address::check_compound(url)?;
                    match Compound::read(url) {
                        Some(Compound::Sentinel { master, sentinels, servers }) => {
                            self.check_no_access()?;
                            let servers = Address::parse(&servers)?;
                            return self.watched(&master.into(), &sentinels, servers);
                        }
                        Some(Compound::Cluster(nodes)) => return self.members(&nodes),
                        None => {}
                    }
                }
                let deployment = Deployment::of_servers(urls.len());
                deployment.check()?;
                self.check_unused()?;
                let addresses = Address::parse_all(urls)?;
                Ok((deployment, addresses.into_iter().map(Place::At).collect()))
            }
        }
    }

    /// The nodes of a cluster.
    fn members(&self, urls: &[String]) -> Result<(Deployment, Vec<Place>), Error> {
        self.check_no_access()?;
        let seeds = Address::parse_seeds(urls)?.into_iter().map(Place::At).collect();
        Ok((Deployment::Cluster, seeds))
    }

    fn watched(
        &self,
        master: &Arc<str>,
        urls: &[String],
        servers: Address,
    ) -> Result<(Deployment, Vec<Place>), Error> {
        if master.is_empty() || master.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(Error::config(
                "sentinel: the master's name is missing or has spaces; it is the `mymaster` in `sentinel monitor mymaster ..`",
            ));
        }
        if master.contains('@') {
            return Err(Error::config(
                "sentinel: there is an `@` in the master's name; a `/` in a password has to be written as %2F",
            ));
        }
        if urls.is_empty() {
            return Err(Error::config("sentinel: no Sentinel was named"));
        }
        let watched = Watched {
            master: master.clone(),
            sentinels: Address::parse_sentinels(urls)?,
            servers,
            address_map: self.address_map.clone(),
        };
        Ok((Deployment::Sentinel, vec![Place::Watched(watched)]))
    }

    fn check_no_access(&self) -> Result<(), Error> {
        match &self.access {
            None => Ok(()),
            Some(_) => Err(Error::config(
                "server_login, server_tls and server_database are for servers that Sentinels name: put the login, \
                 `rediss://` and the database into the server's URL",
            )),
        }
    }

    /// Settings that would have no effect are mistakes.
    fn check_unused(&self) -> Result<(), Error> {
        self.check_no_access()?;
        if self.address_map.is_some() {
            return Err(Error::config(
                "address_map is for servers that Sentinels or a cluster name: put the right address into the server's URL",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
