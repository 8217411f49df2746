//! What the server knows about a queue.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::key::Holder;
use crate::waiter::Waiter;

/// The state of a queue on its server at one moment; see [`Queue::status`](crate::Queue::status).
///
/// Each item is at any moment in exactly one of the four places, until it is acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct QueueStatus {
    /// The queue's name.
    pub name: Arc<str>,
    /// The number of items that nobody has had yet.
    pub waiting_items: u64,
    /// The number of items that somebody has, or had until the end of a lease after which they are delivered again.
    pub lent_items: u64,
    /// The number of items that were given back, and are delivered again. Of more than 1000 items, those that are due last are
    /// counted among the lent ones.
    pub retrying_items: u64,
    /// The number of items that were delivered too often, or rejected.
    pub dead_items: u64,
    /// The deliveries, in the order of their ends, up to 1000.
    pub lent: Vec<Lent>,
    /// The workers that wait for an item, in the order in which they get one, up to 1000.
    pub waiting: Vec<Waiter>,
}

/// A delivery; see [`QueueStatus::lent`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Lent {
    /// The worker's name on the server.
    pub holder: Holder,
    /// How often the item was delivered, this time included.
    pub deliveries: u32,
    /// The time until it is delivered again unless it is renewed; zero if that is over.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::seconds"))]
    pub remaining: Duration,
}

/// An item that is not delivered any more; see [`Queue::dead`](crate::Queue::dead).
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DeadItem {
    /// What was pushed.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::bytes"))]
    pub payload: Arc<[u8]>,
    /// The queue's name, for the error about a payload that is no JSON.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(super) queue: Arc<str>,
}

/// A payload may be long, and is for nobody but those who ask for it.
impl fmt::Debug for DeadItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadItem")
            .field("queue", &self.queue)
            .field("bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}
