//! What there is in a state, and what may happen in it.

use arrayvec::ArrayVec;

/// The model's state with `C` clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<const C: usize> {
    /// The server.
    pub server: Server,
    /// The clients.
    pub clients: [Client; C],
    /// Redisson's client.
    pub java: Java,
    /// How often each thing that is bounded has happened.
    pub spent: Spent,
    /// What has happened, for the properties; no client sees it.
    pub seen: Seen,
}

/// One of the ways to take the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// With other readers.
    Read,
    /// Alone.
    Write,
}

/// A lease id: a client and a number. The entry of its request in the queue also tells its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// Whose it is; [`JAVA`] for Redisson's.
    pub client: u8,
    /// Which of that client's.
    pub number: u8,
    /// For what.
    pub side: Side,
}

/// Redisson's client, as the owner of a lease.
pub const JAVA: u8 = u8::MAX;

/// The keys of the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Server {
    /// The hash's field `mode`.
    pub mode: Option<Side>,
    /// Its other fields, each with the ticks until the reader's own end; zero: that has come. A writer has none.
    pub fields: ArrayVec<(Lease, u8), 8>,
    /// The ticks until the hash expires.
    pub left: u8,
    /// The counter of tokens; zero: there is none.
    pub counter: u8,
    /// Who waits.
    pub queue: ArrayVec<Lease, 8>,
    /// Somebody listens on the lock's channel, and readers do not join readers of ours.
    pub shut: bool,
    /// For a moment a free lock is for those who listen on its channel, and no reader of ours takes it.
    pub reserved: bool,
    /// A lease has ended by itself, the window for joining readers has opened, or the first in the queue has heard of a release, since it was told who holds the lock.
    pub ended: bool,
}

/// What clients ask of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// `rw_acquire`, with an entry.
    Ask(Lease),
    /// `rw_acquire` in the place of the writer of that number.
    Replace(Lease, u8),
    /// `read_renew` or `lock_renew`.
    Renew(Lease),
    /// The same, with the ask of that number of a reader that would share this lease.
    Inquire(Lease, u8),
    /// `rw_release`.
    Release(Lease),
    /// The same, with a shortest hold that is not over.
    Keep(Lease),
}

/// What the server answers to an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// It is held, with this token. A writer that takes it now is told the last token before, if there was one.
    Granted(u8, Option<u8>),
    /// It waits; whether it is the first, and whether it then has to listen to Redisson's client.
    Queued(bool, bool),
}

/// What the server writes to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Letter {
    /// The lease of this number is granted: the ticks since then, the token, and as in [`Reply::Granted`] the one before.
    Grant(u8, u8, u8, Option<u8>),
    /// That of this number is the first in the queue; whether it has to listen to Redisson's client.
    First(u8, bool),
}

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// It has ended. What it sent may still run.
    pub dead: bool,
    /// The number of its newest lease.
    pub number: u8,
    /// What it holds.
    pub held: Option<Held>,
    /// What it asks and waits for.
    pub want: Option<Want>,
    /// What it has sent and was not run yet: runs in this order, at any later time.
    pub requests: ArrayVec<Request, 16>,
    /// The letters on their way, in order.
    pub letters: ArrayVec<Letter, 8>,
}

/// A lease in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The lease.
    pub lease: Lease,
    /// The ticks until its deadline.
    pub left: u8,
    /// How many use it.
    pub users: u8,
    /// The token.
    pub token: u8,
    /// It was ended by force, and a reader joined it whose ask ran after that.
    pub joined_late: bool,
    /// The ticks since the renewal was sent that it waits for, and the answer: whether it is there.
    pub renewal: Option<(u8, Option<bool>)>,
}

/// A request for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    /// The lease.
    pub lease: Lease,
    /// The writer in whose place it is to be.
    pub from: Option<u8>,
    /// It knows that it is the first in the queue.
    pub first: bool,
    /// What a letter that came too late told: the token, and the last one before.
    pub told: Option<(u8, u8)>,
    /// It listens on the lock's channel: Redisson's client held the lock when it heard of its place.
    pub listens: bool,
    /// The ticks since the ask was sent whose answer it waits for, and that answer.
    pub asked: Option<(u8, Option<Reply>)>,
    /// Whether the lease is there that it would share, which goes with that ask: it has asked, and what it was told.
    pub inquiry: Option<Option<bool>>,
    /// A lease was ended by force since that ask was run.
    pub overtaken: bool,
}

/// Redisson's client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Java {
    /// Does nothing.
    #[default]
    Idle,
    /// Holds the lock.
    Held(Side),
    /// Has ended.
    Dead,
}

/// How often each thing has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are named like the bounds of the case")]
pub struct Spent {
    pub asks: u8,
    pub polls: u8,
    pub repeats: u8,
    pub joins: u8,
    pub downgrades: u8,
    pub keeps: u8,
    pub renewals: u8,
    pub java_asks: u8,
    pub shuts: u8,
    pub crashes: u8,
    pub doubles: u8,
    pub lost_letters: u8,
    pub forces: u8,
}

/// What has happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// What was ended by force, and for how many ticks its client may believe that it holds the lock.
    pub forced: ArrayVec<(Lease, u8), 8>,
    /// What was given back and stays for its shortest hold.
    pub kept: ArrayVec<Lease, 4>,
    /// One was let in while another, who lives, was before it.
    pub passed: bool,
    /// A reader joined readers of ours while the window was shut.
    pub joined: bool,
    /// A client was given the lock for writing while it held it.
    pub beside_itself: bool,
    /// A hold had a token that is not in order.
    pub disorder: bool,
    /// A writer was told of a last token before its own, but another one had written since.
    pub unnoticed: bool,
    /// The highest token of a writer.
    pub written: u8,
    /// The highest token of a reader.
    pub read: u8,
    /// A letter gave the lock to a client.
    pub by_letter: bool,
    /// A lease was given back since it had shown that nobody was before its client.
    pub reopened: bool,
    /// A writer became a reader.
    pub downgraded: bool,
    /// What was left of readers whose ends had come was deleted.
    pub took_over: bool,
    /// A reader was granted the lock, and its client's lease was gone: the grant took its place.
    pub replaced: bool,
}

/// What may happen next, to the client of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It asks for this side. If it reads, that request waits beside its readers.
    Ask(u8, Side),
    /// It asks again while it waits.
    Poll(u8),
    /// It asks again since it is the first and a lease has ended.
    Timer(u8),
    /// Another reader joins its lease.
    Join(u8),
    /// One who uses its lease is through.
    Leave(u8),
    /// The last one who uses it is through before its shortest hold is over.
    Keep(u8),
    /// It gives up waiting.
    GiveUp(u8),
    /// Its writer becomes a reader.
    Downgrade(u8),
    /// It renews its lease.
    Renew(u8),
    /// It ends.
    Crash(u8),
    /// The server runs its next request.
    Run(u8),
    /// The server runs its next request, which arrives once more.
    RunTwice(u8),
    /// It hears the answer to its ask.
    Hear(u8),
    /// It hears the answer to its renewal.
    HearRenewal(u8),
    /// It reads the next letter.
    Read(u8),
    /// That letter is lost.
    LoseLetter(u8),
    /// The lock is unlocked by force.
    Force,
    /// Redisson's client takes the lock, if it can.
    JavaTakes(Side),
    /// It gives it back.
    JavaLeaves,
    /// It ends.
    JavaEnds,
    /// Somebody listens on the lock's channel, and the window for joining readers shuts.
    Shuts,
    /// It opens again.
    Opens,
    /// Time passes.
    Tick,
}
