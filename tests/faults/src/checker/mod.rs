//! Says whether a history keeps what the library promises.
//!
//! | | statement | file |
//! |---|---|---|
//! | S1 | two holds of one name never overlap, unless both read or have permits; nobody writes while a writer becomes a reader | `safety` |
//! | S2 | tokens and terms increase from hold to hold, and readers have that of the last writer at least; a fenced register never takes a smaller one | `safety` |
//! | S3 | a hold's count is the acquisitions minus the releases, in the process and on the servers | `counts` |
//! | S4 | no server changes a lock for a release or renewal of a lease that does not have it, nor deletes what another leader said | `servers` |
//! | S5 | no more permits are held at one time than there may be, and no more are said to be there | `safety`, `deeds` |
//! | S6 | a multi lock has all its locks | `safety` |
//! | W1 | no server renews a lease after its release | `servers` |
//! | W2 | a hold that has ended is reported as lost by its deadline, and is never released as if it were held | `leases`, `deeds` |
//! | W3 | nothing is lost, and no server is said to be away, without a cause | `causes` |
//! | R1 | nothing is left at the end, in a process or on a server, and all permits have come back | `leases` |
//! | L1 | a killed holder's lock is free after its time to live, and taken, unless the first in the queue was killed, too | `liveness` |
//! | L2 | nobody waits for what is free: a lock, a part of a read-write lock, or permits | `liveness`, `free` |
//! | H | when all faults have ended, and while there are none, every waiter gets the lock | `liveness` |
//! | N1 | a guard that says that its lock is wanted is right: somebody else asks for it, or did so shortly before; and one that is asked learns of who waits within 4 s | `wanted` |
//! | D1 | a deadlock that is told was one: there was a moment, shortly before, in which each part of it waited for a lock that the next one held | `deadlocks` |
//! | D2 | a deadlock that stands for 10 s while there is no fault is told to somebody in it | `deadlocks` |
//! | T1 | a wait with a timeout ends neither early nor late | `answers` |
//! | O1 | no caller gets a result that the client cannot know | `answers` |
//! | M1 | who names masters that are not in use gets no lock and is told what to do, and who names those in use is never refused for that | `lists` |
//! | Q1 | each item is in one place, waiting, lent, dead or done; none is lost, delivered after it was done, or done twice | `work` |
//! | Q2 | a latch opens with its last count and not before; no count is lost | `work` |
//! | Q3 | who waits for a signal to change is told of all that were given since it looked, and shown the newest | `work` |
//!
//! An interval check suffices for a lock, since a hold's bounds come from the client itself: exclusion is then
//! "sorted intervals do not overlap". Whoever waits for several locks may have some of them meanwhile, which no client says:
//! nothing is then said about waiters of those. A hold that may have been forced to end excludes nobody from then on. A limit in
//! time allows for what the processes stood still meanwhile.

mod answers;
mod causes;
mod counts;
mod deadlocks;
mod deeds;
mod free;
mod leases;
mod lists;
mod liveness;
mod safety;
mod servers;
mod wanted;
mod work;

use std::{collections::BTreeMap, fmt, time::Duration};

use crate::{
    clock::nanos,
    event::What,
    history::{Call, Deed, History, Hold},
};

pub use self::deadlocks::Deadlocks;

/// What the checker must know of the run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// How many servers there were.
    pub nodes: usize,
    /// A failover may lose the last writer's token, and readers have what is left.
    pub fails_over: bool,
    /// What a time limit allows besides.
    pub slack: Duration,
    /// The longest lease that was asked for.
    pub ttl: Duration,
    /// How long an answer is waited for at most.
    pub response_timeout: Duration,
    /// For how long the grants of a server do not count that may have forgotten others.
    pub quarantine: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    /// What is wrong, with the calls and times that show it.
    pub what: String,
    /// When, for the order of a report.
    pub at: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// What came of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub violations: Vec<Violation>,
    /// How often each invariant had something to say.
    pub checked: BTreeMap<&'static str, u64>,
    pub deadlocks: Deadlocks,
    pub calls: usize,
    pub holds: usize,
    /// For how long something stood still that should not have, in nanoseconds: the more, the less the limits in
    /// time say.
    pub stalled: u64,
}

impl Report {
    /// The names of the invariants that do not hold.
    pub fn violated(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.violations.iter().map(|found| found.invariant).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Checks a history for everything.
pub fn check(history: &History, setting: &Setting) -> Report {
    let mut view = View::of(history, setting);
    let parts = [
        safety::check,
        counts::check,
        servers::check,
        leases::check,
        deeds::check,
        liveness::check,
        deadlocks::check,
        answers::check,
        causes::check,
        work::check,
        lists::check,
        wanted::check,
    ];
    parts.into_iter().for_each(|part| part(&mut view));
    let stalled = view.stalled(0, u64::MAX, None);
    let mut report = view.report;
    report.stalled = stalled;
    report.violations.sort_by_key(|violation| violation.at);
    (report.calls, report.holds) = (view.calls.len(), view.holds.len());
    report
}

/// A fault, from its beginning until all is as before.
struct Fault<'a> {
    from: u64,
    to: u64,
    number: u64,
    kind: &'a str,
    stops: Option<&'a str>,
}

/// A history as the checks need it.
struct View<'a> {
    history: &'a History,
    setting: &'a Setting,
    calls: Vec<Call>,
    holds: Vec<Hold>,
    deeds: Vec<Deed>,
    /// From, to, and the process that stood still.
    stalls: Vec<(u64, u64, &'a str)>,
    faults: Vec<Fault<'a>>,
    report: Report,
}

impl<'a> View<'a> {
    fn of(history: &'a History, setting: &'a Setting) -> Self {
        let calls = history.calls();
        let holds = History::holds(&calls);
        let mut view = Self {
            history,
            setting,
            calls,
            holds,
            deeds: history.deeds(),
            stalls: Vec::new(),
            faults: Vec::new(),
            report: Report::default(),
        };
        for (process, event) in history.events() {
            match &event.what {
                What::Stalled { from } => view.stalls.push((*from, event.at, process)),
                What::Fault { number, kind, stops } => {
                    let (from, to, number) = (event.at, u64::MAX, *number);
                    view.faults.push(Fault { from, to, number, kind, stops: stops.as_deref() });
                }
                What::Healed { number } => {
                    let begun = |fault: &&mut Fault<'_>| fault.number == *number;
                    if let Some(fault) = view.faults.iter_mut().find(begun) {
                        fault.to = event.at + lingers(fault.kind, setting);
                    }
                }
                _ => {}
            }
        }
        view.force_out();
        view
    }

    fn found(&mut self, invariant: &'static str, at: u64, what: String) {
        self.report.violations.push(Violation { invariant, what, at });
    }

    fn checked(&mut self, invariant: &'static str) {
        *self.report.checked.entry(invariant).or_default() += 1;
    }

    /// What a limit allows of `process` between `from` and `to`: the slack, and for how long something stood still
    /// there. A thread that is kept waiting says so nowhere, so the others' stalls count, too: but not those of
    /// a contender that was stopped on purpose.
    fn allowed(&self, from: u64, to: u64, process: Option<&str>) -> u64 {
        nanos(self.setting.slack) + self.stalled(from, to, process)
    }

    fn stalled(&self, from: u64, to: u64, process: Option<&str>) -> u64 {
        let there = self.stalls.iter().filter(|(begins, ends, stalled)| {
            let stopped = |fault: &Fault<'_>| {
                fault.stops == Some(stalled) && fault.from < *ends && fault.to > *begins
            };
            let is_own = process == Some(stalled);
            *begins < to && *ends > from && (is_own || !self.faults.iter().any(stopped))
        });
        let spans = there.map(|(begins, ends, _)| (*begins, *ends)).collect();
        covered(spans)
    }

    /// Whether no fault but number `except` was there between the two times.
    fn is_calm(&self, from: u64, to: u64, except: Option<u64>) -> bool {
        let disturbs =
            |fault: &Fault<'_>| fault.from < to && fault.to > from && Some(fault.number) != except;
        !self.faults.iter().any(disturbs)
    }

    fn is_killed(&self, process: &str) -> bool {
        self.history.events().any(|(_, event)| match &event.what {
            What::Killed { process: killed, .. } => killed == process,
            _ => false,
        })
    }

    /// The last thing that is known of a process.
    fn last_seen(&self, process: &str) -> u64 {
        let events = self.history.processes.get(process);
        events.and_then(|events| events.last()).map_or(0, |event| event.at)
    }
}

/// For how long clients may feel a fault after it is healed, in nanoseconds. New connections are as before, but a subscription
/// that is over for the server only is found at the next check at the latest, and made again after a pause.
fn lingers(kind: &str, setting: &Setting) -> u64 {
    match kind {
        "half-closed" => {
            nanos(CHECKED_EVERY + setting.response_timeout + LONGEST_PAUSE + setting.slack)
        }
        _ => 0,
    }
}

/// How often a client checks its subscriptions.
const CHECKED_EVERY: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How much time some spans cover together.
fn covered(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let mut end = 0;
    let mut sum = 0;
    for (from, to) in spans {
        sum += to.saturating_sub(from.max(end));
        end = end.max(to);
    }
    sum
}

/// A time of a report, in seconds.
fn s(at: u64) -> String {
    format!("{:.6}", at as f64 / 1e9)
}

fn ms(span: u64) -> f64 {
    span as f64 / 1e6
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({:?}) by {} owner {} token {} from {} to {}",
            self.lock,
            self.share,
            self.process,
            self.owner,
            self.token,
            s(self.granted_at),
            s(self.ends_at)
        )
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locks = self.locks.join(", ");
        write!(f, "{:?} of {locks} ({:?})", self.how, self.share)?;
        write!(f, " by {} op {}", self.process, self.op)?;
        write!(f, " asked at {}", s(self.asked_at))
    }
}

/// What each run of some length has put to the test, one of deadlocks, and one of masters that change.
pub const INVARIANTS: [&str; 19] = [
    "S1", "S2", "S3", "S4", "S5", "S6", "W1", "W2", "W3", "R1", "L1", "L2", "H", "N1", "T1", "O1",
    "Q1", "Q2", "Q3",
];

pub const OF_DEADLOCKS: [&str; 2] = ["D1", "D2"];

pub const OF_LISTS: [&str; 4] = ["S1", "S2", "H", "M1"];

/// The journal of the process that starts the others and injects the faults.
pub const DRIVER: &str = "driver";
