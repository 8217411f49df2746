//! Older connections of a node, and whether the server may still run commands that were written to them.
//!
//! | what is known about an older connection | what follows                                       |
//! |-----------------------------------------|----------------------------------------------------|
//! | it led to another run of the server     | none of its commands can run there                 |
//! | it was killed on the server             | none of its commands can run                       |
//! | neither                                 | it may linger until that run of the server ends    |
//!
//! The last connection is remembered by its client id, and all others by one flag, however many there were. So a
//! handshake kills at most one connection.
//!
//! A node that follows its master from server to server may come back to a run that it has left. What is known about the
//! connections to that run is kept until then, for the last few runs.

use std::collections::VecDeque;

/// The server of a connection, and the connection's id there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// It changes with every start of a server. `None` if the user may not read it.
    pub(super) run_id: Option<String>,
    /// The count starts again with every start of a server.
    pub(super) client_id: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Predecessors {
    /// The last connection that was in use, until it is known whether it has ended.
    last: Option<Identity>,
    lingering: Option<Lingering>,
    /// What was left behind at other runs, the latest first.
    elsewhere: VecDeque<Behind>,
}

/// Connections that could not be killed.
#[derive(Debug)]
struct Lingering {
    /// The run of the server that they led to; `None` if it is not known.
    run_id: Option<String>,
}

/// What the node left behind at a run of a server.
#[derive(Debug)]
struct Behind {
    run_id: String,
    /// The client id of the last connection there.
    client_id: Option<i64>,
    /// There were others before it that could not be killed.
    others: bool,
}

impl Predecessors {
    /// Returns the client id of the connection to kill on the server of `new`, if there is one.
    pub(super) fn to_kill(&self, new: &Identity) -> Option<i64> {
        let new = new.run_id.as_ref()?;
        let last = self.last.as_ref().filter(|last| last.run_id.as_ref() == Some(new));
        // In another run, that id belongs to a stranger.
        match last {
            Some(last) => last.client_id,
            None => self.elsewhere.iter().find(|behind| behind.run_id == *new)?.client_id,
        }
    }

    /// A new connection leads to the run of `new`. `killed`: the connection [`to_kill`](Self::to_kill) has ended.
    pub(super) fn met(&mut self, new: &Identity, killed: bool) {
        self.leave_behind(new);
        let returned =
            self.elsewhere.iter().position(|behind| Some(&behind.run_id) == new.run_id.as_ref());
        if let Some(behind) = returned.and_then(|index| self.elsewhere.remove(index))
            && (behind.others || !killed)
        {
            self.linger(Some(behind.run_id));
        }
        if let Some(last) = self.last.take_if(|_| !killed) {
            self.linger(last.run_id);
        }
        self.last = None;
    }

    /// Puts aside what is known about the connections to another run than that of `new`.
    fn leave_behind(&mut self, new: &Identity) {
        let is_another = |run_id: &Option<String>| matches!((run_id, &new.run_id), (Some(before), Some(now)) if before != now);
        let last = self.last.take_if(|last| is_another(&last.run_id));
        let lingering = self.lingering.take_if(|lingering| is_another(&lingering.run_id));
        let others = lingering.is_some();
        let run_id = lingering.and_then(|lingering| lingering.run_id);
        let Some(run_id) = last.as_ref().and_then(|last| last.run_id.clone()).or(run_id) else {
            return;
        };
        let client_id = last.and_then(|last| last.client_id);
        self.elsewhere.push_front(Behind { run_id, client_id, others });
        self.elsewhere.truncate(RUNS);
    }

    fn linger(&mut self, run_id: Option<String>) {
        // If the run of one of them is not known, no single run describes them all.
        match &mut self.lingering {
            Some(Lingering { run_id: None }) => {}
            lingering => *lingering = Some(Lingering { run_id }),
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

/// For this many other runs it is remembered what was left behind there.
const RUNS: usize = 4;

#[cfg(test)]
mod tests;
