//! Those who only watch: when a server is the master, when clients have followed, when a loss is told.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold::{Client, ClientBuilder, Guard, NodeState};
use leasehold_testkit::{Server, eventually};
use redis::Value;

use crate::Outcome;

/// Clients that each hold a lock.
pub(crate) struct Followers {
    each: Vec<(Client, Guard)>,
}

impl Followers {
    pub(crate) async fn connect(
        builder: impl Fn() -> ClientBuilder,
        name: impl Fn(&str) -> String,
    ) -> Outcome<Self> {
        let mut each = Vec::new();
        for number in 0..FOLLOWERS {
            let client = builder().connect().await?;
            let guard = client.mutex(name(&format!("kept:{number}"))).lock().await?;
            each.push((client, guard));
        }
        Ok(Self { each })
    }

    /// Waits until all are connected to one of these servers.
    pub(crate) async fn are_at(&self, servers: &[&Server]) -> Instant {
        let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
        let there = |client: &Client| {
            let mut nodes = client.nodes().into_iter();
            let is_one = |address: &str| urls.iter().any(|url| url == address);
            nodes.any(|node| is_one(&node.address) && node.state == NodeState::Up)
        };
        join_all(self.each.iter().map(async |(client, _)| {
            while !there(client) {
                tokio::time::sleep(LOOK).await;
            }
        }))
        .await;
        Instant::now()
    }

    /// How many locks were lost.
    pub(crate) async fn end(self) -> usize {
        let ends = self.each.into_iter().map(async |(client, guard)| {
            let is_lost = guard.unlock().await.is_err();
            client.shutdown().await;
            is_lost
        });
        join_all(ends).await.into_iter().filter(|is_lost| *is_lost).count()
    }
}

/// Waits until one of these servers says that it is the master.
pub(crate) async fn promoted(servers: &[&Server]) -> Instant {
    let master = Value::BulkString(b"master".into());
    eventually(PROMOTED_WITHIN, "one is promoted", async || {
        // Sentinels end connections.
        let roles = join_all(servers.iter().map(|server| server.try_command(&["ROLE"]))).await;
        roles
            .iter()
            .any(|role| matches!(role, Ok(Value::Array(parts)) if parts.first() == Some(&master)))
    })
    .await;
    Instant::now()
}

/// When a master of a cluster began to refuse requests because another one is down, and when it ended that.
pub(crate) async fn refused(server: &Server, name: &str) -> (Instant, Instant) {
    let refuses = async || match server.try_command(&["EXISTS", name]).await {
        Err(error) => error.to_string().to_lowercase().contains("clusterdown"),
        Ok(_) => false,
    };
    eventually(PROMOTED_WITHIN, "it refuses requests", async || refuses().await).await;
    let began_at = Instant::now();
    eventually(PROMOTED_WITHIN, "it goes on", async || !refuses().await).await;
    (began_at, Instant::now())
}

/// From one moment to another; below zero if it was the other way round.
pub(crate) fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
        - from.saturating_duration_since(to).as_secs_f64()
}

pub(crate) const FOLLOWERS: usize = 8;
const LOOK: Duration = Duration::from_millis(1);
const PROMOTED_WITHIN: Duration = Duration::from_secs(60);
