//! An unlock that lets the other tasks of its process go first: see `unsent.rs`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Gate;
use super::hold::{Answer, PendingRelease};
use crate::error::Fault;

/// An unlock whose release is not sent yet. Dropping it sends that.
pub(crate) struct Parting {
    gate: Arc<Gate>,
    number: u64,
    over: bool,
}

/// What has become of a release that was not sent.
pub(super) enum Fate {
    /// Somebody else of this process has the lease.
    TakenBack,
    /// It was sent just now.
    Sent(PendingRelease),
    /// Somebody else had it sent.
    Told(oneshot::Receiver<Answer>),
}

impl Parting {
    pub(super) fn new(gate: Arc<Gate>, number: u64) -> Self {
        Self { gate, number, over: false }
    }

    /// Lets the other tasks go first, and then sends the release. Returns its answer, or `None` if somebody else of this
    /// process has the lease by now.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the release goes on in the background.
    pub(crate) async fn settle(mut self) -> Option<Answer> {
        let until = self.gate.engine.clock.now().plus(LINGER);
        for _ in 0..MOST_TURNS {
            tokio::task::yield_now().await;
            if !self.gate.is_unsent(self.number) || until <= self.gate.engine.clock.now() {
                break;
            }
        }
        match self.fate() {
            Fate::TakenBack => None,
            Fate::Sent(release) => Some(Box::pin(self.gate.finish_release(release)).await),
            // Without an answer its task is gone, and the runtime with it.
            Fate::Told(told) => Some(told.await.unwrap_or(Err(Fault::Closed))),
        }
    }

    fn fate(&mut self) -> Fate {
        self.over = true;
        self.gate.send_unless_taken(self.number)
    }
}

impl Drop for Parting {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if let Fate::Sent(release) = self.fate() {
            self.gate.finish_in_background(release);
        }
    }
}

/// For how long at most a release is put off: a fraction of a round trip. A turn of the others may take longer.
const LINGER: Duration = Duration::from_micros(20);
/// How many turns the others have at most. An idle runtime needs about a microsecond for one.
const MOST_TURNS: u32 = 16;
