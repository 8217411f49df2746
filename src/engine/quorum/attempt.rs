//! An acquire, from sending to a majority's answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::foothold::Acquires;
use super::release::Undo;
use super::{Foothold, Quorum, fence};
use crate::clock::Timestamp;
use crate::config::drift;
use crate::engine::ballot::{Count, Standing};
use crate::engine::kind::{Answer, Kind, Refusal};
use crate::engine::round::{PerNode, Round, Vote};
use crate::engine::tally::{Election, Verdict};
use crate::error::Fault;
use crate::key::LeaseId;
use crate::node::Node;
use crate::script::Reply;

/// An acquire on its way. Dropped before a grant is taken from it, it is released.
pub(crate) struct Attempt {
    round: Round<Answer>,
    undo: Undo,
}

/// What an [`Attempt`] came to.
pub(crate) enum Outcome {
    Granted(Grant),
    Refused(Refusal, Count),
}

/// A lease as the servers gave it. Whoever takes it must see to its release.
pub(crate) struct Grant {
    pub(crate) id: LeaseId,
    pub(crate) ttl: Duration,
    pub(crate) sent_at: Timestamp,
    pub(crate) deadline: Timestamp,
    pub(crate) block_end: u64,
    pub(crate) footholds: PerNode<Foothold>,
}

impl Quorum {
    /// Sends an acquire, if a majority could grant it.
    pub(crate) fn attempt(
        self: &Arc<Self>,
        kind: &Arc<dyn Kind>,
        id: LeaseId,
        ttl: Duration,
        block: u64,
    ) -> Result<Attempt, Fault> {
        self.check_electorate()?;
        let call = kind.acquire(&id, ttl, block);
        let round = Round::elect(&self.nodes, &self.clock, call);
        if !round.votes.iter().any(Vote::is_pending) {
            return Err(self.no_majority(round.faults(&Fault::Closed)));
        }
        let undo = Undo::new(self, kind, id, ttl, acquires(&round.votes));
        Ok(Attempt { round, undo })
    }

    /// Whether a majority is connected, and its grants count.
    fn check_electorate(&self) -> Result<(), Fault> {
        let now = self.clock.now();
        let barred = |(index, node): (usize, &Node)| Some((index, node.bar(now)?));
        let mut barred = self.nodes.iter().enumerate().filter_map(barred).peekable();
        if barred.peek().is_none() {
            return Ok(());
        }
        let barred: PerNode<(usize, Fault)> = barred.collect();
        if self.nodes.len() - barred.len() >= self.majority() {
            return Ok(());
        }
        Err(self.no_majority(barred.into_iter()))
    }
}

/// On which connections the acquire may run.
fn acquires(votes: &[Vote<Answer>]) -> PerNode<Acquires> {
    votes.iter().map(|vote| vote.sent_on().map_or(Acquires::None, Acquires::On)).collect()
}

impl Attempt {
    /// The servers' answer, waited for until `until`.
    ///
    /// Dropping the future is dropping the attempt: the release goes out behind the acquire.
    pub(crate) async fn outcome(mut self, until: Timestamp) -> Result<Outcome, Fault> {
        let quorum = self.undo.quorum.clone();
        let kind = self.undo.kind.clone();
        let read = |reply: &Reply| kind.read_acquire(reply);
        let mut rules = quorum.rules(until, read);
        rules.again = Node::send_vote_whole;
        let elect = |votes: &[Vote<Answer>], over| count(votes).verdict(over);
        let verdict = self.round.settle(rules, elect).await;
        // A script that was not known may have gone out again on a newer connection.
        self.undo.acquires = acquires(&self.round.votes);
        match verdict {
            Some(Verdict::Yes) => self.granted(&quorum, until).await,
            Some(Verdict::No) => Ok(self.refused(&quorum)),
            Some(Verdict::Unknown) | None => Err(self.failed(&quorum, until)),
        }
    }

    async fn granted(mut self, quorum: &Quorum, until: Timestamp) -> Result<Outcome, Fault> {
        let block_end = self.fence(quorum, until).await?;
        let now = quorum.clock.now();
        let (sent_at, ttl) = (self.round.sent_at, self.undo.ttl);
        let deadline = sent_at.plus(ttl).minus(drift(ttl));
        if deadline <= now.plus(quorum.config.min_validity) {
            let late = Fault::NoAnswer(now.since(sent_at));
            return Err(
                quorum.no_majority((0..quorum.nodes.len()).map(|node| (node, late.clone())))
            );
        }
        self.undo.disarm();
        let alone = quorum.is_one();
        let foothold = |vote| Foothold::granted(vote, sent_at, ttl, now, alone);
        Ok(Outcome::Granted(Grant {
            id: self.undo.id.clone(),
            ttl,
            sent_at,
            deadline,
            block_end,
            footholds: std::mem::take(&mut self.round.votes).into_iter().map(foothold).collect(),
        }))
    }

    /// The end of the token block, once a majority of the counters has reached it.
    async fn fence(&mut self, quorum: &Quorum, until: Timestamp) -> Result<u64, Fault> {
        let (end, times) = fence::highest(self.round.votes.iter().filter_map(counted_end));
        if times >= quorum.majority() {
            return Ok(end);
        }
        quorum.raises.fetch_add(1, Ordering::Relaxed);
        let kind = &self.undo.kind;
        let known = |node: usize| match counted_end(&self.round.votes[node]) {
            Some(given) => (given == end).then_some(true),
            None => Some(false),
        };
        let call = kind.raise(&self.undo.id, end);
        let mut raise = Round::send_where(&quorum.nodes, &quorum.clock, call, known);
        let rules = quorum.rules(until, |reply: &Reply| kind.read_renew(reply));
        match raise.verdict(rules, |lifted| *lifted).await {
            Verdict::Yes => Ok(end),
            _ => {
                let silence = quorum.silence(until.since(self.round.sent_at));
                // A node that let go of the lease meanwhile gave an answer, but none to build on.
                let gone =
                    Fault::Unexpected("the lease was gone before its token was settled".into());
                let votes = raise.votes.iter().enumerate();
                let refused = votes
                    .filter(|(_, vote)| vote.value() == Some(&false))
                    .map(|(node, _)| (node, gone.clone()));
                Err(quorum.no_majority(raise.faults(&silence).chain(refused)))
            }
        }
    }

    fn refused(mut self, quorum: &Quorum) -> Outcome {
        let now = quorum.clock.now();
        let votes = &self.round.votes;
        let nodes = votes.iter().zip(&quorum.nodes);
        let nodes = nodes.map(|(vote, node)| standing(vote, || node.counts_from(), now)).collect();
        let refusals: PerNode<&Refusal> = votes.iter().filter_map(refusal).collect();
        let times = |one: &Refusal| {
            refusals.iter().filter(|other| other.holder.is_one_with(&one.holder)).count()
        };
        let leading = refusals.iter().max_by_key(|refusal| (times(refusal), refusal.remaining));
        let leading: &Refusal = leading.expect("BUG: refused by nobody");
        let split = times(leading) < quorum.majority();
        let subscribers = refusals.iter().map(|refusal| refusal.subscribers).max().unwrap_or(0);
        let refusal = Refusal { subscribers, ..leading.clone() };
        drop(refusals);
        self.disarm_if_nowhere();
        Outcome::Refused(refusal, Count { nodes, split })
    }

    fn failed(mut self, quorum: &Quorum, until: Timestamp) -> Fault {
        let silence = quorum.silence(until.since(self.round.sent_at));
        let now = quorum.clock.now();
        let void = |(_, vote): &(usize, &Vote<Answer>)| {
            !vote.counts && matches!(vote.value(), Some(Answer::Granted { .. }))
        };
        let left = |index: usize| quorum.nodes[index].counts_from().since(now);
        let void = self.round.votes.iter().enumerate().filter(void);
        let void = void.map(|(index, _)| (index, Fault::Quarantined(left(index))));
        let failures = self.round.faults(&silence);
        let mut failures: PerNode<(usize, Fault)> = failures.chain(void).collect();
        failures.sort_by_key(|(node, _)| *node);
        self.disarm_if_nowhere();
        quorum.no_majority(failures.into_iter())
    }

    /// Where no node can have taken it there is nothing to release; else it is released on all.
    fn disarm_if_nowhere(&mut self) {
        let may_hold = |vote: &Vote<Answer>| match &vote.answer {
            None | Some(Ok(Answer::Granted { .. })) => true,
            Some(Ok(Answer::Refused(_))) => false,
            Some(Err(fault)) => fault.may_have_run(),
        };
        if !self.round.votes.iter().any(may_hold) {
            self.undo.disarm();
        }
    }
}

fn count(votes: &[Vote<Answer>]) -> Election {
    let mut election = Election::default();
    for vote in votes {
        *match (&vote.answer, vote.counts) {
            (Some(Ok(Answer::Granted { .. })), true) => &mut election.granted,
            (Some(Ok(Answer::Refused(_))), _) => &mut election.held,
            (Some(_), _) => &mut election.failed,
            (None, true) => &mut election.pending,
            (None, false) => &mut election.pending_void,
        } += 1;
    }
    election
}

fn counted_end(vote: &Vote<Answer>) -> Option<u64> {
    match vote.value() {
        Some(Answer::Granted { block_end }) if vote.counts => Some(*block_end),
        _ => None,
    }
}

fn refusal(vote: &Vote<Answer>) -> Option<&Refusal> {
    match vote.value() {
        Some(Answer::Refused(refusal)) => Some(refusal),
        _ => None,
    }
}

/// How a node stands once what it granted is released again.
fn standing(
    vote: &Vote<Answer>,
    counts_from: impl FnOnce() -> Timestamp,
    now: Timestamp,
) -> Standing {
    match vote.value() {
        Some(Answer::Granted { .. }) if vote.counts => Standing::Free,
        Some(Answer::Granted { .. }) => Standing::Away { until: counts_from() },
        Some(Answer::Refused(Refusal { remaining: Some(remaining), .. })) => {
            // A key is gone a little after its last millisecond began.
            Standing::Away { until: now.plus(*remaining + Duration::from_millis(1)) }
        }
        // It was not waited for: a grant of it would not count.
        None if vote.is_pending() && !vote.counts => Standing::Away { until: counts_from() },
        _ => Standing::Away { until: Timestamp::NEVER },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Holder;
    use crate::node::Sent;

    const NOW: Timestamp = Timestamp::from_origin(Duration::from_secs(9));
    const TRUSTED_AT: Timestamp = Timestamp::from_origin(Duration::from_secs(60));

    /// Not answered yet by a server that counts, or by one in quarantine.
    fn pending(counts: bool) -> Vote<Answer> {
        let counts_from = if counts { Timestamp::default() } else { TRUSTED_AT };
        Vote::of(Ok(Sent::in_vain(1, 1, counts_from)), NOW)
    }

    fn answered(counts: bool, answer: Result<Answer, Fault>) -> Vote<Answer> {
        let mut vote = pending(counts);
        (vote.sent, vote.answer) = (None, Some(answer));
        vote
    }

    fn granted(counts: bool) -> Vote<Answer> {
        answered(counts, Ok(Answer::Granted { block_end: 7 }))
    }

    fn refused(counts: bool, remaining: Option<Duration>) -> Vote<Answer> {
        let holder = Holder::new("another:0");
        let refusal = Refusal { holder, owner: None, remaining, subscribers: 0 };
        answered(counts, Ok(Answer::Refused(refusal)))
    }

    fn failed(counts: bool) -> Vote<Answer> {
        answered(counts, Err(Fault::Closed))
    }

    #[test]
    fn every_vote_is_counted_once_and_a_grant_only_of_a_server_that_counts() {
        let votes = [
            [granted(true), granted(true), granted(false)],
            [refused(true, None), refused(false, None), refused(true, None)],
            [failed(true), failed(false), failed(true)],
            [pending(true), pending(false), pending(false)],
        ];
        let election = count(&votes.into_iter().flatten().collect::<Vec<_>>());
        assert_eq!((election.granted, election.held, election.failed), (2, 3, 4));
        assert_eq!((election.pending, election.pending_void), (1, 2));
        let ends =
            [granted(true), granted(false), refused(true, None)].map(|vote| counted_end(&vote));
        assert_eq!(ends, [Some(7), None, None]);
        assert!(refusal(&refused(false, None)).is_some() && refusal(&granted(true)).is_none());
    }

    #[test]
    fn a_node_is_free_at_once_when_its_quarantine_ends_when_the_lease_does_or_nobody_knows_when() {
        let until = |until| Standing::Away { until };
        let remaining = Duration::from_millis(5);
        let ends_at = NOW.plus(Duration::from_millis(6));
        for (vote, stands) in [
            (granted(true), Standing::Free),
            (granted(false), until(TRUSTED_AT)),
            (refused(true, Some(remaining)), until(ends_at)),
            (refused(false, Some(remaining)), until(ends_at)),
            (refused(true, None), until(Timestamp::NEVER)),
            (pending(false), until(TRUSTED_AT)),
            (pending(true), until(Timestamp::NEVER)),
            (failed(false), until(Timestamp::NEVER)),
        ] {
            let (answer, counts) = (format!("{:?}", vote.answer), vote.counts);
            assert_eq!(standing(&vote, || TRUSTED_AT, NOW), stands, "{answer} {counts}");
        }
    }
}
