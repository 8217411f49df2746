//! Who waits in this process, and whether they wait for each other. Pure: waits come and go, and a circle is looked for.
//!
//! A wait is blocked by each hold that is in its way, and a hold by the wait of whoever has it. If that one waits for two things
//! at once, nobody knows which of them it needs, so its holds count as free.

use std::collections::{HashMap, HashSet};

use smallvec::SmallVec;

use crate::owner::{Owner, Place};

/// Who holds or waits: the owner, and the task or thread.
#[derive(Clone, Debug)]
pub(crate) struct Party {
    pub(crate) owner: Owner,
    pub(crate) place: Place,
}

/// What a [`Party`] is known by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Actor {
    Owner(Owner),
    Place(Place),
}

impl Party {
    /// An owner that was not named is of no other acquisition: its task or thread is all that is known of it.
    fn actors(&self) -> impl Iterator<Item = Actor> {
        let owner = self.owner.is_shared().then(|| Actor::Owner(self.owner.clone()));
        owner.into_iter().chain([Actor::Place(self.place)])
    }
}

/// What parties have, found by each of what they are known by.
#[derive(Debug)]
pub(crate) struct ByParty<T>(HashMap<Actor, SmallVec<[T; 1]>>);

impl<T> Default for ByParty<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Clone> ByParty<T> {
    pub(crate) fn put(&mut self, party: &Party, what: &T) {
        for actor in party.actors() {
            self.0.entry(actor).or_default().push(what.clone());
        }
    }

    pub(crate) fn take_out(&mut self, party: &Party, is_it: impl Fn(&T) -> bool) {
        for actor in party.actors() {
            if let Some(all) = self.0.get_mut(&actor) {
                all.retain(|it| !is_it(it));
                if all.is_empty() {
                    self.0.remove(&actor);
                }
            }
        }
    }

    /// Returns what a party has; twice, if it was put there by one that is known by the same two things.
    pub(crate) fn of(&self, party: &Party) -> impl Iterator<Item = &T> {
        party.actors().filter_map(|actor| self.0.get(&actor)).flatten()
    }
}

/// All waits of this process, by their numbers. No number is used twice.
pub(crate) struct Waits<W> {
    last: u64,
    waits: HashMap<u64, (Party, W)>,
    by_party: ByParty<u64>,
}

/// A wait, and the hold that is in its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edge<H> {
    pub(crate) wait: u64,
    pub(crate) hold: H,
}

impl<W> Default for Waits<W> {
    fn default() -> Self {
        Self { last: 0, waits: HashMap::new(), by_party: ByParty::default() }
    }
}

impl<W> Waits<W> {
    /// A wait begins. Returns its number.
    pub(crate) fn begin(&mut self, party: Party, wait: W) -> u64 {
        self.last += 1;
        self.by_party.put(&party, &self.last);
        self.waits.insert(self.last, (party, wait));
        self.last
    }

    /// A wait has ended.
    pub(crate) fn end(&mut self, number: u64) -> Option<W> {
        let (party, wait) = self.waits.remove(&number)?;
        self.by_party.take_out(&party, |other| *other == number);
        Some(wait)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    pub(crate) fn get(&self, number: u64) -> Option<&(Party, W)> {
        self.waits.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut (Party, W)> {
        self.waits.get_mut(&number)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Party, &W)> {
        self.waits.iter().map(|(number, (party, wait))| (*number, party, wait))
    }

    /// Returns the one wait of a party, and none if it waits for several things at once.
    pub(crate) fn of(&self, party: &Party) -> Option<u64> {
        let mut all = self.by_party.of(party);
        let first = all.next()?;
        all.all(|number| number == first).then_some(*first)
    }

    /// Looks for a circle through the wait `start`, and returns it from there on: each hold belongs to whoever has the next
    /// wait, and the last one to whoever has the first. `blockers` returns the holds that are in the way of a wait.
    pub(crate) fn circle<H>(
        &self,
        start: u64,
        mut blockers: impl FnMut(u64, &W) -> Vec<(Party, H)>,
    ) -> Option<Vec<Edge<H>>> {
        let mut seen = HashSet::from([start]);
        let mut ahead = |number| {
            let (_, wait) = self.waits.get(&number)?;
            Some(blockers(number, wait).into_iter())
        };
        let mut path: Vec<(u64, Option<H>)> = vec![(start, None)];
        let mut branches = vec![ahead(start)?];
        while let Some(branch) = branches.last_mut() {
            let Some((party, hold)) = branch.next() else {
                branches.pop();
                path.pop();
                continue;
            };
            let Some(next) = self.of(&party) else { continue };
            if next != start && (seen.len() >= MOST_WAITS || !seen.insert(next)) {
                continue;
            }
            if let Some((_, taken)) = path.last_mut() {
                *taken = Some(hold);
            }
            if next == start {
                let edge = |(wait, hold): (u64, Option<H>)| Some(Edge { wait, hold: hold? });
                return path.into_iter().map(edge).collect();
            }
            if let Some(branch) = ahead(next) {
                path.push((next, None));
                branches.push(branch);
            }
        }
        None
    }
}

/// So many waits are looked at for each that begins, so that a thousand waiters do not slow each other down.
const MOST_WAITS: usize = 64;

#[cfg(test)]
mod tests;
