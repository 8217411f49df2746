//! Raises the counters of the nodes to the token of a grant: to the end of its block.

use std::sync::atomic::Ordering;

use super::release::Undo;
use super::{Quorum, fence};
use crate::clock::Timestamp;
use crate::engine::round::{PerNode, Round};
use crate::engine::tally::Verdict;
use crate::error::Fault;
use crate::script::Reply;

impl Quorum {
    /// Returns the end of the token block of a grant, once a majority of the counters has reached it. `ends` are those that the
    /// granting nodes gave, and all tokens that they may have forgotten are below `tokens_from`.
    pub(super) async fn fence(
        &self,
        undo: &Undo,
        block: u64,
        ends: PerNode<Option<u64>>,
        tokens_from: u64,
        sent_at: Timestamp,
        until: Timestamp,
    ) -> Result<u64, Fault> {
        // Only what takes no tokens can be below that: others begin at the server's time.
        let least = if block == 0 { tokens_from } else { 0 };
        let (end, times) = fence::highest(ends.iter().copied().flatten(), least);
        if times >= self.majority() {
            return Ok(end);
        }
        self.raises.fetch_add(1, Ordering::Relaxed);
        let known = |node: usize| match ends[node] {
            Some(given) => (given == end).then_some(true),
            None => Some(false),
        };
        let kind = &undo.kind;
        let call = kind.raise(&undo.ticket.id, end);
        let mut raise = Round::send_where(&self.sites, &self.clock, call, known);
        let rules = self.rules(until, |reply: &Reply| kind.read_renew(reply));
        match raise.verdict(rules, |lifted| *lifted).await {
            Verdict::Yes => Ok(end),
            _ => {
                let silence = self.silence(until.since(sent_at));
                // A node that let go of the lease meanwhile gave an answer, but none to build on.
                let gone =
                    Fault::Unexpected("the lease was gone before its token was settled".into());
                let votes = raise.votes.iter().enumerate();
                let refused = votes
                    .filter(|(_, vote)| vote.value() == Some(&false))
                    .map(|(node, _)| (node, gone.clone()));
                Err(self.no_majority(raise.faults(&silence).chain(refused)))
            }
        }
    }

    /// Returns what is above all tokens that the granting nodes may have forgotten; zero if that is not known.
    pub(super) fn tokens_from(&self, ends: &PerNode<Option<u64>>) -> u64 {
        let granting = self.sites.iter().zip(ends).filter(|(_, end)| end.is_some());
        let highest = granting.map(|(site, _)| site.tokens_from()).max().unwrap_or(0);
        // The tokens of before began at times that were rounded down.
        highest.next_multiple_of(self.config.grain_us())
    }
}
