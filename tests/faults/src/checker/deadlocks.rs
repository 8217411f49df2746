//! D1 and D2: whoever waits for each other is told so, and nobody else.
//!
//! What is written down of a hold lies within its time, and a wait within what is written down of it. So where the records have a
//! circle, in which each waits for what the next one holds, there was one.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use serde::Serialize;

use super::{View, ms, s};
use crate::{
    clock::nanos,
    event::{How, Part, What},
    history::Call,
};

/// What came of deadlocks: a part of a summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Deadlocks {
    /// How many histories were looked at.
    pub runs: u64,
    /// Circles of waits that have no end of their own.
    pub came_about: u64,
    /// How many of them were told to one who waited, and how many of these were inside one process.
    pub told: u64,
    pub told_inside: u64,
    /// How many were told that were none.
    pub never_real: u64,
    /// How many stood for ten seconds while there was no fault.
    pub missed: u64,
    /// For how long one stood at most while there was no fault.
    pub longest_ms: u64,
}

impl Deadlocks {
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.came_about += other.came_about;
        self.told += other.told;
        self.told_inside += other.told_inside;
        self.never_real += other.never_real;
        self.missed += other.missed;
        self.longest_ms = self.longest_ms.max(other.longest_ms);
    }
}

pub(super) fn check(view: &mut View<'_>) {
    let waits = waits(view);
    view.report.deadlocks.runs = 1;
    for index in 0..view.calls.len() {
        is_told_what_was_real(view, index, &waits);
    }
    for circle in circles(&waits) {
        view.report.deadlocks.came_about += 1;
        is_told_in_a_calm(view, &circle, &waits);
    }
}

/// A call that waits, while its owner holds something.
struct Wait {
    process: String,
    owner: u64,
    lock: String,
    /// It ends by itself.
    limited: bool,
    span: Span,
    holds: Vec<Held>,
}

#[derive(Clone)]
struct Held {
    lock: String,
    token: u64,
    span: Span,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Span {
    from: u64,
    to: u64,
}

impl Span {
    fn within(self, other: Self) -> Option<Self> {
        let both = Self { from: self.from.max(other.from), to: self.to.min(other.to) };
        (both.from < both.to).then_some(both)
    }
}

/// Waits that block each other, in the order of their circle, from the first of them on.
struct Circle {
    waits: Vec<usize>,
    span: Span,
}

fn waits(view: &View<'_>) -> Vec<Wait> {
    let mut killed: HashMap<&str, u64> = HashMap::new();
    for (_, event) in view.history.events() {
        if let What::Killed { process, .. } = &event.what {
            killed.insert(process, event.at);
        }
    }
    let ends_with =
        |process: &str| killed.get(process).copied().unwrap_or_else(|| view.last_seen(process));
    let mut holds: HashMap<(&str, u64), Vec<Held>> = HashMap::new();
    for hold in &view.holds {
        let ends = [hold.released_at, hold.lost_at, hold.forced_at].into_iter().flatten().min();
        let to = ends.unwrap_or_else(|| ends_with(&hold.process));
        let span = Span { from: hold.granted_at, to };
        let held = Held { lock: hold.lock.clone(), token: hold.token, span };
        holds.entry((&hold.process, hold.owner)).or_default().push(held);
    }
    let waiting = view.calls.iter().filter(|call| {
        matches!(call.how, How::Lock | How::LockWithTimeout | How::TryLockFor)
            && call.locks.len() == 1
    });
    let wait = |call: &Call| {
        let (from, owner) = (call.asked_at, call.owner);
        let span = Span { from, to: call.ended_at.unwrap_or_else(|| ends_with(&call.process)) };
        let all = holds.get(&(call.process.as_str(), owner)).into_iter().flatten();
        let there = all.filter(|held| held.span.from <= from && held.span.to > from);
        let holds = there.cloned().collect();
        let (lock, process) = (call.locks[0].clone(), call.process.clone());
        Wait { process, owner, lock, limited: call.wait_ms.is_some(), span, holds }
    };
    waiting.map(wait).filter(|wait| !wait.holds.is_empty()).collect()
}

/// D1: shortly before it was told there was a moment in which all of it stood. Each part was read from a note that ends by itself
/// when it is not made again, so none can have been over for longer than a note lasts.
fn is_told_what_was_real(view: &mut View<'_>, index: usize, waits: &[Wait]) {
    let call = view.calls[index].clone();
    let (Some(circle), Some(told_at)) = (&call.deadlock, call.ended_at) else { return };
    view.checked("D1");
    view.report.deadlocks.told += 1;
    let is_inside = circle.iter().all(|part| part.client == call.process);
    view.report.deadlocks.told_inside += u64::from(is_inside);
    let bound = nanos(NOTED + view.setting.response_timeout);
    let since = told_at.saturating_sub(bound);
    let since = since.saturating_sub(view.allowed(since, told_at, Some(&call.process)));
    let after = circle.iter().cycle().skip(1);
    let is_closed = circle.iter().zip(after).all(|(part, next)| part.waits_for == next.holds);
    let is_own = circle
        .first()
        .is_some_and(|part| part.client == call.process && call.is_for(&part.waits_for));
    let window = Span { from: since, to: told_at };
    let stood: Vec<Vec<Span>> = circle.iter().map(|part| stood(part, waits, window)).collect();
    let moments = stood.iter().flatten().map(|span| span.from);
    let at_once = |at: u64| {
        let there = |span: &Span| span.from <= at && at < span.to;
        stood.iter().all(|spans| spans.iter().any(there))
    };
    if !is_closed || !is_own || !moments.into_iter().any(at_once) {
        view.report.deadlocks.never_real += 1;
        let parts: Vec<String> = circle.iter().map(shown).collect();
        let what = format!("no deadlock between {} and {}: {call}", s(since), s(told_at));
        view.found("D1", told_at, format!("{what}: {}", parts.join("; ")));
    }
}

/// When a part of a circle stood: the wait, and the hold of its owner.
fn stood(part: &Part, waits: &[Wait], window: Span) -> Vec<Span> {
    let is_of = |wait: &&Wait| wait.process == part.client && wait.lock == part.waits_for;
    let with = |wait: &Wait| {
        let held = |held: &&Held| held.lock == part.holds && held.token == part.token;
        let span = wait.holds.iter().find(held)?.span.within(wait.span)?;
        span.within(window)
    };
    waits.iter().filter(is_of).filter_map(with).collect()
}

/// All circles of waits that have no end of their own, each once.
fn circles(waits: &[Wait]) -> Vec<Circle> {
    let mut holders: BTreeMap<&str, Vec<(usize, Span)>> = BTreeMap::new();
    for (index, wait) in waits.iter().enumerate().filter(|(_, wait)| !wait.limited) {
        for held in &wait.holds {
            let spans = held.span.within(wait.span).map(|span| (index, span));
            holders.entry(&held.lock).or_default().extend(spans);
        }
    }
    let mut found = Vec::new();
    for start in (0..waits.len()).filter(|start| !waits[*start].limited) {
        let path = Circle { waits: vec![start], span: waits[start].span };
        follow(waits, &holders, path, &mut found);
    }
    found
}

/// Follows a path to all who hold what its last wait is for. The first of a circle is the one that was asked first.
fn follow(
    waits: &[Wait],
    holders: &BTreeMap<&str, Vec<(usize, Span)>>,
    path: Circle,
    found: &mut Vec<Circle>,
) {
    let start = path.waits[0];
    let Some(last) = path.waits.last().map(|last| &waits[*last]) else { return };
    for (next, span) in holders.get(last.lock.as_str()).into_iter().flatten() {
        let Some(span) = path.span.within(*span) else { continue };
        let is_own = (&waits[*next].process, waits[*next].owner) == (&last.process, last.owner);
        if *next == start && path.waits.len() > 1 {
            found.push(Circle { waits: path.waits.clone(), span });
        } else if *next > start && !is_own && !path.waits.contains(next) {
            let waits_so_far = path.waits.iter().copied().chain([*next]).collect();
            follow(waits, holders, Circle { waits: waits_so_far, span }, found);
        }
    }
}

/// D2: a circle that stands while there is no fault is told within ten seconds.
fn is_told_in_a_calm(view: &mut View<'_>, circle: &Circle, waits: &[Wait]) {
    let Span { from, to } = circle.span;
    let heals = view.faults.iter().map(|fault| fault.to).filter(|at| (from..to).contains(at));
    let begins: BTreeSet<u64> = heals.chain([from]).collect();
    for begin in begins {
        if view.faults.iter().any(|fault| fault.from < begin && fault.to > begin) {
            continue;
        }
        let next = view.faults.iter().map(|fault| fault.from).filter(|from| *from >= begin);
        let end = next.min().unwrap_or(u64::MAX).min(to);
        if end <= begin {
            continue;
        }
        view.checked("D2");
        let stands = end - begin;
        let longest = &mut view.report.deadlocks.longest_ms;
        *longest = (stands / 1_000_000).max(*longest);
        if stands > nanos(TOLD) + view.allowed(begin, end, None) {
            view.report.deadlocks.missed += 1;
            let parts = circle.waits.iter().map(|index| {
                let Wait { process, owner, lock, holds, .. } = &waits[*index];
                let holds: Vec<&str> = holds.iter().map(|held| held.lock.as_str()).collect();
                format!("{process} owner {owner} holds {holds:?} and waits for {lock}")
            });
            let parts = parts.collect::<Vec<_>>().join("; ");
            let what = format!("nobody is told for {:.0} ms from {} on", ms(stands), s(begin));
            view.found("D2", end, format!("{what}: {parts}"));
        }
    }
}

fn shown(part: &Part) -> String {
    let Part { client, holds, token, waits_for } = part;
    format!("{client} holds {holds} (token {token}) and waits for {waits_for}")
}

/// How long a note lasts that is not made again.
const NOTED: Duration = Duration::from_secs(5);
const TOLD: Duration = Duration::from_secs(10);
