//! What a worker does with the kinds of locks that several may hold at once. Times are in nanoseconds.

use std::time::Duration;

use leasehold::{RwLock, Semaphore};
use leasehold_testkit::bench::clock::{self, Window};
use tokio::task::JoinSet;

use crate::Outcome;

/// How often each task read, for two milliseconds each time.
pub(crate) async fn readers(lock: &RwLock, tasks: usize, window: Window) -> Outcome<Vec<String>> {
    let mut readers = JoinSet::new();
    for _ in 0..tasks {
        let lock = lock.clone();
        readers.spawn(async move {
            let mut reads = 0_u64;
            while clock::now() < window.until {
                let guard = lock.read().await?;
                reads += u64::from(window.contains(clock::now()));
                clock::hold_for(READ).await?;
                guard.unlock().await?;
            }
            Outcome::Ok(reads)
        });
    }
    let mut counts = Vec::new();
    while let Some(reads) = readers.join_next().await {
        counts.push(reads??.to_string());
    }
    Ok(counts)
}

/// When each write was asked for and when it began, of those that were waited for in the window. They last for a millisecond,
/// with a pause after each.
pub(crate) async fn writer(lock: &RwLock, window: Window) -> Outcome<Vec<String>> {
    let mut writes = Vec::new();
    while clock::now() < window.until {
        let asked_at = clock::now();
        let guard = lock.write().await?;
        let held_at = clock::now();
        clock::hold().await?;
        guard.unlock().await?;
        if held_at >= window.from {
            writes.push(asked_at.as_nanos().to_string());
            writes.push(held_at.as_nanos().to_string());
        }
        tokio::time::sleep(BETWEEN_WRITES).await;
    }
    Ok(writes)
}

/// From when until when a permit was held each time, of those that were taken in the window.
pub(crate) async fn permits(semaphore: &Semaphore, window: Window) -> Outcome<Vec<String>> {
    let mut turns = Vec::new();
    while clock::now() < window.until {
        let permit = semaphore.acquire().await?;
        let held_at = clock::now();
        clock::hold().await?;
        let left_at = clock::now();
        permit.release().await?;
        if window.contains(held_at) {
            turns.push(held_at.as_nanos().to_string());
            turns.push(left_at.as_nanos().to_string());
        }
    }
    Ok(turns)
}

const READ: Duration = Duration::from_millis(2);
const BETWEEN_WRITES: Duration = Duration::from_millis(50);
