//! Subscriptions of sharded channels that the server ends: it becomes a replica, or its slot moves, or nobody owns the slot.
//!
//! Java holds the lock, so that nothing but the channel tells those who wait of its release. A poll would not help a waiter
//! beside one that takes turns all the time.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, Guard};
use redis::Value;
use tokio::task::JoinHandle;

use super::{builder, is_idle};
use crate::checks::soon;
use crate::support::{Cluster, Server, eventually, slot_of};

const LIMIT: Duration = Duration::from_secs(10);
/// Half as long as it takes until somebody asks unasked.
const WOKEN: Duration = Duration::from_secs(1);
/// A thread of a Java client.
const JAVA: &str = "0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f01:42";

/// A lock of the first shard that Java holds, and one of ours that waits for it.
struct Scene<'a> {
    client: &'a Client,
    name: &'a str,
    channel: String,
}

impl Scene<'_> {
    async fn listens_at(&self, server: &Server) -> bool {
        let counts = server.command(&["PUBSUB", "SHARDNUMSUB", &self.channel]).await;
        counts.into_sequence().expect("a channel and a count").pop() == Some(Value::Int(1))
    }

    async fn wait(&self, owner: &Server) -> JoinHandle<Result<Guard, Error>> {
        owner.command(&["HSET", self.name, JAVA, "1"]).await;
        owner.command(&["PEXPIRE", self.name, "60000"]).await;
        let lock = self.client.mutex(self.name);
        let waiting = tokio::spawn(async move { lock.lock().await });
        eventually(LIMIT, "it listens", async || self.listens_at(owner).await).await;
        waiting
    }

    /// The subscription was ended just now, and `owner` has the slot.
    async fn hears(&self, after: &str, owner: &Server, waiting: JoinHandle<Result<Guard, Error>>) {
        let ended_at = Instant::now();
        eventually(LIMIT, &format!("it listens again after {after}"), async || {
            self.listens_at(owner).await
        })
        .await;
        let took = ended_at.elapsed();
        assert!(took < owner.widened(WOKEN), "it listens after {took:?}");
        owner.command(&["DEL", self.name]).await;
        let is_told =
            async || owner.command(&["SPUBLISH", &self.channel, "0"]).await == Value::Int(1);
        eventually(LIMIT, "it is told", is_told).await;
        let freed_at = Instant::now();
        let guard = soon("the lock", waiting).await.expect("no panic").expect("free");
        let took = freed_at.elapsed();
        assert!(took < owner.widened(WOKEN), "it has the lock after {took:?}");
        soon("unlocking", guard.unlock()).await.expect("held");
    }
}

#[tokio::test]
async fn who_waits_for_java_hears_within_a_second_whatever_ended_its_subscription() {
    let cluster = Cluster::with(&["--cluster-require-full-coverage", "no"]).await;
    let client = builder(&cluster).ttl(Duration::from_secs(2)).connect().await;
    let client = client.expect("the cluster accepts the client");
    let name = cluster.name_on(0, "java");
    let channel = format!("redisson_lock__channel:{{{name}}}");
    let scene = Scene { client: &client, name: &name, channel };
    let (mut owner, mut replica) = (cluster.master(0), cluster.replica(0));
    let all: Vec<&Server> = cluster.servers().iter().map(|server| &**server).collect();
    // Each has a second end. Between two changes all must hear of the first, or nobody may have the slot in the end.
    for _ in 0..2 {
        let waiting = scene.wait(owner).await;
        cluster.promote(replica).await;
        (owner, replica) = (replica, owner);
        scene.hears("the failover", owner, waiting).await;
        cluster.settled(&all).await;

        for (source, target) in [(owner, cluster.master(1)), (cluster.master(1), owner)] {
            let waiting = scene.wait(source).await;
            cluster.move_slot(slot_of(&name), source, target).await;
            scene.hears("the move", target, waiting).await;
            cluster.settled(&all).await;
        }
    }
    // Last, since a replica that has not heard of the end of this takes over without the slot.
    for _ in 0..2 {
        let waiting = scene.wait(owner).await;
        let slot = slot_of(&name).to_string();
        let before = refused(owner).await;
        owner.command(&["CLUSTER", "DELSLOTS", &slot]).await;
        let is_refused = async || refused(owner).await > before;
        eventually(LIMIT, "nobody subscribes at a server without the slot", is_refused).await;
        owner.command(&["CLUSTER", "ADDSLOTS", &slot]).await;
        scene.hears("the slot was nobody's", owner, waiting).await;
    }
    is_idle(&client).await;
}

/// How often the server has refused to subscribe a sharded channel.
async fn refused(server: &Server) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).await;
    let stats: String = redis::from_redis_value(stats).expect("a text");
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_ssubscribe:"));
    let count =
        line.and_then(|line| line.split(',').find_map(|it| it.strip_prefix("rejected_calls=")));
    count.map_or(0, |count| count.parse().expect("a number"))
}

/// Who waits for a signal, and is not polled for a while, listens where its slot was.
#[tokio::test]
async fn a_wait_that_is_not_polled_breaks_no_connection_when_its_slot_moves() {
    let cluster = Cluster::start().await;
    let [old, new] = [cluster.master(0), cluster.master(1)];
    let client = builder(&cluster).connect().await.expect("the cluster accepts the client");
    let name = cluster.name_on(0, "n");
    let signal = client.signal(&*name);
    let seen = soon("an answer", signal.seen()).await.expect("the server is up");
    let stays = client.signal(cluster.name_on(0, "m"));
    let seen_there = soon("an answer", stays.seen()).await.expect("the server is up");
    let other = tokio::spawn(stays.changed(seen_there));
    let mut wait = Box::pin(signal.changed(seen));
    tokio::time::timeout(WOKEN, &mut wait).await.expect_err("there was no signal");
    cluster.move_slot(slot_of(&name), old, new).await;
    let before = client.stats().connections_made;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let made = client.stats().connections_made - before;
    assert!(made <= 4, "{made} connections");
    // It listens at the new owner, on a new connection there, and leaves the old one, which others still hear.
    let subscribers = async || {
        let list = old.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
        let list: String = redis::from_redis_value(list).expect("a list");
        let id = |line: &str| line.split(' ').next().expect("an id").to_owned();
        list.lines().map(id).collect::<Vec<_>>()
    };
    let before = subscribers().await;
    soon("an answer", signal.notify_all(b"x")).await.expect("the new owner is up");
    assert_eq!(*soon("the signal", wait).await.expect("it came").data, *b"x");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!before.is_empty());
    assert_eq!(subscribers().await, before, "they are the same");
    soon("an answer", stays.notify_all(b"y")).await.expect("the server is up");
    let heard = soon("the other signal", other).await.expect("no panic").expect("it came");
    assert_eq!(*heard.data, *b"y");
}
