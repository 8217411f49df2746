//! L1, L2 and H: what is free is taken by who waits for it.

use super::{View, covered, ms, s};
use crate::{
    clock::nanos,
    event::{How, Outcome, Share, What, Why},
    history::{Call, Hold},
};

pub(super) fn check(view: &mut View<'_>) {
    after_a_kill(view);
    for index in 0..view.holds.len() {
        after_a_release(view, index);
    }
    after_the_faults(view);
}

/// L1: who waits behind a killed holder has the lock when the time to live that was asked for last is over.
fn after_a_kill(view: &mut View<'_>) {
    let kills: Vec<(u64, String, u64)> = view
        .history
        .events()
        .filter_map(|(_, event)| match &event.what {
            What::Killed { process, number } => Some((event.at, process.clone(), *number)),
            _ => None,
        })
        .collect();
    for (at, process, number) in kills {
        let orphans: Vec<Hold> =
            view.holds.iter().filter(|hold| is_orphan(hold, &process, at)).cloned().collect();
        for hold in orphans {
            let ttl = hold.ttl_ms * 1_000_000;
            let drift = ttl / 100 + 2_000_000;
            let free_at = (at + ttl).max(hold.latest + drift);
            let limit = free_at + A_KEYS_END + view.allowed(at, free_at + A_KEYS_END, None);
            if view.is_calm(at, limit, Some(number))
                && waits(view, &hold.lock, at + ttl / 2, at, limit)
            {
                view.checked("L1");
                if !is_taken(view, &hold.lock, at, limit) {
                    let what = format!("killed at {} and not taken by {}: {hold}", s(at), s(limit));
                    view.found("L1", limit, what);
                }
            }
        }
    }
}

/// Others may read beside a reader, or have permits beside others: only what nobody shares is free when its holder is gone.
fn is_orphan(hold: &Hold, process: &str, killed_at: u64) -> bool {
    hold.process == process
        && hold.share == Share::Alone
        && hold.released_at.is_none()
        && hold.lost_at.is_none()
        && hold.forced_at.is_none()
        && hold.latest > killed_at
}

/// L2: with a waiter there and no fault, a lock that is given back is taken at once.
fn after_a_release(view: &mut View<'_>, index: usize) {
    let hold = &view.holds[index];
    if hold.share != Share::Alone || hold.forced_at.is_some() {
        return;
    }
    let given_back = hold.calls.iter().all(|call| {
        let grant = view.calls[*call].granted.as_ref();
        grant.is_some_and(|grant| matches!(grant.released, Some((_, Outcome::Ok))))
    });
    let Some(at) = hold.released_at.filter(|_| given_back) else { return };
    let ends = hold.calls.iter().filter_map(|call| view.calls[*call].granted.as_ref()?.released);
    let done = ends.map(|(at, _)| at).max().unwrap_or(at);
    let limit = limit_after(view, at, done);
    let (lock, shown) = (hold.lock.clone(), hold.to_string());
    let calm = view.is_calm(at.saturating_sub(A_WHILE), limit, None);
    if calm && waits(view, &lock, at.saturating_sub(SETTLED), at, limit) {
        view.checked("L2");
        if !is_taken(view, &lock, at, limit) {
            let late = ms(limit - at);
            view.found("L2", limit, format!("given back and not taken for {late:.1} ms: {shown}"));
        }
    }
}

/// Until when something must have happened after `done`, which began at `from`: what stands still until then counts.
fn limit_after(view: &View<'_>, from: u64, done: u64) -> u64 {
    let mut limit = done + nanos(view.setting.slack);
    loop {
        let allowed = done + view.allowed(from, limit, None);
        if allowed <= limit {
            return limit;
        }
        limit = allowed;
    }
}

/// H: who waits when the last fault has ended gets the lock within two times to live, but for the time that
/// others hold it.
fn after_the_faults(view: &mut View<'_>) {
    let end = view.history.events().map(|(_, event)| event.at).max().unwrap_or(0);
    let heals: Vec<u64> = view.faults.iter().map(|fault| fault.to).filter(|to| *to < end).collect();
    for healed_at in heals {
        let next = view.faults.iter().filter(|fault| fault.to > healed_at).map(|fault| fault.from);
        // Another fault that is still there has a beginning in the past: then it is not over.
        let calm_until = next.min().unwrap_or(end).min(end);
        if calm_until <= healed_at {
            continue;
        }
        for index in 0..view.calls.len() {
            after_the_last(view, index, healed_at, calm_until);
        }
    }
}

fn after_the_last(view: &mut View<'_>, index: usize, healed_at: u64, calm_until: u64) {
    let call = view.calls[index].clone();
    let ended_at = call.ended_at.unwrap_or(u64::MAX);
    if call.asked_at > healed_at || ended_at < healed_at || !is_wait(&call) {
        return;
    }
    // A process that is gone waits for nothing.
    let to = ended_at.min(calm_until).min(view.last_seen(&call.process));
    let held = view.holds.iter().filter(|hold| call.is_for(&hold.lock));
    let held = held.map(|hold| (hold.granted_at, hold.ends_at));
    let in_part = view.calls.iter().filter(|other| is_in_part(other) && call.is_for_one_of(other));
    let in_part = in_part.map(|other| (other.asked_at, other.ended_at.unwrap_or(u64::MAX)));
    let spans = held.chain(in_part).map(|(from, until)| (from.max(healed_at), until.min(to)));
    let held = covered(spans.filter(|(from, to)| from < to).collect());
    let waited = to.saturating_sub(healed_at).saturating_sub(held);
    // Over several servers, a writer that waits keeps new readers out, also for a while after its process was killed.
    let kept_out = view.setting.nodes > 1 && call.share == Share::Reads;
    let reserved = if kept_out { RESERVED } else { 0 };
    let limit = 2 * nanos(view.setting.ttl) + reserved + view.allowed(healed_at, to, None);
    if call.granted.is_some() || waited > limit {
        view.checked("H");
    }
    if waited > limit {
        let waited = ms(waited);
        let what = format!("{waited:.0} ms behind nobody after {}: {call}", s(healed_at));
        view.found("H", to, what);
    }
}

/// Whether somebody who asked for `lock` by `asked_by` waits from `from` until `to`, or until it has it.
fn waits(view: &View<'_>, lock: &str, asked_by: u64, from: u64, to: u64) -> bool {
    view.calls.iter().any(|call| {
        let until = call.ended_at.unwrap_or_else(|| view.last_seen(&call.process));
        let there = call.granted.is_some() && until > from || until >= to;
        call.is_for(lock) && is_wait(call) && call.asked_at <= asked_by && there
    })
}

/// Who waits for several locks may wait for another one of them.
fn is_wait(call: &Call) -> bool {
    matches!(call.how, How::Lock | How::LockWithTimeout | How::TryLockFor | How::Run)
}

/// Whether it has some of its locks before it says so.
fn is_in_part(call: &Call) -> bool {
    call.how == How::Several
}

/// Whether anybody begins to hold `lock` between the two times, or may have it with others that are still missing, or it may
/// be on its way to one who loses interest.
fn is_taken(view: &View<'_>, lock: &str, from: u64, to: u64) -> bool {
    let taken = |hold: &Hold| hold.lock == lock && hold.granted_at >= from && hold.granted_at <= to;
    let unsaid = |call: &Call| {
        let there = call.asked_at <= to && call.ended_at.is_none_or(|at| at >= from);
        (is_in_part(call) || is_dropped(call)) && call.is_for(lock) && there
    };
    view.holds.iter().any(taken) || view.calls.iter().any(unsaid)
}

fn is_dropped(call: &Call) -> bool {
    is_wait(call) && matches!(call.refused, Some((Why::Dropped, _)))
}

/// How long a waiting writer's reservation lasts that nobody takes back, in nanoseconds.
const RESERVED: u64 = 5_000_000_000;
/// How long after its end a key may still be there, in nanoseconds.
const A_KEYS_END: u64 = 100_000_000;
/// For so long before a release there must have been no fault, in nanoseconds.
const A_WHILE: u64 = 1_000_000_000;
/// A waiter that has been there for so long listens, in nanoseconds.
const SETTLED: u64 = 100_000_000;
