//! An acquire, from sending to a majority's answer.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::foothold::Acquires;
use super::queued::{Queued, note_server_time};
use super::release::Undo;
use super::votes::{count, counted_end, may_have_it, refusal, standing};
use super::{Foothold, Grant, Quorum, fence};
use crate::clock::Timestamp;
use crate::config::drift;
use crate::engine::backoff::Count;
use crate::engine::kind::{Answer, Kind, Refusal, Ticket};
use crate::engine::round::{PerNode, Round, Vote};
use crate::engine::tally::Verdict;
use crate::error::Fault;
use crate::fleet::Site;
use crate::key::LeaseId;
use crate::node::{Epoch, Inbox, MailedGrant};
use crate::script::Reply;

/// A request for a lock, from its first acquire to a grant. It may ask again only while it waits in a server's queue.
/// Dropped before a grant is taken from it, it is released, and so leaves the queue, and reserves nothing any more (invariant 5).
pub(crate) struct Attempt {
    undo: Undo,
    block: u64,
    asks: u32,
    /// The longest end that was asked of the servers.
    ends_by: Timestamp,
    /// The mailbox's subscription when it was asked last.
    asked_in: Option<Epoch>,
    /// `None`: it does not queue.
    queued: Option<Queued>,
}

/// What has to be found out before a grant counts.
pub(crate) type Beside = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

/// The answer to an ask.
pub(crate) enum Outcome {
    Granted(Grant),
    Refused(Refusal, Count),
}

impl Quorum {
    /// Begins a request, of which the servers know nothing yet. If it `queues`, the server puts it into its queue if the
    /// lock is not free. Several servers, which have none, keep others out for it if the kind says so.
    pub(crate) fn attempt(
        self: &Arc<Self>,
        kind: &Arc<dyn Kind>,
        id: LeaseId,
        ttl: Duration,
        block: u64,
        queues: bool,
    ) -> Attempt {
        let nowhere = self.sites.iter().map(|_| Acquires::None).collect();
        let queued = self.queue().filter(|_| queues).map(|node| Queued::at(node, &id));
        let entry = match &queued {
            Some(queued) => Some(queued.entry(&id, ttl, block)),
            None => (queues && kind.reserves()).then(|| id.0.clone()),
        };
        let ticket = Ticket { id, entry, by_message: false };
        let mut undo = Undo::new(self, kind, ticket, ttl, nowhere);
        undo.queued = queued.is_some();
        Attempt { undo, block, asks: 0, ends_by: Timestamp::default(), asked_in: None, queued }
    }

    /// Whether a majority is connected, its grants count, and no node has told of other masters.
    pub(crate) fn check_electorate(&self) -> Result<(), Fault> {
        let now = self.clock.now();
        let barred = |(index, site): (usize, &Site)| Some((index, site.bar(now)?));
        let mut barred = self.sites.iter().enumerate().filter_map(barred).peekable();
        if barred.peek().is_none() {
            return Ok(());
        }
        let barred: PerNode<(usize, Fault)> = barred.collect();
        // Of what it says that other servers are, a majority may be without the rest of ours.
        let is_other = |fault: &&Fault| matches!(fault, Fault::OtherMasters(_));
        if let Some(other) = barred.iter().map(|(_, fault)| fault).find(is_other) {
            return Err(other.clone());
        }
        if self.sites.len() - barred.len() >= self.majority() {
            return Ok(());
        }
        Err(self.no_majority(barred.into_iter()))
    }
}

impl Attempt {
    pub(crate) fn id(&self) -> &LeaseId {
        &self.undo.ticket.id
    }

    /// If it is dropped, what it may have got stays taken for so long at most.
    pub(crate) fn keep(&mut self, keep: Duration) {
        self.undo.keep = keep;
    }

    /// Has the letters about it delivered there, with those that have arrived already.
    pub(crate) fn deliver_to(&mut self, inbox: &Inbox) {
        if let Some(queued) = &mut self.queued {
            queued.registration.move_to(inbox);
        }
    }

    /// Returns the number of the node, in its cluster, whose queue it is for.
    pub(crate) fn queued_at(&self) -> Option<u32> {
        self.queued.as_ref().map(|queued| queued.node.number())
    }

    /// Returns true if a server's queue may have an entry for it, or several may keep others out.
    pub(crate) fn may_be_queued(&self) -> bool {
        self.undo.ticket.entry.is_some() && self.asks > 0
    }

    /// Returns the mailbox's subscription at the last ask.
    pub(crate) fn asked_in(&self) -> Option<Epoch> {
        self.asked_in
    }

    /// Asks the servers as soon as a majority is connected, and waits for the answer until `until`. A grant counts only once
    /// that has succeeded, too, which `beside` begins: it does so behind the ask, so what it sends runs after that.
    /// `so_far` learns who has it if a majority has answered, and the others may still grant it.
    ///
    /// # Cancel safety
    ///
    /// The acquire may run although the future was dropped. Dropping the attempt releases what it took.
    pub(crate) async fn ask(
        &mut self,
        until: Timestamp,
        beside: impl Fn() -> Option<Beside>,
        so_far: impl Fn(&Refusal),
    ) -> Result<Outcome, Fault> {
        let quorum = self.undo.quorum.clone();
        let before = self.undo.acquires.clone();
        let mut waited = false;
        let mut round = loop {
            match self.send() {
                // While a cluster is down, others may have been faster with what it is asked.
                Err(fault) if fault.may_pass() && (!waited || fault.is_cluster_down()) => {
                    waited = true;
                    quorum.up(until).await?;
                }
                sent => break sent?,
            }
        };
        let mut checked = beside();
        let kind = self.undo.kind.clone();
        let rules = quorum.rules(until, |reply: &Reply| kind.read_acquire(reply));
        let elect = |votes: &[Vote<Answer>], over| {
            let election = count(votes);
            let verdict = election.verdict(over);
            if verdict.is_none() && election.verdict(true) == Some(Verdict::No) {
                votes.iter().find_map(refusal).inspect(|refusal| so_far(refusal));
            }
            verdict
        };
        let verdict = round.settle(rules, elect).await;
        // A script that was not known may have gone out again on a newer connection.
        self.note_sent(before, &round);
        let reserves = !quorum.has_queue() && self.undo.ticket.entry.is_some();
        let gives_back = reserves && round.votes.iter().any(|vote| may_have_it(vote, false));
        let outcome = match verdict {
            Some(Verdict::Yes) => {
                if round.votes.iter().any(Vote::was_sent_again) {
                    checked = beside();
                }
                self.granted(round, &quorum, until, checked).await.map(Outcome::Granted)
            }
            Some(Verdict::No) => Ok(self.refused(&round, &quorum)),
            Some(Verdict::Unknown) | None => Err(self.failed(&round, &quorum, until)),
        };
        if gives_back && !matches!(outcome, Ok(Outcome::Granted(_))) {
            self.give_back();
        }
        outcome
    }

    /// Gives back at once what a request that goes on waiting was granted. What it reserved is so until it is dropped.
    fn give_back(&self) {
        let Undo { quorum, kind, ticket, ttl, acquires, .. } = &self.undo;
        let ticket = Ticket { entry: None, ..ticket.clone() };
        drop(Undo::new(quorum, kind, ticket, *ttl, acquires.clone()));
    }

    /// Sends an acquire, if a majority could grant it.
    fn send(&mut self) -> Result<Round<Answer>, Fault> {
        let Undo { quorum, kind, ticket, ttl, .. } = &self.undo;
        quorum.check_electorate()?;
        let call = kind.acquire(ticket, *ttl, self.block);
        // Read before the call is sent: the answer then comes after that subscription was confirmed.
        let epoch = self.queued.as_ref().and_then(|queued| queued.node.mailbox().epoch());
        let round = Round::elect(&quorum.sites, &quorum.clock, call);
        if !round.votes.iter().any(Vote::is_pending) {
            return Err(quorum.no_majority(round.faults(&Fault::Closed)));
        }
        self.ends_by = round.sent_at.plus(*ttl);
        self.asked_in = epoch;
        self.asks += 1;
        if let Some(queued) = &mut self.queued {
            queued.asked();
        }
        self.note_sent(self.undo.acquires.clone(), &round);
        Ok(round)
    }

    /// Notes on which connections the acquires may run: those of the asks before, and those of this one.
    fn note_sent(&mut self, before: PerNode<Acquires>, round: &Round<Answer>) {
        let sent = round.votes.iter().map(Vote::sent_on);
        self.undo.acquires = before.into_iter().zip(sent).map(|(one, on)| one.and(on)).collect();
    }

    /// Takes the lock as a message has granted it. `None`: the grant must be confirmed by another ask before anybody
    /// uses it, because it may be outdated, the time when it began is not known, too little of it is left, or more must be
    /// true of the server for a grant to count.
    ///
    /// The deadline counts from a time that is certainly before the grant (invariant 2).
    pub(crate) fn take_up(&mut self, mailed: &MailedGrant, fixed: bool) -> Option<Grant> {
        let quorum = self.undo.quorum.clone();
        let queued = self.queued.as_mut()?;
        queued.told = Some((mailed.block_end, mailed.before));
        if queued.may_be_outdated(mailed) {
            return None;
        }
        let node = &queued.node;
        let now = quorum.clock.now();
        let began_at = node.not_before(mailed)?;
        let (lasts, ttl) = (mailed.ttl, self.undo.ttl);
        let deadline = began_at.plus(lasts).minus(drift(lasts));
        // A letter that arrives before it was written shows that the server's clock was set forward.
        let stepped = mailed.received_at < began_at;
        let enough = (lasts / 2).max(quorum.config.min_validity);
        let short = deadline.since(now) < enough || (fixed && lasts < ttl);
        // A message does not say whether the server was demoted and promoted since the last ask, nor whether its replicas
        // know of the grant.
        let counts = node.bar(now).is_none() && !node.checks_grants() && quorum.config.synced == 0;
        if stepped || short || !counts {
            return None;
        }
        self.undo.kind.enclosed(&mailed.id, mailed.enclosed.as_deref());
        let acquires = std::mem::take(&mut self.undo.acquires);
        Some(Grant {
            ticket: Ticket { by_message: true, ..self.undo.ticket.clone() },
            ttl,
            lasts,
            began_at,
            passes_from: Grant::passes_from(began_at, mailed.received_at),
            deadline,
            ends_by: self.ends_by,
            block: self.block,
            block_end: mailed.block_end,
            before: mailed.before,
            footholds: acquires
                .into_iter()
                .map(|one| Foothold::asked(one, node.source()))
                .collect(),
        })
    }

    async fn granted(
        &mut self,
        mut round: Round<Answer>,
        quorum: &Quorum,
        until: Timestamp,
        beside: Option<Beside>,
    ) -> Result<Grant, Fault> {
        let (block_end, tokens_from) = loop {
            let ends = round.votes.iter().map(counted_end).collect();
            let tokens_from = quorum.tokens_from(&ends);
            let (undo, block) = (&self.undo, self.block);
            match quorum.fence(undo, block, ends, tokens_from, round.sent_at, until).await {
                Ok(block_end) => break (block_end, tokens_from),
                // A node that could not be raised is not needed if one grants that has not answered yet.
                Err(_) if self.another_grants(&mut round, quorum, until).await => {}
                Err(fault) => return Err(fault),
            }
        };
        // Before anything is taken from the attempt: until then, dropping it gives back the lock.
        if let Some(beside) = beside {
            let silence = || Err(quorum.silence(until.since(round.sent_at)));
            quorum.clock.until(until, beside).await.unwrap_or_else(silence)?;
        }
        let told = self.queued.as_ref().and_then(|queued| queued.told(block_end));
        let granting = round.votes.iter().filter(|vote| counted_end(vote).is_some());
        let named = granting.map(|vote| vote.value()?.before().or(told.flatten()));
        let before = fence::before(named, tokens_from);
        let now = quorum.clock.now();
        let (began_at, ttl) = (round.sent_at, self.undo.ttl);
        let deadline = began_at.plus(ttl).minus(drift(ttl));
        if deadline <= now.plus(quorum.config.min_validity) {
            let late = Fault::NoAnswer(now.since(began_at));
            return Err(
                quorum.no_majority((0..quorum.sites.len()).map(|node| (node, late.clone())))
            );
        }
        let alone = quorum.is_one();
        let acquires = std::mem::take(&mut self.undo.acquires);
        let foothold =
            |(vote, acquires)| Foothold::granted(vote, acquires, began_at, ttl, now, alone);
        Ok(Grant {
            ticket: Ticket { by_message: told.is_some(), ..self.undo.ticket.clone() },
            ttl,
            lasts: ttl,
            began_at,
            passes_from: began_at,
            deadline,
            ends_by: self.ends_by,
            block: self.block,
            block_end,
            before,
            footholds: round.votes.into_iter().zip(acquires).map(foothold).collect(),
        })
    }

    /// Waits for the answers that are still to come, until one of them grants. Returns false if none does.
    async fn another_grants(
        &mut self,
        round: &mut Round<Answer>,
        quorum: &Quorum,
        until: Timestamp,
    ) -> bool {
        let granting = |votes: &[Vote<Answer>]| votes.iter().filter_map(counted_end).count();
        let before = granting(&round.votes);
        let kind = self.undo.kind.clone();
        let rules = quorum.rules(until, |reply: &Reply| kind.read_acquire(reply));
        let more = |votes: &[Vote<Answer>], over: bool| match granting(votes) > before {
            true => Some(true),
            false => over.then_some(false),
        };
        let grants = round.settle(rules, more).await.unwrap_or(false);
        self.note_sent(self.undo.acquires.clone(), round);
        grants
    }

    fn refused(&mut self, round: &Round<Answer>, quorum: &Quorum) -> Outcome {
        let now = quorum.clock.now();
        let votes = &round.votes;
        if let ([site], [vote]) = (&*quorum.sites, &**votes) {
            note_server_time(site, vote, round.sent_at);
        }
        let nodes = votes.iter().zip(&quorum.sites);
        let nodes = nodes.map(|(vote, site)| standing(vote, || site.counts_from(), now)).collect();
        let refusals: PerNode<&Refusal> = votes.iter().filter_map(refusal).collect();
        let times = |one: &Refusal| {
            refusals.iter().filter(|other| other.holder.is_one_with(&one.holder)).count()
        };
        // What another ask of this client was granted is given back, so it is the reason only if there is no other.
        let is_other = |one: &Refusal| one.holder.client() != Some(&*quorum.config.name);
        let leading = refusals.iter().max_by_key(|one| (times(one), is_other(one), one.remaining));
        let leading: &Refusal = leading.expect("BUG: refused by nobody");
        if let (Some(queued), Some(queue)) = (&mut self.queued, &leading.queue) {
            queued.refused(queue.server_us);
        }
        let split = times(leading) < quorum.majority();
        let subscribers = refusals.iter().map(|refusal| refusal.subscribers).max().unwrap_or(0);
        let refusal = Refusal { subscribers, ..leading.clone() };
        self.disarm_if_nowhere(round);
        Outcome::Refused(refusal, Count { nodes, split })
    }

    fn failed(&mut self, round: &Round<Answer>, quorum: &Quorum, until: Timestamp) -> Fault {
        let silence = quorum.silence(until.since(round.sent_at));
        let now = quorum.clock.now();
        let void = |(_, vote): &(usize, &Vote<Answer>)| {
            !vote.counts && matches!(vote.value(), Some(Answer::Granted { .. }))
        };
        let left = |index: usize| quorum.sites[index].counts_from().since(now);
        let void = round.votes.iter().enumerate().filter(void);
        let void = void.map(|(index, _)| (index, Fault::Quarantined(left(index))));
        let failures = round.faults(&silence);
        let mut failures: PerNode<(usize, Fault)> = failures.chain(void).collect();
        failures.sort_by_key(|(node, _)| *node);
        self.disarm_if_nowhere(round);
        quorum.no_majority(failures.into_iter())
    }

    /// If no node can have granted or queued it, there is nothing to release; otherwise it is released on all.
    fn disarm_if_nowhere(&mut self, round: &Round<Answer>) {
        let queues = self.undo.ticket.entry.is_some();
        if self.asks == 1 && !round.votes.iter().any(|vote| may_have_it(vote, queues)) {
            self.undo.disarm();
        }
    }
}
