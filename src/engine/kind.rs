//! All that differs from one kind of lock to another: what is asked of the servers, and how to read
//! their answers. The rest of the engine is the same for all kinds.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::key::{Holder, LeaseId};
use crate::owner::Owner;
use crate::script::{Call, Reply};
use crate::waiter::Waiter;

/// One lock of one kind.
pub(crate) trait Kind: Send + Sync + 'static {
    /// What the user calls it.
    fn name(&self) -> &Arc<str>;

    /// Returns how this client's acquisitions of the lock share a gate.
    fn sharing(&self) -> Sharing {
        Sharing::Alone
    }

    /// Where its releases are told.
    fn channel(&self) -> &Arc<str>;

    /// Takes the lock for the ticket's lease, with `block` tokens; or queues it, if it has an entry.
    fn acquire(&self, ticket: &Ticket, ttl: Duration, block: u64) -> Call;

    /// Writes the hold count, and lengthens the lease to `ttl` from now; zero leaves it as it is.
    fn renew(&self, id: &LeaseId, count: u32, ttl: Duration) -> Call;

    /// Puts the lease back where it is missing, with the same tokens, unless another holds the lock.
    fn reclaim(
        &self,
        ticket: &Ticket,
        count: u32,
        ttl: Duration,
        tokens: RangeInclusive<u64>,
    ) -> Call;

    /// Frees the lock, or has it end by itself after `keep` at most, if that is not zero; or leaves the queue.
    fn release(&self, ticket: &Ticket, keep: Duration) -> Call;

    /// Lifts the fencing counter to `end`, where the lease holds the lock.
    fn raise(&self, id: &LeaseId, end: u64) -> Call;

    fn read_acquire(&self, reply: &Reply) -> Option<Answer>;

    /// Whether the lease still holds the lock; also of a raise, and of a reclaim.
    fn read_renew(&self, reply: &Reply) -> Option<bool>;

    fn read_release(&self, reply: &Reply) -> Option<Released>;
}

/// How the acquisitions of one client share a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// They share one, because one of them at a time has the lock.
    Alone,
    /// Each has a gate of its own, so the servers alone decide who is next. An acquisition takes `weight` units of what
    /// there are several of, instead of tokens.
    Each { weight: u64 },
}

/// What the servers know a request by, from its first acquire to its release.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    pub(crate) id: LeaseId,
    /// Its entry in the server's queue, if it waits there when the lock is not free.
    pub(crate) entry: Option<Arc<str>>,
    /// The lock was granted to it by message, in its turn, and not by the answer to an acquire.
    pub(crate) by_message: bool,
}

/// A server's answer to an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Held, with the tokens up to this one.
    Granted {
        block_end: u64,
    },
    Refused(Refusal),
}

/// Another holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) holder: Holder,
    /// The holder's owner, where the holder is this client.
    pub(crate) owner: Option<Owner>,
    /// For how long still; `None`: without an end.
    pub(crate) remaining: Option<Duration>,
    /// How many listen on its channel.
    pub(crate) subscribers: u32,
    /// What a server with a queue says of it.
    pub(crate) queue: Option<Box<InQueue>>,
}

/// A server's queue at the time of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InQueue {
    /// How many are ahead of the one who asked. `None`: it did not queue.
    pub(crate) ahead: Option<u32>,
    /// The server's time, in microseconds.
    pub(crate) server_us: u64,
    /// The first of those who wait.
    pub(crate) waiting: Arc<[Waiter]>,
}

impl Refusal {
    pub(crate) fn of(holder: Holder, remaining: Option<Duration>) -> Self {
        Self { holder, owner: None, remaining, subscribers: 0, queue: None }
    }

    /// Returns true if the holder is not a client of this library.
    pub(crate) fn is_foreign(&self) -> bool {
        self.holder.client().is_none()
    }

    pub(crate) fn into_timeout(self, lock: &Arc<str>, waited: Duration) -> Error {
        Error::Timeout {
            lock: lock.clone(),
            holder: self.holder,
            owner: self.owner,
            remaining: self.remaining,
            waited,
            waiting: self.queue.map(|queue| queue.waiting).unwrap_or_default(),
        }
    }
}

/// A server's answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    /// The lease held the lock until then.
    pub(crate) held: bool,
    /// How many heard of it.
    pub(crate) receivers: u32,
    /// How many clients in the queue were gone, and were passed over.
    pub(crate) passed_over: u32,
}
