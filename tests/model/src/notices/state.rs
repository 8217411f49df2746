//! What there is in a state, and what may happen in it.

/// How many wait.
pub const WAITERS: usize = 2;

/// The model's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// What the key holds, and where it is; `None`: there is no key.
    pub key: Option<(Server, Value)>,
    /// Where the name is.
    pub slot: Slot,
    /// What the replica has of the key.
    pub copy: Option<Value>,
    /// The server's time.
    pub now: u8,
    /// Changes that are on their way.
    pub sent: u8,
    /// Who waits.
    pub waiters: [Waiter; WAITERS],
    /// The clocks of those who wait show the latch's end.
    pub end_is_near: bool,
    /// How many messages may still be lost, and how many subscriptions break.
    pub faults: (u8, u8),
    /// What has happened.
    pub past: Past,
}

/// A server, as one that waits tells them apart: the first, and the one that the slot moves to or that takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Server {
    /// Where the name is first.
    First,
    /// Where it goes.
    Second,
}

/// Where the name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// On this server.
    On(Server),
    /// On its way from the first to the second.
    Open,
}

/// What the key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value {
    /// Counts left, or the signal's number.
    pub number: u8,
    /// Which signal it is, so that two with one number are told apart.
    pub given: u8,
}

/// One who waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// What it does.
    pub step: Step,
    /// The server that it listens to.
    pub listens: Option<Server>,
    /// It has yet to look because of a message, or since it listens.
    pub woken: bool,
    /// A message to it is on its way.
    pub mail: bool,
    /// It has a timer.
    pub timer: bool,
    /// What it saw last: a latch that is shut, or the signal.
    pub saw: Option<(Server, Value)>,
    /// A message to it was lost.
    pub unheard: bool,
}

/// What one who waits does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// It asks.
    Asks,
    /// The answer is on its way.
    Answered(Server, Option<Value>),
    /// It subscribes.
    Subscribes,
    /// It waits to hear.
    Waits,
    /// It has gone on: the latch is open.
    WentOn,
    /// It was told that the latch is lost.
    ToldLost,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Past {
    /// How many changes have run.
    pub ran: u8,
    /// The highest number of a signal.
    pub highest: u8,
    /// A signal had no higher number than all before.
    pub went_back: bool,
    /// Who had seen a signal was shown an earlier one, or none.
    pub shown_back: bool,
    /// One went on before the last count: it had seen the latch shut, or the latch was not lost.
    pub opened_early: bool,
    /// A replica took over.
    pub failed_over: bool,
    /// The latch has ended by itself.
    pub ended: bool,
    /// One went on because of its timer.
    pub by_timer: bool,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The server runs a change.
    Change,
    /// A change is lost.
    Lose,
    /// The server answers one who asks.
    Answer(u8),
    /// It hears the answer.
    Hear(u8),
    /// The server confirms that it listens.
    Subscribe(u8),
    /// A message reaches it.
    Deliver(u8),
    /// A message to it is lost.
    Drop(u8),
    /// Its subscription breaks.
    Break(u8),
    /// It looks because it was woken.
    Look(u8),
    /// It looks because of its timer.
    Poll(u8),
    /// It notices that the name is elsewhere.
    Notice(u8),
    /// The slot begins to move.
    Open,
    /// The key moves.
    Move,
    /// The slot has moved.
    Close,
    /// The replica has what the master has.
    Copy,
    /// The replica takes over.
    FailOver,
    /// The clocks of those who wait show the latch's end.
    EndIsNear,
    /// The server deletes the latch at its end.
    End,
}

impl State {
    /// Where a request with the key runs: behind a redirect, if the key is not where the slot comes from.
    pub fn runs_on(&self) -> Server {
        match (self.slot, self.key) {
            (Slot::On(server), _) => server,
            (Slot::Open, Some((server, _))) => server,
            (Slot::Open, None) => Server::Second,
        }
    }

    /// Where those who wait should listen: until the slot has moved, to the server that gives it away.
    pub fn listened_to(&self) -> Server {
        match self.slot {
            Slot::On(server) => server,
            Slot::Open => Server::First,
        }
    }

    /// Whether one has gone on.
    pub fn has_gone_on(&self) -> bool {
        self.waiters.iter().any(|waiter| waiter.step == Step::WentOn)
    }

    /// Whether one was told that the latch is lost.
    pub fn is_told_lost(&self) -> bool {
        self.waiters.iter().any(|waiter| waiter.step == Step::ToldLost)
    }

    /// What the key holds.
    pub fn value(&self) -> Option<Value> {
        self.key.map(|(_, value)| value)
    }
}
