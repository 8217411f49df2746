//! Who waits for a lock and who listens for its releases, as a server says.

use redis::Value;

use crate::Server;

/// How many requests wait in the lock's queue on this server.
pub async fn waiting(server: &Server, name: &str) -> i64 {
    let queue = match name.contains('{') {
        true => format!("leasehold_queue::{name}"),
        false => format!("leasehold_queue:{{{name}}}"),
    };
    match server.command(&["ZCARD", &queue]).await {
        Value::Int(count) => count,
        other => panic!("not a length: {other:?}"),
    }
}

/// How many clients the server can reach by message: it passes over the others in a queue.
pub async fn heard(server: &Server) -> usize {
    match server.command(&["PUBSUB", "CHANNELS", "leasehold_mailbox:*"]).await {
        Value::Array(mailboxes) => mailboxes.len(),
        other => panic!("no channels: {other:?}"),
    }
}

/// How many listen on a channel.
pub async fn subscribers(server: &Server, channel: &str) -> i64 {
    match server.command(&["PUBSUB", "NUMSUB", channel]).await {
        Value::Array(items) => match items.as_slice() {
            [_, Value::Int(count)] => *count,
            other => panic!("not a count of subscribers: {other:?}"),
        },
        other => panic!("not a count of subscribers: {other:?}"),
    }
}
