//! Rows 3 and 4: one lock among the tasks of one process, beside tokio's own mutex.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::Mutex;
use leasehold_testkit::bench::clock;
use leasehold_testkit::bench::figures::{Unit, fewest_to_most, median};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::table::{Aim, Figure};
use crate::{Bench, Outcome};

/// A lock that the tasks of one process share.
trait Shared: Clone + Send + Sync + 'static {
    type Guard: Send;

    fn take(&self) -> impl Future<Output = Outcome<Self::Guard>> + Send;
    fn give_back(guard: Self::Guard) -> impl Future<Output = Outcome<()>> + Send;
}

impl Shared for Mutex {
    type Guard = leasehold::Guard;

    async fn take(&self) -> Outcome<Self::Guard> {
        Ok(self.lock().await?)
    }

    async fn give_back(guard: Self::Guard) -> Outcome<()> {
        Ok(guard.unlock().await?)
    }
}

impl Shared for Arc<tokio::sync::Mutex<()>> {
    type Guard = tokio::sync::OwnedMutexGuard<()>;

    async fn take(&self) -> Outcome<Self::Guard> {
        Ok(self.clone().lock_owned().await)
    }

    async fn give_back(guard: Self::Guard) -> Outcome<()> {
        drop(guard);
        Ok(())
    }
}

/// Row 3: an empty critical section.
pub(crate) async fn contend(bench: &Bench) -> Outcome<Vec<Figure>> {
    let mut figures = many(bench).await?;
    figures.push(two(bench).await?);
    Ok(figures)
}

async fn many(bench: &Bench) -> Outcome<Vec<Figure>> {
    let span = bench.span(SPAN);
    let (mut floors, mut ours, mut evenness) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..2 {
        floors.push(rush(Arc::new(tokio::sync::Mutex::new(())), TASKS, span).await?.0);
        let (rate, fewest_to_most) = rush(bench.client.mutex("inside"), TASKS, span).await?;
        ours.push(rate);
        evenness.push(fewest_to_most);
    }
    Ok(vec![
        Figure::new(
            "64 tasks on one lock, nothing done inside (floor: tokio's mutex)",
            Unit::PerSecond,
            mean(&ours),
        )
        .floor(mean(&floors))
        .aim(Aim::Over(1e6)),
        Figure::new("fewest / most per task", Unit::Number, mean(&evenness)).aim(Aim::Over(0.5)),
    ])
}

/// Two tasks that take turns: mostly neither waits at the moment at which the other gives the lock back.
async fn two(bench: &Bench) -> Outcome<Figure> {
    let span = bench.span(SPAN);
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        floors.push(rush(Arc::new(tokio::sync::Mutex::new(())), 2, span).await?.0);
        ours.push(rush(bench.client.mutex("two"), 2, span).await?.0);
    }
    let name = "2 tasks on one lock, nothing done inside (floor: tokio's mutex)";
    let figure = Figure::new(name, Unit::PerSecond, mean(&ours));
    Ok(figure.floor(mean(&floors)).aim(Aim::Over(300e3)))
}

/// Acquisitions per second, and how even they were among the tasks.
async fn rush<L: Shared>(lock: L, tasks: usize, span: Duration) -> Outcome<(f64, f64)> {
    let stop = Arc::new(AtomicBool::new(false));
    let began_at = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let (lock, stop) = (lock.clone(), stop.clone());
        running.spawn(async move {
            let mut turns = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                L::give_back(lock.take().await?).await?;
                turns += 1;
            }
            Outcome::Ok(turns)
        });
    }
    tokio::time::sleep(span).await;
    stop.store(true, Ordering::Relaxed);
    let elapsed = began_at.elapsed();
    let mut counts = Vec::new();
    while let Some(turns) = running.join_next().await {
        counts.push(turns??);
    }
    let all: u64 = counts.iter().sum();
    Ok((
        all as f64 / elapsed.as_secs_f64(),
        fewest_to_most(counts.iter().map(|turns| *turns as f64)),
    ))
}

/// Row 4: 64 tasks that take the lock once each, for a millisecond: what a hand-over adds to the hold.
pub(crate) async fn hand_over(bench: &Bench) -> Outcome<Vec<Figure>> {
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..bench.times(8) {
        floors.push(turns(Arc::new(tokio::sync::Mutex::new(()))).await?);
        ours.push(turns(bench.client.mutex("turns")).await?);
    }
    let (floor, ours) = (median(&floors), median(&ours));
    Ok(vec![
        Figure::new(
            "64 tasks take one lock once each, for 1 ms: a hand-over above the hold (floor: tokio's mutex)",
            Unit::Seconds,
            ours.unwrap_or_default(),
        )
        .floor(floor.unwrap_or_default())
        .aim(Aim::Under(25e-6)),
    ])
}

/// How long the lock was in nobody's hands, per hand-over.
async fn turns<L: Shared>(lock: L) -> Outcome<f64> {
    let start = Arc::new(Barrier::new(TASKS));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (lock, start) = (lock.clone(), start.clone());
        tasks.spawn(async move {
            start.wait().await;
            let guard = lock.take().await?;
            let held_at = clock::now();
            clock::spin();
            let left_at = clock::now();
            L::give_back(guard).await?;
            Outcome::Ok((held_at, left_at))
        });
    }
    let mut holds = Vec::new();
    while let Some(hold) = tasks.join_next().await {
        holds.push(hold??);
    }
    holds.sort();
    let between = holds.windows(2).map(|pair| (pair[1].0 - pair[0].1).as_secs_f64());
    Ok(between.sum::<f64>() / (TASKS - 1) as f64)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

const TASKS: usize = 64;
const SPAN: Duration = Duration::from_millis(500);
