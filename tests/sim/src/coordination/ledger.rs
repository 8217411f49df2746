//! What the processes know of the items of a queue. Pure: who has pushed which, had it, and was told that it is done.

use std::collections::{BTreeMap, BTreeSet};

use super::Forgotten;
use super::shelf::Shelf;

/// All items, by their numbers.
#[derive(Default)]
pub struct Ledger {
    items: BTreeMap<u64, Item>,
    forgotten: Forgotten,
}

#[derive(Clone, Copy, Default)]
struct Item {
    pushed: Said,
    done: Said,
    /// How often it was delivered, as the last worker read it; 0 if nobody had it since it was new.
    deliveries: u32,
}

/// What is known of something that a process asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Said {
    #[default]
    Nothing,
    /// It may have been done.
    Asked,
    Confirmed,
}

impl Ledger {
    /// Items are about to be pushed.
    pub fn pushing(&mut self, items: &[u64]) {
        for item in items {
            self.items.insert(*item, Item { pushed: Said::Asked, ..Item::default() });
        }
    }

    /// What was asked for before the server forgot may be among that.
    pub fn pushed(&mut self, items: &[u64], asked_at: u64) {
        if self.forgotten.since(asked_at) {
            return;
        }
        for item in items {
            self.items.entry(*item).or_default().pushed = Said::Confirmed;
        }
    }

    /// There was no room for them.
    pub fn not_pushed(&mut self, items: &[u64]) {
        self.items.retain(|item, _| !items.contains(item));
    }

    /// A worker has an item, for the `number`th time. If the server has forgotten something meanwhile, it may count that again.
    pub fn delivered(
        &mut self,
        item: u64,
        number: u32,
        most: u32,
        asked_at: u64,
    ) -> Result<(), String> {
        let known = self.items.get_mut(&item).ok_or("it was never pushed")?;
        let before = match self.forgotten.since(asked_at) {
            true => 0,
            false => std::mem::replace(&mut known.deliveries, number),
        };
        if known.done == Said::Confirmed {
            return Err("it was done".to_owned());
        }
        if number <= before {
            return Err(format!("delivery {number} comes behind delivery {before}"));
        }
        if number > most {
            return Err(format!("delivery {number}, of {most} at most"));
        }
        Ok(())
    }

    /// A worker is about to report it as done.
    pub fn acking(&mut self, item: u64) {
        let known = self.items.entry(item).or_default();
        known.done = known.done.max(Said::Asked);
    }

    /// Its worker was told that it is done. The server may have forgotten that since it was asked.
    pub fn acked(&mut self, item: u64, asked_at: u64) -> Result<(), String> {
        let known = self.items.entry(item).or_default();
        if self.forgotten.since(asked_at) {
            return Ok(());
        }
        match std::mem::replace(&mut known.done, Said::Confirmed) {
            Said::Confirmed => Err("it was done before".to_owned()),
            _ => Ok(()),
        }
    }

    /// It was dead, and counts as new.
    pub fn redriven(&mut self, item: u64) {
        self.items.entry(item).or_default().deliveries = 0;
    }

    /// A server had `before`, and has `after` instead, since it has forgotten the last that it did: pushes are undone, and so are
    /// deliveries and acks.
    pub fn forgot(&mut self, before: &Shelf, after: &Shelf, now: u64) {
        self.forgotten.at(now);
        let there = after.items();
        for item in before.items().difference(&there) {
            let known = self.items.entry(*item).or_default();
            known.pushed = known.pushed.min(Said::Asked);
        }
        for item in there {
            let known = self.items.entry(item).or_default();
            known.done = known.done.min(Said::Asked);
            known.deliveries = after.number(item);
        }
    }

    /// What is wrong if the servers have these items, and nothing is on its way. What is done and gone is forgotten, but that it
    /// was there.
    pub fn compare(&mut self, there: &BTreeSet<u64>) -> Vec<String> {
        let mut wrong = Vec::new();
        for (item, known) in &self.items {
            let is_there = there.contains(item);
            if !is_there && known.pushed == Said::Confirmed && known.done == Said::Nothing {
                wrong.push(format!("item {item} is lost"));
            }
            if is_there && known.done == Said::Confirmed {
                wrong.push(format!("item {item} is there, and was done"));
            }
        }
        let unknown = there.iter().filter(|item| !self.items.contains_key(item));
        wrong.extend(unknown.map(|item| format!("item {item} was never pushed")));
        // Nobody will ever say anything of those that were perhaps pushed, or perhaps done.
        self.items.retain(|item, known| there.contains(item) || known.done == Said::Confirmed);
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(items: &[u64]) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.pushing(items);
        ledger.pushed(items, 0);
        ledger
    }

    fn there(items: &[u64]) -> BTreeSet<u64> {
        items.iter().copied().collect()
    }

    #[test]
    fn an_item_that_is_pushed_is_there_until_somebody_may_have_reported_it_as_done() {
        assert!(of(&[1]).compare(&there(&[1])).is_empty());
        assert_eq!(of(&[1]).compare(&there(&[])), ["item 1 is lost"]);
        assert_eq!(of(&[1]).compare(&there(&[1, 2])), ["item 2 was never pushed"]);
        let mut perhaps = of(&[1]);
        perhaps.acking(1);
        assert!(perhaps.compare(&there(&[1])).is_empty());
        assert!(perhaps.compare(&there(&[])).is_empty());
        let mut ledger = of(&[1]);
        ledger.acking(1);
        ledger.acked(1, 0).expect("once");
        assert_eq!(ledger.compare(&there(&[1])), ["item 1 is there, and was done"]);
    }

    #[test]
    fn what_was_perhaps_pushed_may_be_there_or_not() {
        for found in [there(&[]), there(&[1])] {
            let mut ledger = Ledger::default();
            ledger.pushing(&[1]);
            assert!(ledger.compare(&found).is_empty());
        }
        let mut full = Ledger::default();
        full.pushing(&[1]);
        full.not_pushed(&[1]);
        assert_eq!(full.compare(&there(&[1])), ["item 1 was never pushed"]);
    }

    #[test]
    fn only_what_was_answered_before_a_server_forgot_may_be_undone() {
        let mut ledger = of(&[1, 2]);
        ledger.acking(1);
        ledger.acked(1, 0).expect("once");
        // The next master has got neither the ack nor the second push.
        let before = Shelf::of_waiting(&[2]);
        ledger.forgot(&before, &Shelf::of_waiting(&[1]), 50);
        assert!(ledger.compare(&there(&[1])).is_empty(), "1 is back, and 2 is gone");
        ledger.delivered(1, 1, 3, 60).expect("again");
        ledger.acked(1, 40).expect("it was asked before");
        assert!(ledger.compare(&there(&[1])).is_empty());
        ledger.acked(1, 60).expect("it is done now");
        assert_eq!(ledger.compare(&there(&[1])), ["item 1 is there, and was done"]);
        ledger.pushing(&[3]);
        ledger.pushed(&[3], 60);
        assert_eq!(ledger.compare(&there(&[1])).len(), 2, "3 is lost, too");
    }

    #[test]
    fn deliveries_are_counted_up_and_end_when_it_is_done() {
        let mut ledger = of(&[1]);
        assert!(ledger.delivered(2, 1, 3, 0).is_err(), "unknown");
        ledger.delivered(1, 1, 3, 0).expect("the first");
        ledger.delivered(1, 3, 3, 0).expect("nobody saw the second");
        assert!(ledger.delivered(1, 3, 3, 0).is_err(), "the same again");
        assert!(ledger.delivered(1, 4, 3, 0).is_err(), "too often");
        ledger.redriven(1);
        ledger.delivered(1, 1, 3, 0).expect("as new");
        ledger.acked(1, 0).expect("once");
        assert!(ledger.acked(1, 0).is_err(), "twice");
        assert!(ledger.delivered(1, 2, 3, 0).is_err(), "it was done");
    }
}
