//! Where a server has the items of a queue, and what a script may change of that. Pure.
//!
//! Each item is in one place: waiting, lent, due or dead. It is made by a push, and ends by the `ack` of the delivery that has it.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_test::emulator::keyspace::Keyspace;

use super::{MOST_DELIVERIES, QUEUE_NAME};

/// The items of the queue, as a server has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shelf {
    waiting: Vec<u64>,
    /// What is lent, by the delivery's id, or due, behind `due:`.
    out: BTreeMap<String, Out>,
    dead: Vec<u64>,
    /// What it has beside that, or lacks.
    odd: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Out {
    item: u64,
    number: u32,
    /// When it was lent, if the server says so.
    at_us: u64,
    ends_ms: i64,
}

/// What a server has under the queue's keys. In a cluster some of them may be on another one, while their slot moves.
#[derive(Default)]
pub struct Found {
    waiting: Vec<Vec<u8>>,
    lent: Vec<(Vec<u8>, f64)>,
    contents: Vec<(Vec<u8>, Vec<u8>)>,
    dead: Vec<Vec<u8>>,
}

/// A script that ran.
pub struct Step<'a> {
    pub name: &'a str,
    pub args: &'a [Vec<u8>],
    /// What it answered, or the first of that.
    pub answer: i64,
    /// What the server's clock showed.
    pub now_ms: i64,
}

/// The keys of what is lent, of the contents, and of what is dead.
pub fn keys() -> [String; 3] {
    ["lent", "items", "dead"].map(|what| format!("leasehold_{what}:{{{QUEUE_NAME}}}"))
}

/// The item that a payload is of: its number, and what makes it longer behind a space.
pub fn item_of(payload: &[u8]) -> Option<u64> {
    let number = payload.split(|byte| *byte == b' ').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Whether a script is about the queue's items.
pub fn is_about_items(script_keys: &[Vec<u8>]) -> bool {
    let lent = &keys()[0];
    script_keys.iter().take(2).any(|key| key == lent.as_bytes())
}

impl Found {
    pub fn read(keyspace: &mut Keyspace) -> Self {
        let [lent, contents, dead] = keys();
        Self {
            waiting: keyspace.listed(QUEUE_NAME.as_bytes()),
            lent: keyspace.scored(lent.as_bytes()),
            contents: keyspace.fields(contents.as_bytes()),
            dead: keyspace.listed(dead.as_bytes()),
        }
    }

    /// Together with what is on another server.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.waiting.extend(other.waiting);
        self.lent.extend(other.lent);
        self.contents.extend(other.contents);
        self.dead.extend(other.dead);
        self
    }
}

impl From<Found> for Shelf {
    fn from(found: Found) -> Self {
        let mut odd = Vec::new();
        let mut known = |payload: &[u8]| {
            item_of(payload).unwrap_or_else(|| {
                odd.push(format!("{:?} is no item", String::from_utf8_lossy(payload)));
                0
            })
        };
        let waiting = found.waiting.iter().map(|payload| known(payload)).collect();
        let dead = found.dead.iter().map(|payload| known(payload)).collect();
        let mut texts: BTreeMap<Vec<u8>, Vec<u8>> = found.contents.into_iter().collect();
        let mut out = BTreeMap::new();
        for (member, ends_ms) in found.lent {
            let id = String::from_utf8_lossy(&member).into_owned();
            let text = texts.remove(&member).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let Some((head, payload)) = text.split_once(':') else {
                odd.push(format!("{id} has no content"));
                continue;
            };
            // How often it was delivered, and perhaps when.
            let (number, at_us) = head.split_once(' ').unwrap_or((head, "0"));
            let as_number = |text: &str| text.parse::<u64>().unwrap_or(0);
            let (number, at_us) = (as_number(number) as u32, as_number(at_us));
            let item = item_of(payload.as_bytes()).unwrap_or(0);
            out.insert(id, Out { item, number, at_us, ends_ms: ends_ms.ceil() as i64 });
        }
        odd.extend(texts.keys().map(|id| format!("{} is not lent", String::from_utf8_lossy(id))));
        Self { waiting, out, dead, odd }
    }
}

impl Shelf {
    /// All items that are there.
    pub fn items(&self) -> BTreeSet<u64> {
        self.all().collect()
    }

    #[cfg(test)]
    pub fn of_waiting(items: &[u64]) -> Self {
        Self { waiting: items.to_vec(), ..Self::default() }
    }

    /// Whether one who asks could have one.
    pub fn has_some(&self, now_ms: i64) -> bool {
        !self.waiting.is_empty() || self.out.values().any(|out| out.ends_ms <= now_ms)
    }

    /// How often an item was delivered that is there. What is lent may not be seen, and not count.
    pub fn number(&self, item: u64) -> u32 {
        let out = self.out.iter().find(|(_, out)| out.item == item);
        let out = out.map(|(id, out)| out.number.saturating_sub(u32::from(!is_due(id))));
        let dead = self.dead.contains(&item).then_some(MOST_DELIVERIES);
        out.or(dead).unwrap_or(0)
    }

    /// The deliveries that have not ended.
    pub fn lent(&self, now_ms: i64) -> impl Iterator<Item = &str> {
        let lent = self.out.iter().filter(move |(id, out)| !is_due(id) && out.ends_ms > now_ms);
        lent.map(|(id, _)| &**id)
    }

    /// Dead items that a script has made as new.
    pub fn redriven<'a>(&'a self, after: &'a Self) -> impl Iterator<Item = u64> + 'a {
        self.dead.iter().copied().filter(|item| !after.dead.contains(item))
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        let out = self.out.values().map(|out| out.item);
        self.waiting.iter().copied().chain(out).chain(self.dead.iter().copied())
    }

    /// Returns what is wrong with `after`, to which a script has brought it.
    pub fn compare(&self, after: &Self, step: &Step<'_>) -> Vec<String> {
        let mut wrong = after.odd.clone();
        let mut seen = BTreeSet::new();
        wrong.extend(
            after.all().filter(|item| !seen.insert(*item)).map(|item| format!("{item} twice")),
        );
        let (had, has) = (self.items(), after.items());
        let settled = self.settled(step);
        for gone in had.difference(&has) {
            let is_done =
                settled.as_ref().is_some_and(|(out, how)| out.item == *gone && how == "ack");
            if !is_done {
                wrong.push(format!("{gone} is gone"));
            }
        }
        let pushed: BTreeSet<u64> = match step.name {
            "item_push" if step.answer == 1 => {
                (1..step.args.len()).filter_map(|at| item_of(&step.args[at])).collect()
            }
            _ => BTreeSet::new(),
        };
        let new: BTreeSet<u64> = has.difference(&had).copied().collect();
        if new != pushed {
            wrong.push(format!("{new:?} are new, and {pushed:?} were pushed"));
        }
        wrong.extend(after.out.iter().filter_map(|(id, out)| {
            let expected = self.number_of(id, *out, settled.as_ref(), step)?;
            let what = format!("{id} has {} for time {}", out.item, out.number);
            match expected {
                Some(number) if number == out.number => None,
                Some(number) => Some(format!("{what}, not {number}")),
                None => Some(format!("{what}, which it must not have")),
            }
        }));
        for item in after.dead.iter().filter(|item| !self.dead.contains(item)) {
            let before = self.out.values().find(|out| out.item == *item);
            let rejected =
                settled.as_ref().is_some_and(|(out, how)| out.item == *item && how == "reject");
            let spent = before.is_some_and(|out| out.number >= MOST_DELIVERIES)
                && self.may_be_lent(*item, settled.as_ref(), step);
            if !rejected && !spent {
                wrong.push(format!("{item} is dead, from {before:?}"));
            }
        }
        let back = self.dead.iter().filter(|item| !after.dead.contains(item));
        if step.name != "item_redrive" {
            wrong.extend(back.map(|item| format!("{item} is dead no more")));
        }
        wrong
    }

    /// What a script has taken from the delivery that it is about, and how. If that is another than its worker has seen, since a
    /// request for it ran late, nobody has seen it.
    fn settled(&self, step: &Step<'_>) -> Option<(Out, String)> {
        let out = *self.out.get(&step.word(0)).filter(|_| step.name == "item_settle")?;
        let is_seen = [String::new(), out.at_us.to_string()].contains(&step.word(4));
        let how = if is_seen { step.word(1) } else { "undo".to_owned() };
        (step.answer == i64::from(is_seen)).then_some((out, how))
    }

    /// How often what is out must have been delivered. `None`: it is as it was. `Some(None)`: it must not be there.
    fn number_of(
        &self,
        id: &str,
        out: Out,
        settled: Option<&(Out, String)>,
        step: &Step<'_>,
    ) -> Option<Option<u32>> {
        if let Some(was) = self.out.get(id)
            && was.item == out.item
        {
            return (was.number != out.number).then_some(Some(was.number));
        }
        // What its delivery has given back is as often delivered as it was, or once less if nobody saw it.
        let given_back = settled.filter(|(was, _)| was.item == out.item);
        let undone = given_back.is_some_and(|(_, how)| how == "undo");
        let Some(was) = self.out.values().find(|was| was.item == out.item) else {
            return Some((!is_due(id)).then_some(1));
        };
        let counted = was.number - u32::from(undone);
        if is_due(id) {
            return Some(given_back.map(|_| counted));
        }
        Some(self.may_be_lent(out.item, settled, step).then_some(counted + 1))
    }

    /// Whether an item that was out may be lent to another: its delivery has ended, or was given back.
    fn may_be_lent(&self, item: u64, settled: Option<&(Out, String)>, step: &Step<'_>) -> bool {
        let ended = |out: &Out| out.item == item && out.ends_ms <= step.now_ms;
        let at_once = |(out, how): &(Out, String)| {
            out.item == item && (how == "undo" || (how == "retry" && step.word(2) == "0"))
        };
        self.out.values().any(ended) || settled.is_some_and(at_once)
    }
}

impl Step<'_> {
    fn word(&self, at: usize) -> String {
        self.args.get(at).map(|arg| String::from_utf8_lossy(arg).into_owned()).unwrap_or_default()
    }
}

fn is_due(id: &str) -> bool {
    id.starts_with("due:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf(waiting: &[u64], out: &[(&str, u64, u32, i64)], dead: &[u64]) -> Shelf {
        let out = out.iter().map(|(id, item, number, ends_ms)| {
            ((*id).to_owned(), Out { item: *item, number: *number, at_us: 7, ends_ms: *ends_ms })
        });
        Shelf {
            waiting: waiting.to_vec(),
            out: out.collect(),
            dead: dead.to_vec(),
            odd: Vec::new(),
        }
    }

    /// What is wrong with a script at the time 100.
    fn wrong(before: &Shelf, after: &Shelf, name: &str, args: &[&str], answer: i64) -> String {
        let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
        before.compare(after, &Step { name, args: &args, answer, now_ms: 100 }).join("; ")
    }

    #[test]
    fn items_are_made_by_a_push_and_end_by_an_ack() {
        let (none, one) = (shelf(&[], &[], &[]), shelf(&[1], &[], &[]));
        let lent = shelf(&[], &[("a", 1, 1, 500)], &[]);
        assert_eq!(wrong(&none, &one, "item_push", &["0", "1"], 1), "");
        assert_eq!(wrong(&none, &lent, "item_push", &["0", "1"], 1), "", "handed on at once");
        assert_ne!(wrong(&none, &one, "item_push", &["1", "1"], 0), "", "there was no room");
        assert_ne!(wrong(&none, &one, "item_pop", &["a"], 0), "", "from nowhere");
        assert_eq!(wrong(&one, &lent, "item_pop", &["a"], 1), "");
        assert_eq!(wrong(&lent, &none, "item_settle", &["a", "ack"], 1), "");
        assert_ne!(wrong(&lent, &none, "item_settle", &["a", "retry", "0"], 1), "");
        assert_ne!(wrong(&lent, &none, "item_settle", &["b", "ack"], 0), "", "of another");
        assert_ne!(wrong(&one, &shelf(&[1], &[("a", 1, 1, 500)], &[]), "item_pop", &["a"], 1), "");
    }

    #[test]
    fn an_item_is_lent_again_when_its_delivery_has_ended_or_was_given_back() {
        let (lasts, ended) =
            (shelf(&[], &[("a", 1, 1, 101)], &[]), shelf(&[], &[("a", 1, 1, 100)], &[]));
        let next = |number| shelf(&[], &[("b", 1, number, 500)], &[]);
        assert_eq!(wrong(&ended, &next(2), "item_pop", &["b"], 1), "");
        assert_ne!(wrong(&ended, &next(1), "item_pop", &["b"], 1), "", "it is not counted");
        assert_ne!(wrong(&lasts, &next(2), "item_pop", &["b"], 1), "", "too early");
        assert_eq!(wrong(&lasts, &next(2), "item_settle", &["a", "retry", "0"], 1), "");
        assert_eq!(wrong(&lasts, &next(1), "item_settle", &["a", "undo", "0"], 1), "");
        assert_ne!(wrong(&lasts, &next(2), "item_settle", &["a", "retry", "50"], 1), "", "later");
        let due = shelf(&[], &[("due:a", 1, 1, 150)], &[]);
        assert_eq!(wrong(&lasts, &due, "item_settle", &["a", "retry", "50"], 1), "");
        assert_ne!(wrong(&due, &next(2), "item_pop", &["b"], 1), "", "not due yet");
        assert_ne!(wrong(&lasts, &due, "item_pop", &["b"], 0), "", "nobody gave it back");
    }

    #[test]
    fn what_a_late_request_has_lent_is_no_delivery_for_who_had_another_item() {
        let lasts = shelf(&[], &[("a", 1, 2, 101)], &[]);
        let due = shelf(&[], &[("due:a", 1, 1, 100)], &[]);
        assert_eq!(wrong(&lasts, &due, "item_settle", &["a", "ack", "0", "", "6"], 0), "");
        assert_ne!(wrong(&lasts, &due, "item_settle", &["a", "ack", "0", "", "7"], 1), "");
        let none = shelf(&[], &[], &[]);
        assert_ne!(wrong(&lasts, &none, "item_settle", &["a", "ack", "0", "", "6"], 1), "");
        assert_eq!(wrong(&lasts, &none, "item_settle", &["a", "ack", "0", "", "7"], 1), "");
    }

    #[test]
    fn an_item_is_dead_when_it_was_rejected_or_delivered_too_often() {
        let dead = shelf(&[], &[], &[1]);
        let ended = |number| shelf(&[], &[("a", 1, number, 100)], &[]);
        assert_eq!(wrong(&ended(MOST_DELIVERIES), &dead, "item_pop", &["b"], 0), "");
        assert_ne!(wrong(&ended(MOST_DELIVERIES - 1), &dead, "item_pop", &["b"], 0), "");
        assert_eq!(wrong(&ended(1), &dead, "item_settle", &["a", "reject"], 1), "");
        assert_ne!(wrong(&ended(1), &dead, "item_settle", &["a", "ack"], 1), "");
        let waits = shelf(&[1], &[], &[]);
        assert_eq!(wrong(&dead, &waits, "item_redrive", &["1"], 1), "");
        assert_eq!(dead.redriven(&waits).collect::<Vec<_>>(), [1]);
        assert_ne!(wrong(&dead, &waits, "item_pop", &["b"], 0), "", "nobody asked for it");
        assert_ne!(wrong(&dead, &shelf(&[], &[], &[]), "item_redrive", &["1"], 1), "", "lost");
    }
}
