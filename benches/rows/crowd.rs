//! Row 23: a read-write lock that many clients read at once. They all ask on one connection, and nobody renews their leases.

use std::ops::Range;

use leasehold::RwLock;
use leasehold_testkit::bench::figures::Unit;
use leasehold_testkit::bench::server::SCRIPTS;

use crate::pairs::Reader;
use crate::table::{Aim, Figure};
use crate::{Bench, Outcome};

/// What one more reader costs the server, and a writer that is refused, where nobody else reads and beside many readers.
pub(crate) async fn beside(bench: &Bench, round: u32) -> Outcome<Vec<Figure>> {
    let name = format!("crowded:{round}");
    let lock = bench.client.rw_lock(name.as_str());
    let alone = pairs(bench, &lock).await?;
    let mut crowd = Reader::connect(bench.url(), &name).await?;
    come(&mut crowd, 0..1).await?;
    let refused_by_one = refused(bench, &lock).await?;
    let mut others = 1;
    let mut figures = Vec::new();
    for count in [100, 1_000, 5_000] {
        come(&mut crowd, others..count).await?;
        others = count;
        let pair = format!("a reader beside {count} others: the server's time per pair");
        figures.push(
            Figure::new(pair, Unit::Seconds, pairs(bench, &lock).await?)
                .floor(alone)
                .aim(Aim::RatioUnder(2.0)),
        );
        let try_write = format!("a writer refused by {count} readers: the server's time");
        figures.push(
            Figure::new(try_write, Unit::Seconds, refused(bench, &lock).await?)
                .floor(refused_by_one)
                .aim(Aim::RatioUnder(2.0)),
        );
    }
    lock.force_unlock().await?;
    Ok(figures)
}

async fn come(crowd: &mut Reader, others: Range<u32>) -> Outcome<()> {
    for other in others {
        crowd.acquire(&format!("other-{other}:f81d4fae-7dec-41d0-a765-{other:012x}")).await?;
    }
    Ok(())
}

/// The server's time for a reader that comes and goes.
async fn pairs(bench: &Bench, lock: &RwLock) -> Outcome<f64> {
    let before = bench.server.work().await?;
    for _ in 0..TIMES {
        lock.read().await?.unlock().await?;
    }
    Ok(bench.server.work().await?.since(&before).seconds(&SCRIPTS) / f64::from(TIMES))
}

/// The server's time for a writer that does not get the lock.
async fn refused(bench: &Bench, lock: &RwLock) -> Outcome<f64> {
    let before = bench.server.work().await?;
    for _ in 0..TIMES {
        if lock.try_write().await?.is_some() {
            return Err("a writer came in beside readers".into());
        }
    }
    Ok(bench.server.work().await?.since(&before).seconds(&SCRIPTS) / f64::from(TIMES))
}

const TIMES: u32 = 200;
