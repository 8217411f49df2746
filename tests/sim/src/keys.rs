//! Which keys may be on a server when nobody has or wants a lock, and until when. Pure.

use crate::kinds::{ELECTION_NAME, RW_NAME, SEMAPHORE_NAME};

/// What is wrong with a key that ends in so many milliseconds; `None`: never. `locks` are the names of mutexes, and no lease is
/// longer than `longest_ms`.
pub fn wrong_with(key: &str, left_ms: Option<i64>, locks: u64, longest_ms: i64) -> Option<String> {
    let is_lock = |name: &str| {
        let number = name.strip_prefix("lock-").and_then(|number| number.parse::<u64>().ok());
        [RW_NAME, ELECTION_NAME].contains(&name) || number.is_some_and(|number| number <= locks)
    };
    let of = |prefix: &str| {
        let name = key.strip_prefix(prefix)?.strip_prefix(":{")?.strip_suffix('}')?;
        (is_lock(name) || name == SEMAPHORE_NAME).then_some(())
    };
    let reader = format!("{{{RW_NAME}}}:");
    let is_reader = key.starts_with(&reader) && key.contains(":rwlock_timeout:");
    let most = match key {
        // What is there for good: when a server was first met, the list of the masters, and the permits.
        _ if key == SEMAPHORE_NAME || key == format!("{{{SEMAPHORE_NAME}}}:timeout") => {
            return None;
        }
        _ if key.starts_with("leasehold_mark") || key == "leasehold_masters" => return None,
        _ if is_lock(key) || is_reader => longest_ms,
        _ if of("leasehold_next").is_some() => RESERVED_MS,
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

const QUEUES: [&str; 3] = ["leasehold_queue", "leasehold_rw_queue", "leasehold_permit_queue"];
/// How long a queue is kept in which nobody new comes to stand.
const QUEUED_MS: i64 = 60_000;
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
            "leasehold_next:{rw}",
            "leasehold_leader:{election}",
            "{rw}:h0.1:2:rwlock_timeout:1",
        ];
        for key in ends {
            assert_eq!(wrong(key, Some(2000)), None, "{key}");
            assert!(wrong(key, None).is_some_and(|what| what.contains("no end")), "{key}");
        }
        for key in ["semaphore", "{semaphore}:timeout", "leasehold_mark", "leasehold_masters"] {
            assert_eq!(wrong(key, None), None, "{key}");
        }
        for key in
            ["other", "lock-9", "leasehold_token:{other}", "{rw}:h0.1:2", "leasehold_new:{rw}"]
        {
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
        assert!(wrong("leasehold_queue:{rw}", Some(60_001)).is_some());
        assert_eq!(wrong("leasehold_token:{rw}", Some(1_000_000_000)), None);
    }
}
