//! What the servers gave.

use std::time::Duration;

use super::Foothold;
use crate::clock::Timestamp;
use crate::engine::kind::Ticket;
use crate::engine::round::PerNode;

/// A lease as the servers gave it. Whoever takes it must see to its release.
pub(crate) struct Grant {
    pub(crate) ticket: Ticket,
    /// What was asked for, and every renewal asks for.
    pub(crate) ttl: Duration,
    /// What was given at first: less, if the lock was granted by message.
    pub(crate) lasts: Duration,
    /// A time before the servers granted it.
    pub(crate) began_at: Timestamp,
    /// When the time began in which it may be handed on.
    pub(crate) passes_from: Timestamp,
    pub(crate) deadline: Timestamp,
    /// The longest end that was asked of the servers.
    pub(crate) ends_by: Timestamp,
    pub(crate) block: u64,
    pub(crate) block_end: u64,
    /// The last token before the block, if it is known.
    pub(crate) before: Option<u64>,
    pub(crate) footholds: PerNode<Foothold>,
}

impl Grant {
    /// Returns when the time began in which what a message granted may be handed on. `began_at` is earlier than the grant by a
    /// part of the age of the last reading of the server's clock, which may be all of that time.
    pub(super) fn passes_from(began_at: Timestamp, received_at: Timestamp) -> Timestamp {
        received_at.min(began_at.plus(MOST_UNCERTAIN))
    }
}

/// How much later than `began_at` that may be.
const MOST_UNCERTAIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
