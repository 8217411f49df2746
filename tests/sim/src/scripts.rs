//! The library's scripts, as it sends them.

macro_rules! script {
    ($($name:literal),+) => {
        concat!($(include_str!(concat!("../../../lua/", $name, ".lua"))),+)
    };
}

/// Each with its name, and its text with what the library puts before it.
pub const SCRIPTS: [(&str, &str); 9] = [
    ("lock_acquire", script!("queue", "lock_acquire")),
    ("lock_renew", script!("lock_renew")),
    ("lock_release", script!("queue", "lock_release")),
    ("lock_status", script!("queue", "lock_status")),
    ("lock_reclaim", script!("lock_reclaim")),
    ("fence_raise", script!("fence_raise")),
    ("force_unlock", script!("queue", "force_unlock")),
    ("grace_mark", script!("grace_mark")),
    ("preflight", script!("preflight")),
];
