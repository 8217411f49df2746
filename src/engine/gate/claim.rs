//! The right of one task of this process to ask the servers for a lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::effects::Effects;
use super::entry::Entry;
use super::hold::PendingRelease;
use super::machine::Allowed;
use super::state::{ABANDONED, Asking, Begun, State, Trouble};
use super::wait_list::Seeker;
use super::waiting::Waiting;
use super::{Engine, Gate, Request, Service, TakenBy};
use crate::clock::Timestamp;
use crate::engine::kind::{Refusal, Sharing, Wanted};
use crate::engine::lease::Lease;
use crate::engine::quorum::{Attempt, Grant, Outcome};
use crate::error::{Error, Fault};
use crate::key::LeaseId;
use crate::owner::Place;

/// The right to ask the servers. Dropping it gives the right back.
pub(crate) struct Claim {
    gate: Arc<Gate>,
    /// The place that its holder has among the waiters, should it wait.
    arrival: u64,
    ask: u64,
    began_at: Timestamp,
    /// What is asked for.
    pub(super) wanted: Wanted,
    /// How many tokens, or units, are asked for, at once and in a queue.
    block: u64,
    queued_block: u64,
    open: bool,
    /// Nobody else of this process may ask meanwhile, unless by a fair handle.
    exclusive: bool,
}

impl Gate {
    /// Gives out the right to ask for `wanted`, with `others` waiting behind.
    pub(super) fn claim(
        self: &Arc<Self>,
        state: &mut State,
        wanted: Wanted,
        others: usize,
    ) -> Claim {
        let now = self.engine.clock.now();
        let window = state.window(self.engine.config.handoff_window, now);
        state.arrivals += 1;
        state.asks += 1;
        if state.claims == 0 {
            state.refused_so_far = None;
        }
        state.claims += 1;
        state.asking = Some(Asking { number: state.asks, since: now, patience: ABANDONED });
        let block = |others| match wanted.side.sharing() {
            Sharing::Alone => state.block(wanted.terms, others, window),
            // Those who share a lease share its token.
            Sharing::Together => 0,
            Sharing::Each { weight } => weight,
        };
        Claim {
            gate: self.clone(),
            arrival: state.arrivals,
            ask: state.asks,
            began_at: now,
            block: block(others),
            // More may come to wait here until the request's turn comes.
            queued_block: block(others.max(QUEUED_OTHERS)),
            wanted,
            open: true,
            exclusive: true,
        }
    }

    /// Gives out the right to ask for those who wait, if that is [allowed](State::allowed).
    pub(super) fn claim_for(self: &Arc<Self>, seeker: Seeker) -> Option<Claim> {
        self.update(|state, _| {
            let wanted = state.waiters.of(seeker)?.1.wanted.clone();
            let may = match state.allowed() {
                Allowed::Nobody => false,
                Allowed::Fair => seeker != Seeker::Ordinary,
                Allowed::All => true,
            };
            if !may {
                return None;
            }
            let others = match seeker {
                Seeker::Ordinary => state.waiters.ordinary_len() - 1,
                Seeker::Fair(_) => 0,
            };
            let asking = state.asking;
            let mut claim = self.claim(state, wanted, others);
            claim.exclusive = seeker == Seeker::Ordinary;
            match &mut state.asking {
                Some(own) if claim.exclusive => own.patience = Duration::MAX,
                current => *current = asking,
            }
            Some(claim)
        })
    }

    /// Seats the one for whom a lease was granted as `wanted`, if it still waits and can use that. Otherwise the lease is
    /// released. `claim` is the right by which it was asked for, unless it was granted by message.
    pub(super) fn seat_seeker(
        self: &Arc<Self>,
        grant: Grant,
        seeker: Seeker,
        wanted: &Wanted,
        claim: Option<&mut Claim>,
    ) {
        let now = self.engine.clock.now();
        let by_message = grant.ticket.by_message;
        self.lose_what_is_held(&*wanted.side);
        let (lease, token) = self.lease(grant, wanted);
        let unused = self.update(|state, effects| {
            let ask = claim.map(|claim| {
                claim.close(state);
                claim.ask
            });
            state.answered();
            if !state.is_seen(&*wanted.side, ask) {
                state.waiters.again(seeker);
                return Some(state.release(&lease, now));
            }
            let waiter = state.waiters.of(seeker);
            let fits = waiter.filter(|(_, waiter)| waiter.wanted.is_served_by(wanted));
            let Some((arrival, _)) = fits else {
                return Some(state.release(&lease, now));
            };
            if self.reopen(state, effects, &lease, now) || state.is_held_beside(&lease, now) {
                state.waiters.again(seeker);
                return Some(state.release(&lease, now));
            }
            self.seat_waiter(state, effects, &lease, arrival, token, now);
            // Asks that began later may have found that it was gone.
            state.seen(&lease, ask.unwrap_or(0));
            None
        });
        if let Some(release) = unused {
            if by_message {
                self.quorum.events().queue.grants_given_back.fetch_add(1, Ordering::Relaxed);
            }
            self.give_back(release);
        }
    }

    /// Takes in that the servers granted `lease` while a lease that is shared with it is in use here. That shows that nobody
    /// else is before those who wait here: they join. Returns false if there is no such lease.
    fn reopen(
        self: &Arc<Self>,
        state: &mut State,
        effects: &mut Effects,
        lease: &Arc<Lease>,
        now: Timestamp,
    ) -> bool {
        let reopened = state.reopen(lease, self.engine.config.handoff_window, now);
        if reopened {
            self.admit(state, effects, now);
        }
        reopened
    }

    /// Sees through the release of a lease that nobody used.
    fn give_back(self: &Arc<Self>, release: PendingRelease) {
        self.engine.watchdog.forget(&release.lease);
        self.finish_in_background(release);
    }
}

impl Claim {
    /// Begins a request that is granted at once or not at all.
    pub(crate) fn attempt(&self) -> Attempt {
        self.begin(self.block, false)
    }

    /// Begins a request that a server with a queue puts there if the lock is not free.
    pub(crate) fn queueing_attempt(&self) -> Attempt {
        self.begin(self.queued_block, true)
    }

    /// Begins a request of one that waits over several servers.
    pub(super) fn waiting_attempt(&self) -> Attempt {
        self.begin(self.block, true)
    }

    /// Begins a request that queues if the client's mailbox is open, which it is from the first contention on.
    pub(crate) fn first_attempt(&self) -> Attempt {
        if !self.gate.quorum.has_queue() {
            return self.waiting_attempt();
        }
        match self.gate.quorum.queue() {
            Some(node) if node.mailbox().epoch().is_some() => self.queueing_attempt(),
            _ => self.attempt(),
        }
    }

    fn begin(&self, block: u64, queues: bool) -> Attempt {
        let Engine { clock, config, .. } = &*self.gate.engine;
        let Wanted { side, terms } = &self.wanted;
        let holds = match side.sharing() {
            Sharing::Alone => block,
            Sharing::Together | Sharing::Each { .. } => 1,
        };
        let is_told = self.gate.engine.asks_whether_wanted.load(Ordering::Relaxed);
        let queue = is_told.then(|| self.gate.quorum.queue()).flatten();
        let mailbox = queue.map(|node| node.mailbox().number());
        let id = LeaseId::new(&config.name, clock.uuid(), holds, mailbox);
        self.gate.quorum.attempt(side, id, terms.ttl(), block, queues)
    }

    /// Asks the servers once, and waits for the answer until `until`, but no longer than an answer may take.
    pub(crate) async fn ask(
        &self,
        attempt: &mut Attempt,
        until: Timestamp,
    ) -> Result<Outcome, Fault> {
        let Engine { clock, config, .. } = &*self.gate.engine;
        let most = clock.now().plus(config.response_timeout(self.wanted.terms.ttl()));
        let beside = || self.gate.inquire(&*self.wanted.side, self.ask);
        let so_far = |refusal: &Refusal| {
            let mut state = self.gate.state.lock();
            if self.is_current(&state) {
                state.found_held(refusal, clock.now());
            }
        };
        attempt.ask(until.min(most), beside, so_far).await
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Seats the one who asked, unless the client was shut down meanwhile: then the lock is released. Returns `None` if another
    /// one of this process has the lock by now: the answer was looked at too late.
    pub(crate) fn granted_in_service(
        self,
        grant: Grant,
        request: &Request,
    ) -> Result<Option<Entry>, Error> {
        let gate = self.gate.clone();
        let entry = self.granted(grant, request);
        // Dropping the entry releases it.
        gate.engine.check_service(Service::Draining)?;
        Ok(entry)
    }

    /// Seats the one who asked, unless another one of this process has the lock by now.
    pub(super) fn granted(mut self, grant: Grant, request: &Request) -> Option<Entry> {
        let gate = self.gate.clone();
        let now = gate.engine.clock.now();
        if !self.is_late(&gate.state.lock()) {
            gate.lose_what_is_held(&*request.wanted.side);
        }
        let (lease, token) = gate.lease(grant, &request.wanted);
        let by = TakenBy { owner: &request.owner, place: Place::here(), at: request.caller };
        let (entry, unused) = gate.update(|state, effects| {
            let late = self.is_late(state)
                || state.is_held_beside(&lease, now)
                || !state.is_seen(&*request.wanted.side, Some(self.ask));
            let current = self.close(state);
            if late {
                return (None, Some(state.release(&lease, now)));
            }
            state.answered();
            if gate.reopen(state, effects, &lease, now) {
                let entry = gate.join(state, by, request.wanted.terms, now);
                return (Some(entry), Some(state.release(&lease, now)));
            }
            let began_at = lease.acquired_at;
            let hold = gate.hold(lease.clone(), by, token, now);
            let entry = Entry::new(&hold, request.wanted.terms, began_at);
            state.seat(hold, gate.engine.config.handoff_window, effects, now);
            state.seen(&lease, self.ask);
            // The grant of one that nobody polled is old. Those who came since are asked for.
            if current {
                gate.admit(state, effects, now);
            }
            (Some(entry), None)
        });
        if let Some(release) = unused {
            gate.give_back(release);
        }
        entry
    }

    /// Seats the one for whom it asked. Without one the lease is released.
    pub(super) fn granted_to(mut self, seeker: Seeker, grant: Grant) {
        let (gate, wanted) = (self.gate.clone(), self.wanted.clone());
        gate.seat_seeker(grant, seeker, &wanted, Some(&mut self));
    }

    /// Gives the right back: another holds the lock.
    pub(crate) fn refused(mut self, refusal: Refusal) {
        let gate = self.gate.clone();
        let now = gate.engine.clock.now();
        gate.update(|state, effects| {
            let current = self.close(state);
            state.refused_ask = state.refused_ask.max(self.ask);
            effects.answered = true;
            if current {
                state.refused(refusal, now);
            }
        });
        gate.look_for_circles();
    }

    /// Gives the right back: the servers gave no usable answer. `had_time` is true if they had as long as an answer
    /// may take.
    pub(crate) fn failed(mut self, fault: &Fault, had_time: bool) {
        // A short wait that ends does not mean that the servers have failed.
        if fault.is_silence() && !had_time {
            return;
        }
        let gate = self.gate.clone();
        gate.update(|state, effects| {
            self.close(state);
            state.failed_ask = state.failed_ask.max(self.ask);
            effects.answered = true;
            // The servers have answered others since it began.
            if state.answered_asks >= self.ask {
                return;
            }
            let now = gate.engine.clock.now();
            let since = match (fault.quarantine(), &state.trouble) {
                // The server answers. A failure counts from the end on, or from one that comes sooner.
                (Some(left), _) => now.plus(left),
                (None, Some(trouble)) => trouble.since.min(now),
                // If it took longer than an answer may, nobody polled it, or this process stood still.
                (None, None) => self.began_at.max(now.minus(gate.engine.config.response_timeout)),
            };
            state.trouble = Some(Box::new(Trouble { since, fault: fault.clone() }));
        });
    }

    /// Joins the waiters, at the place of its arrival, unless the client was shut down meanwhile, or drained if it is
    /// patient. The driver takes over a request that stands in a server's queue, or keeps others out.
    pub(crate) fn join(
        &self,
        request: &Request,
        attempt: Attempt,
        refusal: Option<&Refusal>,
    ) -> Result<Waiting, Error> {
        let wanted = self.wanted.clone();
        let seeker = Seeker::of(wanted.terms, self.arrival);
        let mut begun = None;
        if attempt.may_be_queued() {
            let refusal = refusal.cloned();
            begun = Some(Box::new(Begun { attempt, seeker, wanted, refusal }));
        }
        let now = self.gate.engine.clock.now();
        let most = if request.patient { Service::Open } else { Service::Draining };
        self.gate.update(|state, effects| {
            self.gate.engine.check_service(most)?;
            state.send_unsent(effects, now);
            // What it takes the place of is dropped once the mutex is free.
            begun = state.take_over(begun.take());
            Ok(self.gate.queue(state, self.arrival, request))
        })
    }

    /// Returns true unless the right was taken from it, because nobody polled the one who has it.
    fn is_current(&self, state: &State) -> bool {
        let is_own = |asking: &Asking| asking.number == self.ask;
        !self.exclusive || state.asking.as_ref().is_some_and(is_own)
    }

    /// Returns true if others of this process have gone on without it, and have the lock by now.
    fn is_late(&self, state: &State) -> bool {
        !self.is_current(state) && state.seat.lease().is_some()
    }

    fn close(&mut self, state: &mut State) -> bool {
        let current = self.is_current(state);
        if current && self.exclusive {
            state.asking = None;
            state.refused_so_far = None;
        }
        state.claims -= u32::from(self.open);
        self.open = false;
        current
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.open {
            let gate = self.gate.clone();
            gate.update(|state, _: &mut Effects| {
                self.close(state);
            });
        }
    }
}

/// A request in a queue takes tokens for so many hand-offs at least.
const QUEUED_OTHERS: usize = 15;
