//! A cron job that runs on one of several hosts, although their clocks differ a little.

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use leasehold::Client;

/// The minimum hold: longer than the clocks of any two hosts differ (a minute is usual), but shorter than the job's
/// period.
const MIN_HOLD: Duration = Duration::from_millis(500);

/// Every host calls this at the same time of day. Returns whether the job ran on this one.
async fn nightly(client: &Client, job: impl Future<Output = ()>) -> Result<bool, leasehold::Error> {
    // A job that hangs must not block tomorrow's. After a short job, a host whose clock is late must not find the lock
    // free.
    let lock = client
        .mutex("example:cron:nightly")
        .with_max_hold(Duration::from_secs(3600))
        .with_min_hold(MIN_HOLD);
    let Some(guard) = lock.try_lock().await? else {
        return Ok(false);
    };
    guard.run_until_lost(job).await?;
    guard.unlock().await?; // the process may end: the lock stays taken until its min hold is over
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let (early, late) = (Client::connect(&url).await?, Client::connect(&url).await?);
    let runs = AtomicU32::new(0);
    let job = async || {
        runs.fetch_add(1, SeqCst);
    };

    let (on_early, on_late) = tokio::join!(nightly(&early, job()), async {
        // The late host's clock is behind: it starts after the short job has ended.
        while runs.load(SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(MIN_HOLD / 5).await;
        nightly(&late, job()).await
    });
    println!("the early host ran the job: {}; the late host ran it: {}", on_early?, on_late?);
    assert_eq!(runs.load(SeqCst), 1, "the job ran twice");

    tokio::time::sleep(MIN_HOLD).await;
    assert!(nightly(&late, job()).await?, "the next day's job did not run");
    early.shutdown().await;
    late.shutdown().await;
    Ok(())
}
