//! One call put to all nodes at once, and their answers as they come.
//!
//! Nothing is spawned: whoever waits for a round polls it. What has not been answered when the round is decided
//! goes on by itself, on its connection; see `lease/` for what is made of it.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;

use super::tally::{Tally, Verdict};
use crate::clock::{Clock, Timestamp};
use crate::error::Fault;
use crate::fleet::{Path, Site, Step};
use crate::node::{Epoch, Form, Generation, Sent, Source, member_of};
use crate::script::{Call, Reply};

/// As many as there are nodes: one in most clients, and then nothing is allocated.
pub(crate) type PerNode<T> = SmallVec<[T; 1]>;

/// A call to every node.
pub(crate) struct Round<T> {
    pub(crate) call: Call,
    /// Before the first sending.
    pub(crate) sent_at: Timestamp,
    pub(crate) votes: PerNode<Vote<T>>,
    /// What has not been answered was waited for in vain.
    timed_out: bool,
}

/// One node's part in a round.
pub(crate) struct Vote<T> {
    /// Until it is answered.
    pub(crate) sent: Option<Sent>,
    /// How it was sent last.
    path: Path,
    /// When it is sent again, because the last sending did not run, and why not.
    waiting: Option<(Timestamp, Fault)>,
    pub(crate) answer: Option<Result<T, Fault>>,
    /// The connection it was sent on last, if it was sent.
    sent_on: Option<Generation>,
    /// When it was sent last.
    last_sent_at: Timestamp,
    was_sent_again: bool,
    /// What was sent before the last sending may have run in part.
    may_have_run: bool,
    /// Which run of its server answers it.
    pub(crate) run: u64,
    /// The mailbox's subscription when it was sent.
    pub(crate) epoch: Option<Epoch>,
    /// A grant of this server counts.
    pub(crate) counts: bool,
}

impl<T> Vote<T> {
    pub(crate) fn of(sent: Result<Sent, Fault>, form: Form, sent_at: Timestamp) -> Self {
        let path = Path::of(form);
        let mut vote = Self {
            sent: None,
            path,
            waiting: None,
            answer: None,
            sent_on: None,
            last_sent_at: sent_at,
            was_sent_again: false,
            may_have_run: false,
            run: 0,
            epoch: None,
            counts: false,
        };
        vote.send(sent, sent_at);
        vote
    }

    fn send(&mut self, sent: Result<Sent, Fault>, sent_at: Timestamp) {
        match sent {
            Ok(sent) => {
                self.sent_on = Some(sent.generation);
                self.last_sent_at = sent_at;
                self.run = sent.run;
                self.epoch = sent.epoch;
                self.counts = sent.counts_from <= sent_at;
                self.sent = Some(sent);
            }
            Err(fault) => self.answer = Some(Err(fault)),
        }
    }

    /// Answered without being asked.
    pub(crate) fn known(answer: T) -> Self {
        Self {
            sent: None,
            path: Path::default(),
            waiting: None,
            answer: Some(Ok(answer)),
            sent_on: None,
            last_sent_at: Timestamp::default(),
            was_sent_again: false,
            may_have_run: false,
            run: 0,
            epoch: None,
            counts: true,
        }
    }

    /// Returns the part that one of several had in this, with its own answer.
    pub(crate) fn part<U>(&self, answer: Result<U, Fault>) -> Vote<U> {
        Vote {
            sent: None,
            path: Path::default(),
            waiting: None,
            answer: Some(answer),
            sent_on: self.sent_on,
            last_sent_at: self.last_sent_at,
            was_sent_again: self.was_sent_again,
            may_have_run: self.may_have_run,
            run: self.run,
            epoch: None,
            counts: self.counts,
        }
    }

    /// What the node answered, if it did.
    pub(crate) fn value(&self) -> Option<&T> {
        self.answer.as_ref()?.as_ref().ok()
    }

    /// The connection it was sent on last, if it was sent.
    pub(crate) fn sent_on(&self) -> Option<Generation> {
        self.sent_on
    }

    /// Returns the server that it was sent to last.
    pub(crate) fn source(&self) -> Source {
        Source { member: self.sent_on.map_or(0, member_of), run: self.run }
    }

    /// Returns true if it did not run when it was sent first.
    pub(crate) fn was_sent_again(&self) -> bool {
        self.was_sent_again
    }

    /// Returns true if it failed, and may have run all the same when it was sent last or before.
    pub(crate) fn may_have_run(&self) -> bool {
        matches!(&self.answer, Some(Err(fault)) if self.may_have_run || fault.may_have_run())
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.sent.is_some() || self.waiting.is_some()
    }

    /// Sends it on its path.
    fn send_again<R, A>(&mut self, site: &Site, call: &Call, rules: &Rules<'_, R, A>)
    where
        A: Fn(&Site, &Call, &Path) -> Result<Sent, Fault>,
    {
        let now = rules.clock.now();
        self.was_sent_again = true;
        match (rules.again)(site, call, &self.path) {
            // Without a connection, or behind another call that asks whether the cluster is down still, it may be sent later.
            Err(fault) if matches!(fault, Fault::Down(_)) || fault.is_cluster_down() => {
                self.came_to(fault, site, call, now);
            }
            sent => self.send(sent, now),
        }
    }

    /// The last sending had no usable answer. Returns true if it is to be sent again at once.
    fn came_to(&mut self, fault: Fault, site: &Site, call: &Call, now: Timestamp) -> bool {
        self.may_have_run |= fault.may_have_run();
        match site.after(&fault, &self.path, call) {
            Step::Send(path) => {
                self.path = path;
                return true;
            }
            Step::Wait(path, pause) => {
                self.path = path;
                self.waiting = Some((now.plus(pause), fault));
            }
            Step::Stop => self.answer = Some(Err(fault)),
        }
        false
    }
}

/// How a round is conducted.
pub(crate) struct Rules<'a, R, A> {
    pub(crate) sites: &'a [Site],
    pub(crate) clock: &'a Clock,
    /// When the rest is not waited for any more.
    pub(crate) until: Timestamp,
    pub(crate) read: R,
    /// Sends a call again that did not run, if that is wanted still.
    pub(crate) again: A,
}

impl<T> Round<T> {
    /// Puts `call` to all sites.
    pub(crate) fn send(sites: &[Site], clock: &Clock, call: Call) -> Self {
        Self::send_where(sites, clock, call, |_| None)
    }

    /// Puts `call` to all sites: it lengthens what they granted.
    pub(crate) fn renew(sites: &[Site], clock: &Clock, call: Call) -> Self {
        Self::send_with(sites, clock, call, |_| None, Form::DURABLE)
    }

    /// Puts `call` to all sites: it puts back what they granted.
    pub(crate) fn reclaim(sites: &[Site], clock: &Clock, call: Call) -> Self {
        Self::send_with(sites, clock, call, |_| None, Form { whole: true, ..Form::VOTE })
    }

    /// Puts `call` to all sites, for their votes: it may grant something.
    pub(crate) fn elect(sites: &[Site], clock: &Clock, call: Call) -> Self {
        Self::send_with(sites, clock, call, |_| None, Form::VOTE)
    }

    /// Puts `call` to the sites whose answer is not known.
    pub(crate) fn send_where(
        sites: &[Site],
        clock: &Clock,
        call: Call,
        known: impl Fn(usize) -> Option<T>,
    ) -> Self {
        Self::send_with(sites, clock, call, known, Form::PLAIN)
    }

    fn send_with(
        sites: &[Site],
        clock: &Clock,
        call: Call,
        known: impl Fn(usize) -> Option<T>,
        form: Form,
    ) -> Self {
        let sent_at = clock.now();
        let vote = |(index, site): (usize, &Site)| match known(index) {
            Some(answer) => Vote::known(answer),
            None => Vote::of(site.send_as(&call, form), form, sent_at),
        };
        Self {
            votes: sites.iter().enumerate().map(vote).collect(),
            call,
            sent_at,
            timed_out: false,
        }
    }

    /// Returns the part that one of several had in a call that was decided, with its own answers.
    pub(crate) fn part<U: Clone>(&self, answer: &Result<U, Fault>) -> Round<U> {
        let call = Call { script: self.call.script, keys: Vec::new(), args: Vec::new() };
        let votes = self.votes.iter().map(|vote| vote.part(answer.clone())).collect();
        Round { call, sent_at: self.sent_at, votes, timed_out: self.timed_out }
    }

    /// The causes of those that gave no usable answer, by node; `silent` is that of those that had their time.
    pub(crate) fn faults(&self, silent: &Fault) -> impl Iterator<Item = (usize, Fault)> {
        self.votes.iter().enumerate().filter_map(move |(index, vote)| match &vote.answer {
            Some(Ok(_)) => None,
            Some(Err(fault)) => Some((index, fault.clone())),
            None => self.timed_out.then(|| (index, silent.clone())),
        })
    }

    /// Takes in answers until `decide` knows, which is asked after each of them, and a last time with `true`
    /// when no more are waited for.
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn settle<V, R, A>(
        &mut self,
        rules: Rules<'_, R, A>,
        mut decide: impl FnMut(&[Vote<T>], bool) -> Option<V>,
    ) -> Option<V>
    where
        R: Fn(&Reply) -> Option<T>,
        A: Fn(&Site, &Call, &Path) -> Result<Sent, Fault>,
    {
        let mut until = rules.until;
        loop {
            let due_at = self.due_at();
            let decided = poll_fn(|cx| {
                self.poll(cx, &rules);
                match decide(&self.votes, !self.votes.iter().any(Vote::is_pending)) {
                    Some(verdict) => Poll::Ready(Some(verdict)),
                    // The timer must be set to another time.
                    None if self.due_at() != due_at => Poll::Ready(None),
                    None => Poll::Pending,
                }
            });
            match rules.clock.until(due_at.min(until), decided).await {
                Some(Some(verdict)) => return Some(verdict),
                None if rules.clock.is_stopped() => break,
                None if rules.clock.now() >= until => match until_read(until, &rules) {
                    Some(later) => until = later,
                    None => break,
                },
                _ => {}
            }
        }
        self.timed_out = true;
        for (site, vote) in rules.sites.iter().zip(&mut self.votes) {
            if let Some(sent) = &vote.sent {
                site.unanswered(sent.generation, vote.last_sent_at, rules.until);
            }
            if let Some((_, fault)) = vote.waiting.take() {
                vote.answer = Some(Err(fault));
            }
        }
        decide(&self.votes, true)
    }

    /// When a call is sent again that did not run.
    fn due_at(&self) -> Timestamp {
        let waiting = self.votes.iter().filter_map(|vote| Some(vote.waiting.as_ref()?.0));
        waiting.min().unwrap_or(Timestamp::NEVER)
    }

    fn poll<R, A>(&mut self, cx: &mut Context<'_>, rules: &Rules<'_, R, A>)
    where
        R: Fn(&Reply) -> Option<T>,
        A: Fn(&Site, &Call, &Path) -> Result<Sent, Fault>,
    {
        for (site, vote) in rules.sites.iter().zip(&mut self.votes) {
            if vote.waiting.as_ref().is_some_and(|(at, _)| *at <= rules.clock.now()) {
                vote.waiting = None;
                vote.send_again(site, &self.call, rules);
            }
            while let Some(sent) = &mut vote.sent {
                let Poll::Ready(answer) = Pin::new(&mut *sent).poll(cx) else { break };
                let (now, generation) = (rules.clock.now(), sent.generation);
                site.note_answer(generation, &answer);
                vote.sent = None;
                match answer {
                    Ok(reply) => {
                        site.note_round_trip(generation, vote.last_sent_at, now);
                        vote.answer = Some(read(&reply, &rules.read));
                    }
                    // It did not run. The time of the first sending stays: it is the earlier one.
                    Err(fault) => {
                        if vote.came_to(fault, site, &self.call, now) {
                            vote.send_again(site, &self.call, rules);
                        }
                    }
                }
            }
        }
    }
}

impl<T> Round<T> {
    /// What the answers come to, where `yes` says what each of them means.
    pub(crate) fn tally(votes: &[Vote<T>], yes: impl Fn(&T) -> bool) -> Tally {
        let mut tally = Tally::default();
        for vote in votes {
            *match &vote.answer {
                Some(Ok(answer)) if yes(answer) => &mut tally.yes,
                Some(Ok(_)) => &mut tally.no,
                Some(Err(_)) => &mut tally.failed,
                None => &mut tally.pending,
            } += 1;
        }
        tally
    }

    /// As [`settle`](Self::settle), by a majority of those that `yes` says mean it.
    pub(crate) async fn verdict<R, A>(
        &mut self,
        rules: Rules<'_, R, A>,
        yes: impl Fn(&T) -> bool,
    ) -> Verdict
    where
        R: Fn(&Reply) -> Option<T>,
        A: Fn(&Site, &Call, &Path) -> Result<Sent, Fault>,
    {
        let decide = |votes: &[Vote<T>], over| Self::tally(votes, &yes).verdict(over);
        self.settle(rules, decide).await.unwrap_or(Verdict::Unknown)
    }
}

/// Returns how much longer answers are waited for, if their time was over while this process stood still: those that came
/// meanwhile have not been read yet.
fn until_read<R, A>(until: Timestamp, rules: &Rules<'_, R, A>) -> Option<Timestamp> {
    let now = rules.clock.now();
    (until == rules.until && now.since(until) >= STOOD_STILL).then(|| now.plus(STOOD_STILL))
}

/// A timer is late by so much only if the process stood still, or did nothing else.
const STOOD_STILL: Duration = Duration::from_millis(50);

pub(crate) fn read<T>(reply: &Reply, reader: impl Fn(&Reply) -> Option<T>) -> Result<T, Fault> {
    reader(reply).ok_or_else(|| Fault::Unexpected(format!("{reply:?}").into()))
}

#[cfg(test)]
mod tests;
