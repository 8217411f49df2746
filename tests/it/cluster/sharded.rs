//! Sharded channels, which Redisson uses in a cluster of Redis 7, and plain ones.

use std::time::{Duration, Instant};

use futures_util::stream::StreamExt;
use leasehold::{Client, FindingKind, PubSub};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
use tokio::sync::mpsc::{self, UnboundedReceiver};

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
    let (_java, mut heard) = heard_on(target, &channel).await;
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

/// What is said on a sharded channel, from now on.
async fn heard_on(
    server: &Server,
    channel: &str,
) -> (MultiplexedConnection, UnboundedReceiver<PushInfo>) {
    let (pushes, heard) = mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new().set_push_sender(pushes);
    let listener = redis::Client::open(format!("{}/?protocol=resp3", server.url()));
    let listener = listener.expect("a valid URL");
    let connecting = listener.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connecting.await.expect("a server");
    let mut subscribe = redis::cmd("SSUBSCRIBE");
    connection.send_packed_command(subscribe.arg(channel)).await.expect("subscribed");
    (connection, heard)
}

/// Each kind has calls of its own. Of each call that frees something, those on the sharded channel must hear.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_tells_on_the_sharded_channel() {
    let cluster = Cluster::start().await;
    let client = builder(&cluster).connect().await.expect("the cluster accepts the client");
    let (owner, name) = (cluster.master(1), cluster.name_on(1, "java"));
    let (lock, rw) = (client.mutex(&name), client.rw_lock(format!("{{{name}}}:rw")));
    let (permits, election) = (
        client.semaphore(format!("{{{name}}}:s")).with_permits(2),
        client.election(format!("{{{name}}}:e")),
    );
    let of_lock = format!("redisson_lock__channel:{{{name}}}");
    let of_rw = format!("redisson_rwlock:{{{name}}}:rw");
    let of_permits = format!("redisson_sc:{{{name}}}:s");
    let of_leader = format!("leasehold_leader__channel:{{{name}}}:e");
    for call in [
        "unlock",
        "force_unlock",
        "read",
        "write",
        "downgrade",
        "rw force",
        "release",
        "resize",
        "ended",
        "proclaim",
        "resign",
        "leader forced",
    ] {
        let channel = match call {
            "unlock" | "force_unlock" => &of_lock,
            "read" | "write" | "downgrade" | "rw force" => &of_rw,
            "release" | "resize" | "ended" => &of_permits,
            _ => &of_leader,
        };
        let (_connection, mut heard) = heard_on(owner, channel).await;
        let is_heard = async || counted(owner, "SHARDNUMSUB", channel).await == Value::Int(1);
        eventually(LIMIT, "it listens", is_heard).await;
        match call {
            "unlock" => lock.lock().await.expect("free").unlock().await.expect("held"),
            "force_unlock" => {
                let _guard = lock.lock().await.expect("free");
                assert!(lock.force_unlock().await.expect("an answer"));
            }
            "read" => rw.read().await.expect("free").unlock().await.expect("held"),
            "write" => rw.write().await.expect("free").unlock().await.expect("held"),
            "downgrade" => {
                let reader = rw.write().await.expect("free").downgrade().await.expect("held");
                reader.unlock().await.expect("held");
            }
            "rw force" => {
                let _guard = rw.write().await.expect("free");
                assert!(rw.force_unlock().await.expect("an answer"));
            }
            "release" => permits.acquire().await.expect("one").release().await.expect("held"),
            "resize" => permits.add_permits(1).await.expect("an answer"),
            "ended" => {
                let short = permits.with_lease(Duration::from_millis(20));
                short.acquire().await.expect("one").spend();
                // Whoever asks next takes it back.
                let back = async || {
                    drop(permits.try_acquire().await.expect("an answer"));
                    heard.len() > 1
                };
                eventually(LIMIT, "it is told", back).await;
            }
            "proclaim" => {
                let leadership = election.campaign().await.expect("nobody leads");
                heard_of(&mut heard, call).await;
                leadership.proclaim("x").await.expect("it leads");
                heard_of(&mut heard, call).await;
                leadership.resign().await.expect("held");
            }
            "resign" => {
                let leadership = election.campaign().await.expect("nobody leads");
                heard_of(&mut heard, call).await;
                leadership.resign().await.expect("held");
            }
            _ => {
                let _leadership = election.campaign().await.expect("nobody leads");
                heard_of(&mut heard, call).await;
                let lock = client.mutex(election.name());
                assert!(lock.force_unlock().await.expect("an answer"));
            }
        }
        heard_of(&mut heard, call).await;
    }
    is_idle(&client).await;
}

/// Waits for the next message.
async fn heard_of(heard: &mut UnboundedReceiver<PushInfo>, call: &str) {
    let message =
        async { while heard.recv().await.expect("a connection").kind != PushKind::SMessage {} };
    soon(call, message).await;
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

/// Whoever listens in a loop leaves the channel after each message, and is back before the server has answered that.
#[tokio::test]
async fn whoever_leaves_a_channel_and_comes_back_at_once_keeps_the_connection() {
    let cluster = Cluster::start().await;
    let client = builder(&cluster).connect().await.expect("the cluster accepts the client");
    let signal = client.signal(cluster.name_on(0, "s"));
    let (heard, made) = (signal.clone(), client.clone());
    let listening = tokio::spawn(async move {
        let mut notice = heard.changed(0).await.expect("a notice");
        let before = made.stats().connections_made;
        for _ in 0..200 {
            notice = heard.changed(notice.number).await.expect("a notice");
        }
        made.stats().connections_made - before
    });
    let mut often = tokio::time::interval(Duration::from_millis(5));
    let heard = async {
        while !listening.is_finished() {
            often.tick().await;
            signal.notify_all(b"").await.expect("the cluster serves");
        }
    };
    soon("200 notices", heard).await;
    assert_eq!(listening.await.expect("no panic"), 0, "connections were made again");
}
