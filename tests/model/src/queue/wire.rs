//! What is on its way between a process and the server.

use super::state::{Id, Lock};

/// Commands. Ages are in ticks of the client since it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Request {
    /// `lock_acquire`.
    Ask(Ask),
    /// `lock_release`, and whether the lease came by a grant.
    Release(Id, bool),
    /// `lock_renew`.
    Renew(Id, i8),
}

/// `lock_acquire`, and what its answer tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ask {
    /// The lease.
    pub id: Id,
    /// Whether it is put into the queue.
    pub enqueue: bool,
    /// The client's ticks since it was sent.
    pub age: i8,
    /// Whether the present subscription of the mailbox was confirmed when it was sent.
    pub fresh: bool,
}

/// Answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reply {
    /// To an ask: held.
    Granted {
        /// The ask.
        ask: Ask,
        /// The client's ticks from the sending to the server's time in the answer.
        offset: i8,
        /// The token, as the number of tokens given since.
        token: u8,
    },
    /// To an ask: another holds it.
    Refused {
        /// The ask.
        ask: Ask,
        /// As in a grant.
        offset: i8,
        /// Whether its entry is the first in the queue.
        first: bool,
        /// Who holds the lock.
        lock: Option<Lock>,
    },
    /// To a renewal: the lease is there, and the age of the request.
    Renewed(Id, i8),
    /// To a renewal: it is not.
    Gone(Id),
}

/// Subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HubRequest {
    /// Subscribe to the mailbox.
    Mailbox,
    /// Subscribe to the lock's channel.
    Channel,
    /// Unsubscribe from it.
    NoChannel,
}

/// Messages on the connection for subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// This lease holds the lock.
    Grant {
        /// The lease.
        id: Id,
        /// The time since the grant, by the server's wall clock.
        age: i8,
        /// The ticks since it was sent (only where they are bounded).
        late: i8,
        /// The token, as the number of tokens given since.
        token: u8,
    },
    /// This entry is the first; who holds the lock.
    Next(Id, Lock),
    /// This entry is the first; the lock is free.
    Free(Id),
    /// `0` in the lock's channel.
    Released,
    /// The mailbox is subscribed.
    MailboxOn,
    /// The lock's channel is subscribed.
    ChannelOn,
}

impl Request {
    /// The lease that it is about.
    pub fn id(&self) -> Id {
        match *self {
            Request::Ask(Ask { id, .. }) | Request::Release(id, _) | Request::Renew(id, _) => id,
        }
    }

    /// Whether it can take the lock or a place in the queue for this lease.
    pub fn creates(&self, id: Id) -> bool {
        matches!(self, Request::Ask(ask) if ask.id == id)
    }
}

impl Reply {
    /// The lease that it is about.
    pub fn id(&self) -> Id {
        match *self {
            Reply::Granted { ask, .. } | Reply::Refused { ask, .. } => ask.id,
            Reply::Renewed(id, _) | Reply::Gone(id) => id,
        }
    }
}

impl Message {
    /// The lease that it is about.
    pub fn id(&self) -> Option<Id> {
        match *self {
            Message::Grant { id, .. } | Message::Next(id, _) | Message::Free(id) => Some(id),
            _ => None,
        }
    }
}
