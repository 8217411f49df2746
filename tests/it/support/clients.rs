//! Clients of servers that replicate.

use std::time::Duration;

use leasehold::{Client, ClientBuilder};

use super::{Deployment, MASTER};

/// How clients connect to a deployment: they ask its Sentinels for the master.
pub(crate) trait Connects {
    /// The settings of a client of it, whose servers have just started.
    fn builder(&self) -> ClientBuilder;

    async fn connect(&self) -> Client;
}

impl Connects for Deployment {
    fn builder(&self) -> ClientBuilder {
        let builder = Client::builder().sentinel(MASTER, self.sentinel_urls());
        builder.restart_quarantine(Duration::ZERO)
    }

    async fn connect(&self) -> Client {
        self.builder().connect().await.expect("the master accepts the client")
    }
}
