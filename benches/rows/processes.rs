//! Row 5: one lock among the tasks of several processes.

use std::time::{Duration, Instant};

use leasehold::Client;
use leasehold_testkit::bench::by_hand::{ByHand, Keys};
use leasehold_testkit::bench::clock::{self, Window};
use leasehold_testkit::bench::figures::{Unit, fewest_to_most};
use leasehold_testkit::bench::server::SCRIPTS;
use tokio::task::JoinSet;

use crate::table::{Aim, Figure};
use crate::worker::{self, Worker};
use crate::{Bench, Outcome, watched};

pub(crate) const CONTEND: &str = "contend";

/// Row 5: 4 processes with 16 tasks each, empty critical section. The floor asks the server every time.
pub(crate) async fn contend(bench: &Bench, round: u32) -> Outcome<Vec<Figure>> {
    let name = format!("processes:{round}");
    let floor = pairs_by_hand(bench).await?;
    let mut workers = Vec::new();
    for _ in 0..PROCESSES {
        workers.push(Worker::start(&[CONTEND, bench.url(), &name]).await?);
    }
    let window = Window::soon(bench.span(SPAN));
    for worker in &mut workers {
        worker.go(window).await?;
    }
    let scripts = bench.server.work_in(window).await?.calls(&SCRIPTS);
    let mut counts = Vec::new();
    for worker in &mut workers {
        counts.extend(worker.report::<u64>(window).await?);
    }
    let all = counts.iter().sum::<u64>() as f64;
    Ok(vec![
        Figure::new(
            "4 processes x 16 tasks on one lock, nothing done inside (floor: one client that asks every time)",
            Unit::PerSecond,
            all / window.seconds(),
        )
        .floor(floor),
        Figure::new("scripts per acquisition", Unit::Number, scripts / all)
            .floor(2.0)
            .aim(Aim::Under(0.01)),
        Figure::new("fewest / most per process", Unit::Number, fewest_to_most(counts.iter().map(|turns| *turns as f64)))
            .aim(Aim::Over(0.9)),
    ])
}

async fn pairs_by_hand(bench: &Bench) -> Outcome<f64> {
    let by_hand = ByHand::connect(bench.url()).await?;
    let keys = Keys::of("processes:floor");
    let pairs = bench.times(2000);
    let began_at = Instant::now();
    for _ in 0..pairs {
        by_hand.pair(&keys).await?;
    }
    Ok(f64::from(pairs) / began_at.elapsed().as_secs_f64())
}

/// One of the processes.
pub(crate) async fn contender(url: &str, name: &str) -> Outcome<()> {
    let client = watched::as_ordered(Client::builder().nodes([url])).connect().await?;
    let lock = client.mutex(name);
    let window = worker::ready().await?;
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let lock = lock.clone();
        tasks.spawn(async move {
            let mut turns = 0_u64;
            loop {
                let guard = lock.lock().await?;
                let now = clock::now();
                guard.unlock().await?;
                turns += u64::from(window.contains(now));
                if now >= window.until {
                    return Outcome::Ok(turns);
                }
            }
        });
    }
    let mut all = 0;
    while let Some(turns) = tasks.join_next().await {
        all += turns??;
    }
    worker::report([all]);
    client.shutdown().await;
    Ok(())
}

const PROCESSES: usize = 4;
const TASKS: usize = 16;
const SPAN: Duration = Duration::from_secs(3);
