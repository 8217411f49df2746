//! Queues behind Sentinels and on a cluster.

use std::time::Duration;

use leasehold::Client;

use super::{MS, are_waiting, places};
use crate::checks::soon;
use crate::support::{Cluster, Deployment};

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
