//! What there is in a state of the model, and what may happen in it.

use arrayvec::ArrayVec;

/// For how many ticks a lease is granted.
pub const TTL: u8 = 5;
/// The age, in ticks, from which on a lease passes to nobody.
pub const WINDOW: u8 = 2;
/// How many tokens an ask takes.
pub const BLOCK: u8 = 3;

/// The model's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Who holds the lock on the server, and for how many ticks still.
    pub lock: Option<(Holder, u8)>,
    /// Who waits there, in order.
    pub queue: ArrayVec<Holder, 3>,
    /// The last token that was given.
    pub counter: u8,
    /// What was sent and has not run.
    pub sent: ArrayVec<Request, 6>,
    /// What was answered and is not heard.
    pub replies: ArrayVec<Reply, 6>,
    /// The process's seat.
    pub seat: Seat,
    /// For whom the process asks, and the lease that the request is for.
    pub request: Option<(u8, u8)>,
    /// What its tasks do.
    pub tasks: ArrayVec<Task, 3>,
    /// Ticks until the deadline of the other client's hold.
    pub other: Option<u8>,
    /// How often each thing has happened that is bounded.
    pub spent: Spent,
    /// What has happened, for the properties.
    pub seen: Seen,
}

/// Who holds the lock on the server, or waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// A lease of the process.
    Ours(u8),
    /// The other client.
    Other,
}

/// Who of the process uses which lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seat {
    /// There is none.
    Free,
    /// A task holds the lock.
    Held(Lease, u8),
    /// That task was the last to, and its release is not sent.
    Unsent(Lease, u8),
}

/// A lease as the process knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Which one it is.
    pub id: u8,
    /// Ticks until its deadline.
    pub left: u8,
    /// Ticks since it was granted, up to one more than the window.
    pub age: u8,
    /// Its next token, and the last one that it has.
    pub tokens: (u8, u8),
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// Nothing.
    Idle,
    /// It waits, or the process asks for it.
    Waiting,
    /// It holds the lock.
    Held,
    /// It unlocks, and has let the others go first.
    Parting,
    /// It unlocks, and waits for the answer to the release of this lease.
    Releasing(u8),
}

/// What the process sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// For the lock.
    Acquire(u8),
    /// Of a lease; an unlock waits for the answer, or not.
    Release(u8, bool),
}

/// What the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The lease holds the lock.
    Granted(Lease),
    /// Whether the lease held it.
    Released {
        /// Which one.
        id: u8,
        /// It did.
        held: bool,
        /// An unlock waits for it.
        awaited: bool,
    },
}

/// How often each thing has happened that is bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the fields are those of `Case`")]
pub struct Spent {
    pub asks: u8,
    pub turns: u8,
    pub others: u8,
    pub forces: u8,
}

/// What has happened, for the properties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The token of the last hold.
    pub token: u8,
    /// A hold had a token that was not higher than the last one's.
    pub disorder: bool,
    /// A hold began on a lease that was older than the window.
    pub too_old: bool,
    /// An unlock did not hear that its lease was gone.
    pub untold: bool,
    /// Somebody ended the lock by force.
    pub forced: bool,
    /// A lease was taken back.
    pub taken_back: bool,
    /// Another one had a release sent that was not sent before.
    pub sent_for: bool,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A task asks for the lock.
    Arrive(u8),
    /// The process asks for one that waits.
    Ask(u8),
    /// A task unlocks, and waits for the answer.
    Unlock(u8),
    /// A task drops its guard.
    DropGuard(u8),
    /// An unlock goes on.
    Poll(u8),
    /// An unlock is dropped.
    DropUnlock(u8),
    /// The end of the window, or of the lease, of what nobody uses.
    Oversee,
    /// A hold is noticed as lost.
    Evict,
    /// The server runs what was sent first.
    Run,
    /// The process hears what was answered first.
    Hear,
    /// The other client asks, or waits.
    OtherAsks,
    /// The other client releases.
    OtherLeaves,
    /// Somebody ends the lock by force.
    Force,
    /// Time passes.
    Tick,
}
