//! What must not be there after a lock's last use.

use std::time::{Duration, Instant};

use redis::Value;

use super::{Face, Server};

/// Tasks of a client that does nothing: the watchdog, the supervisor of the node, its hub.
pub(crate) const IDLE_TASKS: usize = 3;

/// Waits until nothing of the lock `name` is left: on the server no field, no subscriber and nobody in the queue, in the client no
/// gate, waiter, subscription, task or owed release.
pub(crate) async fn nothing_is_left(server: &Server, client: &impl Face, name: &str) {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    let began_at = Instant::now();
    loop {
        let stats = client.stats();
        let key = server.command(&["HGETALL", name]).await;
        let listeners = subscribers(server, &channel).await;
        let busy = stats.locks + stats.waiters + stats.subscriptions + stats.releases_pending;
        let waiting = waiting(server, name).await;
        let clean = busy == 0 && stats.tasks == IDLE_TASKS && listeners == 0 && waiting == 0;
        if clean && key == Value::Array(Vec::new()) {
            return;
        }
        assert!(
            began_at.elapsed() < SOON,
            "{name} is not left after {SOON:?}: {key:?}, {listeners} listeners, {waiting} waiting, {stats:?}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// How many requests wait in the lock's queue on this server.
pub(crate) async fn waiting(server: &Server, name: &str) -> i64 {
    let queue = match name.contains('{') {
        true => format!("leasehold_queue::{name}"),
        false => format!("leasehold_queue:{{{name}}}"),
    };
    match server.command(&["ZCARD", &queue]).await {
        Value::Int(count) => count,
        other => panic!("not a length: {other:?}"),
    }
}

/// How many listen on a channel.
pub(crate) async fn subscribers(server: &Server, channel: &str) -> i64 {
    match server.command(&["PUBSUB", "NUMSUB", channel]).await {
        Value::Array(items) => match items.as_slice() {
            [_, Value::Int(count)] => *count,
            other => panic!("not a count of subscribers: {other:?}"),
        },
        other => panic!("not a count of subscribers: {other:?}"),
    }
}

/// Far below the TTLs in use: what is gone by then was not left to expire.
const SOON: Duration = Duration::from_secs(15);
