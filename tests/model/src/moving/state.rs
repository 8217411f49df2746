//! What there is in a state, and what may happen in it.

use super::case::End;

/// The model's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// What ends the lease.
    pub end: End,
    /// Where each key is, by its number; `None`: nowhere.
    pub at: [Option<Node>; KEYS],
    /// Where the slot is.
    pub slot: Slot,
    /// The lease that is to end is there.
    pub lease: bool,
    /// Another reader is there, or another permit is out.
    pub other: bool,
    /// One who waited was let in.
    pub let_in: bool,
    /// How the request is sent next, or was sent last.
    pub form: Form,
    /// The request is on its way, or its answer.
    pub request: Request,
    /// What the caller was told: whether there was something to end.
    pub told: Option<bool>,
    /// The other reader was taken for gone, or somebody was let in beside it.
    pub passed_over: bool,
}

/// How many keys there are.
pub const KEYS: usize = 5;

/// The keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The lock's hash, or how many permits are left.
    Name,
    /// The counter of tokens; of a semaphore, the permits that are out.
    Second,
    /// The queue.
    Queue,
    /// The end of the reader whose lease it is.
    OwnEnd,
    /// The end of the other reader.
    OtherEnd,
}

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// The one that the slot leaves.
    First,
    /// The one that it goes to.
    Second,
}

/// Where the slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// On this node.
    On(Node),
    /// On its way from the first to the second.
    Open,
}

/// How a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// To which node.
    pub to: Node,
    /// Behind ASKING.
    pub asking: bool,
    /// With the name alone.
    pub one_key: bool,
}

/// The request and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// It was sent.
    Sent,
    /// It was answered.
    Answered(Reply),
    /// It is over.
    Over,
}

/// What a node answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// It ended the lease.
    Ended,
    /// There was nothing.
    Nothing,
    /// It did not run: another node has the slot.
    Moved,
    /// It did not run: the keys are on the other node.
    Ask,
    /// It did not run: some of the keys are on the other node.
    TryAgain,
    /// The script failed in the middle.
    Failed,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The slot begins to move.
    Open,
    /// This key moves.
    Move(u8),
    /// The slot has moved.
    Close,
    /// The node runs the request.
    Run,
    /// The caller hears the answer.
    Hear,
}
