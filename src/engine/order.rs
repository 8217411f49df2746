//! In which order locks are taken one under the other, by classes of names; and whether a new pair contradicts that. Pure.
//!
//! A pair that closes a circle is told once, whether anybody waits or not: two who take the same locks in different orders may wait
//! for each other some day.
//!
//! Within a class, an order is one of four: the names as text, or with their numbers as numbers, up or down. It is broken once no
//! one of them fits all pairs that were seen.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
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

/// All pairs of classes that were seen, each with the first pair of locks.
#[derive(Default)]
pub(crate) struct Order {
    under: HashMap<Arc<str>, HashMap<Arc<str>, Pair>>,
    pairs: Recent<(Arc<str>, Arc<str>), ()>,
    /// The orders that fit each class, and the last pair that left none out.
    within: Recent<Arc<str>, (u8, Pair)>,
    told: Recent<(Arc<str>, Arc<str>), ()>,
}

/// The last that were put in.
struct Recent<K, V> {
    map: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { map: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    /// Puts in what is not there. Returns what is taken out for it.
    fn insert(&mut self, key: K, value: V) -> Option<K> {
        self.map.insert(key.clone(), value);
        self.order.push_back(key);
        let first = if self.order.len() > MOST { self.order.pop_front() } else { None };
        first.inspect(|first| drop(self.map.remove(first)))
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
        if self.under.get(above).is_some_and(|under| under.contains_key(below)) {
            return None;
        }
        let (above, below): (Arc<str>, Arc<str>) = (above.into(), below.into());
        let circle = self.way(&below, &above);
        if circle.is_none() {
            self.under.entry(above.clone()).or_default().insert(below.clone(), pair(held, wanted));
            if let Some((above, below)) = self.pairs.insert((above.clone(), below.clone()), ()) {
                self.forget(&above, &below);
            }
        }
        circle.filter(|_| self.tells(above, below))
    }

    fn forget(&mut self, above: &Arc<str>, below: &Arc<str>) {
        if let Some(under) = self.under.get_mut(above) {
            under.remove(below);
            if under.is_empty() {
                self.under.remove(above);
            }
        }
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
        self.tells(class.into(), class.into()).then(|| vec![last])
    }

    /// Returns true once for two classes.
    fn tells(&mut self, above: Arc<str>, below: Arc<str>) -> bool {
        let told = (above, below);
        let is_news = !self.told.map.contains_key(&told);
        if is_news {
            self.told.insert(told, ());
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
            for (below, pair) in self.under.get(class).into_iter().flatten() {
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
        let number = |text: &str| text.trim_start_matches('0').to_owned();
        let both = [first, second].iter().all(|it| it.starts_with(|it: char| it.is_ascii_digit()));
        let order = match both {
            true => {
                let (first, second) = (number(first), number(second));
                first.len().cmp(&second.len()).then_with(|| first.cmp(&second))
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
mod tests {
    use super::*;

    fn note(order: &mut Order, held: &str, wanted: &str) -> Option<String> {
        let at = Location::caller();
        let (held, wanted) = (Taken { name: held, at }, Taken { name: wanted, at });
        let circle = order.note(held, wanted)?;
        assert_eq!((&*circle[0].held, &*circle[0].wanted), (held.name, wanted.name));
        let parts = circle[1..].iter().map(|pair| format!("{}>{}", pair.held, pair.wanted));
        Some(parts.collect::<Vec<_>>().join(" "))
    }

    fn notes(order: &mut Order, pairs: &[(&str, &str)]) -> Vec<Option<String>> {
        pairs.iter().map(|(held, wanted)| note(order, held, wanted)).collect()
    }

    #[test]
    fn what_closes_a_circle_is_told_once_with_all_others() {
        let mut order = Order::default();
        let told = notes(&mut order, &[("a:1", "b:1"), ("b:2", "c"), ("a:9", "c"), ("c", "d:7")]);
        assert!(told.iter().all(Option::is_none), "{told:?}");
        assert_eq!(note(&mut order, "c", "a:5").as_deref(), Some("a:9>c"), "the fewest");
        assert_eq!(note(&mut order, "c", "a:6"), None, "it was told");
        assert_eq!(note(&mut order, "d:1", "b:5").as_deref(), Some("b:2>c c>d:7"));
        assert_eq!(note(&mut order, "a:1", "b:3"), None, "the others are in order");
        assert_eq!(note(&mut order, "a:1", "a:1"), None, "it re-enters");
    }

    #[test]
    fn within_a_class_any_order_will_do_and_no_order_is_told_once() {
        for names in [["9", "10", "11"], ["11", "10", "9"], ["10", "11", "9"], ["9", "11", "10"]] {
            let [first, second, third] = names.map(|number| format!("account:{number}"));
            let mut order = Order::default();
            for (held, wanted) in [(&first, &second), (&second, &third), (&first, &third)] {
                assert_eq!(note(&mut order, held, wanted), None, "{names:?}");
            }
            let expected = Some(format!("{second}>{third}"));
            let told = note(&mut order, &third, &second);
            assert!(told.is_some(), "{names:?}: {told:?} {expected:?}");
            assert_eq!(note(&mut order, &third, &first), None, "{names:?}");
        }
    }

    #[test]
    fn the_oldest_is_forgotten_for_the_newest() {
        let mut order = Order::default();
        for number in 0..2 * MOST {
            assert_eq!(note(&mut order, &format!("a{number}:1"), &format!("b{number}:1")), None);
            note(&mut order, &format!("c{number}:1"), &format!("c{number}:2"));
            note(&mut order, &format!("c{number}:2"), &format!("c{number}:1"));
        }
        let sizes = [order.under.len(), order.within.map.len(), order.told.map.len()];
        assert_eq!(sizes, [MOST; 3]);
        let last = 2 * MOST - 1;
        assert!(note(&mut order, &format!("b{last}:1"), &format!("a{last}:1")).is_some());
        assert_eq!(note(&mut order, "b0:1", "a0:1"), None, "nobody knows the other one");
    }

    #[test]
    fn a_class_is_a_name_without_its_last_part_or_its_number() {
        for (name, expected) in
            [("a:b:c", "a:b"), ("a", "a"), ("a-7", "a-"), ("a7:x9", "a7"), ("77", ""), (":7", "")]
        {
            assert_eq!(class(name), expected, "{name}");
        }
    }

    #[test]
    fn numbers_in_names_are_compared_as_numbers() {
        for (one, other) in [("a9", "a10"), ("a09b2", "a9b10"), ("a", "a1"), ("a1b", "a1c")] {
            assert_eq!(by_numbers(one, other), Ordering::Less, "{one} {other}");
            assert_eq!(by_numbers(other, one), Ordering::Greater, "{one} {other}");
        }
        assert_eq!(by_numbers("a7", "a7"), Ordering::Equal);
    }
}
