//! What is traced of callers who wait for themselves or for each other, or who may come to that.

use std::fmt::Display;

use super::LOCK;
use crate::error::{Error, Fault};
use crate::owner::Owner;

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
