//! The way back: from keys and channels that a server lists to the names of locks.

use std::fmt;

use super::{
    CHANNEL_PREFIX, PERMIT_CHANNEL_PREFIX, PERMIT_QUEUE_PREFIX, QUEUE_PREFIX, RW_CHANNEL_PREFIX,
    RW_QUEUE_PREFIX,
};

/// The kind of a lock, and of what else a [client](crate::Client) has handles for.
///
/// [`Client::list`](crate::Client::list) finds mutexes, read-write locks and semaphores; [errors](crate::Error) tell of the others,
/// too. Its text is what it is called: `mutex`, for example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LockKind {
    /// A [mutex](crate::Client::mutex), fair or not, or an [election](crate::Client::election). Also an `RLock` of Redisson.
    Mutex,
    /// A [read-write lock](crate::Client::rw_lock).
    RwLock,
    /// A [semaphore](crate::Client::semaphore).
    Semaphore,
    /// A [fair mutex](crate::Client::fair_mutex), where it matters that it is fair. On the servers, and in a list, it is a mutex.
    FairMutex,
    /// A [latch](crate::Client::latch).
    Latch,
    /// A [signal](crate::Client::signal).
    Signal,
    /// A [group of signals](crate::Client::signal_group).
    SignalGroup,
    /// A [queue](crate::Client::queue).
    Queue,
    /// An [election](crate::Client::election), where it matters that it is one. On the servers, and in a list, it is a mutex.
    Election,
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mutex => "mutex",
            Self::RwLock => "read-write lock",
            Self::Semaphore => "semaphore",
            Self::FairMutex => "fair mutex",
            Self::Latch => "latch",
            Self::Signal => "signal",
            Self::SignalGroup => "group of signals",
            Self::Queue => "queue",
            Self::Election => "election",
        })
    }
}

/// The patterns of the channels on which those listen who wait for locks, as far as they stand in no queue.
pub(crate) const WAITED_CHANNELS: [&str; 3] =
    ["redisson_lock__channel:*", "redisson_rwlock:*", "redisson_sc:*"];
/// The pattern of the queues of those who wait for locks. It fits those for items, too.
pub(crate) const QUEUES: &str = "leasehold_*queue:*";

/// Returns the pattern of keys that begin with `prefix`.
pub(crate) fn pattern_of_locks(prefix: &str) -> String {
    format!("{}*", literally(prefix))
}

/// Returns a pattern that the keys of the permits fit, of all semaphores whose names begin with `prefix`.
pub(crate) fn pattern_of_permits(prefix: &str) -> String {
    // There may be a brace before the name.
    format!("*{}*{PERMITS}", literally(prefix))
}

/// Returns the pattern that nothing but `text` fits.
fn literally(text: &str) -> String {
    let escaped = |it: char| if "*?[]\\".contains(it) { vec!['\\', it] } else { vec![it] };
    text.chars().flat_map(escaped).collect()
}

/// Returns the names of the semaphores whose permits a key may hold.
pub(crate) fn of_permits_key(key: &str) -> Vec<&str> {
    key.strip_suffix(PERMITS).map(names_in_slot).unwrap_or_default()
}

/// Returns the lock of a queue.
pub(crate) fn of_queue_key(key: &str) -> Option<(LockKind, &str)> {
    let kinds = [
        (QUEUE_PREFIX, LockKind::Mutex),
        (RW_QUEUE_PREFIX, LockKind::RwLock),
        (PERMIT_QUEUE_PREFIX, LockKind::Semaphore),
    ];
    kinds.into_iter().find_map(|(prefix, kind)| {
        let rest = key.strip_prefix(prefix)?.strip_prefix(':')?;
        let name = match rest.strip_prefix(':') {
            Some(name) if name.contains('{') => name,
            Some(_) => return None,
            None => in_braces(rest)?,
        };
        Some((kind, name))
    })
}

/// Returns the locks whose releases may be told on a channel.
pub(crate) fn of_channel(channel: &str) -> Vec<(LockKind, &str)> {
    let kinds = [
        (CHANNEL_PREFIX, LockKind::Mutex),
        (RW_CHANNEL_PREFIX, LockKind::RwLock),
        (PERMIT_CHANNEL_PREFIX, LockKind::Semaphore),
    ];
    let found = kinds.into_iter().find_map(|(prefix, kind)| {
        let rest = channel.strip_prefix(prefix)?.strip_prefix(':')?;
        Some(names_in_slot(rest).into_iter().map(|name| (kind, name)).collect())
    });
    found.unwrap_or_default()
}

/// `n` and `{n}` share what is called `{n}`; other names with braces have it to themselves.
fn names_in_slot(text: &str) -> Vec<&str> {
    let whole = text.contains('{').then_some(text);
    in_braces(text).into_iter().chain(whole).collect()
}

fn in_braces(text: &str) -> Option<&str> {
    let name = text.strip_prefix('{')?.strip_suffix('}')?;
    (!name.is_empty() && !name.contains('{')).then_some(name)
}

/// The end of a key that holds permits.
const PERMITS: &str = ":timeout";

#[cfg(test)]
mod tests {
    use super::super::{
        channel, item_keys, permit_channel, permit_queue_key, permits_key, queue_key, rw_channel,
        rw_queue_key,
    };
    use super::*;

    const NAMES: [&str; 7] = ["n", "{n}", "a:{b}:c", "a}b", "{a}b}", "n:timeout", "a:{b}:timeout"];

    #[test]
    fn the_way_to_a_key_and_back_leads_to_the_same_name() {
        for name in NAMES {
            assert_eq!(of_queue_key(&queue_key(name)), Some((LockKind::Mutex, name)));
            assert_eq!(of_queue_key(&rw_queue_key(name)), Some((LockKind::RwLock, name)));
            assert_eq!(of_queue_key(&permit_queue_key(name)), Some((LockKind::Semaphore, name)));
            assert!(of_permits_key(&permits_key(name)).contains(&name), "{name}");
            let of = |channel: &str, kind| of_channel(channel).contains(&(kind, name));
            assert!(of(&channel(name), LockKind::Mutex), "{name}");
            assert!(of(&rw_channel(name), LockKind::RwLock), "{name}");
            assert!(of(&permit_channel(name), LockKind::Semaphore), "{name}");
        }
        assert_eq!(of_permits_key("{n}:timeout"), ["n", "{n}"], "they share it");
        assert_eq!(of_permits_key("a:{b}:timeout"), ["a:{b}"]);
    }

    #[test]
    fn what_belongs_to_no_lock_leads_nowhere() {
        let [_, _, items, ..] = item_keys(&"n".into());
        for key in [&*items, "leasehold_queue", "leasehold_queue:n", "leasehold_queue::n", "x{n}"] {
            assert_eq!(of_queue_key(key), None, "{key}");
        }
        assert!(
            ["timeout", ":timeout", "n:timeout", "{}:timeout2"]
                .into_iter()
                .all(|key| { of_permits_key(key).is_empty() })
        );
        assert!(
            ["redisson_lock__channel", "redisson_sc", "redisson_lock__channel:n", "n"]
                .into_iter()
                .all(|channel| of_channel(channel).is_empty())
        );
    }

    #[test]
    fn a_pattern_takes_a_prefix_literally() {
        assert_eq!(pattern_of_locks(""), "*");
        assert_eq!(pattern_of_locks("orders:"), "orders:*");
        assert_eq!(pattern_of_locks(r"a*b?[c]\"), r"a\*b\?\[c\]\\*");
        assert_eq!(pattern_of_permits("a*"), r"*a\**:timeout");
    }
}
