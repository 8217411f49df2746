//! How a gate stands, as its driver sees it.

use std::sync::Arc;
use std::time::Duration;

use super::Gate;
use super::effects::SlowWaits;
use super::machine::Allowed;
use super::seat::Seat;
use super::state::{Begun, LastRelease, State};
use super::wait_list::Seeker;
use crate::clock::Timestamp;
use crate::engine::kind::{Refusal, Sharing, Wanted};
use crate::engine::lease::Lease;

/// How a gate stands, as its driver sees it.
pub(super) struct Situation {
    /// The lease, if it is held here.
    pub(super) held: Option<Arc<Lease>>,
    /// The lease that is in use here may pass to the next ordinary waiter.
    pub(super) passes_on: bool,
    /// The lock is in use here, and nobody has to ask, unless by a fair handle.
    pub(super) rests: bool,
    pub(super) allowed: Allowed,
    /// What is told on the lock's channel is of use.
    pub(super) listens: bool,
    /// When to look again, whatever happens.
    pub(super) until: Timestamp,
    /// We have just released the lock, and that many others learned of it: they come first.
    pub(super) stand_back: Option<u32>,
    /// What the first ordinary waiter wants.
    pub(super) ordinary: Option<Wanted>,
    /// The waiters of fair handles that came or left, and what those want who wait.
    pub(super) fair: Vec<(Seeker, Option<Wanted>)>,
    /// Somebody who does not wait wants to know whether the lock is free.
    pub(super) hurried: bool,
    /// The request of a waiter that stands in the queue already.
    pub(super) begun: Option<Box<Begun>>,
    /// The answer to the last ask, if it was refused.
    pub(super) refusal: Option<Refusal>,
}

impl Gate {
    pub(super) fn situation(self: &Arc<Self>) -> Option<Situation> {
        let now = self.engine.clock.now();
        let patience = self.engine.config.response_timeout;
        self.update(|state, effects| {
            state.evict_lost(now, effects);
            effects.slow = state.slow_waits(now);
            state.situation(now, patience)
        })
    }
}

impl State {
    /// Returns what the driver has to know, or `None` if nobody needs it.
    fn situation(&mut self, now: Timestamp, patience: Duration) -> Option<Situation> {
        let held = self.seat.lease().cloned();
        if held.is_none() && self.waiters.is_empty() {
            return None;
        }
        let until = self.look_again_at(now).min(self.waiters.slow_at());
        let (stand_back, until) = match held {
            Some(_) => (None, until),
            None => {
                let (stand_back, release_until) = self.await_release(now, patience);
                (stand_back, until.min(release_until))
            }
        };
        let passes_on = self.passes_on();
        let ordinary = self.waiters.first().map(|(_, waiter)| waiter.wanted.clone());
        let waits = ordinary.is_some() || self.waiters.fair_len() > 0;
        let allowed = self.allowed();
        Some(Situation {
            rests: held.is_some() && (passes_on || !waits),
            listens: waits && allowed != Allowed::Nobody,
            passes_on,
            allowed,
            until,
            stand_back,
            ordinary,
            fair: self.waiters.take_moved(),
            hurried: std::mem::take(&mut self.hurried),
            begun: self.begun.take(),
            refusal: self
                .refusal
                .as_ref()
                .filter(|_| held.is_none())
                .map(|seen| seen.refusal.clone()),
            held,
        })
    }

    /// Returns the waits that somebody is to be told of now, and what is known of why they go on.
    fn slow_waits(&mut self, now: Timestamp) -> Option<Box<SlowWaits>> {
        let waits = self.waiters.take_slow(now);
        if waits.is_empty() {
            return None;
        }
        let hold = self.seat.current_hold().cloned();
        let (trouble, seen) = self.known();
        let fault = trouble.filter(|_| hold.is_none());
        Some(Box::new(SlowWaits {
            waits,
            now,
            waiters: self.waiters.len(),
            fault: fault.map(|trouble| trouble.fault_at(now)),
            refusal: seen.map(|seen| seen.refusal.clone()),
            hold,
        }))
    }

    /// Takes the right to ask from a caller that nobody polls. Returns when to look at it again.
    pub(super) fn look_again_at(&mut self, now: Timestamp) -> Timestamp {
        if let Some(asking) = &self.asking {
            let until = asking.since.plus(asking.patience);
            if now < until {
                return until;
            }
            self.asking = None;
        }
        Timestamp::NEVER
    }

    /// Looks at the last release: how many others come first, and until when its answer is waited for.
    fn await_release(&mut self, now: Timestamp, patience: Duration) -> (Option<u32>, Timestamp) {
        self.forget_old_release(now);
        match self.last_release {
            LastRelease::Pending { since, .. } if !self.may_ask() => {
                let until = since.plus(patience);
                if now < until {
                    return (None, until);
                }
                // Who waits for the answer may not be polled any more.
                self.last_release = LastRelease::Over;
                (None, Timestamp::NEVER)
            }
            LastRelease::Received { others, .. } => {
                self.last_release = LastRelease::Over;
                (Some(others), Timestamp::NEVER)
            }
            LastRelease::Over | LastRelease::Pending { .. } => (None, Timestamp::NEVER),
        }
    }

    /// Returns who may ask the servers now.
    pub(super) fn allowed(&self) -> Allowed {
        match &self.seat {
            Seat::Free if !self.may_ask() => Allowed::Nobody,
            _ if self.asking.is_some() => Allowed::Fair,
            _ if self.passes_on() => Allowed::Fair,
            Seat::Free | Seat::Held(_) | Seat::Unsent(_) => Allowed::All,
        }
    }

    /// Returns true if a lease is in use here that the next ordinary waiter may get without the servers. A fair one passes to
    /// nobody, and those who can use a shared one have joined.
    pub(super) fn passes_on(&self) -> bool {
        self.seat.lease().is_some_and(|lease| lease.kind.sharing() == Sharing::Alone && !lease.fair)
    }
}
