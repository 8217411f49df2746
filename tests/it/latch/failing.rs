//! Latches and servers that fail: nobody who saw a latch shut goes on because it was lost.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, LossReason};

use super::{CHANNEL, HOUR, MS, shut};
use crate::checks::{LIMIT, connect, setup, setup_with_proxy, soon};
use crate::support::{Cluster, Connects, Deployment, Server, eventually, slot_of, subscribers};

fn reason(error: &Error) -> LossReason {
    match error {
        Error::Lost { reason, .. } => *reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn its_end_does_not_open_it() {
    let (server, [client]) = setup().await;
    let latch = client.latch("ready");
    let ttl = 300 * MS * server.slowness().await;
    assert!(latch.try_set_count(2, ttl).await.expect("an answer"));
    let error = soon("its end", latch.wait()).await.expect_err("nobody counted");
    assert_eq!(reason(&error), LossReason::Ended);
    for error in [
        latch.clone().wait().await.expect_err("it stays lost"),
        latch.count().await.expect_err("it stays lost"),
        latch.count_down().await.expect_err("it stays lost"),
    ] {
        assert_eq!(reason(&error), LossReason::Ended);
    }
    client.latch("ready").wait().await.expect("who never saw it shut finds it open");
    assert!(latch.try_set_count(1, HOUR).await.expect("an answer"));
    assert_eq!(latch.count_down().await.expect("an answer"), 0);
    latch.wait().await.expect("it is open");
}

#[tokio::test]
async fn a_server_that_restarts_without_it_does_not_open_it() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let latch = shut(&client, 1).await;
    let waiting = tokio::spawn(latch.wait());
    let other = tokio::spawn(client.latch("ready").wait());
    eventually(LIMIT, "both listen", async || client.stats().subscriptions == 1).await;
    server.kill();
    server.restart().await;
    for waiting in [waiting, other] {
        let error = soon("it looks again", waiting).await.expect("no panic").expect_err("lost");
        assert_eq!(reason(&error), LossReason::Failover);
    }
}

#[tokio::test]
async fn who_waits_through_an_outage_hears_of_the_last_count() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let other = connect(&server).await;
    let latch = shut(&other, 1).await;
    let waiting = tokio::spawn(client.latch("ready").wait());
    eventually(LIMIT, "it listens", async || client.stats().subscriptions == 1).await;
    proxy.refuse(true);
    proxy.cut();
    assert_eq!(latch.count_down().await.expect("an answer"), 0);
    proxy.refuse(false);
    soon("it looks again", waiting)
        .await
        .expect("no panic")
        .expect("the same server has opened it");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_no_timeout() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).response_timeout(100 * MS);
    let client = builder.unavailable_after(300 * MS).connect().await.expect("connected");
    let latch = shut(&client, 1).await;
    server.pause();
    for timeout in [Duration::ZERO, 50 * MS, Duration::MAX] {
        let began_at = Instant::now();
        let error = soon("an error", latch.wait_with_timeout(timeout)).await.expect_err("silence");
        assert!(matches!(error, Error::Unavailable { .. }), "{timeout:?}: {error:?}");
        assert!(began_at.elapsed() >= timeout.min(300 * MS), "too early: {timeout:?}");
    }
    let error = latch.count_down().await.expect_err("silence");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

/// The time counts from the question that had no answer, however long its answer may take.
#[tokio::test]
async fn a_server_that_does_not_answer_ends_a_wait_with_the_first_question_if_that_took_long_enough()
 {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).response_timeout(3000 * MS);
    let client = builder.unavailable_after(300 * MS).connect().await.expect("connected");
    let latch = shut(&client, 1).await;
    let mut observer = client.election("scheduler").observe();
    assert_eq!(observer.changed().await.expect("an answer"), None);
    server.pause();
    let began_at = Instant::now();
    let (waited, changed) = tokio::join!(latch.wait(), observer.changed());
    let took = began_at.elapsed();
    for error in [waited.expect_err("silence"), changed.expect_err("silence")] {
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    }
    // Two questions take 6 s.
    assert!(took < server.widened(5000 * MS), "{took:?}");
}

/// Has all who wait look again.
async fn speak(server: &Server) {
    server.command(&["PUBLISH", CHANNEL, "1"]).await;
}

#[tokio::test]
async fn outages_while_one_waits_do_not_add_up() {
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).response_timeout(200 * MS);
    let client = builder.unavailable_after(3000 * MS).connect().await.expect("connected");
    let latch = shut(&connect(&server).await, 1).await;
    let waiting = tokio::spawn(client.latch("ready").wait());
    for outage in 0..2 {
        eventually(LIMIT, "it listens", async || subscribers(&server, CHANNEL).await == 1).await;
        // The second begins later than the first would have been long enough.
        tokio::time::sleep(outage * 3500 * MS).await;
        proxy.drop_requests(true);
        speak(&server).await;
        tokio::time::sleep(500 * MS).await;
        proxy.drop_requests(false);
        let asks = async || client.latch("ready").count().await.is_ok();
        eventually(LIMIT, "the server is reached again", asks).await;
    }
    assert_eq!(latch.count_down().await.expect("an answer"), 0);
    soon("the last count", waiting).await.expect("no panic").expect("no outage was long enough");
}

#[tokio::test]
async fn a_wait_that_ends_in_an_outage_says_so_although_it_was_answered_before() {
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).response_timeout(100 * MS);
    let client = builder.connect().await.expect("connected");
    shut(&connect(&server).await, 1).await;
    let waiting = tokio::spawn(client.latch("ready").wait_with_timeout(1500 * MS));
    eventually(LIMIT, "it listens", async || subscribers(&server, CHANNEL).await == 1).await;
    proxy.drop_requests(true);
    speak(&server).await;
    let error = soon("its time", waiting).await.expect("no panic").expect_err("it is shut");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn deleting_one_that_was_lost_opens_it_for_who_saw_it_shut() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let latch = shut(&client, 1).await;
    server.kill();
    server.restart().await;
    let error = soon("the server", latch.wait()).await.expect_err("it was lost");
    assert_eq!(reason(&error), LossReason::Failover);
    assert!(!latch.delete().await.expect("an answer"), "it is gone already");
    latch.wait().await.expect("it was to be open");
}

#[tokio::test]
async fn a_client_that_is_closed_ends_those_who_wait() {
    let (server, [client]) = setup().await;
    let latch = shut(&client, 1).await;
    let waiting = tokio::spawn(latch.wait());
    eventually(LIMIT, "it listens", async || client.stats().subscriptions == 1).await;
    client.shutdown().await;
    let closed_at = Instant::now();
    eventually(LIMIT, "it ends", async || waiting.is_finished()).await;
    // Who only looks again does so after 2 s.
    assert!(closed_at.elapsed() < server.widened(1500 * MS), "{:?}", closed_at.elapsed());
    for error in [
        soon("it ends", waiting).await.expect("no panic").expect_err("closed"),
        latch.wait().await.expect_err("closed"),
        latch.count_down().await.expect_err("closed"),
    ] {
        assert!(matches!(error, Error::Closed { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_full_server_still_counts() {
    for ttl in [HOUR, Duration::MAX] {
        let (server, [client]) = setup().await;
        let latch = client.latch("ready");
        assert!(latch.try_set_count(2, ttl).await.expect("an answer"));
        server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
        assert_eq!(latch.count_down().await.expect("it counts"), 1);
        let ends = server.command(&["PTTL", "ready"]).await;
        let ends: i64 = redis::from_redis_value(ends).expect("a number");
        assert_eq!(ends > 0, ttl == HOUR, "{ends}");
        assert_eq!(latch.count_down().await.expect("it counts"), 0);
    }
}

#[tokio::test]
async fn a_latch_outlives_its_master_and_one_that_was_lost_with_it_opens_for_nobody() {
    let deployment = Deployment::start().await;
    let builder = || deployment.builder().restart_quarantine(Duration::ZERO);
    let [one, other] = [
        builder().connect().await.expect("the master accepts the client"),
        builder().connect().await.expect("the master accepts the client"),
    ];
    let kept = shut(&one, 2).await;
    let seen = other.latch("ready");
    let waiting = tokio::spawn(seen.wait_with_timeout(LIMIT * 3));
    eventually(LIMIT, "it listens", async || other.stats().subscriptions == 1).await;
    deployment.is_synced().await;
    let lost = one.latch("lost");
    assert!(lost.try_set_count(1, HOUR).await.expect("an answer"));
    let replica = &deployment.servers[1];
    deployment.master().kill();
    deployment.is_led_by(replica).await;
    // As if it had not come to the replica.
    replica.command(&["DEL", "lost"]).await;
    let error = soon("the new master", lost.wait()).await.expect_err("it is gone");
    assert_eq!(reason(&error), LossReason::Failover);
    // A handle that has not seen it there must take it for lost if it is gone.
    assert_eq!(soon("the new master", seen.count()).await.expect("an answer"), 2);
    assert_eq!(kept.count_down().await.expect("an answer"), 1);
    assert_eq!(kept.count_down().await.expect("an answer"), 0);
    soon("the last count", waiting).await.expect("no panic").expect("it is open");
}

#[tokio::test]
async fn on_a_cluster_it_is_heard_on_each_shard_and_after_its_slot_has_moved() {
    let cluster = Cluster::start().await;
    let builder = || Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let one = builder().connect().await.expect("the cluster accepts the client");
    let two = builder().connect().await.expect("the cluster accepts the client");
    for shard in 0..3 {
        let name = cluster.name_on(shard, "ready");
        let (here, there) = (one.latch(&name), two.latch(&name));
        assert!(here.try_set_count(2, HOUR).await.expect("an answer"));
        let waiting = tokio::spawn(there.wait());
        eventually(LIMIT, "it listens", async || two.stats().subscriptions == 1).await;
        assert_eq!(here.count_down().await.expect("an answer"), 1);
        if shard == 0 {
            let (slot, source, target) = (slot_of(&name), cluster.master(0), cluster.master(1));
            cluster.open(slot, source, target).await;
            cluster.migrate_all(slot, source, target).await;
            cluster.close(slot, source, target).await;
            // A handle that has not seen it there must take it for lost if it is gone.
            assert_eq!(there.count().await.expect("an answer"), 1);
        }
        assert_eq!(here.count_down().await.expect("an answer"), 0);
        soon("the last count", waiting).await.expect("no panic").expect("it is open");
    }
    let error = one.latch("{a}b").count().await.expect_err("its channel is elsewhere");
    assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
}

#[tokio::test]
async fn what_opens_a_latch_while_its_slot_moves_is_confirmed() {
    let cluster = Cluster::start().await;
    let builder = Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let client = builder.connect().await.expect("the cluster accepts the client");
    let (source, target) = (cluster.master(0), cluster.master(1));
    let names = ["counted", "deleted"].map(|name| cluster.name_on(0, name));
    let [counted, deleted] = names.each_ref().map(|name| client.latch(name));
    for (latch, name) in [&counted, &deleted].into_iter().zip(&names) {
        assert!(latch.try_set_count(1, HOUR).await.expect("an answer"));
        cluster.open(slot_of(name), source, target).await;
    }
    assert_eq!(counted.count_down().await.expect("it counts"), 0);
    assert!(deleted.delete().await.expect("it is deleted"));
}

/// A full master writes only behind another write of the same script. While it gives the slot away, it refuses to make anew what
/// that script has deleted.
#[tokio::test]
async fn a_full_server_still_counts_while_the_slot_moves() {
    let cluster = Cluster::start().await;
    let builder = Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let client = builder.connect().await.expect("the cluster accepts the client");
    let (source, target) = (cluster.master(0), cluster.master(1));
    let kinds = [("ends", HOUR), ("endless", Duration::MAX)];
    let kinds = kinds.map(|(stem, ttl)| (cluster.name_on(0, stem), ttl));
    for (name, ttl) in &kinds {
        let latch = client.latch(name);
        assert!(latch.try_set_count(2, *ttl).await.expect("an answer"));
        cluster.open(slot_of(name), source, target).await;
    }
    source.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for (name, ttl) in &kinds {
        assert_eq!(client.latch(name).count_down().await.expect("it counts"), 1, "{name}");
        let ends = source.command(&["PTTL", name]).await;
        let ends: i64 = redis::from_redis_value(ends).expect("a number");
        assert_eq!(ends > 0, *ttl == HOUR, "{name}: {ends}");
        assert_eq!(client.latch(name).count_down().await.expect("it counts"), 0, "{name}");
    }
}
