//! What contenders contend for: locks of all kinds.

/// The mutexes. The first is taken most; several locks at once are some of the others.
pub const MUTEXES: [&str; 4] = ["n0", "n1", "n2", "n3"];
/// Mutexes of which some of one group are taken one under the other, in any order.
pub const TANGLED: [[&str; 3]; 4] =
    [["n0", "n1", "n2"], ["n3", "n4", "n5"], ["n6", "n7", "n8"], ["n9", "n10", "n11"]];
pub const RW_LOCK: &str = "rw";
pub const SEMAPHORE: &str = "permits";
/// A semaphore that has more and fewer permits in the course of time.
pub const SEATS: &str = "seats";
pub const SEMAPHORES: [&str; 2] = [SEMAPHORE, SEATS];
pub const ELECTION: &str = "leader";
/// How many permits a semaphore has at first.
pub const PERMITS: u32 = 3;
pub const QUEUE: &str = "jobs";
/// The names of all latches begin so.
pub const LATCHES: &str = "latch:";
pub const SIGNAL: &str = "bell";
/// What victims are looked for at.
pub const ALL: [&str; 8] = ["n0", RW_LOCK, SEMAPHORE, "n1", ELECTION, QUEUE, "n2", "n3"];

/// The item that a payload is.
pub fn item_of(payload: &[u8]) -> String {
    let text = String::from_utf8_lossy(payload);
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// The latch of which the work on an item makes a count.
pub fn latch_of(item: &str) -> Option<&str> {
    item.split_once('@').map(|(_, latch)| latch).filter(|latch| !latch.is_empty())
}

/// The keys of a queue: what is lent, what that is, and what is dead.
pub(crate) fn keys_of_queue() -> [String; 3] {
    ["lent", "items", "dead"].map(|part| format!("leasehold_{part}:{{{QUEUE}}}"))
}

/// A mutex that is kept for long. All of these are in the slot of the first mutex.
pub fn kept(number: u64) -> String {
    format!("{{{}}}:kept:{number}", MUTEXES[0])
}

/// How many of those there are: so many that there are always some that nobody has.
pub const KEPT: u64 = 36;

/// Whether its kind works on one server only.
pub fn is_of_one_server(lock: &str) -> bool {
    SEMAPHORES.contains(&lock) || lock == QUEUE
}

/// The key of the ends of a semaphore's permits that are out.
pub(crate) fn ends_of_permits(semaphore: &str) -> String {
    format!("{{{semaphore}}}:timeout")
}

/// Whether a key has what a leader said.
pub(crate) fn is_said_by_leader(key: &str) -> bool {
    key.starts_with("leasehold_leader:")
}

/// Whether a key stays on a server when nobody holds anything: counters, marks, the list of the masters, what a leader
/// has said, semaphores, items, latches that nobody opened, and signals.
pub(crate) fn stays(key: &str) -> bool {
    let prefixes =
        ["leasehold_token:", "leasehold_mark", "leasehold_masters", "leasehold_signal:", LATCHES];
    prefixes.iter().any(|prefix| key.starts_with(prefix))
        || is_said_by_leader(key)
        || key == QUEUE
        || key == format!("leasehold_item_queue:{{{QUEUE}}}")
        || keys_of_queue().iter().any(|its| key == its)
        || SEMAPHORES.iter().any(|name| key == *name || key == ends_of_permits(name))
}
