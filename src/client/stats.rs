//! What a client reports about itself.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use crate::counts::Histogram;
use crate::engine::gate::{Engine, Hold};
use crate::key::Holder;
use crate::node::Node;
use crate::owner::Owner;

/// A snapshot of what a client is busy with, and of what it has done so far; see [`Client::stats`](crate::Client::stats).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// The locks that this client is busy with: it holds them, waits for them, or has just released them.
    pub locks: usize,
    /// The acquisitions that wait for another task of this client, or for another holder.
    pub waiters: usize,
    /// The waits that go on now for a latch, a signal, a group of signals, or the return of a semaphore's permits.
    pub open_waits: usize,
    /// The channels to which this client listens, on the node where they are most: those of latches, signals, semaphores and
    /// elections that are waited for or observed, and those of locks. On one server it listens for a lock only while it is the
    /// first in the queue behind a holder of another library.
    pub subscriptions: usize,
    /// The running tasks: one for an idle client, another for a cluster or for Sentinels, two for each node
    /// (three in a cluster with sharded channels), one for each lock that is being waited for, and one for each hold whose
    /// guard was asked whether it [is wanted](crate::Guard::is_wanted).
    pub tasks: usize,
    /// The releases that no server has confirmed yet. Each is sent again until one does, or until its lease has ended anyway.
    pub releases_pending: usize,
    /// The connections made so far.
    pub connections_made: u64,
    /// The acquisitions so far that needed a second round trip, because several masters had different token counters.
    pub second_round_trips: u64,
    /// The locks so far that another holder's release passed to this client by a message, without a request of its own.
    pub grants_by_message: u64,
    /// The grants by message so far that this client confirmed with a request before it used them, because their end could
    /// not be computed, or was too near, or they might have been ended.
    pub grants_confirmed: u64,
    /// The grants by message so far that this client gave back, because nobody waited for them any more.
    pub grants_given_back: u64,
    /// The leases so far that this client put back on the server that took over, or that restarted, and had lost them.
    pub reclaimed: u64,
    /// The locks so far that were lost with [`LossReason::Failover`](crate::LossReason::Failover).
    pub lost_in_failovers: u64,
    /// The waiters so far that were gone when this client released a lock to the next one, and were passed over.
    pub dead_waiters_passed: u64,
    /// The holds so far: an owner got a lock that it did not have. Nested acquisitions are not counted.
    pub acquired: u64,
    /// The waits so far for a lock that was not free, whatever came of them.
    pub contended: u64,
    /// The acquisitions so far that ended because others had the lock: attempts, and waits whose time was over.
    ///
    /// Those of candidates of elections and of workers at a queue, which wait for as long as they like, are not in this
    /// count, in the following two, or in `acquire_times`. Of several locks that are taken together, each attempt counts.
    pub timed_out: u64,
    /// The acquisitions so far whose future was dropped.
    pub cancelled: u64,
    /// The acquisitions so far that ended with another error, mostly [`Error::Unavailable`](crate::Error::Unavailable).
    pub failed: u64,
    /// The locks so far that were lost, in whatever way but [`LossReason::Shutdown`](crate::LossReason::Shutdown).
    pub lost: u64,
    /// The renewals so far that were confirmed.
    pub renewals: u64,
    /// The renewals so far that had no answer that counts; each was repeated.
    pub renewals_failed: u64,
    /// The requests so far that are no acquisitions, renewals or releases: for a status, a forced unlock, about a latch or a
    /// signal, or a push to a queue.
    pub requests: u64,
    /// Those of them that ended with an error.
    pub requests_failed: u64,
    /// How long it took to get the locks that were `acquired`.
    pub acquire_times: Histogram,
    /// How long they were held, until the last guard went.
    pub hold_times: Histogram,
    /// The least part of its time that is left now to any lease that is renewed: 1 at first, about 2/3 just before a renewal, 0
    /// at the end. `None` if there is no such lease. If it goes below 0.4, renewals are late.
    pub least_remaining: Option<f64>,
}

impl Stats {
    pub(super) fn of(engine: &Engine) -> Self {
        let gates = engine.gates();
        let nodes = engine.fleet.nodes();
        let (queue, counts) = (&engine.events.queue, &engine.events.counts);
        let now = engine.clock.now();
        let parts = gates.iter().flat_map(|gate| gate.current_holds());
        let parts = parts.filter_map(|hold| hold.lease.part_left(now));
        let least_remaining = parts.reduce(f64::min);
        Stats {
            locks: gates.len(),
            waiters: gates.iter().map(|gate| gate.waiters()).sum(),
            open_waits: counts.open_waits.load(Relaxed),
            subscriptions: nodes.iter().map(Node::subscriptions).max().unwrap_or(0),
            tasks: engine.tasks.len(),
            releases_pending: nodes.iter().map(Node::pending_releases).sum(),
            connections_made: engine.fleet.connections_made(),
            second_round_trips: engine.raises(),
            grants_by_message: queue.grants_by_message.load(Relaxed),
            grants_confirmed: queue.grants_confirmed.load(Relaxed),
            grants_given_back: queue.grants_given_back.load(Relaxed),
            reclaimed: engine.events.locks_reclaimed.load(Relaxed),
            lost_in_failovers: engine.events.locks_lost_in_failovers.load(Relaxed),
            dead_waiters_passed: queue.dead_waiters_passed.load(Relaxed),
            acquired: counts.acquired.load(Relaxed),
            contended: counts.contended.load(Relaxed),
            timed_out: counts.timed_out.load(Relaxed),
            cancelled: counts.cancelled.load(Relaxed),
            failed: counts.failed.load(Relaxed),
            lost: counts.lost.load(Relaxed),
            renewals: counts.renewals.load(Relaxed),
            renewals_failed: counts.renewals_failed.load(Relaxed),
            requests: counts.requests.load(Relaxed),
            requests_failed: counts.requests_failed.load(Relaxed),
            acquire_times: counts.acquire_times.histogram(),
            hold_times: counts.hold_times.histogram(),
            least_remaining,
        }
    }
}

/// A lock, permits or an item that this client holds; see [`Client::holds`](crate::Client::holds).
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HeldLock {
    /// The name of the lock, the semaphore or the queue.
    pub name: Arc<str>,
    /// The owner that holds it.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::text"))]
    pub owner: Owner,
    /// The holder's name on the servers.
    pub holder: Holder,
    /// Its fencing token. `None` for permits of a semaphore and for a delivery of a queue, which have none.
    pub token: Option<u64>,
    /// The number of guards that share the hold.
    pub hold_count: u32,
    /// The time since its acquisition.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::seconds"))]
    pub held_for: Duration,
    /// The time of its acquisition, by this host's clock.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::time"))]
    pub since: SystemTime,
    /// The line of code that took it: the call that acquired, not a nested one.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::text"))]
    pub taken_at: &'static Location<'static>,
    /// The time for which it is certainly held if nothing renews it.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::seconds"))]
    pub remaining: Duration,
}

impl HeldLock {
    /// Lists the locks that a client holds, oldest first.
    pub(super) fn all(engine: &Engine) -> Vec<Self> {
        let mut holds: Vec<Self> = engine
            .gates()
            .iter()
            .flat_map(|gate| gate.current_holds())
            .filter_map(|hold| Self::of(&hold))
            .collect();
        holds.sort_by_key(|hold| std::cmp::Reverse(hold.held_for));
        holds
    }

    /// Returns `None` if the hold is lost.
    fn of(hold: &Hold) -> Option<Self> {
        let now = hold.gate.engine.clock.now();
        // This only reads the lease. If it recorded a loss, a subscriber that calls `holds` would suppress its log line.
        let remaining = hold.lease.remaining(now);
        if remaining.is_zero() {
            return None;
        }
        let held_for = now.since(hold.since);
        Some(Self {
            name: hold.gate.name.clone(),
            owner: hold.owner.clone(),
            holder: Holder::new(hold.lease.id().0.clone()),
            token: hold.fencing_token(),
            hold_count: hold.depth(),
            held_for,
            since: SystemTime::now() - held_for,
            taken_at: hold.taken_at,
            remaining,
        })
    }
}
