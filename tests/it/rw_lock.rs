//! Read-write locks: many readers or one writer, in the order in which they came.

mod deployments;
mod failovers;
mod min_hold;
mod moving;
mod nesting;
mod removed;
mod sharing;
mod turns;
mod unchanged;

use std::time::Duration;

use leasehold::{Client, RwLock};

use crate::{
    checks::LIMIT,
    support::{Server, eventually},
};

const MS: Duration = Duration::from_millis(1);

/// A client whose readers ask for each other, unless they come at once.
async fn without_window(server: &Server) -> Client {
    let builder = Client::builder().nodes([server.url()]).handoff_window(Duration::ZERO);
    builder.connect().await.expect("connected")
}

/// Waits until so many clients stand in the lock's queue.
async fn queued(lock: &RwLock, clients: usize) {
    eventually(LIMIT, "they are in the queue", async || {
        lock.status().await.is_ok_and(|status| status.waiting.len() == clients)
    })
    .await;
}
