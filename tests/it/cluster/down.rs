//! A cluster that is down because a shard is: the servers that are left refuse every call.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, Guard};

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
    take_down(&cluster).await;
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
    bring_back(&cluster).await;
    let guard = soon("the cluster is in order", waiting).await.expect("no panic").expect("free");
    soon("unlocking", guard.unlock()).await.expect("held");
    for client in &clients {
        eventually(LIMIT, "all is released", async || client.stats().releases_pending == 0).await;
    }
}

/// Kills the third shard, and waits until the others refuse every call.
async fn take_down(cluster: &Cluster) {
    cluster.master(2).kill();
    cluster.replica(2).kill();
    for shard in 0..2 {
        let down = async || says(cluster.master(shard), "cluster_state:fail").await;
        eventually(LIMIT, "the cluster is down", down).await;
    }
}

async fn bring_back(cluster: &Cluster) {
    cluster.master(2).restart().await;
    cluster.replica(2).restart().await;
}

/// A refused release frees nothing. The next one finds that somebody else did.
#[tokio::test]
async fn an_unlock_that_is_refused_at_first_still_tells_of_a_loss() {
    let cluster = Cluster::start().await;
    let builder = builder(&cluster).ttl(3 * LIMIT).response_timeout(LIMIT);
    let client = builder.connect().await.expect("accepted");
    let name = cluster.name_on(0, "gone");
    let guard = soon("the lock", client.mutex(&name).lock()).await.expect("free");
    take_down(&cluster).await;
    let server = cluster.master(0);
    // But for the questions about the cluster.
    let others = [&OF_OTHERS[..], &["cluster"]].concat();
    let asks = async || {
        let before = server.requests(&others).await;
        let has_asked = async || server.requests(&others).await > before;
        eventually(LIMIT, "one more request is refused", has_asked).await;
    };
    // It knows then that the server refuses everything.
    let refused = tokio::spawn(client.mutex(cluster.name_on(0, "refused")).lock());
    asks().await;
    refused.abort();
    refused.await.expect_err("it was aborted");
    let unlocking = tokio::spawn(guard.unlock());
    eventually(LIMIT, "it is owed", async || client.stats().releases_pending == 1).await;
    asks().await;
    // As a forced unlock does.
    server.command(&["FLUSHALL"]).await;
    bring_back(&cluster).await;
    let unlocked = soon("unlocking", unlocking).await.expect("no panic");
    assert!(matches!(unlocked, Err(Error::Lost { .. })), "{unlocked:?}");
}

/// What the servers have noted of their grace can be read only once the cluster is in order.
#[tokio::test]
async fn a_client_that_comes_while_the_cluster_is_down_waits_no_grace() {
    let cluster = Cluster::start().await;
    let grace = Duration::from_secs(7);
    let connecting = || {
        let builder = Client::builder().cluster(cluster.urls()).ttl(grace / 2);
        builder.restart_quarantine(grace).connect_timeout(LIMIT).connect()
    };
    let client = connecting().await.expect("accepted");
    // The servers have just started, so this waits for a while.
    let name = cluster.name_on(0, "n");
    drop(soon("the lock", client.mutex(&name).lock()).await.expect("free"));
    take_down(&cluster).await;
    let connecting = tokio::spawn(connecting());
    tokio::time::sleep(Duration::from_secs(1)).await;
    bring_back(&cluster).await;
    let newcomer = soon("connecting", connecting).await.expect("no panic").expect("accepted");
    let since = Instant::now();
    let guard = soon("the lock", newcomer.mutex(&name).lock()).await.expect("free");
    let soon_enough = cluster.master(0).widened(grace / 2);
    assert!(since.elapsed() < soon_enough, "it waited for {:?}", since.elapsed());
    soon("unlocking", guard.unlock()).await.expect("held");
}
