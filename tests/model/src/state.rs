//! What there is in a state of the model, and what may happen in it.
//!
//! All that concerns one server (its data, its connections, what each client knows of it) stands in one
//! [`Node`], so that exchanging two servers is exchanging two values. Times are counted down, never up:
//! a state does not know how old it is, and there are finitely many of them.

use std::array::from_fn;

use arrayvec::ArrayVec;

/// The model's state: `N` servers, `C` clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State<const N: usize, const C: usize> {
    /// The servers, in no order that means anything.
    pub nodes: [Node<C>; N],
    /// The clients.
    pub clients: [Client; C],
    /// How often each kind of fault has happened.
    pub spent: Spent,
    /// The lease that an operator force-unlocked.
    pub forced: Option<Lease>,
    /// What has happened, for the properties; no client sees it.
    pub seen: Seen,
}

/// A lease id: fresh for every acquire, so a client and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// Whose it is.
    pub client: u8,
    /// Which of that client's.
    pub number: u8,
}

/// One server, and what is between it and each client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node<const C: usize> {
    /// The lock's key: who has it, and the server's ticks until it expires.
    pub entry: Option<(Lease, u8)>,
    /// The lock's counter of tokens.
    pub counter: u8,
    /// A force-unlock is on its way here.
    pub clearing: bool,
    /// Its ticks until a client that meets it first trusts it for its uptime.
    pub young: u8,
    /// It followed another, in the same run.
    pub followed: bool,
    /// One link for each client.
    pub links: [Link; C],
}

/// What is between one client and one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// Sent on the connection and not run yet: runs in this order, at any later time.
    pub queue: Requests,
    /// Sent on the connection before, which could not be killed: runs in this order, beside `queue`.
    pub stray: Requests,
    /// The newest answer on its way back. One that is never heard is one that was lost.
    pub reply: Option<Reply>,
    /// What the client has heard from this server about the request that it has under way.
    pub heard: Heard,
    /// The client's ticks for which this server is known to hold the lease, from a confirmation (a ttl).
    pub confirmed: u8,
    /// It was, when the renewal under way was sent.
    pub confirmed_at_send: bool,
    /// The client's ticks until this server's grants count again.
    pub quarantine: u8,
}

/// Requests on one connection, in the order in which they run. (Not a `Vec`: states are copied all the time.)
pub type Requests = ArrayVec<Request, 8>;

/// What clients ask of servers. The numbers are those of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Request {
    /// `lock_acquire`.
    Acquire(u8),
    /// `lock_acquire` for a lease that is held, which raises the counter to the end of the lease's block.
    Heal(u8, u8),
    /// `lock_renew`, and which renewal it belongs to.
    Renew(u8, u8),
    /// `fence_raise`, to this end.
    Raise(u8, u8),
    /// `lock_release`.
    Release(u8),
}

/// What servers answer. A release needs no answer: repeating it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reply {
    /// To an acquire or a heal: granted, with the end of the block.
    Granted(u8),
    /// To an acquire: another holds it.
    Refused,
    /// To a renewal: the lease is there.
    Ours,
    /// To a renewal: it is not.
    Gone,
    /// To `fence_raise`: done.
    Raised,
}

/// A server's vote, as a client has heard it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Heard {
    /// Nothing yet.
    #[default]
    Nothing,
    /// A grant that counts; the token is at least this there.
    Granted(u8),
    /// A grant that does not count.
    Quarantined,
    /// A refusal.
    Refused,
    /// Renewed.
    Ours,
    /// The lease is not there.
    Gone,
}

/// One client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    /// What it does.
    pub phase: Phase,
    /// Acquires sent so far: the number of its newest lease.
    pub asked: u8,
    /// Renewals sent so far.
    pub renewed: u8,
    /// Its ticks since the request under way was sent.
    pub age: u8,
    /// Its ticks until the deadline of what it holds.
    pub left: u8,
    /// The end of its block of tokens.
    pub token: u8,
    /// The highest token that anybody had when its acquire was sent; no client sees it.
    pub floor: u8,
}

/// What a client does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Nothing: it holds nothing and asks for nothing.
    #[default]
    Idle,
    /// An acquire is under way.
    Asking,
    /// A majority granted with different tokens: `fence_raise` is under way.
    Raising,
    /// It holds the lock.
    Held,
    /// It holds the lock, and a renewal is under way.
    Renewing,
    /// Only in rules that are wrong: the hold is over, and answers to its renewal are still acted upon.
    Over,
}

/// How often each kind of fault has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spent {
    /// Servers restarted.
    pub restarts: u8,
    /// Servers demoted and promoted.
    pub demotions: u8,
    /// Connections broken.
    pub breaks: u8,
    /// Requests run twice.
    pub doubles: u8,
    /// Ticks by which clocks went apart.
    pub skew: u8,
    /// Steps of a server's coarse clock, as far as they move a counter.
    pub steps: u8,
}

/// What has happened, for the properties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seen {
    /// The highest token that a hold was given.
    pub last_token: u8,
    /// All tokens given, a bit each.
    pub tokens: u32,
    /// A hold was given a token that was not higher than those before it, or not its own.
    pub disorder: bool,
    /// Who held the lock first (kept only by witnesses, as the next two).
    pub first: Option<u8>,
    /// A client held the lock after another.
    pub second: bool,
    /// A renewal was confirmed.
    pub renewal: bool,
    /// A heal put a lease back on a server.
    pub heal: bool,
}

/// What may happen next. The numbers are those of the node and of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The client sends an acquire to all servers.
    Ask(u8),
    /// The client gives its acquire up: its time is over, or the future was dropped.
    GiveUp(u8),
    /// The client releases what it holds.
    Unlock(u8),
    /// The client sends a renewal to all servers.
    Renew(u8),
    /// The node runs the next request of the client.
    Run(u8, u8),
    /// The node runs the next request of the client, and will run it again.
    RunTwice(u8, u8),
    /// The node runs the next request of a connection that the client gave up.
    RunStray(u8, u8),
    /// The client hears the node's answer.
    Hear(u8, u8),
    /// The client's connection to the node is cut and made again.
    Break(u8, u8),
    /// The node stops and starts again.
    Restart(u8),
    /// The node follows another, gets its data, and is a master again. Its connections stay.
    Demote(u8),
    /// A tick for all clocks.
    Tick,
    /// A tick for all clocks but the client's: its clock is slow.
    TickWithoutClient(u8),
    /// A tick for the client's clock only: it is fast.
    TickOfClient(u8),
    /// A tick for the node's clock only: it is fast.
    TickOfNode(u8),
    /// A hold ends on the node, at any time (where time is not modelled).
    Expire(u8),
    /// The node's coarse clock overtakes its counter.
    ClockStep(u8),
    /// An operator force-unlocks what the client holds.
    Force(u8),
    /// The force-unlock reaches the node.
    Clear(u8),
}

impl<const N: usize, const C: usize> State<N, C> {
    /// Nobody holds anything and nothing is on its way.
    pub fn start() -> Self {
        State {
            nodes: from_fn(|_| Node {
                entry: None,
                counter: 0,
                clearing: false,
                young: 0,
                followed: false,
                links: from_fn(|_| Link::default()),
            }),
            clients: [Client::default(); C],
            spent: Spent::default(),
            forced: None,
            seen: Seen::default(),
        }
    }

    /// On how many nodes the lease is.
    pub fn copies(&self, lease: Lease) -> usize {
        self.nodes.iter().filter(|node| node.has(lease)).count()
    }

    /// The same state with the clients renamed: `names[old]` is the new one.
    pub fn renamed(&self, names: &[usize; C]) -> Self {
        let lease = |lease: Lease| Lease { client: names[lease.client as usize] as u8, ..lease };
        let mut state = self.clone();
        for (old, &new) in names.iter().enumerate() {
            state.clients[new] = self.clients[old];
            for (node, before) in state.nodes.iter_mut().zip(&self.nodes) {
                node.links[new] = before.links[old].clone();
            }
        }
        for node in &mut state.nodes {
            node.entry = node.entry.map(|(holder, left)| (lease(holder), left));
        }
        state.forced = self.forced.map(lease);
        state.seen.first = self.seen.first.map(|first| names[first as usize] as u8);
        state
    }
}

impl<const C: usize> Node<C> {
    /// Whether the lease is here.
    pub fn has(&self, lease: Lease) -> bool {
        self.entry.is_some_and(|(holder, _)| holder == lease)
    }
}

impl Client {
    /// Whether its guard says `is_held()`.
    pub fn holds(&self) -> bool {
        matches!(self.phase, Phase::Held | Phase::Renewing) && self.left > 0
    }

    /// Whether it is not through with its newest lease.
    pub fn wants_its_lease(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Over)
    }
}

impl Request {
    /// The number of the lease that it is about.
    pub fn number(self) -> u8 {
        match self {
            Request::Acquire(number)
            | Request::Heal(number, _)
            | Request::Renew(number, _)
            | Request::Raise(number, _)
            | Request::Release(number) => number,
        }
    }

    /// Whether it can put that lease on a server.
    pub fn creates(self, number: u8) -> bool {
        matches!(self, Request::Acquire(_) | Request::Heal(..)) && self.number() == number
    }
}
