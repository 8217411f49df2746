//! Watches every test that has a server: how long it runs, and how long the machine kept it waiting.
//!
//! A test that hangs may block its thread, and nothing in a process can end it then. So the whole run ends, and names
//! the test.

use std::{
    io::{self, Write},
    process,
    sync::{
        Arc, Mutex, MutexGuard, Once, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Watches the test on this thread, until dropped.
///
/// One plain thread sleeps for 5 ms over and over; the time by which a sleep was longer is a stall.
#[derive(Debug)]
pub struct Watch {
    running: Arc<Running>,
}

#[derive(Debug)]
struct Running {
    test: String,
    since: Instant,
    longest_stall_us: AtomicU64,
}

impl Watch {
    /// Begins to watch the test on this thread.
    pub fn begin() -> Self {
        static THREAD: Once = Once::new();
        THREAD.call_once(|| drop(thread::spawn(watch)));
        let test = thread::current().name().unwrap_or("a test").to_owned();
        let running = Arc::new(Running::new(test, Instant::now()));
        all().push(running.clone());
        Self { running }
    }

    /// Lets everything in this process take so long.
    pub fn allow(limit: Duration) {
        LIMIT_S.store(limit.as_secs(), Ordering::Relaxed);
    }

    /// The name of the test.
    pub(crate) fn test(&self) -> &str {
        &self.running.test
    }

    /// The longest stall of the machine so far.
    pub fn longest_stall(&self) -> Duration {
        Duration::from_micros(self.running.longest_stall_us.load(Ordering::Relaxed))
    }

    /// How many threads share a processor now: how many times longer it takes to compute something than it would alone.
    ///
    /// A thread that slept gets a processor at once, also on a busy machine. So this computes for longer than that lasts.
    pub fn share() -> u32 {
        let (began_at, spent) = (Instant::now(), processor_time());
        while processor_time() - spent < COMPUTED {
            std::hint::black_box(0);
        }
        let times = began_at.elapsed().as_micros() / COMPUTED.as_micros();
        u32::try_from(times).unwrap_or(u32::MAX)
    }

    /// A time limit, widened by the longest stall so far.
    pub fn widened(&self, limit: Duration) -> Duration {
        limit + self.longest_stall()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        all().retain(|running| !Arc::ptr_eq(running, &self.running));
    }
}

impl Running {
    fn new(test: String, since: Instant) -> Self {
        Self { test, since, longest_stall_us: AtomicU64::new(0) }
    }
}

fn all() -> MutexGuard<'static, Vec<Arc<Running>>> {
    static ALL: Mutex<Vec<Arc<Running>>> = Mutex::new(Vec::new());
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch() {
    loop {
        let slept_at = Instant::now();
        thread::sleep(TICK);
        let now = Instant::now();
        let stall = now.duration_since(slept_at).saturating_sub(TICK);
        let stall_us = u64::try_from(stall.as_micros()).unwrap_or(u64::MAX);
        let all = all();
        for running in all.iter() {
            running.longest_stall_us.fetch_max(stall_us, Ordering::Relaxed);
        }
        let limit = Duration::from_secs(LIMIT_S.load(Ordering::Relaxed));
        if let Some(test) = overdue(&all, now, limit) {
            // Not by eprintln!, whose output belongs to the test that began this thread: nobody would see it.
            let text =
                format!("{test} has not ended after {limit:?}: it hangs, and the run ends here\n");
            drop(io::stderr().write_all(text.as_bytes()));
            process::exit(HUNG);
        }
    }
}

/// What this thread has had of a processor so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("it only grows")
}

fn overdue(all: &[Arc<Running>], now: Instant, limit: Duration) -> Option<&str> {
    let mut all = all.iter();
    Some(&all.find(|running| now.duration_since(running.since) > limit)?.test)
}

const TICK: Duration = Duration::from_millis(5);
const COMPUTED: Duration = Duration::from_millis(30);
/// In seconds: far longer than any test takes, also on a machine that is busy.
static LIMIT_S: AtomicU64 = AtomicU64::new(600);
/// As after a failed test.
const HUNG: i32 = 101;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_noticed() {
        let watch = Watch::begin();
        // A sleep never ends early, so the first tick counts soon, however short its stall.
        let started_at = Instant::now();
        while watch.longest_stall().is_zero() {
            assert!(started_at.elapsed() < Duration::from_secs(10), "no tick was measured");
            thread::yield_now();
        }
    }

    /// As the test of a process of its own, it does not end.
    #[test]
    fn a_test_that_does_not_end_ends_the_run_which_says_so() {
        const HANGS: &str = "LEASEHOLD_TEST_HANGS";
        if std::env::var_os(HANGS).is_some() {
            Watch::allow(Duration::from_secs(1));
            let _watch = Watch::begin();
            thread::sleep(Duration::from_secs(60));
            return;
        }
        let me = std::env::current_exe().expect("this file");
        let test = "watch::tests::a_test_that_does_not_end_ends_the_run_which_says_so";
        let mut run = process::Command::new(me);
        let output = run.args(["--exact", test]).env(HANGS, "").output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(HUNG), "{said}");
        assert!(said.contains(test) && said.contains("has not ended after 1s"), "{said:?}");
    }

    #[test]
    fn a_test_that_does_not_end_is_named() {
        let (now, limit) = (Instant::now(), Duration::from_secs(240));
        let running = |test: &str, seconds| {
            let since = now.checked_sub(Duration::from_secs(seconds)).expect("a past");
            Arc::new(Running::new(test.to_owned(), since))
        };
        assert_eq!(overdue(&[running("quick", 1), running("slow", 200)], now, limit), None);
        let found = [running("quick", 1), running("hangs", 241)];
        assert_eq!(overdue(&found, now, limit), Some("hangs"));
    }
}
