//! What there is in a state, and what may happen in it.

use arrayvec::ArrayVec;

/// How many masters there are.
pub const MASTERS: usize = 3;
/// How many of them are a majority.
pub const MAJORITY: usize = 2;

/// The model's state with `C` clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<const C: usize> {
    /// The masters, each with the clients' connections to it. They are kept in order, since they are all alike.
    pub masters: [Master<C>; MASTERS],
    /// The clients.
    pub clients: [Client; C],
    /// How often each thing that is bounded has happened.
    pub spent: Spent,
    /// What has happened, for the properties; no client sees it.
    pub seen: Seen,
}

/// A lease id: a client and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// Whose it is.
    pub client: u8,
    /// Which of that client's.
    pub number: u8,
}

/// One master.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Master<const C: usize> {
    /// Who reads, each with the ticks until its end. With zero it has ended, and its field is there still.
    pub readers: ArrayVec<(Lease, u8), 4>,
    /// Who writes.
    pub writer: Option<(Lease, u8)>,
    /// The counter of tokens.
    pub counter: u8,
    /// The request that reserved it, and the ticks until the end of that.
    pub next: Option<(Lease, u8)>,
    /// The connections.
    pub lines: [Line; C],
}

/// The connection of a client to a master.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line {
    /// What was sent and was not run yet: runs in this order, at any later time.
    pub requests: ArrayVec<Request, 10>,
    /// The answer to the client's newest request.
    pub answer: Option<Answer>,
}

/// What clients ask. The first number is that of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Request {
    /// `rw_acquire` for reading.
    Read(u8),
    /// `rw_acquire` for writing, by one that waits.
    Write(u8),
    /// `rw_acquire` for reading, in the place of the writer of the second number.
    Downgrade(u8, u8),
    /// `fence_raise`, to the second number.
    Raise(u8, u8),
    /// `rw_release`. It takes the reservation away if that is said.
    Release(u8, bool),
}

/// What a master answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// The lease is there, and the counter has that number.
    Granted(u8),
    /// It is not.
    Refused,
}

/// One client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// What it does.
    pub phase: Phase,
    /// What it asks for, or holds.
    pub writes: bool,
    /// The number of its newest lease.
    pub number: u8,
    /// The lease before, which is given back once the newest was answered: that of a refused request, or of the writer that
    /// becomes a reader.
    pub kept: Option<u8>,
    /// The ticks since it asked.
    pub age: u8,
    /// For how many ticks still the masters that refused it keep new readers out.
    pub fresh: u8,
    /// It asked to read while a writer waited whom the masters had refused.
    pub behind: bool,
}

/// What a client does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// It has asked. With a number it lifts the counters to that.
    Asking(Option<u8>),
    /// It was refused, and will ask again.
    Waiting,
    /// It holds the lock for so many ticks still.
    Held(u8),
    /// It has ended. What it sent may still run.
    Dead,
}

/// How often each thing has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spent {
    /// Requests.
    pub asks: u8,
    /// Writers that became readers.
    pub downgrades: u8,
    /// Clients that ended.
    pub crashes: u8,
    /// Requests without an answer.
    pub faults: u8,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The highest token of a writer.
    pub written: u8,
    /// The highest token of a reader.
    pub read: u8,
    /// A token was not where it belongs.
    pub disorder: bool,
    /// A reader that came later was before a writer that waited.
    pub passed: bool,
    /// A token was settled by lifting counters.
    pub raised: bool,
    /// A writer got the lock that had been refused before.
    pub writer_got_in: bool,
    /// A writer became a reader.
    pub downgraded: bool,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// That client asks to write, or to read.
    Ask(u8, bool),
    /// It asks to read instead of writing.
    Downgrade(u8),
    /// It decides by the answers that are there.
    Decide(u8),
    /// It gives its request up without an answer, and will ask again.
    Fail(u8),
    /// It gives up, or gives back.
    End(u8),
    /// It ends.
    Crash(u8),
    /// That master runs that client's next request.
    Run(u8, u8),
    /// Time passes.
    Tick,
}
