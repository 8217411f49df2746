//! Workers that take jobs from a queue: a worker that crashes loses no job, and a job that crashes its workers ends up dead.

use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;

use leasehold::{Client, Queue};

/// Works until no job has come for a while. Returns what it has done.
async fn work(jobs: Queue) -> Result<Vec<String>, leasehold::Error> {
    let mut done = Vec::new();
    while let Some(job) = jobs.try_pop_for(Duration::from_millis(500)).await? {
        let order = String::from_utf8_lossy(job.payload()).into_owned();
        // Stops at its next await if the job is lost: another worker may have it then.
        match job.run_until_lost(ship(&order)).await? {
            Ok(()) => {
                job.ack().await?;
                done.push(order);
            }
            Err(problem) if job.deliveries() < 2 => {
                println!("{order}: {problem}, again in a moment");
                job.retry(Duration::from_millis(50)).await?;
            }
            Err(problem) => {
                println!("{order}: {problem}, for good");
                job.reject().await?;
            }
        }
    }
    Ok(done)
}

/// The work. It may run twice for one order, so it must do no harm then.
async fn ship(order: &str) -> Result<(), &'static str> {
    tokio::time::sleep(Duration::from_millis(5)).await;
    if order.contains("unknown") { Err("no such order") } else { Ok(()) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    // They stand for three processes.
    let [shop, crashes, stays] =
        [Client::connect(&url).await?, Client::connect(&url).await?, Client::connect(&url).await?];
    let name = "example:job_queue";
    let orders = (0..20).map(|number| format!("order {number}"));
    shop.queue(name).push_many(orders).await?;
    shop.queue(name).push("order unknown").await?;

    // A worker that takes a job and never ends it: the job comes back.
    let jobs = crashes.queue(name);
    let taken = jobs.pop().await?;
    println!("crashed with {}", String::from_utf8_lossy(taken.payload()));
    crashes.shutdown().await;

    let workers = (0..4).map(|_| work(stays.queue(name)));
    let done = futures_util::future::try_join_all(workers).await?.concat();
    let distinct: BTreeSet<&String> = done.iter().collect();
    println!("{} orders shipped", done.len());
    assert_eq!((done.len(), distinct.len()), (20, 20), "each order once");
    let dead = shop.queue(name).dead(9).await?;
    assert_eq!((dead.len(), &*dead[0].payload), (1, &b"order unknown"[..]));

    // Somebody has mended the cause.
    assert_eq!(shop.queue(name).redrive(9).await?, 1);
    shop.queue(name).pop().await?.ack().await?;
    for client in [shop, stays] {
        client.shutdown().await;
    }
    Ok(())
}
