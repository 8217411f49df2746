//! Takes a lock, looks at it, and gives it back.

use std::error::Error;
use std::time::Duration;

use leasehold::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = Client::connect(&url).await?;

    let orders = client.mutex("example:orders");
    let guard = orders.lock().await?;
    println!("held by {}, with token {}", guard.holder(), guard.token());
    println!("for {:?} still, renewed while the guard lives", guard.remaining());

    // Another acquisition keeps out: try_lock gives None at once, a timeout tells who holds the lock.
    assert!(orders.try_lock().await?.is_none());
    match orders.lock_with_timeout(Duration::from_millis(100)).await {
        Err(error @ leasehold::Error::Timeout { .. }) => println!("{error}"),
        other => panic!("expected a timeout, got {other:?}"),
    }

    // Dropping the guard would give the lock back, too, in the background. `unlock` says how it went.
    guard.unlock().await?;
    assert!(!orders.is_locked().await?);

    // Takes the lock, runs the body, gives the lock back.
    let total = orders.run(async |_| 40 + 2).await?;
    println!("the body gave {total}");

    client.shutdown().await;
    Ok(())
}
