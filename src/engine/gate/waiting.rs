//! A caller that waits in this process.

use std::fmt::Display;
use std::panic::Location;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::entry::Entry;
use super::process::Noted;
use super::state::State;
use super::wait_list::{Offer, SLOW, Waiter};
use super::{Gate, Request, Until};
use crate::clock::Timestamp;
use crate::error::{Error, Fault};
use crate::owner::{Owner, Place};

/// A place among the waiters. Dropping it gives the place up.
pub(crate) struct Waiting {
    /// Those who look for deadlocks know of it. Dropped before the gate, which is there as long as they know.
    pub(super) noted: Option<Noted>,
    pub(super) gate: Arc<Gate>,
    pub(super) arrival: u64,
    granted: oneshot::Receiver<Result<Offer, Error>>,
    /// Somebody took it out of the list already.
    over: bool,
    /// What is told of the wait if it is dropped; `None` once it has ended, or if nothing is.
    asked: Option<(&'static Location<'static>, Timestamp)>,
    /// It counts as a wait.
    told: bool,
}

impl Gate {
    pub(super) fn queue(
        self: &Arc<Self>,
        state: &mut State,
        arrival: u64,
        request: &Request,
    ) -> Waiting {
        let (turn, granted) = oneshot::channel();
        let waiter = Waiter {
            owner: request.owner.clone(),
            wanted: request.wanted.clone(),
            place: Place::here(),
            joined_at: request.began_at,
            for_ever: request.until == Until::Ever,
            asked_at: request.caller,
            slow_at: match request.patient {
                true => Timestamp::NEVER,
                false => request.began_at.plus(SLOW),
            },
            turn,
        };
        state.waiters.join(arrival, waiter);
        let asked = (!request.patient).then_some((request.caller, request.began_at));
        Waiting {
            gate: self.clone(),
            arrival,
            granted,
            over: false,
            asked,
            told: false,
            noted: None,
        }
    }

    /// Returns why a wait that ends now was in vain. What was given back here before `since` is no reason.
    pub(crate) fn why_in_vain(&self, since: Timestamp, request: &Request) -> Error {
        let now = self.engine.clock.now();
        let waited = now.since(request.began_at);
        let state = self.state.lock();
        let (trouble, seen) = state.known();
        let refusal = match (state.seat.current_hold(), trouble, seen, &state.last) {
            (Some(hold), ..) => hold.as_refusal(now),
            (_, Some(trouble), ..) => return self.error(trouble.fault_at(now)),
            (.., Some(seen), _) => seen.at(now),
            (.., Some(last)) if last.at >= since => last.as_refusal(),
            _ => return self.error(Fault::NoAnswer(waited)),
        };
        refusal.into_timeout(&*request.wanted.side, waited)
    }
}

impl Waiting {
    /// Waits for the lock until the end of the request's time, and returns it, or why there was none (invariant 9). Returns
    /// `None` if it was granted, and has ended since, because nobody polled this future.
    pub(crate) async fn turn(&mut self, request: &Request) -> Result<Option<Entry>, Error> {
        self.told = true;
        self.gate.engine.events.wait_began(&self.gate.name);
        let until = match request.until {
            Until::At(at) => at,
            Until::Once | Until::Ever => Timestamp::NEVER,
        };
        let clock = &self.gate.engine.clock;
        let offer = match clock.until(until, &mut self.granted).await {
            Some(turn) => {
                self.over = true;
                turn.unwrap_or_else(|_| Err(Error::closed(clock)))
            }
            None if clock.is_stopped() => Err(Error::closed(clock)),
            None => {
                self.give_up();
                self.over = true;
                // A grant may have come at the last moment.
                let in_vain = || self.gate.why_in_vain(Timestamp::default(), request);
                self.granted.try_recv().unwrap_or_else(|_| Err(in_vain()))
            }
        };
        let now = clock.now();
        let Offer { entry, at } = match offer {
            Ok(offer) => offer,
            Err(error) => {
                self.tell_end(Some(&request.owner), &error, now);
                return Err(error);
            }
        };
        let entry = entry.take_up(request.wanted.terms, at, now);
        match &entry {
            Some(_) => self.tell_end(Some(&request.owner), &"held", at),
            // It begins anew.
            None => self.asked = None,
        }
        Ok(entry)
    }

    /// Reports the end of a slow wait, once.
    fn tell_end(&mut self, owner: Option<&Owner>, outcome: &dyn Display, now: Timestamp) {
        let Some((asked_at, began_at)) = self.asked.take() else { return };
        let waited = now.since(began_at);
        if waited >= SLOW {
            let (events, lock) = (&self.gate.engine.events, &self.gate.name);
            events.wait_ended(lock, owner, asked_at, outcome, waited, now);
        }
    }

    fn give_up(&self) -> Option<Box<Waiter>> {
        // Returned, and so dropped outside the mutex: the waiter's end may wake somebody.
        self.gate.update(|state, _| state.waiters.take(self.arrival))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let waiter = if self.over { None } else { self.give_up() };
        if self.asked.is_some() {
            let now = self.gate.engine.clock.now();
            self.tell_end(waiter.as_ref().map(|waiter| &waiter.owner), &"cancelled", now);
        }
        if self.told {
            self.gate.engine.events.wait_over(&self.gate.name);
        }
    }
}
