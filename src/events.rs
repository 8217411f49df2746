//! Emits every log line, and counts what the lines report.
//!
//! No line is emitted under a mutex, since a subscriber may call the client. Of a line that a thousand locks would repeat,
//! the first few are at WARN, and later only a summary is; see [`Burst`].
//!
//! The targets, levels and fields are public: `docs/logs.md` lists them.

mod burst;
mod deadlocks;
mod nodes;

use std::fmt::{Debug, Display};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) use burst::Burst;
pub(crate) use deadlocks::{deadlock, deadlock_elsewhere, notes_denied, other_order, self_wait};
pub(crate) use nodes::{
    Outage, cannot_subscribe, connecting_failed, farewell_failed, letter_not_understood,
    mark_refused, master_moved, no_connection_for_subscriptions, no_map, node_not_used,
    sentinel_answers, sentinel_failed, sentinels_disagree, sentinels_silent, server_met,
};

use crate::clock::Timestamp;
use crate::counts::{Counts, count};
use crate::error::{Fault, LossReason};
use crate::key::{Holder, LeaseId};
use crate::monitor::{Event, HoldEnd, Monitor, Outcome, Path};
use crate::owner::Owner;
use crate::text::rounded;

/// Locks: losses, renewals, releases, and the span of an acquisition.
pub(crate) const LOCK: &str = "leasehold::lock";
/// What `check` finds at connect.
pub(crate) const CHECK: &str = "leasehold::check";

/// Emits a line at WARN if `$loud`, else at DEBUG.
macro_rules! warn_if {
    ($loud:expr, $($line:tt)*) => {
        if $loud { tracing::warn!($($line)*) } else { tracing::debug!($($line)*) }
    };
}
use warn_if;

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
    /// Those that have not lasted for 10 s yet, and the others.
    short_waits: Mutex<Burst>,
    long_waits: Mutex<Burst>,
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

    #[cfg(test)]
    pub(crate) fn holds(&self) -> usize {
        self.holds.load(Ordering::Relaxed)
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
        let is_loud = waited >= LOUD_FROM;
        let (more, is_first) =
            next_of(if is_loud { &self.long_waits } else { &self.short_waits }, now);
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
        match (is_first, is_loud) {
            (false, _) => say!(debug),
            (true, false) => say!(info),
            (true, true) => say!(warn),
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
}

/// Returns the summary of the lines before that were only counted, if it is due, and whether this one is among the first.
fn next_of(burst: &Mutex<Burst>, now: Timestamp) -> (Option<u64>, bool) {
    let mut burst = burst.lock();
    (burst.summary(now), burst.admits(now, SLOW_IN_FULL))
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
    tracing::warn!(target: LOCK, "this client's network or time is replaced, which only tests may do");
}

pub(crate) fn force_unlocked(lock: &str, holder: Option<&Holder>, freed: bool) {
    let holder = holder.map(tracing::field::display);
    tracing::warn!(target: LOCK, lock, holder, freed, "force-unlocked");
}

pub(crate) fn lease_put_back(node: &str, lock: &str, lease: &LeaseId) {
    tracing::debug!(target: LOCK, node, lock, %lease, "lease put back");
}

pub(crate) fn finding(finding: &(impl Display + Debug)) {
    tracing::info!(target: CHECK, finding = %finding, "the server's settings can break a lock's promises");
}

const LOSSES_IN_FULL: u32 = 3;
/// Of slow waits, of their ends, and of long holds.
const SLOW_IN_FULL: u32 = 5;
/// From this time on, a wait that goes on is a warning.
const LOUD_FROM: Duration = Duration::from_secs(10);
