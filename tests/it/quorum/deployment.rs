//! Several servers, and a client of all of them.

use std::time::Duration;

use leasehold::{Client, ClientBuilder};

use crate::support::Server;

/// Independent masters.
pub(super) struct Masters(pub(super) Vec<Server>);

impl Masters {
    pub(super) async fn start(count: usize) -> Self {
        let mut servers = Vec::new();
        for _ in 0..count {
            servers.push(Server::start().await);
        }
        Self(servers)
    }

    pub(super) fn urls(&self) -> Vec<String> {
        self.0.iter().map(Server::url).collect()
    }

    /// A client to be, which trusts servers that have just started.
    pub(super) fn builder(&self) -> ClientBuilder {
        Client::builder().nodes(self.urls()).restart_quarantine(Duration::ZERO)
    }

    pub(super) async fn client(&self) -> Client {
        self.builder().connect().await.expect("a majority accepts the client")
    }

    /// How many servers have the key.
    pub(super) async fn having(&self, name: &str) -> usize {
        let mut having = 0;
        for server in &self.0 {
            having += usize::from(crate::checks::exists(server, name).await);
        }
        having
    }
}
