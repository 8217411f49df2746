//! Deadlocks inside this process: a wait that was refused is noted here, and looked at for a circle, over all clients.
//!
//! Waits are noted and circles are looked for under one mutex, so of several waits that close a circle the last one finds it, and
//! only that one. Gates change meanwhile, so a circle is read twice: a wait and a hold are never the same again once they have
//! ended, so what both readings show stood all at once in between.
//!
//! How many permits a semaphore has, and who has them, only its server knows. So a circle through permits is only suspected here,
//! and the server is asked; see `confirming.rs`.
//!
//! What waits for other processes is noted on the servers; see `noting.rs`.
//!
//! The gates' mutexes are taken under this one, one at a time, and never the other way round.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::circle::{Circle, Found, Kept};
use super::confirming::{Doubt, Permits};
use super::hold::Hold;
use super::process::{Noted, Wait, WaitGraph};
use super::waiting::Waiting;
use super::{Engine, Gate, Request, Until};
use crate::config::Deadlocks;
use crate::engine::circles::{InTheWay, Knot, Party};
use crate::engine::kind::{Kind, Sharing};
use crate::engine::notes::Certainty;
use crate::error::Error;
use crate::owner::Place;

/// What a look for a circle came to.
enum Judged {
    Nothing,
    Found(Found),
    /// It is one if the permits in it are held as it seems.
    Doubtful(Doubt),
}

impl Judged {
    /// Tells what was found, or has the servers asked first.
    fn tell(self, engine: &Engine, reaction: Deadlocks) -> Result<(), Error> {
        match self {
            Self::Nothing => Ok(()),
            Self::Found(found) => found.tell(reaction),
            Self::Doubtful(doubt) => {
                engine.confirm(doubt);
                Ok(())
            }
        }
    }
}

impl Waiting {
    /// Takes note of the wait of one who holds something, and fails or warns if it closes a circle. Whoever may wait for as long as
    /// it likes, such as a candidate, is in none.
    pub(crate) fn note(&mut self, request: &Request) -> Result<(), Error> {
        let gate = self.gate.clone();
        let reaction = gate.engine.config.deadlocks;
        if reaction == Deadlocks::Off || request.patient {
            return Ok(());
        }
        let party = Party { owner: request.owner.clone(), place: Place::here() };
        let engine = &gate.engine;
        if !engine.process.holdings.may_hold(&party) {
            return Ok(());
        }
        let wait = Wait {
            gate: Arc::downgrade(&gate),
            arrival: self.arrival,
            began_at: request.began_at,
            limited: request.until != Until::Ever,
            reads: request.wanted.side.sharing() == Sharing::Together,
            is_on_servers: false,
            told: false,
        };
        let mut kept = Kept::default();
        let mut graph = engine.process.waits.lock();
        let number = graph.waits.begin(party, wait);
        let judged = graph.judge(number, reaction, &mut kept);
        // A circle that is only told may be left, and the wait be part of another one then, over several processes.
        let fails = matches!(&judged, Judged::Found(found) if found.fails(reaction));
        let is_noted = !fails && !gate.is_of_one();
        let begins = is_noted && engine.noting.begins(&graph);
        drop(graph);
        drop(kept);
        self.noted = Some(Noted::of(&engine.process, number));
        if begins {
            engine.note_waits();
        }
        judged.tell(engine, reaction)
    }
}

impl Gate {
    /// Looks for circles again: another client of this process may hold the lock by now.
    pub(super) fn look_for_circles(self: &Arc<Self>) {
        let reaction = self.engine.config.deadlocks;
        if reaction == Deadlocks::Off || self.is_of_one() {
            return;
        }
        let mut kept = Kept::default();
        let mut graph = self.engine.process.waits.lock();
        if graph.waits.is_empty() || !graph.has_another_client(self) {
            return;
        }
        // Few waits are noted, while thousands may wait here.
        let here = |wait: &Wait| !wait.told && wait.gate.ptr_eq(&Arc::downgrade(self));
        let noted = graph.waits.iter().filter(|(_, _, wait)| here(wait));
        let noted: Vec<(u64, u64)> = noted
            .filter(|(number, party, _)| graph.waits.of(party) == Some(*number))
            .map(|(number, _, wait)| (number, wait.arrival))
            .collect();
        let judged = noted
            .into_iter()
            .map(|(number, arrival)| (arrival, graph.judge(number, reaction, &mut kept)));
        let judged: Vec<(u64, Judged)> = judged.collect();
        drop(graph);
        drop(kept);
        for (arrival, judged) in judged {
            let Err(error) = judged.tell(&self.engine, reaction) else { continue };
            self.fail(arrival, error);
        }
    }

    /// Returns what the first to wait waits for.
    pub(super) fn side_of_any(&self) -> Option<Arc<dyn Kind>> {
        self.state.lock().waiters.any_side()
    }

    /// Returns what somebody waits for; `None` if it does not wait any more.
    fn side_of(&self, arrival: u64) -> Option<Arc<dyn Kind>> {
        self.state.lock().waiters.side_of(arrival)
    }

    /// Returns the holds of this process that keep the waiter out; none if it does not wait any more.
    fn in_the_way(&self, arrival: u64, engines: &[Weak<Engine>]) -> Vec<Arc<Hold>> {
        let state = self.state.lock();
        let Some(side) = state.waiters.side_of(arrival) else { return Vec::new() };
        let is_behind_others = state.waiters.is_behind_others(arrival, &*side);
        let holds = state.seat.holds().to_vec();
        let refused_by = match (holds.is_empty(), &state.refusal) {
            (true, Some(seen)) => Some(seen.refusal.holder.clone()),
            _ => None,
        };
        drop(state);
        let mut holds = holds;
        if let Some(holder) = refused_by {
            for engine in engines.iter().filter_map(Weak::upgrade) {
                if holder.client() == Some(&*engine.config.name)
                    && let Some(gate) = engine.gate_at(&self.key)
                {
                    holds.extend(gate.current_holds());
                }
            }
            holds.retain(|hold| *holder.text() == hold.lease.id().0);
        }
        // Readers keep a reader out only if they do so with a writer before it.
        holds.retain(|hold| {
            hold.is_live() && (is_behind_others || !hold.lease.kind.is_shared_with(&*side))
        });
        holds
    }
}

impl WaitGraph {
    /// Returns true if a client of this process, but for the gate's own, has the name of the holder that the servers named.
    fn has_another_client(&self, gate: &Gate) -> bool {
        let state = gate.state.lock();
        let Some(seen) = &state.refusal else { return false };
        let named = seen.refusal.holder.client();
        let is_another = |engine: &Arc<Engine>| {
            !Arc::ptr_eq(engine, &gate.engine) && named == Some(&*engine.config.name)
        };
        // What is dropped here is not the last one: the client of this gate is in use, and another one drops its own.
        let engines: Vec<Arc<Engine>> = self.engines.iter().filter_map(Weak::upgrade).collect();
        let found = engines.iter().any(is_another);
        drop(state);
        found
    }

    /// Looks for a circle through a wait. If that is to fail, the wait is forgotten. `kept` is dropped outside the mutex.
    fn judge(&mut self, number: u64, reaction: Deadlocks, kept: &mut Kept) -> Judged {
        if let Some(found) = self.find(number, Permits::Free, kept) {
            return match self.stands(&found.0) {
                true => Judged::Found(self.take_in(number, found, reaction)),
                false => Judged::Nothing,
            };
        }
        if !kept.through_permits {
            return Judged::Nothing;
        }
        let knot = self.knot(number, Certainty::Passing, Permits::AsTheySeem, kept);
        knot.map_or(Judged::Nothing, |knot| Judged::Doubtful(Doubt::of(number, &knot)))
    }

    /// Looks again for a circle that was in doubt. Everything in it stood before the servers were asked, and stands still.
    pub(super) fn confirmed(
        &mut self,
        number: u64,
        permits: Permits<'_>,
        reaction: Deadlocks,
        kept: &mut Kept,
    ) -> Option<Found> {
        let found = self.find(number, permits, kept)?;
        Some(self.take_in(number, found, reaction))
    }

    /// Returns the most certain circle through a wait.
    fn find(
        &self,
        number: u64,
        permits: Permits<'_>,
        kept: &mut Kept,
    ) -> Option<(Circle, Certainty)> {
        let any = self.knot(number, Certainty::Passing, permits, kept)?;
        let mut found = (any.circle, Certainty::Passing);
        for certainty in [Certainty::Likely, Certainty::Certain] {
            if let Some(knot) = self.knot(number, certainty, permits, kept) {
                found = (knot.circle, certainty);
            }
        }
        Some(found)
    }

    fn take_in(
        &mut self,
        number: u64,
        (circle, certainty): (Circle, Certainty),
        reaction: Deadlocks,
    ) -> Found {
        let found = Found::of(self, &circle, certainty);
        if found.fails(reaction) {
            self.waits.end(number);
            return found;
        }
        // The others in it would find it again, each when it is refused once more.
        for edge in &circle {
            let Some((_, wait)) = self.waits.get_mut(edge.wait) else { continue };
            let gate = wait.gate.upgrade();
            wait.told |= !gate.is_some_and(|gate| found.fails(gate.engine.config.deadlocks));
        }
        found
    }

    /// Looks for a circle all of whose parts are as certain as that.
    fn knot(
        &self,
        start: u64,
        least: Certainty,
        permits: Permits<'_>,
        kept: &mut Kept,
    ) -> Option<Knot<Arc<Hold>>> {
        self.waits.knot(start, |number, wait| {
            // The gate of a wait is not dropped here, since its waiter has it, too; a hold may be.
            let gate = wait.gate.upgrade();
            let Some((gate, side)) = gate.and_then(|gate| {
                let side = gate.side_of(wait.arrival)?;
                Some((gate, side))
            }) else {
                return InTheWay { spare: 0, holds: Vec::new() };
            };
            let (spare, holds) = match side.sharing() {
                Sharing::Each { weight } => {
                    self.permits_in_the_way(&gate, &*side, weight, permits, kept)
                }
                _ => (0, gate.in_the_way(wait.arrival, &self.engines)),
            };
            kept.holds.extend(holds.iter().cloned());
            let is_own = |hold: &Arc<Hold>| number == start && Arc::ptr_eq(&hold.gate, &gate);
            let holds = holds.into_iter().map(|hold| (hold.party(), hold.weight(), hold));
            let holds = holds
                // A wait for its own hold is no circle: see `SelfWait`.
                .filter(|(party, _, hold)| !(is_own(hold) && self.waits.of(party) == Some(start)))
                .filter(|(party, _, hold)| {
                    // Who waits before it may give up.
                    let most = match hold.lease.kind.is_shared_with(&*side) {
                        true => Certainty::Likely,
                        false => Certainty::Certain,
                    };
                    self.certainty(wait, party, hold).min(most) >= least
                })
                .filter(|(.., hold)| permits.may_use(number, hold));
            InTheWay { spare, holds: holds.collect() }
        })
    }

    /// Returns the permits of this process that keep the waiter out, and how many of them may be given back before it gets its own.
    fn permits_in_the_way(
        &self,
        gate: &Arc<Gate>,
        side: &dyn Kind,
        weight: u64,
        permits: Permits<'_>,
        kept: &mut Kept,
    ) -> (u64, Vec<Arc<Hold>>) {
        kept.through_permits = true;
        let spare = permits.all(gate, side).and_then(|all| all.checked_sub(weight));
        let Some(spare) = spare else { return (0, Vec::new()) };
        let out = &gate.engine.process.permits_out;
        let mut holds = out.of(&gate.name);
        kept.holds.extend(holds.iter().cloned());
        let is_of_this =
            |wait: &Wait| wait.gate.upgrade().is_some_and(|other| other.key.is_like(&gate.key));
        holds.retain(|hold| {
            let next = self.waits.of(&hold.party()).and_then(|next| self.waits.get(next));
            next.is_some_and(|(_, wait)| !is_of_this(wait)) && hold.is_live()
        });
        if holds.iter().map(|hold| hold.weight()).sum::<u64>() <= spare {
            // Mostly somebody is at work.
            return (0, Vec::new());
        }
        // Whoever takes one permit after the other gives them to others to work with.
        let mut taken: HashMap<Place, u32> = HashMap::new();
        holds.iter().for_each(|hold| *taken.entry(hold.place).or_default() += 1);
        holds.retain(|hold| {
            taken[&hold.place] == 1 && !out.are_passed_on(hold.taken_at) && permits.has(gate, hold)
        });
        (spare, holds)
    }

    fn certainty(&self, wait: &Wait, party: &Party, hold: &Hold) -> Certainty {
        let next = self.waits.of(party).and_then(|number| self.waits.get(number));
        hold.certainty(wait.limited, next.map(|(next, _)| next))
    }

    /// Reads a circle for the second time: each wait still waits, and each hold is still in its way.
    fn stands(&self, circle: &Circle) -> bool {
        circle.iter().all(|edge| {
            let wait = self.waits.get(edge.wait).map(|(_, wait)| wait);
            let gate = wait.and_then(|wait| Some((wait, wait.gate.upgrade()?)));
            gate.is_some_and(|(wait, gate)| {
                let holds = gate.in_the_way(wait.arrival, &self.engines);
                holds.iter().any(|hold| Arc::ptr_eq(hold, &edge.hold))
            })
        })
    }
}
