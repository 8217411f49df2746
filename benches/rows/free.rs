//! Rows 1, 2, 7 and 9: locks that nobody else wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Mutex, blocking};
use leasehold_testkit::bench::by_hand::{self, ByHand, Keys};
use leasehold_testkit::bench::figures::{Unit, median};
use leasehold_testkit::bench::server::SCRIPTS;
use tokio::task::JoinSet;

use crate::table::{Aim, Figure};
use crate::{Bench, Outcome};

/// Row 1: lock and unlock of a free lock, one after the other.
pub(crate) async fn pair(bench: &Bench) -> Outcome<Vec<Figure>> {
    let name = "free";
    let by_hand = ByHand::connect(bench.url()).await?;
    let keys = Keys::of(name);
    let lock = bench.client.mutex(name);
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    let (mut floor_work, mut our_work) = (0.0, 0.0);
    for _ in 0..bench.times(20) {
        let before = bench.server.work().await?;
        let began_at = Instant::now();
        for _ in 0..PAIRS {
            by_hand.pair(&keys).await?;
        }
        floors.push(each(began_at, PAIRS));
        let between = bench.server.work().await?;
        ours.push(pairs(&lock, PAIRS).await?);
        let after = bench.server.work().await?;
        our_work += after.since(&between).seconds(&SCRIPTS);
        floor_work += between.since(&before).seconds(&SCRIPTS);
    }
    let all = f64::from(bench.times(20) * PAIRS);
    let (floor, ours) = (median(&floors), median(&ours));
    Ok(vec![
        Figure::new("lock + unlock of a free lock", Unit::Seconds, ours.unwrap_or_default())
            .floor(floor.unwrap_or_default())
            .aim(Aim::RatioUnder(1.08)),
        Figure::new("the server's time per pair", Unit::Seconds, our_work / all)
            .floor(floor_work / all),
    ])
}

/// Row 2: lock and unlock of a lock that its owner holds already, beside tokio's own mutex.
pub(crate) async fn nested(bench: &Bench) -> Outcome<Vec<Figure>> {
    let me = bench.client.owner();
    let lock = bench.client.mutex("nested").owned_by(&me);
    let outer = lock.lock().await?;
    let local = Arc::new(tokio::sync::Mutex::new(()));
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..bench.times(20) {
        let began_at = Instant::now();
        for _ in 0..NESTED {
            drop(local.clone().lock_owned().await);
        }
        floors.push(each(began_at, NESTED));
        ours.push(pairs(&lock, NESTED).await?);
    }
    outer.unlock().await?;
    let (floor, ours) = (median(&floors), median(&ours));
    Ok(vec![
        Figure::new(
            "nested lock + unlock (floor: a free tokio mutex)",
            Unit::Seconds,
            ours.unwrap_or_default(),
        )
        .floor(floor.unwrap_or_default())
        .aim(Aim::Under(1e-6)),
    ])
}

/// Row 7: many tasks, each with a lock of its own.
pub(crate) async fn many(bench: &Bench) -> Outcome<Vec<Figure>> {
    let by_hand = ByHand::connect(bench.url()).await?;
    let (mut floor, mut ours) = (Tally::default(), Tally::default());
    for _ in 0..bench.times(4) {
        floor
            .run(bench, |name, stop| by_hand_until(by_hand.clone(), Keys::of(&name), stop))
            .await?;
        ours.run(bench, |name, stop| ours_until(bench.client.mutex(name), stop)).await?;
    }
    Ok(vec![
        Figure::new("64 tasks, each its own lock: pairs", Unit::PerSecond, ours.rate())
            .floor(floor.rate())
            .aim(Aim::RatioOver(0.92)),
        Figure::new("the server's time per pair", Unit::Seconds, ours.server_seconds())
            .floor(floor.server_seconds()),
    ])
}

/// Row 9: row 1 on a thread, beside a plain connection that waits on the same thread.
pub(crate) async fn on_a_thread(bench: &Bench) -> Outcome<Vec<Figure>> {
    let (url, times) = (bench.url().to_owned(), bench.times(20));
    let by_hand = ByHand::connect(&url).await?;
    let measured = tokio::task::spawn_blocking(move || -> Outcome<_> {
        let name = "free-blocking";
        let keys = Keys::of(name);
        let mut connection = by_hand::open(&url)?.get_connection()?;
        let client = blocking::Client::connect(&url)?;
        let lock = client.mutex(name);
        let (mut floors, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..times {
            let began_at = Instant::now();
            for _ in 0..PAIRS {
                by_hand.blocking_pair(&mut connection, &keys)?;
            }
            floors.push(each(began_at, PAIRS));
            let began_at = Instant::now();
            for _ in 0..PAIRS {
                lock.lock()?.unlock()?;
            }
            ours.push(each(began_at, PAIRS));
        }
        client.shutdown()?;
        Ok((median(&floors), median(&ours)))
    });
    let (floor, ours) = measured.await??;
    Ok(vec![
        Figure::new(
            "lock + unlock of a free lock, blocking",
            Unit::Seconds,
            ours.unwrap_or_default(),
        )
        .floor(floor.unwrap_or_default())
        .aim(Aim::RatioUnder(1.35)),
    ])
}

#[derive(Default)]
struct Tally {
    pairs: u64,
    seconds: f64,
    /// For how long the server ran scripts.
    server_seconds: f64,
}

impl Tally {
    /// Runs 64 tasks, each with its own lock, for a while.
    async fn run<F>(
        &mut self,
        bench: &Bench,
        task: impl Fn(String, Arc<AtomicBool>) -> F,
    ) -> Outcome<()>
    where
        F: Future<Output = Outcome<u64>> + Send + 'static,
    {
        let stop = Arc::new(AtomicBool::new(false));
        let before = bench.server.work().await?;
        let began_at = Instant::now();
        let mut tasks: JoinSet<_> =
            (0..TASKS).map(|number| task(format!("own:{number}"), stop.clone())).collect();
        tokio::time::sleep(bench.span(SLICE)).await;
        stop.store(true, Ordering::Relaxed);
        while let Some(pairs) = tasks.join_next().await {
            self.pairs += pairs??;
        }
        self.seconds += began_at.elapsed().as_secs_f64();
        self.server_seconds += bench.server.work().await?.since(&before).seconds(&SCRIPTS);
        Ok(())
    }

    fn rate(&self) -> f64 {
        self.pairs as f64 / self.seconds
    }

    fn server_seconds(&self) -> f64 {
        self.server_seconds / self.pairs as f64
    }
}

async fn by_hand_until(by_hand: ByHand, keys: Keys, stop: Arc<AtomicBool>) -> Outcome<u64> {
    let mut pairs = 0;
    while !stop.load(Ordering::Relaxed) {
        by_hand.pair(&keys).await?;
        pairs += 1;
    }
    Ok(pairs)
}

async fn ours_until(lock: Mutex, stop: Arc<AtomicBool>) -> Outcome<u64> {
    let mut pairs = 0;
    while !stop.load(Ordering::Relaxed) {
        lock.lock().await?.unlock().await?;
        pairs += 1;
    }
    Ok(pairs)
}

/// How long a pair takes.
async fn pairs(lock: &Mutex, pairs: u32) -> Outcome<f64> {
    let began_at = Instant::now();
    for _ in 0..pairs {
        lock.lock().await?.unlock().await?;
    }
    Ok(each(began_at, pairs))
}

/// How long one of so many took, in seconds.
pub(crate) fn each(began_at: Instant, times: u32) -> f64 {
    began_at.elapsed().as_secs_f64() / f64::from(times)
}

const PAIRS: u32 = 300;
const NESTED: u32 = 10_000;
const TASKS: u32 = 64;
const SLICE: Duration = Duration::from_millis(250);
