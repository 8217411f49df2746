//! Which keys may be on a server when nobody has or wants a lock, and until when. Pure.

use crate::coordination::{GROUP_NAME, QUEUE_NAME, SIGNAL_NAMES, latch_name, shelf};
use crate::kinds::{ELECTION_NAME, RW_NAME, SEMAPHORE_NAME};
use crate::wishes::is_own;

/// What is wrong with a key that ends in so many milliseconds; `None`: never. `locks` are the names of mutexes, and no lease is
/// longer than `longest_ms`.
pub fn wrong_with(key: &str, left_ms: Option<i64>, locks: u64, longest_ms: i64) -> Option<String> {
    let is_lock = |name: &str| {
        let number = name.strip_prefix("lock-").and_then(|number| number.parse::<u64>().ok());
        [RW_NAME, ELECTION_NAME].contains(&name)
            || number.is_some_and(|number| number <= locks || is_own(number as usize))
    };
    let of = |prefix: &str| {
        let name = key.strip_prefix(prefix)?.strip_prefix(":{")?.strip_suffix('}')?;
        (is_lock(name) || [SEMAPHORE_NAME, QUEUE_NAME].contains(&name)).then_some(())
    };
    let reader = format!("{{{RW_NAME}}}:");
    let is_reader = key.starts_with(&reader) && key.contains(":rwlock_timeout:");
    let most = match key {
        // What is there for good: when a server was first met, the list of the masters, and the permits.
        _ if key == SEMAPHORE_NAME || key == format!("{{{SEMAPHORE_NAME}}}:timeout") => {
            return None;
        }
        _ if key == QUEUE_NAME || shelf::keys().iter().any(|of_items| key == of_items) => {
            return None;
        }
        _ if key.strip_prefix(&*latch_name("")).is_some_and(is_number) => return None,
        _ if key == format!("leasehold_signal_group:{{{GROUP_NAME}}}") => i64::MAX,
        _ if SIGNAL_NAMES.iter().any(|name| key == format!("leasehold_signal:{{{name}}}")) => {
            i64::MAX
        }
        _ if key.starts_with("leasehold_mark") || key == "leasehold_masters" => return None,
        _ if is_lock(key) || is_reader => longest_ms,
        _ if of("leasehold_next").is_some() => RESERVED_MS,
        _ if of("leasehold_wait").is_some() => NOTED_MS,
        _ if QUEUES.iter().any(|prefix| of(prefix).is_some()) => longest_ms.max(QUEUED_MS),
        _ if of("leasehold_token").is_some() || of("leasehold_leader").is_some() => i64::MAX,
        _ => return Some(format!("the unknown key {key}")),
    };
    match left_ms {
        None => Some(format!("{key}, which has no end")),
        Some(left) if left > most => Some(format!("{key}, which ends in {left} ms only")),
        Some(_) => None,
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<u64>().is_ok()
}

/// What the queues of those who wait are called, before the name.
pub const QUEUES: [&str; 4] =
    ["leasehold_queue", "leasehold_rw_queue", "leasehold_permit_queue", "leasehold_item_queue"];
/// How long a queue is kept in which nobody new comes to stand.
const QUEUED_MS: i64 = 60_000;
/// How long a wait is noted.
const NOTED_MS: i64 = 5000;
/// How long a reservation lasts.
const RESERVED_MS: i64 = 5000;

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(key: &str, left_ms: Option<i64>) -> Option<String> {
        wrong_with(key, left_ms, 2, 3000)
    }

    #[test]
    fn every_key_is_known_and_has_an_end() {
        let ends = [
            "lock-0",
            "rw",
            "election",
            "leasehold_token:{lock-1}",
            "leasehold_queue:{lock-2}",
            "leasehold_rw_queue:{rw}",
            "leasehold_permit_queue:{semaphore}",
            "leasehold_item_queue:{jobs}",
            "leasehold_signal:{signal-1}",
            "leasehold_signal_group:{group}",
            "leasehold_next:{rw}",
            "leasehold_wait:{lock-0}",
            "leasehold_leader:{election}",
            "{rw}:h0.1:2:rwlock_timeout:1",
        ];
        for key in ends {
            assert_eq!(wrong(key, Some(2000)), None, "{key}");
            assert!(wrong(key, None).is_some_and(|what| what.contains("no end")), "{key}");
        }
        let stays = ["semaphore", "{semaphore}:timeout", "leasehold_mark", "leasehold_masters"];
        let of_items = ["jobs", "leasehold_lent:{jobs}", "leasehold_items:{jobs}", "latch-7"];
        for key in stays.into_iter().chain(of_items) {
            assert_eq!(wrong(key, None), None, "{key}");
        }
        for key in [
            "other",
            "latch-",
            "leasehold_lent:{other}",
            "lock-9",
            "leasehold_token:{other}",
            "{rw}:h0.1:2",
            "leasehold_new:{rw}",
        ] {
            assert!(wrong(key, Some(1)).is_some_and(|what| what.contains("unknown")), "{key}");
        }
    }

    #[test]
    fn what_a_lease_has_ends_with_it() {
        for key in ["lock-0", "rw", "{rw}:h0.1:2:rwlock_timeout:1"] {
            assert_eq!(wrong(key, Some(3000)), None, "{key}");
            assert!(wrong(key, Some(3001)).is_some(), "{key}");
        }
        assert!(wrong("leasehold_next:{rw}", Some(5001)).is_some());
        assert!(wrong("leasehold_wait:{lock-1}", Some(5001)).is_some());
        assert!(wrong("leasehold_queue:{rw}", Some(60_001)).is_some());
        assert_eq!(wrong("leasehold_token:{rw}", Some(1_000_000_000)), None);
    }
}
