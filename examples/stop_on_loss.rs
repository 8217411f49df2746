//! Reacts to a lock that is lost while it is held. Here, an operator takes it away by force.

use std::error::Error;
use std::future::pending;
use std::time::Duration;

use leasehold::{Client, Error as LockError};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    // The lock is renewed every 200 ms, and at a renewal the holder learns that its lock is gone.
    let ttl = Duration::from_millis(600);
    let client = Client::builder().nodes([&*url]).ttl(ttl).connect().await?;
    let operator = Client::connect(&url).await?.mutex("example:report");
    let report = client.mutex("example:report");

    println!("waiting for the loss while the work runs");
    let guard = report.lock().await?;
    operator.force_unlock().await?;
    tokio::select! {
        () = pending() => println!("the work is done"),
        reason = guard.lost() => println!("stopped the work: {reason}"),
    }
    assert!(!guard.is_held());
    let error = guard.unlock().await.expect_err("the lock was lost");
    println!("unlock returned: {error}");

    println!("letting `run` cancel the work");
    let work = async |_: &leasehold::Guard| {
        operator.force_unlock().await.expect("the server answers");
        pending::<()>().await // never returns
    };
    let error = report.run(work).await.expect_err("the lock was taken away");
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    println!("run returned: {error}");
    client.shutdown().await;
    Ok(())
}
