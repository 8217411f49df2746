//! Masters that die, hang or are replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Client, NodeState};

use super::is_idle;
use crate::checks::soon;
use crate::support::{Cluster, eventually};

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

/// The node that the client was given dies, and with it the master of a shard.
async fn killed(cluster: &Cluster, client: &Client) {
    let names = [0, 1, 2].map(|shard| cluster.name_on(shard, "kept"));
    let mut guards = Vec::new();
    for name in &names {
        guards.push(soon("the lock", client.mutex(name).lock()).await.expect("free"));
    }
    cluster.master(0).kill();
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
        soon("unlocking", guard.unlock()).await.expect("held");
    }
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
