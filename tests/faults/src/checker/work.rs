//! Q1, Q2 and Q3: items, latches and signals.
//!
//! That no item is in two live deliveries is S1, as for a lock: each item is one. So are the ends of deliveries W2 and W3.

use std::collections::{BTreeMap, BTreeSet};

use super::{View, s};
use crate::{
    event::{How, Outcome, Share, What},
    history::Call,
};

pub(super) fn check(view: &mut View<'_>) {
    items(view);
    latches(view);
    signals(view);
}

/// What is known of an item.
#[derive(Default)]
struct Item {
    /// When its push began; `None`: nobody has pushed it.
    pushed_from: Option<u64>,
    /// Whether it was added; `None`: nobody knows.
    added: Option<bool>,
    /// Its deliveries: when each was asked for, and when it was granted.
    delivered: Vec<(u64, u64)>,
    /// When reports of it as done began, and when those that were confirmed ended.
    reported_from: Vec<u64>,
    done_at: Vec<u64>,
}

/// Q1: an item that was added is in one place: it waits, is lent, dead or done. Nobody gets another, or one that is done.
fn items(view: &mut View<'_>) {
    let mut items = pushed(view);
    for call in view.calls.iter().filter(|call| call.share == Share::Lent) {
        let Some(grant) = &call.granted else { continue };
        let item = items.entry(grant.tokens[0].0.clone()).or_default();
        item.delivered.push((call.asked_at, grant.granted_at));
        if let Some((from, How::Unlock, _)) = grant.releasing {
            item.reported_from.push(from);
            item.done_at.extend(done_at(call));
        }
    }
    let stocks = stocks(view);
    for (name, item) in &items {
        view.checked("Q1");
        for (at, what) in wrong(view, item, &stocks, name) {
            view.found("Q1", at, format!("item {name} {what}, at {}", s(at)));
        }
    }
    for (at, all) in &stocks {
        let mut once = BTreeSet::new();
        for name in all {
            if !once.insert(name) {
                view.found("Q1", *at, format!("item {name} is in two places, at {}", s(*at)));
            }
            if items.get(name).is_none_or(|item| item.pushed_from.is_none()) {
                view.found("Q1", *at, format!("item {name} was never pushed"));
            }
        }
    }
}

fn done_at(call: &Call) -> Option<u64> {
    let (at, outcome) = call.granted.as_ref()?.released?;
    (outcome == Outcome::Ok).then_some(at)
}

/// All items that somebody has pushed, or tried to.
fn pushed(view: &View<'_>) -> BTreeMap<String, Item> {
    let (mut items, mut by_op) = (BTreeMap::<String, Item>::new(), BTreeMap::new());
    for (process, event) in view.history.events() {
        match &event.what {
            What::Pushing { op, items: names } => {
                by_op.insert((process, *op), names);
                for name in names {
                    items.entry(name.clone()).or_default().pushed_from = Some(event.at);
                }
            }
            What::Pushed { op, added } => {
                for name in by_op.get(&(process, *op)).into_iter().copied().flatten() {
                    items.entry(name.clone()).or_default().added = *added;
                }
            }
            _ => {}
        }
    }
    items
}

/// What each server has at the end that has the queue, and when it was asked.
fn stocks(view: &View<'_>) -> Vec<(u64, Vec<String>)> {
    let all = view.history.events().filter_map(|(_, event)| match &event.what {
        What::Stock { waiting, lent, dead, .. } => {
            Some((event.at, [waiting, lent, dead].into_iter().flatten().cloned().collect()))
        }
        _ => None,
    });
    all.collect()
}

/// What is wrong with an item, each with its time.
fn wrong(
    view: &View<'_>,
    item: &Item,
    stocks: &[(u64, Vec<String>)],
    name: &str,
) -> Vec<(u64, &'static str)> {
    let mut wrong = Vec::new();
    let Some(from) = item.pushed_from else {
        return item
            .delivered
            .iter()
            .map(|(_, at)| (*at, "was delivered and not pushed"))
            .collect();
    };
    if item.added == Some(false) {
        let delivered = item.delivered.iter().map(|(_, at)| *at);
        wrong.extend(delivered.map(|at| (at, "was delivered though the queue was full")));
    }
    let done_at = item.done_at.iter().copied().min();
    // A server that has lost its last writes may have the item again.
    let comes_back = |to| view.setting.fails_over && view.may_lose_data(from, to);
    if let Some(done_at) = done_at {
        let again =
            item.delivered.iter().filter(|(asked_at, at)| *asked_at > done_at && !comes_back(*at));
        wrong.extend(again.map(|(_, at)| (*at, "was delivered after it was done")));
        let last = item.done_at.iter().copied().max().unwrap_or(done_at);
        if item.done_at.len() > 1 && !comes_back(last) {
            wrong.push((last, "was reported as done twice, and both times confirmed"));
        }
    }
    let is_there = |(_, all): &(u64, Vec<String>)| all.iter().any(|other| other == name);
    let Some((end, _)) = stocks.iter().max() else { return wrong };
    if done_at.is_some() && stocks.iter().any(is_there) && !comes_back(*end) {
        wrong.push((*end, "is there although it is done"));
    }
    let must_be_there = item.added == Some(true) && item.reported_from.is_empty();
    if must_be_there && !stocks.iter().any(is_there) && !view.may_lose_data(from, *end) {
        wrong.push((*end, "is lost"));
    }
    wrong
}

/// Q2: a latch opens with its last count and not before, and no count is lost.
fn latches(view: &mut View<'_>) {
    /// When it was shut, how many counts it takes, when each began, and when each ended that was confirmed.
    #[derive(Default)]
    struct Latch {
        shut_at: u64,
        counts: usize,
        begun: Vec<u64>,
        made: Vec<u64>,
    }
    let (mut latches, mut by_op) = (BTreeMap::<&str, Latch>::new(), BTreeMap::new());
    for (process, event) in view.history.events() {
        match &event.what {
            What::Shut { latch, counts } => {
                let latch = latches.entry(latch).or_default();
                (latch.shut_at, latch.counts) = (event.at, *counts as usize);
            }
            What::Counting { op, latch } => {
                by_op.insert((process, *op), latch);
                latches.entry(latch).or_default().begun.push(event.at);
            }
            What::CountedDown { op, counted: true } => {
                let latch = by_op.get(&(process, *op));
                let latch = latch.and_then(|latch| latches.get_mut(latch.as_str()));
                latch.into_iter().for_each(|latch| latch.made.push(event.at));
            }
            _ => {}
        }
    }
    for (process, event) in view.history.events() {
        let What::LatchSeen { latch: name, from, is_open } = &event.what else { continue };
        let Some(latch) = latches.get(name.as_str()) else { continue };
        let begun = latch.begun.iter().filter(|at| **at < event.at).count();
        let made = latch.made.iter().filter(|at| **at < *from).count();
        let wrong = match is_open {
            Some(true) if begun < latch.counts => "open too early",
            Some(false) if made >= latch.counts && !view.may_lose_data(latch.shut_at, event.at) => {
                "shut after its last count"
            }
            // Its last count may have been made just before that server's end.
            None if view.is_calm(latch.shut_at, event.at, None) => "lost without a cause",
            _ => "",
        };
        view.checked("Q2");
        if !wrong.is_empty() {
            let counts = latch.counts;
            let what = format!("{process} sees {name} {wrong}, at {}", s(event.at));
            let what = format!("{what}: of {counts} counts {begun} had begun, {made} were made");
            view.found("Q2", event.at, what);
        }
    }
}

/// Q3: who waits for a signal to change is told of each that was given since it looked, and is shown the newest.
fn signals(view: &mut View<'_>) {
    // When each began, and when it ended if it was confirmed; by what came with it.
    let mut given: BTreeMap<String, (u64, Option<u64>)> = BTreeMap::new();
    for (process, event) in view.history.events() {
        match event.what {
            What::Notifying { op } => {
                given.insert(format!("{process} {op}"), (event.at, None));
            }
            What::Notified { op, given: true } => {
                given.entry(format!("{process} {op}")).and_modify(|it| it.1 = Some(event.at));
            }
            _ => {}
        }
    }
    for (process, event) in view.history.events() {
        let What::Noticed { from, seen_at, seen, number, by } = &event.what else { continue };
        // What was certainly given before the call began, the last of them.
        let before = given.values().filter(|(_, ended)| ended.is_some_and(|ended| ended < *from));
        let newest = before.map(|(begun, _)| *begun).max().unwrap_or(0);
        let may_be_lost = || view.may_lose_data(*seen_at, event.at);
        let shown = by.as_ref().map(|by| given.get(by));
        let wrong = match shown {
            None if newest > *seen_at && !may_be_lost() => "is not told of what was given",
            // A server that has forgotten the signal knows of none.
            Some(None) if *number == 0 && may_be_lost() => "",
            Some(None) => "is shown what nobody has given",
            Some(Some((begun, _))) if *begun > event.at => "is shown what was not given yet",
            Some(Some((_, Some(ended)))) if *ended < newest && !may_be_lost() => {
                "is shown what is not the newest"
            }
            Some(_) if number <= seen && !may_be_lost() => "is shown a number that is not higher",
            _ => "",
        };
        view.checked("Q3");
        if !wrong.is_empty() {
            let what = format!("{process} {wrong}, at {}: {:?}", s(event.at), event.what);
            view.found("Q3", event.at, what);
        }
    }
}
