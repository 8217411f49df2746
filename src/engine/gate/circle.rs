//! A circle of waits that was found: how certain it is, and how it is told.

use std::sync::Arc;

use super::hold::Hold;
use super::process::WaitGraph;
use crate::config::Deadlocks;
use crate::engine::circles::{Edge, Party};
use crate::engine::notes::Certainty;
use crate::error::{Blocked, Error};
use crate::events;

/// The holds of one circle: each is in the way of a wait.
pub(super) type Circle = Vec<Edge<Arc<Hold>>>;

/// What is left of a look for a circle.
#[derive(Default)]
pub(super) struct Kept {
    /// What has to be dropped outside the mutex.
    pub(super) holds: Vec<Arc<Hold>>,
    /// Somebody waits for permits.
    pub(super) through_permits: bool,
}

/// A circle as it is told.
pub(super) struct Found {
    cycle: Arc<[Blocked]>,
    certainty: Certainty,
}

impl Found {
    pub(super) fn of(graph: &WaitGraph, circle: &Circle, certainty: Certainty) -> Self {
        let wanted = |wait: u64| {
            let (_, wait) = graph.waits.get(wait)?;
            Some(wait.gate.upgrade()?.name.clone())
        };
        // Each one holds what is in the way of the one before.
        let before = (0..circle.len()).map(|at| &circle[(at + circle.len() - 1) % circle.len()]);
        let cycle = circle.iter().zip(before).filter_map(|(edge, before)| {
            let hold = &before.hold;
            Some(Blocked {
                owner: hold.owner.clone(),
                client: hold.gate.engine.config.name.clone(),
                holds: hold.gate.name.clone(),
                token: hold.fencing_token(),
                waits_for: wanted(edge.wait)?,
            })
        });
        Self { cycle: cycle.collect(), certainty }
    }

    pub(super) fn fails(&self, reaction: Deadlocks) -> bool {
        Certainty::that_fails(reaction).is_some_and(|from| from <= self.certainty)
    }

    pub(super) fn tell(self, reaction: Deadlocks) -> Result<(), Error> {
        let fails = self.fails(reaction);
        let lasts = self.certainty >= Certainty::Likely;
        let Some(lock) = self.cycle.first().map(|first| first.waits_for.clone()) else {
            return Ok(());
        };
        let error = Error::Deadlock { lock, cycle: self.cycle };
        if fails {
            return Err(error);
        }
        events::deadlock(&error, lasts);
        Ok(())
    }
}

impl Hold {
    /// Returns how certain it is that a part of a circle lasts: a wait, which may be `limited`, and this hold, whose owner waits as
    /// `waiting`.
    pub(super) fn certainty(&self, limited: bool, waiting: Option<&Party>) -> Certainty {
        if limited || !self.lease.lasts() {
            return Certainty::Passing;
        }
        match waiting {
            Some(waiting) if self.is_of_the_thread(waiting) => Certainty::Certain,
            _ => Certainty::Likely,
        }
    }

    /// Returns true if its guards cannot leave a thread, which waits.
    fn is_of_the_thread(&self, waiting: &Party) -> bool {
        let are_threads = self.owner.is_thread() && waiting.owner.is_thread();
        are_threads && waiting.owner == self.owner && waiting.place == self.place
    }
}
