//! Why a call comes to nothing, and why a lock is lost.

use std::fmt;

/// What ended a client: the reason of [`Error::Closed`](super::Error::Closed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ClosedReason {
    /// [`Client::drain`](crate::Client::drain) was called: those who hold locks finish, and nobody new gets one.
    Drained,
    /// [`Client::shutdown`](crate::Client::shutdown) was called.
    Shutdown,
    /// The runtime in which the client was connected has ended. This happens to a client in a `static` that is used by
    /// several `#[tokio::test]` functions, since each of them has a runtime of its own.
    RuntimeEnded,
    /// The calling thread is being torn down: a blocking call in the destructor of a thread-local cannot wait.
    ThreadEnding,
    /// The process is a fork of the client's, which has the client's memory and not its threads.
    Forked,
}

impl fmt::Display for ClosedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Drained => "the client was drained: it takes no new locks",
            Self::Shutdown => "the client was shut down",
            Self::RuntimeEnded => {
                "the runtime in which the client was connected has ended: connect a client in each runtime, as in each \
                 #[tokio::test]"
            }
            Self::ThreadEnding => "a blocking call was made while its thread ends, where it cannot wait",
            Self::Forked => "this process is a fork of the client's: connect a client in it",
        })
    }
}

/// The reason why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LossReason {
    /// No renewal was confirmed in time: the servers were unreachable, or this process was paused.
    NotRenewed,
    /// The servers no longer hold the lease: it was force-unlocked, evicted or flushed.
    Gone,
    /// The server that answers now does not have the lease: it restarted, or another one took its place, and the last
    /// writes were lost. The lease could not be put back, because another client holds the lock by now, or because
    /// [`restart_quarantine`](crate::ClientBuilder::restart_quarantine) is zero or over.
    Failover,
    /// A fixed lease ended, or the hold reached the limit set by `with_max_hold`.
    Ended,
    /// The client was shut down, or its runtime has ended.
    Shutdown,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRenewed => "no renewal was confirmed in time",
            Self::Gone => "the server no longer holds it",
            Self::Failover => "another server took over, or it restarted, and does not hold it",
            Self::Ended => "its lease ended",
            Self::Shutdown => "the client was shut down",
        })
    }
}
