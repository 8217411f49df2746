//! A caller's arrival at the gate of a lock: it enters, may ask the servers, or finds others before it.

use std::sync::Arc;

use super::claim::Claim;
use super::entry::Entry;
use super::hold::Hold;
use super::request::{Request, Until};
use super::state::State;
use super::waiting::Waiting;
use super::{Engine, Gate, Service, TakenBy};
use crate::clock::Timestamp;
use crate::config::SelfWait;
use crate::engine::kind::Refusal;
use crate::error::Error;
use crate::events;
use crate::owner::Place;

/// What came of an arrival at the gate, by a caller that can wait.
pub(crate) enum Arrived {
    /// The owner holds it already, or joins those who share it.
    Again(Entry),
    /// Nobody here is before the caller: ask the servers.
    Claim(Claim),
    Wait(Waiting),
}

/// What came of one attempt at the gate.
pub(crate) enum Attempted {
    /// The owner holds it already, or joins those who share it.
    Again(Entry),
    /// Nobody here has it: ask the servers.
    Claim(Claim),
    /// Another owner of this process holds it.
    HeldHere(Refusal),
    /// Others of this process are before it: the answer to an ask of theirs that begins after number `ask` is its own, too.
    /// At `again` it may be seen that nobody polls the one who asks.
    Busy { gate: Arc<Gate>, ask: u64, again: Timestamp },
}

impl Gate {
    /// Arrives at the gate of a lock, and waits if need be.
    pub(crate) fn arrive(engine: &Arc<Engine>, request: &Request) -> Result<Arrived, Error> {
        let mut suspect = None;
        let arrived = Self::enter(engine, request, Arrived::Again, |gate, state, now| {
            suspect = gate.suspect(state, request);
            gate.arrive_as(state, request, suspect.is_some(), now)
        })?;
        if let (Some(hold), Arrived::Wait(_)) = (suspect, &arrived) {
            let lasts = request.until == Until::Ever && hold.lease.lasts();
            events::self_wait(request.name(), &hold.owner, lasts);
        }
        Ok(arrived)
    }

    /// Makes one attempt at the gate of a lock.
    ///
    /// `met` is the gate that was found busy first, and the last ask that it had made by then.
    pub(crate) fn try_enter(
        engine: &Arc<Engine>,
        request: &Request,
        met: Option<&(Arc<Self>, u64)>,
    ) -> Result<Attempted, Error> {
        Self::enter(engine, request, Attempted::Again, |gate, state, now| {
            let again = state.look_again_at(now);
            Ok(match state.seat.current_hold() {
                Some(hold) if !hold.lease.kind.is_shared_with(&*request.wanted.side) => {
                    Attempted::HeldHere(hold.as_refusal(now))
                }
                _ if state.asking.is_some() || !state.waiters.is_empty() => {
                    // Whoever waits here comes first, and asks for both, unless it does so already.
                    let is_asked_for =
                        state.asking.zip(met).is_some_and(|(asking, (first, seen))| {
                            Arc::ptr_eq(first, gate) && asking.number > *seen
                        });
                    state.hurried |= !state.waiters.is_empty() && !is_asked_for;
                    Attempted::Busy { gate: gate.clone(), ask: state.asks, again }
                }
                _ => Attempted::Claim(gate.claim(state, request.wanted.clone(), 0)),
            })
        })
    }

    /// Enters the owner's own hold, or joins those who share the lease that is in use, or else does what `otherwise` says.
    fn enter<T>(
        engine: &Arc<Engine>,
        request: &Request,
        again: fn(Entry) -> T,
        mut otherwise: impl FnMut(&Arc<Self>, &mut State, Timestamp) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            let gate = engine.gate(&*request.wanted.side);
            let now = engine.clock.now();
            let entered = gate.update(|state, effects| {
                if state.retired {
                    return None;
                }
                state.evict_lost(now, effects);
                if let Some(reason) = state.loss_of(&request.owner) {
                    return Some(Err(Error::lost(request.name(), reason)));
                }
                if let Some(hold) = state.seat.hold_of(&request.owner)
                    && hold.lease.kind.contains(&*request.wanted.side)
                {
                    return Some(Ok(again(hold.enter(request.wanted.terms, now))));
                }
                let most = if request.goes_on { Service::Draining } else { Service::Open };
                if let Err(closed) = engine.check_service(most) {
                    return Some(Err(closed));
                }
                if state.is_open_to(&*request.wanted.side, now) {
                    let by =
                        TakenBy { owner: &request.owner, place: Place::here(), at: request.caller };
                    return Some(Ok(again(gate.join(state, by, request.wanted.terms, now))));
                }
                if let Some(entry) = gate.take_back(state, effects, request, now) {
                    return Some(Ok(again(entry)));
                }
                Some(otherwise(&gate, state, now))
            });
            if let Some(entered) = entered {
                return entered;
            }
        }
    }

    fn arrive_as(
        self: &Arc<Self>,
        state: &mut State,
        request: &Request,
        waits_for_itself: bool,
        now: Timestamp,
    ) -> Result<Arrived, Error> {
        state.forget_old_release(now);
        if state.is_open() {
            return Ok(Arrived::Claim(self.claim(state, request.wanted.clone(), 0)));
        }
        // The owner has another side of the lock, and so waits for itself.
        let is_own = state.seat.hold_of(&request.owner).is_some();
        if is_own || (self.engine.config.self_wait == SelfWait::Fail && waits_for_itself) {
            return Err(Error::SelfWait { lock: self.name.clone(), reads: is_own });
        }
        state.arrivals += 1;
        let arrival = state.arrivals;
        Ok(Arrived::Wait(self.queue(state, arrival, request)))
    }

    /// Returns the hold under which this task took the lock that `request` would wait for.
    fn suspect(&self, state: &State, request: &Request) -> Option<Arc<Hold>> {
        let here = Place::here();
        let is_own = |hold: &&Arc<Hold>| hold.owner != request.owner && hold.place == here;
        state.seat.holds().iter().find(is_own).cloned()
    }
}
