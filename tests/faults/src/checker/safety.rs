//! S1, S2, S5 and S6: exclusion, and the order of tokens.

use std::collections::{BTreeMap, BTreeSet};

use super::{View, deeds::Forced, s};
use crate::{
    event::{How, Share, What},
    history::Hold,
};

pub(super) fn check(view: &mut View<'_>) {
    for lock in view.holds.iter().map(|hold| hold.lock.clone()).collect::<BTreeSet<_>>() {
        let holds: Vec<Hold> =
            view.holds.iter().filter(|hold| hold.lock == lock).cloned().collect();
        let mut forced = Forced::of(view, &lock);
        exclusion(view, &holds, &mut forced);
        order(view, &holds, &mut forced);
    }
    for index in 0..view.calls.len() {
        is_whole(view, index);
        is_unbroken(view, index);
    }
    observers(view);
    register(view);
}

/// S1 and S5: the holds of a lock, in the order of their granting. None begins beside one that it cannot share with, unless
/// one of them was forced to end, or it was over already.
fn exclusion(view: &mut View<'_>, holds: &[Hold], forced: &mut Forced) {
    let mut open: Vec<&Hold> = Vec::new();
    for hold in holds {
        open.retain(|other| other.believed_until() > hold.granted_at);
        view.checked("S1");
        if was_over(view, hold) {
            continue;
        }
        for other in open.iter().filter(|other| !is_shared(other.share, hold.share)) {
            if !forced.may_be_beside(other, hold) && !is_told_late(view, other, hold) {
                view.found("S1", hold.granted_at, format!("two holds at once: {other}; {hold}"));
            }
        }
        if let Share::Permits { weight, all } = hold.share
            && !hold.is_doubtful()
        {
            view.checked("S5");
            let there: Vec<&Hold> =
                open.iter().filter(|other| other.ends_at > hold.granted_at).copied().collect();
            let held = there.iter().map(|other| weight_of(other.share)).sum::<u32>() + weight;
            let all = all + view.added(&hold.lock, view.asked_at(hold), hold.granted_at);
            if held > all {
                let others: Vec<String> = there.iter().map(ToString::to_string).collect();
                let others = others.join("; ");
                let what = format!("{held} permits of {all} are held: {hold}, beside {others}");
                view.found("S5", hold.granted_at, what);
            }
        }
        open.push(hold);
    }
}

/// Whether a hold was lost before the next one of its process was granted, and a thread that was kept waiting wrote it down only
/// then. It is the client that loses a hold before it grants the next one; between processes nobody does.
fn is_told_late(view: &View<'_>, other: &Hold, hold: &Hold) -> bool {
    let same = other.process == hold.process;
    let late = other.lost_at.filter(|_| same).map(|lost_at| lost_at - hold.granted_at);
    late.is_some_and(|late| {
        let to = hold.granted_at + late;
        late <= view.stalled(hold.granted_at, to, Some(&hold.process))
    })
}

/// Whether a hold was over before its owner got it, since its process stood still in between: its guard never said that it was held,
/// and when the servers granted it is not known.
fn was_over(view: &View<'_>, hold: &Hold) -> bool {
    let since = hold.granted_at.saturating_sub(hold.ttl_ms * 1_000_000);
    !hold.was_held() && view.stalled(since, hold.granted_at, Some(&hold.process)) > 0
}

fn is_shared(one: Share, other: Share) -> bool {
    matches!(
        (one, other),
        (Share::Reads, Share::Reads) | (Share::Permits { .. }, Share::Permits { .. })
    )
}

fn weight_of(share: Share) -> u32 {
    if let Share::Permits { weight, .. } = share { weight } else { 0 }
}

/// S2: the holds of a lock, in the order of their granting. Each has a higher token than all before it; a reader has none
/// below that of a writer before it. One that was over before its owner got it may be out of order with readers, or with all if its
/// process stood still, and one that was forced to end before the other was granted with all.
fn order(view: &mut View<'_>, holds: &[Hold], forced: &mut Forced) {
    for (at, hold) in holds.iter().enumerate() {
        let mut before = |share: Share, is_wrong: &dyn Fn(&Hold) -> bool| {
            let others = holds[..at].iter().rev();
            let others = others.filter(|other| other.share == share && is_wrong(other));
            others.into_iter().find(|other| !forced.may_be_behind(other, hold)).cloned()
        };
        let not_above = |other: &Hold| other.token >= hold.token;
        let found = match hold.share {
            Share::Alone if was_over(view, hold) => None,
            Share::Alone => {
                let writer = before(Share::Alone, &not_above);
                let reads = |other: &Hold| other.was_held() && not_above(other);
                let mut reader = || before(Share::Reads, &reads);
                let what = "no higher token than a reader's";
                let last = writer.map(|last| ("no higher token", last));
                last.or_else(|| reader().filter(|_| hold.was_held()).map(|last| (what, last)))
            }
            Share::Reads if hold.was_held() && !view.setting.fails_over => {
                let above = |other: &Hold| other.was_held() && other.token > hold.token;
                before(Share::Alone, &above).map(|last| ("a reader of an old version", last))
            }
            Share::Reads | Share::Permits { .. } | Share::Lent => None,
        };
        if matches!(hold.share, Share::Alone | Share::Reads) {
            view.checked("S2");
        }
        if let Some((what, last)) = found {
            view.found("S2", hold.granted_at, format!("{what}: {last}; {hold}"));
        }
    }
}

/// S6: a guard of several locks is one of all that were asked for.
fn is_whole(view: &mut View<'_>, index: usize) {
    let call = view.calls[index].clone();
    let Some(grant) = &call.granted else { return };
    let asked: BTreeSet<&str> = call.locks.iter().map(String::as_str).collect();
    let had: BTreeSet<&str> = grant.tokens.iter().map(|(lock, _)| lock.as_str()).collect();
    if call.how == How::Several {
        view.checked("S6");
    }
    // Whoever asks for an item gets any.
    if asked != had && call.share != Share::Lent || grant.tokens.len() != had.len() {
        view.found("S6", grant.granted_at, format!("a guard of {had:?}: {call}"));
    }
}

/// S1: nobody has written between a writer and the reader that it has become.
fn is_unbroken(view: &mut View<'_>, index: usize) {
    let call = &view.calls[index];
    let Some(grant) = call.granted.as_ref().filter(|_| call.how == How::Downgrade) else { return };
    let at = grant.granted_at;
    let of_lock = || view.holds.iter().filter(|hold| call.is_for(&hold.lock));
    let is_own = |hold: &&Hold| (&hold.process, hold.owner) == (&call.process, call.owner);
    let writer = of_lock().filter(is_own).find(|hold| hold.share == Share::Alone).cloned();
    let reader = of_lock().filter(is_own).find(|hold| hold.share == Share::Reads).cloned();
    let (Some(writer), Some(reader)) = (writer, reader) else { return };
    if writer.forced_at.or(reader.forced_at).is_some() {
        return;
    }
    let between = of_lock().find(|hold| {
        hold.share == Share::Alone && hold.token > writer.token && hold.token <= reader.token
    });
    let between = between.map(ToString::to_string);
    view.checked("S1");
    if let Some(between) = between {
        let what = format!("somebody wrote between {writer} and {reader}: {between}");
        view.found("S1", at, what);
    }
}

/// S2: whoever observes an election is shown no term after a later one.
fn observers(view: &mut View<'_>) {
    let mut newest: BTreeMap<(String, u64), u64> = BTreeMap::new();
    let mut found = Vec::new();
    for (process, event) in view.history.events() {
        let What::Shown { op, term } = event.what else { continue };
        let newest = newest.entry((process.to_owned(), op)).or_default();
        let what = format!("{process} is shown the term {term} after {newest}, op {op}");
        found.push((event.at, (term < *newest).then_some(what)));
        *newest = term.max(*newest);
    }
    for (at, what) in found {
        view.checked("S2");
        if let Some(what) = what {
            view.found("S2", at, what);
        }
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
        let forced = |hold: &Hold| {
            let of_write = hold.lock == lock && hold.process == process && hold.token == token;
            of_write && hold.forced_at.is_some_and(|forced_at| forced_at <= at)
        };
        if !accepted && held && !view.holds.iter().any(forced) {
            view.found("S2", at, format!("a holder was refused, {highest} was there: {write}"));
        }
        if accepted {
            *highest = token.max(*highest);
        }
    }
}
