//! Which keys a list has looked at, on which servers. Pure.

use std::collections::HashSet;

use crate::node::Source;

/// One thing that is looked at on each server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The channels that somebody listens to.
    Channels,
    /// The keys of a type that fit a pattern.
    Keys { pattern: String, of: KeyType },
}

/// The type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyType {
    Hash,
    SortedSet,
}

/// A walk over the keys of several servers, one after the other.
pub(super) struct Walk {
    steps: Vec<Step>,
    at: Option<Place>,
    /// The servers that were looked at from the beginning to the end.
    done: HashSet<u32>,
    /// Those that have failed since the caller was told last.
    failed: HashSet<u32>,
    needed: usize,
}

/// How far it has come on one server.
struct Place {
    server: u32,
    step: usize,
    cursor: u64,
    /// The run of the server that the cursor is of.
    source: Option<Source>,
    looked_at: u64,
    /// The keys on the server, if it says so.
    size: Option<u64>,
}

/// A server that can be looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) number: u32,
    pub(super) is_up: bool,
}

impl Walk {
    pub(super) fn new(steps: Vec<Step>) -> Self {
        let (done, failed) = Default::default();
        Self { steps, at: None, done, failed, needed: 1 }
    }

    /// Returns where to look next: the server's number, the step and the cursor. `None` if so many of the `servers` were
    /// looked at as are `needed`.
    pub(super) fn next(
        &mut self,
        servers: &[Candidate],
        needed: usize,
    ) -> Option<(u32, &Step, u64)> {
        self.needed = needed;
        let is_there = |number| servers.iter().any(|server| server.number == number);
        // A cluster may have other masters by now.
        self.at.take_if(|at| !is_there(at.server));
        if self.at.is_none() {
            if self.done_of(servers) >= needed {
                return None;
            }
            let left = || servers.iter().filter(|server| !self.done.contains(&server.number));
            let fresh = || left().filter(|server| !self.failed.contains(&server.number));
            let server = fresh().find(|it| it.is_up).or(fresh().next()).or(left().next())?;
            self.at = Some(Place::first_of(server.number));
        }
        let at = self.at.as_ref()?;
        Some((at.server, self.steps.get(at.step)?, at.cursor))
    }

    /// It has looked there, and got the next cursor. `looked_at` is about how many keys that were, and `size` how many there are.
    pub(super) fn looked(&mut self, source: Source, next: u64, looked_at: u64, size: Option<u64>) {
        let Some(at) = &mut self.at else { return };
        if at.source.is_some_and(|before| before != source) {
            // The cursor of another run means nothing: there may have been other keys.
            *at = Place::first_of(at.server);
            return;
        }
        (at.source, at.size) = (Some(source), size);
        (at.cursor, at.looked_at) = (next, at.looked_at + looked_at);
        if next == 0 {
            (at.step, at.looked_at) = (at.step + 1, 0);
        }
        if at.step == self.steps.len() {
            self.done.insert(at.server);
            self.at = None;
        }
    }

    /// The server failed. Returns true if others can take its place; else the caller is told, and it goes on from where it is.
    pub(super) fn failed(&mut self, servers: &[Candidate]) -> bool {
        let Some(at) = &self.at else { return true };
        self.failed.insert(at.server);
        let is_left = |server: &&Candidate| {
            !self.done.contains(&server.number) && !self.failed.contains(&server.number)
        };
        let goes_on = self.done_of(servers) + servers.iter().filter(is_left).count() >= self.needed;
        if goes_on {
            self.at = None;
        } else {
            self.failed.clear();
        }
        goes_on
    }

    /// Returns how much of it is done, from 0 to 1.
    pub(super) fn progress(&self) -> f64 {
        let here = self.at.as_ref().map_or(0.0, |at| {
            let of_step = match at.size {
                Some(size) => at.looked_at as f64 / size.max(1) as f64,
                None => 0.0,
            };
            (at.step as f64 + of_step.min(1.0)) / self.steps.len() as f64
        });
        ((self.done.len() as f64 + here) / self.needed as f64).min(1.0)
    }

    fn done_of(&self, servers: &[Candidate]) -> usize {
        servers.iter().filter(|server| self.done.contains(&server.number)).count()
    }
}

impl Place {
    fn first_of(server: u32) -> Self {
        Self { server, step: 0, cursor: 0, source: None, looked_at: 0, size: None }
    }
}

#[cfg(test)]
mod tests;
