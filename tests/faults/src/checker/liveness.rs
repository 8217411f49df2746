//! L1, L2 and H: what is free is taken by who waits for it.

use std::collections::BTreeSet;

use super::{
    Fault, View, covered,
    free::{Known, Part, Side},
    ms, s,
};
use crate::{
    clock::nanos,
    event::{How, Outcome, Share, What, Why},
    history::{Call, Grant, Hold},
    locks::QUEUE,
};

pub(super) fn check(view: &mut View<'_>) {
    after_a_kill(view);
    while_free(view);
    between_the_faults(view);
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
    for (at, process, number) in &kills {
        let (at, number) = (*at, *number);
        let orphans: Vec<Hold> =
            view.holds.iter().filter(|hold| is_orphan(hold, process, at)).cloned().collect();
        for hold in orphans {
            let ttl = hold.ttl_ms * 1_000_000;
            let drift = ttl / 100 + 2_000_000;
            let free_at = (at + ttl).max(hold.latest + drift);
            let limit = free_at + A_KEYS_END + view.allowed(at, free_at + A_KEYS_END, None);
            if view.is_calm(at, limit, Some(number))
                && waits(view, &hold.lock, at + ttl / 2, at, limit)
                && !is_first_dead(view, &kills, &hold.lock, process, at)
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

/// Whether a process that was killed, too, was in the queue before all others that wait. Whoever is first asks when a lease
/// ends; nobody else does so before its next poll.
fn is_first_dead(
    view: &View<'_>,
    kills: &[(u64, String, u64)],
    lock: &str,
    holder: &str,
    at: u64,
) -> bool {
    // Who is killed later waits until then.
    let is_killed = |call: &Call| {
        kills.iter().any(|(killed_at, process, _)| *killed_at <= at && *process == call.process)
    };
    let there = || view.calls.iter().filter(|call| call.is_for(lock) && is_wait(call));
    let waits = |call: &&Call| call.asked_at <= at && call.ended_at.is_none_or(|ends| ends > at);
    let living = there().filter(waits).filter(|call| !is_killed(call));
    let Some(first) = living.map(|call| call.asked_at).min() else { return false };
    kills.iter().filter(|(killed_at, process, _)| *killed_at <= at && process != holder).any(
        |(killed_at, process, _)| {
            let dead = there().filter(|call| call.process == *process && call.ended_at.is_none());
            let mut dead = dead.filter(|call| call.asked_at < first);
            dead.any(|dead| !is_passed_over(view, lock, dead, *killed_at, at))
        },
    )
}

/// Whether a lease was granted after the end of a process that waited, to one that had come later.
fn is_passed_over(view: &View<'_>, lock: &str, dead: &Call, killed_at: u64, at: u64) -> bool {
    let granted = || {
        let calls = view.calls.iter().filter(|call| call.is_for(lock));
        calls.filter_map(|call| Some((call.asked_at, call.granted.as_ref()?)))
    };
    granted().any(|(asked_at, grant)| {
        let is_new = || granted().all(|(_, it)| it.id != grant.id || it.granted_at >= killed_at);
        let later = asked_at > dead.asked_at && (killed_at..at).contains(&grant.granted_at);
        later && is_new()
    })
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

/// L2: nobody waits for long for what nobody has: a lock or permits that were given back, or whose lease has ended, go to
/// who waits, and who comes to a free lock gets it.
fn while_free(view: &mut View<'_>) {
    for lock in view.calls.iter().flat_map(|call| call.locks.clone()).collect::<BTreeSet<_>>() {
        // Nobody says when there is an item.
        if view.is_resized(&lock) || lock == QUEUE {
            continue;
        }
        let known = known(view, &lock);
        let sides = known.waits.iter().map(|wait| Side::of(wait.share)).collect::<BTreeSet<_>>();
        for (side, from, to) in sides
            .into_iter()
            .flat_map(|side| known.free(side).into_iter().map(move |(from, to)| (side, from, to)))
        {
            let waiters = view.calls.iter().filter(|call| {
                is_wait(call)
                    && call.is_for(&lock)
                    && Side::of(call.share) == side
                    && !is_dropped(call)
            });
            let spans = waiters.map(|call| {
                (from.max(call.asked_at + SETTLED), to.min(waits_until(view, call)), call)
            });
            let spans = spans.filter(|(from, to, _)| from < to);
            // Who came first waited for longest.
            let longest = spans.min_by_key(|(from, ..)| *from);
            let Some((begins, ends, call)) = longest else { continue };
            let shown = call.to_string();
            let Some((begins, limit)) = looked_at(view, from, begins, ends) else { continue };
            view.checked("L2");
            if ends > limit {
                let late = ms(ends - begins);
                let what = format!(
                    "{lock} is free and not taken for {late:.1} ms from {} on: {shown}",
                    s(begins)
                );
                view.found("L2", limit, what);
            }
        }
    }
}

/// The first time from `begins` on at which who waits must have felt no fault, and until when it may wait from then on. The lock
/// has been free since `free_from`.
fn looked_at(view: &View<'_>, free_from: u64, mut begins: u64, ends: u64) -> Option<(u64, u64)> {
    loop {
        if begins >= ends {
            return None;
        }
        // Another fault may have come and gone by then, which may be felt for longer.
        let felt = felt_until(view, free_from, begins);
        if felt > begins {
            begins = felt;
            continue;
        }
        let limit = limit_after(view, begins.saturating_sub(SETTLED), begins);
        let until = limit.min(ends);
        let next = view.faults.iter().filter(|fault| fault.from < until && fault.to > begins);
        match next.map(|fault| fault.to).max() {
            None => return Some((begins, limit)),
            Some(healed_at) => begins = healed_at,
        }
    }
}

/// What is known of a lock from those who have it, or wait for it, or may have it for a moment.
fn known(view: &View<'_>, lock: &str) -> Known {
    let mut known = Known::default();
    for hold in view.holds.iter().filter(|hold| hold.lock == lock) {
        let to = free_again_at(view, hold);
        known.uses.push(Part { share: hold.share, from: hold.granted_at, to });
    }
    let slack = nanos(view.setting.slack);
    for call in view.calls.iter().filter(|call| call.is_for(lock)) {
        let ended_at = call.ended_at.map(|at| at + slack);
        if is_wait(call) {
            let mut to = ended_at.unwrap_or_else(|| waits_until(view, call));
            if ended_at.is_none() && view.setting.nodes > 1 {
                to += RESERVED;
            }
            known.waits.push(Part { share: call.share, from: call.asked_at, to });
        }
        let refused = call.refused.as_ref().map(|(why, _)| *why);
        match (ended_at, refused) {
            _ if call.how == How::Observe => {}
            // What a process has got whose end came at that moment ends by itself.
            (None, _) => {
                let last = view.last_seen(&call.process);
                if view.is_killed(&call.process) {
                    let longest = nanos(view.setting.ttl).max(A_GRANT);
                    known.unsure.push((call.asked_at, last + longest + A_KEYS_END));
                } else if is_in_part(call) {
                    known.unsure.push((call.asked_at, u64::MAX));
                }
            }
            (Some(to), _) if is_in_part(call) => known.unsure.push((call.asked_at, to)),
            (Some(to), Some(Why::Dropped)) => known.unsure.push((call.asked_at, to)),
            // Over several servers, it may have had some of the votes.
            (Some(to), Some(_)) if view.setting.nodes > 1 => known.unsure.push((call.asked_at, to)),
            // One attempt that was refused had nothing.
            (_, Some(_)) if call.how == How::TryLock => {}
            (Some(to), Some(_)) => known.unsure.push((to.saturating_sub(2 * slack), to)),
            (Some(_), None) => {}
        }
    }
    known
}

/// When others may have what somebody had, at the latest.
fn free_again_at(view: &View<'_>, hold: &Hold) -> u64 {
    let grants = || hold.calls.iter().filter_map(|call| view.calls[*call].granted.as_ref());
    let given_back = |grant: &Grant| match (grant.releasing, grant.released) {
        (Some((_, how, _)), Some((at, Outcome::Ok))) if how != How::Spend => Some(at),
        _ => None,
    };
    let times: Option<Vec<u64>> = grants().map(given_back).collect();
    let ends_itself = || {
        let ttl = hold.ttl_ms * 1_000_000;
        let drift = ttl / 100 + 2_000_000;
        // Its last renewal may have run without being answered, unless nobody renews it.
        let is_fixed = grants().all(|grant| grant.is_over());
        let renewed = if is_fixed { 0 } else { ttl };
        hold.latest.max(hold.lost_at.unwrap_or(0)) + renewed + drift + A_KEYS_END
    };
    times.and_then(|times| times.into_iter().max()).unwrap_or_else(ends_itself)
}

/// Until when those who wait may feel the last fault before `at`. Whoever waits for what was free already may hear of nothing,
/// and has as long as for H.
fn felt_until(view: &View<'_>, free_from: u64, at: u64) -> u64 {
    let reserved = if view.setting.nodes > 1 { RESERVED } else { 0 };
    let felt = |fault: &Fault<'_>| {
        // Each client counts that from when it met the server.
        let distrusts = FORGETFUL.contains(&fault.kind);
        let quarantine = if distrusts { nanos(view.setting.quarantine) } else { 0 };
        let shortly = fault.to.saturating_add(A_WHILE + quarantine);
        let long = fault.to.saturating_add(2 * nanos(view.setting.ttl) + reserved);
        if free_from >= shortly { 0 } else { long }
    };
    let before = view.faults.iter().filter(|fault| fault.from <= at);
    before.map(felt).max().unwrap_or(0).max(at)
}

/// Until when it waits. A process that is gone waits for nothing.
fn waits_until(view: &View<'_>, call: &Call) -> u64 {
    call.ended_at.unwrap_or_else(|| view.last_seen(&call.process))
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

/// H: who waits while there is no fault gets the lock within two times to live, but for the time that others hold it.
fn between_the_faults(view: &mut View<'_>) {
    let end = view.history.events().map(|(_, event)| event.at).max().unwrap_or(0);
    let heals = view.faults.iter().map(|fault| fault.to).filter(|to| *to < end);
    let heals: Vec<u64> = std::iter::once(0).chain(heals).collect();
    let untrusted = without_a_majority(view);
    for healed_at in heals {
        let next = view.faults.iter().filter(|fault| fault.to > healed_at).map(|fault| fault.from);
        // Another fault that is still there has a beginning in the past: then it is not over.
        let calm_until = next.min().unwrap_or(end).min(end);
        if calm_until <= healed_at {
            continue;
        }
        for index in 0..view.calls.len() {
            in_the_calm(view, index, healed_at, calm_until, &untrusted);
        }
    }
}

/// When so many servers had forgotten something, and were in quarantine, that the others were no majority: nobody can get
/// anything then.
fn without_a_majority(view: &View<'_>) -> Vec<(u64, u64)> {
    let quarantine = nanos(view.setting.quarantine);
    if quarantine == 0 || view.setting.fails_over {
        return Vec::new();
    }
    // Those that are known to have been down; others are one each.
    let servers = |fault: &Fault<'_>| {
        let went_down = view.history.events().filter_map(|(_, event)| match event.what {
            What::Down { node } if event.at >= fault.from && event.at <= fault.to => Some(node),
            _ => None,
        });
        went_down.collect::<BTreeSet<_>>()
    };
    let forgetful = view.faults.iter().filter(|fault| FORGETFUL.contains(&fault.kind));
    let spans: Vec<(u64, u64, BTreeSet<usize>)> = forgetful
        .map(|fault| (fault.from, fault.to.saturating_add(quarantine + A_WHILE), servers(fault)))
        .collect();
    let mut times: Vec<u64> = spans.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
    times.sort_unstable();
    let too_few = |(from, to): &(u64, u64)| {
        let there = || spans.iter().filter(|span| span.0 <= *from && span.1 >= *to);
        let known = there().flat_map(|(.., servers)| servers).collect::<BTreeSet<_>>().len();
        let unknown = there().filter(|(.., servers)| servers.is_empty()).count();
        known + unknown > (view.setting.nodes - 1) / 2
    };
    times.windows(2).map(|pair| (pair[0], pair[1])).filter(too_few).collect()
}

fn in_the_calm(
    view: &mut View<'_>,
    index: usize,
    healed_at: u64,
    calm_until: u64,
    untrusted: &[(u64, u64)],
) {
    let call = view.calls[index].clone();
    let ended_at = call.ended_at.unwrap_or(u64::MAX);
    let waits = is_wait(&call) && call.share != Share::Lent;
    if call.asked_at > calm_until || ended_at < healed_at || !waits {
        return;
    }
    let healed_at = healed_at.max(call.asked_at);
    // A process that is gone waits for nothing.
    let to = ended_at.min(calm_until).min(view.last_seen(&call.process));
    let held = view.holds.iter().filter(|hold| call.is_for(&hold.lock));
    let held = held.map(|hold| (hold.granted_at, hold.ends_at));
    let in_part = view.calls.iter().filter(|other| is_in_part(other) && call.is_for_one_of(other));
    let in_part = in_part.map(|other| (other.asked_at, other.ended_at.unwrap_or(u64::MAX)));
    let untrusted = untrusted.iter().copied();
    let spans = held
        .chain(in_part)
        .chain(untrusted)
        .map(|(from, until)| (from.max(healed_at), until.min(to)));
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
        let what = format!("{waited:.0} ms behind nobody from {} on: {call}", s(healed_at));
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

/// Faults after which a server's grants do not count for a while: it is another run, or has another history.
const FORGETFUL: [&str; 8] = [
    "server-restarted",
    "server-emptied",
    "persistence-switched",
    "disk-lost",
    "clock-set-after-start",
    "demoted-and-promoted",
    "server-loading",
    "server-read-only",
];

/// How long a waiting writer's reservation lasts that nobody takes back, in nanoseconds.
const RESERVED: u64 = 5_000_000_000;
/// How long after its end a key may still be there, in nanoseconds.
const A_KEYS_END: u64 = 100_000_000;
/// For so long before a lock becomes free there must have been no fault, in nanoseconds.
const A_WHILE: u64 = 1_000_000_000;
/// How long a grant by message lasts that nobody takes up, in nanoseconds.
const A_GRANT: u64 = 2_000_000_000;
/// A waiter that has been there for so long listens, in nanoseconds.
const SETTLED: u64 = 100_000_000;
