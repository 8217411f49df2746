//! What happened, as each process saw it: one event is one line of its journal.

use serde::{Deserialize, Serialize};

/// Something that happened, at nanoseconds of [`clock::now`](crate::clock::now).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub at: u64,
    #[serde(flatten)]
    pub what: What,
}

/// A call is known by its number `op`, which is unique in its process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum What {
    /// A call for a lock is about to be made. `owner` is unique in its process.
    Asked {
        op: u64,
        lock: String,
        owner: u64,
        how: How,
        wait_ms: Option<u64>,
    },
    /// It gave a guard. The hold ends between `until` and `latest` if nothing renews it: its deadline was read
    /// between two readings of the clock.
    Granted {
        op: u64,
        id: String,
        token: u64,
        count: u32,
        ttl_ms: u64,
        until: u64,
        latest: u64,
    },
    /// It gave none.
    Refused {
        op: u64,
        why: Why,
        holder: Option<String>,
    },
    /// A renewal was confirmed: the guard's end has moved on.
    Renewed {
        op: u64,
        until: u64,
        latest: u64,
    },
    /// The guard is about to be given back; `over`: its deadline has passed.
    Releasing {
        op: u64,
        how: How,
        over: bool,
    },
    /// Giving it back has ended.
    Released {
        op: u64,
        outcome: Outcome,
    },
    /// The guard told that its hold is lost; `held`: it said the contrary right after.
    Lost {
        op: u64,
        reason: String,
        held: bool,
    },
    /// A write to the fenced register, made by a guard that said `held` before it and after it.
    Wrote {
        op: u64,
        lock: String,
        token: u64,
        number: u64,
        accepted: bool,
        held: bool,
    },
    /// How deep the hold of `op` is here, and how deep the servers say that it is.
    Counted {
        op: u64,
        local: u32,
        server: u32,
    },
    /// A thread or task of this process stood still from `from` until now.
    Stalled {
        from: u64,
    },
    /// The process has come to its end: what its client was still busy with.
    Ended {
        gates: usize,
        waiters: usize,
        subscriptions: usize,
        owed: usize,
        holds: usize,
    },

    /// The driver begins a fault. `stops`: the contender that stands still for it.
    Fault {
        number: u64,
        kind: String,
        stops: Option<String>,
    },
    /// It has ended it.
    Healed {
        number: u64,
    },
    /// A server answers nobody from now on, until it is up again.
    Down {
        node: usize,
    },
    Up {
        node: usize,
    },
    /// A contender was killed, in the course of a fault.
    Killed {
        process: String,
        number: u64,
    },
    /// From now on it is seen what a server runs. Before, something may have been missed.
    Watched {
        node: usize,
    },
    /// A server was told to run a script about a lease.
    Ran {
        node: usize,
        script: String,
        id: String,
    },
    /// It changed a key in the course of that script. `field`: of a hash.
    Changed {
        node: usize,
        script: String,
        id: String,
        verb: String,
        key: String,
        field: Option<String>,
    },
    /// A lock's key is still there after everything has ended.
    Left {
        node: usize,
        key: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    Lock,
    LockWithTimeout,
    TryLock,
    TryLockFor,
    Run,
    Reenter,
    Unlock,
    Drop,
}

/// Why a call gave no guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// `Error::Timeout`, or `None`.
    Held,
    Unavailable,
    Denied,
    Lost,
    /// The future was dropped.
    Dropped,
    /// An error that no call may give here.
    Unexpected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// `unlock` gave `Ok`, or the guard was dropped.
    Ok,
    Lost,
    Unavailable,
    Denied,
    Unexpected,
}
