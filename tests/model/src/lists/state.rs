//! What there is in a state, and what may happen in it.

use super::case::Set;

/// The most servers.
pub const SERVERS: usize = 5;
/// The most clients.
pub const CLIENTS: usize = 3;

/// The model's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The servers.
    pub servers: [Server; SERVERS],
    /// The clients.
    pub clients: [Client; CLIENTS],
    /// How often servers have restarted.
    pub restarts: u8,
    /// The operator's step, and where its lists have been typed.
    pub step: (u8, Set),
    /// A client was told of other lists.
    pub refused: bool,
}

/// A server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Server {
    /// The lists that it allows; none: it keeps no list.
    pub allowed: Set,
    /// Who has the lease.
    pub lease: Option<u8>,
    /// Its grants do not count.
    pub quarantined: bool,
}

/// A client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// The servers to which it is connected.
    pub up: Set,
    /// The servers that have told it of other lists.
    pub other: Set,
    /// The servers on which it has seen its list.
    pub seen: Set,
    /// Those that have restarted since it was granted something.
    pub older: Set,
    /// What it does.
    pub phase: Phase,
}

/// What a client does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// It asks; these servers have granted.
    Asking(Set),
    /// It holds the lock.
    Held,
    /// It does not run.
    Stopped,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client connects to a server.
    Connect(u8, u8),
    /// A client begins to ask.
    Ask(u8),
    /// A server answers it.
    Vote(u8, u8),
    /// It has a majority.
    Take(u8),
    /// It gives up, or lets go.
    End(u8),
    /// It puts its lease back on a server.
    Heal(u8, u8),
    /// A server restarts.
    Restart(u8),
    /// Its grants count again.
    Counts(u8),
    /// The operator types the lists of the step on a server.
    Type(u8),
    /// The operator goes on: clients are stopped and started.
    Next,
}
