//! W2 and R1: what becomes of a lease when its hold ends.

use super::{View, ms, s};
use crate::{
    event::{How, Outcome, What},
    locks::PERMITS,
};

pub(super) fn check(view: &mut View<'_>) {
    left_behind(view);
    for index in 0..view.calls.len() {
        told(view, index);
    }
}

/// A process that has given everything back is busy with nothing, and leaves nothing.
fn left_behind(view: &mut View<'_>) {
    for (process, event) in view.history.events() {
        match &event.what {
            What::Ended { gates, waiters, subscriptions, owed, holds } => {
                view.checked("R1");
                let busy = [gates, waiters, subscriptions, owed, holds];
                if busy.into_iter().any(|count| *count != 0) {
                    let what = format!("{process} ended with something left: {:?}", event.what);
                    view.found("R1", event.at, what);
                }
            }
            What::Left { node, key } => {
                view.found("R1", event.at, format!("{key} is still there on node {node}"));
            }
            What::Pool { node, lock, left, ended, out } => {
                view.checked("R1");
                let there = left + ended - i64::from(PERMITS);
                let added = i64::from(view.added(lock, event.at, event.at));
                let is_wrong = if view.is_resized(lock) {
                    there > added || view.at_least_added(lock).is_some_and(|least| there < least)
                } else {
                    there != 0
                };
                if *out != 0 || is_wrong {
                    let what = format!("{left} permits of {lock} are left on node {node}");
                    let what = format!("{what}, {ended} come back, and {out} do not");
                    view.found("R1", event.at, what);
                }
            }
            _ => {}
        }
    }
}

/// A hold that ends without being given back is told as lost by its deadline.
fn told(view: &mut View<'_>, index: usize) {
    let call = view.calls[index].clone();
    let Some(grant) = &call.granted else { return };
    if let Some((at, reason, held)) = &grant.lost {
        view.checked("W2");
        if *held {
            view.found("W2", *at, format!("told as lost ({reason}) and held all the same: {call}"));
        }
        let allowed = view.allowed(grant.latest, *at, Some(&call.process));
        if *at > grant.latest + allowed {
            let late = ms(at - grant.latest);
            view.found("W2", *at, format!("told {late:.1} ms after its deadline: {call}"));
        }
    } else if grant.releasing.is_none() && view.last_seen(&call.process) > grant.latest + A_WHILE {
        let ended = format!("its deadline was {}", s(grant.latest));
        view.found("W2", grant.latest, format!("never told of its end, {ended}: {call}"));
    }
    if let (Some((_, how, true)), Some((at, Outcome::Ok))) = (grant.releasing, grant.released)
        && matches!(how, How::Unlock | How::Downgrade | How::Retry | How::Reject)
    {
        view.found("W2", at, format!("{how:?} gave Ok past the deadline: {call}"));
    }
}

/// A process that still writes so long after a deadline had the time to tell of it, in nanoseconds.
const A_WHILE: u64 = 3_000_000_000;
