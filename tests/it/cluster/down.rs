//! A cluster that is down because a shard is: the servers that are left refuse every call.

use std::time::{Duration, Instant};

use leasehold::{Client, Guard};

use super::builder;
use crate::{
    checks::{LIMIT, soon},
    support::{Cluster, Server, eventually},
};

const CLIENTS: usize = 4;
const LOCKS: usize = 150;
const TTL: Duration = Duration::from_secs(12);
/// Renewals come every third of the TTL.
const MEASURED: Duration = Duration::from_secs(5);

/// What its replica sends, and this test.
const OF_OTHERS: [&str; 6] = ["hello", "info", "client", "replconf", "psync", "ping"];

async fn says(server: &Server, state: &str) -> bool {
    let info = server.command(&["CLUSTER", "INFO"]).await;
    redis::from_redis_value::<String>(info).expect("a text").contains(state)
}

/// Takes locks on the first two shards.
async fn locks(cluster: &Cluster, client: &Client, of: usize) -> Vec<Guard> {
    let mut guards = Vec::new();
    for lock in 0..LOCKS {
        let name = cluster.name_on(lock % 2, &format!("{of}-{lock}-"));
        guards.push(soon("a lock", client.mutex(name).lock()).await.expect("free"));
    }
    guards
}

#[tokio::test]
async fn beside_a_dead_shard_the_others_are_asked_a_few_times_a_second_and_not_given_up() {
    let cluster = Cluster::start().await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(builder(&cluster).ttl(TTL).connect().await.expect("accepted"));
    }
    let mut guards = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        guards.extend(locks(&cluster, client, number).await);
    }
    let connections: Vec<u64> =
        clients.iter().map(|client| client.stats().connections_made).collect();
    cluster.master(2).kill();
    cluster.replica(2).kill();
    for shard in 0..2 {
        let down = async || says(cluster.master(shard), "cluster_state:fail").await;
        eventually(LIMIT, "the cluster is down", down).await;
    }
    let (mut before, since) = ([0; 2], Instant::now());
    for (shard, before) in before.iter_mut().enumerate() {
        *before = cluster.master(shard).requests(&OF_OTHERS).await;
    }
    tokio::time::sleep(MEASURED).await;
    for (shard, before) in before.into_iter().enumerate() {
        let more = cluster.master(shard).requests(&OF_OTHERS).await - before;
        let seconds = since.elapsed().as_secs() + 1;
        let most = 10 * CLIENTS as u64 * seconds;
        assert!(more <= most, "shard {shard} got {more} requests in {seconds} s, not {most}");
    }
    let refused = clients[0].mutex(cluster.name_on(0, "refused")).try_lock();
    soon("an answer", refused).await.expect_err("the cluster is down");
    for (client, connections) in clients.iter().zip(connections) {
        assert_eq!(client.stats().connections_made, connections, "a connection was given up");
    }
    let waiting = tokio::spawn(clients[0].mutex(cluster.name_on(0, "waits")).lock());
    drop(guards);
    cluster.master(2).restart().await;
    cluster.replica(2).restart().await;
    let guard = soon("the cluster is in order", waiting).await.expect("no panic").expect("free");
    soon("unlocking", guard.unlock()).await.expect("held");
    for client in &clients {
        eventually(LIMIT, "all is released", async || client.stats().releases_pending == 0).await;
    }
}
