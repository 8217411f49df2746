//! A lock as a list shows it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::semaphore_status::SemaphoreStatus;
use super::status::LockStatus;
use crate::key::{Holder, LockKind};
use crate::waiter::Waiter;

/// A lock that somebody holds or waits for, as [`Client::list`](crate::Client::list) and
/// [`Client::contended`](crate::Client::contended) found it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ListedLock {
    /// The lock's name, as the servers know it: with the client's [`name_prefix`](crate::ClientBuilder::name_prefix).
    pub name: Arc<str>,
    /// Its kind.
    pub kind: LockKind,
    /// Several may hold it at once: it is held for reading, or is a semaphore.
    pub shared: bool,
    /// Its holders; none if it is free and somebody is about to get it. For a semaphore the first 1000, in the order
    /// in which their permits end.
    pub holders: Vec<Holder>,
    /// How often it is held: the holder's number of guards as far as the servers know, or the number of readers, or that of
    /// the permits that are out.
    pub count: u32,
    /// The time since which a client of this library has held it, if that is known; see
    /// [`LockStatus::since`](crate::LockStatus::since). `None` for semaphores.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::maybe_time"))]
    pub since: Option<SystemTime>,
    /// The time until it expires unless it is renewed, and until the last of its holds does if there are several. `None` if
    /// it is free, or never expires.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::maybe_seconds"))]
    pub remaining: Option<Duration>,
    /// The highest token reserved for its holds so far, if the servers know it. `None` for semaphores.
    pub last_token: Option<u64>,
    /// The number of clients that wait for it, those of Redisson included.
    pub waiting_clients: u32,
    /// The clients of this library that wait for it, in the order in which they get it. It is empty over several masters, which
    /// share no order.
    pub waiting: Vec<Waiter>,
}

impl ListedLock {
    pub(super) fn of_lock(kind: LockKind, status: LockStatus) -> Self {
        let shared = !status.readers.is_empty();
        let readers = status.readers.len() as u32;
        Self {
            name: status.name,
            kind,
            shared,
            count: if shared { readers } else { status.hold_count },
            holders: if shared { status.readers } else { status.holder.into_iter().collect() },
            since: status.since,
            remaining: status.remaining,
            last_token: status.last_token,
            waiting_clients: status.waiting_clients,
            waiting: status.waiting,
        }
    }

    pub(super) fn of_semaphore(status: SemaphoreStatus) -> Self {
        // Without an end, if one of them has none.
        let ends: Option<Vec<_>> = status.holders.iter().map(|holder| holder.remaining).collect();
        Self {
            name: status.name,
            kind: LockKind::Semaphore,
            shared: true,
            count: status.held,
            remaining: ends.and_then(|ends| ends.into_iter().max()),
            holders: status.holders.into_iter().map(|holder| holder.holder).collect(),
            since: None,
            last_token: None,
            waiting_clients: status.waiting_clients,
            waiting: status.waiting,
        }
    }

    /// Returns true if somebody holds it.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitives::semaphore_status::PermitHolder;

    #[test]
    fn a_semaphore_is_held_until_the_last_of_its_permits_ends() {
        let remaining = |ends: &[Option<u64>]| {
            let holder = |seconds: Option<u64>| PermitHolder {
                holder: Holder::new("a:1"),
                permits: 1,
                remaining: seconds.map(Duration::from_secs),
            };
            let status = SemaphoreStatus {
                name: "s".into(),
                available: 0,
                held: ends.len() as u32,
                holders: ends.iter().copied().map(holder).collect(),
                waiting_clients: 0,
                waiting: Vec::new(),
            };
            ListedLock::of_semaphore(status).remaining
        };
        assert_eq!(remaining(&[Some(5), Some(9)]), Some(Duration::from_secs(9)));
        assert_eq!(remaining(&[Some(5), None]), None, "one of them has none");
        assert_eq!(remaining(&[]), None);
    }
}
