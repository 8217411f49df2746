//! What there is in a state, and what may happen in it. Times are counted down, but for ages, which stop at a limit.

use arrayvec::ArrayVec;

/// The server to which the lock's slot may move.
pub const TARGET: u8 = 2;

/// The model's state with `C` clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State<const C: usize> {
    /// The two of which one follows the other, and the one to which the lock's slot may move.
    pub servers: [Server<C>; 3],
    /// The one to which clients connect.
    pub current: u8,
    /// The clients.
    pub clients: [Client; C],
    /// Histories so far.
    pub histories: u8,
    /// Runs so far.
    pub runs: u8,
    /// How often each kind of fault has happened.
    pub spent: Spent,
    /// What has happened, for the properties; no client sees it.
    pub seen: Seen,
    /// The last token that a writer took, if there are readers: the time, of which only the order counts.
    pub time: u8,
}

/// One server, and what was sent to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Server<const C: usize> {
    /// What it does.
    pub role: Role,
    /// What a client asks for in its handshake.
    pub identity: Identity,
    /// It had another history in this run.
    pub had_another: bool,
    /// Ticks since its start, up to the grace.
    pub uptime: u8,
    /// Its data.
    pub data: Data,
    /// What each client has sent to it and was not run yet: runs in this order, at any later time.
    pub queues: [Requests; C],
}

/// Requests on one connection, in the order in which they run.
pub type Requests = ArrayVec<Request, 6>;

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It accepts writes.
    Master,
    /// It accepts none, and follows nobody yet; or the slot is elsewhere.
    Fenced,
    /// It follows the current master.
    Replica,
}

/// What distinguishes servers, and what their data comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Another one for each start.
    pub run: u8,
    /// Another one for each start and each promotion.
    pub history: u8,
}

/// What a server keeps, and a follower takes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Data {
    /// The lock's key: the lease, and the ticks until it expires.
    pub entry: Option<(Lease, u8)>,
    /// Which run and history a client has met, and its ticks since then, up to the grace.
    pub mark: Option<(Identity, u8)>,
    /// The time of the mark.
    pub marked_at: u8,
    /// The fencing counter.
    pub counter: u8,
}

/// A lease id: a client and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// Whose it is.
    pub client: u8,
    /// Which of that client's.
    pub number: u8,
}

/// What clients ask of servers. The numbers are those of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Request {
    /// `lock_acquire`, and what the server is behind it.
    Acquire(u8),
    /// `lock_renew`.
    Renew(u8),
    /// `lock_reclaim`, and what the server is behind it.
    Reclaim(u8),
    /// `lock_release`.
    Release(u8),
}

/// What servers answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reply {
    /// Granted or put back, by a server that is this, with this token.
    Yes(Identity, u8),
    /// Another holds the lock; or, to a renewal, the lease is not there.
    No,
    /// To a renewal: the lease is there.
    Ours,
}

/// One client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    /// The server of its connection, and what it was at the handshake.
    pub at: Option<(u8, Identity)>,
    /// It is connected, and has not asked for the mark yet.
    pub greeting: Option<(u8, Identity)>,
    /// What it does.
    pub phase: Phase,
    /// Acquires sent so far: the number of its newest lease.
    pub asked: u8,
    /// Ticks until the server's grants count for it.
    pub grace: u8,
    /// Ticks for which it may put leases back.
    pub reclaims: u8,
    /// Ticks since the request under way was sent.
    pub age: u8,
    /// The newest answer on its way back.
    pub reply: Option<Reply>,
    /// Ticks until the deadline of what it holds.
    pub left: u8,
    /// Where its lease was confirmed last.
    pub confirmed_in: Identity,
    /// Its token.
    pub token: u8,
    /// The time of the mark of the server of its connection: no token is below that.
    pub tokens_from: u8,
    /// Another client has begun to hold the lock while this one held it.
    pub was_passed: bool,
    /// It waits for the answer to its release.
    pub unlock: Option<Unlock>,
}

/// An unlock whose answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unlock {
    /// The number of the lease.
    pub number: u8,
    /// Ticks until its deadline.
    pub left: u8,
    /// Where the lease was confirmed last.
    pub confirmed_in: Identity,
    /// Another client had begun to hold the lock before.
    pub was_passed: bool,
    /// It was sent before, without an answer: so what the next one says tells of no loss.
    pub was_sent: bool,
    /// The answer on its way back: whether the server had the lease.
    pub held: Option<bool>,
}

/// What a client does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// An acquire is under way.
    Asking,
    /// It holds the lock.
    Held,
    /// It holds the lock, and a renewal is under way.
    Renewing,
    /// It holds the lock, and its lease is being put back.
    Reclaiming,
}

/// How often each kind of fault has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spent {
    /// Promotions.
    pub promotions: u8,
    /// Restarts.
    pub restarts: u8,
    /// Marks that were lost.
    pub marks: u8,
    /// Leases that were removed.
    pub removals: u8,
}

/// What has happened, for the properties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seen {
    /// Which client's hold began last by an acquire in the current history.
    pub newest: Option<u8>,
    /// A lease was put back although another client had begun to hold the lock in that history.
    pub late_reclaim: bool,
    /// A lease was put back where another client held the lock.
    pub over_another: bool,
    /// A lease was put back.
    pub reclaim: bool,
    /// A client that met a promoted server first could use it at once.
    pub trusted: bool,
    /// Two clients held the lock one after the other, the second on a promoted server.
    pub second: bool,
    /// The highest token with which a writer has held the lock.
    pub written: u8,
    /// A reader held the lock with an earlier token.
    pub stale: bool,
    /// An unlock told of a loss before the deadline, though nobody had removed the lease and nobody else could have had it.
    pub groundless: bool,
    /// An unlock whose server had nothing told of no loss, though another client had begun to hold the lock before it.
    pub concealed: bool,
    /// An unlock told of no loss, though the server had nothing.
    pub forgotten: bool,
}

/// What may happen next. The numbers are those of the client or the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The client connects to the current master, and asks what it is.
    Meet(u8),
    /// The client's script reads or sets the mark there, and the connection is in use.
    Mark(u8),
    /// The client sends an acquire.
    Ask(u8),
    /// The client gives its acquire up.
    GiveUp(u8),
    /// The client releases what it holds.
    Unlock(u8),
    /// The client sends a renewal.
    Renew(u8),
    /// The server runs the next request of the client.
    Run(u8, u8),
    /// The client hears the answer.
    Hear(u8),
    /// The other server takes over the current master's data.
    Replicate,
    /// The other server is promoted.
    Promote,
    /// The other server follows the current master from now on.
    Demote,
    /// The lock's slot moves to the third server, with its data or without.
    Move(bool),
    /// The current master starts again, without data.
    Restart,
    /// The client hears the answer to its release.
    HearUnlock(u8),
    /// The current master's lease is removed.
    Remove,
    /// The current master loses the mark.
    LoseMark,
    /// A tick for all clocks.
    Tick,
}

impl<const C: usize> State<C> {
    /// A master that has been up for long, and its follower.
    pub fn start(uptime: u8) -> Self {
        let server = |role, number| Server {
            role,
            identity: Identity { run: number, history: number },
            had_another: false,
            uptime,
            data: Data::default(),
            queues: std::array::from_fn(|_| Requests::new()),
        };
        State {
            servers: [server(Role::Master, 1), server(Role::Replica, 2), server(Role::Fenced, 3)],
            current: 0,
            clients: [Client::default(); C],
            histories: 3,
            runs: 3,
            spent: Spent::default(),
            seen: Seen::default(),
            time: 0,
        }
    }

    /// The server to which clients connect.
    pub fn master(&mut self) -> &mut Server<C> {
        &mut self.servers[usize::from(self.current)]
    }

    /// The other one of the two, while the lock is on one of them.
    pub fn other(&mut self) -> &mut Server<C> {
        &mut self.servers[1 - usize::from(self.current)]
    }

    /// The same state with the clients renamed: `names[old]` is the new one.
    pub fn renamed(&self, names: &[usize; C]) -> Self {
        let mut state = self.clone();
        for (old, &new) in names.iter().enumerate() {
            state.clients[new] = self.clients[old];
            for (server, before) in state.servers.iter_mut().zip(&self.servers) {
                server.queues[new] = before.queues[old].clone();
            }
        }
        for server in &mut state.servers {
            if let Some((lease, _)) = &mut server.data.entry {
                lease.client = names[usize::from(lease.client)] as u8;
            }
        }
        state.seen.newest = self.seen.newest.map(|client| names[usize::from(client)] as u8);
        state
    }
}

impl Client {
    /// Whether its guard says `is_held()`.
    pub fn holds(&self) -> bool {
        matches!(self.phase, Phase::Held | Phase::Renewing | Phase::Reclaiming) && self.left > 0
    }
}

impl Request {
    /// The number of the lease that it is about.
    pub fn number(self) -> u8 {
        match self {
            Request::Acquire(number)
            | Request::Renew(number)
            | Request::Reclaim(number)
            | Request::Release(number) => number,
        }
    }
}
