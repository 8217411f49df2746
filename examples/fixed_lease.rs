//! A lease of fixed length: the watchdog does not renew it, so it ends even if its holder hangs.
//!
//! `with_max_hold` is less strict: the watchdog renews the lock, but only up to that limit.

use std::error::Error;
use std::time::{Duration, Instant};

use leasehold::{Client, LossReason};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = Client::connect(&url).await?;
    let nightly = client.mutex("example:nightly").with_lease(Duration::from_millis(500));

    let guard = nightly.lock().await?;
    println!("held for {:?}", guard.remaining());

    // Extends the lease, counted from now. It never shortens a lease.
    guard.extend(Duration::from_secs(1)).await?;
    println!("extended to {:?}", guard.remaining());

    // The work takes too long.
    let started_at = Instant::now();
    let reason = guard.lost().await;
    println!("after {:?}: {reason}", started_at.elapsed());
    assert_eq!(reason, LossReason::Ended);

    // Another holder may have the lock now, although the old guard still exists.
    let next = nightly.lock_with_timeout(Duration::from_secs(5)).await?;
    assert!(next.token() > guard.token());
    println!("the next holder has token {}", next.token());
    next.unlock().await?;
    client.shutdown().await;
    Ok(())
}
