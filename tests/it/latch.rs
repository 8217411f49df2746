//! Latches: shut until the last count, and never open early.

mod blocking;
mod failing;
mod misuse;
mod waiting;

use std::time::Duration;

use leasehold::{Client, Latch};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const CHANNEL: &str = "redisson_countdownlatch__channel__{ready}";

/// A latch that is shut now.
async fn shut(client: &Client, count: u64) -> Latch {
    let latch = client.latch("ready");
    assert!(latch.try_set_count(count, HOUR).await.expect("an answer"), "it was shut before");
    latch
}
