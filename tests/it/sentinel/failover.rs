//! Real Sentinels, and masters that die or are replaced.

use std::time::{Duration, Instant};

use leasehold::Client;

use crate::{
    checks::{LIMIT, exists, soon},
    support::{DOWN_AFTER_MS, Deployment, eventually},
};

const TTL: Duration = Duration::from_secs(20);

async fn connect(deployment: &Deployment) -> Client {
    let builder = deployment.builder().ttl(TTL).restart_quarantine(Duration::ZERO);
    builder.connect().await.expect("the master accepts the client")
}

/// Waits until the replica has received everything.
async fn synced(deployment: &Deployment) {
    eventually(LIMIT, "the replica has everything", async || {
        let mut raw = deployment.master().raw().await;
        let mut pipeline = redis::pipe();
        pipeline.cmd("SET").arg("mark").arg(1).ignore().cmd("WAIT").arg(1).arg(100);
        let (replicas,): (u64,) = pipeline.query_async(&mut raw).await.expect("answered");
        replicas == 1
    })
    .await;
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
    synced(&deployment).await;

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
    let mut token = guard.token();
    for round in 0..3 {
        let from = client.nodes()[0].address.clone();
        let new = deployment.servers.iter().find(|server| *server.url() != *from).expect("two");
        let old = deployment.servers.iter().find(|server| *server.url() == *from).expect("two");
        deployment.fail_over().await;
        eventually(LIMIT, "the client is at the other server", async || {
            *client.nodes()[0].address == *new.url() && client.is_ready()
        })
        .await;
        let next = soon("the lock", client.mutex(format!("n{round}")).lock()).await.expect("free");
        assert!(exists(new, &format!("n{round}")).await);
        assert!(next.token() > 0);
        assert!(guard.is_held(), "it was replicated");
        let mutex = client.mutex("counted");
        let counted = soon("the lock", mutex.lock()).await.expect("free");
        assert!(counted.token() > token, "{} after {token}", counted.token());
        token = counted.token();
        counted.unlock().await.expect("held");
        next.unlock().await.expect("held");
        deployment.is_led_by(new).await;
        deployment.is_followed_by(old).await;
    }
    guard.unlock().await.expect("held");
    client.shutdown().await;
    drop(client);
    eventually(LIMIT, "nothing of it is left", async || {
        for server in &deployment.servers {
            let list = server.command(&["CLIENT", "LIST", "TYPE", "normal"]).await;
            let list: String = redis::from_redis_value(list).expect("a list");
            // The Sentinels and this connection.
            if list.lines().filter(|line| !line.contains("name=sentinel")).count() > 1 {
                return false;
            }
        }
        true
    })
    .await;
}
