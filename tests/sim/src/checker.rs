//! The promises, checked while the history is made.
//!
//! A hold is known by its lock, token and lease. At the end of each moment of the simulation every guard that a
//! running process has is asked whether it is held: from the first yes to the last one, with a stop of the
//! process in between or not, it was held.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::coordination::ITEMS;

/// A promise that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub at_ms: u64,
    pub rule: Rule,
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// S1: two holds of one lock at one time.
    Exclusion,
    /// S4: more permits out than there are, or another number of them left and out together.
    Permits,
    /// S5: an item of a queue in two places or in none, or delivered as it must not be.
    Items,
    /// S6: a latch that opened early, or has other counts than were made.
    Latch,
    /// S7: a signal that somebody was not shown.
    Signal,
    /// S2: a token that is not above all before it.
    TokenOrder,
    /// S2, of a reader: a token below that of a writer before it, or one that hides a writer after it.
    ReaderToken,
    /// S3: a hold count that is not the number of its guards.
    Count,
    /// W1: something about a lease was sent behind its release.
    AfterRelease,
    /// W2: a loss that was told late, or told though nothing was lost.
    Telling,
    /// W4: a renewal made a lock.
    Recreated,
    /// Somebody got a lock while another waited for it for longer, on one server.
    Order,
    /// W3: something was lost, or a server did not answer, and nothing was the cause.
    Cause,
    /// A deadline that no answer of the servers supports.
    Deadline,
    /// T1: a wait that ended early or late.
    Timing,
    /// H: somebody waits behind a free lock.
    Stuck,
    /// N1: told that somebody wants a lock that nobody asked for, or not told of one who waits.
    Wanted,
    /// D1: a deadlock was told that was none.
    FalseDeadlock,
    /// D2: a deadlock stands in a calm, and nobody is told.
    MissedDeadlock,
    /// R1: something stayed behind.
    Leak,
    /// C1: a server granted something behind the last release of it, or nobody ever released it.
    Unreleased,
    /// O1: a panic, or an error that nothing explains.
    Unexpected,
}

impl Rule {
    /// The number of the promise, where it has one.
    pub fn id(self) -> &'static str {
        match self {
            Self::Exclusion => "S1",
            Self::Permits => "S4",
            Self::Items => "S5",
            Self::Latch => "S6",
            Self::Signal => "S7",
            Self::TokenOrder | Self::ReaderToken => "S2",
            Self::Count => "S3",
            Self::AfterRelease => "W1",
            Self::Telling => "W2",
            Self::Cause => "W3",
            Self::Recreated => "W4",
            Self::Order => "order",
            Self::Deadline => "deadline",
            Self::Timing => "T1",
            Self::Stuck => "H",
            Self::Wanted => "N1",
            Self::FalseDeadlock => "D1",
            Self::MissedDeadlock => "D2",
            Self::Leak => "R1",
            Self::Unreleased => "C1",
            Self::Unexpected => "O1",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {} ms: {}", self.rule, self.at_ms, self.what)
    }
}

/// With whom a hold may be held at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// With nobody.
    #[default]
    Alone,
    /// With other readers. Its token is that of the writer before it. Over several servers it may be a later one that nobody
    /// wrote with.
    Reads,
    /// With nobody: an item of a queue, which has no token.
    Lent,
    /// With as many as there are permits for. It has no token.
    Permits { weight: u32, all: u32 },
}

impl Share {
    fn may_share(self) -> bool {
        matches!(self, Self::Reads | Self::Permits { .. })
    }
}

/// A hold as its process reported it.
#[derive(Clone, Debug)]
pub struct Grant {
    pub lock: usize,
    pub token: u64,
    pub host: usize,
    pub owner: u64,
    pub share: Share,
    /// With [`reader_key`], where several owners share one.
    pub lease: String,
    pub asked_at: u64,
    /// Whether the guard said so when it was given out.
    pub held: bool,
}

impl Grant {
    /// How many permits it has.
    fn weight(&self) -> u32 {
        if let Share::Permits { weight, .. } = self.share { weight } else { 0 }
    }
}

/// What tells a reader from others that share its lease.
pub fn reader_key(lease: &str, owner: u64) -> String {
    format!("{lease}/{owner}")
}

/// The lease that a hold's key is of.
pub fn lease_of(key: &str) -> &str {
    key.split_once('/').map_or(key, |(lease, _)| lease)
}

struct Hold {
    grant: Grant,
    granted_at: u64,
    guards: u32,
    /// The last moment at which it said that it is held.
    last_held: Option<u64>,
    /// The first moment at which it did not, though nobody had given it back.
    seen_lost: Option<u64>,
    told: bool,
    overlapped: bool,
    /// It overlapped another where that was to be expected.
    excused: bool,
}

/// Of one lock.
#[derive(Default)]
struct Lock {
    /// By token and lease; those that ended stay for a while.
    holds: BTreeMap<(u64, String), Hold>,
    /// When the highest token so far was given out, each time it rose.
    highest: Rises,
    /// The same of holds that are alone.
    highest_alone: Rises,
}

/// When a number rose, and to what.
#[derive(Default)]
struct Rises(Vec<(u64, u64)>);

impl Rises {
    fn to(&mut self, now: u64, number: u64) {
        if number > self.now() {
            self.0.push((now, number));
            if self.0.len() > 64 {
                self.0.drain(..32);
            }
        }
    }

    fn before(&self, at: u64) -> u64 {
        let earlier = self.0.iter().rev().find(|(since, _)| *since < at);
        earlier.map_or(0, |(_, number)| *number)
    }

    fn now(&self) -> u64 {
        self.before(u64::MAX)
    }
}

impl Lock {
    /// How many permits were held at one moment at most, from `from` on.
    fn most_out(&self, from: u64) -> u32 {
        let began = self.holds.values().map(|hold| hold.granted_at.max(from));
        began.map(|at| self.out_at(at)).max().unwrap_or(0)
    }

    /// How many permits were held at one moment, as far as their processes have said so.
    fn out_at(&self, at: u64) -> u32 {
        let holds = self.holds.values();
        let there = holds.filter(|hold| hold.granted_at <= at && hold.last_held >= Some(at));
        there.map(|hold| hold.grant.weight()).sum()
    }

    /// Whether one of the permits that are held now was not among too many before. From now on they all were.
    fn is_news(&mut self, now: u64) -> bool {
        let mut is_news = false;
        for hold in self.holds.values_mut().filter(|hold| hold.last_held == Some(now)) {
            is_news |= !std::mem::replace(&mut hold.overlapped, true);
        }
        is_news
    }
}

#[derive(Default)]
pub struct Checker {
    locks: BTreeMap<usize, Lock>,
    /// Until when the answers of each server support a lease, on its process's clock.
    supports: BTreeMap<String, BTreeMap<usize, u64>>,
    /// How many servers must agree.
    pub majority: usize,
    /// Two holds at once are expected: their guards may be given out in another order than their tokens.
    pub lenient: bool,
    /// Leases that were deleted by hand: others may have got their locks.
    taken_away: BTreeSet<String>,
    violations: Vec<Violation>,
    /// How often each rule had something to say.
    pub checks: BTreeMap<Rule, u64>,
    pub overlaps: u64,
    /// Of the overlapping holds, those whose process was told of the loss.
    pub overlaps_told: u64,
    /// For how long two holds were held at once.
    pub longest_overlap_ms: u64,
    /// When each host was last suspended no more.
    resumed: BTreeMap<usize, u64>,
    /// Since when two are held at once.
    overlapping: BTreeMap<(usize, u64, u64), u64>,
}

impl Checker {
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub fn violated(&mut self, at_ms: u64, rule: Rule, what: String) {
        self.violations.push(Violation { at_ms, rule, what });
    }

    /// A rule was looked at, and something was there to judge.
    pub fn checked(&mut self, rule: Rule) {
        *self.checks.entry(rule).or_default() += 1;
    }

    /// A host is suspended no more: its timers are late, each by what it had left.
    pub fn resumed(&mut self, host: usize, now: u64) {
        self.resumed.insert(host, now);
    }

    /// A lease was deleted by hand, where its votes are needed.
    pub fn taken_away(&mut self, lease: &str) {
        self.taken_away.insert(lease.to_owned());
    }

    /// A guard was given out.
    pub fn granted(&mut self, now: u64, grant: Grant) {
        let has_token = !matches!(grant.share, Share::Permits { .. } | Share::Lent);
        if has_token {
            self.checked(Rule::TokenOrder);
        }
        let lock = self.locks.entry(grant.lock).or_default();
        let same_token =
            lock.holds.range((grant.token, String::new())..(grant.token + 1, String::new()));
        let repeated =
            same_token.map(|(_, hold)| &hold.grant).find(|other| other.lease != grant.lease);
        // A reader has the token of the writer before it.
        if let Some(other) = repeated.cloned()
            && (grant.share, other.share) == (Share::Alone, Share::Alone)
        {
            let what = format!("the token of {other:?} again: {grant:?}");
            self.violated(now, Rule::TokenOrder, what);
        }
        let lock = self.locks.entry(grant.lock).or_default();
        let key = (grant.token, grant.lease.clone());
        if let Some(hold) = lock.holds.get_mut(&key) {
            let same = (hold.grant.owner, hold.grant.host) == (grant.owner, grant.host);
            hold.guards += 1;
            if !same || hold.guards == 1 {
                let what = format!("a second hold with the token of {:?}: {grant:?}", hold.grant);
                self.violated(now, Rule::TokenOrder, what);
            }
            return;
        }
        // Given out when it was lost already it may be older than what others got meanwhile.
        let since = if grant.held && !self.lenient { u64::MAX } else { grant.asked_at };
        let (above, broken) = match grant.share {
            Share::Reads => {
                let above = lock.highest_alone.before(since);
                (above, (grant.token < above).then_some(Rule::ReaderToken))
            }
            _ => {
                let above = lock.highest.before(since);
                (above, (has_token && grant.token <= above).then_some(Rule::TokenOrder))
            }
        };
        lock.highest.to(now, grant.token);
        if grant.share == Share::Alone {
            lock.highest_alone.to(now, grant.token);
        }
        let shown = format!("{grant:?}");
        let hold = Hold {
            grant,
            granted_at: now,
            guards: 1,
            last_held: None,
            seen_lost: None,
            told: false,
            overlapped: false,
            excused: false,
        };
        lock.holds.insert(key, hold);
        if let Some(rule) = broken {
            self.violated(now, rule, format!("a token not above {above}: {shown}"));
        }
    }

    /// A token between two others that somebody had who was alone, as far as that is remembered.
    pub fn alone_between(&self, lock: usize, low: u64, high: u64) -> Option<u64> {
        let mut tokens = self.locks.get(&lock)?.highest_alone.0.iter().map(|(_, token)| *token);
        tokens.find(|token| low < *token && *token < high)
    }

    /// The highest token that somebody wrote with.
    pub fn newest_writer(&self, lock: usize) -> u64 {
        self.locks.get(&lock).map_or(0, |lock| lock.highest_alone.now())
    }

    /// What a guard says of itself at the end of a moment.
    pub fn sampled(&mut self, now: u64, lock: usize, token: u64, lease: &str, held: bool) {
        let Some(lock_state) = self.locks.get_mut(&lock) else { return };
        let Some(hold) = lock_state.holds.get_mut(&(token, lease.to_owned())) else { return };
        if !held {
            if hold.seen_lost.is_none() {
                *self.checks.entry(Rule::Telling).or_default() += 1;
            }
            let since = *hold.seen_lost.get_or_insert(now);
            // A look each second is promised after a suspend.
            let resumed_at = self.resumed.get(&hold.grant.host).copied();
            let since = since.max(resumed_at.map_or(0, |at| at + LOOK));
            if !hold.told && now.saturating_sub(since) > TELLING {
                hold.told = true;
                let what =
                    format!("not told for {} ms of the loss of {:?}", now - since, hold.grant);
                self.violated(now, Rule::Telling, what);
            }
            return;
        }
        let revived = hold.seen_lost.is_some() || hold.told;
        if hold.last_held.is_none() {
            *self.checks.entry(Rule::Exclusion).or_default() += 1;
        }
        let went_on = hold.last_held.is_some_and(|last| last + 1 >= now);
        hold.last_held = Some(now);
        let (from, grant) = (hold.granted_at, hold.grant.clone());
        // In between it was held, too: all that it is held beside in that time counts. If it was held at the moment before, what
        // others have said of this moment counts: the last of those who say so knows all.
        let too_many = match grant.share {
            Share::Permits { all, .. } => {
                let out = if went_on { lock_state.out_at(now) } else { lock_state.most_out(from) };
                (out > all && lock_state.is_news(now)).then_some(out)
            }
            _ => None,
        };
        let mut overlaps = Vec::new();
        let mut both = Vec::new();
        for other in lock_state.holds.values_mut() {
            let Some(last) = other.last_held else { continue };
            let may_share = grant.share.may_share() && other.grant.share.may_share();
            if other.grant.lease == lease && other.grant.token == token || from > last || may_share
            {
                continue;
            }
            if last + 1 >= now && other.guards > 0 {
                let other_token = other.grant.token;
                both.push((lock, token.min(other_token), token.max(other_token)));
            }
            let excused =
                self.taken_away.contains(&other.grant.lease) || self.taken_away.contains(lease);
            let known = if excused { &mut other.excused } else { &mut other.overlapped };
            if !std::mem::replace(known, true) {
                overlaps.push((other.grant.clone(), excused));
            }
        }
        for pair in both {
            let since = *self.overlapping.entry(pair).or_insert(now);
            self.longest_overlap_ms = self.longest_overlap_ms.max(now - since);
        }
        if let Some(out) = too_many {
            self.overlaps += 1;
            let what = format!("{out} permits are held at once, with those of {grant:?}");
            self.violated(now, Rule::Permits, what);
        }
        if revived {
            let what = format!("held again after its loss: {grant:?}");
            self.violated(now, Rule::Telling, what);
        }
        for (other, excused) in overlaps {
            self.overlaps += 1;
            if excused {
                continue;
            }
            let what = format!("held at once: {other:?} and {grant:?}");
            self.violated(now, Rule::Exclusion, what);
        }
    }

    /// Which process has a hold, and when it asked for it.
    pub fn asker(&self, lock: usize, token: u64, lease: &str) -> Option<(usize, u64)> {
        let hold = self.locks.get(&lock)?.holds.get(&(token, lease.to_owned()))?;
        Some((hold.grant.host, hold.grant.asked_at))
    }

    /// The process was told of a loss.
    pub fn told(&mut self, lock: usize, token: u64, lease: &str) {
        let hold = self
            .locks
            .get_mut(&lock)
            .and_then(|lock| lock.holds.get_mut(&(token, lease.to_owned())));
        let Some(hold) = hold else { return };
        hold.told = true;
        if hold.overlapped || hold.excused {
            self.overlaps_told += 1;
        }
    }

    /// A guard was given back, or its process ended.
    pub fn left(&mut self, now: u64, lock: usize, token: u64, lease: &str) {
        let Some(lock) = self.locks.get_mut(&lock) else { return };
        if let Some(hold) = lock.holds.get_mut(&(token, lease.to_owned())) {
            hold.guards = hold.guards.saturating_sub(1);
        }
        lock.holds.retain(|_, hold| {
            hold.guards > 0 || hold.last_held.unwrap_or(hold.granted_at) + REMEMBERED > now
        });
    }

    /// A server said yes to a request about a lease: it supports the lease until `until` on its process's clock.
    pub fn supported(&mut self, lease: &str, node: usize, until: u64) {
        let nodes = self.supports.entry(lease.to_owned()).or_default();
        let known = nodes.entry(node).or_default();
        *known = until.max(*known);
    }

    /// A server's clock was set back by so much, in nanoseconds: all leases last so much longer there.
    pub fn set_back(&mut self, node: usize, by: u64) {
        for until in self.supports.values_mut().filter_map(|nodes| nodes.get_mut(&node)) {
            *until += by;
        }
    }

    /// Until when a server's answers support a lease.
    pub fn support(&self, lease: &str, node: usize) -> u64 {
        let nodes = self.supports.get(lease);
        nodes.and_then(|nodes| nodes.get(&node)).copied().unwrap_or(0)
    }

    /// The process believes in a lease until `deadline` on its own clock.
    pub fn believed(&mut self, now: u64, lease: &str, deadline: u64) {
        self.checked(Rule::Deadline);
        let mut supports: Vec<u64> = self
            .supports
            .get(lease)
            .map(|nodes| nodes.values().copied().collect())
            .unwrap_or_default();
        supports.sort_unstable_by(|a, b| b.cmp(a));
        let supported = supports.get(self.majority - 1).copied().unwrap_or(0);
        if deadline > supported + SLACK_NANOS {
            let late = Duration::from_nanos(deadline - supported);
            let what = format!("{lease} is believed in {late:?} longer than the servers said");
            self.violated(now, Rule::Deadline, what);
        }
    }

    /// Forgets what is known of leases that ended.
    pub fn forget_ended(&mut self) {
        self.overlapping.clear();
        // Each item is a lock of its own.
        self.locks.retain(|lock, state| *lock < ITEMS || !state.holds.is_empty());
        let known: Vec<&str> = self
            .locks
            .values()
            .flat_map(|lock| lock.holds.values().map(|hold| lease_of(&hold.grant.lease)))
            .collect();
        self.supports.retain(|lease, _| known.contains(&&**lease));
        self.taken_away.retain(|lease| known.contains(&&**lease));
    }
}

/// How long after a suspend a loss may go unnoticed, in milliseconds.
const LOOK: u64 = 1000;
/// How late a loss may be told, in milliseconds.
const TELLING: u64 = 50;
/// How long holds that ended are compared with new ones.
const REMEMBERED: u64 = 10_000;
/// Requests are stamped at the end of the millisecond in which they are written: sent earlier, never later.
const SLACK_NANOS: u64 = 1_100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(token: u64, owner: u64) -> Grant {
        let (lease, share) = (lease(token), Share::Alone);
        Grant { lock: 0, token, host: 0, owner, share, lease, asked_at: 0, held: true }
    }

    fn lease(token: u64) -> String {
        format!("c:{token}")
    }

    fn rules(checker: &Checker) -> Vec<Rule> {
        checker.violations().iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn holds_one_after_the_other_are_fine() {
        let mut checker = Checker { majority: 1, ..Checker::default() };
        for token in 1..=3 {
            let now = token * 10;
            checker.granted(now, grant(token, token));
            checker.sampled(now, 0, token, &lease(token), true);
            checker.sampled(now + 5, 0, token, &lease(token), true);
            checker.left(now + 6, 0, token, &lease(token));
        }
        assert_eq!(rules(&checker), []);
    }

    #[test]
    fn two_holds_at_once_are_found() {
        let mut checker = Checker { majority: 1, ..Checker::default() };
        checker.granted(10, grant(1, 1));
        checker.sampled(10, 0, 1, &lease(1), true);
        checker.granted(12, grant(2, 2));
        checker.sampled(12, 0, 1, &lease(1), true);
        checker.sampled(12, 0, 2, &lease(2), true);
        assert_eq!(rules(&checker), [Rule::Exclusion]);
        assert_eq!(checker.overlaps, 1);
    }

    #[test]
    fn two_holds_at_once_are_no_wonder_where_somebody_took_the_lock_away() {
        let mut checker = Checker { majority: 1, ..Checker::default() };
        checker.taken_away(&lease(1));
        for (now, token) in [(10, 1), (12, 2), (14, 3)] {
            checker.granted(now, grant(token, token));
            checker.sampled(now, 0, token, &lease(token), true);
            checker.sampled(now, 0, 1, &lease(1), true);
        }
        assert_eq!(rules(&checker), []);
        checker.sampled(14, 0, 2, &lease(2), true);
        assert_eq!(rules(&checker), [Rule::Exclusion]);
    }

    #[test]
    fn a_hold_that_outlives_a_stop_of_its_process_was_held_all_the_time() {
        let mut checker = Checker { majority: 1, ..Checker::default() };
        checker.granted(10, grant(1, 1));
        checker.sampled(10, 0, 1, &lease(1), true);
        checker.granted(20, grant(2, 2));
        checker.sampled(20, 0, 2, &lease(2), true);
        checker.left(25, 0, 2, &lease(2));
        assert_eq!(rules(&checker), []);
        checker.sampled(30, 0, 1, &lease(1), true);
        assert_eq!(rules(&checker), [Rule::Exclusion]);
    }

    fn reads(token: u64, owner: u64) -> Grant {
        let lease = reader_key(&lease(token), owner);
        Grant { share: Share::Reads, lease, ..grant(token, owner) }
    }

    /// Gives it out, and looks.
    fn begin(checker: &mut Checker, now: u64, grant: Grant) {
        let (token, lease) = (grant.token, grant.lease.clone());
        checker.granted(now, grant);
        checker.sampled(now, 0, token, &lease, true);
    }

    #[test]
    fn readers_share_a_lease_and_the_token_of_the_writer_before_them() {
        let mut checker = Checker { majority: 1, ..Checker::default() };
        begin(&mut checker, 10, grant(5, 1));
        checker.left(11, 0, 5, &lease(5));
        begin(&mut checker, 12, reads(5, 2));
        begin(&mut checker, 13, reads(5, 3));
        begin(&mut checker, 14, Grant { lease: "d:1".to_owned(), ..reads(5, 4) });
        assert_eq!(rules(&checker), []);
        begin(&mut checker, 15, reads(4, 5));
        assert_eq!(rules(&checker), [Rule::ReaderToken], "a version that was read before");
    }

    #[test]
    fn readers_may_have_different_tokens_between_those_of_the_writers() {
        let mut checker = Checker { majority: 1, ..Checker::default() };
        begin(&mut checker, 10, grant(5, 1));
        checker.left(11, 0, 5, &lease(5));
        begin(&mut checker, 12, reads(8, 2));
        begin(&mut checker, 13, reads(6, 3));
        assert_eq!(rules(&checker), []);
        begin(&mut checker, 30, grant(7, 4));
        assert_eq!(rules(&checker)[0], Rule::TokenOrder, "a writer is above all readers");
    }

    #[test]
    fn a_writer_beside_a_reader_is_found_whoever_came_first() {
        for second in [grant(6, 2), reads(6, 2)] {
            let mut checker = Checker { majority: 1, ..Checker::default() };
            let first = if second.share == Share::Reads { grant(5, 1) } else { reads(5, 1) };
            let (token, lease) = (first.token, first.lease.clone());
            begin(&mut checker, 10, first);
            checker.sampled(12, 0, token, &lease, true);
            begin(&mut checker, 12, second);
            assert_eq!(rules(&checker), [Rule::Exclusion]);
        }
    }

    #[test]
    fn more_permits_at_once_than_there_are_are_found() {
        let permit = |owner, weight| Grant {
            share: Share::Permits { weight, all: 3 },
            lease: lease(owner),
            ..grant(0, owner)
        };
        let mut checker = Checker { majority: 1, ..Checker::default() };
        begin(&mut checker, 10, permit(1, 2));
        checker.sampled(20, 0, 0, &lease(1), true);
        checker.left(20, 0, 0, &lease(1));
        begin(&mut checker, 21, permit(2, 1));
        begin(&mut checker, 21, permit(3, 2));
        assert_eq!(rules(&checker), [], "one after the other");
        begin(&mut checker, 22, permit(4, 1));
        assert_eq!(rules(&checker), [], "the others may have ended");
        checker.sampled(23, 0, 0, &lease(3), true);
        checker.sampled(25, 0, 0, &lease(2), true);
        assert_eq!(rules(&checker), [Rule::Permits], "all four were held at 22 and 23");
    }

    /// Those that are there first say so last: each process speaks in its turn.
    #[test]
    fn too_many_permits_are_found_whichever_process_has_the_last() {
        for excess in 0..3 {
            let mut checker = Checker { majority: 1, ..Checker::default() };
            let permit = |owner: u64| Grant {
                share: Share::Permits { weight: if owner == excess { 1 } else { 2 }, all: 4 },
                lease: lease(owner),
                ..grant(0, owner)
            };
            for now in 10..200 {
                for owner in 0..3 {
                    if owner == excess && now < 50 {
                        continue;
                    }
                    if now == if owner == excess { 50 } else { 10 } {
                        checker.granted(now, permit(owner));
                    }
                    checker.sampled(now, 0, 0, &lease(owner), true);
                }
                assert_eq!(rules(&checker).len(), usize::from(now >= 50), "{excess} at {now}");
            }
            assert_eq!(rules(&checker), [Rule::Permits]);
        }
    }

    #[test]
    fn tokens_that_fall_or_repeat_are_found() {
        let mut checker = Checker { majority: 1, ..Checker::default() };
        checker.granted(10, grant(5, 1));
        checker.left(11, 0, 5, &lease(5));
        checker.granted(12, grant(4, 2));
        assert_eq!(rules(&checker), [Rule::TokenOrder]);
        checker.granted(13, Grant { owner: 3, ..grant(5, 3) });
        assert_eq!(rules(&checker), [Rule::TokenOrder, Rule::TokenOrder]);
    }

    #[test]
    fn a_late_guard_of_an_early_grant_may_have_a_lower_token() {
        let mut checker = Checker { majority: 1, ..Checker::default() };
        checker.granted(10, grant(5, 1));
        checker.left(11, 0, 5, &lease(5));
        checker.granted(12, Grant { asked_at: 9, held: false, ..grant(4, 2) });
        assert_eq!(rules(&checker), []);
        checker.granted(13, Grant { asked_at: 11, held: false, ..grant(3, 2) });
        assert_eq!(rules(&checker), [Rule::TokenOrder]);
        checker.lenient = true;
        checker.granted(14, Grant { asked_at: 9, ..grant(2, 2) });
        assert_eq!(rules(&checker), [Rule::TokenOrder]);
    }

    #[test]
    fn nested_guards_share_their_token() {
        let mut checker = Checker { majority: 1, ..Checker::default() };
        checker.granted(10, grant(1, 1));
        checker.granted(11, grant(1, 1));
        assert_eq!(rules(&checker), []);
        checker.granted(12, grant(1, 2));
        assert_eq!(rules(&checker), [Rule::TokenOrder]);
    }

    #[test]
    fn a_loss_that_nobody_is_told_is_found() {
        let mut checker = Checker { majority: 1, ..Checker::default() };
        checker.granted(10, grant(1, 1));
        checker.sampled(10, 0, 1, &lease(1), true);
        for now in 11..=61 {
            checker.sampled(now, 0, 1, &lease(1), false);
        }
        assert_eq!(rules(&checker), []);
        checker.sampled(62, 0, 1, &lease(1), false);
        assert_eq!(rules(&checker), [Rule::Telling]);
    }

    #[test]
    fn a_loss_that_is_taken_back_is_found() {
        let mut checker = Checker { majority: 1, ..Checker::default() };
        checker.granted(10, grant(1, 1));
        checker.sampled(10, 0, 1, &lease(1), true);
        checker.told(0, 1, &lease(1));
        checker.sampled(11, 0, 1, &lease(1), true);
        assert_eq!(rules(&checker), [Rule::Telling]);
    }

    #[test]
    fn a_deadline_beyond_what_a_majority_said_is_found() {
        let mut checker = Checker { majority: 2, ..Checker::default() };
        const MS: u64 = 1_000_000;
        for (node, until) in [(0, 900), (1, 500), (2, 100)] {
            checker.supported("c:1", node, until * MS);
        }
        checker.believed(1, "c:1", 500 * MS);
        assert_eq!(rules(&checker), []);
        checker.believed(1, "c:1", 503 * MS);
        assert_eq!(rules(&checker), [Rule::Deadline]);
        checker.believed(1, "c:2", 3 * MS);
        assert_eq!(rules(&checker), [Rule::Deadline, Rule::Deadline]);
    }
}
