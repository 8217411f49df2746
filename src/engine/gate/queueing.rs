//! How the waiters of this process wait in the queue of one server.
//!
//! One request stands there for all ordinary waiters, and one for each waiter of a fair handle. A release by anybody
//! grants the lock to the first request of the queue, and writes so to the mailbox of its client. `place.rs` says when to
//! ask all the same.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Gate;
use super::driver::Heard;
use super::state::Begun;
use super::wait_list::Seeker;
use crate::clock::Timestamp;
use crate::config::LeaseTerms;
use crate::engine::backoff;
use crate::engine::kind::{Refusal, Wanted};
use crate::engine::place::{HeldBy, Place};
use crate::engine::quorum::{Attempt, ChannelListener, Outcome, first_of};
use crate::events::QueueCounts;
use crate::node::{Letter, MailedGrant};

pub(super) struct Queueing {
    gate: Arc<Gate>,
    /// The number of the node with the queue, in its cluster.
    at: Option<u32>,
    /// For whom to ask.
    seekers: Vec<(Seeker, Wanted)>,
    requests: Vec<Request>,
    /// Hears of the releases of another library's client.
    channel: Option<ChannelListener>,
    /// Nothing is asked before.
    pause_until: Timestamp,
    /// Asks in a row without a usable answer.
    failures: u32,
}

/// A request that stands in the queue, or is about to.
struct Request {
    attempt: Attempt,
    seeker: Seeker,
    wanted: Wanted,
    place: Place,
    /// A grant by message has to be confirmed.
    confirming: bool,
}

impl Request {
    fn of(Begun { attempt, seeker, wanted }: Begun) -> Self {
        Self { attempt, seeker, wanted, place: Place::unknown(), confirming: false }
    }
}

impl Queueing {
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        // Known from the beginning, since a move ends a pause: a newcomer may stand back before it asks anything.
        let at = gate.quorum.queue().map(|node| node.number());
        Self {
            gate,
            at,
            seekers: Vec::new(),
            requests: Vec::new(),
            channel: None,
            pause_until: Timestamp::default(),
            failures: 0,
        }
    }

    /// No waiter of a fair handle is left, and the ordinary ones do not ask.
    pub(super) fn rest(&mut self) {
        self.requests.retain(|request| request.seeker == Seeker::Ordinary);
        self.channel = None;
    }

    /// What is told on the channel now is our own release.
    pub(super) fn hold_off(&mut self) {
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

    /// A request for nobody leaves the queue. So does one for another side, or on other terms, than what the first ordinary
    /// waiter wants, who could not use its lease: it begins anew, at the end. And so does one in the queue of a node that had
    /// the lock before: its entry names a mailbox there.
    pub(super) fn serve(&mut self, seekers: Vec<(Seeker, Wanted)>) {
        let at = self.gate.quorum.queue().map(|node| node.number());
        if at != self.at {
            self.at = at;
            self.channel = None;
            // Whatever kept the node before from granting is no reason here.
            self.pause_until = Timestamp::default();
        }
        self.requests.retain(|request| {
            if request.attempt.queued_at() != at {
                return false;
            }
            let mut fitting =
                seekers.iter().filter(|(_, wanted)| wanted.is_served_by(&request.wanted));
            fitting.any(|(seeker, _)| *seeker == request.seeker)
        });
        self.seekers = seekers;
        self.listen_if_foreign();
    }

    pub(super) fn ask_at(&self) -> Timestamp {
        let times = self.seekers.iter().map(|(seeker, _)| self.asks_for_at(*seeker));
        times.min().unwrap_or(Timestamp::NEVER)
    }

    fn asks_for_at(&self, seeker: Seeker) -> Timestamp {
        let request = self.requests.iter().find(|request| request.seeker == seeker);
        let Some(request) = request else { return self.pause_until };
        let epoch = self.gate.quorum.queue().and_then(|node| node.mailbox().epoch());
        // What was written before the mailbox was subscribed may be lost, and the request passed over.
        let missed = epoch.is_some() && epoch != request.attempt.asked_in();
        let at = if missed { Timestamp::default() } else { request.place.ask_at() };
        at.max(self.pause_until)
    }

    pub(super) async fn ask(&mut self) {
        let next = self.seekers.iter().map(|(seeker, _)| *seeker);
        let Some(seeker) = next.min_by_key(|seeker| self.asks_for_at(*seeker)) else { return };
        let Some(claim) = self.gate.claim_for(seeker) else { return };
        let mut request = self.take(|request| request.seeker == seeker).unwrap_or_else(|| {
            let attempt = claim.queueing_attempt();
            Request::of(Begun { attempt, seeker, wanted: claim.wanted.clone() })
        });
        match claim.ask(&mut request.attempt, Timestamp::NEVER).await {
            Ok(Outcome::Granted(grant)) => {
                self.failures = 0;
                if request.confirming {
                    self.counts().grants_confirmed.fetch_add(1, Ordering::Relaxed);
                }
                claim.granted_to(seeker, grant);
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
                // Nothing is granted before the end of a quarantine, and everything may be from then on.
                let pause = || self.gate.failure_pause(self.failures);
                self.pause_until = self.now().plus(fault.quarantine().unwrap_or_else(pause));
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

    pub(super) async fn listen(&self) -> Heard {
        let letter = first_of(self.requests.iter().map(|request| request.attempt.letter()));
        let released = async {
            match &self.channel {
                Some(channel) => channel.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            (about, letter) = letter => Heard::Letter { about, letter },
            (node, _) = released => Heard::Release { node },
            () = self.gate.quorum.queue_moved_from(self.at.unwrap_or(0)) => Heard::Moved,
        }
    }

    pub(super) fn released(&mut self) {
        let watching = self.requests.iter_mut().filter(|request| request.place.watches_channel());
        watching.for_each(|request| request.place.ask_now());
    }

    /// Takes in a letter about the request at `at`.
    pub(super) fn read(&mut self, at: usize, letter: Letter) {
        let now = self.now();
        let poll = self.gate.poll_pause();
        let mut request = self.requests.swap_remove(at);
        match letter {
            // It is asked again at once, see `ask_at`.
            Letter::Subscribed => {}
            Letter::Grant(grant) => return self.granted(request, &grant),
            Letter::Next { remaining, holder, .. } => {
                let refusal = Refusal::of(holder, remaining);
                let foreign = refusal.is_foreign();
                request.place.first(HeldBy { remaining, foreign }, now, poll);
                self.gate.update(|state, _| state.succeeded_by(refusal, now));
            }
            Letter::Free { .. } => {
                let moment = backoff::unit(self.gate.quorum.round_trip());
                request.place.free(now, moment);
            }
        }
        self.keep(request);
    }

    fn granted(&mut self, mut request: Request, mailed: &MailedGrant) {
        let fixed = matches!(request.wanted.terms.lease, LeaseTerms::Fixed(_));
        self.counts().grants_by_message.fetch_add(1, Ordering::Relaxed);
        // Only an ask finds out whether the lease is still there that a grant would be shared with.
        let shares = self.gate.shares(&*request.wanted.side);
        let grant = if shares { None } else { request.attempt.take_up(mailed, fixed) };
        let Some(grant) = grant else {
            request.place.ask_now();
            request.confirming = true;
            self.keep(request);
            return;
        };
        self.gate.seat_seeker(grant, request.seeker, &request.wanted, None);
        self.listen_if_foreign();
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

    fn take(&mut self, which: impl Fn(&Request) -> bool) -> Option<Request> {
        let at = self.requests.iter().position(which)?;
        Some(self.requests.swap_remove(at))
    }

    fn keep(&mut self, request: Request) {
        self.requests.push(request);
        self.listen_if_foreign();
    }

    fn listen_if_foreign(&mut self) {
        if !self.requests.iter().any(|request| request.place.watches_channel()) {
            self.channel = None;
        } else if self.channel.is_none() {
            self.channel = Some(self.gate.quorum.listen_on(&self.gate.channel));
        }
    }

    fn counts(&self) -> &QueueCounts {
        &self.gate.quorum.events().queue
    }

    fn now(&self) -> Timestamp {
        self.gate.engine.clock.now()
    }
}
