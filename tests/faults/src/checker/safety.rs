//! S1 and S2: exclusion, and the order of tokens.

use std::collections::BTreeMap;

use super::{View, s};
use crate::event::What;

pub(super) fn check(view: &mut View<'_>) {
    exclusion_and_order(view);
    register(view);
}

/// The holds of each lock, in the order of their granting: none begins before all before it have ended, and
/// none has a token that is not higher than all before it.
fn exclusion_and_order(view: &mut View<'_>) {
    // For each lock the hold that ends last, and the one with the highest token.
    let mut before: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for now in 0..view.holds.len() {
        let hold = view.holds[now].clone();
        view.checked("S1");
        view.checked("S2");
        let Some((longest, highest)) = before.get(&hold.lock).copied() else {
            before.insert(hold.lock.clone(), (now, now));
            continue;
        };
        let (other, last) = (view.holds[longest].clone(), view.holds[highest].clone());
        if hold.granted_at < other.ends_at {
            view.found("S1", hold.granted_at, format!("two holds at once: {other}; {hold}"));
        }
        if hold.token <= last.token {
            view.found("S2", hold.granted_at, format!("no higher token: {last}; {hold}"));
        }
        let longest = if hold.ends_at > other.ends_at { now } else { longest };
        let highest = if hold.token > last.token { now } else { highest };
        before.insert(hold.lock, (longest, highest));
    }
}

/// What the register saw, in its own order: never a smaller token after a greater one; and whoever it refused
/// did not hold the lock.
fn register(view: &mut View<'_>) {
    let mut writes = BTreeMap::new();
    let mut doubled = Vec::new();
    for (process, event) in view.history.events() {
        if let What::Wrote { lock, token, number, accepted, held, .. } = &event.what {
            let write = (event.at, process.to_owned(), *token, *accepted, *held);
            if writes.insert((lock.clone(), *number), write).is_some() {
                doubled.push((event.at, format!("two writes of {lock} have number {number}")));
            }
        }
    }
    for (at, what) in doubled {
        view.found("S2", at, what);
    }
    let mut highest: BTreeMap<String, u64> = BTreeMap::new();
    for ((lock, number), (at, process, token, accepted, held)) in writes {
        view.checked("register");
        let highest = highest.entry(lock.clone()).or_default();
        let write = format!("write {number} of {lock} by {process} with {token} at {}", s(at));
        if accepted && token < *highest {
            view.found("S2", at, format!("the register took a token below {highest}: {write}"));
        }
        if !accepted && held {
            view.found("S2", at, format!("a holder was refused, {highest} was there: {write}"));
        }
        if accepted {
            *highest = token.max(*highest);
        }
    }
}
