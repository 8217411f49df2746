//! A caller that waits in this process.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::hold::Entry;
use super::state::State;
use super::wait_list::{Offer, Waiter};
use super::{Gate, Request, Until};
use crate::clock::Timestamp;
use crate::engine::kind::Refusal;
use crate::error::{Error, Fault};
use crate::owner::Place;

/// A place among the waiters. Dropping it gives the place up.
pub(crate) struct Waiting {
    gate: Arc<Gate>,
    arrival: u64,
    granted: oneshot::Receiver<Result<Offer, Error>>,
    /// Somebody took it out of the list already.
    over: bool,
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
            turn,
        };
        state.waiters.join(arrival, waiter);
        Waiting { gate: self.clone(), arrival, granted, over: false }
    }

    /// Returns why a wait that ends now was in vain. What was given back here before `since` is no reason.
    pub(crate) fn why_in_vain(&self, since: Timestamp, request: &Request) -> Error {
        let now = self.engine.clock.now();
        let waited = now.since(request.began_at);
        let state = self.state.lock();
        let refusal = match (state.current_hold(), &state.trouble, &state.refusal, &state.last) {
            (Some(hold), ..) => hold.as_refusal(now),
            (_, Some(trouble), ..) => return self.error(trouble.fault_at(now)),
            (.., Some(seen), _) => Refusal {
                remaining: seen
                    .refusal
                    .remaining
                    .map(|left| left.saturating_sub(now.since(seen.at))),
                ..seen.refusal.clone()
            },
            (.., Some(last)) if last.at >= since => last.as_refusal(),
            _ => return self.error(Fault::NoAnswer(waited)),
        };
        refusal.into_timeout(&self.name, waited)
    }
}

impl Waiting {
    /// Waits for the lock until the end of the request's time, and returns it, or why there was none (invariant 9). Returns
    /// `None` if it was granted, and has ended since, because nobody polled this future.
    pub(crate) async fn turn(mut self, request: &Request) -> Result<Option<Entry>, Error> {
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
                // A grant may have come at the last moment.
                let in_vain = || self.gate.why_in_vain(Timestamp::default(), request);
                self.granted.try_recv().unwrap_or_else(|_| Err(in_vain()))
            }
        };
        let Offer { entry, at } = offer?;
        Ok(entry.take_up(request.wanted.terms, at))
    }

    fn give_up(&self) {
        // Dropped outside the mutex: the waiter's end may wake somebody.
        drop(self.gate.update(|state, _| state.waiters.take(self.arrival)));
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.over {
            self.give_up();
        }
    }
}
