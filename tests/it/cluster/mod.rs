//! A Redis Cluster: locks over all slots, failovers, and slots that move.

mod down;
mod failovers;
mod findings;
mod grace;
mod locks;
mod maintenance;
mod moves;
mod nodes;
mod redirects;
mod rights;
mod sharded;
#[cfg(feature = "tls")]
mod tls;
mod unsubscribed;
mod waiting;

use std::time::Duration;

use leasehold::{Client, ClientBuilder};

use crate::checks::client_is_idle_with;
use crate::support::Cluster;

/// Its servers have just started.
fn builder(cluster: &Cluster) -> ClientBuilder {
    Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO)
}

/// Waits until the client has nothing left of any lock. One task looks after the map of the slots, and each node has one for
/// sharded channels.
async fn is_idle(client: &Client) {
    client_is_idle_with(client, 2 + 3 * client.nodes().len()).await;
}

async fn connect(cluster: &Cluster) -> Client {
    builder(cluster).connect().await.expect("the cluster accepts the client")
}
