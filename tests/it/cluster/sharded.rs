//! Sharded channels, which Redisson uses in a cluster of Redis 7.

use std::time::{Duration, Instant};

use redis::{AsyncConnectionConfig, PushKind, Value};
use tokio::sync::mpsc;

use super::{builder, is_idle};
use crate::checks::soon;
use crate::support::{Cluster, Server, eventually, slot_of};

const LIMIT: Duration = Duration::from_secs(10);
/// Sooner than by a poll.
const WOKEN: Duration = Duration::from_secs(2);
/// A thread of a Java client.
const JAVA: &str = "0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f01:42";

async fn listeners(server: &Server, channel: &str) -> Value {
    let count = server.command(&["PUBSUB", "SHARDNUMSUB", channel]).await;
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
