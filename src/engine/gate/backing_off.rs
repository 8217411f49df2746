//! How the waiters of this process contend for a lock over several servers, which share no order.
//!
//! They listen on the lock's channel on each server, and ask when a majority can be free, after a random time. Of a kind
//! whose requests reserve the lock (a writer's, against new readers), the one that was refused last is kept until the next
//! one was answered, or nobody waits for it any more: dropping it ends the reservation.

use std::sync::Arc;
use std::time::Duration;

use super::Gate;
use super::asks::{Asked, Asks, Heard, Request};
use super::machine::Allowed;
use super::situation::Situation;
use super::state::Begun;
use super::wait_list::Seeker;
use crate::clock::Timestamp;
use crate::engine::backoff::{self, Backoff, Count};
use crate::engine::kind::{Refusal, Wanted};
use crate::engine::quorum::{Attempt, ChannelListener, Outcome};

pub(super) struct BackingOff {
    gate: Arc<Gate>,
    backoff: Backoff,
    listener: Option<ChannelListener>,
    ask_at: Timestamp,
    /// How long after a majority can be free to ask: drawn once for each ask.
    delay: Duration,
    /// Asks in a row without a usable answer.
    failures: u32,
    /// An ask is on its way. What is heard meanwhile is taken in behind the answer, which it may be newer than.
    asks: bool,
    /// Somebody wants the answer to a later ask than the one on its way.
    asks_again: bool,
    /// The refused request that reserves the lock.
    reserving: Option<Begun>,
}

impl BackingOff {
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        Self {
            backoff: Backoff::new(gate.quorum.sites().len()),
            gate,
            listener: None,
            ask_at: Timestamp::default(),
            delay: Duration::ZERO,
            failures: 0,
            asks: false,
            asks_again: false,
            reserving: None,
        }
    }

    /// Learns how the gate stands.
    pub(super) fn look(&mut self, situation: &mut Situation) {
        let begun = situation.begun.take();
        if situation.rests {
            // The lock is in use here: what was known of others is out of date by the time it matters, and nobody needs what
            // a request of its own reserves.
            self.hold_off();
            self.reserving = None;
            return;
        }
        if let Some(begun) = begun {
            self.reserving = Some(*begun);
        }
        if situation.allowed == Allowed::Nobody {
            // Known is only that we have just released the lock.
            self.hold_off();
            return;
        }
        if let Some(others) = situation.stand_back {
            self.stand_back(others);
        }
        // Somebody asked before there was a driver: listen first, then ask again.
        if let (None, Some(refusal)) = (&self.listener, &situation.refusal) {
            self.refused(refusal, None);
        }
        self.serve(situation.ordinary.as_ref());
        if situation.hurried {
            self.ask_at = Timestamp::default();
            self.asks_again = self.asks;
        }
    }

    /// Nobody waits any more, and the asks are given up.
    pub(super) fn clear(&mut self) {
        self.hold_off();
        self.reserving = None;
        (self.asks, self.asks_again) = (false, false);
    }

    /// What is known of the servers is out of date, but somebody waits still.
    fn hold_off(&mut self) {
        self.listener = None;
        self.ask_at = Timestamp::default();
    }

    /// A request that nobody waits for any more reserves nothing. Then the next one is asked for at once.
    fn serve(&mut self, wanted: Option<&Wanted>) {
        let Some(begun) = &self.reserving else { return };
        if wanted.is_none_or(|wanted| wanted.side.side() != begun.wanted.side.side()) {
            self.reserving = None;
            self.ask_at = Timestamp::default();
        }
    }

    fn stand_back(&mut self, others: u32) {
        let now = self.now();
        self.ask_at = now.plus(self.gate.poll_pause());
        self.backoff.released(others);
        self.draw();
        self.plan(now.plus(backoff::unit(self.gate.quorum.round_trip())));
        self.subscribe();
    }

    pub(super) fn asks_at(&self, situation: &Situation) -> Timestamp {
        let asks = situation.allowed == Allowed::All && situation.ordinary.is_some();
        if asks { self.ask_at } else { Timestamp::NEVER }
    }

    pub(super) fn ask(&mut self, situation: &Situation, asks: &mut Asks) {
        if self.asks_at(situation) > self.now() {
            return;
        }
        let Some(claim) = self.gate.claim_for(Seeker::Ordinary) else { return };
        let attempt = claim.waiting_attempt();
        let request = Request { attempt, wanted: claim.wanted.clone() };
        asks.push(claim, Seeker::Ordinary, 0, request);
        self.asks = true;
    }

    pub(super) fn answered(&mut self, asked: Asked) {
        self.asks = false;
        let asks_again = std::mem::take(&mut self.asks_again);
        let Asked { request, claim, answer, .. } = asked;
        match answer {
            Ok(Outcome::Granted(grant)) => {
                self.failures = 0;
                drop(request);
                claim.granted_to(Seeker::Ordinary, grant);
                self.reserving = None;
            }
            Ok(Outcome::Refused(refusal, count)) => {
                self.failures = 0;
                self.reserve(request.attempt, request.wanted);
                self.refused(&refusal, Some(&count));
                if asks_again {
                    self.ask_at = Timestamp::default();
                }
                claim.refused(refusal);
            }
            Err(fault) if fault.may_pass() => {
                drop(request);
                self.ask_at = self.now().plus(self.gate.pause_after(&fault, self.failures));
                self.failures += 1;
                claim.failed(&fault, true);
            }
            Err(fault) => {
                drop((request, claim));
                self.gate.fail_all(&fault);
            }
        }
    }

    /// Keeps a refused request if it reserves the lock, in the place of the one before. Otherwise it is over.
    fn reserve(&mut self, attempt: Attempt, wanted: Wanted) {
        let reserves = attempt.may_be_queued();
        let seeker = Seeker::Ordinary;
        self.reserving = reserves.then_some(Begun { attempt, seeker, wanted, refusal: None });
    }

    pub(super) async fn listen(&self) -> Heard {
        let listener = self.listener.as_ref().filter(|_| !self.asks);
        let Some(listener) = listener else { return std::future::pending().await };
        let (node, _) = listener.next().await;
        Heard::Release { node }
    }

    pub(super) fn take_in(&mut self, heard: Heard) {
        let Heard::Release { node } = heard else { return };
        let counts_from = self.gate.quorum.sites()[node].counts_from();
        let now = self.now();
        if self.backoff.freed(node, counts_from, now) {
            self.plan(now);
        }
    }

    /// The lock is held. `count` says how each server stands, if that is known.
    fn refused(&mut self, refusal: &Refusal, count: Option<&Count>) {
        let now = self.now();
        let listening = self.listener.as_ref().is_some_and(ChannelListener::is_listening);
        let others = refusal.subscribers.saturating_sub(listening.into());
        let end = refusal.remaining.map_or(Timestamp::NEVER, |left| now.plus(left));
        match count {
            Some(count) => self.backoff.refused(count, others),
            None => self.backoff.held(end.plus(Duration::from_millis(1)), others),
        }
        self.ask_at = now.plus(self.gate.poll_pause());
        self.draw();
        self.plan(now);
        self.subscribe();
    }

    fn subscribe(&mut self) {
        if self.listener.is_none() {
            self.listener = Some(self.gate.quorum.listen_on(&self.gate.channel));
        }
    }

    fn draw(&mut self) {
        let spread = self.backoff.spread(self.gate.quorum.round_trip());
        self.delay = self.gate.engine.clock.jitter(Duration::ZERO, spread);
    }

    /// Asks a random time after a majority can be free, from `from` on, if that is sooner.
    fn plan(&mut self, from: Timestamp) {
        self.ask_at = self.ask_at.min(self.backoff.may_win_at(from).plus(self.delay));
    }

    fn now(&self) -> Timestamp {
        self.gate.engine.clock.now()
    }
}
