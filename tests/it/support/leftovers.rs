//! What must not be there after a lock's last use.

use std::time::Duration;

use leasehold::Client;
use redis::Value;

use super::{Server, eventually};

/// Tasks of a client that does nothing: the watchdog, the supervisor of the node, its hub.
pub(crate) const IDLE_TASKS: usize = 3;

/// Waits until nothing of the lock `name` is left: on the server no field and no subscriber, in the client no
/// gate, waiter, subscription, task or owed release.
pub(crate) async fn nothing_is_left(server: &Server, client: &Client, name: &str) {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    eventually(SOON, &format!("nothing is left of {name}"), async || {
        let stats = client.stats();
        let clean = (stats.gates, stats.waiters, stats.subscriptions, stats.owed_releases)
            == (0, 0, 0, 0)
            && stats.tasks == IDLE_TASKS;
        clean
            && server.command(&["EXISTS", name]).await == Value::Int(0)
            && subscribers(server, &channel).await == 0
    })
    .await;
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
const SOON: Duration = Duration::from_secs(5);
