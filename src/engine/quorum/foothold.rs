//! What one node has of a lease, as far as is known here; and how a lease is put back where it is missing.
//!
//! A majority decides, and the rest answer when they can: what they say is looked at later. A node that misses
//! the lease (it was late, away for long, or has restarted) gets it again, so that the lease does not hang on a
//! bare majority: but never a node that had it a short while ago and in the same run, for there somebody took
//! it away on purpose.

use std::time::Duration;

use super::{Quorum, Renewal, at_hand};
use crate::clock::Timestamp;
use crate::config::drift;
use crate::engine::primitive::{Answer, Primitive};
use crate::engine::round::{Vote, read};
use crate::error::Fault;
use crate::key::LeaseId;
use crate::node::{Generation, Node, Sent};

/// One node's part of a lease.
#[derive(Default)]
pub(crate) struct Foothold {
    acquires: Acquires,
    /// `None` until there is something to remember, and always where there is one node only.
    memory: Option<Box<Memory>>,
}

/// On which connections of a node the lease was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Acquires {
    #[default]
    None,
    On(Generation),
    OnSeveral,
}

#[derive(Default)]
struct Memory {
    /// It held the lease in this run of its server, which did not end before that by itself.
    held: Option<(u64, Timestamp)>,
    late: Option<Late>,
}

/// An answer that was not waited for.
struct Late {
    sent: Sent,
    sent_at: Timestamp,
    asked: Asked,
    /// Sent behind it, and to be kept for as long.
    _behind: Option<Sent>,
}

#[derive(Clone, Copy)]
enum Asked {
    Acquire,
    /// For that long.
    Renewal(Duration),
}

/// What is put back.
pub(crate) struct Heal<'a> {
    pub(crate) quorum: &'a Quorum,
    pub(crate) primitive: &'a dyn Primitive,
    pub(crate) id: &'a LeaseId,
    pub(crate) count: u32,
    pub(crate) ttl: Duration,
    pub(crate) block_end: u64,
}

impl Foothold {
    /// What an acquire left on a node.
    pub(super) fn granted(
        vote: Vote<Answer>,
        sent_at: Timestamp,
        ttl: Duration,
        now: Timestamp,
        alone: bool,
    ) -> Self {
        let mut foothold = Self::default();
        if let Some(generation) = vote.sent_on() {
            foothold.acquires = Acquires::On(generation);
        }
        if alone {
            return foothold;
        }
        if matches!(vote.value(), Some(Answer::Granted { .. })) {
            foothold.confirm(vote.run, ttl, now);
        } else if let Some(sent) = vote.sent {
            let asked = Asked::Acquire;
            foothold.memory().late = Some(Late { sent, sent_at, asked, _behind: None });
        }
        foothold
    }

    /// Whether the node is known to have had the lease. Of use where there are several.
    pub(super) fn had(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.held.is_some())
    }

    pub(crate) fn acquires(&self) -> Acquires {
        self.acquires
    }

    fn memory(&mut self) -> &mut Memory {
        self.memory.get_or_insert_default()
    }

    /// The node said that it holds the lease, for `ttl` from some moment before `now` on.
    fn confirm(&mut self, run: u64, ttl: Duration, now: Timestamp) {
        let until = now.plus(ttl).plus(drift(ttl));
        let memory = self.memory();
        let before = memory.held.filter(|(held_in, _)| *held_in == run);
        memory.held = Some((run, before.map_or(until, |(_, before)| before.max(until))));
    }

    /// Whether it was taken away from the node, which did not hold it at `asked_at`.
    fn was_cleared(&self, run: u64, asked_at: Timestamp) -> bool {
        let held = self.memory.as_ref().and_then(|memory| memory.held);
        held.is_some_and(|(held_in, until)| held_in == run && asked_at < until)
    }

    /// Takes in a late answer, if it is there. Whether the lease is missing and to be put back.
    pub(crate) fn look(&mut self, node: &Node, heal: &Heal<'_>, now: Timestamp) -> bool {
        let Some(mut late) = self.memory.as_mut().and_then(|memory| memory.late.take()) else {
            return false;
        };
        let Some(answer) = at_hand(&mut late.sent) else {
            if now.since(late.sent_at) < heal.quorum.patience(heal.ttl) {
                self.memory().late = Some(late);
            } else {
                node.unanswered(late.sent.generation, late.sent_at);
            }
            return false;
        };
        node.heed(late.sent.generation, &answer);
        let run = late.sent.run;
        match (late.asked, answer) {
            (Asked::Acquire, Ok(reply)) => {
                let answer = read(&reply, |reply| heal.primitive.read_acquire(reply));
                if matches!(answer, Ok(Answer::Granted { .. })) {
                    self.confirm(run, heal.ttl, now);
                }
                false
            }
            (Asked::Renewal(ttl), Ok(reply)) => {
                match read(&reply, |reply| heal.primitive.read_renew(reply)) {
                    // It may stand for the acquire's own answer, which nobody looked at: the node has that for longer.
                    Ok(true) => self.confirm(run, ttl.max(heal.ttl), now),
                    Ok(false) => return !self.was_cleared(run, late.sent_at),
                    Err(_) => {}
                }
                false
            }
            // It did not run. An acquire is made up for by a heal, which is sent whole.
            (Asked::Acquire, Err(Fault::NoScript)) => true,
            (Asked::Renewal(ttl), Err(Fault::NoScript)) => {
                let call = heal.primitive.renew(heal.id, heal.count, ttl);
                if let Ok(sent) = node.send_whole(&call) {
                    let asked = Asked::Renewal(ttl);
                    let again = Late { sent, sent_at: now, asked, _behind: None };
                    self.memory().late = Some(again);
                }
                false
            }
            (_, Err(_)) => false,
        }
    }

    /// Takes in a node's part in a renewal. Whether the lease is missing and to be put back.
    pub(super) fn renewed(
        &mut self,
        vote: &mut Vote<bool>,
        sent_at: Timestamp,
        ttl: Duration,
        now: Timestamp,
    ) -> bool {
        if let Some(sent) = vote.sent.take() {
            let memory = self.memory();
            // What was sent after it knows more, and must not be dropped before it is on the wire.
            if memory.late.as_ref().is_none_or(|late| late.sent_at <= sent_at) {
                let asked = Asked::Renewal(ttl);
                memory.late = Some(Late { sent, sent_at, asked, _behind: None });
            }
            return false;
        }
        match vote.value() {
            Some(true) => self.confirm(vote.run, ttl, now),
            Some(false) => return !self.was_cleared(vote.run, sent_at),
            None => {}
        }
        false
    }

    /// Puts the lease back on a node, where it is refused if another holds the lock. Whether it could be sent.
    pub(crate) fn heal(&mut self, node: &Node, heal: &Heal<'_>, now: Timestamp) -> bool {
        let acquire = heal.primitive.acquire(heal.id, heal.ttl, 0);
        // Whole: nobody waits for the answer, to send it again if its script is not known.
        let Ok(sent) = node.send_whole(&acquire) else { return false };
        self.acquires = match self.acquires {
            Acquires::None => Acquires::On(sent.generation),
            Acquires::On(generation) if generation == sent.generation => self.acquires,
            Acquires::On(_) | Acquires::OnSeveral => Acquires::OnSeveral,
        };
        // Of no use where the lease was refused, and then it does nothing.
        let behind = node.send_whole(&heal.primitive.raise(heal.id, heal.block_end)).ok();
        self.memory().late =
            Some(Late { sent, sent_at: now, asked: Asked::Acquire, _behind: behind });
        true
    }

    /// When to look for a late answer at last.
    pub(crate) fn look_by(&self, patience: Duration) -> Option<Timestamp> {
        let late = self.memory.as_ref()?.late.as_ref()?;
        Some(late.sent_at.plus(patience))
    }
}

impl Renewal {
    /// Each node's part, with what it left there. Whether the lease is missing on the node is for `missing`.
    pub(crate) fn leave(
        &mut self,
        footholds: &mut [Foothold],
        now: Timestamp,
        mut missing: impl FnMut(usize, &mut Foothold),
    ) {
        for (index, (foothold, vote)) in footholds.iter_mut().zip(&mut self.round.votes).enumerate()
        {
            if foothold.renewed(vote, self.round.sent_at, self.ttl, now) {
                missing(index, foothold);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(ms))
    }

    fn sent<T>(sent_at: Timestamp) -> Vote<T> {
        Vote::of(Ok(Sent::in_vain(7, 1, at(0))), sent_at)
    }

    /// It has the lease in its run 1, asked at 0.
    fn confirmed() -> Foothold {
        let mut foothold = Foothold::default();
        foothold.confirm(1, TTL, at(0));
        foothold
    }

    fn answered(foothold: &mut Foothold, run: u64, held: bool, sent_at: Timestamp) -> bool {
        let mut vote = Vote::known(held);
        vote.run = run;
        foothold.renewed(&mut vote, sent_at, TTL, sent_at)
    }

    #[test]
    fn a_lease_was_taken_away_if_it_is_missing_in_its_run_before_its_end() {
        assert!(confirmed().had() && !Foothold::default().had());
        for (run, asked_at, cleared) in
            [(1, 0, true), (1, 10_101, true), (1, 10_102, false), (2, 0, false), (2, 20_000, false)]
        {
            assert_eq!(confirmed().was_cleared(run, at(asked_at)), cleared, "{run} {asked_at}");
        }
        assert!(!Foothold::default().was_cleared(0, at(0)), "it never had it");
    }

    #[test]
    fn the_longest_lease_of_a_run_is_the_one_that_is_remembered() {
        let mut foothold = confirmed();
        foothold.confirm(1, TTL / 10, at(1000));
        assert!(foothold.was_cleared(1, at(10_101)));
        foothold.confirm(1, TTL, at(2000));
        assert!(foothold.was_cleared(1, at(12_101)));
        foothold.confirm(2, TTL / 10, at(3000));
        assert!(!foothold.was_cleared(1, at(3000)) && !foothold.was_cleared(2, at(4012)));
        assert!(foothold.was_cleared(2, at(4011)));
    }

    #[test]
    fn a_renewal_puts_the_lease_back_where_it_is_missing_and_was_not_taken_away() {
        assert!(answered(&mut Foothold::default(), 1, false, at(0)), "it never had it");
        assert!(answered(&mut confirmed(), 2, false, at(0)), "it restarted");
        assert!(answered(&mut confirmed(), 1, false, at(10_102)), "it ended by itself");
        assert!(!answered(&mut confirmed(), 1, false, at(10_101)), "it was taken away");
        let mut foothold = Foothold::default();
        assert!(!answered(&mut foothold, 1, true, at(0)));
        assert!(foothold.had() && foothold.was_cleared(1, at(10_101)));
        let mut failed: Vote<bool> = Vote::known(false);
        failed.answer = Some(Err(Fault::Closed));
        assert!(!confirmed().renewed(&mut failed, at(0), TTL, at(0)), "who knows");
    }

    #[test]
    fn only_the_latest_renewal_is_looked_at_later() {
        let mut foothold = Foothold::default();
        assert_eq!(foothold.look_by(TTL), None);
        for (sent_at, look_by) in [(1000, 11_000), (2000, 12_000), (1500, 12_000)] {
            assert!(!foothold.renewed(&mut sent(at(sent_at)), at(sent_at), TTL, at(5000)));
            assert_eq!(foothold.look_by(TTL), Some(at(look_by)), "{sent_at}");
        }
    }

    #[test]
    fn an_acquire_leaves_what_was_answered_or_what_is_to_be_looked_at() {
        let granted = |vote, alone| Foothold::granted(vote, at(1000), TTL, at(1000), alone);
        let mut yes = sent(at(1000));
        (yes.sent, yes.answer) = (None, Some(Ok(Answer::Granted { block_end: 1 })));
        let foothold = granted(yes, false);
        assert_eq!((foothold.acquires(), foothold.look_by(TTL)), (Acquires::On(7), None));
        assert!(foothold.had() && foothold.was_cleared(1, at(11_101)));
        let foothold = granted(sent(at(1000)), false);
        assert_eq!(
            (foothold.acquires(), foothold.look_by(TTL)),
            (Acquires::On(7), Some(at(11_000)))
        );
        assert!(!foothold.had());
        let foothold = granted(sent(at(1000)), true);
        assert_eq!((foothold.acquires(), foothold.look_by(TTL)), (Acquires::On(7), None), "alone");
        let unasked = Vote::known(Answer::Granted { block_end: 1 });
        assert_eq!(granted(unasked, true).acquires(), Acquires::None);
    }
}
