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

/// Returns the reason why `name` cannot name a lock.
pub(crate) fn lock_name_problem(name: &str) -> Option<&'static str> {
    let begins_with =
        |prefix: &&str| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(':'));
    if name.is_empty() {
        Some("it is empty")
    } else if name.len() > 4096 {
        Some("it is longer than 4096 bytes")
    } else if [TOKEN_PREFIX, REDISSON_TOKEN_PREFIX].iter().any(begins_with) {
        Some("it is the key of another lock's fencing counter")
    } else if [QUEUE_PREFIX, PERMIT_QUEUE_PREFIX, RW_QUEUE_PREFIX].iter().any(begins_with) {
        Some("it is the key of another lock's queue")
    } else if begins_with(&NEXT_PREFIX) {
        Some("it is the key of who gets another lock next")
    } else if begins_with(&NOTES_PREFIX) {
        Some("it is the key of what the holder of another lock waits for")
    } else if begins_with(&LEADER_PREFIX) {
        Some("it is the key of what a leader says")
    } else if [LENT_PREFIX, ITEMS_PREFIX, DEAD_PREFIX, ITEM_QUEUE_PREFIX].iter().any(begins_with) {
        Some("it is a key of another queue of items")
    } else if [SIGNAL_PREFIX, GROUP_PREFIX].iter().any(begins_with) {
        Some("it is the key of a signal")
    } else if begins_with(&WITNESS_PREFIX) {
        Some("it is a key that the client overwrites")
    } else if name == MARK || begins_with(&MARK) {
        Some("it is the key of a server's mark")
    } else if name == MASTERS || begins_with(&MASTERS) {
        Some("it is the key of the list of the masters")
    } else {
        None
    }
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
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_lock_share_its_slot() {
        assert_eq!(&*token_key("n", false), "leasehold_token:{n}");
        assert_eq!(&*token_key("n", true), "redisson_lock_token:{n}");
        assert_eq!(&*channel("n"), "redisson_lock__channel:{n}");
        assert_eq!(&*channel("a:{b}:c"), "redisson_lock__channel:a:{b}:c");
        assert!(channel("n").starts_with(ALL_CHANNELS.trim_end_matches('*')));
        assert_eq!(&*queue_key("n"), "leasehold_queue:{n}");
        assert_eq!(&*queue_key("a:{b}:c"), "leasehold_queue::a:{b}:c");
        assert_eq!(&*leader_key("n"), "leasehold_leader:{n}");
        assert_eq!(&*leader_key("{n}"), "leasehold_leader::{n}");
        assert_eq!(&*notes_key("n"), "leasehold_wait:{n}");
        assert_eq!(&*notes_key("{n}"), "leasehold_wait::{n}");
        assert_eq!(&*leader_channel("{n}"), "leasehold_leader__channel:{n}");
        assert_ne!(queue_key("n"), queue_key("{n}"), "no two locks share a queue");
        assert_eq!(&*permit_queue_key("n"), "leasehold_permit_queue:{n}");
        assert_eq!(&*permits_key("n"), "{n}:timeout");
        assert_eq!(&*permits_key("a:{b}:c"), "a:{b}:c:timeout");
        assert_eq!(&*permit_channel("n"), "redisson_sc:{n}");
        assert_eq!(&*masters_key(""), "leasehold_masters");
        assert_eq!(&*masters_key("shop:"), "leasehold_masters:{shop:}");
        let items = |name: &str| item_keys(&name.into()).map(|key| key.to_string());
        let of_n = ["n", "leasehold_lent:{n}", "leasehold_item_queue:{n}", "leasehold_items:{n}"];
        assert_eq!(items("n")[..4], of_n);
        assert_eq!(items("a:{b}")[4], "leasehold_dead::a:{b}");
        assert_eq!(&*latch_channel("n"), "redisson_countdownlatch__channel__{n}");
        assert_eq!(&*latch_channel("{a}b"), "redisson_countdownlatch__channel__{{a}b}");
    }

    #[test]
    fn a_mailbox_is_that_of_one_client_object() {
        let one = mailbox("billing-7", "0000000000000abc");
        assert_eq!(&*one, "leasehold_mailbox:billing-7:0000000000000abc");
        assert_ne!(one, mailbox("billing-7", "0000000000000abd"));
    }

    #[test]
    fn names_that_cannot_be_locks_are_refused() {
        let too_long = "x".repeat(4097);
        let derived = [
            "leasehold_token:{n}",
            "redisson_lock_token:{n}",
            "leasehold_queue:{n}",
            "leasehold_next:{n}",
            "leasehold_wait:{n}",
            "leasehold_permit_queue:{n}",
            "leasehold_leader:{n}",
            "leasehold_mark",
            "leasehold_mark:{n}",
            "leasehold_masters",
            "leasehold_masters:{n}",
            "leasehold_rw_queue:{n}",
            "leasehold_lent:{n}",
            "leasehold_items:{n}",
            "leasehold_dead:{n}",
            "leasehold_item_queue:{n}",
            "leasehold_signal:{n}",
            "leasehold_signal_group::a{n}",
        ];
        for name in ["", &too_long].into_iter().chain(derived) {
            assert!(lock_name_problem(name).is_some(), "{name:?} was accepted");
        }
        for name in ["n", "leasehold_tokens", "leasehold_queue", &too_long[1..], "ä\0\r\n"] {
            assert!(lock_name_problem(name).is_none(), "{name:?} was refused");
        }
    }

    #[test]
    fn a_prefix_is_short_and_has_no_braces() {
        let longest = "x".repeat(256);
        for prefix in ["", "billing:", &longest] {
            assert_eq!(name_prefix_problem(prefix), None, "{prefix:?}");
        }
        for prefix in ["{billing}", "a{", "a}", &format!("{longest}x")] {
            assert!(name_prefix_problem(prefix).is_some(), "{prefix:?} was accepted");
        }
    }

    #[test]
    fn the_default_client_name_is_a_valid_one() {
        let name = default_client_name();
        assert_eq!(client_name_problem(&name), None);
        assert!(name.ends_with(&format!("-{}", std::process::id())), "{name}");
        assert_eq!(*name, format!("{}-{}", as_client_name(&host_name()), std::process::id()));
        #[cfg(unix)]
        assert_eq!(host_name(), rustix::system::uname().nodename().to_string_lossy());
        assert_eq!(as_client_name("a.b_C-1 ä"), "a.b_C-1--");
        assert_eq!(as_client_name(&"x".repeat(70)), "x".repeat(48));
        assert_eq!(as_client_name(""), "client");
    }

    #[test]
    fn names_that_cannot_be_clients_are_refused() {
        let longest = "x".repeat(64);
        for name in ["a", "aZ0._-", &longest] {
            assert_eq!(client_name_problem(name), None, "{name:?}");
            assert_eq!(masters_name_problem(name), None, "{name:?}");
        }
        for name in ["", "a b", "a:b", "ä", "a\n", &format!("{longest}x")] {
            assert!(client_name_problem(name).is_some(), "{name:?} was accepted");
            assert!(masters_name_problem(name).is_some(), "{name:?} was accepted");
        }
    }
}
