//! What there is in a state of the model, and what may happen in it.
//!
//! Times are relative: what is left until an end, or the age of something, up to the age at which nothing of it counts.

use std::sync::Arc;

use arrayvec::ArrayVec;
use leasehold::seam::machine::Seeker;

use super::case::Case;
use super::requests::{self, Requests, WaitsFor};
use super::wire::{Ask, Asker, HubRequest, Message, Reply, Request};

/// The model's state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    /// The lock's key.
    pub lock: Option<Lock>,
    /// The queue's entries, in order.
    pub queue: ArrayVec<Id, 6>,
    /// The first in the queue, if the last grant by message went to its process.
    pub silent: Option<Id>,
    /// Those who wait for the lock, each in a process.
    pub waiters: ArrayVec<Waiter, 4>,
    /// Our processes, and what is between each and the server.
    pub processes: ArrayVec<Process, 4>,
    /// Clients that follow `RLock`.
    pub javas: ArrayVec<Java, 2>,
    /// How often each thing has happened that is bounded.
    pub spent: Spent,
    /// Ticks until a clock may go wrong again.
    pub calm: i8,
    /// What has happened, for the properties; no client sees it.
    pub seen: Seen,
}

/// A lease id, which is also the queue's entry: fresh for every wait, so a waiter and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// Whose it is.
    pub waiter: u8,
    /// Which of that waiter's.
    pub number: u8,
}

/// Who holds the lock on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A lease of ours.
    Ours(Id),
    /// A client of Redisson.
    Java(u8),
}

/// The lock's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lock {
    /// Who holds it.
    pub holder: Holder,
    /// The server's ticks until it expires; without ticks 0 where it has expired since.
    pub left: i8,
}

/// One waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waiter {
    /// What it does.
    pub phase: Phase,
    /// Waits so far: the number of its newest lease.
    pub number: u8,
    /// The place of its newest wait among those of its process.
    pub arrival: u8,
    /// The number of the machine's request for it, once that has asked; or 0.
    pub request: u8,
    /// A message of a grant came for its present request, and has to be confirmed.
    pub told: bool,
    /// Its present request was asked, and there was no usable answer since.
    pub unanswered: bool,
    /// It holds the lock by a message.
    pub by_message: bool,
    /// The number of its first lease whose entry names a mailbox on the server that has the queue now.
    pub since: u8,
    /// Its ticks until the deadline of what it holds.
    pub left: i8,
    /// The token in the message of its grant, or that of what it holds (kept only where that is checked), as the number of
    /// tokens given since.
    pub token: u8,
}

/// What a waiter does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// It asks without waiting.
    Trying,
    /// It asks by itself, and waits if it is refused.
    First,
    /// The machine has a request for it.
    Waiting,
    /// It holds the lock.
    Held,
    /// It holds the lock and a renewal is under way.
    Renewing,
}

/// One process of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// Whether it goes on.
    pub life: Life,
    /// The requests of those who wait.
    pub machine: Arc<Requests>,
    /// Waits and attempts so far.
    pub arrivals: u8,
    /// Commands that were sent and have not run: they run in this order, at any later time.
    pub sent: ArrayVec<Request, 8>,
    /// What an earlier connection may still run.
    pub stray: ArrayVec<Request, 8>,
    /// Answers on their way.
    pub replies: ArrayVec<Reply, 8>,
    /// The server has restarted and this process does not know it yet: its commands go nowhere.
    pub cut: bool,
    /// The connection for subscriptions, as the process knows it.
    pub hub: Hub,
    /// The number of the mailbox's subscription that delivers letters, as the process knows it; or 0.
    pub epoch: u8,
    /// Subscriptions of the mailbox so far.
    pub subscriptions: u8,
    /// Subscriptions that were sent and have not run.
    pub hub_sent: ArrayVec<HubRequest, 6>,
    /// Messages on their way.
    pub inbox: ArrayVec<Message, 8>,
    /// It has asked for the lock's channel.
    pub listening: bool,
    /// The server has a subscription of its mailbox.
    pub mailbox: bool,
    /// The server has a subscription of the lock's channel.
    pub channel: bool,
    /// The server still counts a subscription of the mailbox on a connection that is broken.
    pub ghost_mailbox: bool,
    /// The same of the lock's channel.
    pub ghost_channel: bool,
    /// By how many ticks the newest ask whose answer was heard was sent before the server's time in that answer.
    pub sample: Option<i8>,
    /// The sample's age, where that matters: new, or not.
    pub sample_is_new: bool,
    /// It asks right behind its own release (kept where turns beside Java are counted).
    pub rests: bool,
    /// Its ticks until it believes grants again.
    pub quarantine: i8,
    /// An attempt came beside those who wait, and no request has asked since.
    pub hurried: bool,
    /// The queue is on another server, and it does not know that yet.
    pub follows: bool,
    /// What its last release left (kept where answers to releases are heard).
    pub last_release: LastRelease,
    /// Others had the message of a release whose answer it heard: it remembers that for longer than the turns that are counted.
    pub others_listen: bool,
}

/// What the last release of a process left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LastRelease {
    /// Nothing that matters to the next ask.
    #[default]
    Over,
    /// Its answer is not there yet.
    Pending(Id),
    /// Others had its message, and come first.
    Received,
}

/// Whether a process goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Life {
    /// It does.
    #[default]
    Live,
    /// It ended, and its connections with it.
    Ended,
    /// It does nothing any more, and its connections stay.
    Stopped,
}

/// The connection for subscriptions, as the process knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hub {
    /// Not needed so far.
    #[default]
    Off,
    /// The mailbox's subscription is not confirmed.
    Subscribing,
    /// It is.
    On,
    /// It is broken, and the process does not know it yet.
    Broken,
}

/// A client that follows `RLock`. A request of it runs and is answered in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Java {
    /// What it does.
    pub phase: JavaPhase,
    /// The server has its subscription of the lock's channel.
    pub subscribed: bool,
    /// What it waits for has happened: a message, or the end of the lease that it was told of.
    pub woken: bool,
    /// Whose lease it waits for.
    pub watches: Option<Holder>,
}

/// What a client of Redisson does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JavaPhase {
    /// Nothing.
    #[default]
    Idle,
    /// Its first request is on its way.
    Asking,
    /// Its subscription is on its way.
    Subscribing,
    /// A request behind the subscription is on its way.
    AskingAgain,
    /// It waits for a message or a lease's end.
    Waiting,
    /// It holds the lock.
    Held,
    /// Its release is on its way.
    Releasing,
    /// It ended.
    Ended,
}

/// How often each thing has happened that is bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the fields are those of `Case`")]
pub struct Spent {
    pub asks: u8,
    pub java_asks: u8,
    pub tries: u8,
    pub polls: u8,
    pub repeats: u8,
    pub cancels: u8,
    pub renewals: u8,
    pub crashes: u8,
    pub stops: u8,
    pub breaks: u8,
    pub resets: u8,
    pub doubles: u8,
    pub late: u8,
    pub forgets: u8,
    pub restarts: u8,
    pub moves: u8,
    pub forces: u8,
    pub skew: u8,
    pub steps: u8,
}

/// What has happened, for the properties. Each part is kept only where its property is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seen {
    /// The token of the last hold, as the number of tokens given since; `None` before the first.
    pub token: Option<u8>,
    /// A hold got a token that was not higher than the last one's.
    pub token_disorder: bool,
    /// Those who came into the queue and have not had their turn.
    pub arrivals: ArrayVec<Id, 6>,
    /// One of them had its turn before an earlier one.
    pub order_broken: bool,
    /// A run took out as many of those who are gone as it may, and told nobody who is behind them.
    pub cut_short: bool,
    /// The free lock was refused to somebody although nobody else who waits is there.
    pub refused_for_nobody: bool,
    /// Turns of ours since a client of Redisson waits.
    pub passed: u8,
    /// The lease that was ended by force while its client believed in it.
    pub forced: Option<Holder>,
    /// Something that a witness looks for.
    pub happened: Happened,
}

/// What a witness looks for: that what is proven is not proven of a model that stands still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Happened {
    /// A waiter held the lock by a message alone.
    pub granted: bool,
    /// A waiter held the lock after it had confirmed a grant.
    pub confirmed: bool,
    /// A renewal was confirmed.
    pub renewed: bool,
    /// A client of Redisson held the lock after a waiter had, and a waiter again after it.
    pub alternated: u8,
    /// A grant came in a quarantine.
    pub doubted: bool,
}

impl State {
    /// Nobody holds anything and nothing is on its way.
    pub fn start(case: &Case) -> Self {
        let waiter = Waiter::default();
        let hub = if case.subscribed { Hub::On } else { Hub::Off };
        let process = Process {
            hub,
            mailbox: case.subscribed,
            subscriptions: case.subscribed.into(),
            epoch: case.subscribed.into(),
            ..Process::default()
        };
        State {
            lock: None,
            queue: ArrayVec::new(),
            silent: None,
            waiters: case.homes.iter().map(|_| waiter).collect(),
            processes: (0..case.processes()).map(|_| process.clone()).collect(),
            javas: (0..case.javas).map(|_| Java::default()).collect(),
            spent: Spent::default(),
            calm: 0,
            seen: Seen::default(),
        }
    }

    /// Whether this lease holds the lock.
    pub fn has(&self, id: Id) -> bool {
        self.lock.is_some_and(|lock| lock.holder == Holder::Ours(id))
    }

    /// The waiter's newest lease.
    pub fn id(&self, waiter: usize) -> Id {
        Id { waiter: waiter as u8, number: self.waiters[waiter].number }
    }

    /// Whether its waiter is not through with this lease.
    pub fn wants(&self, id: Id) -> bool {
        let waiter = &self.waiters[usize::from(id.waiter)];
        waiter.phase != Phase::Idle && waiter.number == id.number
    }
}

impl State {
    /// What the machine's request for a waiter waits for; `None` if it asks, or there is none.
    pub fn waits_for(&self, case: &Case, waiter: usize) -> Option<WaitsFor> {
        let own = &self.waiters[waiter];
        let alone = case.homes.iter().filter(|home| **home == case.homes[waiter]).count() == 1;
        let seeker = if alone { Seeker::Ordinary } else { Seeker::Fair(own.arrival.into()) };
        let waits = own.phase == Phase::Waiting;
        waits.then(|| requests::waits(&self.processes[case.home(waiter)].machine, seeker))?
    }

    /// The message that the process reads next. One about a request that asks without the machine waits for the answer.
    pub fn next_message(&self, process: usize) -> Option<usize> {
        let waits = |message: &Message| {
            message.id().is_some_and(|id| {
                self.wants(id) && self.waiters[usize::from(id.waiter)].phase == Phase::First
            })
        };
        self.processes[process].inbox.iter().position(|message| !waits(message))
    }

    /// Whether nobody of a process waits or holds the lock, and something is left of those who waited.
    pub fn may_clear(&self, case: &Case, process: usize) -> bool {
        let own = &self.processes[process];
        let is_left =
            own.asks().any(|ask| ask.asker != Asker::Itself) || requests::is_paused(&own.machine);
        let waiters = self.waiters.iter().enumerate();
        let mut waiters = waiters.filter(|(waiter, _)| case.home(*waiter) == process);
        is_left && !waiters.any(|(_, waiter)| waiter.phase == Phase::Waiting || waiter.holds())
    }

    /// Whether the machine will have the waiter's request ask soon, with no poll.
    pub fn asks_soon(&self, case: &Case, waiter: usize) -> bool {
        let paused = requests::is_paused(&self.processes[case.home(waiter)].machine);
        let waits = self.waits_for(case, waiter);
        waits == Some(WaitsFor::Moment) || paused && waits.is_some()
    }
}

impl Waiter {
    /// Whether its guard says `is_held()`.
    pub fn holds(&self) -> bool {
        matches!(self.phase, Phase::Held | Phase::Renewing)
    }

    /// A waiter that does nothing, after this one's lease.
    pub fn idle(&self) -> Waiter {
        let Waiter { number, arrival, since, .. } = *self;
        Waiter { number, arrival, since, ..Waiter::default() }
    }
}

impl Process {
    /// The asks that were sent and are not answered.
    pub fn asks(&self) -> impl Iterator<Item = Ask> {
        let sent = self.sent.iter().filter_map(Request::ask);
        self.replies.iter().filter_map(Reply::ask).chain(sent)
    }

    /// Whether the server finds a subscriber of its mailbox.
    pub fn is_reached(&self) -> bool {
        self.mailbox || self.ghost_mailbox
    }

    /// Whether it goes on.
    pub fn is_live(&self) -> bool {
        self.life == Life::Live
    }
}
