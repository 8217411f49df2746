//! Row 19: from the end of a leader to the first act of the next.

use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::bench::clock;
use leasehold_testkit::bench::figures::{Unit, median};

use crate::table::{Aim, Figure};
use crate::worker::{self, Worker};
use crate::{Bench, Outcome};

pub(crate) const LEAD: &str = "lead";

/// Row 19: a standby in another process takes over, after the leader resigned, and after its process was killed. What a killed
/// leader costs at least is its TTL.
pub(crate) async fn follow(bench: &Bench, round: u32) -> Outcome<Vec<Figure>> {
    let (mut resigned, mut killed) = (Vec::new(), Vec::new());
    for turn in 0..bench.times(8) {
        let election = bench.client.election(format!("resigned:{round}:{turn}"));
        resigned.push(after_resigning(&election, bench.url()).await?);
    }
    for turn in 0..bench.times(2) {
        let election = bench.client.election(format!("killed:{round}:{turn}"));
        killed.push(after_a_kill(&election, bench.url()).await?);
    }
    Ok(vec![
        Figure::new(
            "a leader resigns: until the next one acts, in another process",
            Unit::Seconds,
            median(&resigned).unwrap_or_default(),
        )
        .aim(Aim::Under(1e-3)),
        Figure::new(
            "a leader with a TTL of 1 s is killed: until the next one acts",
            Unit::Seconds,
            median(&killed).unwrap_or_default(),
        )
        .floor(TTL.as_secs_f64())
        .aim(Aim::Under(1.05)),
    ])
}

/// The standby is this process, which is told by a message.
async fn after_resigning(election: &leasehold::Election, url: &str) -> Outcome<f64> {
    let mut leader = Worker::start(&[LEAD, url, election.name(), "resign"]).await?;
    let standby = tokio::spawn(election.campaign());
    waits(election, url).await?;
    let window = clock::Window::soon(Duration::from_millis(1));
    leader.go(window).await?;
    let leadership = standby.await??;
    let acted_at = clock::now();
    let ended_at: u64 = *leader.report(window).await?.first().ok_or("no report")?;
    leadership.resign().await?;
    Ok(acted_at.saturating_sub(Duration::from_nanos(ended_at)).as_secs_f64())
}

async fn after_a_kill(election: &leasehold::Election, url: &str) -> Outcome<f64> {
    let leader = Worker::start(&[LEAD, url, election.name(), "stay"]).await?;
    let standby = tokio::spawn(election.campaign());
    waits(election, url).await?;
    let killed_at = clock::now();
    drop(leader);
    let leadership = standby.await??;
    let took = clock::now().saturating_sub(killed_at);
    leadership.resign().await?;
    Ok(took.as_secs_f64())
}

/// Returns when the standby is in the server's queue.
async fn waits(election: &leasehold::Election, url: &str) -> Outcome<()> {
    let client = Client::connect(url).await?;
    let lock = client.mutex(election.name());
    while lock.status().await?.waiting.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    client.shutdown().await;
    Ok(())
}

/// In a worker: leads, and resigns when it is told to, or stays until it is killed.
pub(crate) async fn leader(url: &str, name: &str, end: &str) -> Outcome<()> {
    let client = Client::builder().nodes([url]).ttl(TTL).connect().await?;
    let leadership = client.election(name).campaign().await?;
    worker::ready().await?;
    if end == "resign" {
        let ended_at = clock::now();
        leadership.resign().await?;
        worker::report([ended_at.as_nanos() as u64]);
        client.shutdown().await;
    }
    Ok(())
}

const TTL: Duration = Duration::from_secs(1);
