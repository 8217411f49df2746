//! What there is in a state, and what may happen in it.

use arrayvec::ArrayVec;

pub use crate::waiting::Channel;
use crate::waiting::{Ends, Letter, Requests};

/// The model's state with `C` clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State<const C: usize> {
    /// How many permits are left on the server.
    pub left: i8,
    /// The leases that are out, by id, each with the ticks until its end; zero: it has ended, and was not taken back yet.
    pub out: ArrayVec<(Lease, u8), 8>,
    /// Who waits.
    pub queue: ArrayVec<Lease, 8>,
    /// The clients.
    pub clients: [Client; C],
    /// Redisson's client.
    pub java: Java,
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

/// What clients ask of the server. The numbers are those of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Request {
    /// `permit_acquire`, with an entry.
    Ask(u8),
    /// The same once more: nobody hears the answer.
    Echo(u8),
    /// `permit_renew`.
    Renew(u8),
    /// `permit_release`.
    Release(u8),
    /// The same, of permits that came by a letter.
    Yield(u8),
}

/// What the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reply {
    /// To an ask: the permits are held.
    Granted,
    /// To an ask: it waits in the queue. Whether it is the first, and what it is told then.
    Queued(bool, Ends),
    /// To a renewal: the lease is there.
    Ours,
    /// To a renewal: it is not.
    Gone,
}

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    /// What it does.
    pub phase: Phase,
    /// The number of its newest lease.
    pub number: u8,
    /// What it has sent and was not run yet: runs in this order, at any later time.
    pub requests: ArrayVec<Request, 16>,
    /// The ticks since the ask or renewal was sent whose answer it waits for.
    pub asked: Option<u8>,
    /// That answer, on its way.
    pub reply: Option<Reply>,
    /// The letters about that lease on their way, in order.
    pub letters: ArrayVec<Letter<()>, 8>,
    /// The library's machine for it.
    pub machine: Requests<Letter<()>>,
    /// It listens on the channel of the semaphore.
    pub channel: Channel,
    /// It has heard there of what was given back.
    pub has_heard: bool,
    /// Its permits came by a letter.
    pub by_letter: bool,
}

/// Redisson's client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Java {
    /// Does nothing.
    #[default]
    Idle,
    /// Listens on the channel, and takes a permit when one is left.
    Waits,
    /// Has one.
    Held,
}

/// What a client does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// It asks by itself for the first time.
    First,
    /// The machine has a request for it.
    Waiting,
    /// It holds its permits for so many ticks still.
    Held(u8),
    /// It has ended. What it sent may still run.
    Dead,
}

/// How often each thing has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spent {
    /// First asks.
    pub asks: u8,
    /// Further asks.
    pub polls: u8,
    /// Asks since a timer has ended.
    pub repeats: u8,
    /// Renewals.
    pub renewals: u8,
    /// Clients that ended.
    pub crashes: u8,
    /// Requests that ran twice.
    pub doubles: u8,
    /// Letters that were lost.
    pub lost_letters: u8,
    /// Times that Redisson's client has waited.
    pub java_asks: u8,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seen {
    /// Permits were given to one while another, who lives, was before it.
    pub passed: bool,
    /// One was refused that permits were left for, and only the dead were before it.
    pub refused: bool,
    /// One who listened heard of a release by Redisson's client.
    pub heard: bool,
    /// A letter gave permits to a client.
    pub by_letter: bool,
    /// Permits of a client that had ended came back.
    pub came_back: bool,
}

/// What may happen next, to the client of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It asks for permits.
    Ask(u8),
    /// It asks again while it waits.
    Poll(u8),
    /// It gives up, or gives its permits back.
    End(u8),
    /// It renews its lease.
    Renew(u8),
    /// It ends.
    Crash(u8),
    /// The server runs its next request.
    Run(u8),
    /// The server runs its next request, which arrives once more.
    RunTwice(u8),
    /// It hears the answer.
    Hear(u8),
    /// It reads the next letter.
    Read(u8),
    /// That letter is lost.
    LoseLetter(u8),
    /// Its timer ends.
    Timer(u8),
    /// The server runs its subscription.
    Subscribe(u8),
    /// It hears on the channel that something was given back.
    HearRelease(u8),
    /// Redisson's client waits for a permit.
    JavaWaits,
    /// It gives up waiting.
    JavaGivesUp,
    /// It takes a permit that is left.
    JavaTakes,
    /// It gives it back.
    JavaLeaves,
    /// Time passes.
    Tick,
}
