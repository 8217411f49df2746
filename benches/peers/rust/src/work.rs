//! What a worker does in each row. Figures are numbers; times are in nanoseconds.

use std::time::Duration;

use leasehold_testkit::bench::clock::{self, Window};
use leasehold_testkit::bench::figures::median;
use redis::{AsyncConnectionConfig, Cmd};
use tokio::task::JoinSet;

use crate::Outcome;
use crate::locks::Lock;

/// How many pairs of lock and unlock there were, and how long the middle one took.
pub(crate) async fn pairs<L: Lock>(lock: &L, window: Window) -> Outcome<Vec<String>> {
    let mut times = Times::new(window);
    while times.go_on() {
        L::give_back(lock.take().await?).await?;
        times.note(1);
    }
    Ok(times.figures())
}

/// The same inside a hold of the same owner.
pub(crate) async fn nested(
    client: &leasehold::Client,
    name: &str,
    window: Window,
) -> Outcome<Vec<String>> {
    let lock = client.mutex(name).owned_by(&client.owner());
    let outer = lock.lock().await?;
    let mut times = Times::new(window);
    while times.go_on() {
        // So short that reading the clock each time would show.
        for _ in 0..BATCH {
            lock.lock().await?.unlock().await?;
        }
        times.note(BATCH);
    }
    outer.unlock().await?;
    Ok(times.figures())
}

/// The same for two round trips of a script that does nothing: no lock can do with less.
pub(crate) async fn floor(url: &str, window: Window) -> Outcome<Vec<String>> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let client = redis::Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    let load = redis::cmd("SCRIPT").arg("LOAD").arg("return 1").to_owned();
    let hash: String = load.query_async(&mut connection).await?;
    let call: Cmd = redis::cmd("EVALSHA").arg(hash).arg(0).to_owned();
    let mut times = Times::new(window);
    while times.go_on() {
        for _ in 0..2 {
            call.query_async::<i64>(&mut connection).await?;
        }
        times.note(1);
    }
    Ok(times.figures())
}

/// How often each task took its lock, one task for each of `locks`.
pub(crate) async fn rush<L: Lock>(locks: Vec<L>, window: Window) -> Outcome<Vec<String>> {
    let mut tasks = JoinSet::new();
    for lock in locks {
        tasks.spawn(async move {
            let mut turns = 0_u64;
            while clock::now() < window.until {
                let guard = lock.take().await?;
                turns += u64::from(window.contains(clock::now()));
                L::give_back(guard).await?;
            }
            Outcome::Ok(turns)
        });
    }
    let mut counts = Vec::new();
    while let Some(turns) = tasks.join_next().await {
        counts.push(turns??.to_string());
    }
    Ok(counts)
}

/// Lets tasks queue behind a hold, and take the lock once each for a millisecond: how often it was taken in
/// all, and for each time that the queue was drained how long the lock was in nobody's hands per turn.
pub(crate) async fn drain<L: Lock>(
    lock: &L,
    waiters: usize,
    window: Window,
) -> Outcome<Vec<String>> {
    let mut gaps = Vec::new();
    while gaps.is_empty() || clock::now() < window.until {
        let first = lock.take().await?;
        let mut tasks = JoinSet::new();
        for _ in 0..waiters {
            let lock = lock.clone();
            tasks.spawn(async move {
                let guard = lock.take().await?;
                let held_at = clock::now();
                clock::spin();
                let left_at = clock::now();
                L::give_back(guard).await?;
                Outcome::Ok((left_at, left_at - held_at))
            });
        }
        tokio::time::sleep(QUEUEING).await;
        let released_at = clock::now();
        L::give_back(first).await?;
        let (mut ended_at, mut held) = (released_at, Duration::ZERO);
        while let Some(turn) = tasks.join_next().await {
            let (left_at, hold) = turn??;
            ended_at = ended_at.max(left_at);
            held += hold;
        }
        let gap = (ended_at - released_at).saturating_sub(held);
        gaps.push(gap.as_nanos() / waiters as u128);
    }
    let taken = gaps.len() * (waiters + 1);
    Ok([taken as u128].into_iter().chain(gaps).map(|figure| figure.to_string()).collect())
}

/// From when until when each hold was, of those that began in the window.
pub(crate) async fn relay<L: Lock>(lock: &L, window: Window, holds: bool) -> Outcome<Vec<String>> {
    let mut turns = Vec::new();
    while clock::now() < window.until {
        let guard = lock.take().await?;
        let held_at = clock::now();
        if holds {
            clock::hold().await?;
        }
        let left_at = clock::now();
        L::give_back(guard).await?;
        if window.contains(held_at) {
            turns.push(held_at.as_nanos().to_string());
            turns.push(left_at.as_nanos().to_string());
        }
    }
    Ok(turns)
}

/// What takes how long in a window.
struct Times {
    window: Window,
    last_at: Duration,
    count: u32,
    nanos: Vec<f64>,
}

impl Times {
    fn new(window: Window) -> Self {
        Self { window, last_at: clock::now(), count: 0, nanos: Vec::new() }
    }

    fn go_on(&self) -> bool {
        self.last_at < self.window.until
    }

    /// Something was done `times` times since the last note.
    fn note(&mut self, times: u32) {
        let now = clock::now();
        if self.window.contains(self.last_at) {
            self.count += times;
            self.nanos.push((now - self.last_at).as_nanos() as f64 / f64::from(times));
        }
        self.last_at = now;
    }

    fn figures(&self) -> Vec<String> {
        let p50 = median(&self.nanos).unwrap_or(f64::NAN);
        vec![self.count.to_string(), p50.to_string()]
    }
}

const BATCH: u32 = 10;
/// Long enough for all waiters to have been refused, and to wait.
const QUEUEING: Duration = Duration::from_millis(100);
