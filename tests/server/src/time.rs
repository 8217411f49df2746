//! The time of a server and of its clients in the process: tokio's, which a test may pause.

use std::time::{Duration, SystemTime};

use leasehold::seam::{TimeSource, Timestamp};
use tokio::runtime::Handle;
use tokio::time::Instant;

#[derive(Clone)]
pub(crate) struct Time {
    /// Each runtime can pause its own time, so this one is asked, whatever the thread. `None`: there is none, and time passes as
    /// usual.
    runtime: Option<Handle>,
    origin: Instant,
    began: Duration,
}

impl Time {
    /// The time of the runtime that runs here, if there is one.
    pub(crate) fn here() -> Self {
        let began = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self { runtime: Handle::try_current().ok(), origin: Instant::now(), began }
    }

    /// Since 1970 by the clock on the wall, as if that had stood still where the time was paused.
    fn since_1970(&self) -> Duration {
        let _runtime = self.runtime.as_ref().map(Handle::enter);
        self.began + self.origin.elapsed()
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.since_1970().as_micros() as u64
    }
}

impl TimeSource for Time {
    fn now(&self) -> Timestamp {
        Timestamp::from_origin(self.since_1970())
    }
}
