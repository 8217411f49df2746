//! N1: what a guard says when it is asked whether its lock is wanted.

use std::collections::BTreeMap;

use super::{View, ms, s};
use crate::{
    clock::nanos,
    event::{How, What, Why},
    history::Call,
};

/// A guard that is asked.
struct Asking {
    /// The index of its call.
    call: usize,
    from: u64,
    /// When it said so, and until when it was asked if it did not.
    told_at: Option<u64>,
    to: u64,
}

pub(super) fn check(view: &mut View<'_>) {
    for asking in asking(view) {
        let call = view.calls[asking.call].clone();
        let others: Vec<Call> = view
            .calls
            .iter()
            .filter(|other| other.is_for_one_of(&call) && !is_same(other, &call))
            .cloned()
            .collect();
        match asking.told_at {
            Some(at) => is_wanted(view, &call, &others, at),
            None => is_told(view, &call, &others, &asking),
        }
    }
}

/// Somebody else asks for what is said to be wanted, or did so shortly before: those who do so no more may still be in the queue,
/// which nobody is told of while there is a fault.
fn is_wanted(view: &mut View<'_>, call: &Call, others: &[Call], at: u64) {
    view.checked("N1");
    let calm = view.is_calm(at.saturating_sub(A_WHILE), at, None);
    let since = at.saturating_sub(if calm { A_WHILE } else { LONG });
    let wants = |other: &Call| {
        other.asked_at <= at && other.ended_at.is_none_or(|ended_at| ended_at >= since)
    };
    if !others.iter().any(wants) {
        view.found("N1", at, format!("said to be wanted at {}, by nobody: {call}", s(at)));
    }
}

/// Who waits for long is known, unless there is a fault.
fn is_told(view: &mut View<'_>, call: &Call, others: &[Call], asking: &Asking) {
    let waits = |other: &&Call| {
        let is_wait =
            matches!(other.how, How::Lock | How::LockWithTimeout | How::TryLockFor | How::Run);
        is_wait && !matches!(other.refused, Some((Why::Dropped, _)))
    };
    for other in others.iter().filter(waits) {
        let from = asking.from.max(other.asked_at);
        let ends = other.ended_at.unwrap_or_else(|| view.last_seen(&other.process));
        let to = asking.to.min(ends);
        let felt = nanos(view.setting.quarantine) + 2 * nanos(view.setting.ttl);
        let limit = LOOKS + 2 * nanos(view.setting.response_timeout);
        if to <= from + limit || !view.is_calm(from.saturating_sub(felt), to, None) {
            continue;
        }
        view.checked("N1");
        if to > from + limit + view.allowed(from, to, None) {
            let waited = ms(to - from);
            let what = format!("not told for {waited:.0} ms of one who waits ({other}): {call}");
            view.found("N1", to, what);
            return;
        }
    }
}

/// The guards that are asked, each until it says yes, or is given back or lost.
fn asking(view: &View<'_>) -> Vec<Asking> {
    let calls = view.calls.iter().enumerate();
    let calls: BTreeMap<(&str, u64), usize> =
        calls.map(|(index, call)| ((call.process.as_str(), call.op), index)).collect();
    let mut asking: BTreeMap<usize, Asking> = BTreeMap::new();
    for (process, event) in view.history.events() {
        let call = |op: u64| calls.get(&(process, op)).copied();
        match event.what {
            What::AsksWhetherWanted { op } => {
                let Some(call) = call(op) else { continue };
                let grant = view.calls[call].granted.as_ref();
                let lost_at = grant.and_then(|grant| grant.lost.as_ref()).map(|(at, ..)| *at);
                let given_back_at = grant.and_then(|grant| grant.releasing).map(|(at, ..)| at);
                let to = lost_at.into_iter().chain(given_back_at).min();
                let to = to.unwrap_or_else(|| view.last_seen(process));
                let new = Asking { call, from: event.at, told_at: None, to };
                asking.insert(call, new);
            }
            What::Wanted { op } => {
                if let Some(asking) = call(op).and_then(|call| asking.get_mut(&call)) {
                    asking.told_at.get_or_insert(event.at);
                }
            }
            _ => {}
        }
    }
    asking.into_values().collect()
}

fn is_same(one: &Call, other: &Call) -> bool {
    one.process == other.process && (one.op == other.op || one.owner == other.owner)
}

/// In so long a client looks again who waits, if nobody tells it, in nanoseconds.
const LOOKS: u64 = 4_000_000_000;
/// So long somebody is still said to wait who did so once, in nanoseconds: without a fault, and with one.
const A_WHILE: u64 = 5_000_000_000;
const LONG: u64 = 15_000_000_000;
