//! The locks that an outer `run` holds already.

use std::env;
use std::ffi::OsString;
use std::process;
use std::time::Duration;

use leasehold::{Client, Guard};
use serde::{Deserialize, Serialize};

const VARIABLE: &str = "LEASEHOLD_HELD";

/// One lock that a `run` around this process holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Outer {
    lock: String,
    /// The servers' addresses.
    on: String,
    /// The `run` that holds it.
    pid: u32,
}

/// All locks that `run`s around this process hold.
pub struct Held(Vec<Outer>);

impl Held {
    /// Reads what the environment says, and believes only what ancestors of this process hold: a process that outlived its
    /// `run` has inherited the variable, but not the lock.
    pub fn inherited() -> Self {
        let text = env::var(VARIABLE).unwrap_or_default();
        let mut held: Vec<Outer> = serde_json::from_str(&text).unwrap_or_default();
        held.retain(|outer| is_ancestor(outer.pid));
        Self(held)
    }

    pub fn has(&self, on: &str, lock: &str) -> bool {
        self.0.iter().any(|outer| outer.lock == lock && outer.on == on)
    }

    /// Adds what this process holds.
    pub fn with(mut self, on: &str, locks: &[String]) -> Self {
        let pid = process::id();
        let ours = locks.iter().map(|lock| Outer { lock: lock.clone(), on: on.to_owned(), pid });
        self.0.extend(ours);
        self
    }

    /// Returns the variables for the command. They replace those of an outer `run`.
    pub fn environment(
        &self,
        client: Option<&Client>,
        guards: &[Guard],
        ttl: Duration,
    ) -> Vec<(&'static str, OsString)> {
        let held = serde_json::to_string(&self.0).unwrap_or_default();
        let mut all = vec![(VARIABLE, held.into())];
        // Who looks sees by the name that an inner `run` waits on behalf of what this one holds.
        all.extend(client.map(|client| ("LEASEHOLD_NAME", client.name().into())));
        // All locks are those of an outer `run`, which told their tokens.
        if !guards.is_empty() {
            let names: Vec<_> = guards.iter().map(Guard::name).collect();
            let tokens: Vec<_> = guards.iter().map(|guard| guard.token().to_string()).collect();
            all.push(("LEASEHOLD_LOCK", names.join("\n").into()));
            all.push(("LEASEHOLD_TOKEN", tokens.join("\n").into()));
            all.push(("LEASEHOLD_TTL_MS", ttl.as_millis().to_string().into()));
        }
        all
    }
}

#[cfg(target_os = "linux")]
fn is_ancestor(pid: u32) -> bool {
    let mut process = process::id();
    while process > 1 {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
            return false;
        };
        // The command's name comes before it, in brackets, and may contain anything.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        let Some(parent) = parent.and_then(|parent| parent.parse().ok()) else { return false };
        if parent == pid {
            return true;
        }
        process = parent;
    }
    false
}

#[cfg(not(target_os = "linux"))]
fn is_ancestor(pid: u32) -> bool {
    let pid = i32::try_from(pid).map(nix::unistd::Pid::from_raw);
    pid.is_ok_and(|pid| nix::sys::signal::kill(pid, None).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_lock_on_the_same_servers_is_held() {
        let held = Held(Vec::new()).with("redis://a", &["nightly".to_owned()]);
        assert!(held.has("redis://a", "nightly"));
        assert!(!held.has("redis://b", "nightly"));
        assert!(!held.has("redis://a", "other"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn ancestors_are_known() {
        assert!(is_ancestor(std::os::unix::process::parent_id()));
        assert!(is_ancestor(1) || process::id() == 1);
        assert!(!is_ancestor(u32::MAX));
    }
}
