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
    /// The number of the mailbox's subscription when it was sent, if that still is the present one; or 0.
    pub epoch: u8,
    /// Who asks.
    pub asker: Asker,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asker {
    /// A caller, who was the first.
    Itself,
    /// A request of the machine: its waiter's arrival, and its number.
    Machine(u8, u8),
}

impl Asker {
    /// The number of the machine's request; 0 if it is none.
    pub fn number(self) -> u64 {
        match self {
            Asker::Itself => 0,
            Asker::Machine(_, number) => number.into(),
        }
    }
}

/// A grant by message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    /// The lease.
    pub id: Id,
    /// The time since the grant, by the server's wall clock.
    pub age: i8,
    /// The ticks since it was sent (only where they are bounded).
    pub late: i8,
    /// The client's ticks since it was received.
    pub kept: i8,
    /// The token, as the number of tokens given since.
    pub token: u8,
    /// The server has said since that the request waits (only where locks are unlocked by force).
    pub outdated: bool,
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
    /// To a release: whether others had the message on the lock's channel (only where it is heard).
    Released(Id, bool),
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
    Grant(Grant),
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

    /// The ask, if it is one.
    pub fn ask(&self) -> Option<Ask> {
        match *self {
            Request::Ask(ask) => Some(ask),
            _ => None,
        }
    }

    /// The same, to change it.
    pub fn ask_mut(&mut self) -> Option<&mut Ask> {
        match self {
            Request::Ask(ask) => Some(ask),
            _ => None,
        }
    }

    /// Whether it can take the lock or a place in the queue for this lease.
    pub fn creates(&self, id: Id) -> bool {
        matches!(self, Request::Ask(ask) if ask.id == id)
    }
}

impl Reply {
    /// The ask that it answers, if it was one.
    pub fn ask(&self) -> Option<Ask> {
        match *self {
            Reply::Granted { ask, .. } | Reply::Refused { ask, .. } => Some(ask),
            Reply::Renewed(..) | Reply::Gone(_) | Reply::Released(..) => None,
        }
    }

    /// The same, to change it.
    pub fn ask_mut(&mut self) -> Option<&mut Ask> {
        match self {
            Reply::Granted { ask, .. } | Reply::Refused { ask, .. } => Some(ask),
            Reply::Renewed(..) | Reply::Gone(_) | Reply::Released(..) => None,
        }
    }

    /// The lease that it is about.
    pub fn id(&self) -> Id {
        match *self {
            Reply::Granted { ask, .. } | Reply::Refused { ask, .. } => ask.id,
            Reply::Renewed(id, _) | Reply::Gone(id) | Reply::Released(id, _) => id,
        }
    }
}

impl Message {
    /// The lease that it is about.
    pub fn id(&self) -> Option<Id> {
        match *self {
            Message::Grant(Grant { id, .. }) | Message::Next(id, _) | Message::Free(id) => Some(id),
            _ => None,
        }
    }
}
