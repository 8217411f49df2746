//! Errors for the tests of a program that uses the library: what it answers to a timeout, a loss or an outage can be
//! tested without a server.
//!
//! A function here returns an error as the library would, with plausible details: its text, its fields and
//! [`is_retryable`](Error::is_retryable) are those of a real one.
//!
//! ```
//! use leasehold::{Error, LossReason, testing};
//!
//! /// The code under test: the status of a response.
//! fn status(error: &Error) -> u16 {
//!     match error {
//!         Error::Timeout { .. } => 423,
//!         error if error.is_retryable() => 503,
//!         Error::Lost { .. } | Error::Closed { .. } => 503,
//!         _ => 500,
//!     }
//! }
//!
//! assert_eq!(status(&testing::timeout("orders:42", "billing-7")), 423);
//! assert_eq!(status(&testing::unavailable("orders:42")), 503);
//! assert_eq!(status(&testing::lost("orders:42", LossReason::NotRenewed)), 503);
//! for error in testing::one_of_each() {
//!     assert!(status(&error) >= 400, "{error}");
//! }
//! ```

use std::sync::Arc;
use std::time::Duration;

use super::{Blocked, ClosedReason, Error, Fault, LossReason, NodeFailure};
use crate::key::{Holder, LockKind};
use crate::owner::Owner;

/// Returns an [`Error::Timeout`]: the call has waited for a second for a lock that another client holds, and that expires in half a
/// minute.
///
/// `holder` is the name of that client, or its whole text, as of [`Holder::named`].
pub fn timeout(lock: impl AsRef<str>, holder: impl AsRef<str>) -> Error {
    let named = Holder::named(&holder);
    let holder = match named.client() {
        Some(_) => named,
        None => Holder::new(format!("{}:{LEASE}", holder.as_ref())),
    };
    Error::Timeout {
        lock: lock.as_ref().into(),
        holder: Some(holder),
        owner: None,
        remaining: Some(Duration::from_secs(30)),
        waited: Duration::from_secs(1),
        waiting: Arc::default(),
    }
}

/// Returns an [`Error::StillWaiting`]: after a second, one count of a latch is left.
pub fn still_waiting(latch: impl AsRef<str>) -> Error {
    Error::StillWaiting {
        kind: LockKind::Latch,
        name: latch.as_ref().into(),
        state: "1 count is left".into(),
        waited: Duration::from_secs(1),
    }
}

/// Returns an [`Error::Lost`].
pub fn lost(lock: impl AsRef<str>, reason: LossReason) -> Error {
    Error::lost(&lock.as_ref().into(), reason)
}

/// Returns an [`Error::Unavailable`]: the only server has not answered for a second.
pub fn unavailable(lock: impl AsRef<str>) -> Error {
    let fault = Fault::NoAnswer(Duration::from_secs(1));
    let failures = [NodeFailure::new(&"redis://127.0.0.1:6379".into(), fault)].into();
    Error::Unavailable { lock: Some(lock.as_ref().into()), failures }
}

/// Returns an [`Error::Closed`].
pub fn closed(reason: ClosedReason) -> Error {
    Error::Closed { reason }
}

/// Returns an [`Error::Denied`]: the server's user has no right to `what`, such as a command.
pub fn denied(what: impl AsRef<str>) -> Error {
    let message =
        format!("NOPERM User locks has no permissions to run the '{}' command", what.as_ref());
    Error::Denied { lock: None, what: what.as_ref().into(), message: message.into() }
}

/// Returns an [`Error::Deadlock`]: the caller holds the lock `held` and waits for `lock`, whose holder waits for `held`.
pub fn deadlock(lock: impl AsRef<str>, held: impl AsRef<str>) -> Error {
    let (lock, held): (Arc<str>, Arc<str>) = (lock.as_ref().into(), held.as_ref().into());
    let part = |holds: &Arc<str>, waits_for: &Arc<str>| Blocked {
        owner: Owner::new(),
        client: "billing-7".into(),
        holds: holds.clone(),
        token: Some(1),
        waits_for: waits_for.clone(),
    };
    let cycle = [part(&held, &lock), part(&lock, &held)].into();
    Error::Deadlock { lock, cycle }
}

/// Returns an error of each kind that this version of the library has, for a test that each of them is answered.
pub fn one_of_each() -> Vec<Error> {
    let lock: Arc<str> = "orders:42".into();
    vec![
        timeout(&lock, "billing-7"),
        still_waiting("ready"),
        lost(&lock, LossReason::NotRenewed),
        unavailable(&lock),
        Error::InvalidName { name: "".into(), problem: "it is empty".into() },
        Error::config("ttl is 1ms; it must be from 10ms to 2592000s"),
        Error::SingleServerOnly {
            kind: LockKind::FairMutex,
            why: "independent servers share no order of arrival".into(),
        },
        Error::WrongType { lock: lock.clone() },
        denied("evalsha"),
        closed(ClosedReason::Shutdown),
        Error::InAsyncContext,
        Error::SelfWait { lock, reads: false },
        Error::QueueFull { queue: "jobs".into(), items: 1000, capacity: 1000 },
        deadlock("orders:42", "customers:7"),
        Error::InvalidPayload {
            queue: "jobs".into(),
            problem: "missing field `to` at line 1 column 2".into(),
        },
        Error::argument("push of 10001: at most 10000 items go at once"),
    ]
}

const LEASE: &str = "01234567-89ab-4def-8123-456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_of_each() {
        // Without a wildcard: a new variant does not compile before it is here.
        let number = |error: &Error| match error {
            Error::Timeout { .. } => 0,
            Error::StillWaiting { .. } => 1,
            Error::Lost { .. } => 2,
            Error::Unavailable { .. } => 3,
            Error::InvalidName { .. } => 4,
            Error::InvalidConfig { .. } => 5,
            Error::SingleServerOnly { .. } => 6,
            Error::WrongType { .. } => 7,
            Error::Denied { .. } => 8,
            Error::Closed { .. } => 9,
            Error::InAsyncContext => 10,
            Error::SelfWait { .. } => 11,
            Error::QueueFull { .. } => 12,
            Error::Deadlock { .. } => 13,
            Error::InvalidPayload { .. } => 14,
            Error::InvalidArgument { .. } => 15,
        };
        let numbers: Vec<usize> = one_of_each().iter().map(number).collect();
        assert_eq!(numbers, Vec::from_iter(0..16));
    }

    #[test]
    fn they_read_like_real_ones() {
        assert_eq!(
            timeout("orders:42", "billing-7").to_string(),
            "timed out after 1s waiting for \"orders:42\": held by billing-7:01234567; it expires in 30s unless renewed"
        );
        let whole = format!("web-1:{LEASE}");
        assert_eq!(timeout("n", &whole).holder(), Some(&Holder::named(&whole)));
        assert_eq!(
            unavailable("n").to_string(),
            "no usable answer from the servers about \"n\": redis://127.0.0.1:6379: no answer within 1s"
        );
        assert!(unavailable("n").is_retryable() && !lost("n", LossReason::Gone).is_retryable());
        let error = deadlock("orders:42", "customers:7");
        let text = error.to_string();
        assert!(
            text.ends_with("held by the caller: release \"customers:7\", and begin again"),
            "{text}"
        );
        let Error::Deadlock { cycle, .. } = &error else { panic!("{error:?}") };
        assert_eq!((&*cycle[0].holds, &*cycle[0].waits_for), ("customers:7", "orders:42"));
    }
}
