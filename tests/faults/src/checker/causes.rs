//! W3: whatever goes wrong has a cause.
//!
//! A loss, a release of what is lost, and servers that do not answer: each of these follows a fault, an operator's call, the end
//! of a lease that nobody renews, or a time in which the machine kept threads waiting.

use super::{View, s};
use crate::{
    clock::nanos,
    event::{self, Outcome, Why},
    history::{Call, Grant},
};

pub(super) fn check(view: &mut View<'_>) {
    for index in 0..view.calls.len() {
        let call = view.calls[index].clone();
        is_answered(view, &call);
        if let Some(grant) = &call.granted {
            is_kept(view, &call, grant);
            is_given_back(view, &call, grant);
        } else if let (Some((Why::Lost, _)), Some(at)) = (&call.refused, call.ended_at) {
            // What it goes on from is lost: a writer that becomes a reader, or an outer hold.
            view.checked("W3");
            if !is_lost_for_a_cause(view, &call, call.asked_at, at) {
                view.found("W3", at, format!("refused as lost without a cause: {call}"));
            }
        }
    }
    for index in 0..view.deeds.len() {
        let deed = view.deeds[index].clone();
        if let Some((at, None)) = deed.ended {
            view.checked("W3");
            if !is_away_for_a_cause(view, &deed.process, deed.asked_at, at, None) {
                let what = format!("{:?} of {} without an answer", deed.what, deed.lock);
                let what = format!("{what} or a cause at {}, by {}", s(at), deed.process);
                view.found("W3", at, what);
            }
        }
    }
}

/// Servers that nothing disturbs answer.
fn is_answered(view: &mut View<'_>, call: &Call) {
    let Some(ended_at) = call.ended_at else { return };
    view.checked("W3");
    let away = matches!(call.refused, Some((Why::Unavailable, _)));
    if away && !is_away_for_a_cause(view, &call.process, call.asked_at, ended_at, call.wait_ms) {
        view.found("W3", ended_at, format!("unavailable without a cause: {call}"));
    }
}

/// A hold lasts until it is given back.
fn is_kept(view: &mut View<'_>, call: &Call, grant: &Grant) {
    let Some((at, reason, _)) = &grant.lost else { return };
    view.checked("W3");
    // A lease that is not renewed ends at its deadline, and not before.
    if !grant.is_over() && !is_lost_for_a_cause(view, call, call.asked_at, *at) {
        view.found("W3", *at, format!("lost ({reason}) at {} without a cause: {call}", s(*at)));
    }
}

/// What is held can be given back.
fn is_given_back(view: &mut View<'_>, call: &Call, grant: &Grant) {
    let (Some((from, how, over)), Some((at, outcome))) = (grant.releasing, grant.released) else {
        return;
    };
    let caused = match outcome {
        Outcome::Lost => over || is_lost_for_a_cause(view, call, call.asked_at, at),
        Outcome::Unavailable => is_away_for_a_cause(view, &call.process, from, at, None),
        Outcome::Ok | Outcome::Denied | Outcome::OtherMasters | Outcome::Unexpected => return,
    };
    view.checked("W3");
    if !caused {
        let what = format!("{how:?} gave {outcome:?} at {} without a cause: {call}", s(at));
        view.found("W3", at, what);
    }
}

/// Whether what was asked for at `from` may be lost at `at`.
fn is_lost_for_a_cause(view: &View<'_>, call: &Call, from: u64, at: u64) -> bool {
    let ttl = nanos(view.setting.ttl);
    let since = at.saturating_sub(2 * ttl);
    let stalled = view.stalled(since, at, Some(&call.process)) + nanos(view.setting.slack);
    !view.is_calm(since, at, None) || stalled > ttl / 3 || is_forced_out(view, call, from, at)
}

/// Whether somebody may have ended the hold, or that of another in its process whose lease it shares.
fn is_forced_out(view: &View<'_>, call: &Call, from: u64, at: u64) -> bool {
    let id = call.granted.as_ref().map(|grant| &grant.id);
    view.deeds.iter().any(|deed| {
        let event::Deed::ForceOut(lease) = &deed.what else { return false };
        let fits = lease.is_none() || id.is_none() || lease.as_ref() == id;
        let there = deed.asked_at <= at
            && view.settled_at(deed).saturating_add(nanos(view.setting.ttl)) >= from;
        call.is_for(&deed.lock) && fits && there
    })
}

/// Whether a call may end without an answer. `wait_ms`: it waits for no longer than that.
fn is_away_for_a_cause(
    view: &View<'_>,
    process: &str,
    from: u64,
    to: u64,
    wait_ms: Option<u64>,
) -> bool {
    let felt = nanos(view.setting.quarantine) + 2 * nanos(view.setting.ttl);
    let patience = wait_ms.map_or(u64::MAX, |ms| ms * 1_000_000);
    let patience = patience.min(nanos(view.setting.response_timeout));
    let stalled = view.stalled(from, to, Some(process)) + nanos(view.setting.slack);
    !view.is_calm(from.saturating_sub(felt), to, None) || stalled >= patience
}
