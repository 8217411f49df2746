//! The library's scripts, as it sends them.

macro_rules! script {
    ($($name:literal),+) => {
        concat!($(include_str!(concat!("../../../lua/", $name, ".lua"))),+)
    };
}

/// Each with its name, and its text with what the library puts before it.
pub const SCRIPTS: [(&str, &str); 22] = [
    ("lock_acquire", script!("queue", "lock_acquire")),
    ("lock_renew", script!("lock_renew")),
    ("lock_release", script!("queue", "lock_release")),
    ("lock_status", script!("queue", "lock_status")),
    ("lock_reclaim", script!("lock_reclaim")),
    ("fence_raise", script!("fence_raise")),
    ("force_unlock", script!("queue", "force_unlock")),
    ("grace_mark", script!("grace_mark")),
    ("preflight", script!("preflight")),
    ("leader_proclaim", script!("leader_proclaim")),
    ("leader_status", script!("leader_status")),
    ("permit_acquire", script!("queue", "permits", "permit_acquire")),
    ("permit_renew", script!("permit_renew")),
    ("permit_release", script!("queue", "permits", "permit_release")),
    ("permit_reclaim", script!("queue", "permits", "permit_reclaim")),
    ("permit_status", script!("queue", "permits", "permit_status")),
    ("rw_acquire", script!("rw", "rw_acquire")),
    ("read_renew", script!("read_renew")),
    ("rw_release", script!("rw", "rw_release")),
    ("rw_status", script!("rw", "rw_status")),
    ("rw_reclaim", script!("rw", "rw_reclaim")),
    ("rw_force_unlock", script!("rw", "rw_force_unlock")),
];
