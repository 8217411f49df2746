//! The clients that wait for a lock.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::text::{Printable, rounded, shortened};

/// A client that waits for a lock: an entry of the lock's queue on its server.
///
/// A client has one entry for all its tasks that wait for a lock, and one for each that waits through a
/// [`fair_mutex`](crate::Client::fair_mutex). [`LockStatus::waiting`](crate::LockStatus::waiting) and
/// [`Error::Timeout`](crate::Error::Timeout) list the entries in the order in which they get the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Waiter {
    /// The client's name.
    pub client: Arc<str>,
    /// The time of its arrival, by the server's clock.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::time"))]
    pub since: SystemTime,
    /// How long it had waited when the server answered.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::seconds"))]
    pub waited: Duration,
}

impl Waiter {
    /// Both times are the server's.
    pub(crate) fn new(client: &str, since_us: u64, now_us: u64) -> Self {
        Self {
            client: client.into(),
            since: UNIX_EPOCH.checked_add(Duration::from_micros(since_us)).unwrap_or(UNIX_EPOCH),
            // Arrivals are numbered in order, so a number can be ahead of the clock.
            waited: Duration::from_micros(now_us.saturating_sub(since_us)),
        }
    }
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {:?}", Printable(&shortened(&self.client)), rounded(&self.waited))
    }
}

/// The end of a message about a lock: who waits for it, if anybody does.
pub(crate) struct Listed<'a>(pub(crate) &'a [Waiter]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (named, others) = self.0.split_at(self.0.len().min(NAMED));
        for (index, waiter) in named.iter().enumerate() {
            write!(f, "{}{waiter}", if index == 0 { "; waiting: " } else { ", " })?;
        }
        match others.len() {
            0 => Ok(()),
            others => write!(f, " and {others} more"),
        }
    }
}

/// The number of waiters that a message names.
const NAMED: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000_000;

    fn waiter(client: &str, waited_us: u64) -> Waiter {
        Waiter::new(client, NOW - waited_us, NOW)
    }

    #[test]
    fn a_waiter_is_its_client_and_the_time_that_it_waits() {
        let it = waiter("billing-7", 3_214_567);
        assert_eq!(it.client.as_ref(), "billing-7");
        assert_eq!(it.since, UNIX_EPOCH + Duration::from_micros(NOW - 3_214_567));
        assert_eq!(it.to_string(), "billing-7 for 3.21s");
        assert_eq!(Waiter::new("a", NOW + 1, NOW).waited, Duration::ZERO, "ahead of the clock");
        assert_eq!(waiter("odd\n", 0).to_string(), "odd\\n for 0ns");
    }

    #[test]
    fn a_message_names_the_first_three_in_order_and_counts_the_others() {
        let all: Vec<Waiter> =
            ["a", "b", "c", "d", "e"].map(|client| waiter(client, 1_000_000)).into();
        let listed = |count: usize| Listed(&all[..count]).to_string();
        assert_eq!(listed(0), "");
        assert_eq!(listed(1), "; waiting: a for 1s");
        assert_eq!(listed(3), "; waiting: a for 1s, b for 1s, c for 1s");
        assert_eq!(listed(5), "; waiting: a for 1s, b for 1s, c for 1s and 2 more");
    }
}
