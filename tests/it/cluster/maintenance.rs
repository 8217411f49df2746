//! Planned maintenance as `docs/operating.md` describes it, and what it costs.

use std::time::{Duration, Instant};

use leasehold::{Client, Error};

use crate::checks::{LIMIT, soon};
use crate::support::{Cluster, eventually};

const TTL: Duration = Duration::from_secs(4);
const GRACE: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(40);

/// Each replica takes over while the grace of the first is still on, so all locks wait for little longer than one grace.
#[tokio::test]
async fn masters_that_are_replaced_one_soon_after_the_other_cost_one_grace() {
    let cluster = Cluster::start().await;
    let builder = Client::builder().cluster(cluster.urls()).ttl(TTL).restart_quarantine(GRACE);
    let client = builder.connect().await.expect("the cluster accepts the client");
    let mut guards = Vec::new();
    for shard in 0..3 {
        // The servers have just started, so this waits for a while.
        let lock = client.mutex(cluster.name_on(shard, "kept"));
        guards.push(soon("the lock", lock.lock()).await.expect("free"));
    }
    eventually(LIMIT, "the client is ready", async || client.is_ready()).await;

    for shard in 0..3 {
        cluster.fail_over(shard).await;
    }
    let replaced_at = Instant::now();
    eventually(LIMIT, "a readiness probe would notice", async || !client.is_ready()).await;
    let error = client.mutex(cluster.name_on(2, "new")).try_lock().await.expect_err("the grace");
    assert!(matches!(&error, Error::Unavailable { .. }), "{error:?}");
    for shard in 0..3 {
        let new = client.mutex(cluster.name_on(shard, "new"));
        let guard = crate::support::in_time(LONG, "a lock after the grace", new.lock()).await;
        guard.expect("free").unlock().await.expect("held");
    }
    let waited = replaced_at.elapsed();
    eventually(LIMIT, "the client is ready again", async || client.is_ready()).await;
    assert!(waited < cluster.master(0).widened(GRACE * 2), "one grace, not three: {waited:?}");
    for guard in guards {
        assert!(guard.is_held(), "who holds a lock notices nothing");
        guard.unlock().await.expect("held");
    }
}
