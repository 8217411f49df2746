//! Who waits in this process, and whether they wait for each other. Pure: waits come and go, and a circle is looked for.
//!
//! A wait is blocked by each hold that is in its way, and a hold by the wait of whoever has it. If that one waits for two things
//! at once, nobody knows which of them it needs, so its holds count as free.
//!
//! Who waits for permits goes on as soon as enough of them are free, whoever gives them back. So holds have weights, and a wait is
//! blocked if those that are blocked weigh more than it can spare.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

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

/// The holds in the way of a wait, each with its weight. It goes on when those that are left weigh no more than `spare`.
pub(crate) struct InTheWay<H> {
    pub(crate) spare: u64,
    pub(crate) holds: Vec<(Party, u64, H)>,
}

/// Waits that all stay blocked until one of them ends otherwise.
pub(crate) struct Knot<H> {
    /// A circle of them: each hold belongs to whoever has the next wait, and the last one to whoever has the first.
    pub(crate) circle: Vec<Edge<H>>,
    /// All that they are blocked by.
    pub(crate) all: Vec<Edge<H>>,
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

    /// Looks for a circle through the wait `start` whose waits all stay blocked: what has to end before one of them goes on is held
    /// by others that are blocked like it.
    pub(crate) fn knot<H: Clone>(
        &self,
        start: u64,
        mut in_the_way: impl FnMut(u64, &W) -> InTheWay<H>,
    ) -> Option<Knot<H>> {
        let (mut seen, mut found, mut most) = (HashSet::from([start]), vec![start], MOST_WAITS);
        let mut blocked: HashMap<u64, Ahead<H>> = HashMap::new();
        let mut at = 0;
        while let Some(number) = found.get(at).copied() {
            at += 1;
            let Some((_, wait)) = self.waits.get(&number) else { continue };
            let InTheWay { spare, holds } = in_the_way(number, wait);
            if spare > 0 {
                // It takes them all, and not one of them.
                most = MOST_HOLDERS.min(most + holds.len());
            }
            let mut ahead = Ahead { spare, edges: Vec::new() };
            for (party, weight, hold) in holds {
                let Some(next) = self.of(&party) else { continue };
                if !seen.contains(&next) {
                    if seen.len() >= most {
                        continue;
                    }
                    seen.insert(next);
                    found.push(next);
                }
                ahead.edges.push((next, weight, hold));
            }
            blocked.insert(number, ahead);
        }
        // Whoever can go on may let others go on. Those that were found last are mostly the ends of chains.
        loop {
            let before = blocked.len();
            for number in found.iter().rev() {
                if blocked.get(number).is_some_and(|ahead| ahead.can_end(&blocked)) {
                    blocked.remove(number);
                }
            }
            if blocked.len() == before {
                break;
            }
        }
        let circle = circle(start, &blocked)?;
        let all = blocked.iter().flat_map(|(wait, ahead)| {
            ahead.blocked(&blocked).map(|(_, _, hold)| Edge { wait: *wait, hold: hold.clone() })
        });
        Some(Knot { circle, all: all.collect() })
    }
}

/// What a wait that was found is blocked by: each hold with its weight, and with the wait of whoever has it.
struct Ahead<H> {
    spare: u64,
    edges: Vec<(u64, u64, H)>,
}

impl<H> Ahead<H> {
    fn blocked(&self, blocked: &HashMap<u64, Self>) -> impl Iterator<Item = &(u64, u64, H)> {
        self.edges.iter().filter(|(next, ..)| blocked.contains_key(next))
    }

    fn can_end(&self, blocked: &HashMap<u64, Self>) -> bool {
        self.blocked(blocked).map(|(_, weight, _)| weight).sum::<u64>() <= self.spare
    }
}

/// Returns a shortest circle through `start`.
fn circle<H: Clone>(start: u64, blocked: &HashMap<u64, Ahead<H>>) -> Option<Vec<Edge<H>>> {
    let mut met_by: HashMap<u64, (u64, &H)> = HashMap::new();
    let mut to_visit = VecDeque::from([start]);
    while let Some(wait) = to_visit.pop_front() {
        for (next, _, hold) in blocked.get(&wait)?.blocked(blocked) {
            if *next == start {
                let mut edges = vec![Edge { wait, hold: hold.clone() }];
                let mut at = wait;
                while at != start {
                    let (wait, hold) = met_by[&at];
                    edges.push(Edge { wait, hold: hold.clone() });
                    at = wait;
                }
                edges.reverse();
                return Some(edges);
            }
            if let Entry::Vacant(unmet) = met_by.entry(*next) {
                unmet.insert((wait, hold));
                to_visit.push_back(*next);
            }
        }
    }
    None
}

/// So many waits are looked at for each that begins, so that a thousand waiters do not slow each other down.
const MOST_WAITS: usize = 64;
/// So many at most, where all holders of something have to be looked at.
const MOST_HOLDERS: usize = 1024;

#[cfg(test)]
mod tests;
