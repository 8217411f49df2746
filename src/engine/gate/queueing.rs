//! How the waiters of this process wait in the queue of one server.
//!
//! One request stands there for all of them. A release by anybody grants the lock to the first request of the queue, and
//! writes so to the mailbox of its client. `place.rs` says when to ask all the same.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Gate;
use super::state::Begun;
use crate::clock::Timestamp;
use crate::config::{LeaseTerms, Terms};
use crate::engine::backoff;
use crate::engine::kind::Refusal;
use crate::engine::place::{HeldBy, Place};
use crate::engine::quorum::{Attempt, ChannelListener, Outcome};
use crate::error::LossReason;
use crate::events::QueueCounts;
use crate::node::{Letter, MailedGrant};

pub(super) struct Queueing {
    gate: Arc<Gate>,
    request: Option<Request>,
    /// Hears of the releases of another library's client.
    channel: Option<ChannelListener>,
    /// Nothing is asked before.
    pause_until: Timestamp,
    /// Asks in a row without a usable answer.
    failures: u32,
}

/// The request that stands in the queue for the waiters of this process.
struct Request {
    attempt: Attempt,
    terms: Terms,
    place: Place,
    /// A grant by message has to be confirmed.
    confirming: bool,
}

impl Request {
    fn of(Begun { attempt, terms }: Begun) -> Self {
        Self { attempt, terms, place: Place::unknown(), confirming: false }
    }
}

impl Queueing {
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        Self { gate, request: None, channel: None, pause_until: Timestamp::default(), failures: 0 }
    }

    pub(super) fn rest(&mut self) {
        self.channel = None;
    }

    /// Another library's waiters learned of our release, and have a moment to ask.
    pub(super) fn stand_back(&mut self) {
        let moment = backoff::unit(self.gate.quorum.round_trip());
        self.pause_until = self.now().plus(moment);
    }

    pub(super) fn take_over(&mut self, begun: Begun, refusal: Option<Refusal>) {
        let mut request = Request::of(begun);
        match refusal {
            Some(refusal) => self.refused(&mut request, &refusal),
            None => request.place.failed(self.now(), self.gate.failure_pause(self.failures)),
        }
        self.keep(request);
    }

    pub(super) fn ask_at(&self) -> Timestamp {
        let Some(request) = &self.request else { return self.pause_until };
        let epoch = self.gate.quorum.queue().and_then(|node| node.mailbox().epoch());
        // What was written before the mailbox was subscribed may be lost, and the request passed over.
        let missed = epoch.is_some() && epoch != request.attempt.asked_in();
        let at = if missed { Timestamp::default() } else { request.place.ask_at() };
        at.max(self.pause_until)
    }

    pub(super) async fn ask(&mut self) {
        let Some(claim) = self.gate.claim_for_waiters() else { return };
        // A lease on other terms is of no use to the first waiter: then its request begins anew, at the end.
        let fits = |request: &Request| request.terms.lease == claim.terms.lease;
        let standing = self.request.take().filter(fits);
        let begin = || Request::of(Begun { attempt: claim.queueing_attempt(), terms: claim.terms });
        let mut request = standing.unwrap_or_else(begin);
        match claim.ask(&mut request.attempt, Timestamp::NEVER).await {
            Ok(Outcome::Granted(grant)) => {
                self.failures = 0;
                self.channel = None;
                if request.confirming {
                    self.counts().grants_confirmed.fetch_add(1, Ordering::Relaxed);
                }
                claim.granted_to_waiters(grant);
                // The new holder comes before the driver's own affairs.
                tokio::task::yield_now().await;
            }
            Ok(Outcome::Refused(refusal, _)) => {
                self.failures = 0;
                self.refused(&mut request, &refusal);
                self.keep(request);
                claim.refused(refusal);
            }
            Err(fault) if fault.may_pass() => {
                self.pause_until = self.now().plus(self.gate.failure_pause(self.failures));
                self.failures += 1;
                if request.attempt.may_be_queued() {
                    self.keep(request);
                }
                claim.failed(&fault, true);
                self.gate.fail_unanswered();
            }
            Err(fault) => {
                drop((claim, request));
                self.gate.fail_all(&fault);
            }
        }
    }

    pub(super) async fn listen(&mut self) {
        let letter = async {
            match &self.request {
                Some(request) => request.attempt.letter().await,
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
            letter = letter => self.read(letter),
            // A release, or the subscription, before which a release may have been missed.
            _ = released => {
                if let Some(request) = &mut self.request {
                    request.place.ask_now();
                }
            }
        }
    }

    fn read(&mut self, letter: Letter) {
        let now = self.now();
        let poll = self.gate.poll_pause();
        let Some(request) = &mut self.request else { return };
        match letter {
            // It is asked again at once, see `ask_at`.
            Letter::Subscribed => {}
            Letter::Grant(grant) => self.granted(&grant),
            Letter::Next { remaining, holder, .. } => {
                let refusal = Refusal::of(holder, remaining);
                let foreign = refusal.is_foreign();
                request.place.first(HeldBy { remaining, foreign }, now, poll);
                self.gate.update(|state, _| state.succeeded_by(refusal, now));
                self.listen_if_foreign();
            }
            Letter::Free { .. } => {
                let moment = backoff::unit(self.gate.quorum.round_trip());
                request.place.free(now, moment);
                self.listen_if_foreign();
            }
        }
    }

    fn granted(&mut self, mailed: &MailedGrant) {
        let Some(mut request) = self.request.take() else { return };
        let fixed = matches!(request.terms.lease, LeaseTerms::Fixed(_));
        self.counts().grants_by_message.fetch_add(1, Ordering::Relaxed);
        let Some(grant) = request.attempt.take_up(mailed, fixed) else {
            request.place.ask_now();
            request.confirming = true;
            self.keep(request);
            return;
        };
        self.channel = None;
        // The server gives a lock away only when the last lease has ended there.
        if let Some(hold) = self.gate.current_hold() {
            hold.lease.lose(LossReason::Gone);
            self.gate.notice_loss();
        }
        self.gate.seat_first(grant, request.terms, |_| ());
    }

    fn refused(&self, request: &mut Request, refusal: &Refusal) {
        let (now, poll) = (self.now(), self.gate.poll_pause());
        let held_by = HeldBy { remaining: refusal.remaining, foreign: refusal.is_foreign() };
        request.confirming = false;
        match refusal.queue.as_ref().and_then(|queue| queue.ahead) {
            Some(1..) => request.place.behind(now, poll),
            // A full server may have no place for it: then nothing but its own timer wakes it.
            Some(0) | None => request.place.first(held_by, now, poll),
        }
        self.gate.quorum.open_mailbox();
    }

    fn keep(&mut self, request: Request) {
        self.request = Some(request);
        self.listen_if_foreign();
    }

    fn listen_if_foreign(&mut self) {
        if !self.request.as_ref().is_some_and(|request| request.place.watches_channel()) {
            self.channel = None;
        } else if self.channel.is_none() {
            self.channel = Some(self.gate.quorum.listen(&*self.gate.kind));
        }
    }

    fn counts(&self) -> &QueueCounts {
        &self.gate.quorum.events().queue
    }

    fn now(&self) -> Timestamp {
        self.gate.engine.clock.now()
    }
}
