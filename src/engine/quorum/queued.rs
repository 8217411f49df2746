//! A request's place with the server whose queue it stands in.

use std::sync::Arc;
use std::time::Duration;

use crate::key::LeaseId;
use crate::node::{Inbox, Node, Registration};
use crate::script::ttl_ms;

/// What a request needs that stands in a server's queue.
pub(super) struct Queued {
    /// The server with the queue when the request began.
    pub(super) node: Node,
    /// Where letters about it arrive, from before the first ask on.
    pub(super) inbox: Inbox,
    _registration: Registration,
}

impl Queued {
    pub(super) fn at(node: Node, id: &LeaseId) -> Self {
        let inbox = node.mailbox().inbox();
        let _registration = inbox.register(id);
        Self { node, inbox, _registration }
    }

    /// Returns the entry in the server's queue, which holds all that a grant needs: `ttl_ms block nonce id`.
    pub(super) fn entry(&self, id: &LeaseId, ttl: Duration, block: u64) -> Arc<str> {
        let nonce = self.node.mailbox().nonce();
        format!("{} {block} {nonce} {}", ttl_ms(ttl), id.0).into()
    }
}
