//! Takes a lock, inspects it, and releases it.

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
    println!("for another {:?}, and renewed while the guard lives", guard.remaining());

    // Another acquisition has a different owner: try_lock returns None at once, and a timeout error names the holder.
    assert!(orders.try_lock().await?.is_none());
    match orders.lock_with_timeout(Duration::from_millis(100)).await {
        Err(error @ leasehold::Error::Timeout { .. }) => println!("{error}"),
        other => panic!("expected a timeout, got {other:?}"),
    }

    // Dropping the guard would also release the lock, in the background. `unlock` reports the result.
    guard.unlock().await?;
    assert!(!orders.is_locked().await?);

    // Takes the lock, runs the body, and releases the lock.
    let total = orders.run(async |_| 40 + 2).await?;
    println!("the body returned {total}");

    client.shutdown().await;
    Ok(())
}
