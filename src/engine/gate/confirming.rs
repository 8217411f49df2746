//! Deadlocks through the permits of a semaphore: who waits for permits goes on as soon as enough of them are free, whoever gives them
//! back. So there is a deadlock only if the others are too few, and the others are all whose holders are not known to be blocked.
//!
//! How many permits there are, a handle says, and that these are out, the server. It is asked once a circle seems to be there, and
//! the circle is read again behind its answer. A wait and a hold are never the same again once they have ended, so all of them
//! stood when it answered.
//!
//! Not known to be blocked are those of other processes and of other libraries, what was spent or forgotten, and what may have been
//! given to another task: a task that has several permits of one semaphore, or waits for another one, gives them away, and so does
//! a line of code whose permit ended in another task before.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;

use super::circle::Kept;
use super::hold::Hold;
use super::process::Process;
use super::{Engine, Gate};
use crate::clock::Clock;
use crate::engine::circles::Knot;
use crate::engine::kind::{Holders, Kind};
use crate::error::Fault;

/// What is known of the permits of semaphores.
#[derive(Clone, Copy)]
pub(super) enum Permits<'a> {
    /// There may always be others.
    Free,
    /// Those of this process are out, and there are as many in all as a handle says.
    AsTheySeem,
    /// As the servers say, and of a circle that was in doubt.
    Confirmed(&'a Doubt, &'a [Seen]),
}

/// What a server says of a semaphore.
pub(super) struct Seen {
    gate: Arc<Gate>,
    holders: Holders,
}

/// A circle that is one if permits are held as it seems.
pub(super) struct Doubt {
    /// The number of the wait that it was looked for from.
    number: u64,
    /// The waits in it, each with a hold that it is blocked by.
    edges: Vec<(u64, Weak<Hold>)>,
}

impl Permits<'_> {
    /// Returns how many permits there are of what somebody waits for at a gate, if that is known.
    pub(super) fn all(&self, gate: &Gate, side: &dyn Kind) -> Option<u64> {
        let all = side.all_units()?;
        match self {
            Self::Free => None,
            Self::AsTheySeem => Some(all),
            // Where there are more, somebody adds some. Where there are fewer, another library may have them.
            Self::Confirmed(_, seen) => {
                let seen = seen.iter().find(|seen| seen.gate.is_like(gate))?;
                (seen.holders.all <= all).then_some(all)
            }
        }
    }

    /// Returns true if a hold has the permits that it seems to have.
    pub(super) fn has(&self, gate: &Gate, hold: &Hold) -> bool {
        let Self::Confirmed(_, seen) = self else { return true };
        let seen = seen.iter().find(|seen| seen.gate.is_like(gate));
        seen.is_some_and(|seen| seen.holders.ids.contains(&hold.lease.id().0))
    }

    /// Returns true if a hold was in the way of a wait before the servers were asked.
    pub(super) fn may_use(&self, wait: u64, hold: &Arc<Hold>) -> bool {
        let Self::Confirmed(doubt, _) = self else { return true };
        let is_it = |(number, known): &(u64, Weak<Hold>)| {
            *number == wait && known.as_ptr() == Arc::as_ptr(hold)
        };
        doubt.edges.iter().any(is_it)
    }
}

impl Doubt {
    pub(super) fn of(number: u64, knot: &Knot<Arc<Hold>>) -> Self {
        let edges = knot.all.iter().map(|edge| (edge.wait, Arc::downgrade(&edge.hold)));
        Self { number, edges: edges.collect() }
    }

    /// Asks the servers until they answer, and tells the circle if it is one and stands still.
    async fn settle(self, process: Arc<Process>, clock: Clock) {
        while let Some(asked) = self.semaphores(&process) {
            let seen = join_all(asked.into_iter().map(ask)).await;
            let seen: Result<Vec<Option<Seen>>, Fault> = seen.into_iter().collect();
            match seen {
                Ok(seen) => {
                    return self.judge(&process, &seen.into_iter().flatten().collect::<Vec<_>>());
                }
                Err(fault) if !fault.may_pass() => return,
                Err(_) => {}
            }
            clock.until(clock.now().plus(AGAIN), clock.ended()).await;
        }
    }

    /// Returns a gate of each semaphore that is waited for; `None` if the wait is over.
    fn semaphores(&self, process: &Process) -> Option<Vec<Arc<Gate>>> {
        let graph = process.waits.lock();
        graph.waits.get(self.number)?;
        let mut gates: Vec<Arc<Gate>> = Vec::new();
        for (number, _) in &self.edges {
            // It is not dropped here, since its waiter has it, too.
            let gate = graph.waits.get(*number).and_then(|(_, wait)| wait.gate.upgrade());
            if let Some(gate) = gate.filter(|gate| gate.is_of_one())
                && !gates.iter().any(|known| known.is_like(&gate))
            {
                gates.push(gate);
            }
        }
        Some(gates)
    }

    fn judge(&self, process: &Process, seen: &[Seen]) {
        let mut kept = Kept::default();
        let mut graph = process.waits.lock();
        let wait = graph.waits.get(self.number);
        let Some((gate, arrival)) =
            wait.and_then(|(_, wait)| Some((wait.gate.upgrade()?, wait.arrival)))
        else {
            return;
        };
        let reaction = gate.engine.config.deadlocks;
        let permits = Permits::Confirmed(self, seen);
        let found = graph.confirmed(self.number, permits, reaction, &mut kept);
        drop(graph);
        drop(kept);
        if let Some(Err(error)) = found.map(|found| found.tell(reaction)) {
            gate.fail(arrival, error);
        }
    }
}

/// Asks who has the permits of a semaphore.
async fn ask(gate: Arc<Gate>) -> Result<Option<Seen>, Fault> {
    let Some(side) = gate.side_of_any() else { return Ok(None) };
    let Some(call) = side.look_for_holders() else { return Ok(None) };
    let answers = gate.quorum.ask(call, |replies| !replies.is_empty()).await?;
    let holders = answers.replies.first().and_then(|reply| side.read_holders(reply));
    Ok(holders.map(|holders| Seen { gate, holders }))
}

impl Engine {
    /// Finds out whether a circle is one, and tells it then.
    pub(super) fn confirm(&self, doubt: Doubt) {
        let task = doubt.settle(self.process.clone(), self.clock.clone());
        self.tasks.spawn_on(task, self.clock.runtime());
    }
}

impl Gate {
    /// Returns true if it is a gate of one acquisition of what several can have at once.
    pub(super) fn is_of_one(&self) -> bool {
        self.key.is_of_one()
    }

    /// Returns true if both are gates of the same semaphore.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.engine, &other.engine) && self.key.is_like(&other.key)
    }
}

/// If the servers do not answer, they are asked again after so long.
const AGAIN: Duration = Duration::from_secs(1);
