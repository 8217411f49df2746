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
    /// A call for a lock, or for several at once, is about to be made. `owner` is unique in its process.
    Asked {
        op: u64,
        locks: Vec<String>,
        owner: u64,
        how: How,
        share: Share,
        wait_ms: Option<u64>,
    },
    /// It gave a guard of these locks, each with its token. The hold ends between `until` and `latest` if nothing renews it:
    /// its deadline was read between two readings of the clock.
    Granted {
        op: u64,
        id: String,
        tokens: Vec<(String, u64)>,
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
    /// It is told that its wait is part of a deadlock: from that wait on, each part waits for what the next one holds.
    Deadlocked {
        op: u64,
        circle: Vec<Part>,
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
    /// From now on the guard is asked whether its lock is wanted.
    AsksWhetherWanted {
        op: u64,
    },
    /// It says so.
    Wanted {
        op: u64,
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
    /// Who observes an election is told who leads.
    Shown {
        op: u64,
        term: u64,
    },
    /// An operator's call, on behalf of `owner`, is about to be made.
    Doing {
        op: u64,
        owner: u64,
        lock: String,
        deed: Deed,
    },
    /// It has ended: `Some(true)` if it did what it says, `Some(false)` if there was nothing to do, `None` if nobody knows.
    Done {
        op: u64,
        done: Option<bool>,
    },
    /// The server says how many permits there are, out or not; it was asked at `from`.
    Seen {
        lock: String,
        from: u64,
        permits: i64,
    },
    /// Items are about to be pushed.
    Pushing {
        op: u64,
        items: Vec<String>,
    },
    /// They were added or not; `None`: nobody knows.
    Pushed {
        op: u64,
        added: Option<bool>,
    },
    /// A latch was shut.
    Shut {
        latch: String,
        counts: u32,
    },
    /// A count is about to be made.
    Counting {
        op: u64,
        latch: String,
    },
    /// That has ended; `counted`: it was confirmed.
    CountedDown {
        op: u64,
        counted: bool,
    },
    /// Who has waited for a latch since `from` sees it open or not; `None`: it is told that the latch is lost.
    LatchSeen {
        latch: String,
        from: u64,
        is_open: Option<bool>,
    },
    /// The signal is about to be given.
    Notifying {
        op: u64,
    },
    /// That has ended; `given`: it was confirmed.
    Notified {
        op: u64,
        given: bool,
    },
    /// Who had seen the number `seen` by `seen_at`, and has waited since `from`, sees another, and who gave that signal; `None`:
    /// none in time.
    Noticed {
        from: u64,
        seen_at: u64,
        seen: u64,
        number: u64,
        by: Option<String>,
    },
    /// A client that names these masters has asked since `since`, and is connected or has a lock, or was refused for its masters
    /// with these words.
    Named {
        list: String,
        since: u64,
        refused: Option<String>,
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
    /// An operator begins to type on all servers that clients may name these masters, or has done so.
    Masters {
        lists: Vec<String>,
        everywhere: bool,
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
    /// A key of a lock is still there after everything has ended.
    Left {
        node: usize,
        key: String,
    },
    /// What a server has of a semaphore after everything has ended: how many permits are left, how many of those that are out
    /// will come back when somebody asks, since their leases have ended, and how many will not.
    Pool {
        node: usize,
        lock: String,
        left: i64,
        ended: i64,
        out: i64,
    },
    /// The items that a server has after everything has ended.
    Stock {
        node: usize,
        waiting: Vec<String>,
        lent: Vec<String>,
        dead: Vec<String>,
    },
}

/// A part of a deadlock, as it was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The process.
    pub client: String,
    pub holds: String,
    pub token: u64,
    pub waits_for: String,
}

/// With whom something is held.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// With nobody.
    #[default]
    Alone,
    /// With other readers. Its token is that of the writer before it.
    Reads,
    /// With as many as there are permits for. It has no token: 0.
    Permits { weight: u32, all: u32 },
    /// With nobody, and without a token: what is asked for is any item of a queue, and each item is held by itself.
    Lent,
}

/// What an operator does to a lock that others use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deed {
    /// Ends the hold of this lease, or of whoever holds the lock.
    ForceOut(Option<String>),
    /// There are so many more permits.
    Add(u32),
    /// There are as many permits as at first.
    SetBack,
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
    /// Several locks at once.
    Several,
    /// A writer becomes a reader.
    Downgrade,
    /// Looks who leads, and holds nothing.
    Observe,
    Unlock,
    Drop,
    /// A permit that comes back at the end of its lease.
    Spend,
    /// A permit that does not come back.
    Forget,
    /// An item that is to be delivered again.
    Retry,
    /// An item that is dead.
    Reject,
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
    /// This kind of lock works on one server only.
    OneServerOnly,
    /// The wait is part of a deadlock.
    Deadlock,
    /// Its masters are not those in use.
    OtherMasters,
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
    /// The masters of its client are not those in use.
    OtherMasters,
    Unexpected,
}
