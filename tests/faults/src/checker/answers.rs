//! T1 and O1: what callers are told, and when.

use super::{View, ms};
use crate::{
    clock::nanos,
    event::{How, Outcome, Share, What, Why},
    history::Call,
    locks::{ELECTION, is_of_one_server},
};

pub(super) fn check(view: &mut View<'_>) {
    let down = majority_down(view);
    for index in 0..view.calls.len() {
        let call = view.calls[index].clone();
        in_time(view, &call);
        is_known(view, &call);
        is_of_its_servers(view, &call);
        is_answered(view, &call, &down);
        is_true(view, &call);
    }
}

/// T1: a wait ends neither before its time nor after it.
fn in_time(view: &mut View<'_>, call: &Call) {
    let Some(ended_at) = call.ended_at else { return };
    let waited = ended_at - call.asked_at;
    let why = call.refused.as_ref().map(|(why, _)| *why);
    let limit = match (call.how, call.wait_ms) {
        _ if why == Some(Why::Dropped) => return,
        // An ask of the same client may be in flight already, and the next one answers for it.
        (How::TryLock, _) => 2 * nanos(view.setting.response_timeout),
        (_, Some(wait_ms)) => wait_ms * 1_000_000,
        _ => return,
    };
    view.checked("T1");
    if call.wait_ms.is_some() && why == Some(Why::Held) && waited < limit {
        let early = ms(limit - waited);
        view.found("T1", ended_at, format!("given up {early:.1} ms early: {call}"));
    }
    // A new leader says who it is once it leads, and waits for the answer.
    let says = if call.is_for(ELECTION) { nanos(view.setting.response_timeout) } else { 0 };
    let allowed = view.allowed(call.asked_at, ended_at, Some(&call.process)) + says;
    if waited > limit + allowed {
        let late = ms(waited - limit);
        view.found("T1", ended_at, format!("ended {late:.1} ms late ({why:?}): {call}"));
    }
}

/// O1: no error that nothing here can cause.
fn is_known(view: &mut View<'_>, call: &Call) {
    let refused = call.refused.as_ref().map(|(why, text)| (*why, text.clone()));
    let unlocked = call.granted.as_ref().and_then(|grant| grant.released);
    let (unexpected, denied) = (
        matches!(refused, Some((Why::Unexpected, _)))
            || matches!(unlocked, Some((_, Outcome::Unexpected))),
        matches!(refused, Some((Why::Denied, _))) || matches!(unlocked, Some((_, Outcome::Denied))),
    );
    let at = unlocked.map(|(at, _)| at).or(call.ended_at).unwrap_or(call.asked_at);
    view.checked("O1");
    let may_be_denied = view.faults.iter().any(|fault| {
        fault.kind == DENIES && fault.from < at && fault.to.saturating_add(AGAIN) > call.asked_at
    });
    if unexpected || (denied && !may_be_denied) {
        view.found("O1", at, format!("an error that nothing explains, {refused:?}: {call}"));
    }
}

/// O1: kinds that work on one server only say so on several, and nowhere else.
fn is_of_its_servers(view: &mut View<'_>, call: &Call) {
    let refused = matches!(call.refused, Some((Why::OneServerOnly, _)));
    let of_one = call.locks.iter().any(|lock| is_of_one_server(lock));
    let must_refuse = of_one && view.setting.nodes > 1;
    let at = call.ended_at.unwrap_or(call.asked_at);
    if refused != must_refuse && (refused || call.granted.is_some()) {
        let nodes = view.setting.nodes;
        view.found("O1", at, format!("wrong on {nodes} server(s), {:?}: {call}", call.refused));
    }
}

/// O1: what only servers can tell is not told while no majority of them answers.
fn is_answered(view: &mut View<'_>, call: &Call, down: &[(u64, u64)]) {
    let Some(ended_at) = call.ended_at else { return };
    // What was answered before may still arrive.
    let margin = nanos(view.setting.response_timeout);
    let unanswered = down.iter().any(|(from, to)| call.asked_at >= from + margin && ended_at < *to);
    if !unanswered {
        return;
    }
    view.checked("O1");
    if let Some(grant) = &call.granted {
        let is_passed_on = view.calls.iter().any(|other| {
            let earlier = other.granted.as_ref();
            earlier.is_some_and(|earlier| {
                earlier.id == grant.id && earlier.granted_at < grant.granted_at
            })
        });
        if !is_passed_on {
            view.found("O1", ended_at, format!("granted while no majority answers: {call}"));
        }
    }
    let held = matches!(call.refused, Some((Why::Held, _)));
    if held && call.how == How::TryLock && !is_held_here(view, call, ended_at) {
        view.found("O1", ended_at, format!("told as held while no majority answers: {call}"));
    }
}

fn is_held_here(view: &View<'_>, call: &Call, ended_at: u64) -> bool {
    view.calls.iter().any(|other| {
        let here = other.process == call.process && other.is_for_one_of(call);
        here && other.op != call.op && other.asked_at < ended_at && other.granted.is_some()
    })
}

/// O1: one attempt that finds the lock held finds somebody who can hold it.
fn is_true(view: &mut View<'_>, call: &Call) {
    let Some(ended_at) = call.ended_at else { return };
    let held = matches!(call.refused, Some((Why::Held, _)));
    let settled = 2 * nanos(view.setting.ttl);
    let calm = view.is_calm(call.asked_at.saturating_sub(settled), ended_at, None);
    // Nobody says when there is an item.
    if !held || call.how != How::TryLock || call.share == Share::Lent || !calm {
        return;
    }
    view.checked("O1");
    let others: Vec<&Call> = view
        .calls
        .iter()
        .filter(|other| {
            let is_other = !(other.op == call.op && other.process == call.process);
            is_other && other.is_for_one_of(call) && other.asked_at < ended_at
        })
        .filter(|other| may_hold_until(view, other, settled) > call.asked_at)
        .collect();
    let is_alone = |other: &&Call| other.share == Share::Alone;
    let could_be = match call.share {
        Share::Alone | Share::Lent => !others.is_empty(),
        // Other readers keep nobody from reading, unless a writer waits behind them.
        Share::Reads => others.iter().any(is_alone),
        // Whoever waits for permits is served first.
        Share::Permits { weight, all } => {
            let weights = others.iter().map(|other| match other.share {
                Share::Permits { weight, .. } => weight,
                _ => 0,
            });
            let waits = others.iter().any(|other| other.granted.is_none());
            waits || weights.sum::<u32>() + weight > all || view.is_resized(&call.locks[0])
        }
    };
    if !could_be {
        view.found("O1", ended_at, format!("told as held, and nobody can hold it: {call}"));
    }
}

/// Until when the servers may know a call's lease.
fn may_hold_until(view: &View<'_>, call: &Call, settled: u64) -> u64 {
    let of_one = view.setting.nodes == 1;
    match &call.granted {
        Some(grant) => match (grant.released, grant.releasing) {
            // Of several servers, some may be told later, as all are of what was dropped.
            (Some((at, Outcome::Ok)), Some((_, How::Unlock, _))) if of_one => at,
            (Some((at, Outcome::Ok)), Some((_, how, _))) if how != How::Spend => at + A_RELEASE,
            _ => grant.latest + settled,
        },
        None if call.how == How::Observe => 0,
        // One server refuses without a trace.
        None if of_one && is_refused_at_once(call) => 0,
        None => call.ended_at.map_or(u64::MAX, |at| at + A_RELEASE),
    }
}

fn is_refused_at_once(call: &Call) -> bool {
    call.how == How::TryLock && matches!(call.refused, Some((Why::Held, _)))
}

/// When fewer than a majority of the servers answered.
fn majority_down(view: &View<'_>) -> Vec<(u64, u64)> {
    let mut steps: Vec<(u64, usize, bool)> = view
        .history
        .events()
        .filter_map(|(_, event)| match event.what {
            What::Down { node } => Some((event.at, node, true)),
            What::Up { node } => Some((event.at, node, false)),
            _ => None,
        })
        .collect();
    steps.sort_unstable();
    let mut down = vec![false; view.setting.nodes];
    let mut since = None;
    let mut spans = Vec::new();
    for (at, node, is_down) in steps {
        down[node] = is_down;
        let up = down.iter().filter(|down| !**down).count();
        match (up > view.setting.nodes / 2, since) {
            (false, None) => since = Some(at),
            (true, Some(from)) => {
                spans.push((from, at));
                since = None;
            }
            _ => {}
        }
    }
    spans
}

/// The only fault that explains a denial.
pub(crate) const DENIES: &str = "right-taken";
/// A denied connection is made again after a pause; until then the denial is what is known, in nanoseconds.
const AGAIN: u64 = 1_500_000_000;
/// How long a release may take to arrive that nobody waits for, in nanoseconds.
const A_RELEASE: u64 = 500_000_000;
