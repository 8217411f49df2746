//! An end for tests that hang, whatever they wait for: a call that does not return, a task, a thread.
//!
//! Nothing in a process can end a test that blocks its thread. So the whole run ends, and says which test it was.

use std::{
    process,
    sync::{
        Mutex, MutexGuard, Once, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A test that has a server.
#[derive(Debug)]
struct Running {
    number: u64,
    test: String,
    since: Instant,
}

/// Says that the test on this thread runs, until dropped.
#[derive(Debug)]
pub(super) struct Watched {
    number: u64,
}

impl Watched {
    pub(super) fn begin() -> Self {
        static WATCH: Once = Once::new();
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        WATCH.call_once(|| drop(thread::spawn(watch)));
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let test = thread::current().name().unwrap_or("a test").to_owned();
        running().push(Running { number, test, since: Instant::now() });
        Self { number }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        running().retain(|test| test.number != self.number);
    }
}

fn running() -> MutexGuard<'static, Vec<Running>> {
    static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch() {
    loop {
        thread::sleep(LIMIT / 100);
        if let Some(test) = overdue(&running(), Instant::now()) {
            eprintln!("{test} has not ended after {LIMIT:?}: it hangs, and the run ends here");
            process::exit(HUNG);
        }
    }
}

fn overdue(running: &[Running], now: Instant) -> Option<&str> {
    let mut tests = running.iter();
    Some(&tests.find(|test| now.duration_since(test.since) > LIMIT)?.test)
}

/// Far longer than any test takes, also on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(240);
/// As after a failed test.
const HUNG: i32 = 101;

#[test]
fn a_test_that_does_not_end_is_named() {
    let now = Instant::now();
    let since = |seconds| now.checked_sub(Duration::from_secs(seconds)).expect("a past");
    let test =
        |test: &str, seconds| Running { test: test.to_owned(), number: 0, since: since(seconds) };
    assert_eq!(overdue(&[test("quick", 1), test("slow", 200)], now), None);
    assert_eq!(overdue(&[test("quick", 1), test("hangs", 241)], now), Some("hangs"));
}
