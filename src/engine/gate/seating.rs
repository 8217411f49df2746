//! How somebody comes into the seat: with a lease that was granted or passed on, or beside those who share one.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use smallvec::SmallVec;

use super::effects::Effects;
use super::entry::Entry;
use super::hold::Hold;
use super::seat::{Seat, Seated};
use super::state::State;
use super::wait_list::{Offer, Waiter};
use super::{Gate, TakenBy};
use crate::clock::Timestamp;
use crate::config::Terms;
use crate::engine::kind::Wanted;
use crate::engine::lease::Lease;
use crate::engine::quorum::Grant;

impl Gate {
    /// Makes a lease of a grant, watched from here on. Returns it with its first token.
    pub(super) fn lease(self: &Arc<Self>, grant: Grant, wanted: &Wanted) -> (Arc<Lease>, u64) {
        let engine = &self.engine;
        let lease = Arc::new(Lease::new(
            grant,
            wanted.terms,
            wanted.side.clone(),
            self.quorum.clone(),
            engine.clock.clone(),
            engine.left.clone(),
        ));
        engine.watchdog.watch(&lease);
        let token = lease.take_token().expect("BUG: a block has a token at least");
        (lease, token)
    }

    /// Seats one who waits, and with it all who can use its lease at once.
    pub(super) fn seat_waiter(
        self: &Arc<Self>,
        state: &mut State,
        effects: &mut Effects,
        lease: &Arc<Lease>,
        arrival: u64,
        token: u64,
        now: Timestamp,
    ) {
        let Some(waiter) = state.waiters.take(arrival) else { return };
        let hold = self.hold(lease.clone(), waiter.taker(), token, now);
        let entry = Entry::offered(&hold, false, waiter.wanted.terms, now);
        effects.turns.push((waiter.turn, Ok(Offer { entry, at: now })));
        state.seat(hold, self.engine.config.handoff_window, effects, now);
        self.admit(state, effects, now);
    }

    /// Lets those join who are the first to wait and share the lease that is in use.
    pub(super) fn admit(
        self: &Arc<Self>,
        state: &mut State,
        effects: &mut Effects,
        now: Timestamp,
    ) {
        while let Some(waiter) = state.take_next_to_join() {
            let terms = waiter.wanted.terms;
            let entry = self.join(state, waiter.taker(), terms, now);
            entry.await_take_up(terms, now);
            effects.turns.push((waiter.turn, Ok(Offer { entry, at: now })));
        }
    }

    /// Adds a user to the shared lease that is in use.
    pub(super) fn join(
        self: &Arc<Self>,
        state: &mut State,
        by: TakenBy<'_>,
        terms: Terms,
        now: Timestamp,
    ) -> Entry {
        if let Some(hold) = state.seat.hold_of(by.owner) {
            return hold.enter(terms, now);
        }
        let first = state.seat.current_hold().expect("BUG: only a lease that is in use is joined");
        let (lease, token) = (first.lease.clone(), first.token);
        let hold = self.hold(lease, by, token, now);
        state.join(hold.clone());
        Entry::joining(&hold, terms, now)
    }

    pub(super) fn hold(
        self: &Arc<Self>,
        lease: Arc<Lease>,
        by: TakenBy<'_>,
        token: u64,
        now: Timestamp,
    ) -> Arc<Hold> {
        let hold = Arc::new(Hold {
            gate: self.clone(),
            lease,
            owner: by.owner.clone(),
            counted: self.engine.process.holdings.count(by.owner, by.place),
            uncounted: AtomicBool::new(false),
            token,
            since: now,
            place: by.place,
            taken_at: by.at,
            begun: AtomicBool::new(false),
            told: AtomicU32::new(0),
            depth: AtomicU32::new(1),
            over: AtomicBool::new(false),
            wanting: OnceLock::new(),
        });
        hold.keep_order();
        if hold.is_of_permits() {
            self.engine.process.permits_out.put(&hold);
        }
        hold
    }
}

impl State {
    /// Seats a hold, and with it all who wait for the same owner. If its lease is shared, others may join within `window`.
    pub(super) fn seat(
        &mut self,
        hold: Arc<Hold>,
        window: Duration,
        effects: &mut Effects,
        now: Timestamp,
    ) {
        let mut depth = 1;
        if hold.owner.is_shared() && !self.waiters.is_empty() {
            let kind = &hold.lease.kind;
            let is_own =
                |waiter: &Waiter| waiter.owner == hold.owner && kind.contains(&*waiter.wanted.side);
            for waiter in self.waiters.take_all(is_own) {
                let entry = Entry::offered(&hold, true, waiter.wanted.terms, now);
                effects.turns.push((waiter.turn, Ok(Offer { entry, at: now })));
                depth += 1;
            }
        }
        hold.set_depth(depth);
        self.sit(hold, window);
    }

    /// Seats a hold alone.
    pub(super) fn sit(&mut self, hold: Arc<Hold>, window: Duration) {
        let lease = hold.lease.clone();
        lease.used_by(&hold.owner, hold.token);
        let open_until = lease.passes_from.plus(window);
        let holds = SmallVec::from_buf([hold]);
        self.seat = Seat::Held(Seated { lease, holds, open_until, seen_in: 0 });
    }
}
