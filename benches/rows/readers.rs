//! Rows 20 and 21: a read-write lock that nobody writes.

use std::sync::Arc;
use std::time::Instant;

use leasehold::RwLock;
use leasehold_testkit::bench::figures::{Unit, median};
use leasehold_testkit::bench::server::SCRIPTS;

use crate::free::each;
use crate::pairs::Pair;
use crate::table::{Aim, Figure};
use crate::{Bench, Outcome};

/// Row 20: a reader comes and goes where nobody else reads.
pub(crate) async fn alone(bench: &Bench) -> Outcome<Vec<Figure>> {
    let mut by_hand = Pair::of_a_reader(bench.url(), "read:by-hand").await?;
    let lock = bench.client.rw_lock("read");
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    let (mut floor_work, mut our_work) = (0.0, 0.0);
    for _ in 0..bench.times(20) {
        let before = bench.server.work().await?;
        let began_at = Instant::now();
        for _ in 0..PAIRS {
            by_hand.acquire().await?;
            by_hand.release().await?;
        }
        floors.push(each(began_at, PAIRS));
        let between = bench.server.work().await?;
        ours.push(reads(&lock, PAIRS).await?);
        let after = bench.server.work().await?;
        our_work += after.since(&between).seconds(&SCRIPTS);
        floor_work += between.since(&before).seconds(&SCRIPTS);
    }
    let all = f64::from(bench.times(20) * PAIRS);
    let (floor, ours) = (median(&floors), median(&ours));
    Ok(vec![
        Figure::new("read lock + unlock of a free lock", Unit::Seconds, ours.unwrap_or_default())
            .floor(floor.unwrap_or_default()),
        Figure::new("the server's time per pair", Unit::Seconds, our_work / all)
            .floor(floor_work / all),
    ])
}

/// Row 21: a reader comes and goes where another one of the process reads, beside tokio's own lock.
pub(crate) async fn join(bench: &Bench) -> Outcome<Vec<Figure>> {
    let lock = bench.client.rw_lock("joined");
    let other = lock.read().await?;
    let local = Arc::new(tokio::sync::RwLock::new(()));
    let local_other = local.clone().read_owned().await;
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..bench.times(20) {
        let began_at = Instant::now();
        for _ in 0..JOINED {
            drop(local.clone().read_owned().await);
        }
        floors.push(each(began_at, JOINED));
        ours.push(reads(&lock, JOINED).await?);
    }
    drop(local_other);
    other.unlock().await?;
    let (floor, ours) = (median(&floors), median(&ours));
    Ok(vec![
        Figure::new(
            "read lock + unlock beside another reader of the process (floor: tokio's RwLock)",
            Unit::Seconds,
            ours.unwrap_or_default(),
        )
        .floor(floor.unwrap_or_default())
        .aim(Aim::Under(2e-6)),
    ])
}

/// How long a read takes.
async fn reads(lock: &RwLock, times: u32) -> Outcome<f64> {
    let began_at = Instant::now();
    for _ in 0..times {
        lock.read().await?.unlock().await?;
    }
    Ok(each(began_at, times))
}

const PAIRS: u32 = 200;
/// So many that what the process asks the server every 20 ms has its part in each figure.
const JOINED: u32 = 30_000;
