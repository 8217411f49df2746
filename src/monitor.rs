//! What a client tells the program as it happens, for metrics: see [`Monitor`].

use std::panic::Location;
use std::time::Duration;

use crate::error::{Error, LossReason};

/// Is told what a client does, as it happens; see [`ClientBuilder::monitor`](crate::ClientBuilder::monitor).
///
/// It is called by the task or thread in which the event happens, which goes on when it returns: it must not block. The client
/// holds no mutex meanwhile, so it may be asked, for its [`stats`](crate::Client::stats) for example. If it panics, the client logs
/// an error, once, and goes on; it is told of the next event as before.
///
/// Do not use a lock's name as the label of a metric: there may be any number of names. Use the part that says what kind of thing
/// it protects.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use leasehold::monitor::{Event, Monitor};
///
/// #[derive(Default)]
/// struct Losses(AtomicU64);
///
/// impl Monitor for Losses {
///     fn on(&self, event: &Event<'_>) {
///         if let Event::Lost { .. } = event {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// # fn set_up(losses: std::sync::Arc<Losses>) -> leasehold::ClientBuilder {
/// leasehold::Client::builder().nodes(["redis://127.0.0.1"]).monitor(losses)
/// # }
/// ```
pub trait Monitor: Send + Sync {
    /// Takes in one event.
    fn on(&self, event: &Event<'_>);
}

/// One thing that has happened to a lock of the client, of any kind. `lock` is its name.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the text of an event says what its fields are")]
pub enum Event<'a> {
    /// A call has to wait, since the lock is not free. Candidates of elections and workers at an empty queue wait, too.
    #[non_exhaustive]
    WaitBegan { lock: &'a str },
    /// Such a wait is over.
    #[non_exhaustive]
    WaitEnded { lock: &'a str },
    /// An acquisition is over, `took` after the call. Those of candidates of elections and of workers at a queue, which wait for
    /// as long as they like, are not told.
    #[non_exhaustive]
    Asked { lock: &'a str, outcome: Outcome, path: Path, took: Duration },
    /// An owner has the lock, and did not have it before.
    #[non_exhaustive]
    HoldBegan { lock: &'a str },
    /// The last guard of a hold has gone.
    #[non_exhaustive]
    HoldEnded { lock: &'a str, end: HoldEnd, held: Duration },
    /// A lock was lost, but not by a shutdown of this client. Its guard may live on: `HoldEnded` follows when it goes.
    #[non_exhaustive]
    Lost { lock: &'a str, reason: LossReason },
    /// A majority of the servers has renewed a lease.
    #[non_exhaustive]
    Renewed { lock: &'a str },
    /// A renewal had no answer that counts, and is repeated. For `remaining` the lock is still held.
    #[non_exhaustive]
    RenewalFailed { lock: &'a str, remaining: Duration },
    /// A wait goes on, as the line `still waiting` in the log says: after 1 s, 10 s and 60 s, and then every 60 s.
    #[non_exhaustive]
    SlowWait { lock: &'a str, asked_at: &'static Location<'static>, waited: Duration },
    /// A hold goes on, as the line `still held` in the log says, if
    /// [`warn_held_after`](crate::ClientBuilder::warn_held_after) is set.
    #[non_exhaustive]
    LongHold { lock: &'a str, taken_at: &'static Location<'static>, held: Duration },
}

/// What became of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The lock was taken.
    Held,
    /// Others had the lock, and the time was over: [`Error::Timeout`].
    TimedOut,
    /// The future was dropped.
    Cancelled,
    /// The servers could not be asked: [`Error::Unavailable`].
    Unavailable,
    /// Another error.
    Failed,
}

impl Outcome {
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::Timeout { .. } => Self::TimedOut,
            Error::Unavailable { .. } => Self::Unavailable,
            _ => Self::Failed,
        }
    }

    /// Returns its name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::TimedOut => "timeout",
            Self::Cancelled => "cancelled",
            Self::Unavailable => "unavailable",
            Self::Failed => "failed",
        }
    }
}

/// How an acquisition came to its lock, or to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Path {
    /// The lock was free, or the acquisition ended with an error other than a timeout.
    Free,
    /// Others, of this process or elsewhere, had the lock, so that it waited or gave up; or its future was dropped.
    Contended,
    /// Its owner had the lock already.
    Reentry,
}

impl Path {
    /// Returns its name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Contended => "contended",
            Self::Reentry => "reentry",
        }
    }
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldEnd {
    /// Its release was sent.
    Released,
    /// Its lease is used on by others of this process.
    HandedOff,
    /// It was lost before its last guard went.
    Lost,
}

impl HoldEnd {
    /// Returns its name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::HandedOff => "handed_off",
            Self::Lost => "lost",
        }
    }
}
