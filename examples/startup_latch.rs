//! Processes that begin their work together, once all of them are ready.

use std::error::Error;
use std::time::Duration;

use leasehold::{Client, Latch};

const PROCESSES: u64 = 3;

/// One process: it prepares itself, says so, and begins when all have.
async fn start(latch: Latch) -> Result<Duration, leasehold::Error> {
    // The first to come sets it. The end is for a deployment that fails: after it, nobody finds the latch shut.
    latch.try_set_count(PROCESSES, Duration::from_secs(3600)).await?;
    let prepared_at = std::time::Instant::now();
    latch.count_down().await?;
    latch.wait_with_timeout(Duration::from_secs(60)).await?;
    Ok(prepared_at.elapsed())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    // The number of the deployment makes a latch of its own for each.
    let name = "example:deployment:42:ready";
    let late = Duration::from_millis(300);
    let mut processes = Vec::new();
    for number in 0..PROCESSES {
        // Each stands for a process of its own.
        let client = Client::connect(&url).await?;
        processes.push(tokio::spawn(async move {
            if number == 0 {
                tokio::time::sleep(late).await;
            }
            let waited = start(client.latch(name)).await;
            client.shutdown().await;
            waited
        }));
    }
    for (number, process) in processes.into_iter().enumerate() {
        let waited = process.await??;
        println!("process {number} waited for the others for {waited:?}");
        assert!(number == 0 || waited > late / 2, "it did not wait for the late one");
    }
    Ok(())
}
