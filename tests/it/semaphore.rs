//! Semaphores: leased permits that all processes share.

mod blocking;
mod changing;
mod deployments;
mod dropping;
mod misuse;
mod ordering;
mod permits;
mod rates;
mod returning;
mod storms;

use std::time::Duration;

use leasehold::{Client, Semaphore};

use crate::checks::{LIMIT, client_is_idle};
use crate::support::{Server, eventually};

const MS: Duration = Duration::from_millis(1);
const HOLDERS: &str = "{api}:timeout";

/// The semaphore of a test, of so many permits.
fn api(client: &Client, permits: u32) -> Semaphore {
    client.semaphore("api").with_permits(permits)
}

/// Waits until so many stand in the queue.
async fn are_waiting(semaphore: &Semaphore, count: usize) {
    eventually(LIMIT, "they are in the queue", async || {
        semaphore.status().await.is_ok_and(|status| status.waiting.len() == count)
    })
    .await;
}

/// All permits come back, nobody waits, and the client has nothing left.
async fn all_are_back(server: &Server, client: &Client, permits: u32) {
    let semaphore = client.semaphore("api");
    eventually(LIMIT, "all permits are back", async || {
        let status = semaphore.status().await.expect("an answer");
        status.available == i64::from(permits) && status.waiting.is_empty()
    })
    .await;
    client_is_idle(client).await;
    let keys = server.command(&["EXISTS", HOLDERS, "leasehold_permit_queue:{api}"]).await;
    assert_eq!(keys, redis::Value::Int(0), "nothing but the count stays");
}
