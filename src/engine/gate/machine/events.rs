//! What a machine is told, and what it says is to be done.

use std::time::Duration;

use super::{Epoch, HeldBy, LeaseTerms, Seeker};
use crate::clock::Timestamp;

/// What a request asks the servers for: which side of the lock, and for how long.
pub type Form = (u32, LeaseTerms);

/// Who may ask now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Nothing is asked.
    Nobody,
    /// The next ordinary waiter may get the lock without the servers.
    Fair,
    /// Whoever is due.
    All,
}

/// A letter: what the server writes about a request.
pub trait Mail {
    /// What a grant by message says.
    type Grant;
    /// The lock's holder.
    type Holder;

    /// Returns what it says.
    fn read(self) -> News<Self::Grant, Self::Holder>;
}

/// What a letter says.
pub enum News<G, H> {
    /// The request holds the lock.
    Granted(G),
    /// It is the first in the queue, and somebody holds the lock.
    Next {
        /// What of the holder matters to the machine.
        held_by: HeldBy,
        /// The holder.
        holder: H,
    },
    /// It is the first, and the lock is free for a moment.
    Free,
    /// See [`Machine::subscribed`](super::Machine::subscribed).
    Subscribed,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub enum Action<L: Mail> {
    /// A request that nobody wants leaves the queue.
    Drop {
        /// Its number.
        number: u64,
    },
    /// Somebody is granted the lock by message: [`taken_up`](super::Machine::taken_up) or [`confirm`](super::Machine::confirm) follows.
    TakeUp {
        /// For whom the request asks.
        seeker: Seeker,
        /// Its number.
        number: u64,
        /// What the message says.
        grant: L::Grant,
    },
    /// The lock has another holder.
    Succeeded {
        /// The holder.
        by: L::Holder,
    },
}

/// What came of an ask.
pub enum Answer {
    /// The lock is held.
    Granted,
    /// Another holds it.
    Refused {
        /// How many are ahead of it; `None`: it is not queued.
        ahead: Option<u32>,
        /// The holder.
        held_by: HeldBy,
        /// The mailbox's subscription when it was sent.
        asked_in: Option<Epoch>,
    },
    /// There was none that says whether it is granted.
    Failed {
        /// For how long nothing is asked.
        pause: Duration,
    },
}

/// What the times of an event are computed from.
#[derive(Clone, Copy)]
pub struct Now {
    /// When it happens.
    pub at: Timestamp,
    /// A random time after which one who hears nothing asks.
    pub poll: Duration,
    /// For how long a lock stays free for those who are in no queue.
    pub moment: Duration,
    /// The mailbox's subscription.
    pub epoch: Option<Epoch>,
}
