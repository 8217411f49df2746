//! What is traced of servers: connections, subscriptions, marks and Sentinels.

use std::fmt::{Debug, Display};
use std::sync::atomic::Ordering;

use super::{Burst, Events, warn_if};
use crate::clock::Timestamp;
use crate::error::Fault;

/// Servers: connections and subscriptions.
const NODE: &str = "leasehold::node";

impl Events {
    /// Reports that a connection that was in use is lost, which begins an outage, or that there is none from the beginning.
    pub(crate) fn connection_lost(
        &self,
        node: &str,
        reason: &str,
        had_one: bool,
        burst: &mut Burst,
        now: Timestamp,
    ) -> Outage {
        if let Some(more) = burst.summary(now) {
            tracing::warn!(target: NODE, node, more, "more connections lost");
        }
        let loud = burst.admits(now, CONNECTIONS_IN_FULL);
        let holds = self.holds.load(Ordering::Relaxed);
        if had_one {
            warn_if!(loud, target: NODE, node, reason, holds, "connection lost");
        } else {
            warn_if!(loud, target: NODE, node, reason, holds, "not connected yet");
        }
        Outage {
            since: now,
            renewals_failed: self.counts.renewals_failed.load(Ordering::Relaxed),
            locks_lost: self.counts.lost.load(Ordering::Relaxed),
            loud,
            had_one,
        }
    }

    /// Reports the end of an outage.
    pub(crate) fn connected_again(&self, node: &str, outage: &Outage, now: Timestamp) {
        let away_ms = now.since(outage.since).as_millis() as u64;
        let renewals_failed =
            self.counts.renewals_failed.load(Ordering::Relaxed) - outage.renewals_failed;
        let locks_lost = self.counts.lost.load(Ordering::Relaxed) - outage.locks_lost;
        if !outage.had_one {
            tracing::info!(
                target: NODE, node, away_ms, renewals_failed, locks_lost, "connected at last"
            );
        } else if outage.loud {
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

/// A time without a connection, and the counts at its beginning.
pub(crate) struct Outage {
    since: Timestamp,
    renewals_failed: u64,
    locks_lost: u64,
    /// True if its beginning was logged in full.
    loud: bool,
    /// There was a connection before.
    had_one: bool,
}

/// Reports that the server's mark was neither read nor left, so that its grants do not count for longer than necessary.
pub(crate) fn mark_refused(node: &str, fault: &Fault) {
    tracing::debug!(target: NODE, node, %fault, "mark refused");
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

const CONNECTIONS_IN_FULL: u32 = 3;
