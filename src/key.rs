//! Names: of locks, of the keys and channels that belong to them, of clients, and of leases.

mod found;
mod holder;

use std::sync::Arc;

use smallvec::SmallVec;

pub use found::LockKind;
pub(crate) use found::{
    QUEUES, WAITED_CHANNELS, of_channel, of_permits_key, of_queue_key, pattern_of_locks,
    pattern_of_permits,
};
pub use holder::Holder;
pub(crate) use holder::LeaseId;

const TOKEN_PREFIX: &str = "leasehold_token";
const REDISSON_TOKEN_PREFIX: &str = "redisson_lock_token";
const CHANNEL_PREFIX: &str = "redisson_lock__channel";
const PERMIT_CHANNEL_PREFIX: &str = "redisson_sc";
const PERMIT_QUEUE_PREFIX: &str = "leasehold_permit_queue";
const QUEUE_PREFIX: &str = "leasehold_queue";
const RW_CHANNEL_PREFIX: &str = "redisson_rwlock";
const RW_QUEUE_PREFIX: &str = "leasehold_rw_queue";
const NEXT_PREFIX: &str = "leasehold_next";
const MAILBOX_PREFIX: &str = "leasehold_mailbox";
const LEADER_PREFIX: &str = "leasehold_leader";
const LEADER_CHANNEL_PREFIX: &str = "leasehold_leader__channel";
const LENT_PREFIX: &str = "leasehold_lent";
const ITEMS_PREFIX: &str = "leasehold_items";
const DEAD_PREFIX: &str = "leasehold_dead";
const ITEM_QUEUE_PREFIX: &str = "leasehold_item_queue";
const ITEM_CHANNEL_PREFIX: &str = "leasehold_items__channel";
const LATCH_CHANNEL_PREFIX: &str = "redisson_countdownlatch__channel__";
const SIGNAL_PREFIX: &str = "leasehold_signal";
const SIGNAL_CHANNEL_PREFIX: &str = "leasehold_signal__channel";
const GROUP_PREFIX: &str = "leasehold_signal_group";
const GROUP_CHANNEL_PREFIX: &str = "leasehold_signal_group__channel";
const NOTES_PREFIX: &str = "leasehold_wait";
const WITNESS_PREFIX: &str = "leasehold_synced";
const MARK: &str = "leasehold_mark";
const MASTERS: &str = "leasehold_masters";

/// Returns the key of a lock's fencing counter; with `redisson`, that of the counter of Redisson's `RFencedLock`.
pub(crate) fn token_key(name: &str, redisson: bool) -> Arc<str> {
    let prefix = if redisson { REDISSON_TOKEN_PREFIX } else { TOKEN_PREFIX };
    prefixed(prefix, name)
}

/// Returns the channel on which a lock's releases are published, which is Redisson's.
pub(crate) fn channel(name: &str) -> Arc<str> {
    prefixed(CHANNEL_PREFIX, name)
}

/// The channels of all locks, as a pattern.
pub(crate) const ALL_CHANNELS: &str = "redisson_lock__channel:*";

/// Returns the channel on which a read-write lock's releases are published, which is Redisson's.
pub(crate) fn rw_channel(name: &str) -> Arc<str> {
    prefixed(RW_CHANNEL_PREFIX, name)
}

/// Returns the key of the queue of those who wait for a lock.
///
/// No two locks share a queue, though `n` and `{n}` share a channel and a counter: a grant would go to the wrong lock. Nor do
/// two kinds of lock: their grants write different fields.
pub(crate) fn queue_key(name: &str) -> Arc<str> {
    of_one_lock(QUEUE_PREFIX, name)
}

/// Returns the key of the queue of those who wait for a semaphore's permits. It is not that of a lock of the same name: a
/// lock's release would give the lock to one who waits for permits.
pub(crate) fn permit_queue_key(name: &str) -> Arc<str> {
    of_one_lock(PERMIT_QUEUE_PREFIX, name)
}

/// Returns the key of the queue of those who wait for a read-write lock.
pub(crate) fn rw_queue_key(name: &str) -> Arc<str> {
    of_one_lock(RW_QUEUE_PREFIX, name)
}

/// Returns a key that `n` and `{n}` do not share, in the slot of the lock.
fn of_one_lock(prefix: &str, name: &str) -> Arc<str> {
    if name.contains('{') { joined(&[prefix, "::", name]) } else { prefixed(prefix, name) }
}

/// Returns the channel on which a semaphore's permits are announced, which is Redisson's.
pub(crate) fn permit_channel(name: &str) -> Arc<str> {
    prefixed(PERMIT_CHANNEL_PREFIX, name)
}

/// Returns the key of the ends of a semaphore's permits, which is that of Redisson's RPermitExpirableSemaphore.
pub(crate) fn permits_key(name: &str) -> Arc<str> {
    if name.contains('{') {
        format!("{name}:timeout").into()
    } else {
        format!("{{{name}}}:timeout").into()
    }
}

/// Returns the keys of a queue of items: its list, which is that of Redisson's RQueue, and those of what is lent, of who
/// waits, of the contents, and of what is dead. No two queues share one.
pub(crate) fn item_keys(name: &Arc<str>) -> [Arc<str>; 5] {
    let own = |prefix| of_one_lock(prefix, name);
    let [lent, queue] = [LENT_PREFIX, ITEM_QUEUE_PREFIX].map(own);
    let [contents, dead] = [ITEMS_PREFIX, DEAD_PREFIX].map(own);
    [name.clone(), lent, queue, contents, dead]
}

/// Returns the channel of a queue of items. Nobody writes to it: who waits there is told by its mailbox.
pub(crate) fn item_channel(name: &str) -> Arc<str> {
    prefixed(ITEM_CHANNEL_PREFIX, name)
}

/// Returns the key of what the leader of an election says, whose lock is called `name`. No two elections share it.
pub(crate) fn leader_key(name: &str) -> Arc<str> {
    of_one_lock(LEADER_PREFIX, name)
}

/// Returns the key of the notes of what those wait for who hold a lock. No two locks share it.
pub(crate) fn notes_key(name: &str) -> Arc<str> {
    of_one_lock(NOTES_PREFIX, name)
}

/// Returns the channel on which those who observe an election are told that something has changed.
pub(crate) fn leader_channel(name: &str) -> Arc<str> {
    prefixed(LEADER_CHANNEL_PREFIX, name)
}

/// Returns the channel on which it is told that a latch opens or shuts, which is Redisson's: its braces are always there.
pub(crate) fn latch_channel(name: &str) -> Arc<str> {
    format!("{LATCH_CHANNEL_PREFIX}{{{name}}}").into()
}

/// Returns the key of a signal. No two signals share it.
pub(crate) fn signal_key(name: &str) -> Arc<str> {
    of_one_lock(SIGNAL_PREFIX, name)
}

/// Returns the channel on which it is told that a signal was given.
pub(crate) fn signal_channel(name: &str) -> Arc<str> {
    prefixed(SIGNAL_CHANNEL_PREFIX, name)
}

/// Returns the key of a group of signals. No two groups share it.
pub(crate) fn signal_group_key(name: &str) -> Arc<str> {
    of_one_lock(GROUP_PREFIX, name)
}

/// Returns the channel on which it is told that some signals of a group were given.
pub(crate) fn signal_group_channel(name: &str) -> Arc<str> {
    prefixed(GROUP_CHANNEL_PREFIX, name)
}

/// Returns the channel on which a server writes to one client about its queued requests. `nonce` distinguishes clients
/// of one name.
pub(crate) fn mailbox(client: &str, nonce: &str) -> Arc<str> {
    format!("{MAILBOX_PREFIX}:{client}:{nonce}").into()
}

/// Returns the key of the write that asks a server's replicas how far they are. It lives for a millisecond.
pub(crate) fn witness_key(name: &str) -> Arc<str> {
    prefixed(WITNESS_PREFIX, name)
}

/// Returns the key of a server's mark, which says since when clients have known its present history. In a cluster the key
/// must be in a slot of that server, and `tag` is its hash tag.
pub(crate) fn mark_key(tag: Option<&str>) -> Arc<str> {
    match tag {
        Some(tag) => format!("{MARK}:{{{tag}}}").into(),
        None => MARK.into(),
    }
}

/// Returns the key in which each of several independent masters keeps the list of them, for clients with this `name_prefix`:
/// others have other locks.
pub(crate) fn masters_key(name_prefix: &str) -> Arc<str> {
    if name_prefix.is_empty() { MASTERS.into() } else { prefixed(MASTERS, name_prefix) }
}

/// Follows Redisson's rule: braces keep all keys of a lock in one slot, unless the name contains braces.
fn prefixed(prefix: &str, name: &str) -> Arc<str> {
    if name.contains('{') {
        joined(&[prefix, ":", name])
    } else {
        joined(&[prefix, ":{", name, "}"])
    }
}

/// Returns the parts as one text. It costs one allocation: some keys are made for each call.
fn joined(parts: &[&str]) -> Arc<str> {
    let mut text: SmallVec<[u8; 128]> = SmallVec::new();
    for part in parts {
        text.extend_from_slice(part.as_bytes());
    }
    str::from_utf8(&text).expect("BUG: texts make a text").into()
}

/// What the keys begin with that a name makes, before a colon, and what such a key is. No lock may be called so.
const OF_OTHERS: [(&str, &str); 17] = [
    (TOKEN_PREFIX, "it is the key of another lock's fencing counter"),
    (REDISSON_TOKEN_PREFIX, "it is the key of another lock's fencing counter"),
    (QUEUE_PREFIX, "it is the key of another lock's queue"),
    (PERMIT_QUEUE_PREFIX, "it is the key of another lock's queue"),
    (RW_QUEUE_PREFIX, "it is the key of another lock's queue"),
    (NEXT_PREFIX, "it is the key of who gets another lock next"),
    (NOTES_PREFIX, "it is the key of what the holder of another lock waits for"),
    (LEADER_PREFIX, "it is the key of what a leader says"),
    (LENT_PREFIX, "it is a key of another queue of items"),
    (ITEMS_PREFIX, "it is a key of another queue of items"),
    (DEAD_PREFIX, "it is a key of another queue of items"),
    (ITEM_QUEUE_PREFIX, "it is a key of another queue of items"),
    (SIGNAL_PREFIX, "it is the key of a signal"),
    (GROUP_PREFIX, "it is the key of a signal"),
    (WITNESS_PREFIX, "it is a key that the client overwrites"),
    (MARK, "it is the key of a server's mark"),
    (MASTERS, "it is the key of the list of the masters"),
];

/// Returns what the names begin with that no lock may have.
#[cfg(feature = "__test-seam")]
pub fn prefixes() -> impl Iterator<Item = &'static str> {
    OF_OTHERS.iter().map(|(prefix, _)| *prefix)
}

/// Returns the reason why `name` cannot name a lock.
pub(crate) fn lock_name_problem(name: &str) -> Option<&'static str> {
    match name.len() {
        0 => return Some("it is empty"),
        1..=4096 => {}
        _ => return Some("it is longer than 4096 bytes"),
    }
    // What begins so may be a key that a later version of the library makes.
    let is_ours = name.starts_with("leasehold_");
    let prefix = match name.split_once(':') {
        Some((prefix, _)) => prefix,
        None if is_ours => name,
        None => return None,
    };
    let known = OF_OTHERS.iter().find(|(of_others, _)| *of_others == prefix);
    let is_kept = is_ours.then_some("names that begin with leasehold_ are kept for the library");
    known.map(|(_, what)| *what).or(is_kept)
}

/// Returns the reason why `prefix` cannot be a client's `name_prefix`.
pub(crate) fn name_prefix_problem(prefix: &str) -> Option<&'static str> {
    if prefix.len() > 256 {
        Some("a name_prefix may have at most 256 bytes")
    } else if prefix.contains(['{', '}']) {
        Some("a name_prefix must not contain braces: they would put all locks into one slot")
    } else {
        None
    }
}

/// Returns the reason why `name` cannot be a client's `masters_name`.
pub(crate) fn masters_name_problem(name: &str) -> Option<&'static str> {
    if (1..=64).contains(&name.len()) && name.chars().all(in_client_name) {
        return None;
    }
    Some("a masters_name must be 1 to 64 characters of A-Z, a-z, 0-9, '.', '_' and '-'")
}

/// Returns the reason why `name` cannot name a client.
pub(crate) fn client_name_problem(name: &str) -> Option<&'static str> {
    if (1..=64).contains(&name.len()) && name.chars().all(in_client_name) {
        return None;
    }
    Some("a client's name must be 1 to 64 characters of A-Z, a-z, 0-9, '.', '_' and '-'")
}

/// Returns `host-pid`, in which `-` replaces all characters that a client's name must not contain.
pub(crate) fn default_client_name() -> Arc<str> {
    format!("{}-{}", as_client_name(&host_name()), std::process::id()).into()
}

fn as_client_name(host: &str) -> String {
    let allowed = |c: char| if in_client_name(c) { c } else { '-' };
    let name: String = host.chars().map(allowed).take(48).collect();
    if name.is_empty() { "client".to_owned() } else { name }
}

fn in_client_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-".contains(c)
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Windows names the computer in every process's environment.
#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

#[cfg(test)]
mod tests;
