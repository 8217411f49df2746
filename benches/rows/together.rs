//! Rows 17 and 18: several locks at once.

use std::time::{Duration, Instant};

use leasehold::Client;
use leasehold_testkit::bench::by_hand::{ByHand, Keys};
use leasehold_testkit::bench::clock::{self, Window};
use leasehold_testkit::bench::figures::{Unit, fewest_to_most, median};

use crate::table::{Aim, Figure};
use crate::worker::{self, Worker};
use crate::{Bench, Outcome};

pub(crate) const TOGETHER: &str = "together";

/// Row 17: three free locks, taken and given back together. The floor does the same for three keys at once.
pub(crate) async fn free(bench: &Bench) -> Outcome<Vec<Figure>> {
    let names = ["together:a", "together:b", "together:c"];
    let by_hand = ByHand::connect(bench.url()).await?;
    let keys = names.map(Keys::of);
    let locks = bench.client.multi_lock(names);
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..bench.times(20) {
        let began_at = Instant::now();
        for _ in 0..PAIRS {
            let [a, b, c] = &keys;
            tokio::try_join!(by_hand.pair(a), by_hand.pair(b), by_hand.pair(c))?;
        }
        floors.push(began_at.elapsed().as_secs_f64() / f64::from(PAIRS));
        let began_at = Instant::now();
        for _ in 0..PAIRS {
            locks.lock().await?.unlock().await?;
        }
        ours.push(began_at.elapsed().as_secs_f64() / f64::from(PAIRS));
    }
    let (floor, ours) = (median(&floors), median(&ours));
    Ok(vec![
        Figure::new(
            "lock + unlock of three free locks together",
            Unit::Seconds,
            ours.unwrap_or_default(),
        )
        .floor(floor.unwrap_or_default())
        .aim(Aim::RatioUnder(1.25)),
    ])
}

/// Row 18: 16 processes that each take 3 of 8 locks, in any order, and hold them for a millisecond.
pub(crate) async fn contend(bench: &Bench, round: u32) -> Outcome<Vec<Figure>> {
    let mut workers = Vec::new();
    for process in 0..PROCESSES {
        let (round, process) = (round.to_string(), process.to_string());
        workers.push(Worker::start(&[TOGETHER, bench.url(), &round, &process]).await?);
    }
    let window = Window::soon(bench.span(SPAN));
    for worker in &mut workers {
        worker.go(window).await?;
    }
    let mut turns = Vec::new();
    for worker in &mut workers {
        turns.extend(worker.report::<u64>(window).await?);
    }
    let all = turns.iter().sum::<u64>() as f64;
    Ok(vec![
        Figure::new(
            "16 processes, each 3 of 8 locks together, held for 1 ms",
            Unit::PerSecond,
            all / window.seconds(),
        ),
        Figure::new(
            "fewest / most per process",
            Unit::Number,
            fewest_to_most(turns.iter().map(|turns| *turns as f64)),
        ),
    ])
}

/// One of the processes.
pub(crate) async fn contender(url: &str, round: &str, process: u64) -> Outcome<()> {
    let client = Client::connect(url).await?;
    let window = worker::ready().await?;
    let (mut turns, mut random) = (0_u64, process + 1);
    loop {
        let mut left: Vec<usize> = (0..NAMES).collect();
        let names = [(); WANTED].map(|()| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let name = left.remove((random >> 33) as usize % left.len());
            format!("together:{round}:{name}")
        });
        let guard = client.multi_lock(names).lock().await?;
        tokio::time::sleep(HELD).await;
        let now = clock::now();
        guard.unlock().await?;
        turns += u64::from(window.contains(now));
        if now >= window.until {
            break;
        }
    }
    worker::report([turns]);
    client.shutdown().await;
    Ok(())
}

const PAIRS: u32 = 100;
const PROCESSES: u64 = 16;
const NAMES: usize = 8;
const WANTED: usize = 3;
const HELD: Duration = Duration::from_millis(1);
const SPAN: Duration = Duration::from_secs(2);
