//! How the waiters of this process wait in the queue of one server: what the [`Machine`] decides is done here.
//!
//! A release by anybody grants the lock to the first request of the queue, and writes so to the mailbox of its client.
//! `place.rs` says when to ask all the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Gate;
use super::asks::{Asked, Asks, Heard, Request};
use super::machine::{Action, Answer, Machine, Mail, News, Now};
use super::situation::Situation;
use super::state::Begun;
use super::wait_list::Seeker;
use crate::clock::Timestamp;
use crate::config::LeaseTerms;
use crate::engine::backoff;
use crate::engine::kind::Refusal;
use crate::engine::place::HeldBy;
use crate::engine::quorum::{Attempt, ChannelListener, Outcome};
use crate::events::QueueCounts;
use crate::key::LeaseId;
use crate::node::{Inbox, Letter, MailedGrant};

pub(super) struct Queueing {
    gate: Arc<Gate>,
    machine: Machine<Letter>,
    /// The requests that wait, by their numbers. The others ask.
    requests: BTreeMap<u64, Request>,
    /// For whom a request stands, and its number.
    by_id: BTreeMap<LeaseId, (Seeker, u64)>,
    /// The number of the node with the queue, in its cluster.
    at: Option<u32>,
    /// Where the letters about all requests arrive.
    inbox: Option<Inbox>,
    /// Hears of the releases of another library's client.
    channel: Option<ChannelListener>,
}

impl Queueing {
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        // Known from the beginning, since a move ends a pause: a newcomer may stand back before it asks anything.
        let queue = gate.quorum.queue();
        Self {
            machine: Machine::default(),
            requests: BTreeMap::new(),
            by_id: BTreeMap::new(),
            at: queue.as_ref().map(|node| node.number()),
            inbox: queue.map(|node| node.mailbox().inbox()),
            channel: None,
            gate,
        }
    }

    /// Learns how the gate stands. A request for nobody leaves the queue.
    pub(super) fn look(&mut self, situation: &mut Situation) {
        self.follow_the_queue();
        if situation.stand_back.is_some() {
            self.machine.stand_back(self.now());
        }
        if let Some(begun) = situation.begun.take() {
            self.take_over(*begun);
        }
        // While a lease passes from one to the next here, the next ordinary waiter is likely soon.
        if situation.ordinary.is_some() || !situation.passes_on {
            let form = situation.ordinary.as_ref().map(|wanted| wanted.form());
            let dropped = self.machine.want(Seeker::Ordinary, form);
            self.perform(dropped);
        }
        for (seeker, wanted) in situation.fair.drain(..) {
            let dropped = self.machine.want(seeker, wanted.map(|wanted| wanted.form()));
            self.perform(dropped);
        }
        if situation.hurried {
            self.machine.hurry();
        }
        // What is told on the channel at other times is our own release.
        if !self.machine.watches_channel() || !situation.listens {
            self.channel = None;
        } else if self.channel.is_none() {
            self.channel = Some(self.gate.quorum.listen_on(&self.gate.channel));
        }
    }

    /// An entry in the queue of a node that had the lock before names a mailbox there.
    fn follow_the_queue(&mut self) {
        let queue = self.gate.quorum.queue();
        let at = queue.as_ref().map(|node| node.number());
        if at != self.at {
            self.at = at;
            self.channel = None;
            self.inbox = queue.map(|node| node.mailbox().inbox());
            let dropped = self.machine.moved();
            self.perform(dropped);
        }
    }

    /// Takes over from a caller of this process that asked before there was a driver.
    fn take_over(&mut self, begun: Begun) {
        let Begun { mut attempt, seeker, wanted, refusal } = begun;
        let Some(inbox) = self.inbox.as_ref().filter(|_| attempt.queued_at() == self.at) else {
            return;
        };
        attempt.deliver_to(inbox);
        let answer = match refusal {
            Some(refusal) => self.refused(&refusal, &attempt),
            None => Answer::Failed { pause: self.gate.failure_pause(0) },
        };
        let begun = self.machine.begun(seeker, wanted.form(), answer, self.now());
        let Some((number, dropped)) = begun else { return };
        self.perform(dropped);
        self.by_id.insert(attempt.id().clone(), (seeker, number));
        self.requests.insert(number, Request { attempt, wanted });
    }

    /// Nobody waits any more: all requests leave the queue.
    pub(super) fn clear(&mut self) {
        self.machine.clear();
        self.requests.clear();
        self.by_id.clear();
        self.channel = None;
    }

    pub(super) fn asks_at(&self, situation: &Situation) -> Timestamp {
        self.machine.asks_at(situation.allowed)
    }

    /// Has all ask whose time has come.
    pub(super) fn ask(&mut self, situation: &Situation, asks: &mut Asks) {
        let now = self.gate.engine.clock.now();
        while let Some((seeker, number)) = self.machine.ask(situation.allowed, now) {
            let Some(claim) = self.gate.claim_for(seeker) else {
                self.machine.not_asked(seeker, now);
                return;
            };
            let request = self.requests.remove(&number).unwrap_or_else(|| {
                let mut attempt = claim.queueing_attempt();
                if let Some(inbox) = &self.inbox {
                    attempt.deliver_to(inbox);
                }
                self.by_id.insert(attempt.id().clone(), (seeker, number));
                Request { attempt, wanted: claim.wanted.clone() }
            });
            asks.push(claim, seeker, number, request);
        }
    }

    pub(super) fn answered(&mut self, asked: Asked) {
        let Asked { request, claim, seeker, number, answer } = asked;
        let attempt = &request.attempt;
        let wanted = self.machine.is_wanted(seeker, number);
        let counts = request.wanted.side.counts_grants();
        let (told, keeps) = match &answer {
            Ok(Outcome::Granted(_)) => (Answer::Granted, false),
            Ok(Outcome::Refused(refusal, _)) => (self.refused(refusal, attempt), true),
            Err(fault) => {
                let pause = self.gate.pause_after(fault, self.machine.failures());
                // Before the end of a quarantine it would be granted in vain.
                let leaves = counts && fault.quarantine().is_some();
                (Answer::Failed { pause }, fault.may_pass() && attempt.may_be_queued() && !leaves)
            }
        };
        if wanted && matches!(told, Answer::Granted) && self.machine.is_confirming(seeker) {
            self.counts().grants_confirmed.fetch_add(1, Ordering::Relaxed);
        }
        if wanted && keeps {
            self.requests.insert(number, request);
        } else {
            self.by_id.remove(attempt.id());
            drop(request);
        }
        let then = if wanted { self.machine.answered(seeker, told, self.now()) } else { None };
        match answer {
            Ok(Outcome::Granted(grant)) => claim.granted_to(seeker, grant),
            Ok(Outcome::Refused(refusal, _)) => claim.refused(refusal),
            Err(fault) if fault.may_pass() => claim.failed(&fault, true),
            Err(fault) => {
                drop(claim);
                self.gate.fail_all(&fault);
            }
        }
        self.perform(then);
    }

    fn refused(&self, refusal: &Refusal, attempt: &Attempt) -> Answer {
        self.gate.quorum.open_mailbox();
        Answer::Refused {
            ahead: refusal.queue.as_ref().and_then(|queue| queue.ahead),
            held_by: HeldBy { remaining: refusal.remaining, foreign: refusal.is_foreign() },
            asked_in: attempt.asked_in(),
        }
    }

    /// Waits until something is heard. Dropping the future loses nothing.
    pub(super) async fn listen(&self) -> Heard {
        let letter = async {
            match &self.inbox {
                Some(inbox) => inbox.next().await,
                None => std::future::pending().await,
            }
        };
        let released = async {
            match &self.channel {
                Some(channel) => channel.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            letter = letter => Heard::Letter(letter),
            (node, _) = released => Heard::Release { node },
            () = self.gate.quorum.queue_moved_from(self.at.unwrap_or(0)) => Heard::Moved,
        }
    }

    pub(super) fn take_in(&mut self, heard: Heard) {
        match heard {
            Heard::Letter(Letter::Subscribed) => self.machine.subscribed(self.now()),
            Heard::Letter(letter) => {
                let about = letter.id().and_then(|id| self.by_id.get(id)).copied();
                let Some((seeker, number)) = about else { return };
                if self.machine.is_wanted(seeker, number) {
                    let action = self.machine.letter(seeker, letter, self.now());
                    self.perform(action);
                }
            }
            Heard::Release { .. } => self.machine.released(),
            // Seen at the next look.
            Heard::Moved => {}
        }
    }

    fn perform(&mut self, actions: impl IntoIterator<Item = Action<Letter>>) {
        for action in actions {
            match action {
                Action::Drop { number } => {
                    if let Some(request) = self.requests.remove(&number) {
                        self.by_id.remove(request.attempt.id());
                    }
                }
                Action::TakeUp { seeker, number, grant } => self.take_up(seeker, number, &grant),
                Action::Succeeded { by } => {
                    let now = self.gate.engine.clock.now();
                    self.gate.update(|state, _| state.succeeded_by(by, now));
                    self.gate.look_for_circles();
                }
            }
        }
    }

    fn take_up(&mut self, seeker: Seeker, number: u64, mailed: &MailedGrant) {
        let Some(mut request) = self.requests.remove(&number) else { return };
        let fixed = matches!(request.wanted.terms.lease, LeaseTerms::Fixed(_));
        self.counts().grants_by_message.fetch_add(1, Ordering::Relaxed);
        // Only an ask finds out whether the lease is still there that a grant would be shared with.
        let shares = self.gate.shares(&*request.wanted.side);
        let grant = if shares { None } else { request.attempt.take_up(mailed, fixed) };
        let Some(grant) = grant else {
            if request.wanted.side.counts_grants() && self.is_barred() {
                // Dropped, it is given back. The seeker asks anew, under another id.
                self.by_id.remove(request.attempt.id());
                self.counts().grants_given_back.fetch_add(1, Ordering::Relaxed);
                self.machine.given_back(seeker);
            } else {
                self.requests.insert(number, request);
                self.machine.confirm(seeker);
                if !shares {
                    self.doubt_hold();
                }
            }
            return;
        };
        self.by_id.remove(request.attempt.id());
        self.machine.taken_up(seeker);
        self.gate.seat_seeker(grant, seeker, &request.wanted, None);
    }

    /// Asks about the lease that is in use here: the server grants the lock only when that has ended. An ordinary request does not
    /// ask before it is known to be lost.
    fn doubt_hold(&self) {
        let Some(hold) = self.gate.current_hold() else { return };
        let watchdog = &self.gate.engine.watchdog;
        let doubted = hold.lease.hurry(self.gate.engine.clock.now());
        if let Some(question) = doubted.question {
            watchdog.adopt_count(&hold.lease, question);
        }
        watchdog.watch(&hold.lease);
    }

    /// Returns true while grants do not count, since the server may have forgotten others.
    fn is_barred(&self) -> bool {
        self.gate.quorum.check_electorate().is_err_and(|fault| fault.quarantine().is_some())
    }

    fn counts(&self) -> &QueueCounts {
        &self.gate.quorum.events().queue
    }

    fn now(&self) -> Now {
        let quorum = &self.gate.quorum;
        Now {
            at: self.gate.engine.clock.now(),
            poll: self.gate.poll_pause(),
            moment: backoff::unit(quorum.round_trip()),
            epoch: quorum.queue().and_then(|node| node.mailbox().epoch()),
        }
    }
}

impl Mail for Letter {
    type Grant = MailedGrant;
    type Holder = Refusal;

    fn read(self) -> News<MailedGrant, Refusal> {
        match self {
            Letter::Grant(grant) => News::Granted(grant),
            Letter::Next { remaining, holder, .. } => {
                let holder = Refusal::of(holder, remaining);
                News::Next { held_by: HeldBy { remaining, foreign: holder.is_foreign() }, holder }
            }
            Letter::Free { .. } => News::Free,
            Letter::Subscribed => News::Subscribed,
        }
    }
}
