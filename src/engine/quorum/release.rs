//! A release, from sending to a majority's answer, and what is owed when nobody waits for it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::oneshot;

use super::foothold::Acquires;
use super::renewal::{is_overwritten, standing};
use super::{Foothold, Quorum};
use crate::clock::Timestamp;
use crate::engine::kind::{Kind, Released, Ticket};
use crate::engine::round::{PerNode, Round, Vote, read};
use crate::engine::tally::Verdict;
use crate::error::Fault;
use crate::fleet::Site;
use crate::key::LeaseId;
use crate::node::{Detour, FirstWord, Generation, PendingRelease, Sent, Source, member_of};
use crate::script::Reply;

/// What must be released on the nodes, unless it is disarmed.
pub(super) struct Undo {
    pub(super) quorum: Arc<Quorum>,
    pub(super) kind: Arc<dyn Kind>,
    pub(super) ticket: Ticket,
    pub(super) ttl: Duration,
    /// For how long at most the lock stays taken; zero: it is freed at once.
    pub(super) keep: Duration,
    /// It may stand in a server's queue.
    pub(super) queued: bool,
    /// Where the lease may be.
    pub(super) acquires: PerNode<Acquires>,
}

impl Undo {
    pub(super) fn new(
        quorum: &Arc<Quorum>,
        kind: &Arc<dyn Kind>,
        ticket: Ticket,
        ttl: Duration,
        acquires: PerNode<Acquires>,
    ) -> Self {
        let (quorum, kind) = (quorum.clone(), kind.clone());
        Self { quorum, kind, ticket, ttl, keep: Duration::ZERO, queued: false, acquires }
    }

    pub(super) fn disarm(&mut self) {
        self.acquires.fill(Acquires::None);
    }

    /// Leaves the release on one node to that node. `sent` is its first sending, if there was one; `first` is told
    /// the answer to the first one otherwise.
    fn owe(&mut self, index: usize, sent: Option<Sent>, first: Option<oneshot::Sender<FirstWord>>) {
        let Some(acquires) = self.acquires.get_mut(index) else { return };
        let acquired_on = match std::mem::take(acquires) {
            Acquires::None => return,
            Acquires::On(generation) => Some(generation),
            Acquires::OnSeveral => None,
        };
        let release = PendingRelease {
            call: self.kind.release(&self.ticket, self.keep),
            acquired_on,
            ttl: self.ttl,
            until: self.quorum.clock.now().plus(self.ttl),
            repeats: 0,
            first,
            queued: self.queued,
            detour: Detour::default(),
        };
        self.quorum.sites[index].leave_release(self.ticket.id.clone(), release, sent);
    }

    /// Leaves the release on one node to that node, where none has run. Returns what is told the answer to the first sending.
    fn owe_first(&mut self, index: usize) -> oneshot::Receiver<FirstWord> {
        let (first, told) = oneshot::channel();
        self.owe(index, None, Some(first));
        told
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        for index in 0..self.acquires.len() {
            self.owe(index, None, None);
        }
        Site::say_farewell(&self.quorum.sites);
    }
}

/// A release on its way. Dropped before its answers it goes on by itself: it stays owed.
pub(crate) struct Release {
    round: Round<Released>,
    undo: Undo,
    /// Which nodes are known to have had the lease.
    had: PerNode<bool>,
    /// What the nodes will say that could not be asked yet.
    first: PerNode<Option<oneshot::Receiver<FirstWord>>>,
    /// The only server, in the run and with the history in which it confirmed the lease last.
    confirmed_by: Option<Source>,
}

impl Quorum {
    /// Sends a release to all nodes. Those that cannot be asked now owe it from here on. With a `keep` that is not
    /// zero the lock stays taken for so long at most.
    pub(crate) fn release(
        self: &Arc<Self>,
        kind: &Arc<dyn Kind>,
        ticket: Ticket,
        ttl: Duration,
        keep: Duration,
        footholds: &[Foothold],
    ) -> Release {
        let call = kind.release(&ticket, keep);
        let acquires = footholds.iter().map(Foothold::acquires).collect();
        let nowhere = |node: usize| {
            let was_asked = footholds[node].acquires() != Acquires::None;
            (!was_asked).then_some(Released { held: false, receivers: 0, passed_over: 0 })
        };
        let round = Round::send_where(&self.sites, &self.clock, call, nowhere);
        let mut undo = Undo::new(self, kind, ticket, ttl, acquires);
        undo.keep = keep;
        let owe = |(index, vote): (usize, &Vote<Released>)| {
            if vote.sent_on().is_some() {
                return None;
            }
            Some(undo.owe_first(index))
        };
        let first = round.votes.iter().enumerate().map(owe).collect();
        let confirmed_by = match footholds {
            [foothold] => Some(foothold.source()),
            _ => None,
        };
        let had = footholds.iter().map(Foothold::had).collect();
        Release { round, undo, had, first, confirmed_by }
    }
}

impl Release {
    /// The servers' answer. Without one within the time the release stays owed.
    pub(crate) async fn answer(mut self, within: Duration) -> Result<Released, Fault> {
        let quorum = self.undo.quorum.clone();
        let until = quorum.clock.now().plus(within);
        let kind = self.undo.kind.clone();
        let read = |reply: &Reply| kind.read_release(reply);
        let soon = until.min(self.round.sent_at.plus(grace(quorum.round_trip())));
        let rules = quorum.rules(if quorum.is_one() { until } else { soon }, read);
        let mut verdict = self.round.verdict(rules, |released| released.held).await;
        if verdict == Verdict::Unknown && !quorum.is_one() && self.is_free(&quorum) {
            verdict = Verdict::Yes;
        } else if verdict == Verdict::Unknown && quorum.clock.now() < until {
            verdict = self.round.verdict(quorum.rules(until, read), |released| released.held).await;
        }
        let (mut receivers, mut passed_over) = (0, 0);
        for released in self.round.votes.iter().filter_map(|vote| vote.value()) {
            receivers = released.receivers.max(receivers);
            passed_over += released.passed_over;
        }
        let held = match verdict {
            Verdict::Yes => true,
            Verdict::No => {
                let vote = self.round.votes.first();
                let answered = vote.and_then(|vote| Some((vote.sent_on()?, vote.run)));
                let is_forgotten =
                    |(on, run)| is_forgotten(&*kind, self.confirmed_by, &quorum, (on, run), until);
                answered.is_some_and(is_forgotten)
            }
            Verdict::Unknown => {
                let fault = quorum.no_majority(self.round.faults(&quorum.silence(within)));
                if !fault.may_pass() {
                    return Err(fault);
                }
                match self.settled(&quorum, until).await {
                    Some(held) => held,
                    None => return Err(fault),
                }
            }
        };
        Ok(Released { held, receivers, passed_over })
    }

    /// Waits, until `until`, for nodes that owe the release. Whether a majority had the lease, once that is certain.
    async fn settled(mut self, quorum: &Quorum, until: Timestamp) -> Option<bool> {
        let id = self.undo.ticket.id.clone();
        let kind = self.undo.kind.clone();
        let confirmed_by = self.confirmed_by;
        let mut tally = standing(&self.round.votes, |released| released.held);
        tally.pending += std::mem::take(&mut tally.failed);
        let mut settling = FuturesUnordered::new();
        for (index, site) in quorum.sites.iter().enumerate() {
            let vote = &self.round.votes[index];
            if vote.value().is_none() && !is_overwritten(vote) {
                if vote.sent_on().is_some() && !vote.is_pending() && !vote.may_have_run() {
                    // It was refused: what is sent next is the first that runs.
                    self.first[index] = Some(self.undo.owe_first(index));
                }
                let first = self.first[index].take();
                let may_lack = !quorum.is_one() && !self.had[index];
                let (id, kind) = (&id, &*kind);
                settling.push(async move {
                    let had = match settled(site, first, id, until).await? {
                        // Which one of several sendings freed the lock cannot be told: nothing speaks for a loss. But if it had
                        // to do more than that, it has done so only on the server that had the lease.
                        None if !kind.may_be_forgotten() && !is_same(site, confirmed_by) => {
                            return None;
                        }
                        None => true,
                        Some(FirstWord { reply, on, run }) => {
                            read(&reply, |reply| kind.read_release(reply)).is_ok_and(|it| it.held)
                                || is_forgotten(kind, confirmed_by, quorum, (on, run), until)
                        }
                    };
                    Some(had || may_lack)
                });
            }
        }
        // What was not answered is now owed by the nodes.
        drop(self);
        loop {
            match tally.verdict(false) {
                Some(Verdict::Yes) => return Some(true),
                Some(Verdict::No) => return Some(false),
                Some(Verdict::Unknown) => return None,
                None => {}
            }
            *match settling.next().await? {
                Some(true) => &mut tally.yes,
                Some(false) => &mut tally.no,
                None => &mut tally.failed,
            } += 1;
            tally.pending -= 1;
        }
    }

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
                self.undo.owe(index, vote.sent.take(), None);
            }
        }
        self.undo.disarm();
    }
}

/// How long the slower nodes are waited for before it is asked whether they are needed.
fn grace(round_trip: Duration) -> Duration {
    (round_trip * 10).max(Duration::from_millis(5))
}

/// Whether the only server, which answered on connection `on` in its run `run` that it does not have the lease, has
/// forgotten it, and that counts as a release: another server, or another history, confirmed it last, and no grant to others
/// counts here yet. Then nobody has had the lock since, and it was ours until its release. `until` is not after its deadline.
fn is_forgotten(
    kind: &dyn Kind,
    confirmed_by: Option<Source>,
    quorum: &Quorum,
    (on, run): (Generation, u64),
    until: Timestamp,
) -> bool {
    let ([site], Some(confirmed_by)) = (&*quorum.sites, confirmed_by) else { return false };
    let now = quorum.clock.now();
    let answered_by = Source { member: member_of(on), run };
    kind.may_be_forgotten()
        && confirmed_by != answered_by
        && now < until
        && site.reclaims(on, run, now)
}

/// Whether the only server is the one that confirmed the lease last, in the same run and with the same history.
fn is_same(site: &Site, confirmed_by: Option<Source>) -> bool {
    site.node().is_some_and(|node| Some(node.source()) == confirmed_by)
}

/// Waits until the site owes the release of `id` no more. Returns its answer to the first sending, if there was only one;
/// `None` if it still owes it. The lease had not ended when the release was first asked for.
async fn settled(
    site: &Site,
    first: Option<oneshot::Receiver<FirstWord>>,
    id: &LeaseId,
    until: Timestamp,
) -> Option<Option<FirstWord>> {
    if !site.released(id, until).await {
        return None;
    }
    Some(first.and_then(|mut first| first.try_recv().ok()))
}
