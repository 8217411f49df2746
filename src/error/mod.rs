//! The error type, with one variant for each way a caller can react.

mod blocked;
mod cause;
mod fault;
mod reason;
pub mod testing;

use std::sync::Arc;
use std::time::Duration;

pub use blocked::Blocked;
pub(crate) use cause::{Cause, State};
pub use fault::NodeFailure;
pub(crate) use fault::{Fault, KEY, Redirect};
pub use reason::{ClosedReason, LossReason};

use crate::clock::Clock;
use crate::key::{Holder, LockKind};
use crate::owner::Owner;
use crate::text::{Printable, rounded, shortened};
use crate::waiter::{self, Waiter};

/// An error of the library. There is one variant for each way a caller can react.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another holder kept the lock for the whole wait. Try again later, or tell the user who holds it.
    ///
    /// It is returned only if this client itself holds the lock, or if the servers answered that the lock is held or that others
    /// come first. If they did not answer, the error is [`Error::Unavailable`].
    #[error(
        "timed out after {:?} waiting for {lock:?}: {}{}",
        rounded(.waited),
        held_by(.holder, .owner, .remaining),
        waiter::Listed(.waiting)
    )]
    #[non_exhaustive]
    Timeout {
        /// The lock's name.
        lock: Arc<str>,
        /// The holder according to the last answer. If the lock was free at that moment, it is the first in the queue. It is
        /// `None` only of a [semaphore](crate::Semaphore) of which the server knows nobody who has the permits that are missing: it
        /// has none, for example, or others have them by an `RSemaphore` of Redisson.
        holder: Option<Holder>,
        /// The owner of the hold, if this client holds the lock.
        owner: Option<Owner>,
        /// The time until the lock expires unless it is renewed or released. It is `None` if the lock never expires
        /// (it was made by hand), or if no permit is known to be held, and zero if this client released it just before the wait
        /// ended.
        remaining: Option<Duration>,
        /// The time that the call waited.
        waited: Duration,
        /// The others that waited according to the last answer, in the order in which they get the lock. The request of this
        /// call is not among them; another task of this client that waits through a [`fair_mutex`](crate::Client::fair_mutex) may
        /// be. It is empty over several masters, which share no order, and if the holder is this client.
        waiting: Arc<[Waiter]>,
    },

    /// What was waited for did not come in time: a latch is shut, a signal was not given, a queue had no item, or an election still
    /// has the same leader. Wait again, or give up.
    ///
    /// It is returned only if the server answered. If it did not, the error is [`Error::Unavailable`].
    #[error("timed out after {:?} waiting for {kind} {name:?}: {state}", rounded(.waited))]
    #[non_exhaustive]
    StillWaiting {
        /// What it is: a latch, for example.
        kind: LockKind,
        /// Its name.
        name: Arc<str>,
        /// How it was according to the last answer.
        state: Arc<str>,
        /// The time that the call waited.
        waited: Duration,
    },

    /// The lock was lost while its guard existed: stop the work that it protects. It is also returned if
    /// what a call is about is gone, such as a latch.
    #[error("lost {lock:?}: {reason}")]
    #[non_exhaustive]
    Lost {
        /// The name of the lock, the semaphore, the queue or the latch.
        lock: Arc<str>,
        /// The reason for the loss.
        reason: LossReason,
    },

    /// The servers, or a majority of them, gave no answer in time that counts; in a grace or quarantine, none does. It is unknown
    /// whether another holder has the lock. An acquisition leaves nothing behind: the client releases a grant whose answer it did not
    /// see. Any other call that changes something, such as a push, may have been done nevertheless.
    #[error("no usable answer from the servers{}: {}", about(.lock), fault::listed(.failures))]
    #[non_exhaustive]
    Unavailable {
        /// The name of the lock, or of what else the call was about, if it was about one.
        lock: Option<Arc<str>>,
        /// The nodes that failed, each with its own cause.
        failures: Arc<[NodeFailure]>,
    },

    /// The name cannot be used. Choose another.
    #[error("invalid name {name:?}: {problem}")]
    #[non_exhaustive]
    InvalidName {
        /// The name, shortened.
        name: Arc<str>,
        /// The problem with it.
        problem: Arc<str>,
    },

    /// A setting of a client or of a handle cannot work. Change it. This is also the error if the list
    /// of several [masters](crate::ClientBuilder::nodes) differs from that of the other clients.
    #[error("invalid configuration: {problem}")]
    #[non_exhaustive]
    InvalidConfig {
        /// The setting, and the problem with it.
        problem: Arc<str>,
    },

    /// What was given to one call is out of range: a payload that is too long, for example. It was not done. Fix the call, or
    /// refuse the input.
    #[error("invalid argument: {problem}")]
    #[non_exhaustive]
    InvalidArgument {
        /// What was given, and the problem with it.
        problem: Arc<str>,
    },

    /// This kind does not work over several independent masters, which the client has. Use a client of one server, behind Sentinels
    /// or in a cluster.
    #[error(
        "a {kind} does not work over several independent masters, only on one server, behind Sentinels or in a cluster: {why}"
    )]
    #[non_exhaustive]
    SingleServerOnly {
        /// The kind of lock.
        kind: LockKind,
        /// The reason.
        why: Arc<str>,
    },

    /// The queue holds as many items as its handle allows. Push again later, or allow more.
    #[error("queue {queue:?} is full: it has {items} items, and {capacity} are allowed")]
    #[non_exhaustive]
    QueueFull {
        /// The queue's name.
        queue: Arc<str>,
        /// How many items there are that are neither done nor dead.
        items: u64,
        /// How many the handle allows; see [`Queue::with_capacity`](crate::Queue::with_capacity).
        capacity: u32,
    },

    /// A value cannot be written as the payload of an item, or a payload is no such value. The item of a delivery stays lent:
    /// [reject](crate::Delivery::reject) it, unless a newer version of the program may read it.
    #[error("queue {queue:?} has an item of another form: {problem}")]
    #[non_exhaustive]
    InvalidPayload {
        /// The queue's name.
        queue: Arc<str>,
        /// What is wrong, and where.
        problem: Arc<str>,
    },

    /// The key exists and is something else: no lock or semaphore at all, or one of another kind. Choose another name, or
    /// delete the key if nothing uses it.
    #[error(
        "key {lock:?} is something else, a value of another type or a lock of another kind: use another name, or delete \
         the key if nothing uses it"
    )]
    #[non_exhaustive]
    WrongType {
        /// The lock's name.
        lock: Arc<str>,
    },

    /// The server's user may not run a command, or may not use this key. Grant the right (`ACL SETUSER <user> +<command>`).
    #[error("the server denies {}{}: {}: {}", Printable(.what), for_lock(.lock), Printable(.message), remedy(.what))]
    #[non_exhaustive]
    Denied {
        /// The name of the lock, the semaphore or whatever else it is about, if it is about one.
        lock: Option<Arc<str>>,
        /// The command, key, channel or login that was denied.
        what: Arc<str>,
        /// The server's message.
        message: Arc<str>,
    },

    /// The client does not accept this call: it was drained or shut down, or its runtime has ended; or a blocking call was made in
    /// a fork of the process, or in the destructor of a thread-local. The [reason](ClosedReason) says which.
    #[error("{reason}")]
    #[non_exhaustive]
    Closed {
        /// What ended it.
        reason: ClosedReason,
    },

    /// A blocking call was made from async code, where it would block the executor. Use the async
    /// client, or `spawn_blocking`.
    #[error(
        "a blocking call was made from async code: use leasehold::Client instead, or spawn_blocking"
    )]
    #[non_exhaustive]
    InAsyncContext,

    /// The task waits for a lock that it holds itself. Name its owner: [`Mutex::owned_by`](crate::Mutex::owned_by)
    /// or [`Owner::scope`](crate::Owner::scope). Clients with [`SelfWait::Fail`](crate::SelfWait::Fail) return it. So does a
    /// [read-write lock](crate::RwLock) if its owner reads and waits to write: then release what is read first.
    #[error("{}", self_wait(lock, *reads))]
    #[non_exhaustive]
    SelfWait {
        /// The lock's name.
        lock: Arc<str>,
        /// The owner itself holds the lock for reading, and waits to write.
        reads: bool,
    },

    /// The wait would last forever: it is part of a circle of owners, each of which waits for a lock that the next
    /// one holds. Release what you hold, so that the others go on, and begin again. To prevent it, take locks in one order
    /// everywhere, or together with a [`MultiLock`](crate::MultiLock).
    ///
    /// Of the calls in a circle one fails: inside this process the last, at once; over several processes the one whose hold is
    /// the youngest, some seconds later. The others go on when it has released its lock.
    /// [`ClientBuilder::deadlocks`](crate::ClientBuilder::deadlocks) decides when it is returned.
    #[error("deadlock: {}: release {}, and begin again", blocked::Shown(.cycle), released(.cycle))]
    #[non_exhaustive]
    Deadlock {
        /// The name of the lock that the call waits for.
        lock: Arc<str>,
        /// The circle. The first part is the owner of this call; each waits for the lock of the next part, and the last for that
        /// of the first.
        cycle: Arc<[Blocked]>,
    },
}

fn released(cycle: &[Blocked]) -> String {
    cycle.first().map(|caller| format!("{:?}", caller.holds)).unwrap_or_default()
}

fn self_wait(lock: &str, reads: bool) -> String {
    match reads {
        true => format!(
            "lock {lock:?} is held for reading by the owner that waits to write: release it first, and see \
             WriteGuard::unchanged_since"
        ),
        false => format!(
            "lock {lock:?} was taken by the same task that waits for it: name the owner with owned_by or Owner::scope"
        ),
    }
}

impl Error {
    /// Returns true if the time was over first: another holder kept the lock for the whole wait, or what was waited for did not
    /// come. It is [`Error::Timeout`] or [`Error::StillWaiting`].
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::StillWaiting { .. })
    }

    /// Returns true if a lock that was held is no longer held: [`Error::Lost`].
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Returns true if the same call can succeed later, without a change of the program, its settings or the rights on
    /// the servers: [`Error::Timeout`], [`Error::StillWaiting`], [`Error::QueueFull`], and [`Error::Unavailable`] unless all
    /// servers are of the wrong kind: a port without TLS, for example, or one of a Sentinel.
    ///
    /// It is false for [`Error::Lost`]: before you repeat the call, decide what to do about the work that the lock
    /// protected.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::QueueFull { .. } => true,
            Self::Unavailable { failures, .. } => {
                failures.is_empty() || !failures.iter().all(NodeFailure::is_permanent)
            }
            _ => self.is_timeout(),
        }
    }

    /// Returns the holder that kept the lock if this is [`Error::Timeout`], and one is known.
    pub fn holder(&self) -> Option<&Holder> {
        match self {
            Self::Timeout { holder, .. } => holder.as_ref(),
            _ => None,
        }
    }

    /// The client was shut down, or else its runtime has ended.
    pub(crate) fn closed(clock: &Clock) -> Self {
        let reason = match clock.is_shut_down() {
            true => ClosedReason::Shutdown,
            false => ClosedReason::RuntimeEnded,
        };
        Self::Closed { reason }
    }

    pub(crate) fn config(problem: impl Into<Arc<str>>) -> Self {
        Self::InvalidConfig { problem: problem.into() }
    }

    pub(crate) fn argument(problem: impl Into<Arc<str>>) -> Self {
        Self::InvalidArgument { problem: problem.into() }
    }

    /// Returns the error for a value that was checked as that of a setting, and was given to a call.
    pub(crate) fn of_argument(self) -> Self {
        match self {
            Self::InvalidConfig { problem } => Self::InvalidArgument { problem },
            other => other,
        }
    }

    /// Fails if there is a problem with `name`.
    pub(crate) fn check_name(name: &str, problem: Option<&'static str>) -> Result<(), Self> {
        match problem {
            Some(problem) => {
                Err(Self::InvalidName { name: shortened(name).into(), problem: problem.into() })
            }
            None => Ok(()),
        }
    }

    pub(crate) fn lost(lock: &Arc<str>, reason: LossReason) -> Self {
        Self::Lost { lock: lock.clone(), reason }
    }

    /// Converts a node's fault into the error for a call about `lock`.
    pub(crate) fn from_fault(
        node: &Arc<str>,
        lock: Option<&Arc<str>>,
        fault: Fault,
        clock: &Clock,
    ) -> Self {
        let fault = match fault.plain() {
            // Whatever needed the right, the user needs it.
            denied @ Fault::Denied { .. } => denied.clone(),
            _ => fault,
        };
        match (fault, lock) {
            (Fault::Closed, _) => Self::closed(clock),
            (Fault::Denied { what, message }, lock) => {
                Self::Denied { lock: lock.cloned(), what, message }
            }
            (Fault::OtherMasters(problem), _) => Self::InvalidConfig { problem },
            (Fault::WrongType, Some(lock)) => Self::WrongType { lock: lock.clone() },
            (Fault::NoMajority { failures, .. }, lock) => {
                Self::Unavailable { lock: lock.cloned(), failures }
            }
            (fault, lock) => Self::Unavailable {
                lock: lock.cloned(),
                failures: [NodeFailure::new(node, fault)].into(),
            },
        }
    }
}

fn held_by(holder: &Option<Holder>, owner: &Option<Owner>, remaining: &Option<Duration>) -> String {
    let Some(holder) = holder else {
        let known = match remaining {
            Some(remaining) => format!(
                "it is not known who has the others; one ends in {:?} unless renewed",
                rounded(remaining)
            ),
            None => "none is known to be held".to_owned(),
        };
        return format!("too few permits are free, and {known}");
    };
    let owner = match owner {
        Some(owner) => format!(" (owner {owner} of this client)"),
        None => String::new(),
    };
    let still = match remaining {
        Some(Duration::ZERO) => return format!("last held by {holder}{owner}"),
        Some(remaining) => format!("; it expires in {:?} unless renewed", rounded(remaining)),
        None => "; it never expires".to_owned(),
    };
    format!("held by {holder}{owner}{still}")
}

/// What to do about a denial.
fn remedy(what: &str) -> &'static str {
    match what.starts_with(fault::LOGIN) {
        true => "check the user and the password",
        false => "grant that with ACL SETUSER",
    }
}

/// As `about`, behind what is denied.
fn for_lock(lock: &Option<Arc<str>>) -> String {
    lock.as_ref().map(|lock| format!(" for {lock:?}")).unwrap_or_default()
}

fn about(lock: &Option<Arc<str>>) -> String {
    match lock {
        Some(lock) => format!(" about {lock:?}"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests;
