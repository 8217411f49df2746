//! A request's place with the server whose queue it stands in.

use std::sync::Arc;
use std::time::Duration;

use super::votes::refusal;
use crate::clock::Timestamp;
use crate::engine::kind::Answer;
use crate::engine::round::Vote;
use crate::fleet::Site;
use crate::key::LeaseId;
use crate::node::{MailedGrant, Node, Registration, ServerTime};
use crate::script::ttl_ms;

/// What a request needs that stands in a server's queue.
pub(super) struct Queued {
    /// The server with the queue when the request began.
    pub(super) node: Node,
    /// Has letters about it kept, from before the first ask on.
    pub(super) registration: Registration,
    /// The end of the token block that a message granted it, and the last token before the block.
    pub(super) told: Option<(u64, Option<u64>)>,
    /// The server's time of the newest answer that it waits, in microseconds.
    refused_us: u64,
    /// It was asked, and there was no usable answer since.
    unanswered: bool,
}

impl Queued {
    pub(super) fn at(node: Node, id: &LeaseId) -> Self {
        let registration = node.mailbox().inbox().register(id);
        Self { node, registration, told: None, refused_us: 0, unanswered: false }
    }

    /// Returns what a message said of the block that ends here, if one granted it: the last token before the block. The ask that
    /// confirms the grant is not told again.
    pub(super) fn told(&self, block_end: u64) -> Option<Option<u64>> {
        self.told.filter(|(end, _)| *end == block_end).map(|(_, before)| before)
    }

    /// An ask is sent.
    pub(super) fn asked(&mut self) {
        self.unanswered = true;
    }

    /// Takes in that it waits, as the server says at that time.
    pub(super) fn refused(&mut self, server_us: u64) {
        self.refused_us = server_us;
        self.unanswered = false;
    }

    /// Returns true if the grant may be over although its time is not, since somebody ended it. The server has said since then
    /// that the request waits; or it may have said so, or granted the lock once more, in an answer that is missing.
    pub(super) fn may_be_outdated(&self, mailed: &MailedGrant) -> bool {
        self.unanswered || mailed.server_us < self.refused_us
    }

    /// Returns the entry in the server's queue, which holds all that a grant needs: `ttl_ms block nonce id`.
    pub(super) fn entry(&self, id: &LeaseId, ttl: Duration, block: u64) -> Arc<str> {
        let nonce = self.node.mailbox().nonce();
        format!("{} {block} {nonce} {}", ttl_ms(ttl), id.0).into()
    }
}

/// Takes in what a refusal says of its server's clock, to date the grants that come by message.
pub(super) fn note_server_time(site: &Site, vote: &Vote<Answer>, sent_at: Timestamp) {
    let queue = refusal(vote).and_then(|refusal| refusal.queue.as_ref());
    if let (Some(queue), Some(generation), Some(epoch)) = (queue, vote.sent_on(), vote.epoch) {
        let server_us = queue.server_us;
        site.note_server_time(ServerTime { sent_at, server_us, generation, epoch });
    }
}
