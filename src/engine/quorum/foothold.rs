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
use crate::engine::kind::{Answer, Kind, Ticket};
use crate::engine::round::{Vote, read};
use crate::error::Fault;
use crate::fleet::Site;
use crate::node::{Generation, Sent, Source};

/// One node's part of a lease.
#[derive(Default)]
pub(crate) struct Foothold {
    acquires: Acquires,
    /// The server that confirmed it last, and when it was asked that. Of use where there is only one for the lock.
    source: Source,
    confirmed_at: Timestamp,
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

impl Acquires {
    /// Returns where the lease was asked for once another acquire was sent on connection `on`, if it was sent.
    pub(crate) fn and(self, on: Option<Generation>) -> Self {
        match (self, on) {
            (before, None) => before,
            (Self::None, Some(on)) => Self::On(on),
            (Self::On(before), Some(on)) if before == on => self,
            _ => Self::OnSeveral,
        }
    }
}

#[derive(Default)]
struct Memory {
    /// It held the lease in this run of its server, which did not end before that by itself.
    held: Option<(u64, Timestamp)>,
    /// An unread answer to an acquire that was followed by a renewal whose answer is unread, too.
    acquire: Option<Late>,
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
    pub(crate) kind: &'a dyn Kind,
    pub(crate) ticket: &'a Ticket,
    pub(crate) count: u32,
    pub(crate) ttl: Duration,
    pub(crate) block_end: u64,
}

impl Foothold {
    /// What is known of a single node, where nothing need be remembered.
    pub(super) fn asked(acquires: Acquires, source: Source) -> Self {
        Self { acquires, source, confirmed_at: Timestamp::default(), memory: None }
    }

    /// What an acquire left on a node.
    pub(super) fn granted(
        vote: Vote<Answer>,
        acquires: Acquires,
        sent_at: Timestamp,
        ttl: Duration,
        now: Timestamp,
        alone: bool,
    ) -> Self {
        let mut foothold = Self::asked(acquires, vote.source());
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

    /// Takes in the only node's answer to a renewal: it has the lease. Answers may be looked at in another order than they came.
    pub(crate) fn confirmed(&mut self, renewal: &Renewal) {
        if renewal.sent_at() >= self.confirmed_at {
            self.source = renewal.source();
            self.confirmed_at = renewal.sent_at();
        }
    }

    /// Returns true if the only node has confirmed the lease since it was sent `renewal`, or by the answer to that.
    pub(crate) fn was_confirmed_since(&self, renewal: &Renewal) -> bool {
        renewal.sent_at() <= self.confirmed_at
    }

    /// Returns the only server, in the run and with the history in which it confirmed the lease last.
    pub(crate) fn source(&self) -> Source {
        self.source
    }

    /// Takes in that the lease is put back on the only node.
    pub(crate) fn reclaimed(&mut self, reclaim: &Renewal) {
        let sent_on = reclaim.round.votes.first().and_then(Vote::sent_on);
        self.acquires = self.acquires.and(sent_on);
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

    /// The node said so too, to what was sent then, and nobody looked at that until now. If the lease may have ended there
    /// since, that says nothing.
    fn confirm_late(&mut self, late: &Late, ttl: Duration, now: Timestamp) {
        if now < late.sent_at.plus(ttl) {
            self.confirm(late.sent.run, ttl, now);
        }
    }

    /// Whether it was taken away from the node, which did not hold it at `asked_at`.
    fn was_cleared(&self, run: u64, asked_at: Timestamp) -> bool {
        let held = self.memory.as_ref().and_then(|memory| memory.held);
        held.is_some_and(|(held_in, until)| held_in == run && asked_at < until)
    }

    /// Takes in a late answer, if it is there. Whether the lease is missing and to be put back.
    pub(crate) fn look(&mut self, node: &Site, heal: &Heal<'_>, now: Timestamp) -> bool {
        self.look_at_acquire(heal, now);
        let Some(mut late) = self.memory.as_mut().and_then(|memory| memory.late.take()) else {
            return false;
        };
        let Some(answer) = at_hand(&mut late.sent) else {
            if now.since(late.sent_at) < heal.quorum.patience(heal.ttl) {
                self.memory().late = Some(late);
            } else {
                node.unanswered(late.sent.generation, late.sent_at, now);
            }
            return false;
        };
        node.note_answer(late.sent.generation, &answer);
        match (late.asked, answer) {
            (Asked::Acquire, Ok(reply)) => {
                let answer = read(&reply, |reply| heal.kind.read_acquire(reply));
                if matches!(answer, Ok(Answer::Granted { .. })) {
                    self.confirm_late(&late, heal.ttl, now);
                }
                false
            }
            (Asked::Renewal(ttl), Ok(reply)) => {
                match read(&reply, |reply| heal.kind.read_renew(reply)) {
                    // It may stand for the acquire's own answer, which nobody looked at: the node has that for longer.
                    Ok(true) => self.confirm_late(&late, ttl.max(heal.ttl), now),
                    Ok(false) => return !self.was_cleared(late.sent.run, late.sent_at),
                    Err(_) => {}
                }
                false
            }
            // It did not run. An acquire is made up for by a heal, which is sent whole.
            (Asked::Acquire, Err(Fault::NoScript)) => true,
            (Asked::Renewal(ttl), Err(Fault::NoScript)) => {
                let call = heal.kind.renew(&heal.ticket.id, heal.count, ttl);
                if let Ok(sent) = node.send_durable_whole(&call) {
                    let asked = Asked::Renewal(ttl);
                    let again = Late { sent, sent_at: now, asked, _behind: None };
                    self.memory().late = Some(again);
                }
                false
            }
            (_, Err(_)) => false,
        }
    }

    /// Takes in the answer to an acquire that a renewal followed. It comes before that of the renewal, and says whether
    /// the node had what the renewal may have missed.
    fn look_at_acquire(&mut self, heal: &Heal<'_>, now: Timestamp) {
        let Some(mut late) = self.memory.as_mut().and_then(|memory| memory.acquire.take()) else {
            return;
        };
        match at_hand(&mut late.sent) {
            Some(Ok(reply)) => {
                let answer = read(&reply, |reply| heal.kind.read_acquire(reply));
                if matches!(answer, Ok(Answer::Granted { .. })) {
                    self.confirm_late(&late, heal.ttl, now);
                }
            }
            Some(Err(_)) => {}
            None => self.memory().acquire = Some(late),
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
                let before = memory.late.replace(Late { sent, sent_at, asked, _behind: None });
                let is_acquire = |late: &Late| matches!(late.asked, Asked::Acquire);
                memory.acquire = before.filter(is_acquire).or(memory.acquire.take());
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
    pub(crate) fn heal(&mut self, node: &Site, heal: &Heal<'_>, now: Timestamp) -> bool {
        // What holds the lock reserves nothing.
        let ticket = Ticket { entry: None, ..heal.ticket.clone() };
        let acquire = heal.kind.acquire(&ticket, heal.ttl, 0);
        // Whole: nobody waits for the answer, to send it again if its script is not known.
        let Ok(sent) = node.send_durable_whole(&acquire) else { return false };
        self.acquires = self.acquires.and(Some(sent.generation));
        // Of no use where the lease was refused, and then it does nothing.
        let behind = node.send_whole(&heal.kind.raise(&heal.ticket.id, heal.block_end)).ok();
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
mod tests;
