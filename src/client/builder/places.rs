//! Where the servers are, and how they are reached.

use std::sync::Arc;

use super::ClientBuilder;
use crate::config::AddressMap;

/// Where the servers are.
impl ClientBuilder {
    /// Sets the servers' URLs: one, or those of several independent masters (Redlock).
    ///
    /// With several, a lock is held if a majority of them holds it, and locks are available while a majority is reachable.
    /// Three or five are usual. An even number tolerates no more failures than the odd number below it. Two servers are
    /// refused, since both would be needed, and so are more than 31.
    ///
    /// All clients that share locks must name the same servers, and at the same addresses, unless the list has a
    /// [`masters_name`](Self::masters_name). Each server keeps the list: a client that names others gets no lock, with
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig). [The page on deployments](crate::docs::deployments) shows how a
    /// server is added or replaced.
    #[doc(alias = "Redlock")]
    #[doc(alias = "RedissonRedLock")]
    #[doc(alias = "RedissonMultiLock")]
    pub fn nodes<U: Into<String>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.named.nodes = Some(urls.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the master of a replicated deployment: its name, and the URLs of the Sentinels that watch it. Without a port, a
    /// Sentinel's is 26379.
    ///
    /// The client asks all the Sentinels and listens to them all. When one of them reports that another server is the
    /// master, the client leaves the old one at once, even if that still answers, and asks the new one about everything that
    /// it holds. Name all Sentinels: one that is dead, hangs or is behind delays nothing, and if none answers, the client
    /// stays with the master that it knows. [The page on deployments](crate::docs::deployments) says what a failover means
    /// for locks, and what to set on the servers.
    ///
    /// A URL may contain the login for that Sentinel, and `rediss://` for TLS. The servers have a login and TLS of their
    /// own: [`server_login`](Self::server_login), [`server_tls`](Self::server_tls).
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// let client = leasehold::Client::builder()
    ///     .sentinel("mymaster", ["redis://sentinel-1", "redis://sentinel-2", "redis://sentinel-3"])
    ///     .server_login("locks", "secret")
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "useSentinelServers")]
    pub fn sentinel<U: Into<String>>(
        mut self,
        master: impl Into<Arc<str>>,
        urls: impl IntoIterator<Item = U>,
    ) -> Self {
        self.named.sentinel = Some((master.into(), urls.into_iter().map(Into::into).collect()));
        self
    }

    /// Sets the login for the servers that the [Sentinels](Self::sentinel) name. The user of a server with `requirepass` is
    /// `default`. Default: none.
    pub fn server_login(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.named.access().login = Some((user.into(), password.into()));
        self
    }

    /// Sets whether the servers that the [Sentinels](Self::sentinel) name are reached over TLS; this needs the feature
    /// `tls`. Their certificates must be for the addresses that the Sentinels announce, or for what the
    /// [`address_map`](Self::address_map) makes of them. Default: off.
    pub fn server_tls(mut self, on: bool) -> Self {
        self.named.access().tls = on;
        self
    }

    /// Sets the number of the database on the servers that the [Sentinels](Self::sentinel) name. Default: 0.
    pub fn server_database(mut self, database: u32) -> Self {
        self.named.access().database = database;
        self
    }

    /// Sets the translation of the servers' addresses, for a network in which clients reach the servers at other addresses than
    /// those that the [Sentinels](Self::sentinel) or the [cluster](Self::cluster) announce (NAT, port forwarding). It gets the host
    /// and the port that were announced, and must not block. Default: none.
    ///
    /// ```no_run
    /// # fn example() -> leasehold::ClientBuilder {
    /// leasehold::Client::builder()
    ///     .sentinel("mymaster", ["redis://gateway:26379"])
    ///     .address_map(|host, port| match host {
    ///         "10.0.0.1" => ("gateway".to_owned(), 7001),
    ///         "10.0.0.2" => ("gateway".to_owned(), 7002),
    ///         host => (host.to_owned(), port),
    ///     })
    /// # }
    /// ```
    #[doc(alias = "natMapper")]
    pub fn address_map(
        mut self,
        translation: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> Self {
        self.named.address_map = Some(AddressMap::new(translation));
        self
    }

    /// Sets the URLs of some nodes of a Redis Cluster. The client learns of the others from these, and of all that are added
    /// later.
    ///
    /// Each lock is on one master, the owner of its slot, and the client uses only the masters that its locks are on. It
    /// follows slots that move and replicas that take over: holders keep their locks, and calls wait for a slot that no master
    /// serves at the moment. [The page on deployments](crate::docs::deployments) says what a failover means for locks.
    ///
    /// Name a few nodes, masters or replicas, so that one can be reached. All nodes have the login and TLS of these URLs, which
    /// name no database. If clients reach them at other addresses than the cluster announces, set an
    /// [`address_map`](Self::address_map).
    ///
    /// A lock's name may contain one pair of braces, as in `{orders}:7`: names with the same text in braces are on the same
    /// master. Names whose braces a cluster would not read like that are refused, with
    /// [`Error::InvalidName`](crate::Error::InvalidName).
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// let client = leasehold::Client::builder()
    ///     .cluster(["redis://locks:secret@node-1:6379", "redis://locks:secret@node-2:6379"])
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "useClusterServers")]
    pub fn cluster<U: Into<String>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.named.cluster = Some(urls.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the certificate authorities (in PEM) that the client trusts for `rediss://` servers. Default: those that the
    /// operating system trusts.
    #[cfg(feature = "tls")]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.trust(pem.into());
        self
    }

    /// Sets the client's certificate with its chain, and its private key, both in PEM, for `rediss://` servers that
    /// require one (`tls-auth-clients`). Default: none.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.certificates.present(certificate.into(), key.into());
        self
    }
}
