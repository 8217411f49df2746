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
mod tests {
    use super::*;

    fn servers(up: &[bool]) -> Vec<Candidate> {
        let server =
            |(number, is_up): (usize, &bool)| Candidate { number: number as u32, is_up: *is_up };
        up.iter().enumerate().map(server).collect()
    }

    fn walk() -> Walk {
        let keys = |of| Step::Keys { pattern: "*".to_owned(), of };
        Walk::new(vec![keys(KeyType::Hash), keys(KeyType::SortedSet)])
    }

    /// Where it looks next: server, step and cursor.
    fn place(walk: &mut Walk, servers: &[Candidate], needed: usize) -> Option<(u32, KeyType, u64)> {
        walk.next(servers, needed).map(|(server, step, cursor)| match step {
            Step::Keys { of, .. } => (server, *of, cursor),
            Step::Channels => panic!("there is no such step"),
        })
    }

    const RUN: Source = Source { member: 0, run: 1 };

    #[test]
    fn it_looks_at_all_keys_of_each_type_on_each_server() {
        let (mut walk, servers) = (walk(), servers(&[true, true]));
        let mut seen = Vec::new();
        let mut progress = vec![walk.progress()];
        while let Some(place) = place(&mut walk, &servers, 2) {
            seen.push(place);
            let next = if place.2 == 0 { 7 } else { 0 };
            walk.looked(RUN, next, 1000, Some(2000));
            progress.push(walk.progress());
        }
        let of = |server| {
            [(server, KeyType::Hash, 0), (server, KeyType::Hash, 7)]
                .into_iter()
                .chain([(server, KeyType::SortedSet, 0), (server, KeyType::SortedSet, 7)])
        };
        assert_eq!(seen, of(0).chain(of(1)).collect::<Vec<_>>());
        assert_eq!(progress, [0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0]);
    }

    #[test]
    fn a_server_that_runs_anew_is_looked_at_from_the_beginning() {
        let (mut walk, servers) = (walk(), servers(&[true]));
        for (next, run, expected) in [
            (7, 1, (0, KeyType::Hash, 7)),
            (0, 1, (0, KeyType::SortedSet, 0)),
            (9, 2, (0, KeyType::Hash, 0)),
            (3, 2, (0, KeyType::Hash, 3)),
        ] {
            place(&mut walk, &servers, 1).expect("it goes on");
            walk.looked(Source { run, ..RUN }, next, 1000, None);
            assert_eq!(place(&mut walk, &servers, 1), Some(expected));
        }
    }

    #[test]
    fn of_several_masters_another_takes_the_place_of_one_that_fails() {
        let (mut walk, servers) = (walk(), servers(&[false, true, true]));
        let server = |walk: &mut Walk| place(walk, &servers, 2).map(|(server, ..)| server);
        assert_eq!(server(&mut walk), Some(1), "it is connected");
        walk.looked(RUN, 0, 1000, None);
        assert!(walk.failed(&servers));
        assert_eq!(server(&mut walk), Some(2));
        assert!(!walk.failed(&servers), "one is too few");
        assert_eq!(server(&mut walk), Some(2), "it goes on where it was");
        for _ in 0..2 {
            walk.looked(RUN, 0, 1000, None);
        }
        assert_eq!(server(&mut walk), Some(1), "the other one from the beginning");
        for _ in 0..2 {
            walk.looked(RUN, 0, 1000, None);
        }
        assert_eq!((server(&mut walk), walk.progress()), (None, 1.0));
    }

    #[test]
    fn a_master_that_comes_is_looked_at_and_one_that_goes_is_left() {
        let (mut walk, both) = (walk(), servers(&[true, true]));
        let server = |walk: &mut Walk, of: &[Candidate]| {
            place(walk, of, of.len()).map(|(server, ..)| server)
        };
        assert_eq!(server(&mut walk, &both), Some(0));
        assert!(!walk.failed(&both), "no other has its keys");
        assert_eq!(server(&mut walk, &both[1..]), Some(1));
        for _ in 0..2 {
            walk.looked(RUN, 0, 1000, None);
        }
        assert_eq!(server(&mut walk, &both[1..]), None);
        let new = [both[1], Candidate { number: 2, is_up: false }];
        assert_eq!(server(&mut walk, &new), Some(2));
    }
}
