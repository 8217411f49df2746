//! In which order locks are taken one under the other, by classes of names; and whether a new pair contradicts that. Pure.
//!
//! A pair that closes a circle is told once, whether anybody waits or not: two who take the same locks in different orders may wait
//! for each other some day.
//!
//! Within a class, an order is one of four: the names as text, or with their numbers as numbers, up or down. It is broken once no
//! one of them fits all pairs that were seen.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

type Place = &'static Location<'static>;

/// A lock that is held or asked for, and the line of code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken<'a> {
    pub(crate) name: &'a str,
    pub(crate) at: Place,
}

/// One pair: the second was asked for under the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) held: Arc<str>,
    pub(crate) held_at: Place,
    pub(crate) wanted: Arc<str>,
    pub(crate) wanted_at: Place,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { held, held_at, wanted, wanted_at } = self;
        write!(f, "`{wanted}` ({wanted_at}) under `{held}` ({held_at})")
    }
}

/// Two classes: the locks of the first are taken before those of the second.
type Classes = (Arc<str>, Arc<str>);

#[derive(Default)]
pub(crate) struct Order {
    /// All pairs of classes that were seen, each with the first pair of locks.
    pairs: Recent<Classes, Pair>,
    /// The orders that fit each class, and the last pair that left none out.
    within: Recent<Arc<str>, (u8, Pair)>,
    told: Recent<Classes, ()>,
}

/// The last that were put in.
struct Recent<K, V> {
    map: BTreeMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { map: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Ord, V> Recent<K, V> {
    /// Puts in what is not there. If there are too many then, the oldest is taken out.
    fn insert(&mut self, key: K, value: V) {
        self.map.insert(key.clone(), value);
        self.order.push_back(key);
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.map.remove(&oldest);
        }
    }
}

impl Order {
    /// Notes that a lock is asked for under another one. Returns a circle that this closes: this pair, and the others from what is
    /// wanted now back to what is held, unless the circle was returned before.
    pub(crate) fn note(&mut self, held: Taken<'_>, wanted: Taken<'_>) -> Option<Vec<Pair>> {
        let others = self.contradicted(held, wanted)?;
        Some([vec![pair(held, wanted)], others].concat())
    }

    fn contradicted(&mut self, held: Taken<'_>, wanted: Taken<'_>) -> Option<Vec<Pair>> {
        let (above, below) = (class(held.name), class(wanted.name));
        if held.name == wanted.name {
            return None;
        }
        if above == below {
            return self.note_within(held, wanted, above);
        }
        let classes: Classes = (above.into(), below.into());
        if self.pairs.map.contains_key(&classes) || self.told.map.contains_key(&classes) {
            return None;
        }
        let circle = self.way(&classes.1, &classes.0);
        match circle {
            None => self.pairs.insert(classes, pair(held, wanted)),
            Some(_) => self.told.insert(classes, ()),
        }
        circle
    }

    fn note_within(
        &mut self,
        held: Taken<'_>,
        wanted: Taken<'_>,
        class: &str,
    ) -> Option<Vec<Pair>> {
        let fits = fitting(held.name, wanted.name);
        let Some((left, last)) = self.within.map.get_mut(class) else {
            self.within.insert(class.into(), (fits, pair(held, wanted)));
            return None;
        };
        if *left & fits != 0 {
            if *left & fits != *left {
                (*left, *last) = (*left & fits, pair(held, wanted));
            }
            return None;
        }
        let last = last.clone();
        self.tells((class.into(), class.into())).then(|| vec![last])
    }

    /// Returns true once for two classes.
    fn tells(&mut self, classes: Classes) -> bool {
        let is_news = !self.told.map.contains_key(&classes);
        if is_news {
            self.told.insert(classes, ());
        }
        is_news
    }

    /// Returns the pairs that lead from one class to another, the fewest.
    fn way(&self, from: &Arc<str>, to: &Arc<str>) -> Option<Vec<Pair>> {
        let mut came_by: HashMap<&Arc<str>, (&Arc<str>, &Pair)> = HashMap::new();
        let mut next = VecDeque::from([from]);
        while let Some(class) = next.pop_front() {
            if class == to {
                let mut way = Vec::new();
                let mut at = class;
                while let Some((before, pair)) = came_by.get(at).filter(|_| at != from) {
                    way.push((*pair).clone());
                    at = before;
                }
                way.reverse();
                return Some(way);
            }
            let from_here = self.pairs.map.range((class.clone(), "".into())..);
            for ((_, below), pair) in from_here.take_while(|((above, _), _)| above == class) {
                if below != from && !came_by.contains_key(below) {
                    came_by.insert(below, (class, pair));
                    next.push_back(below);
                }
            }
        }
        None
    }
}

/// Returns the class of a name: all but its last part, or but the digits at its end. Locks of one class are taken by the same lines of
/// code.
fn class(name: &str) -> &str {
    let digits = || name.trim_end_matches(|it: char| it.is_ascii_digit());
    name.rsplit_once(':').map_or_else(digits, |(class, _)| class)
}

fn pair(held: Taken<'_>, wanted: Taken<'_>) -> Pair {
    Pair {
        held: held.name.into(),
        held_at: held.at,
        wanted: wanted.name.into(),
        wanted_at: wanted.at,
    }
}

/// Returns the orders in which the second comes behind the first, as bits.
fn fitting(first: &str, second: &str) -> u8 {
    let orders = [first.cmp(second), by_numbers(first, second)];
    orders.iter().enumerate().fold(0, |bits, (at, order)| match order {
        Ordering::Less => bits | 1 << (2 * at),
        Ordering::Greater => bits | 2 << (2 * at),
        Ordering::Equal => bits,
    })
}

/// Compares names whose digits are numbers: 9 comes before 10.
fn by_numbers(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let ((first, rest), (second, left)) = (head(one), head(other));
        let both = [first, second].iter().all(|it| it.starts_with(|it: char| it.is_ascii_digit()));
        let order = match both {
            true => {
                let [first, second] = [first, second].map(|it| it.trim_start_matches('0'));
                first.len().cmp(&second.len()).then_with(|| first.cmp(second))
            }
            false => first.cmp(second),
        };
        if order != Ordering::Equal || (rest.is_empty() && left.is_empty()) {
            return order.then_with(|| one.cmp(other));
        }
        (one, other) = (rest, left);
    }
}

/// Splits off the digits that a text begins with, or what is before the next ones.
fn head(text: &str) -> (&str, &str) {
    let is_number = text.starts_with(|it: char| it.is_ascii_digit());
    let end = text.find(|it: char| it.is_ascii_digit() != is_number).unwrap_or(text.len());
    text.split_at(end)
}

/// So many pairs of classes are remembered, and so many classes, and so many that were told.
const MOST: usize = 4096;

#[cfg(test)]
mod tests;
