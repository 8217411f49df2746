//! Masters that die, hang or are replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Client, Error, NodeState};

use super::is_idle;
use crate::checks::{exists, lock_keys, soon};
use crate::support::{Cluster, Server, eventually};

const LIMIT: Duration = Duration::from_secs(30);

/// Knows one node only, and trusts a server that took over at once.
async fn connect(cluster: &Cluster) -> Client {
    let seed = [cluster.master(0).url()];
    let builder = Client::builder().cluster(seed).restart_quarantine(Duration::ZERO);
    builder.ttl(Duration::from_secs(10)).connect().await.expect("the cluster accepts the client")
}

#[tokio::test]
async fn locks_survive_a_master_that_dies_one_that_hangs_and_one_that_is_replaced() {
    let cluster = Cluster::start().await;
    let client = connect(&cluster).await;
    replaced(&cluster, &client).await;
    killed(&cluster, &client).await;
    paused(&cluster, &client).await;
    is_idle(&client).await;
}

/// CLUSTER FAILOVER: nobody sees an error.
async fn replaced(cluster: &Cluster, client: &Client) {
    let name = cluster.name_on(1, "kept");
    let guard = soon("the lock", client.mutex(&name).lock()).await.expect("free");
    let stop = Arc::new(AtomicBool::new(false));
    let busy = {
        let (stop, lock) = (stop.clone(), client.mutex(cluster.name_on(1, "busy")));
        tokio::spawn(async move {
            let mut turns = 0;
            while !stop.load(Ordering::Relaxed) {
                let guard = lock.try_lock().await.expect("no error is seen").expect("free");
                guard.unlock().await.expect("held");
                turns += 1;
            }
            turns
        })
    };
    cluster.fail_over(1).await;
    // Both are known to the client now.
    let new = cluster.replica(1).url();
    eventually(LIMIT, "the client follows", async || {
        let nodes = client.nodes();
        nodes.iter().any(|node| *node.address == *new && node.state == NodeState::Up)
    })
    .await;
    let turns_end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < turns_end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.store(true, Ordering::Relaxed);
    assert!(soon("the end", busy).await.expect("no panic") > 0);
    assert!(guard.is_held());
    soon("unlocking", guard.unlock()).await.expect("held");
}

/// The node that the client was given dies, and with it the master of a shard. Another client goes then: it owes that master a
/// release for longer than its own TTL, and the next master gets it.
async fn killed(cluster: &Cluster, client: &Client) {
    let names = [0, 1, 2].map(|shard| cluster.name_on(shard, "kept"));
    let mut guards = Vec::new();
    for name in &names {
        guards.push(soon("the lock", client.mutex(name).lock()).await.expect("free"));
    }
    let seed = [cluster.master(0).url()];
    let builder = Client::builder().cluster(seed).restart_quarantine(Duration::ZERO);
    let [short, long] = [Duration::from_millis(600), Duration::from_secs(600)];
    let goes = builder.ttl(short).connect().await.expect("the cluster accepts the client");
    let left = cluster.name_on(0, "left");
    let lock = goes.mutex(&left).with_lease(long);
    let held = soon("the lock", lock.lock()).await.expect("free");
    let is_there = async || lock_keys(cluster.replica(0)).await.contains(&left);
    eventually(LIMIT, "the replica has it", async || is_there().await).await;
    cluster.master(0).kill();
    drop((held, lock, goes));
    let other = client.mutex(cluster.name_on(0, "new"));
    let mut guard = None;
    eventually(LIMIT, "the replica grants", async || {
        guard = other.try_lock().await.ok().flatten();
        guard.is_some()
    })
    .await;
    for (name, guard) in names.iter().zip(&guards) {
        assert!(guard.is_held(), "{name}");
        assert!(!matches!(client.mutex(name).try_lock().await, Ok(Some(_))), "{name}");
    }
    guards.extend(guard);
    for guard in guards {
        let unlocked = soon("unlocking", guard.unlock()).await;
        // On a busy machine the cluster may be down once more. Then it is released later: the client is idle in the end.
        assert!(matches!(unlocked, Ok(()) | Err(Error::Unavailable { .. })), "{unlocked:?}");
    }
    eventually(LIMIT, "it is given back", async || !is_there().await).await;
    cluster.master(0).restart().await;
}

/// A master is stopped until another has its place, and goes on.
async fn paused(cluster: &Cluster, client: &Client) {
    let name = cluster.name_on(2, "paused");
    let lock = client.mutex(&name);
    let guard = soon("the lock", lock.lock()).await.expect("free");
    cluster.master(2).pause();
    let other = client.mutex(cluster.name_on(2, "new"));
    let mut taken = None;
    eventually(LIMIT, "the replica grants", async || {
        taken = other.try_lock().await.ok().flatten();
        taken.is_some()
    })
    .await;
    cluster.master(2).resume();
    assert!(guard.is_held());
    let late = connect(cluster).await;
    let refused = late.mutex(&name).try_lock_for(Duration::from_millis(300)).await;
    assert!(refused.expect("an answer").is_none(), "it is held");
    for guard in [Some(guard), taken].into_iter().flatten() {
        soon("unlocking", guard.unlock()).await.expect("held");
    }
    eventually(LIMIT, "no release is owed", async || client.stats().releases_pending == 0).await;
    let guard = soon("the lock", late.mutex(&name).lock()).await.expect("free");
    soon("unlocking", guard.unlock()).await.expect("held");
}

/// Returns a cluster of one master, which has seen so many changes.
async fn alone(epoch: &str) -> Server {
    let server = Server::with(&["--cluster-enabled", "yes"]).await;
    // Servers before 7.0 have no command for a range.
    let slots: Vec<String> = (0..16384).map(|slot| slot.to_string()).collect();
    let slots: Vec<&str> = slots.iter().map(String::as_str).collect();
    server.command(&[&["CLUSTER", "ADDSLOTS"], &slots[..]].concat()).await;
    server.command(&["CLUSTER", "SET-CONFIG-EPOCH", epoch]).await;
    eventually(LIMIT, "it finds itself in order", async || {
        let info = server.command(&["CLUSTER", "INFO"]).await;
        redis::from_redis_value::<String>(info).expect("a text").contains("cluster_state:ok")
    })
    .await;
    server
}

/// The second node that the client was given is cut off: it takes itself for the master, and knows of no change since. For a while
/// it alone answers.
#[tokio::test]
async fn a_node_that_is_behind_does_not_turn_the_client_back() {
    let (current, behind) = (alone("5").await, alone("2").await);
    let builder = Client::builder().cluster([current.url(), behind.url()]);
    let builder = builder.restart_quarantine(Duration::ZERO).ttl(Duration::from_secs(60));
    let client = builder.response_timeout(Duration::from_millis(500)).connect().await;
    let client = client.expect("the cluster accepts the client");
    let guard = soon("the lock", client.mutex("n").lock()).await.expect("free");
    current.pause();
    let asking = client.mutex("m").lock_with_timeout(Duration::from_secs(4)).await;
    asking.expect_err("the master does not answer");
    assert!(!exists(&behind, "m").await);
    let addresses: Vec<_> = client.nodes().iter().map(|node| node.address.to_string()).collect();
    assert_eq!(addresses, [current.url()]);
    current.resume();
    soon("unlocking", guard.unlock()).await.expect("held");
}
