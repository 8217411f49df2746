//! Sharded channels, which Redisson uses in a cluster of Redis 7, and plain ones.

use std::time::{Duration, Instant};

use futures_util::stream::StreamExt;
use leasehold::{Client, FindingKind, PubSub};
use redis::{AsyncConnectionConfig, PushKind, Value};
use tokio::sync::mpsc;

use super::{builder, is_idle};
use crate::checks::soon;
use crate::support::{Cluster, Server, Twister, eventually, slot_of};

const LIMIT: Duration = Duration::from_secs(10);
/// Sooner than by a poll.
const WOKEN: Duration = Duration::from_secs(2);
/// A thread of a Java client.
const JAVA: &str = "0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f01:42";

async fn listeners(server: &Server, channel: &str) -> Value {
    counted(server, "SHARDNUMSUB", channel).await
}

/// How many listen on a channel, by one of the two counts.
async fn counted(server: &Server, count: &str, channel: &str) -> Value {
    let count = server.command(&["PUBSUB", count, channel]).await;
    count.into_sequence().expect("a channel and a count").pop().expect("a count")
}

#[tokio::test]
async fn each_side_hears_the_others_releases_on_the_sharded_channel_of_the_slots_owner() {
    let cluster = Cluster::start().await;
    let client = builder(&cluster).ttl(Duration::from_secs(2)).connect().await;
    let client = client.expect("the cluster accepts the client");
    let (source, target) = (cluster.master(0), cluster.master(1));
    let name = cluster.name_on(0, "java");
    let (slot, channel) = (slot_of(&name), format!("redisson_lock__channel:{{{name}}}"));

    // Ours waits for Java's.
    for (owner, moves) in [(source, false), (target, true)] {
        let holder = if moves { source } else { owner };
        holder.command(&["HSET", &name, JAVA, "1"]).await;
        holder.command(&["PEXPIRE", &name, "60000"]).await;
        let lock = client.mutex(&name);
        let waiting = tokio::spawn(async move { lock.lock().await });
        eventually(LIMIT, "the first in the queue listens", async || {
            listeners(holder, &channel).await == Value::Int(1)
        })
        .await;
        if moves {
            cluster.move_slot(slot, source, target).await;
            eventually(LIMIT, "it listens at the new owner", async || {
                listeners(target, &channel).await == Value::Int(1)
            })
            .await;
        }
        owner.command(&["DEL", &name]).await;
        let heard = owner.command(&["SPUBLISH", &channel, "0"]).await;
        let freed_at = Instant::now();
        assert_eq!(heard, Value::Int(1));
        let guard = soon("the lock", waiting).await.expect("no panic").expect("free");
        let took = freed_at.elapsed();
        assert!(took < owner.widened(WOKEN), "{took:?}, moved: {moves}");
        soon("unlocking", guard.unlock()).await.expect("held");
        eventually(LIMIT, "nobody listens", async || {
            listeners(owner, &channel).await == Value::Int(0)
        })
        .await;
    }

    // Java's waits for ours.
    let guard = soon("the lock", client.mutex(&name).lock()).await.expect("free");
    let (pushes, mut heard) = mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new().set_push_sender(pushes);
    let url = format!("{}/?protocol=resp3", target.url());
    let java = redis::Client::open(url).expect("a valid URL");
    let mut java =
        java.get_multiplexed_async_connection_with_config(&config).await.expect("a server");
    let mut subscribe = redis::cmd("SSUBSCRIBE");
    java.send_packed_command(subscribe.arg(&channel)).await.expect("subscribed");
    soon("unlocking", guard.unlock()).await.expect("held");
    let message = async {
        loop {
            let push = heard.recv().await.expect("a connection");
            if push.kind == PushKind::SMessage {
                return push.data;
            }
        }
    };
    let message = soon("the message", message).await;
    assert_eq!(message.last(), Some(&Value::BulkString(b"0".to_vec())));
    is_idle(&client).await;
}

/// What a check finds about channels: whether somebody listens on sharded ones, or on plain ones.
async fn found(client: &Client, name: &str) -> Vec<bool> {
    let found = client.check().await.expect("answered").into_iter();
    let found = found.filter_map(|found| match found.kind {
        FindingKind::OtherChannels { channel, sharded, .. } => {
            assert!(channel.contains(name), "{channel}");
            Some(sharded)
        }
        _ => None,
    });
    found.collect()
}

#[tokio::test]
async fn the_kind_of_channels_can_be_set_and_a_check_finds_those_who_use_the_other() {
    let cluster = Cluster::start().await;
    let connect = async |channels| {
        let builder = builder(&cluster).ttl(Duration::from_secs(2)).pubsub(channels);
        builder.connect().await.expect("the cluster accepts the client")
    };
    let auto = connect(PubSub::Auto).await;
    let (plain, sharded) = (connect(PubSub::Plain).await, connect(PubSub::Sharded).await);
    let owner = cluster.master(0);
    let name = cluster.name_on(0, "java");
    let channel = format!("redisson_lock__channel:{{{name}}}");
    let [of_plain, of_sharded] = [["NUMSUB", "PUBLISH"], ["SHARDNUMSUB", "SPUBLISH"]];
    for (client, [count, publish], [other_count, _]) in [
        (&plain, of_plain, of_sharded),
        (&sharded, of_sharded, of_plain),
        (&auto, of_sharded, of_plain),
    ] {
        owner.command(&["HSET", &name, JAVA, "1"]).await;
        owner.command(&["PEXPIRE", &name, "60000"]).await;
        let lock = client.mutex(&name);
        let waiting = tokio::spawn(async move { lock.lock().await });
        eventually(LIMIT, "the first in the queue listens", async || {
            counted(owner, count, &channel).await == Value::Int(1)
        })
        .await;
        assert_eq!(counted(owner, other_count, &channel).await, Value::Int(0), "{count}");
        let is_plain = count == "NUMSUB";
        assert_eq!(found(&plain, &name).await.contains(&true), !is_plain, "{count}");
        assert_eq!(found(&sharded, &name).await.contains(&false), is_plain, "{count}");
        owner.command(&["DEL", &name]).await;
        assert_eq!(owner.command(&[publish, &channel, "0"]).await, Value::Int(1));
        let freed_at = Instant::now();
        let guard = soon("the lock", waiting).await.expect("no panic").expect("free");
        let took = freed_at.elapsed();
        assert!(took < owner.widened(WOKEN), "{took:?}, {count}");
        soon("unlocking", guard.unlock()).await.expect("held");
        eventually(LIMIT, "nobody listens", async || {
            counted(owner, count, &channel).await == Value::Int(0)
        })
        .await;
        assert!(found(client, &name).await.is_empty(), "{count}");
    }

    // Java waits on a plain channel.
    let java = redis::Client::open(owner.url()).expect("a valid URL");
    let mut java = java.get_async_pubsub().await.expect("a server");
    java.subscribe(&channel).await.expect("subscribed");
    let guard = soon("the lock", plain.mutex(&name).lock()).await.expect("free");
    assert_eq!(found(&auto, &name).await, [false]);
    soon("unlocking", guard.unlock()).await.expect("held");
    let mut heard = java.on_message();
    let message = soon("the message", heard.next()).await.expect("a connection");
    assert_eq!(message.get_payload_bytes(), b"0");
}

#[tokio::test]
async fn a_cluster_without_the_sharded_channels_that_are_wanted_is_refused() {
    let cluster = Cluster::start().await;
    let older = Twister::start(cluster.master(0).port(), |words| {
        let is_new = words.len() > 1 && words[1] == "SHARDNUMSUB";
        is_new.then(|| "ERR unknown subcommand 'SHARDNUMSUB'. Try PUBSUB HELP.".to_owned())
    })
    .await;
    let connect = |channels| {
        let builder = Client::builder().cluster([older.url()]).pubsub(channels);
        builder.restart_quarantine(Duration::ZERO).connect()
    };
    let error = soon("an answer", connect(PubSub::Sharded)).await.expect_err("it has none");
    assert!(error.to_string().contains("no sharded channels"), "{error}");
    for channels in [PubSub::Auto, PubSub::Plain] {
        let client = soon("an answer", connect(channels)).await.expect("it has plain ones");
        let lock = client.mutex("n");
        soon("a lock", lock.lock()).await.expect("free").unlock().await.expect("held");
    }
}
