//! One clock for all processes of a run. Java's `System.nanoTime()` reads the same one on Linux.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since an origin that all processes of this machine share.
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Waits until the clock shows `at`, rounded up to the timer's next millisecond.
pub async fn wait_until(at: Duration) {
    tokio::time::sleep(at.saturating_sub(now())).await;
}

/// Holds a lock for about a millisecond, on a thread: timers of async code only know whole ones. How long
/// it was in truth is for the caller to measure.
pub async fn hold() -> super::Outcome<()> {
    hold_for(HOLD).await
}

/// The same for about so long.
pub async fn hold_for(span: Duration) -> super::Outcome<()> {
    Ok(tokio::task::spawn_blocking(move || std::thread::sleep(span)).await?)
}

/// Holds a lock for a millisecond without leaving the processor.
pub fn spin() {
    let until = now() + HOLD;
    while now() < until {
        std::hint::spin_loop();
    }
}

const HOLD: Duration = Duration::from_millis(1);

/// From when until when something is measured.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Its begin.
    pub from: Duration,
    /// Its end.
    pub until: Duration,
}

impl Window {
    /// A window of `span` that begins when all processes run at full speed.
    pub fn soon(span: Duration) -> Self {
        let from = now() + WARM_UP;
        Self { from, until: from + span }
    }

    /// Whether this moment lies in it.
    pub fn contains(self, at: Duration) -> bool {
        (self.from..self.until).contains(&at)
    }

    /// How long it is.
    pub fn seconds(self) -> f64 {
        (self.until - self.from).as_secs_f64()
    }
}

const WARM_UP: Duration = Duration::from_millis(200);
