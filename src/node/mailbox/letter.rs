//! A letter: what a server writes about a queued request, and how it is read.

use std::sync::Arc;
use std::time::Duration;

use super::Epoch;
use crate::clock::Timestamp;
use crate::key::{Holder, LeaseId};
use crate::script::EXACT_BELOW;

/// A message to one who waits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Letter {
    /// The mailbox was subscribed, for the first time or again. Letters sent before may have been missed.
    Subscribed,
    /// The lease holds the lock now.
    Grant(MailedGrant),
    /// The request is the first in the queue, and somebody holds the lock.
    Next {
        id: LeaseId,
        /// The time until the holder's lease ends unless it is renewed. `None`: it has no end.
        remaining: Option<Duration>,
        holder: Holder,
    },
    /// The request is the first in the queue, and the lock is free for a moment.
    Free { id: LeaseId },
}

/// A grant to a queued request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MailedGrant {
    pub(crate) id: LeaseId,
    /// The server's time when it granted, in microseconds.
    pub(crate) server_us: u64,
    /// The time that the lease lasts, from `server_us` on.
    pub(crate) ttl: Duration,
    /// The last token of the lease's block.
    pub(crate) block_end: u64,
    /// The last token before the block, if the server said so.
    pub(crate) before: Option<u64>,
    /// What the message brought along for the lease.
    pub(crate) enclosed: Option<Arc<[u8]>>,
    /// The subscription that it arrived on.
    pub(crate) epoch: Epoch,
    pub(crate) received_at: Timestamp,
}

impl Letter {
    /// Returns the request that it is about.
    pub(crate) fn id(&self) -> Option<&LeaseId> {
        match self {
            Self::Subscribed => None,
            Self::Grant(MailedGrant { id, .. }) | Self::Next { id, .. } | Self::Free { id } => {
                Some(id)
            }
        }
    }
}

/// Reads a message of `lua/queue.lua`: a verb, a lease id, and what the verb needs, separated by one space each. What a grant
/// brings along is all that follows its numbers: any bytes (`lua/items.lua`).
pub(super) fn parse(message: &[u8], epoch: Epoch, received_at: Timestamp) -> Option<Letter> {
    let enclosing = message.starts_with(b"item ");
    let mut spaces = message.iter().enumerate().filter(|(_, byte)| **byte == b' ');
    let (head, enclosed) = match enclosing.then(|| spaces.nth(4)) {
        Some(space) => {
            let (head, rest) = message.split_at(space?.0);
            (head, Some(Arc::from(&rest[1..])))
        }
        None => (message, None),
    };
    let text = String::from_utf8_lossy(head);
    let (verb, rest) = text.split_once(' ')?;
    let (id, rest) = rest.split_once(' ').map_or((rest, None), |(id, rest)| (id, Some(rest)));
    let id = (!id.is_empty()).then(|| LeaseId(id.into()))?;
    match (verb, rest) {
        ("grant" | "item", Some(rest)) => {
            // As in an answer: what is not exact is no token.
            let exact = |number: &u64| *number < EXACT_BELOW;
            let mut numbers = rest.split(' ').map(|number| number.parse().ok().filter(exact));
            let [server_us, ttl_ms, block_end] = std::array::from_fn(|_| numbers.next().flatten());
            let (server_us, ttl, block_end) =
                (server_us?, Duration::from_millis(ttl_ms?), block_end?);
            let before = match numbers.next() {
                Some(number) => Some(number?),
                None => None,
            };
            let is_whole = numbers.next().is_none();
            let grant =
                MailedGrant { id, server_us, ttl, block_end, before, enclosed, epoch, received_at };
            is_whole.then_some(Letter::Grant(grant))
        }
        ("next", Some(rest)) => {
            let (pttl_ms, holder) = rest.split_once(' ')?;
            let remaining = match pttl_ms.parse().ok()? {
                -1 => None,
                ms => Some(Duration::from_millis(u64::try_from(ms).ok()?)),
            };
            let holder = (!holder.is_empty()).then(|| Holder::new(holder))?;
            Some(Letter::Next { id, remaining, holder })
        }
        ("free", None) => Some(Letter::Free { id }),
        _ => None,
    }
}
