//! What a server reports about its role and the origin of its data (`INFO replication`).
//!
//! Data results from a *history* of writes, which has an id. Redis gives a server another history
//!
//! * at its start,
//! * when it becomes a replica and has taken over its master's data,
//! * when a replica becomes a master, always,
//! * when a first replica follows it, or when none has for `repl-backlog-ttl`: then nothing was lost.
//!
//! So a server that was demoted, received the data of another and was promoted has another history, although it never
//! restarted. It remembers for a while that it followed another server, but not when.

use std::collections::HashMap;
use std::sync::Arc;

/// The role of a server: it accepts writes, or follows a server that does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Master,
    /// The address of its master, `host:port`; empty if it is not reported.
    Replica(Arc<str>),
}

/// A server's role, and the history of its data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Past {
    /// `None` if the server does not report it, or if the user may not ask.
    pub(super) role: Option<Role>,
    /// The id of its history; `None` for the same reasons.
    pub(super) history: Option<String>,
    /// It had another history before: it was a replica, or was started from a snapshot that came from elsewhere or that
    /// replicas also had.
    pub(super) had_another: bool,
}

impl Past {
    /// Reads the fields of `INFO replication`.
    pub(super) fn read(fields: &HashMap<String, String>) -> Self {
        let field = |name: &str| fields.get(name).map(String::as_str);
        let role = match field("role") {
            Some("master") => Some(Role::Master),
            Some("slave" | "replica") => Some(Role::Replica(master_of(&field).into())),
            _ => None,
        };
        let named = |name| field(name).filter(|id| id.bytes().any(|byte| byte != b'0'));
        Self {
            role,
            history: named("master_replid").map(str::to_owned),
            had_another: named("master_replid2").is_some(),
        }
    }
}

impl Past {
    /// Returns true if grants that counted with this past still count if the server reports `now`.
    pub(super) fn goes_on_in(&self, now: &Self) -> bool {
        self.history == now.history && !matches!(now.role, Some(Role::Replica(_)))
    }
}

fn master_of<'a>(field: &impl Fn(&str) -> Option<&'a str>) -> String {
    match (field("master_host"), field("master_port")) {
        (Some(host), Some(port)) if host.contains(':') => format!("[{host}]:{port}"),
        (Some(host), Some(port)) => format!("{host}:{port}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(fields: &[(&str, &str)]) -> Past {
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        Past::read(&fields.iter().map(owned).collect())
    }

    const NONE: &str = "0000000000000000000000000000000000000000";
    const A: &str = "8a27e0b5d5d0d9d6e1a2c2f35f7b5f5f1b1e2d3c";

    #[test]
    fn a_master_tells_its_history() {
        let fresh = [("role", "master"), ("master_replid", A), ("master_replid2", NONE)];
        let fresh = past(&fresh);
        assert_eq!(fresh.role, Some(Role::Master));
        assert_eq!((fresh.history.as_deref(), fresh.had_another), (Some(A), false));
        let promoted = [("role", "master"), ("master_replid", A), ("master_replid2", A)];
        assert!(past(&promoted).had_another);
    }

    #[test]
    fn a_replica_names_its_master() {
        for (host, shown) in [("10.0.0.1", "10.0.0.1:6379"), ("::1", "[::1]:6379")] {
            let fields = [("role", "slave"), ("master_host", host), ("master_port", "6379")];
            assert_eq!(past(&fields).role, Some(Role::Replica(shown.into())));
        }
        assert_eq!(past(&[("role", "slave")]).role, Some(Role::Replica("".into())));
    }

    #[test]
    fn grants_count_on_while_the_history_is_the_same_and_the_server_is_no_replica() {
        let counted = past(&[("role", "master"), ("master_replid", A)]);
        assert!(counted.goes_on_in(&counted));
        assert!(counted.goes_on_in(&past(&[("master_replid", A)])), "it does not say its role");
        for now in [
            &[("role", "slave"), ("master_replid", A)],
            &[("role", "master"), ("master_replid", "b")],
        ] {
            assert!(!counted.goes_on_in(&past(now)), "{now:?}");
        }
    }

    #[test]
    fn what_is_not_said_is_not_known() {
        for fields in [&[][..], &[("role", "sentinel")], &[("master_replid", "")]] {
            assert_eq!(past(fields), Past::default(), "{fields:?}");
        }
    }
}
