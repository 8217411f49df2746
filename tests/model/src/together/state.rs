//! What there is in a state, and what may happen in it.

/// The most locks.
pub const LOCKS: usize = 3;

/// Locks: one bit for each.
pub type Set = u8;

/// The model's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// What the server has of each lock.
    pub keys: [Key; LOCKS],
    /// What the process knows of its lease of each.
    pub leases: [Lease; LOCKS],
    /// Those whose renewal is on its way.
    pub renewing: Set,
    /// Those that are to be renewed, until the call is sent.
    pub chosen: Set,
    /// What is on its way to the server, in order.
    pub requests: Vec<Request>,
    /// What is on its way back, in order.
    pub answers: Vec<Answer>,
    /// Locks that were unlocked by force, or overwritten.
    pub forced: Set,
    /// Leases that somebody removed, or that have expired.
    pub removed: Set,
    /// What has happened so far.
    pub so_far: SoFar,
    /// A lease was renewed in a call in which another was found to be gone.
    pub outlived: bool,
    /// A lease was renewed by itself, since the call came to nothing for it.
    pub alone: bool,
}

/// How often things have happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SoFar {
    /// Calls that renew several.
    pub calls: u8,
    /// Locks that others have taken.
    pub takes: u8,
    /// Forced unlocks.
    pub forces: u8,
    /// Keys that were overwritten.
    pub overwrites: u8,
    /// Renewals that failed by themselves.
    pub failures: u8,
    /// Calls that were refused.
    pub refusals: u8,
    /// Connections that broke.
    pub breaks: u8,
}

/// What the server has of a lock. Numbers are the ticks until it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// Nothing.
    Free,
    /// The process's lease.
    Ours(u8),
    /// That of another client.
    Others(u8),
    /// Something that is no lock.
    Overwritten,
}

/// What the process knows of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lease {
    /// It is held, for so many ticks still.
    Held(u8),
    /// The server said that it is gone.
    Gone,
    /// Its deadline passed.
    Ended,
    /// It was given back.
    Released,
}

/// A request. Ages are the ticks since it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Renews several.
    Together {
        /// Those that the process takes it for.
        members: Set,
        /// Those that it is about.
        sent: Set,
        /// Its age.
        age: u8,
    },
    /// Renews one.
    Alone(u8, u8),
    /// Gives one back.
    Release(u8),
}

/// An answer. Ages are those of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// To the renewal of several.
    Together {
        /// Those that the process takes it for.
        members: Set,
        /// Those that it is about.
        sent: Set,
        /// Those that are there.
        held: Set,
        /// Those whose renewal failed.
        failed: Set,
        /// The age of the request.
        age: u8,
    },
    /// The call did not run.
    Refused(Set),
    /// To the renewal of one: whether it is there.
    Alone(u8, bool, u8),
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// The process chooses those that it renews together.
    Choose(Set),
    /// It sends what renews them.
    Send,
    /// It gives a lock back.
    Release(u8),
    /// The server runs the next request.
    Run,
    /// It runs the next request, in which the renewal of this lock fails.
    RunBut(u8),
    /// It refuses the next request.
    Refuse,
    /// The process hears the next answer.
    Hear,
    /// The connection breaks, and there is another one.
    Break,
    /// Another client takes a lock.
    Take(u8),
    /// Somebody unlocks a lock by force.
    Force(u8),
    /// Somebody overwrites its key.
    Overwrite(u8),
}

/// Returns the locks of a set.
pub fn each(set: Set) -> impl Iterator<Item = usize> + Clone {
    (0..LOCKS).filter(move |lock| set & (1 << lock) != 0)
}

impl Request {
    /// Those that it is about.
    pub fn locks(&self) -> Set {
        match *self {
            Request::Together { sent, .. } => sent,
            Request::Alone(lock, _) | Request::Release(lock) => 1 << lock,
        }
    }
}
