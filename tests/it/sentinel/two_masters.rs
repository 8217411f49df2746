//! Failovers in which writes are lost, or the old master lives on. The grace is on, as by default, but shorter.

use std::time::{Duration, Instant};

use leasehold::{Client, ClientBuilder, LossReason};

use crate::{
    checks::{LIMIT, exists, soon},
    support::{Connects, Deployment, MASTER, Pretender, Server, eventually},
};

const TTL: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_secs(3);

async fn connect(builder: ClientBuilder) -> Client {
    connect_with(builder.ttl(TTL).restart_quarantine(GRACE)).await
}

async fn connect_with(builder: ClientBuilder) -> Client {
    let client = builder.connect().await.expect("the master accepts the client");
    // The servers have just started.
    eventually(LIMIT, "its grants count", async || client.is_ready()).await;
    client
}

async fn is_at(client: &Client, server: &Server) {
    eventually(LIMIT, "the client is at the other server", async || {
        let node = &client.nodes()[0];
        *node.address == *server.url() && node.last_error.is_none()
    })
    .await;
}

/// What is written after this is lost if the master dies.
async fn cut_replication(deployment: &Deployment) {
    let [master, replica] = &deployment.servers[..] else { panic!("two servers") };
    replica.pause();
    master.command(&["CLIENT", "KILL", "TYPE", "replica"]).await;
}

#[tokio::test]
async fn a_lock_that_the_new_master_lacks_is_put_back_and_nobody_gets_it_before() {
    let deployment = Deployment::start().await;
    let replica = &deployment.servers[1];
    // A lease without renewals outlives the failover.
    let lasting = Duration::from_secs(6);
    let builder = || deployment.builder().ttl(lasting).restart_quarantine(lasting);
    let [holder, waiter] = [connect_with(builder()).await, connect_with(builder()).await];
    cut_replication(&deployment).await;
    let guard = soon("the lock", holder.mutex("n").lock()).await.expect("free");
    let token = guard.token();
    let waiting = tokio::spawn(waiter.mutex("n").lock());
    eventually(LIMIT, "it waits", async || waiter.stats().waiters == 1).await;
    let killed_at = Instant::now();
    deployment.master().kill();
    replica.resume();
    is_at(&holder, replica).await;
    let met_at = Instant::now();
    // On a machine that is too slow for the failover there is nothing to keep.
    if killed_at.elapsed() < lasting / 2 || guard.is_held() {
        let put_back = async || {
            let is_known = guard.is_held() && holder.stats().reclaimed == 1;
            is_known && exists(replica, "n").await
        };
        eventually(LIMIT, "it is put back", put_back).await;
        assert_eq!(guard.token(), token);
        guard.unlock().await.expect("held");
    }
    let next = soon("the grace ends", waiting).await.expect("no panic").expect("free");
    assert!(met_at.elapsed() + Duration::from_millis(500) >= lasting, "{:?}", met_at.elapsed());
    assert!(next.token() > token, "{} after {token}", next.token());
    next.unlock().await.expect("held");
}

#[tokio::test]
async fn without_a_grace_a_lock_that_the_new_master_lacks_is_lost_at_once() {
    let deployment = Deployment::start().await;
    let replica = &deployment.servers[1];
    let builder = deployment.builder().ttl(Duration::from_secs(20));
    let client = builder.connect().await.expect("the master accepts the client");
    cut_replication(&deployment).await;
    let guard = soon("the lock", client.mutex("n").lock()).await.expect("free");
    deployment.master().kill();
    replica.resume();
    is_at(&client, replica).await;
    let met_at = Instant::now();
    assert_eq!(soon("it is told", guard.lost()).await, LossReason::Failover);
    let took = met_at.elapsed();
    assert!(took < replica.widened(Duration::from_millis(1000)), "{took:?}");
}

/// A client that is not told of the failover holds a lock on the old master, which comes back, and takes it again whenever
/// it is lost. Returns true if it held the lock when another client got it from the new one.
async fn is_held_twice(settings_of_the_servers: &[&str]) -> bool {
    let deployment = Deployment::with(2, 3, settings_of_the_servers).await;
    for sentinel in &deployment.sentinels {
        // So they demote a master that comes back after four times 4 s: later than the other client has the lock.
        let slow = ["SENTINEL", "DEBUG", "INFO-PERIOD", "10000", "PUBLISH-PERIOD", "4000"];
        let _ = sentinel.try_command(&slow).await;
    }
    let old = deployment.master();
    let behind = Pretender::start(old.port(), Some(0)).await;
    let there = connect(Client::builder().sentinel(MASTER, [behind.url()])).await;
    // Its grace gives the first client the time to connect to the old master again.
    let here = connect_with(deployment.builder().ttl(TTL).restart_quarantine(2 * GRACE)).await;
    let mutex = there.mutex("n");
    let mut guard = soon("the lock", mutex.lock()).await.expect("free");
    deployment.is_synced().await;
    old.pause();
    eventually(LIMIT, "another one is the master", async || {
        *here.nodes()[0].address != *old.url() && here.nodes()[0].last_error.is_none()
    })
    .await;
    old.resume();
    let keeper = tokio::spawn(async move {
        loop {
            guard.lost().await;
            match mutex.lock().await {
                Ok(again) => guard = again,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    let next = soon("the other one", here.mutex("n").lock()).await.expect("it waits for long");
    let held_twice = !there.holds().is_empty();
    assert!(next.is_held());
    keeper.abort();
    held_twice
}

#[tokio::test]
async fn a_fenced_old_master_that_comes_back_keeps_no_lock() {
    let fenced = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"];
    assert!(!is_held_twice(&fenced).await);
}

/// What the rule about the servers' settings is for, and a check of the test above.
#[tokio::test]
async fn an_old_master_that_is_not_fenced_keeps_a_lock_that_the_new_one_grants() {
    assert!(is_held_twice(&[]).await);
}
