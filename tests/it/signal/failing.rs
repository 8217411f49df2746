//! Signals, and servers that fail or forget.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, Error};
use redis::Value;

use super::{CHANNEL, KEY, MS, somebody_listens};
use crate::checks::{LIMIT, connect, setup, setup_with_proxy, soon};
use crate::support::{Cluster, Server, eventually, slot_of};

#[tokio::test]
async fn without_a_message_a_signal_is_seen_within_four_seconds() {
    let (server, [client]) = setup().await;
    let wait = tokio::spawn(client.signal("prices").changed(0));
    somebody_listens(&server, CHANNEL, 1).await;
    server.command(&["HSET", KEY, "number", "7", "data", "x"]).await;
    server.command(&["PEXPIRE", KEY, "60000"]).await;
    let notice = soon("it looks again", wait).await.expect("no panic").expect("a signal");
    assert_eq!((notice.number, &*notice.data), (7, &b"x"[..]));
}

#[tokio::test]
async fn what_is_signalled_during_an_outage_is_seen_after_it() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let wait = tokio::spawn(client.signal("prices").changed(0));
    somebody_listens(&server, CHANNEL, 1).await;
    proxy.refuse(true);
    proxy.cut();
    connect(&server).await.signal("prices").notify_all(b"x").await.expect("an answer");
    proxy.refuse(false);
    let notice = soon("it looks again", wait).await.expect("no panic").expect("a signal");
    assert_eq!(*notice.data, *b"x");
}

#[tokio::test]
async fn a_server_that_forgets_the_number_ends_the_wait_and_never_repeats_it() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let signal = client.signal("prices");
    signal.notify_all(b"x").await.expect("an answer");
    let seen = signal.seen().await.expect("an answer");
    let wait = tokio::spawn(signal.changed(seen));
    somebody_listens(&server, CHANNEL, 1).await;
    server.kill();
    server.restart().await;
    let notice = soon("it looks again", wait).await.expect("no panic").expect("a notice");
    assert_eq!((notice.number, notice.data.len()), (0, 0));
    signal.notify_all(b"y").await.expect("an answer");
    assert!(signal.seen().await.expect("an answer") > seen);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_no_timeout() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).response_timeout(100 * MS);
    let client = builder.unavailable_after(300 * MS).connect().await.expect("connected");
    server.pause();
    for timeout in [Duration::ZERO, 50 * MS, Duration::MAX] {
        let signal = client.signal("prices").changed_with_timeout(0, timeout);
        let group = client.signal_group("prices").changed_with_timeout(0, timeout);
        let (signal, group) = soon("errors", async { tokio::join!(signal, group) }).await;
        for error in [signal.expect_err("silence"), group.expect_err("silence")] {
            assert!(matches!(error, Error::Unavailable { .. }), "{timeout:?}: {error:?}");
        }
    }
}

#[tokio::test]
async fn a_full_server_still_signals() {
    let (server, [client]) = setup().await;
    let (signal, group) = (client.signal("prices"), client.signal_group("prices"));
    let seen = group.seen().await.expect("an answer");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    client.signal_group("others").seen().await.expect("a new group is looked at");
    signal.notify_all(b"x").await.expect("it is given");
    group.notify(["apples"]).await.expect("it is given");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(*signal.changed(0).await.expect("a signal").data, *b"x");
    assert_eq!(group.changed(seen).await.expect("a signal").names, [Arc::from("apples")]);
}

#[tokio::test]
async fn who_waits_keeps_the_signal_on_the_server_for_a_day() {
    let (server, [client]) = setup().await;
    let (signal, group) = (client.signal("prices"), client.signal_group("prices"));
    signal.notify_all(b"x").await.expect("an answer");
    group.notify(["apples"]).await.expect("an answer");
    for key in [KEY, super::GROUP_KEY] {
        // 23 hours.
        server.command(&["PEXPIRE", key, "82800000"]).await;
    }
    signal.changed(0).await.expect("a signal");
    group.changed(0).await.expect("a signal");
    for key in [KEY, super::GROUP_KEY] {
        let Value::Int(ends) = server.command(&["PTTL", key]).await else { panic!("no number") };
        assert!(ends > 86_000_000, "{key}: {ends}");
    }
}

#[tokio::test]
async fn on_a_cluster_signals_are_heard_on_each_shard_and_after_their_slot_has_moved() {
    let cluster = Cluster::start().await;
    let builder = || Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let one = builder().connect().await.expect("the cluster accepts the client");
    let two = builder().connect().await.expect("the cluster accepts the client");
    for shard in 0..3 {
        let name = cluster.name_on(shard, "prices");
        let name = if shard == 2 { format!("{{{name}}}:all") } else { name };
        let (signal, group) = (one.signal(&name), one.signal_group(&name));
        let seen = group.seen().await.expect("an answer");
        let waits = [
            tokio::spawn({
                let wait = two.signal(&name).changed(0);
                async { wait.await.map(drop) }
            }),
            tokio::spawn({
                let wait = two.signal_group(&name).changed(seen);
                async { wait.await.map(drop) }
            }),
        ];
        eventually(LIMIT, "both listen", async || two.stats().subscriptions == 2).await;
        if shard == 0 {
            let (slot, source, target) = (slot_of(&name), cluster.master(0), cluster.master(1));
            cluster.open(slot, source, target).await;
            cluster.migrate_all(slot, source, target).await;
            cluster.close(slot, source, target).await;
        }
        signal.notify_all(b"x").await.expect("an answer");
        group.notify(["apples"]).await.expect("an answer");
        for wait in waits {
            soon("it comes", wait).await.expect("no panic").expect("a signal");
        }
    }
}

/// A master that gives a slot away refuses to make anew what a script has just deleted there.
#[tokio::test]
async fn a_signal_that_is_given_while_its_slot_moves_is_not_lost() {
    let cluster = Cluster::start().await;
    let builder = Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let client = builder.connect().await.expect("the cluster accepts the client");
    let name = cluster.name_on(0, "prices");
    let signal = client.signal(&name);
    signal.notify_all(b"x").await.expect("an answer");
    let seen = signal.seen().await.expect("an answer");
    let (slot, source, target) = (slot_of(&name), cluster.master(0), cluster.master(1));
    cluster.open(slot, source, target).await;
    // Nobody makes it anew there.
    target.pause();
    signal.notify_all(b"y").await.expect("the key is there still");
    target.resume();
    cluster.migrate_all(slot, source, target).await;
    cluster.close(slot, source, target).await;
    let notice = signal.changed_with_timeout(seen, LIMIT).await.expect("it is given");
    assert!(notice.number > seen, "{} after {seen}", notice.number);
    assert_eq!(*notice.data, *b"y");
}
