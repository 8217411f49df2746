//! Queues of items: each item is at any moment in exactly one place, and nobody who dies takes one along.

mod blocking;
mod delivering;
mod deployments;
#[cfg(feature = "json")]
mod json;
mod killing;
mod losing;
mod misuse;
mod storms;
mod waiting;

use std::time::Duration;

use leasehold::{Client, Queue, QueueStatus};

use crate::checks::{LIMIT, client_is_idle};
use crate::support::{Server, eventually};

const MS: Duration = Duration::from_millis(1);
const KEYS: [&str; 5] = [
    "jobs",
    "leasehold_lent:{jobs}",
    "leasehold_item_queue:{jobs}",
    "leasehold_items:{jobs}",
    "leasehold_dead:{jobs}",
];

fn jobs(client: &Client) -> Queue {
    client.queue("jobs")
}

async fn status(queue: &Queue) -> QueueStatus {
    queue.status().await.expect("an answer")
}

/// How many items are in each place: waiting, lent, to be delivered again, dead.
async fn places(queue: &Queue) -> [u64; 4] {
    let status = status(queue).await;
    [status.waiting_items, status.lent_items, status.retrying_items, status.dead_items]
}

/// Waits until so many stand in the queue.
async fn are_waiting(queue: &Queue, count: usize) {
    eventually(LIMIT, "they are in the queue", async || status(queue).await.waiting.len() == count)
        .await;
}

/// All items are done, nobody waits, and neither server nor client has anything left.
async fn all_are_done(server: &Server, client: &Client) {
    let words: Vec<&str> = ["EXISTS"].into_iter().chain(KEYS).collect();
    eventually(LIMIT, "no key is left", async || {
        server.command(&words).await == redis::Value::Int(0)
    })
    .await;
    client_is_idle(client).await;
}
