//! What contenders contend for: locks of all kinds.

/// The mutexes. The first is taken most; several locks at once are some of the others.
pub const MUTEXES: [&str; 4] = ["n0", "n1", "n2", "n3"];
pub const RW_LOCK: &str = "rw";
pub const SEMAPHORE: &str = "permits";
/// A semaphore that has more and fewer permits in the course of time.
pub const SEATS: &str = "seats";
pub const SEMAPHORES: [&str; 2] = [SEMAPHORE, SEATS];
pub const ELECTION: &str = "leader";
/// How many permits a semaphore has at first.
pub const PERMITS: u32 = 3;
pub const ALL: [&str; 7] = ["n0", RW_LOCK, SEMAPHORE, "n1", ELECTION, "n2", "n3"];

/// A mutex that is kept for long. All of these are in the slot of the first mutex.
pub fn kept(number: u64) -> String {
    format!("{{{}}}:kept:{number}", MUTEXES[0])
}

/// How many of those there are: so many that there are always some that nobody has.
pub const KEPT: u64 = 36;

/// Whether its kind works on one server only.
pub fn is_of_one_server(lock: &str) -> bool {
    SEMAPHORES.contains(&lock)
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
/// has said, and semaphores.
pub(crate) fn stays(key: &str) -> bool {
    let prefixes = ["leasehold_token:", "leasehold_mark", "leasehold_masters"];
    prefixes.iter().any(|prefix| key.starts_with(prefix))
        || is_said_by_leader(key)
        || SEMAPHORES.iter().any(|name| key == *name || key == ends_of_permits(name))
}
