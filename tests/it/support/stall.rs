//! How long this machine kept a thread waiting: what a time limit must allow on top of what it tests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Watches for stalls of the machine, from `watch()` until dropped.
///
/// A plain thread sleeps for 5 ms over and over; what a sleep took longer than that is a stall.
#[derive(Debug)]
pub(crate) struct Stalls {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    longest_us: AtomicU64,
    stopped: AtomicBool,
}

impl Stalls {
    /// Starts to watch.
    pub(crate) fn watch() -> Self {
        let shared = Arc::new(Shared::default());
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.tick()
        });
        Self { shared, thread: Some(thread) }
    }

    /// The longest stall so far.
    pub(crate) fn longest(&self) -> Duration {
        Duration::from_micros(self.shared.longest_us.load(Ordering::Relaxed))
    }

    /// Prints the longest stall so far, for the test called `name`.
    pub(crate) fn report(&self, name: &str) {
        println!("{name}: longest stall {:.1} ms", self.longest().as_secs_f64() * 1e3);
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does nothing that can panic, and ends within a tick.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn tick(&self) {
        while !self.stopped.load(Ordering::Relaxed) {
            let slept_at = Instant::now();
            thread::sleep(TICK);
            let stall = slept_at.elapsed().saturating_sub(TICK);
            let stall_us = u64::try_from(stall.as_micros()).unwrap_or(u64::MAX);
            self.longest_us.fetch_max(stall_us, Ordering::Relaxed);
        }
    }
}

/// A limit, widened by the longest stall seen so far.
pub(crate) fn within(limit: Duration, stalls: &Stalls) -> Duration {
    limit + stalls.longest()
}

const TICK: Duration = Duration::from_millis(5);

#[test]
fn a_limit_is_widened_by_the_longest_stall() {
    let stalls = Stalls::watch();
    // A sleep never ends early, so the first tick is told soon, however short its stall.
    let started_at = Instant::now();
    while stalls.longest().is_zero() {
        assert!(started_at.elapsed() < Duration::from_secs(10), "no tick was measured");
        thread::yield_now();
    }
    let longest = stalls.longest();
    assert!(within(Duration::from_millis(50), &stalls) >= Duration::from_millis(50) + longest);
}
