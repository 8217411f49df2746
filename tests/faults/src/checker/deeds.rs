//! W2 and S5, and what other checks must know of operators: whom they force out, and how many permits they add.

use std::collections::{BTreeMap, BTreeSet};

use super::{View, ms, s};
use crate::{
    clock::nanos,
    event::{self, How, Outcome, What},
    history::{Call, Deed, Hold},
    locks::PERMITS,
};

pub(super) fn check(view: &mut View<'_>) {
    for index in 0..view.deeds.len() {
        let deed = view.deeds[index].clone();
        if let (Some(lease), Some((at, Some(true)))) = (deed.lease(), deed.ended) {
            for index in 0..view.calls.len() {
                is_told(view, &deed, lease, at, index);
            }
        }
    }
    seen(view);
}

/// S5: a server says that there are no more permits than there may be.
fn seen(view: &mut View<'_>) {
    for (process, event) in view.history.events() {
        let What::Seen { lock, from, permits } = &event.what else { continue };
        view.checked("S5");
        let most = PERMITS + view.added(lock, *from, event.at);
        if *permits > i64::from(most) {
            let what = format!("{process} sees {permits} permits of {lock}, of at most {most}");
            view.found("S5", event.at, format!("{what}, at {}", s(event.at)));
        }
    }
}

/// W2: nothing renews a lease that was forced to end, so whoever had it is told before the time to live is over that was
/// asked for last. A permit, which is not shared and of which servers are always told, is not given back as if it were held.
fn is_told(view: &mut View<'_>, deed: &Deed, lease: &str, done_at: u64, index: usize) {
    let call = view.calls[index].clone();
    let Some(grant) = call.granted.as_ref().filter(|grant| {
        let over = |at: Option<u64>| at.is_some_and(|at| at < done_at);
        grant.id == lease
            && grant.granted_at < deed.asked_at
            && !over(grant.releasing.map(|(at, ..)| at))
            && !over(grant.lost.as_ref().map(|(at, ..)| *at))
    }) else {
        return;
    };
    let end = done_at + grant.ttl_ms * 1_000_000;
    let limit = end + view.allowed(done_at, end, Some(&call.process));
    // A server that comes back without its data has the lease put back that a client believes in.
    if view.may_lose_data(deed.asked_at, limit) {
        return;
    }
    let ended_at = [grant.releasing.map(|(at, ..)| at), grant.lost.as_ref().map(|(at, ..)| *at)];
    let ended_at = ended_at.into_iter().flatten().min();
    view.checked("W2");
    if ended_at.unwrap_or_else(|| view.last_seen(&call.process)) > limit {
        let late = ms(limit - done_at);
        let what = format!("forced out at {} and not told for {late:.1} ms: {call}", s(done_at));
        view.found("W2", limit, what);
    }
    if let (Some((_, How::Unlock, _)), Some((at, Outcome::Ok))) = (grant.releasing, grant.released)
        && is_of_permits(&call)
        && view.is_calm(deed.asked_at.saturating_sub(A_WHILE), at, None)
    {
        let what =
            format!("given back as if it were held, and forced out at {}: {call}", s(done_at));
        view.found("W2", at, what);
    }
}

/// The calls that forced holds of a lock to end. Each did so at one moment, if it did: the more it explains, the better that moment
/// is known.
pub(super) struct Forced {
    deeds: Vec<OneDeed>,
    /// When each lease of the lock was asked for: others in a process may get one that is gone, until that is known.
    begun: BTreeMap<String, u64>,
}

struct OneDeed {
    /// The lease that it ended; `None`: all that were there.
    lease: Option<String>,
    /// When it ran: not before, and not after.
    from: u64,
    to: u64,
    /// The leases that it must have ended, and those that were granted only then.
    ended: BTreeSet<String>,
    later: BTreeSet<String>,
}

impl Forced {
    pub(super) fn of(view: &View<'_>, lock: &str) -> Self {
        let of_lock = view.deeds.iter().filter(|deed| deed.lock == lock);
        let deeds = of_lock.filter_map(|deed| {
            let event::Deed::ForceOut(lease) = &deed.what else { return None };
            let (from, to) = (deed.asked_at, view.settled_at(deed));
            let (ended, later) = Default::default();
            Some(OneDeed { lease: lease.clone(), from, to, ended, later })
        });
        let deeds = deeds.collect();
        let mut begun = BTreeMap::new();
        for hold in view.holds.iter().filter(|hold| hold.lock == lock) {
            let asked_at = view.asked_at(hold);
            let first = begun.entry(hold.id.clone()).or_insert(asked_at);
            *first = asked_at.min(*first);
        }
        Self { deeds, begun }
    }

    /// Whether one of two holds, the second of which was given out later, was forced to end before the other was granted.
    pub(super) fn may_be_beside(&mut self, first: &Hold, second: &Hold) -> bool {
        self.ended(first, second) || self.ended(second, first)
    }

    /// Whether a hold that was given out later was granted sooner, and forced to end before the other was granted.
    pub(super) fn may_be_behind(&mut self, first: &Hold, second: &Hold) -> bool {
        self.ended(second, first)
    }

    fn ended(&mut self, hold: &Hold, other: &Hold) -> bool {
        let begun = self.begun.get(&hold.id).copied().unwrap_or(hold.granted_at);
        let fits = |deed: &&mut OneDeed| {
            deed.lease.as_ref().is_none_or(|lease| *lease == hold.id)
                && begun.max(deed.from) <= other.granted_at.min(deed.to)
                && !deed.later.contains(&hold.id)
                && !deed.ended.contains(&other.id)
        };
        let Some(deed) = self.deeds.iter_mut().find(fits).filter(|_| hold.id != other.id) else {
            return false;
        };
        (deed.from, deed.to) = (begun.max(deed.from), other.granted_at.min(deed.to));
        deed.ended.insert(hold.id.clone());
        deed.later.insert(other.id.clone());
        true
    }
}

fn is_of_permits(call: &Call) -> bool {
    matches!(call.share, event::Share::Permits { .. })
}

impl View<'_> {
    /// Marks the holds that may have been forced to end. Each is certain only until the call for that began.
    pub(super) fn force_out(&mut self) {
        let mut holds = std::mem::take(&mut self.holds);
        for deed in &self.deeds {
            let event::Deed::ForceOut(lease) = &deed.what else { continue };
            let until = self.settled_at(deed);
            let is_hit = |hold: &&Hold| match lease {
                Some(lease) => hold.id == *lease,
                None => self.asked_at(hold) < until && hold.ends_at > deed.asked_at,
            };
            let of_lock = holds.iter().filter(|hold| hold.lock == deed.lock);
            let leases: BTreeSet<_> = of_lock.filter(is_hit).map(|hold| hold.id.clone()).collect();
            // Others in the process may get the same lease afterwards, before it is known to be gone.
            for hold in holds.iter_mut().filter(|hold| leases.contains(&hold.id)) {
                hold.forced_at = Some(hold.forced_at.unwrap_or(u64::MAX).min(deed.asked_at));
            }
        }
        for hold in &mut holds {
            hold.ends_at = hold.forced_at.unwrap_or(u64::MAX).min(hold.ends_at);
        }
        self.holds = holds;
    }

    /// When a hold was asked for.
    pub(super) fn asked_at(&self, hold: &Hold) -> u64 {
        let asked = hold.calls.iter().map(|call| self.calls[*call].asked_at);
        asked.min().unwrap_or(hold.granted_at)
    }

    /// How many permits there may be at most between the two times, more than at first. What is added counts from the call
    /// for it on, until whoever has added it has forgotten so many permits, or all were set back afterwards.
    pub(super) fn added(&self, lock: &str, from: u64, to: u64) -> u32 {
        let of_lock = self.deeds.iter().filter(|deed| deed.lock == lock && deed.asked_at < to);
        let added = of_lock.filter_map(|deed| match deed.what {
            event::Deed::Add(permits) if !self.is_undone(deed, from) => Some(permits),
            _ => None,
        });
        added.sum()
    }

    fn is_undone(&self, add: &Deed, by: u64) -> bool {
        let forgotten = self.calls.iter().any(|call| {
            let grant = call.granted.as_ref();
            (&call.process, call.owner) == (&add.process, add.owner)
                && grant.and_then(|grant| grant.releasing).is_some_and(|it| it.1 == How::Forget)
                && grant
                    .and_then(|grant| grant.released)
                    .is_some_and(|(at, outcome)| at <= by && outcome == Outcome::Ok)
        });
        let settled_at = self.settled_at(add);
        let set_back = self.deeds.iter().any(|deed| {
            deed.lock == add.lock
                && deed.what == event::Deed::SetBack
                && deed.asked_at >= settled_at
                && deed.ended.is_some_and(|(at, done)| at <= by && done == Some(true))
        });
        forgotten || set_back
    }

    /// How many permits there are at least in the end, less or more than at first; `None`: nobody knows. What is added counts if it
    /// certainly was, and if nobody may have set the permits back afterwards; what is forgotten counts if it may have been. A
    /// server that loses its data forgets what was added, and not what is forgotten later.
    pub(super) fn at_least_added(&self, lock: &str) -> Option<i64> {
        let done = |deed: &Deed| deed.ended.is_some_and(|(_, done)| done == Some(true));
        let of_lock = || self.deeds.iter().filter(|deed| deed.lock == lock);
        let set_backs = || of_lock().filter(|deed| deed.what == event::Deed::SetBack);
        // All begins anew with the last one that was certainly done.
        let base = set_backs().filter(|deed| done(deed)).map(|deed| deed.asked_at).max();
        let base = base.unwrap_or(0);
        if self.may_lose_data(base, u64::MAX) {
            return None;
        }
        let may_be_undone = |add: &Deed| {
            set_backs().any(|deed| self.settled_at(deed) > add.asked_at && deed.asked_at >= base)
        };
        let added = of_lock().filter_map(|deed| match deed.what {
            event::Deed::Add(permits) if done(deed) && !may_be_undone(deed) => Some(permits),
            _ => None,
        });
        let forgotten = self.calls.iter().filter_map(|call| {
            let grant = call.granted.as_ref().filter(|_| call.is_for(lock))?;
            let (_, how, _) = grant.releasing?;
            let ended_at = grant.released.map_or(u64::MAX, |(at, _)| at);
            let lost = matches!(grant.released, Some((_, Outcome::Lost)));
            let event::Share::Permits { weight, .. } = call.share else { return None };
            (how == How::Forget && !lost && ended_at >= base).then_some(i64::from(weight))
        });
        Some(added.map(i64::from).sum::<i64>() - forgotten.sum::<i64>())
    }

    /// Whether somebody has changed how many permits there are.
    pub(super) fn is_resized(&self, lock: &str) -> bool {
        let resizes = |deed: &Deed| !matches!(deed.what, event::Deed::ForceOut(_));
        self.deeds.iter().any(|deed| deed.lock == lock && resizes(deed))
    }

    /// When a call has done what it does, if it ever does: without an answer, a request may still run until the faults of
    /// that time are over.
    pub(super) fn settled_at(&self, deed: &Deed) -> u64 {
        let ended_at = deed.ended.map_or_else(|| self.last_seen(&deed.process), |(at, _)| at);
        if matches!(deed.ended, Some((_, Some(_)))) {
            return ended_at;
        }
        let there = self.faults.iter().filter(|it| it.from < ended_at && it.to > deed.asked_at);
        let over_at = there.map(|fault| fault.to).max().unwrap_or(0).max(ended_at);
        over_at.saturating_add(A_WHILE)
    }

    /// Whether a server may have come back without its data, or with other data, between the two times or a lease before.
    pub(super) fn may_lose_data(&self, from: u64, to: u64) -> bool {
        let felt = nanos(self.setting.ttl);
        self.faults.iter().any(|fault| {
            let loses = self.setting.fails_over || LOSE_DATA.contains(&fault.kind);
            loses && fault.from < to && fault.to.saturating_add(felt) > from
        })
    }
}

/// After these faults, a server lacks what it had.
const LOSE_DATA: [&str; 5] = [
    "server-emptied",
    "persistence-switched",
    "disk-lost",
    "clock-set-after-start",
    "demoted-and-promoted",
];
/// For so long a request may be on its way without a fault, and there must have been no fault before a call that is checked, in
/// nanoseconds.
const A_WHILE: u64 = 1_000_000_000;
