//! What there is in a state, and what may happen in it.

use arrayvec::ArrayVec;

use super::requests::{Letter, Requests};
pub use crate::waiting::Channel;
use crate::waiting::Ends;

/// The model's state with `C` clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// Somebody of another library listens on the lock's channel, and readers do not join readers of ours.
    pub shut: bool,
    /// For a moment a free lock is for those who listen on its channel, and no reader of ours takes it.
    pub reserved: bool,
    /// A lease has ended by itself, or the moment for those who listen, since the first in the queue was told who holds the lock, or
    /// asked. It may have been told of another one that ends later, or have heard late of that one.
    pub ended: bool,
    /// The window for joining readers has opened in this tick: a first that stayed out asks at the end of it, or a tick after it has
    /// heard that it stays out.
    pub opened: bool,
}

/// What clients ask of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Request {
    /// `rw_acquire`, with an entry.
    Ask(Lease),
    /// The same once more: nobody hears the answer.
    Echo(Lease),
    /// `rw_acquire` in the place of the writer of that number, without an entry.
    Replace(Lease, u8),
    /// `read_renew` or `lock_renew`.
    Renew(Lease),
    /// The same, with the ask of that number of a reader that would share this lease; zero: nobody hears the answer.
    Inquire(Lease, u8),
    /// `rw_release`, and whether the lease came by a letter.
    Release(Lease, bool),
    /// The same, with a shortest hold that is not over.
    Keep(Lease),
}

/// What the server answers to an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reply {
    /// It is held, with this token. A writer that takes it now is told the last token before, if there was one.
    Granted(u8, Option<u8>),
    /// It waits; whether it is the first, and what it is told then.
    Queued(bool, Ends),
    /// It does not, and is not held: there is no writer whose place it could take.
    Refused,
}

/// One client: a process, in which readers share a lease and others wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    /// It has ended. What it sent may still run.
    pub dead: bool,
    /// The number of its newest lease.
    pub number: u8,
    /// What it holds.
    pub held: Option<Held>,
    /// What those want who wait, in the order in which they came. Who asks by itself is not among them.
    pub waiters: ArrayVec<Side, 2>,
    /// What asks now. Nobody else of this client asks meanwhile.
    pub ask: Option<Ask>,
    /// The request of the machine that has asked, and waits now.
    pub standing: Option<Attempt>,
    /// The library's machine, which has a request for the first who waits.
    pub machine: Requests,
    /// What it has sent and was not run yet: runs in this order, at any later time.
    pub requests: ArrayVec<Request, 16>,
    /// The letters on their way, in order.
    pub letters: ArrayVec<Letter, 8>,
    /// It listens on the lock's channel.
    pub channel: Channel,
    /// It has heard there of a release.
    pub has_heard: bool,
}

/// A lease in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Held {
    /// The lease.
    pub lease: Lease,
    /// The ticks until its deadline.
    pub left: u8,
    /// How many use it.
    pub users: u8,
    /// The token.
    pub token: u8,
    /// It came by a letter (only where anybody of another library may listen).
    pub by_letter: bool,
    /// It was ended by force, and a reader joined it whose ask ran after that.
    pub joined_late: bool,
    /// The ticks since the renewal was sent that it waits for, and the answer: whether it is there.
    pub renewal: Option<(u8, Option<bool>)>,
}

/// What is asked for, from the first ask on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    /// The lease.
    pub lease: Lease,
    /// The number of the machine's request.
    pub request: u8,
    /// What the last letter of a grant told, if it told that: the token, and the last one before.
    pub told: Option<(u8, u8)>,
    /// It knows of its place by a letter that was written before the last answer.
    pub misled: bool,
    /// The answer to its last ask came too late to count.
    pub unanswered: bool,
}

/// An ask whose answer is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ask {
    /// What is asked for.
    pub attempt: Attempt,
    /// Who asks.
    pub asker: Asker,
    /// The ticks since it was sent.
    pub age: u8,
    /// The answer, on its way.
    pub reply: Option<Reply>,
    /// The question that went along.
    pub inquiry: Option<Inquiry>,
    /// A lease was ended by force since it was run.
    pub overtaken: bool,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asker {
    /// One who came, and found nobody before it.
    Itself,
    /// The writer of that number, in whose place it is to be.
    Writer(u8),
    /// The machine's request.
    Machine,
}

/// Whether the lease is there that a grant would be shared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inquiry {
    /// The lease.
    pub of: Lease,
    /// The answer, on its way.
    pub is_there: Option<bool>,
}

/// Redisson's client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// Somebody comes who wants this side. Beside readers it waits.
    Come(u8, Side),
    /// Its request asks again while it waits.
    Poll(u8),
    /// Its request asks since its time has come.
    Timer(u8),
    /// Another reader joins its lease.
    Join(u8),
    /// One who uses its lease is through.
    Leave(u8),
    /// The last one who uses it is through before its shortest hold is over.
    Keep(u8),
    /// Who asks by itself gives up.
    Abandon(u8),
    /// The waiter at that place gives up.
    GiveUp(u8, u8),
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
    /// The server runs its subscription of the lock's channel.
    Subscribe(u8),
    /// It hears on the channel of a release.
    HearRelease(u8),
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

impl Client {
    /// Whether somebody of it waits for this lease. A request that nobody wants any more may still ask.
    pub fn waits_for(&self, lease: Lease) -> bool {
        let is_asked_for = self.ask.is_some_and(|ask| {
            ask.attempt.lease == lease
                && (ask.asker != Asker::Machine || self.machine.is_wanted(ask.attempt.request))
        });
        is_asked_for || self.standing.is_some_and(|attempt| attempt.lease == lease)
    }

    /// Whether it will see to this lease: it holds it, waits for it, or has its release to send.
    pub fn knows(&self, lease: Lease) -> bool {
        let replaces = |ask: &Ask| match ask.asker {
            Asker::Writer(number) => number == lease.number && lease.side == Side::Write,
            Asker::Itself | Asker::Machine => false,
        };
        let ends = |request: &Request| match *request {
            Request::Release(other, _) | Request::Keep(other) => other == lease,
            _ => false,
        };
        self.held.is_some_and(|held| held.lease == lease)
            || self.ask.is_some_and(|ask| ask.attempt.lease == lease || replaces(&ask))
            || self.standing.is_some_and(|attempt| attempt.lease == lease)
            || self.requests.iter().any(ends)
    }

    /// Whether a request asks that nobody wants any more.
    pub fn asks_for_nobody(&self) -> bool {
        let asks = self.ask.filter(|ask| ask.asker == Asker::Machine);
        asks.is_some_and(|ask| !self.machine.is_wanted(ask.attempt.request))
    }

    /// Whether it uses the lock for writing.
    pub fn writes(&self) -> bool {
        self.held.is_some_and(|held| held.lease.side == Side::Write)
    }
}

impl Seen {
    /// Forgets what only tells that something has happened.
    pub fn forget_what_happened(&mut self) {
        self.by_letter = false;
        self.reopened = false;
        self.downgraded = false;
        self.took_over = false;
        self.replaced = false;
    }
}
