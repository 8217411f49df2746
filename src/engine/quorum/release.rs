//! A release, from sending to a majority's answer, and what is owed when nobody waits for it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::foothold::Acquires;
use super::{Foothold, Quorum};
use crate::clock::Timestamp;
use crate::engine::primitive::{Primitive, Released};
use crate::engine::round::{PerNode, Round, Vote};
use crate::engine::tally::Verdict;
use crate::error::Fault;
use crate::key::LeaseId;
use crate::node::{Node, Owed, Sent};
use crate::script::Reply;

/// What must be released on the nodes, unless it is disarmed.
pub(super) struct Undo {
    pub(super) quorum: Arc<Quorum>,
    pub(super) primitive: Arc<dyn Primitive>,
    pub(super) id: LeaseId,
    pub(super) ttl: Duration,
    /// Where the lease may be.
    pub(super) acquires: PerNode<Acquires>,
}

impl Undo {
    pub(super) fn new(
        quorum: &Arc<Quorum>,
        primitive: &Arc<dyn Primitive>,
        id: LeaseId,
        ttl: Duration,
        acquires: PerNode<Acquires>,
    ) -> Self {
        let (quorum, primitive) = (quorum.clone(), primitive.clone());
        Self { quorum, primitive, id, ttl, acquires }
    }

    pub(super) fn disarm(&mut self) {
        self.acquires.clear();
    }

    /// Leaves the release on one node to that node. `sent` is its first sending, if there was one.
    fn owe(&mut self, index: usize, sent: Option<Sent>) {
        let Some(acquires) = self.acquires.get_mut(index) else { return };
        let acquired_on = match std::mem::take(acquires) {
            Acquires::None => return,
            Acquires::On(generation) => Some(generation),
            Acquires::OnSeveral => None,
        };
        let owed = Owed {
            call: self.primitive.release(&self.id),
            acquired_on,
            ttl: self.ttl,
            until: self.quorum.clock.now().plus(self.ttl),
        };
        self.quorum.nodes[index].owe(self.id.clone(), owed, sent);
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        for index in 0..self.acquires.len() {
            self.owe(index, None);
        }
    }
}

/// A release on its way. Dropped before its answers it goes on by itself: it stays owed.
pub(crate) struct Release {
    round: Round<Released>,
    undo: Undo,
    /// Which nodes are known to have had the lease.
    had: PerNode<bool>,
}

impl Quorum {
    /// Sends a release to all nodes. Those that cannot be asked now owe it from here on.
    pub(crate) fn release(
        self: &Arc<Self>,
        primitive: &Arc<dyn Primitive>,
        id: LeaseId,
        ttl: Duration,
        footholds: &[Foothold],
    ) -> Release {
        let call = primitive.release(&id);
        let acquires = footholds.iter().map(Foothold::acquires).collect();
        let nowhere = |node: usize| {
            let was_asked = footholds[node].acquires() != Acquires::None;
            (!was_asked).then_some(Released { held: false, receivers: 0 })
        };
        let round = Round::send_where(&self.nodes, &self.clock, call, nowhere);
        let mut undo = Undo::new(self, primitive, id, ttl, acquires);
        for (index, vote) in round.votes.iter().enumerate() {
            if vote.sent_on().is_none() {
                undo.owe(index, None);
            }
        }
        Release { round, undo, had: footholds.iter().map(Foothold::had).collect() }
    }
}

impl Release {
    /// The servers' answer. Without one within the time the release stays owed.
    pub(crate) async fn answer(mut self, within: Duration) -> Result<Released, Fault> {
        let quorum = self.undo.quorum.clone();
        let until = quorum.clock.now().plus(within);
        let primitive = self.undo.primitive.clone();
        let read = |reply: &Reply| primitive.read_release(reply);
        let soon = until.min(self.round.sent_at.plus(grace(quorum.round_trip())));
        let rules = quorum.rules(if quorum.is_one() { until } else { soon }, read);
        let mut verdict = self.round.verdict(rules, |released| released.held).await;
        if verdict == Verdict::Unknown && !quorum.is_one() && self.is_free(&quorum) {
            verdict = Verdict::Yes;
        } else if verdict == Verdict::Unknown && quorum.clock.now() < until {
            verdict = self.round.verdict(quorum.rules(until, read), |released| released.held).await;
        }
        let answered = self.round.votes.iter().filter_map(|vote| vote.value());
        let receivers = answered.map(|released| released.receivers).max().unwrap_or(0);
        let held = match verdict {
            Verdict::Yes => true,
            Verdict::No => false,
            Verdict::Unknown => {
                let fault = quorum.no_majority(self.round.faults(&quorum.silence(within)));
                let freed = Round::tally(&self.round.votes, |released| released.held).yes;
                let missing = quorum.majority() - freed;
                let id = self.undo.id.clone();
                let owing: PerNode<Node> = self
                    .round
                    .votes
                    .iter()
                    .zip(&quorum.nodes)
                    .filter(|(vote, _)| vote.value().is_none())
                    .map(|(_, node)| node.clone())
                    .collect();
                drop(self);
                if !fault.may_pass() || !settled(&owing, missing, &id, until).await {
                    return Err(fault);
                }
                // The lease had not ended when the first of them was sent: which one freed the lock, or that
                // the server had forgotten it, makes no difference.
                true
            }
        };
        Ok(Released { held, receivers })
    }
}

impl Release {
    /// Whether a majority has not, or no more, what some of it never had, and nothing speaks for a loss: then those
    /// that do not answer are not waited for.
    fn is_free(&self, quorum: &Quorum) -> bool {
        let is_left = |(vote, had): (&Vote<Released>, &bool)| {
            vote.value().map(|released| released.held || !had)
        };
        let left: PerNode<bool> =
            self.round.votes.iter().zip(&self.had).filter_map(is_left).collect();
        left.len() >= quorum.majority() && left.iter().all(|left| *left)
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        for (index, vote) in self.round.votes.iter_mut().enumerate() {
            // Only behind the acquire on its connection is an answer the last word.
            let behind = vote.sent_on().map_or(Acquires::None, Acquires::On);
            if vote.value().is_none() || self.undo.acquires.get(index) != Some(&behind) {
                // The sending goes along: dropped here it might never reach the wire.
                self.undo.owe(index, vote.sent.take());
            }
        }
        self.undo.disarm();
    }
}

/// How long the slower nodes are waited for before it is asked whether they are needed.
fn grace(round_trip: Duration) -> Duration {
    (round_trip * 10).max(Duration::from_millis(5))
}

/// Whether so many of the nodes owe the release of `id` no more, by `until`.
async fn settled(nodes: &[Node], missing: usize, id: &LeaseId, until: Timestamp) -> bool {
    let mut settling: FuturesUnordered<_> =
        nodes.iter().map(|node| node.settled(id, until)).collect();
    let mut done = 0;
    while done < missing {
        match settling.next().await {
            Some(settled) => done += usize::from(settled),
            None => return false,
        }
    }
    true
}
