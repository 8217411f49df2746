//! Real Sentinels, and masters that die or are replaced.

use std::time::{Duration, Instant};

use leasehold::Client;

use crate::{
    checks::{LIMIT, exists, soon},
    support::{Connects, DOWN_AFTER_MS, Deployment, eventually},
};

const TTL: Duration = Duration::from_secs(20);

async fn connect(deployment: &Deployment) -> Client {
    let builder = deployment.builder().ttl(TTL).restart_quarantine(Duration::ZERO);
    builder.connect().await.expect("the master accepts the client")
}

#[tokio::test]
async fn a_lock_outlives_its_master_and_a_waiter_gets_it_from_the_next_one() {
    let deployment = Deployment::start().await;
    let replica = &deployment.servers[1];
    let holder = connect(&deployment).await;
    let waiter = connect(&deployment).await;
    let kept = soon("the lock", holder.mutex("kept").lock()).await.expect("free");
    let passed_on = soon("the lock", holder.mutex("passed on").lock()).await.expect("free");
    let waiting = tokio::spawn(waiter.mutex("passed on").lock_with_timeout(LIMIT * 2));
    eventually(LIMIT, "it waits", async || waiter.stats().waiters == 1).await;
    deployment.is_synced().await;

    deployment.master().kill();
    let killed_at = Instant::now();
    drop(passed_on);
    let next = soon("the new one", waiting).await.expect("no panic").expect("released");
    let took = killed_at.elapsed();
    let usual = Duration::from_millis(DOWN_AFTER_MS + 1500);
    assert!(took < replica.widened(usual * 3), "{took:?}");
    assert!(next.is_held() && kept.is_held(), "nobody was told anything");
    assert!(exists(replica, "kept").await);
    for client in [&holder, &waiter] {
        assert_eq!(*client.nodes()[0].address, *replica.url());
    }
    kept.unlock().await.expect("held");
}

#[tokio::test]
async fn clients_leave_a_master_that_is_replaced_while_it_is_well() {
    let deployment = Deployment::start().await;
    let client = connect(&deployment).await;
    let guard = soon("the lock", client.mutex("held").lock()).await.expect("free");
    let counted = client.mutex("counted");
    let mut token = 0;
    deployment.is_synced().await;
    // There and back: the second failover returns to a server that the client has left.
    for [old, new] in [[0, 1], [1, 0]] {
        let [old, new] = [old, new].map(|index| &deployment.servers[index]);
        assert_eq!(*client.nodes()[0].address, *old.url());
        let first_report = deployment.first_report().await;
        deployment.fail_over().await;
        eventually(LIMIT, "the client is at the other server", async || {
            *client.nodes()[0].address == *new.url() && client.is_ready()
        })
        .await;
        let followed_at = Instant::now();
        let reported_at = soon("a report", first_report).await;
        let took = followed_at.saturating_duration_since(reported_at);
        assert!(took < old.widened(Duration::from_millis(500)), "{took:?}");
        assert!(guard.is_held(), "it was replicated");
        let next = soon("the lock", counted.lock()).await.expect("free");
        assert!(exists(new, "counted").await);
        assert!(next.token() > token, "{} after {token}", next.token());
        token = next.token();
        next.unlock().await.expect("held");
        deployment.is_led_by(new).await;
        deployment.is_followed_by(old).await;
    }
    guard.unlock().await.expect("held");
    client.shutdown().await;
    drop((counted, client));
    eventually(LIMIT, "no connection of it is left", async || {
        for server in deployment.servers.iter().chain(&deployment.sentinels) {
            let list = server.command(&["CLIENT", "LIST"]).await;
            let list: String = redis::from_redis_value(list).expect("a list");
            // The Sentinels' connections have names; replicas and masters have flags.
            let other = |line: &&str| {
                !["name=sentinel", "flags=S", "flags=M"].iter().any(|mark| line.contains(mark))
            };
            if list.lines().filter(other).count() > 1 {
                return false;
            }
        }
        true
    })
    .await;
}
