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
pub(crate) enum Actor {
    Owner(Owner),
    Place(Place),
}

impl Party {
    /// An owner that was not named is of no other acquisition: its task or thread is all that is known of it.
    pub(crate) fn actors(&self) -> impl Iterator<Item = Actor> {
        let owner = self.owner.is_shared().then(|| Actor::Owner(self.owner.clone()));
        owner.into_iter().chain([Actor::Place(self.place)])
    }
}

/// All waits of this process, by their numbers. No number is used twice.
pub(crate) struct Waits<W> {
    last: u64,
    waits: HashMap<u64, (Party, W)>,
    by_actor: HashMap<Actor, SmallVec<[u64; 1]>>,
}

/// A wait, and the hold that is in its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edge<H> {
    pub(crate) wait: u64,
    pub(crate) hold: H,
}

impl<W> Default for Waits<W> {
    fn default() -> Self {
        Self { last: 0, waits: HashMap::new(), by_actor: HashMap::new() }
    }
}

impl<W> Waits<W> {
    /// A wait begins. Returns its number.
    pub(crate) fn begin(&mut self, party: Party, wait: W) -> u64 {
        self.last += 1;
        for actor in party.actors() {
            self.by_actor.entry(actor).or_default().push(self.last);
        }
        self.waits.insert(self.last, (party, wait));
        self.last
    }

    /// A wait has ended.
    pub(crate) fn end(&mut self, number: u64) -> Option<W> {
        let (party, wait) = self.waits.remove(&number)?;
        for actor in party.actors() {
            if let Some(numbers) = self.by_actor.get_mut(&actor) {
                numbers.retain(|other| *other != number);
                if numbers.is_empty() {
                    self.by_actor.remove(&actor);
                }
            }
        }
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
        let mut found = None;
        for actor in party.actors() {
            for number in self.by_actor.get(&actor).into_iter().flatten() {
                if found.is_some_and(|found| found != *number) {
                    return None;
                }
                found = Some(*number);
            }
        }
        found
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
mod tests {
    use super::*;

    /// A table: who holds which lock, and who waits for which.
    #[derive(Default)]
    struct Table {
        waits: Waits<&'static str>,
        holds: Vec<(&'static str, Party)>,
    }

    fn named(name: &'static str) -> Party {
        Party { owner: Owner::named(name), place: Place::here() }
    }

    impl Table {
        fn holds(&mut self, lock: &'static str, who: &Party) {
            self.holds.push((lock, who.clone()));
        }

        /// Returns the number of the wait, and the circle that it closes: `lock` and holder of each edge.
        fn waits(&mut self, who: &Party, lock: &'static str) -> (u64, String) {
            let number = self.waits.begin(who.clone(), lock);
            (number, self.circle(number))
        }

        fn circle(&self, number: u64) -> String {
            let blockers = |_, lock: &&'static str| {
                let blocks = self.holds.iter().filter(|(held, _)| held == lock);
                blocks.map(|(lock, party)| (party.clone(), (*lock, party.clone()))).collect()
            };
            let circle = self.waits.circle(number, blockers).unwrap_or_default();
            let edges = circle.iter().map(|edge| {
                let (lock, party) = &edge.hold;
                let owner = party.owner.to_string();
                format!("{lock} of {}", owner.split('#').next().unwrap_or_default())
            });
            edges.collect::<Vec<_>>().join(", ")
        }
    }

    /// Owners in tasks of their own.
    async fn parties<const N: usize>(names: [&'static str; N]) -> [Party; N] {
        let mut parties = Vec::new();
        for name in names {
            parties.push(tokio::spawn(async move { named(name) }).await.expect("no panic"));
        }
        parties.try_into().unwrap_or_else(|_| panic!("as many as were named"))
    }

    #[tokio::test]
    async fn the_wait_that_closes_a_circle_is_told_and_no_other() {
        let [x, y, z] = parties(["x", "y", "z"]).await;
        let mut table = Table::default();
        table.holds("a", &x);
        table.holds("b", &y);
        table.holds("c", &z);
        assert_eq!(table.waits(&x, "b").1, "");
        assert_eq!(table.waits(&y, "c").1, "");
        let (closing, circle) = table.waits(&z, "a");
        assert_eq!(circle, "a of x, b of y, c of z");
        table.waits.end(closing);
        assert_eq!(table.waits(&z, "d").1, "", "nobody holds that");
    }

    #[tokio::test]
    async fn a_wait_behind_a_circle_is_not_in_it() {
        let [x, y, z] = parties(["x", "y", "z"]).await;
        let mut table = Table::default();
        table.holds("a", &x);
        table.holds("b", &y);
        table.holds("c", &z);
        table.waits(&x, "b");
        assert_eq!(table.waits(&y, "a").1, "a of x, b of y");
        assert_eq!(table.waits(&z, "a").1, "");
    }

    #[tokio::test]
    async fn a_wait_that_has_ended_closes_nothing() {
        let [x, y] = parties(["x", "y"]).await;
        let mut table = Table::default();
        table.holds("a", &x);
        table.holds("b", &y);
        let (first, _) = table.waits(&x, "b");
        assert_eq!(table.waits.end(first), Some("b"));
        assert_eq!(table.waits(&y, "a").1, "");
        assert_eq!(table.waits(&x, "b").1, "b of y, a of x");
    }

    #[tokio::test]
    async fn any_of_several_that_share_a_lock_is_in_the_way() {
        let [x, y, z] = parties(["x", "y", "z"]).await;
        let mut table = Table::default();
        table.holds("shared", &x);
        table.holds("shared", &y);
        table.holds("a", &z);
        table.waits(&y, "a");
        assert_eq!(table.waits(&z, "shared").1, "shared of y, a of z");
    }

    #[tokio::test]
    async fn who_waits_for_two_things_at_once_is_not_known_to_be_blocked() {
        let [x, y] = parties(["x", "y"]).await;
        let mut table = Table::default();
        table.holds("a", &x);
        table.holds("b", &y);
        let (other, _) = table.waits(&x, "d");
        table.waits(&x, "b");
        let (closing, circle) = table.waits(&y, "a");
        assert_eq!(circle, "");
        table.waits.end(other);
        assert_eq!(table.circle(closing), "a of x, b of y");
    }

    #[tokio::test]
    async fn an_owner_without_a_name_is_known_by_its_task_and_a_named_one_in_every_task() {
        let [x, y] = parties(["x", "y"]).await;
        let name = "n".into();
        let key = crate::owner::LockKey { client: 1, name: &name };
        let single = |place| Party { owner: Owner::resolve(None, key), place };
        let mut table = Table::default();
        table.holds("a", &single(x.place));
        table.holds("b", &y);
        table.waits(&single(x.place), "b");
        let elsewhere = Party { owner: y.owner.clone(), place: Place::here() };
        assert_eq!(table.waits(&elsewhere, "a").1, "a of , b of y");
        assert_eq!(table.waits(&single(Place::here()), "a").1, "", "it holds nothing");
    }

    #[tokio::test]
    async fn a_long_circle_is_given_up_and_waits_leave_nothing_behind() {
        let mut table = Table::default();
        let mut numbers = Vec::new();
        let names: Vec<&'static str> =
            (0..=MOST_WAITS).map(|number| &*format!("l{number}").leak()).collect();
        let mut all = Vec::new();
        for name in &names {
            let [party] = parties([name]).await;
            table.holds(name, &party);
            all.push(party);
        }
        for (at, party) in all.iter().enumerate().skip(1) {
            numbers.push(table.waits(party, names[at - 1]).0);
        }
        let (closing, circle) = table.waits(&all[0], names[MOST_WAITS]);
        assert_eq!(circle, "", "more waits than are looked at");
        table.waits.end(closing);
        let (closing, circle) = table.waits(&all[0], names[MOST_WAITS - 1]);
        assert_eq!(circle.split(", ").count(), MOST_WAITS);
        numbers.push(closing);
        for number in numbers {
            assert!(table.waits.end(number).is_some());
        }
        assert!(table.waits.waits.is_empty() && table.waits.by_actor.is_empty());
    }
}
