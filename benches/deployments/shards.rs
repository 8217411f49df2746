//! Row 5: many tasks with a lock each, on the three masters of a cluster and on one server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Client, Mutex};
use leasehold_testkit::bench::figures::Unit;
use leasehold_testkit::{Deployment, Server};
use tokio::task::JoinSet;

use crate::place;
use crate::table::Figure;
use crate::{Outcome, Pace};

pub(crate) async fn trial(pace: Pace) -> Outcome<Vec<Figure>> {
    let (single, replicated) = (Server::start().await, Deployment::with(1, 0, &[]).await);
    replicated.is_synced().await;
    let cluster = place::cluster(pace.silence()).await;
    let clients = [
        Client::connect(&single.url()).await?,
        Client::connect(&replicated.master().url()).await?,
        Client::builder()
            .cluster(cluster.urls())
            .restart_quarantine(Duration::ZERO)
            .connect()
            .await?,
    ];
    let names: Vec<_> =
        (0..TASKS).map(|task| cluster.name_on(task % 3, &format!("own:{task}"))).collect();
    let locks = |client: &Client| names.iter().map(|name| client.mutex(name)).collect::<Vec<_>>();
    let mut each = [0.0; 3];
    // The first time they connect.
    for client in &clients {
        rate(locks(client), SLICE / 4).await?;
    }
    let slices = pace.times(4);
    for _ in 0..slices {
        for (client, sum) in clients.iter().zip(&mut each) {
            *sum += rate(locks(client), SLICE).await? / f64::from(slices);
        }
    }
    for client in clients {
        client.shutdown().await;
    }
    let [single, replicated, sharded] = each;
    let figure = |of, value| {
        let what = "64 tasks, each its own lock: lock + unlock";
        Figure::new(5, what, of, Unit::PerSecond, value)
    };
    Ok(vec![
        figure("leasehold, one server", single),
        figure("leasehold, one server with a replica", replicated).beside(single),
        figure("leasehold, three masters with a replica each", sharded).beside(single),
    ])
}

/// Pairs per second of a task for each lock.
async fn rate(locks: Vec<Mutex>, span: Duration) -> Outcome<f64> {
    let stop = Arc::<AtomicBool>::default();
    let began_at = Instant::now();
    let mut tasks: JoinSet<_> =
        locks.into_iter().map(|lock| pairs_until(lock, stop.clone())).collect();
    tokio::time::sleep(span).await;
    stop.store(true, Ordering::Relaxed);
    let mut pairs = 0;
    while let Some(done) = tasks.join_next().await {
        pairs += done??;
    }
    Ok(f64::from(pairs) / began_at.elapsed().as_secs_f64())
}

async fn pairs_until(lock: Mutex, stop: Arc<AtomicBool>) -> Outcome<u32> {
    let mut pairs = 0;
    while !stop.load(Ordering::Relaxed) {
        lock.lock().await?.unlock().await?;
        pairs += 1;
    }
    Ok(pairs)
}

const TASKS: usize = 64;
const SLICE: Duration = Duration::from_millis(400);
