//! What a test server needs to take a lock from its holder.

use crate::key::{
    channel, leader_channel, leader_key, queue_key, rw_channel, rw_queue_key, token_key,
};
use crate::script::{FORCE_UNLOCK, RW_FORCE_UNLOCK};

/// Returns the script that frees a lock of this name whoever holds it, with its keys and arguments: of a read-write lock, or of
/// a mutex or an election.
pub fn forced_unlock(name: &str, is_rw: bool) -> (&'static str, Vec<String>, Vec<String>) {
    let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let token = token_key(name, false);
    if is_rw {
        let keys = text(&[name, &token, &rw_queue_key(name)]);
        return (RW_FORCE_UNLOCK.body, keys, text(&["", "PUBLISH", &rw_channel(name), "", "0"]));
    }
    let keys = text(&[name, &token, &queue_key(name)]);
    let (leader, observers) = (leader_key(name), leader_channel(name));
    let args = text(&["", "PUBLISH", &channel(name), "", "0", &leader, &observers]);
    (FORCE_UNLOCK.body, keys, args)
}

/// Returns the key of the ends of a semaphore's permits.
pub fn permits_key(name: &str) -> String {
    crate::key::permits_key(name).to_string()
}
