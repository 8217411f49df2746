//! Emits every log line, and counts what the lines report.
//!
//! No line is emitted under a mutex, since a subscriber may call the client. Of a line that a thousand locks would repeat,
//! the first few are at WARN, and later only a summary is; see [`Burst`].
//!
//! The targets, levels and fields are public: `docs/logs.md` lists them.

use std::fmt::{Debug, Display};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::counts::{Counts, count};
use crate::error::{Error, Fault, LossReason};
use crate::key::{Holder, LeaseId};
use crate::monitor::{Event, HoldEnd, Monitor, Outcome, Path};
use crate::owner::Owner;
use crate::text::rounded;

/// Locks: losses, renewals, releases, and the span of an acquisition.
pub(crate) const LOCK: &str = "leasehold::lock";
/// Servers: connections and subscriptions.
pub(crate) const NODE: &str = "leasehold::node";
/// What `check` finds at connect.
pub(crate) const CHECK: &str = "leasehold::check";

/// Emits a line at WARN if `$loud`, else at DEBUG.
macro_rules! warn_if {
    ($loud:expr, $($line:tt)*) => {
        if $loud { tracing::warn!($($line)*) } else { tracing::debug!($($line)*) }
    };
}

/// The counters and the bursts of one client.
#[derive(Default)]
pub(crate) struct Events {
    /// Leases that are held now.
    holds: AtomicUsize,
    pub(crate) counts: Counts,
    monitor: Option<Arc<dyn Monitor>>,
    monitor_panicked: AtomicBool,
    pub(crate) locks_reclaimed: AtomicU64,
    pub(crate) locks_lost_in_failovers: AtomicU64,
    renewals: Mutex<Burst>,
    losses: Mutex<Burst>,
    waits: Mutex<Burst>,
    ended_waits: Mutex<Burst>,
    long_holds: Mutex<Burst>,
    pub(crate) queue: QueueCounts,
}

/// How often the servers' queues did what; see [`Stats`](crate::Stats), whose fields have the same names.
#[derive(Debug, Default)]
pub(crate) struct QueueCounts {
    pub(crate) grants_by_message: AtomicU64,
    pub(crate) grants_confirmed: AtomicU64,
    pub(crate) grants_given_back: AtomicU64,
    pub(crate) dead_waiters_passed: AtomicU64,
}

/// The use of a lease: lock, owner and token.
#[derive(Clone, Copy)]
pub(crate) struct Use<'a> {
    pub(crate) lock: &'a str,
    pub(crate) lease: &'a LeaseId,
    pub(crate) owner: Option<&'a Owner>,
    pub(crate) token: u64,
}

/// What is known of why a wait goes on.
pub(crate) struct Blocker<'a> {
    pub(crate) holder: Option<&'a Holder>,
    /// The holder's owner, the line of code that took it, and for how long it has it, if it is of this client.
    pub(crate) by: Option<&'a Owner>,
    pub(crate) taken_at: Option<&'static Location<'static>>,
    pub(crate) held_for: Option<Duration>,
    /// How many wait in this process, and in the server's queue.
    pub(crate) waiters: usize,
    pub(crate) clients: Option<usize>,
    pub(crate) fault: Option<&'a Fault>,
}

/// What to think of if a lock is held in the process that waits for it.
const HELD_HERE: &str = "this client holds the lock itself: if its holder waits for this task, as for one that it spawned, both \
                         wait forever; run the task in the holder's scope, or let the holder unlock before";

impl Events {
    pub(crate) fn monitored(monitor: Option<Arc<dyn Monitor>>) -> Self {
        Self { monitor, ..Self::default() }
    }

    /// Whether somebody takes the events: what costs something is done for him alone.
    pub(crate) fn is_monitored(&self) -> bool {
        self.monitor.is_some()
    }

    fn tell(&self, event: &Event<'_>) {
        let Some(monitor) = &self.monitor else { return };
        // It runs in the client's own tasks, too, which must not end by it.
        if catch_unwind(AssertUnwindSafe(|| monitor.on(event))).is_err() {
            if self.monitor_panicked.swap(true, Ordering::Relaxed) {
                tracing::debug!(target: LOCK, ?event, "the monitor panicked");
            } else {
                tracing::error!(target: LOCK, ?event, "the monitor panicked");
            }
        }
    }

    pub(crate) fn wait_began(&self, lock: &str) {
        count(&self.counts.contended);
        self.tell(&Event::WaitBegan { lock });
    }

    pub(crate) fn wait_over(&self, lock: &str) {
        self.tell(&Event::WaitEnded { lock });
    }

    pub(crate) fn hold_began(&self, lock: &str) {
        count(&self.counts.acquired);
        self.tell(&Event::HoldBegan { lock });
    }

    pub(crate) fn hold_ended(&self, lock: &str, end: HoldEnd, held: Duration) {
        self.counts.hold_times.add(held);
        self.tell(&Event::HoldEnded { lock, end, held });
    }

    /// An acquisition that was the first of its hold has come to it.
    pub(crate) fn acquired(&self, lock: &str, path: Path, took: Duration) {
        self.counts.acquire_times.add(took);
        self.tell(&Event::Asked { lock, outcome: Outcome::Held, path, took });
    }

    pub(crate) fn entered_again(&self, lock: &str, took: Duration) {
        self.tell(&Event::Asked { lock, outcome: Outcome::Held, path: Path::Reentry, took });
    }

    pub(crate) fn not_acquired(&self, lock: &str, outcome: Outcome, path: Path, took: Duration) {
        count(match outcome {
            Outcome::TimedOut => &self.counts.timed_out,
            Outcome::Cancelled => &self.counts.cancelled,
            _ => &self.counts.failed,
        });
        self.tell(&Event::Asked { lock, outcome, path, took });
    }

    pub(crate) fn renewed(&self, lock: &str) {
        count(&self.counts.renewals);
        self.tell(&Event::Renewed { lock });
    }

    pub(crate) fn lease_began(&self) {
        self.holds.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn lease_ended(&self) {
        self.holds.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn lock_lost(&self, lost: Use<'_>, reason: LossReason, now: Timestamp) {
        if reason == LossReason::Shutdown {
            // The program ends it itself, and its servers have done nothing wrong.
            let Use { lock, lease, owner, token } = lost;
            let owner = owner.map(tracing::field::display);
            tracing::debug!(target: LOCK, lock, owner, token, %lease, "lock given up in a shutdown");
            return;
        }
        count(&self.counts.lost);
        self.tell(&Event::Lost { lock: lost.lock, reason });
        if reason == LossReason::Failover {
            self.locks_lost_in_failovers.fetch_add(1, Ordering::Relaxed);
        }
        let loud = self.losses.lock().admits(now, LOSSES_IN_FULL);
        let Use { lock, lease, owner, token } = lost;
        let owner = owner.map(tracing::field::display);
        warn_if!(loud, target: LOCK, lock, owner, token, %lease, %reason, "lock lost");
    }

    pub(crate) fn lock_reclaimed(&self, put_back: Use<'_>) {
        self.locks_reclaimed.fetch_add(1, Ordering::Relaxed);
        let Use { lock, lease, owner, token } = put_back;
        let owner = owner.map(tracing::field::display);
        tracing::debug!(target: LOCK, lock, owner, token, %lease, "lock put back");
    }

    pub(crate) fn renewal_failed(
        &self,
        of: Use<'_>,
        fault: &Fault,
        remaining: Duration,
        now: Timestamp,
    ) {
        count(&self.counts.renewals_failed);
        self.tell(&Event::RenewalFailed { lock: of.lock, remaining });
        let loud = self.renewals.lock().admits(now, 1);
        let Use { lock, lease, owner, token } = of;
        let owner = owner.map(tracing::field::display);
        let remaining = rounded(&remaining);
        warn_if!(
            loud, target: LOCK, lock, owner, token, %lease, %fault, ?remaining, "renewal failed"
        );
    }

    /// Reports a wait that goes on: at INFO if it has not lasted for 10 s yet, else at WARN.
    pub(crate) fn still_waiting(
        &self,
        lock: &str,
        owner: &Owner,
        at: &'static Location<'static>,
        waited: Duration,
        blocker: &Blocker<'_>,
        now: Timestamp,
    ) {
        self.tell(&Event::SlowWait { lock, asked_at: at, waited });
        let (more, is_first) = next_of(&self.waits, now);
        if let Some(more) = more {
            tracing::warn!(target: LOCK, more, "more waits go on");
        }
        let Blocker { holder, by, taken_at, held_for, fault, .. } = blocker;
        let (waiters, clients) = (blocker.waiters, blocker.clients);
        let waited_ms = waited.as_millis() as u64;
        let held_ms = held_for.map(|held| held.as_millis() as u64);
        let holder = holder.map(tracing::field::display);
        let holder_owner = by.map(tracing::field::display);
        let taken_at = taken_at.map(tracing::field::display);
        let fault = fault.map(tracing::field::display);
        // Who spawned a task nobody can tell.
        let hint = by.map(|_| HELD_HERE);
        macro_rules! say {
            ($level:ident) => {
                tracing::$level!(
                    target: LOCK, lock, %owner, %at, waited_ms, holder, holder_owner, taken_at, held_ms,
                    waiters, clients, fault, hint, "still waiting"
                )
            };
        }
        match (is_first, waited < LOUD_FROM) {
            (false, _) => say!(debug),
            (true, true) => say!(info),
            (true, false) => say!(warn),
        }
    }

    /// Reports the end of a wait that was slow. `owner` is `None` if it is not known any more.
    pub(crate) fn wait_ended(
        &self,
        lock: &str,
        owner: Option<&Owner>,
        at: &Location<'_>,
        outcome: &dyn Display,
        waited: Duration,
        now: Timestamp,
    ) {
        let (more, is_first) = next_of(&self.ended_waits, now);
        if let Some(more) = more {
            tracing::info!(target: LOCK, more, "more waits ended");
        }
        let (owner, waited_ms) = (owner.map(tracing::field::display), waited.as_millis() as u64);
        if is_first {
            tracing::info!(target: LOCK, lock, owner, %at, %outcome, waited_ms, "wait ended");
        } else {
            tracing::debug!(target: LOCK, lock, owner, %at, %outcome, waited_ms, "wait ended");
        }
    }

    /// Reports a hold that has lasted for longer than the program wants.
    pub(crate) fn still_held(
        &self,
        of: Use<'_>,
        taken_at: &'static Location<'static>,
        held: Duration,
        waiters: usize,
        now: Timestamp,
    ) {
        self.tell(&Event::LongHold { lock: of.lock, taken_at, held });
        let (more, is_first) = next_of(&self.long_holds, now);
        if let Some(more) = more {
            tracing::warn!(target: LOCK, more, "more locks still held");
        }
        let Use { lock, lease, owner, token } = of;
        let (owner, held_ms) = (owner.map(tracing::field::display), held.as_millis() as u64);
        warn_if!(
            is_first, target: LOCK, lock, owner, token, %lease, %taken_at, held_ms, waiters, "still held"
        );
    }

    /// Emits the summaries that are due.
    pub(crate) fn sum_up(&self, now: Timestamp) {
        let (losses, renewals) =
            (self.losses.lock().summary(now), self.renewals.lock().summary(now));
        let holds = self.holds.load(Ordering::Relaxed);
        if let Some(more) = renewals {
            tracing::warn!(target: LOCK, more, holds, "more renewals failed");
        }
        if let Some(more) = losses {
            tracing::warn!(target: LOCK, more, holds, "more locks lost");
        }
    }

    /// Returns the time of the next summary.
    pub(crate) fn sums_up_at(&self) -> Timestamp {
        self.losses.lock().summary_at().min(self.renewals.lock().summary_at())
    }

    /// Reports that a connection that was in use is lost, which begins an outage.
    pub(crate) fn connection_lost(
        &self,
        node: &str,
        reason: &str,
        burst: &mut Burst,
        now: Timestamp,
    ) -> Outage {
        if let Some(more) = burst.summary(now) {
            tracing::warn!(target: NODE, node, more, "more connections lost");
        }
        let loud = burst.admits(now, CONNECTIONS_IN_FULL);
        let holds = self.holds.load(Ordering::Relaxed);
        warn_if!(loud, target: NODE, node, reason, holds, "connection lost");
        Outage {
            since: now,
            renewals_failed: self.counts.renewals_failed.load(Ordering::Relaxed),
            locks_lost: self.counts.lost.load(Ordering::Relaxed),
            loud,
        }
    }

    /// Reports the end of an outage.
    pub(crate) fn connected_again(&self, node: &str, outage: &Outage, now: Timestamp) {
        let away_ms = now.since(outage.since).as_millis() as u64;
        let renewals_failed =
            self.counts.renewals_failed.load(Ordering::Relaxed) - outage.renewals_failed;
        let locks_lost = self.counts.lost.load(Ordering::Relaxed) - outage.locks_lost;
        if outage.loud {
            tracing::info!(
                target: NODE, node, away_ms, renewals_failed, locks_lost, "connected again"
            );
        } else {
            tracing::debug!(
                target: NODE, node, away_ms, renewals_failed, locks_lost, "connected again"
            );
        }
    }
}

/// Returns the summary of the lines before that were only counted, if it is due, and whether this one is among the first.
fn next_of(burst: &Mutex<Burst>, now: Timestamp) -> (Option<u64>, bool) {
    let mut burst = burst.lock();
    (burst.summary(now), burst.admits(now, SLOW_IN_FULL))
}

/// A time without a connection, and the counts at its beginning.
pub(crate) struct Outage {
    since: Timestamp,
    renewals_failed: u64,
    locks_lost: u64,
    /// True if its beginning was logged in full.
    loud: bool,
}

/// `held_for` is asked only if somebody reads the event.
pub(crate) fn lock_released(of: Use<'_>, held_for: impl FnOnce() -> Duration) {
    let Use { lock, lease, owner, token } = of;
    let owner = owner.map(tracing::field::display);
    tracing::debug!(
        target: LOCK,
        lock,
        owner,
        token,
        %lease,
        held_us = held_for().as_micros() as u64,
        "lock released"
    );
}

/// Reports a wait for a lock that the caller took itself. It is `lasting` unless it ends by itself, or the hold does.
pub(crate) fn self_wait(lock: &str, owner: &Owner, lasting: bool) {
    if lasting {
        tracing::warn!(
            target: LOCK,
            lock,
            %owner,
            "this task waits for a lock that it took itself under another owner: it may wait forever; \
             name the owner with `owned_by` or `Owner::scope` to nest"
        );
    } else {
        tracing::warn!(
            target: LOCK,
            lock,
            %owner,
            "this task waits for a lock that it took itself under another owner, until the wait or the lease ends; \
             name the owner with `owned_by` or `Owner::scope` to nest"
        );
    }
}

/// Reports a circle in which a wait goes on. It is `lasting` unless a part of it ends by itself.
pub(crate) fn deadlock(deadlock: &Error, lasting: bool) {
    let Error::Deadlock { lock, cycle } = deadlock else { return };
    let owner = cycle.first().map(|caller| tracing::field::display(&caller.owner));
    if lasting {
        tracing::warn!(
            target: LOCK, lock = &**lock, owner, %deadlock,
            "owners of this process wait for each other: they may wait forever"
        );
    } else {
        tracing::info!(
            target: LOCK, lock = &**lock, owner, %deadlock,
            "owners of this process wait for each other until a wait or a lease ends"
        );
    }
}

/// As [`deadlock`], of a circle over several processes.
pub(crate) fn deadlock_elsewhere(deadlock: &Error, lasting: bool) {
    let Error::Deadlock { lock, cycle } = deadlock else { return };
    let owner = cycle.first().map(|caller| tracing::field::display(&caller.owner));
    if lasting {
        tracing::warn!(
            target: LOCK, lock = &**lock, owner, %deadlock,
            "owners in several processes wait for each other: they may wait forever"
        );
    } else {
        tracing::info!(
            target: LOCK, lock = &**lock, owner, %deadlock,
            "owners in several processes wait for each other until a wait or a lease ends"
        );
    }
}

/// Reports an order of locks that contradicts an earlier one: what a caller does `now`, and what was done `before`.
pub(crate) fn other_order(lock: &str, owner: &Owner, now: &dyn Display, before: &str) {
    tracing::warn!(
        target: LOCK,
        lock,
        %owner,
        %now,
        before,
        "locks are taken in another order than before: callers that do both at once may wait for each other"
    );
}

/// Reports that this user may not note waits on the servers, unless that was so when it was tried before.
pub(crate) fn notes_denied(fault: &Fault) {
    tracing::warn!(
        target: LOCK,
        %fault,
        "deadlocks over several processes are not found: the user may not use the keys `leasehold_wait:..`"
    );
}

pub(crate) fn no_semaphore(semaphore: &str) {
    tracing::warn!(
        target: LOCK,
        semaphore,
        "permits are asked for of a semaphore that does not exist: nobody gets any until `set_permits` makes it, or \
         `with_permits` of a handle"
    );
}

pub(crate) fn not_downgraded(lock: &str, owner: &Owner, guards: u32) {
    tracing::warn!(
        target: LOCK,
        lock,
        %owner,
        guards,
        "a downgrade beside other guards of its hold: the lock stays locked for writing until they are gone"
    );
}

#[cfg(feature = "__test-seam")]
pub(crate) fn seam_replaced() {
    tracing::warn!("this client's network or time is replaced, which only tests may do");
}

pub(crate) fn force_unlocked(lock: &str, holder: Option<&Holder>, freed: bool) {
    let holder = holder.map(tracing::field::display);
    tracing::warn!(target: LOCK, lock, holder, freed, "force-unlocked");
}

/// Reports that the server's mark was neither read nor left, so that its grants do not count for longer than necessary.
pub(crate) fn mark_refused(node: &str, fault: &Fault) {
    tracing::debug!(target: NODE, node, %fault, "mark refused");
}

pub(crate) fn lease_put_back(node: &str, lock: &str, lease: &LeaseId) {
    tracing::debug!(target: LOCK, node, lock, %lease, "lease put back");
}

pub(crate) fn master_moved(master: &str, from: &str, to: &str) {
    tracing::info!(target: NODE, master, from, to, "another server is the master");
}

pub(crate) fn sentinel_failed(master: &str, sentinel: &str, fault: &Fault) {
    tracing::debug!(target: NODE, master, sentinel, %fault, "a Sentinel does not answer");
}

/// `is_first`: none of them has answered for a while.
pub(crate) fn sentinel_answers(master: &str, sentinel: &str, is_first: bool) {
    if is_first {
        tracing::info!(target: NODE, master, sentinel, "a Sentinel answers again");
    } else {
        tracing::debug!(target: NODE, master, sentinel, "a Sentinel answers again");
    }
}

pub(crate) fn sentinels_silent(master: &str) {
    tracing::warn!(target: NODE, master, "no Sentinel answers: a failover would go unnoticed");
}

/// `named`: each Sentinel, and the master that it names.
pub(crate) fn sentinels_disagree(master: &str, used: &impl Display, named: &impl Display) {
    tracing::warn!(target: NODE, master, %used, %named, "the Sentinels name different masters");
}

pub(crate) fn node_not_used(node: &str, problem: &str) {
    tracing::error!(target: NODE, node, problem, "node not used");
}

pub(crate) fn server_met(node: &str, past: &impl Debug) {
    tracing::debug!(target: NODE, node, ?past, "server met");
}

/// Reports that releases were not sent, so that the locks stay until their TTL is over.
pub(crate) fn farewell_failed(node: &str, fault: &Fault) {
    tracing::debug!(target: NODE, node, %fault, "releases not sent at the end");
}

pub(crate) fn connecting_failed(node: &str, fault: &Fault, attempt: u32) {
    tracing::debug!(target: NODE, node, %fault, attempt, "connecting failed");
}

pub(crate) fn no_connection_for_subscriptions(node: &str, fault: &Fault) {
    tracing::debug!(target: NODE, node, %fault, "no connection for subscriptions");
}

/// No node of a cluster says where its slots are.
pub(crate) fn no_map(node: &str, fault: &Fault) {
    tracing::debug!(target: NODE, node, %fault, "no map of the cluster's slots");
}

pub(crate) fn cannot_subscribe(
    node: &str,
    channel: &str,
    fault: &Fault,
    burst: &mut Burst,
    now: Timestamp,
) {
    if let Some(more) = burst.summary(now) {
        tracing::warn!(target: NODE, node, more, "more subscriptions refused");
    }
    let loud = burst.admits(now, 1);
    warn_if!(loud, target: NODE, node, channel, %fault, "cannot subscribe: waiters poll");
}

/// Reports a message in the mailbox that no script writes. Its text is not shown: it may contain a lease id.
pub(crate) fn letter_not_understood(node: &str, bytes: usize) {
    tracing::debug!(target: NODE, node, bytes, "message in the mailbox not understood");
}

pub(crate) fn finding(finding: &(impl Display + Debug)) {
    tracing::info!(target: CHECK, finding = %finding, "the server's settings can break a lock's promises");
}

/// Lines of one kind: the first few are logged in full, and the others are counted until a summary is due.
///
/// Summaries come after 10 s, then after 20 s, 40 s and so on. The burst starts again if no line came between two of them.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    until: Timestamp,
    length: Duration,
    admitted: u32,
    /// The number of lines that were only counted.
    more: u64,
}

impl Burst {
    /// Returns true if a line is among the first `most`.
    pub(crate) fn admits(&mut self, now: Timestamp, most: u32) -> bool {
        if now >= self.until && self.more == 0 {
            *self =
                Self { until: now.plus(FIRST_SUMMARY), length: FIRST_SUMMARY, ..Self::default() };
        }
        let admits = self.admitted < most;
        if admits {
            self.admitted += 1;
        } else {
            self.more += 1;
        }
        admits
    }

    /// Returns the number of lines since the last summary, if one is due.
    pub(crate) fn summary(&mut self, now: Timestamp) -> Option<u64> {
        if self.more == 0 || now < self.until {
            return None;
        }
        self.length = (self.length * 2).min(LONGEST_SUMMARY);
        self.until = now.plus(self.length);
        Some(std::mem::take(&mut self.more))
    }

    pub(crate) fn summary_at(&self) -> Timestamp {
        if self.more == 0 { Timestamp::NEVER } else { self.until }
    }
}

const LOSSES_IN_FULL: u32 = 3;
/// Of slow waits, of their ends, and of long holds.
const SLOW_IN_FULL: u32 = 5;
/// From this time on, a wait that goes on is a warning.
const LOUD_FROM: Duration = Duration::from_secs(10);
const CONNECTIONS_IN_FULL: u32 = 3;
const FIRST_SUMMARY: Duration = Duration::from_secs(10);
const LONGEST_SUMMARY: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    impl Events {
        pub(crate) fn holds(&self) -> usize {
            self.holds.load(Ordering::Relaxed)
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn the_first_lines_are_in_full_and_the_others_are_counted() {
        let mut burst = Burst::default();
        let admitted: Vec<bool> = (0..5).map(|n| burst.admits(at(100 + n), 3)).collect();
        assert_eq!(admitted, [true, true, true, false, false]);
        assert_eq!((burst.summary_at(), burst.summary(at(109))), (at(110), None));
        assert_eq!(burst.summary(at(110)), Some(2));
        assert_eq!((burst.summary_at(), burst.summary(at(111))), (Timestamp::NEVER, None));
    }

    #[test]
    fn summaries_of_what_goes_on_become_rare_and_the_last_is_not_forgotten() {
        let mut burst = Burst::default();
        let summaries: Vec<u64> = (0..3600)
            .filter(|second| {
                burst.admits(at(100 + second), 1);
                burst.summary(at(100 + second)).is_some()
            })
            .collect();
        assert_eq!(summaries, [10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]);
        assert_eq!(burst.summary_at(), at(100 + 3630));
    }

    #[test]
    fn a_quiet_time_makes_the_next_line_a_first_one() {
        let mut burst = Burst::default();
        assert!(burst.admits(at(100), 1) && !burst.admits(at(101), 1));
        assert_eq!(burst.summary(at(110)), Some(1));
        assert!(!burst.admits(at(120), 1), "within twenty seconds of the summary");
        assert_eq!(burst.summary(at(130)), Some(1));
        assert!(burst.admits(at(170), 1), "forty quiet ones");
        let mut quick = Burst::default();
        assert!(quick.admits(at(100), 1) && quick.admits(at(110), 1));
    }
}
