//! Older connections of a node, and whether the server may still run commands that were written to them.
//!
//! | what is known about an older connection | what follows                                       |
//! |-----------------------------------------|----------------------------------------------------|
//! | it led to another run of the server     | none of its commands can run                       |
//! | it was killed on the server             | none of its commands can run                       |
//! | neither                                 | it may linger until that run of the server ends    |
//!
//! The last connection is remembered by its client id, and all others by one flag, however many there were. So a
//! handshake kills at most one connection.

use super::handshake::Identity;

#[derive(Debug, Default)]
pub(super) struct Predecessors {
    /// The last connection that was in use, until it is known whether it has ended.
    last: Option<Identity>,
    lingering: Option<Lingering>,
}

/// Connections that could not be killed.
#[derive(Debug)]
struct Lingering {
    /// The run of the server that they led to; `None` if it is not known.
    run_id: Option<String>,
}

impl Predecessors {
    /// Returns the client id of the connection to kill on the server of `new`, if there is one.
    pub(super) fn to_kill(&self, new: &Identity) -> Option<i64> {
        let last = self.last.as_ref()?;
        // In another run, that id belongs to a stranger.
        let same_run = last.run_id.is_some() && last.run_id == new.run_id;
        last.client_id.filter(|_| same_run)
    }

    /// A new connection leads to the run of `new`. `killed`: the connection [`to_kill`](Self::to_kill) has ended.
    pub(super) fn met(&mut self, new: &Identity, killed: bool) {
        let ended = |run_id: &Option<String>| matches!((run_id, &new.run_id), (Some(before), Some(now)) if before != now);
        self.lingering.take_if(|lingering| ended(&lingering.run_id));
        let Some(last) = self.last.take().filter(|last| !killed && !ended(&last.run_id)) else {
            return;
        };
        // If the run of one of them is not known, no single run describes them all.
        match &mut self.lingering {
            Some(Lingering { run_id: None }) => {}
            lingering => *lingering = Some(Lingering { run_id: last.run_id }),
        }
    }

    /// A new connection is in use.
    pub(super) fn follow(&mut self, identity: Identity) {
        self.last = Some(identity);
    }

    /// Returns true if commands of older connections may still run after those of the new one.
    pub(super) fn may_linger(&self) -> bool {
        self.lingering.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(run_id: Option<&str>, client_id: Option<i64>) -> Identity {
        Identity { run_id: run_id.map(Into::into), client_id }
    }

    #[test]
    fn the_last_connection_is_killed_where_it_is_known_by_name() {
        let known = identity(Some("a"), Some(7));
        let mut before = Predecessors::default();
        assert_eq!(before.to_kill(&known), None, "there is none");
        before.follow(known.clone());
        assert_eq!(before.to_kill(&identity(Some("a"), Some(8))), Some(7));
        assert_eq!(before.to_kill(&identity(Some("b"), Some(8))), None, "a stranger's number");
        assert_eq!(before.to_kill(&identity(None, Some(8))), None, "maybe a stranger's number");
        before.follow(identity(None, Some(7)));
        assert_eq!(before.to_kill(&identity(None, Some(8))), None, "maybe a stranger's number");
    }

    #[test]
    fn what_is_neither_killed_nor_of_another_run_may_linger() {
        for (last, new, killed, lingers) in [
            (Some("a"), Some("a"), true, false),
            (Some("a"), Some("a"), false, true),
            (Some("a"), Some("b"), false, false),
            (Some("a"), None, false, true),
            (None, Some("a"), false, true),
            (None, None, false, true),
        ] {
            let mut before = Predecessors::default();
            before.follow(identity(last, Some(7)));
            before.met(&identity(new, Some(8)), killed);
            assert_eq!(before.may_linger(), lingers, "{last:?} {new:?} {killed}");
        }
    }

    #[test]
    fn what_lingers_does_so_until_its_run_has_ended() {
        let [a, b] = ["a", "b"].map(|run| identity(Some(run), Some(7)));
        let unknown = identity(None, Some(7));
        let mut before = Predecessors::default();
        before.follow(a.clone());
        before.met(&a, false);
        before.follow(a.clone());
        before.met(&a, true);
        assert!(before.may_linger(), "the one before that is still there");
        before.follow(a);
        before.met(&b, false);
        assert!(!before.may_linger(), "they were of another run");
        before.follow(unknown);
        before.met(&b, false);
        before.follow(b.clone());
        before.met(&b, false);
        before.met(&identity(Some("c"), Some(7)), false);
        assert!(before.may_linger(), "nobody knows the run of all");
    }
}
