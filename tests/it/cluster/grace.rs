//! A shard whose new master has lost the last writes.

use std::time::{Duration, SystemTime};

use leasehold::{Client, Error, NodeStatus};

use crate::checks::{AT_ONCE, LIMIT, soon};
use crate::support::{Cluster, eventually};

const TTL: Duration = Duration::from_secs(3);
const GRACE: Duration = Duration::from_secs(4);

async fn connect(cluster: &Cluster) -> Client {
    let builder = Client::builder().cluster(cluster.urls()).ttl(TTL).restart_quarantine(GRACE);
    builder.connect().await.expect("the cluster accepts the client")
}

/// The replica forgets everything and takes over from a master that is dead.
async fn lose_the_master(cluster: &Cluster, shard: usize) {
    let replica = cluster.replica(shard);
    replica.command(&["CONFIG", "SET", "replica-read-only", "no"]).await;
    cluster.master(shard).kill();
    replica.command(&["FLUSHALL"]).await;
    replica.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
}

fn node<'a>(nodes: &'a [NodeStatus], url: &str) -> Option<&'a NodeStatus> {
    nodes.iter().find(|node| *node.address == *url)
}

#[tokio::test]
async fn a_holder_keeps_its_lock_and_later_clients_do_not_wait() {
    let cluster = Cluster::start().await;
    let (holder, other) = (connect(&cluster).await, connect(&cluster).await);
    let names = [0, 1].map(|shard| cluster.name_on(shard, "n"));
    let mut guards = Vec::new();
    for name in &names {
        // The servers have just started, so this waits for a while.
        guards.push(soon("the lock", holder.mutex(name).lock()).await.expect("free"));
    }
    let tokens: Vec<u64> = guards.iter().map(|guard| guard.token()).collect();
    let waiting = {
        let lock = other.mutex(&names[0]);
        tokio::spawn(async move { (lock.lock().await, SystemTime::now()) })
    };
    eventually(LIMIT, "it waits", async || other.stats().waiters == 1).await;

    lose_the_master(&cluster, 0).await;
    eventually(LIMIT, "it is put back", async || {
        assert!(guards[0].is_held(), "it is never lost");
        holder.stats().reclaimed == 1
    })
    .await;
    let new = cluster.replica(0).url();
    let mut until = None;
    eventually(LIMIT, "the other has met the new master", async || {
        until = node(&other.nodes(), &new).and_then(|node| node.quarantined_until);
        until.is_some()
    })
    .await;
    let until = until.expect("seen just now");
    let error = other.mutex(&names[0]).try_lock().await.expect_err("its grants do not count");
    assert!(matches!(&error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("do not count"), "{error}");
    assert!(
        guards.iter().all(|guard| guard.is_held()),
        "the other shard has nothing to do with it"
    );
    assert_eq!(tokens, guards.iter().map(|guard| guard.token()).collect::<Vec<_>>());
    guards.remove(0).unlock().await.expect("held");
    let (next, at) = soon("the grace ends", waiting).await.expect("it runs");
    let next = next.expect("free");
    assert!(at >= until, "not before its end");
    assert!(at.duration_since(until).expect("after it") < AT_ONCE, "woken at its end");
    assert!(next.token() > tokens[0]);
    next.unlock().await.expect("held");

    let over = async || SystemTime::now() > until + GRACE / 50;
    eventually(LIMIT, "it is over by any clock", over).await;
    let late = connect(&cluster).await;
    let guard = soon("an answer", late.mutex(&names[0]).try_lock()).await.expect("it counts");
    guard.expect("free").unlock().await.expect("held");
    assert!(node(&late.nodes(), &new).expect("it was used").quarantined_until.is_none());
}
