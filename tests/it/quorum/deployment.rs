//! Several servers, the ways to them, and clients of all of them.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{Client, ClientBuilder, Error, NodeState};

use crate::{
    checks::{LIMIT, client_is_idle, exists, lock_keys},
    support::{Proxy, Server, eventually},
};

pub(super) const MS: Duration = Duration::from_millis(1);

/// Independent masters.
pub(super) struct Masters(pub(super) Vec<Server>);

impl Masters {
    pub(super) async fn start(count: usize) -> Self {
        Self::with(count, &[]).await
    }

    /// Servers that keep what they were told when they are killed.
    pub(super) async fn keeping(count: usize) -> Self {
        Self::with(count, &["--appendonly", "yes", "--appendfsync", "always"]).await
    }

    pub(super) async fn with(count: usize, args: &[&str]) -> Self {
        Self(join_all((0..count).map(|_| Server::with(args))).await)
    }

    /// Servers that have been up for long enough to be trusted by clients with that quarantine.
    pub(super) async fn seasoned(count: usize, quarantine: Duration) -> Self {
        let masters = Self::start(count).await;
        for server in &masters.0 {
            seasoned(server, quarantine).await;
        }
        masters
    }

    pub(super) fn urls(&self) -> Vec<String> {
        self.0.iter().map(Server::url).collect()
    }

    /// A client to be, which trusts servers that have just started.
    pub(super) fn builder(&self) -> ClientBuilder {
        trusting(&self.urls())
    }

    /// A client that all servers have accepted.
    pub(super) async fn client(&self) -> Client {
        connected(self.builder()).await
    }

    /// Ways to the servers that can fail, one to each.
    pub(super) async fn ways(&self) -> Ways {
        Ways(join_all(self.0.iter().map(|server| Proxy::start(server.port()))).await)
    }

    /// A time limit, widened by the longest stall of this machine so far.
    pub(super) fn widened(&self, limit: Duration) -> Duration {
        self.0[0].widened(limit)
    }

    /// How many servers have the key.
    pub(super) async fn having(&self, name: &str) -> usize {
        self.which_have(name).await.len()
    }

    /// Which servers have the key.
    pub(super) async fn which_have(&self, name: &str) -> Vec<usize> {
        let mut having = Vec::new();
        for (index, server) in self.0.iter().enumerate() {
            if exists(server, name).await {
                having.push(index);
            }
        }
        having
    }

    /// Waits until just these servers have the key.
    pub(super) async fn are_held(&self, name: &str, servers: &[usize]) {
        let what = format!("{name} is on {servers:?}");
        eventually(LIMIT, &what, async || self.which_have(name).await == servers).await;
    }

    /// Waits until no server and no client has anything left of a lock.
    pub(super) async fn nothing_left(&self, clients: &[&Client]) {
        for (index, server) in self.0.iter().enumerate() {
            let what = format!("server {index} has no lock left");
            eventually(LIMIT, &what, async || lock_keys(server).await.is_empty()).await;
        }
        for client in clients {
            client_is_idle(client).await;
        }
    }

    /// The counter of a lock's tokens on each server.
    pub(super) async fn counters(&self, name: &str) -> Vec<Option<u64>> {
        let key = format!("leasehold_token:{{{name}}}");
        let mut counters = Vec::new();
        for server in &self.0 {
            let counter = server.command(&["GET", &key]).await;
            counters.push(redis::from_redis_value(counter).expect("a number"));
        }
        counters
    }
}

/// A client's own ways to the servers.
pub(super) struct Ways(pub(super) Vec<Proxy>);

impl Ways {
    pub(super) fn urls(&self) -> Vec<String> {
        self.0.iter().map(Proxy::url).collect()
    }

    pub(super) fn builder(&self) -> ClientBuilder {
        trusting(&self.urls())
    }

    /// Nobody gets through to these servers, or everybody again.
    pub(super) fn close(&self, which: &[usize], on: bool) {
        for &index in which {
            self.0[index].refuse(on);
            if on {
                self.0[index].cut();
            }
        }
    }
}

/// A client to be, which trusts servers that have just started. Each has ways of its own to the same servers.
pub(super) fn trusting(urls: &[String]) -> ClientBuilder {
    let builder = Client::builder().nodes(urls.iter().cloned()).masters_name("masters");
    builder.restart_quarantine(Duration::ZERO)
}

/// A client that all its servers have accepted.
pub(super) async fn connected(builder: ClientBuilder) -> Client {
    let client = builder.connect().await.expect("a majority accepts the client");
    all_up(&client).await;
    client
}

/// Waits until every node can be asked, and counts.
pub(super) async fn all_up(client: &Client) {
    states_are(client, |states| states.iter().all(|state| *state == NodeState::Up)).await;
}

/// Waits until the nodes are in these states.
pub(super) async fn states_become(client: &Client, states: &[NodeState]) {
    states_are(client, |now| now == states).await;
}

async fn states_are(client: &Client, wanted: impl Fn(&[NodeState]) -> bool) {
    let began_at = std::time::Instant::now();
    loop {
        let nodes = client.nodes();
        let states: Vec<NodeState> = nodes.iter().map(|node| node.state).collect();
        if wanted(&states) {
            return;
        }
        assert!(began_at.elapsed() < LIMIT, "{nodes:#?}");
        tokio::time::sleep(5 * MS).await;
    }
}

/// Waits until a server has been up for longer than a quarantine, and clients have known it for as long.
pub(super) async fn seasoned(server: &Server, quarantine: Duration) {
    let builder = Client::builder().nodes([server.url()]).ttl(quarantine);
    let first = builder.restart_quarantine(quarantine).connect().await.expect("accepted");
    eventually(LIMIT, "its grants count", async || first.is_ready()).await;
    first.shutdown().await;
    let enough = async || {
        let info = redis::cmd("INFO").arg("server").query_async(&mut server.raw().await).await;
        let info: redis::InfoDict = info.expect("it tells of itself");
        let uptime: u64 = info.get("uptime_in_seconds").expect("its uptime");
        Duration::from_secs(uptime) >= quarantine + Duration::from_secs(1)
    };
    eventually(LIMIT, "it has been up for long enough", enough).await;
}

/// The addresses of the nodes that an error names, and what it says of them.
#[track_caller]
pub(super) fn failures<T: std::fmt::Debug>(answer: Result<T, Error>) -> Vec<(String, String)> {
    match answer {
        Err(Error::Unavailable { failures, .. }) => {
            let named =
                |failure: &leasehold::NodeFailure| (failure.node().to_owned(), failure.to_string());
            failures.iter().map(named).collect()
        }
        other => panic!("there is no majority: {other:?}"),
    }
}

/// Asserts that an error names just these nodes.
#[track_caller]
pub(super) fn names_just<T: std::fmt::Debug>(answer: Result<T, Error>, urls: &[String]) {
    let failures = failures(answer);
    let mut named: Vec<&String> = failures.iter().map(|(node, _)| node).collect();
    let mut meant: Vec<&String> = urls.iter().collect();
    named.sort();
    meant.sort();
    assert_eq!(named, meant, "{failures:?}");
}
