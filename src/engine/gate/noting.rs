//! Deadlocks over several processes: who holds a lock, and has waited for another one for a while, notes that on the servers.
//!
//! One task of a client does it, while somebody waits who may hold something. For each lock that the owner of a wait holds,
//! there is a note beside that lock, which the task makes again each second. It follows the notes of others from the lock that
//! is waited for, and tells a circle that is proved; see `notes.rs`. Whoever is to give way tells it, and nobody else.
//!
//! A wait of less than a second, and one of an owner that holds nothing, sends nothing.

mod calls;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{join, join_all};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::process::{Wait, WaitGraph};
use super::{Engine, Gate, Hold};
use crate::clock::{Clock, Timestamp};
use crate::config::Deadlocks;
use crate::engine::circles::Party;
use crate::engine::kind::Sharing;
use crate::engine::notes::{Certainty, Circle, Note, Read, Readings, Seeker};
use crate::error::{Blocked, Error, Fault};
use crate::events;
use crate::key::Holder;
use crate::owner::Owner;
use calls::{Own, pass};

/// What a client knows of the task that notes its waits.
#[derive(Default)]
pub(super) struct Noting {
    /// The task is there. Changed under the mutex of the waits.
    runs: AtomicBool,
    /// The user may not do that: it is tried again then.
    again_at: Mutex<Option<Timestamp>>,
    /// Wakes the task: a wait has ended that was noted.
    over: Notify,
}

impl Noting {
    /// A wait begins. Returns true if the task is to be started for it.
    pub(super) fn begins(&self, _under: &WaitGraph) -> bool {
        !self.runs.swap(true, Ordering::Relaxed)
    }

    /// The user was not allowed to do that when it was tried last.
    fn is_denied(&self) -> bool {
        self.again_at.lock().is_some()
    }

    /// A wait has ended that was noted.
    pub(super) fn wake(&self) {
        self.over.notify_one();
    }
}

impl Engine {
    pub(super) fn note_waits(self: &Arc<Self>) {
        let task = Task {
            engine: Arc::downgrade(self),
            noting: self.noting.clone(),
            clock: self.clock.clone(),
            own: Vec::new(),
            readings: Readings::default(),
            beats_at: Timestamp::default(),
            told: Vec::new(),
        };
        self.tasks.spawn_on(task.run(), self.clock.runtime());
    }
}

struct Task {
    engine: Weak<Engine>,
    noting: Arc<Noting>,
    clock: Clock,
    own: Vec<Own>,
    readings: Readings,
    beats_at: Timestamp,
    /// The circles that were told, by the ids of their notes. They are forgotten with the notes of this client.
    told: Vec<Vec<Arc<str>>>,
}

/// What there is to note.
struct Plan {
    /// Somebody waits, for however long.
    are_any: bool,
    waits: Vec<Noted>,
    /// Each with the number of its owner's wait.
    holds: Vec<(u64, Arc<Hold>)>,
    /// When the next wait has lasted for long enough.
    next: Timestamp,
}

/// A wait that has lasted for long enough, and is the only one of its owner.
struct Noted {
    number: u64,
    party: Party,
    gate: Arc<Gate>,
    arrival: u64,
    limited: bool,
    reads: bool,
}

impl Task {
    async fn run(mut self) {
        // Nobody is asked before the engine is let go of for a while, so what it keeps alive may end meanwhile.
        while let Some(until) = self.step().await {
            self.clock.until(until, self.noting.over.notified()).await;
            if self.clock.is_stopped() {
                return;
            }
        }
    }

    /// Does what is to be done now. Returns when there will be more; `None` if nobody waits.
    async fn step(&mut self) -> Option<Timestamp> {
        let engine = self.engine.upgrade()?;
        let now = self.clock.now();
        let plan = self.plan(&engine, now)?;
        if engine.noting.again_at.lock().is_some_and(|again_at| now < again_at) {
            return Some(now.plus(PERIOD));
        }
        let over = self.take_over(&engine, &plan);
        join_all(over.iter().map(|own| own.forget(&engine))).await;
        if !plan.are_any {
            // Unless somebody has come meanwhile, that was the last thing to do.
            return Some(now);
        }
        if plan.waits.is_empty() || now < self.beats_at {
            let beats_at = if plan.waits.is_empty() { now.plus(PERIOD) } else { self.beats_at };
            return Some(beats_at.min(plan.next));
        }
        let period = PERIOD.max(EACH * self.own.len() as u32);
        if let Err(fault) = self.beat_and_read(&engine, &plan, period * 4 + PERIOD).await {
            // Those that could be made end by themselves.
            self.own.clear();
            if engine.noting.again_at.lock().replace(now.plus(AGAIN)).is_none() {
                events::notes_denied(&fault);
            }
            return Some(now.plus(PERIOD));
        }
        if self.own.iter().any(|own| own.is_acknowledged) {
            *engine.noting.again_at.lock() = None;
        }
        let mut is_near = false;
        for wait in &plan.waits {
            let Some(circle) = self.circle(&engine, wait) else { continue };
            is_near |= !circle.is_proved;
            self.judge(&engine, wait, &circle);
        }
        let pause = if is_near { period / 4 } else { period };
        self.beats_at = now.plus(pause);
        Some(self.beats_at.min(plan.next))
    }

    /// Looks which waits there are, and what their owners hold.
    fn plan(&self, engine: &Arc<Engine>, now: Timestamp) -> Option<Plan> {
        let mut graph = engine.process.waits.lock();
        let is_own =
            |wait: &Wait| wait.gate.upgrade().filter(|gate| Arc::ptr_eq(&gate.engine, engine));
        let (mut waits, mut next) = (Vec::new(), Timestamp::NEVER);
        let mut are_any = false;
        for (number, party, wait) in graph.waits.iter() {
            // The gate is not dropped here, since its waiter has it, too.
            // Others do not follow those for permits.
            let Some(gate) = is_own(wait).filter(|gate| !gate.is_of_one()) else { continue };
            are_any = true;
            let from = wait.began_at.plus(PERIOD);
            if now < from {
                next = next.min(from);
            } else if graph.waits.of(party) == Some(number) {
                let (arrival, limited, reads) = (wait.arrival, wait.limited, wait.reads);
                waits.push(Noted { number, party: party.clone(), gate, arrival, limited, reads });
            }
        }
        if !are_any && self.own.is_empty() {
            engine.noting.runs.store(false, Ordering::Relaxed);
            return None;
        }
        // In an order that a simulation can repeat.
        waits.sort_unstable_by_key(|wait| wait.number);
        let mut holds = Vec::new();
        let gates = if waits.is_empty() { Vec::new() } else { engine.gates() };
        for hold in gates.iter().flat_map(|gate| gate.current_holds()) {
            // Whoever waits for permits may get those of another one.
            let is_shared = matches!(hold.lease.kind.sharing(), Sharing::Each { .. });
            let number = graph.waits.of(&hold.party()).filter(|_| !is_shared && hold.is_live());
            if let Some(number) = number
                && waits.binary_search_by_key(&number, |wait| wait.number).is_ok()
            {
                holds.push((number, hold));
            }
        }
        for (number, _) in &holds {
            if let Some((_, wait)) = graph.waits.get_mut(*number) {
                wait.is_on_servers = true;
            }
        }
        drop(graph);
        Some(Plan { are_any, waits, holds, next })
    }

    /// Takes over what is to be noted, and returns the notes that are over.
    fn take_over(&mut self, engine: &Engine, plan: &Plan) -> Vec<Own> {
        let mut before = std::mem::take(&mut self.own);
        for (wait, hold) in &plan.holds {
            let is_known = |own: &Own| own.wait == *wait && own.hold.as_ptr() == Arc::as_ptr(hold);
            let own = before.iter().position(is_known).map(|at| before.swap_remove(at));
            self.own.push(own.unwrap_or_else(|| Own {
                id: engine.process.note_id(&self.clock),
                wait: *wait,
                hold: Arc::downgrade(hold),
                lock: hold.gate.name.clone(),
                beat: 0,
                is_acknowledged: true,
            }));
        }
        let is_own = |id: &Arc<str>| self.own.iter().any(|own| own.id == *id);
        self.told.retain(|circle| circle.iter().any(is_own));
        before
    }

    /// Makes all notes again, and reads those of others. Fails if this user may not do that.
    async fn beat_and_read(
        &mut self,
        engine: &Arc<Engine>,
        plan: &Plan,
        ttl: Duration,
    ) -> Result<(), Fault> {
        let wait_of = |number| plan.waits.iter().find(|wait| wait.number == number);
        let wanted = self.own.iter().filter_map(|own| wait_of(own.wait));
        let wanted: BTreeSet<Arc<str>> = wanted.map(|wait| wait.gate.name.clone()).collect();
        let beats = self.own.iter_mut().zip(&plan.holds).map(|(own, (_, hold))| {
            let note = wait_of(own.wait).map(|wait| wait.note(hold, engine.config.deadlocks));
            async move {
                match note {
                    Some(note) => own.beat(hold, &note, ttl).await,
                    None => Ok(()),
                }
            }
        });
        let (beaten, read) = join(join_all(beats), pass(&mut self.readings, engine, wanted)).await;
        beaten.into_iter().chain([read]).find(is_denied).unwrap_or(Ok(()))
    }

    fn circle(&self, engine: &Engine, wait: &Noted) -> Option<Circle> {
        let own = self.own.iter().filter(|own| own.wait == wait.number);
        let own: Vec<Arc<str>> = own.map(|own| own.id.clone()).collect();
        self.readings.circle(&Seeker {
            wants: &wait.gate.name,
            wants_to_read: wait.reads,
            own: &own,
            process: engine.process.id(&self.clock),
        })
    }

    /// Tells a circle that is proved if this wait is to give way.
    fn judge(&mut self, engine: &Engine, wait: &Noted, circle: &Circle) {
        let Some(gives_way) = circle.gives_way().filter(|_| circle.is_proved) else { return };
        let is_own = |own: &Own| own.id == gives_way.id && own.wait == wait.number;
        if !self.own.iter().any(is_own) {
            return;
        }
        let certainty = circle.certainty();
        let fails = gives_way.note.fails(certainty);
        let only = engine.process.waits.lock().waits.of(&wait.party);
        if only != Some(wait.number) {
            return;
        }
        // One that is only logged may be followed by another one, which fails.
        let ids: Vec<Arc<str>> = circle.parts.iter().map(|part| part.read.id.clone()).collect();
        if self.told.contains(&ids) {
            return;
        }
        self.told.push(ids);
        let error = wait.error(circle);
        if fails {
            wait.gate.fail(wait.arrival, error);
        } else {
            events::deadlock_elsewhere(&error, certainty >= Certainty::Likely);
        }
    }
}

impl Noted {
    fn note(&self, hold: &Hold, reaction: Deadlocks) -> Note {
        Note {
            certainty: hold.certainty(self.limited, Some(&self.party)),
            fails_from: Certainty::that_fails(reaction),
            token: hold.token,
            reads: hold.lease.kind.sharing() == Sharing::Together,
            owner: hold.owner.to_string().into(),
            wants_to_read: self.reads,
            wants: self.gate.name.clone(),
        }
    }

    /// Returns a circle as it is told: from this wait on.
    fn error(&self, circle: &Circle) -> Error {
        let parts = circle.parts.iter().enumerate().map(|(at, part)| {
            let Read { lease, note, .. } = &part.read;
            let is_caller = at + 1 == circle.parts.len();
            let holder = Holder::new(lease.clone());
            Blocked {
                owner: match is_caller {
                    true => self.party.owner.clone(),
                    false => Owner::elsewhere(&note.owner),
                },
                client: holder.client().unwrap_or(holder.as_str()).into(),
                holds: part.lock.clone(),
                // Nobody notes permits.
                token: Some(note.token),
                waits_for: note.wants.clone(),
            }
        });
        let mut cycle: Vec<Blocked> = parts.collect();
        cycle.rotate_right(1);
        Error::Deadlock { lock: self.gate.name.clone(), cycle: cycle.into() }
    }
}

impl Gate {
    /// Ends a wait with an error, unless it has ended.
    pub(super) fn fail(self: &Arc<Self>, arrival: u64, error: Error) {
        self.update(|state, effects| {
            let waiter = state.waiters.take(arrival);
            effects.turns.extend(waiter.map(|waiter| (waiter.turn, Err(error))));
        });
    }
}

fn is_denied(end: &Result<(), Fault>) -> bool {
    matches!(end, Err(Fault::Denied { .. }))
}

/// A wait is noted when it has lasted for so long, and again after each such time; more often while a circle is about to be
/// proved.
const PERIOD: Duration = Duration::from_secs(1);
/// What the user may not do is tried again after so long.
const AGAIN: Duration = Duration::from_secs(10);
/// With many notes the time from one beat to the next is as long as so many times this.
const EACH: Duration = Duration::from_millis(5);
