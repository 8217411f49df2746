//! Queues behind Sentinels and on a cluster.

use std::time::Duration;

use leasehold::{Client, Error};

use super::{MS, are_waiting, places};
use crate::checks::{LIMIT, soon};
use crate::support::{
    Cluster, Connects, Deployment, MASTER, Pretender, Server, eventually, slot_of,
};

#[tokio::test]
async fn items_on_every_shard_of_a_cluster_reach_who_waits() {
    let cluster = Cluster::start().await;
    let builder = || Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let one = builder().connect().await.expect("the cluster accepts the client");
    let two = builder().connect().await.expect("the cluster accepts the client");
    for shard in 0..3 {
        let name = cluster.name_on(shard, "jobs");
        let waiting = tokio::spawn(two.queue(&name).pop());
        are_waiting(&one.queue(&name), 1).await;
        one.queue(&name).push("1").await.expect("pushed");
        let delivery = soon("its turn", waiting).await.expect("no panic").expect("an item");
        delivery.retry(10 * MS).await.expect("held");
        let delivery = soon("an item", one.queue(&name).pop()).await.expect("an item");
        assert_eq!(delivery.deliveries(), 2);
        delivery.ack().await.expect("held");
        assert_eq!(places(&one.queue(&name)).await, [0; 4]);
    }
}

/// Deliveries are renewed however far their keys have moved: they must not wait until the other keys have followed.
#[tokio::test]
async fn deliveries_are_renewed_while_their_slot_moves() {
    const TTL: Duration = Duration::from_millis(1_500);
    let cluster = Cluster::start().await;
    let (source, target) = (cluster.master(0), cluster.master(1));
    let builder = Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let client = builder.ttl(TTL).connect().await.expect("the cluster accepts the client");
    for key in ["leasehold_lent", "leasehold_items"] {
        let name = cluster.name_on(0, &format!("jobs:{key}"));
        let (slot, queue) = (slot_of(&name), client.queue(&name));
        queue.push("1").await.expect("pushed");
        let delivery = soon("an item", queue.pop()).await.expect("there is one");
        cluster.open(slot, source, target).await;
        cluster.migrate(&[&format!("{key}:{{{name}}}")], source, target).await;
        // For longer than it would last without renewals.
        let outlasted = tokio::time::timeout(TTL * 2, delivery.lost()).await;
        assert!(outlasted.is_err() && delivery.is_held(), "lost without {key} here");
        cluster.migrate_all(slot, source, target).await;
        cluster.close(slot, source, target).await;
        soon("the answer", delivery.ack()).await.expect("held");
        assert_eq!(places(&queue).await, [0; 4]);
    }
}

#[tokio::test]
async fn deliveries_outlive_their_master() {
    let deployment = Deployment::start().await;
    let connect = async || {
        let builder = deployment.builder().ttl(Duration::from_secs(20));
        builder.restart_quarantine(Duration::ZERO).connect().await.expect("connected")
    };
    let (holder, waiter) = (connect().await, connect().await);
    holder.queue("jobs").push_many(["1", "2"]).await.expect("pushed");
    let kept = soon("an item", holder.queue("jobs").pop()).await.expect("there is one");
    let passed_on = soon("an item", holder.queue("jobs").pop()).await.expect("there is one");
    let waiting = tokio::spawn(waiter.queue("jobs").pop());
    are_waiting(&waiter.queue("jobs"), 1).await;
    deployment.is_synced().await;
    deployment.master().kill();
    drop(passed_on);
    let next = soon("the next one", waiting).await.expect("no panic").expect("it was given back");
    assert!(next.is_held() && kept.is_held());
    assert_eq!((next.payload(), next.deliveries()), (&b"2"[..], 2));
    next.ack().await.expect("held");
    kept.ack().await.expect("held");
    assert_eq!(places(&waiter.queue("jobs")).await, [0; 4]);
}

/// In the grace nobody may use what the new master grants. An item that it hands out nevertheless was not delivered.
#[tokio::test]
async fn an_item_that_is_handed_out_in_the_grace_is_no_delivery() {
    let deployment = Deployment::start().await;
    let connect = async || {
        let builder = deployment.builder().ttl(Duration::from_secs(12));
        builder.restart_quarantine(Duration::from_secs(13)).connect().await.expect("connected")
    };
    let jobs = |client: &Client| client.queue("jobs").with_max_deliveries(2);
    let busy = connect().await;
    jobs(&busy).push_many(["1", "2", "3"]).await.expect("pushed");
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(soon("an item", jobs(&busy).pop()).await.expect("there is one"));
    }
    let mut waiting = Vec::new();
    for others in 1..=3 {
        waiting.push(tokio::spawn(jobs(&connect().await).pop()));
        are_waiting(&jobs(&busy), others).await;
    }
    deployment.is_synced().await;
    deployment.master().kill();
    let follows = async || {
        let is_new = *busy.nodes()[0].address == *deployment.servers[1].url();
        is_new && jobs(&busy).len().await.is_ok()
    };
    eventually(LIMIT, "there is a new master", follows).await;
    let are_reached = async || {
        let mailboxes = ["PUBSUB", "CHANNELS", "leasehold_mailbox:*"];
        matches!(deployment.servers[1].command(&mailboxes).await, redis::Value::Array(all) if all.len() >= 3)
    };
    eventually(LIMIT, "the new master reaches those who wait", are_reached).await;
    jobs(&busy).push("4").await.expect("the new master takes it");
    for delivery in held {
        // What was granted by message would be over by then.
        tokio::time::sleep(2100 * MS).await;
        delivery.ack().await.expect("held");
    }
    let (first, _, others) = soon("an item", futures_util::future::select_all(waiting)).await;
    let delivery = first.expect("no panic").expect("an item");
    assert_eq!((delivery.payload(), delivery.deliveries()), (&b"4"[..], 1));
    delivery.ack().await.expect("held");
    others.iter().for_each(tokio::task::JoinHandle::abort);
    assert_eq!(places(&jobs(&busy)).await, [0; 4]);
}

/// The next master lacks the delivery, and has its item still. Nobody else can have had that since, but it is not done.
#[tokio::test]
async fn an_item_whose_delivery_a_failover_has_lost_is_not_said_to_be_done() {
    for is_sent in [true, false] {
        let (old, new) = tokio::join!(Server::start(), Server::start());
        let direct = async |server: &Server| {
            Client::connect(&server.url()).await.expect("the server accepts the client")
        };
        for server in [&old, &new] {
            direct(server).await.queue("jobs").push("1").await.expect("pushed");
        }
        let sentinel = Pretender::start(old.port(), Some(3)).await;
        let builder = Client::builder().sentinel(MASTER, [sentinel.url()]).ttl(6000 * MS);
        let builder = builder.response_timeout(4000 * MS).restart_quarantine(7000 * MS);
        let client = builder.connect().await.expect("connected");
        let delivery = soon("an item", client.queue("jobs").pop()).await.expect("there is one");
        if is_sent {
            old.pause();
        } else {
            old.kill();
            eventually(LIMIT, "it is away", async || !client.is_ready()).await;
        }
        let mut done = Box::pin(delivery.ack());
        assert!(futures_util::poll!(&mut done).is_pending(), "the old master does not answer");
        if is_sent {
            old.kill();
        }
        sentinel.reports(old.port(), new.port());
        let error = soon("an outcome", done).await.expect_err("it is there");
        assert!(matches!(error, Error::Lost { .. } | Error::Unavailable { .. }), "{error:?}");
        assert_eq!(direct(&new).await.queue("jobs").len().await.expect("an answer"), 1);
    }
}
