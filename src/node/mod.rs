//! One Redis deployment: a command connection that is made again when it breaks, and a hub of subscriptions.
//!
//! * Commands run in the order in which they were sent, on one connection. A call that was sent on a
//!   broken connection may still run, late.
//! * Only releases cross connections. What is owed is sent first on a new connection, after the old one
//!   was killed on the server, so that nothing of it can run behind the release.
//! * Every call ends by its own time, whatever the connection does. A server that answers nothing for the
//!   response timeout, and the connection is given up.

mod connector;
mod farewell;
mod greeting;
mod handshake;
mod hub;
mod link;
#[allow(dead_code)] // The engine will use it.
mod mailbox;
mod past;
mod predecessors;
mod quarantine;
#[allow(dead_code)] // The engine will use it.
mod server_time;
mod servers;
mod status;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[cfg(leasehold_sim)]
pub use connector::{Connecting, command_config};
pub use connector::{Connector, Network};
pub(crate) use farewell::Farewell;
pub(crate) use handshake::Facts;
pub(crate) use hub::{Signal, Subscription};
pub(crate) use link::{Generation, PendingRelease, Sent};
#[allow(unused_imports)] // The engine will use them.
pub(crate) use mailbox::{Epoch, Inbox, Letter, Mailbox, MailedGrant, Registration};
pub(crate) use server_time::ServerTime;
pub(crate) use servers::Servers;
pub use status::{NodeState, NodeStatus};

use crate::clock::{Clock, Timestamp};
use crate::config::{Address, Config};
use crate::error::{Error, Fault};
use crate::events::{self, Burst, Events, Outage};
use crate::key::LeaseId;
use crate::script::{Call, Reply};
use connector::Sockets;
use farewell::{LastConnection, Patience};
use greeting::Greeting;
use handshake::{Handshake, Met};
use hub::Hub;
use link::{Connection, Link, LinkState, Sending};
use predecessors::Predecessors;
use quarantine::Quarantine;

/// One Redis deployment. Clones are the same.
#[derive(Clone)]
pub(crate) struct Node {
    shared: Arc<Shared>,
}

struct Shared {
    /// Without credentials.
    address: Arc<str>,
    connector: Arc<dyn Connector>,
    greeting: Greeting,
    clock: Clock,
    response_timeout: Duration,
    connect_timeout: Duration,
    /// Among the nodes of a quorum: whose servers the others have.
    servers: Option<Arc<Servers>>,
    quarantine: Mutex<Quarantine>,
    link: Mutex<Link>,
    /// The newest generation; changes when a connection is up.
    generation: watch::Sender<Generation>,
    /// Wakes the supervisor: the connection was given up.
    given_up: Notify,
    /// Wakes those who wait for a release that is owed.
    settled: Notify,
    /// Notified when the server may have forgotten leases: another one answers, or it restarted.
    forgot: Notify,
    /// Since when no call has had an answer; nanoseconds on the client's clock, 0: there was one.
    silent_since: AtomicU64,
    /// Releases that were sent and are for the supervisor to see through.
    owing: mpsc::UnboundedSender<(LeaseId, Sending)>,
    closing: CancellationToken,
    connections_made: AtomicU64,
    /// How long an answer takes, smoothed; nanoseconds.
    round_trip: AtomicU64,
    /// The latest reading of the server's clock.
    server_time: Mutex<Option<ServerTime>>,
    /// Why the last attempt to connect failed, or the last connection was given up.
    last_fault: Mutex<Option<Fault>>,
    hub: Hub,
    /// What is said after the runtime.
    last_connection: Mutex<LastConnection>,
    /// The client's tasks are gone: who owes a release sends it.
    deserted: AtomicBool,
    patience: Arc<Patience>,
}

/// What the nodes of one client have in common.
#[derive(Clone, Copy)]
pub(crate) struct Common<'a> {
    pub(crate) network: Option<&'a Arc<dyn Network>>,
    pub(crate) config: &'a Config,
    pub(crate) clock: &'a Clock,
    pub(crate) tasks: &'a TaskTracker,
    pub(crate) events: &'a Arc<Events>,
    pub(crate) servers: Option<&'a Arc<Servers>>,
    pub(crate) farewell: &'a Arc<Farewell>,
}

impl Node {
    /// Starts to keep a connection. The second value tells how the first attempt went, which lasts for the
    /// connect timeout at most; only a node among `servers` goes on trying after a failure.
    pub(crate) fn start(address: &Address, common: &Common<'_>) -> Result<(Self, First), Error> {
        let Common { network, config, clock, tasks, events, servers, farewell } = *common;
        let connector = match network {
            Some(network) => network.connector(&address.shown),
            None => {
                let sockets = Sockets::new(address, patience(config.ttl)).map_err(|error| {
                    let fault = Fault::from_redis(&error, &address.secrets);
                    Error::from_fault(&address.shown, None, fault)
                })?;
                Arc::new(sockets)
            }
        };
        let (owing, owed) = mpsc::unbounded_channel();
        let greeting = Greeting::of(address);
        let hub = Hub::start(
            address.shown.clone(),
            connector.clone(),
            greeting.clone(),
            clock.clone(),
            config,
            tasks,
        );
        let shared = Arc::new(Shared {
            address: address.shown.clone(),
            connector,
            greeting,
            clock: clock.clone(),
            response_timeout: config.response_timeout,
            connect_timeout: config.connect_timeout,
            servers: servers.cloned(),
            quarantine: Mutex::new(Quarantine::new(config.quarantine())),
            link: Mutex::new(Link {
                state: LinkState::Down(Fault::Down("not connected yet".into())),
                owed: BTreeMap::new(),
            }),
            generation: watch::Sender::new(0),
            given_up: Notify::new(),
            settled: Notify::new(),
            forgot: Notify::new(),
            silent_since: AtomicU64::new(0),
            owing,
            closing: CancellationToken::new(),
            connections_made: AtomicU64::new(0),
            round_trip: AtomicU64::new(0),
            server_time: Mutex::new(None),
            last_fault: Mutex::new(None),
            hub,
            last_connection: Mutex::default(),
            deserted: AtomicBool::new(false),
            patience: farewell.patience.clone(),
        });
        farewell.join(&shared);
        let supervisor = Supervisor {
            shared: shared.clone(),
            owed,
            lost: Arc::default(),
            settling: FuturesUnordered::new(),
            predecessors: Predecessors::default(),
            may_listen: false,
            events: events.clone(),
            losses: Burst::default(),
            outage: None,
            done: false,
            _farewell: farewell.clone(),
        };
        let (tell, first) = oneshot::channel();
        // On the client's own runtime, where the connection's task is to live.
        tasks.spawn_on(supervisor.run(tell), shared.clock.runtime());
        Ok((Self { shared }, first))
    }

    /// A node that never has a connection.
    #[cfg(test)]
    pub(crate) fn unconnected(clock: &Clock) -> Self {
        let common = Common {
            network: Some(&(Arc::new(connector::Nowhere) as Arc<dyn Network>)),
            config: &Config::default(),
            clock,
            tasks: &TaskTracker::new(),
            events: &Arc::default(),
            servers: None,
            farewell: &Arc::default(),
        };
        let address = Address::parse("redis://nowhere").expect("a valid URL");
        Self::start(&address, &common).expect("it connects to nothing").0
    }

    /// The server's address, without credentials.
    pub(crate) fn address(&self) -> &Arc<str> {
        &self.shared.address
    }

    /// Puts a call on the wire behind all that were sent before. Does not wait.
    pub(crate) fn send(&self, call: &Call) -> Result<Sent, Fault> {
        self.send_by(|up| up.send(call, false))
    }

    /// Puts a call on the wire again, whole, after the server did not know its script.
    pub(crate) fn send_whole(&self, call: &Call) -> Result<Sent, Fault> {
        self.send_by(|up| up.send(call, true))
    }

    /// As [`send`](Self::send), for what may grant something: it fails where the server has not the data any more
    /// that it had when it was met.
    pub(crate) fn send_vote(&self, call: &Call) -> Result<Sent, Fault> {
        self.send_by(|up| up.send_vote(call, false))
    }

    /// As [`send_vote`](Self::send_vote), whole.
    pub(crate) fn send_vote_whole(&self, call: &Call) -> Result<Sent, Fault> {
        self.send_by(|up| up.send_vote(call, true))
    }

    fn send_by(&self, send: impl FnOnce(&Connection) -> Sent) -> Result<Sent, Fault> {
        // Read before the sending: an answer then knows of a subscription that was confirmed before it.
        let epoch = self.mailbox().epoch();
        let mut sent = self.shared.link.lock().state.connection().map(send)?;
        sent.epoch = epoch;
        Ok(sent)
    }

    /// Where the server writes to this client about its queued requests.
    pub(crate) fn mailbox(&self) -> &Mailbox {
        self.shared.hub.mailbox()
    }

    #[allow(dead_code)] // The engine will use it.
    /// Subscribes to the mailbox, if that was not done yet. Does not wait: a [`Letter::Subscribed`] follows.
    pub(crate) fn open_mailbox(&self) {
        self.shared.hub.open_mailbox();
    }

    #[allow(dead_code)] // The engine will use it.
    /// Takes in what the server said about its clock, for [`not_before`](Self::not_before).
    pub(crate) fn note_server_time(&self, read: ServerTime) {
        let mut latest = self.shared.server_time.lock();
        if latest.is_none_or(|latest| latest.sent_at <= read.sent_at) {
            *latest = Some(read);
        }
    }

    #[allow(dead_code)] // The engine will use it.
    /// Returns a time at or before the moment of a grant that arrived in the mailbox. `None` if the server's clock was
    /// not read on the present connection since the subscription that delivered the grant was confirmed.
    pub(crate) fn not_before(&self, grant: &MailedGrant) -> Option<Timestamp> {
        let generation = self.shared.link.lock().state.connection().ok()?.generation;
        let read = (*self.shared.server_time.lock())?;
        read.is_of(generation, grant.epoch).then(|| read.not_before(grant.server_us))
    }

    /// Takes in what an answer means for the connection that it came on.
    pub(crate) fn note_answer(&self, generation: Generation, answer: &Result<Reply, Fault>) {
        self.shared.note_answer(generation, answer);
    }

    /// Takes in that a call had no answer from `sent_at` until now.
    pub(crate) fn unanswered(&self, generation: Generation, sent_at: Timestamp) {
        self.shared.unanswered(generation, sent_at);
    }

    /// Sees to it that a release reaches the server, now or on a later connection. `sent` is its first
    /// sending, if there was one.
    pub(crate) fn leave_release(
        &self,
        id: LeaseId,
        mut release: PendingRelease,
        sent: Option<Sent>,
    ) {
        let mut link = self.shared.link.lock();
        let sending = match (sent, &link.state) {
            (Some(sent), _) => Some(Sending { sent, first: None }),
            (None, LinkState::Up(connection)) => Some(release.send(connection, false)),
            (None, LinkState::Down(_)) => None,
        };
        link.owed.insert(id.clone(), release);
        if let Some(sending) = sending {
            // Fails when the supervisor is gone, and with it the runtime: then nothing can be sent.
            let _ = self.shared.owing.send((id, sending));
        }
    }

    /// Sends what these nodes owe, and waits for it within limits, if their runtime is gone.
    pub(crate) fn say_farewell(nodes: &[Self]) {
        if let [first, ..] = nodes
            && first.shared.clock.is_stopped()
        {
            farewell::say(nodes.iter().map(|node| &node.shared), &first.shared.patience);
        }
    }

    /// Waits until nothing is owed; where `others` can make up for it, not while there is no connection.
    pub(crate) async fn all_released(&self, others: bool) {
        loop {
            let mut next = std::pin::pin!(self.shared.settled.notified());
            next.as_mut().enable();
            {
                let link = self.shared.link.lock();
                if link.owed.is_empty() || (others && !link.state.is_up()) {
                    return;
                }
            }
            next.await;
        }
    }

    /// Whether a release that was owed is owed no more, waited for until `until`.
    pub(crate) async fn released(&self, id: &LeaseId, until: Timestamp) -> bool {
        let gone = async {
            loop {
                let mut next = std::pin::pin!(self.shared.settled.notified());
                next.as_mut().enable();
                {
                    let link = self.shared.link.lock();
                    if !link.owed.contains_key(id) {
                        return true;
                    }
                    if matches!(link.state, LinkState::Down(Fault::Closed)) {
                        return false;
                    }
                }
                next.await;
            }
        };
        self.shared.clock.until(until, gone).await.unwrap_or(false)
    }

    /// Waits until the server may have forgotten leases. For one who waits.
    pub(crate) async fn forgets(&self) {
        self.shared.forgot.notified().await;
    }

    /// Waits for a connection; the reason why there is none at `until`.
    pub(crate) async fn up(&self, until: Timestamp) -> Result<(), Fault> {
        let mut generation = self.shared.generation.subscribe();
        loop {
            generation.mark_unchanged();
            match &self.shared.link.lock().state {
                LinkState::Up(_) => return Ok(()),
                LinkState::Down(fault) if !fault.may_pass() => return Err(fault.clone()),
                LinkState::Down(_) => {}
            }
            if self.shared.clock.until(until, generation.changed()).await.is_none() {
                return self.shared.link.lock().state.connection().map(|_| ());
            }
        }
    }

    /// Listens on a channel.
    pub(crate) fn subscribe(&self, channel: &Arc<str>) -> Subscription {
        self.shared.hub.subscribe(channel)
    }

    /// The smoothed time of a round trip.
    pub(crate) fn round_trip(&self) -> Duration {
        self.shared.round_trip()
    }

    /// Takes in that a call was answered.
    pub(crate) fn note_round_trip(&self, sent_at: Timestamp, now: Timestamp) {
        self.shared.note_round_trip(now.since(sent_at));
    }

    pub(crate) fn connections_made(&self) -> u64 {
        self.shared.connections_made.load(Ordering::Relaxed) + self.shared.hub.connections_made()
    }

    /// Why an acquire that is sent at `now` would not count here, if it would not.
    pub(crate) fn bar(&self, now: Timestamp) -> Option<Fault> {
        let (counts_from, fault) = match &self.shared.link.lock().state {
            LinkState::Up(connection) => (connection.counts_from, None),
            LinkState::Down(fault) => (self.counts_from(), Some(fault.clone())),
        };
        let left = counts_from.since(now);
        if left.is_zero() { fault } else { Some(Fault::Quarantined(left)) }
    }

    /// From when on its grants count, as far as is known.
    pub(crate) fn counts_from(&self) -> Timestamp {
        self.shared.quarantine.lock().until
    }

    /// What operators want to know of it.
    pub(crate) fn status(&self) -> NodeStatus {
        status::of(&self.shared)
    }

    pub(crate) fn pending_releases(&self) -> usize {
        self.shared.link.lock().owed.len()
    }

    pub(crate) fn subscriptions(&self) -> usize {
        self.shared.hub.len()
    }

    /// What the server says of itself that bears on the promises of a lock.
    pub(crate) async fn facts(&self, limit: Duration) -> Result<Facts, Fault> {
        let connection = self.shared.link.lock().state.connection()?.clone();
        handshake::facts(&self.shared, &connection, limit).await
    }

    /// Ends the tasks of this node once nothing is owed any more, or no lease that is owed can still stand.
    pub(crate) fn close(&self) {
        self.shared.closing.cancel();
        self.shared.hub.closing().cancel();
    }
}

impl Shared {
    async fn answer(&self, sent: &mut Sent, within: Duration) -> Result<Reply, Fault> {
        let sent_at = self.clock.now();
        let answer = self.clock.until(sent_at.plus(within), &mut *sent).await;
        match &answer {
            Some(answer) => self.note_answer(sent.generation, answer),
            None => self.unanswered(sent.generation, sent_at),
        }
        answer.unwrap_or(Err(Fault::NoAnswer(within)))
    }

    fn note_answer(&self, generation: Generation, answer: &Result<Reply, Fault>) {
        match answer {
            Err(Fault::Broken(_)) => return self.give_up(generation, "the connection broke"),
            Err(Fault::Refused(cause)) if cause.takes_no_writes() => {
                self.give_up(generation, &cause.to_string());
            }
            Err(fault @ Fault::Replaced) => self.give_up(generation, &fault.to_string()),
            _ => {}
        }
        if self.silent_since.load(Ordering::Relaxed) != 0 {
            self.silent_since.store(0, Ordering::Relaxed);
        }
    }

    fn note_round_trip(&self, took: Duration) {
        let new = took.as_nanos() as u64;
        let old = self.round_trip.load(Ordering::Relaxed);
        // Callers that were kept from running measure too much, never too little.
        let smoothed = if old == 0 || new < old { new } else { old + (new - old) / 16 };
        self.round_trip.store(smoothed, Ordering::Relaxed);
    }

    fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.round_trip.load(Ordering::Relaxed))
    }

    /// `future`'s output; `None` if the client is closed meanwhile and nothing is owed.
    async fn while_needed<F: Future>(&self, future: F) -> Option<F::Output> {
        if self.link.lock().owed.is_empty() {
            self.closing.run_until_cancelled(future).await
        } else {
            Some(future.await)
        }
    }

    /// Whether answers of this node are votes, or its restarts matter: then its server must be known.
    fn votes(&self) -> bool {
        self.servers.is_some() || self.quarantine.lock().is_on()
    }

    /// A call that was sent at `sent_at` had no answer in its time. Silence for as long as an answer may
    /// take at most, and the connection is given up.
    fn unanswered(&self, generation: Generation, sent_at: Timestamp) {
        let sent_at = sent_at.nanos().max(1);
        let since = self
            .silent_since
            .compare_exchange(0, sent_at, Ordering::Relaxed, Ordering::Relaxed)
            .map_or_else(|since| since, |_| sent_at);
        let silent = Duration::from_nanos(self.clock.now().nanos().saturating_sub(since));
        if silent >= self.response_timeout {
            self.give_up(generation, "the server does not answer");
        }
    }

    /// Takes a connection out of use.
    fn give_up(&self, generation: Generation, why: &str) {
        let mut link = self.link.lock();
        if matches!(&link.state, LinkState::Up(up) if up.generation == generation) {
            link.state = LinkState::Down(Fault::Down(why.into()));
            drop(link);
            *self.last_fault.lock() = Some(Fault::Down(why.into()));
            let now = self.clock.now();
            if let Some(servers) = &self.servers {
                servers.leave(&self.address, now);
            }
            // It tells others: who gives up a connection may do so under a mutex.
            self.given_up.notify_one();
        }
    }
}

/// How the first attempt to connect went.
pub(crate) type First = oneshot::Receiver<Result<(), Fault>>;

/// The task that keeps a node's command connection, and what is owed on it.
struct Supervisor {
    shared: Arc<Shared>,
    owed: mpsc::UnboundedReceiver<(LeaseId, Sending)>,
    /// Notified by the connection itself when the server closes it.
    lost: Arc<Notify>,
    settling: FuturesUnordered<Settling>,
    predecessors: Predecessors,
    /// It was tried once whether this user may subscribe.
    may_listen: bool,
    events: Arc<Events>,
    /// How often connections were lost of late.
    losses: Burst,
    /// There was a connection, and there is none.
    outage: Option<Outage>,
    /// All was done that this task is for.
    done: bool,
    _farewell: Arc<Farewell>,
}

type Settling = std::pin::Pin<Box<dyn Future<Output = Settled> + Send>>;

struct Settled {
    id: LeaseId,
    generation: Generation,
    /// `None`: it is time to send it again.
    answer: Option<Result<Reply, Fault>>,
    first: Option<oneshot::Sender<Reply>>,
}

impl Supervisor {
    /// Connects, tells how that went, and serves from then on.
    async fn run(mut self, tell: oneshot::Sender<Result<(), Fault>>) {
        let shared = self.shared.clone();
        let until = shared.clock.now().plus(shared.connect_timeout);
        let closing = shared.closing.clone();
        let first = closing.run_until_cancelled(self.connect_first(until)).await;
        let first = first.unwrap_or(Err(Fault::Closed));
        if let Err(fault) = &first {
            self.failed(fault);
            // Alone, there is nothing to go on with.
            self.done = shared.servers.is_none();
        }
        // Nobody listens if the client was given up meanwhile: then it is closed, too.
        let _ = tell.send(first);
        if self.done {
            shared.hub.closing().cancel();
            return;
        }
        self.serve().await;
    }

    /// Connects for the first time. A server that is only starting is waited for, until `until`.
    async fn connect_first(&mut self, until: Timestamp) -> Result<(), Fault> {
        let clock = self.shared.clock.clone();
        let mut before = None;
        for attempt in 0.. {
            let fault = match (self.connect(until).await, before.take()) {
                (Ok(()), _) => return Ok(()),
                // Its time was cut short: why the one before failed says more.
                (Err(Fault::NoAnswer(_)), Some(before)) => before,
                (Err(fault), _) => fault,
            };
            events::connecting_failed(&self.shared.address, &fault, attempt);
            let next_at = clock.now().plus(clock.back_off(attempt, LONGEST_PAUSE_AT_START));
            if !fault.may_pass_at_start() || next_at >= until || clock.is_stopped() {
                return Err(fault);
            }
            self.failed(&fault);
            before = Some(fault);
            clock.sleep_until(next_at).await;
        }
        Err(Fault::Closed)
    }

    fn failed(&self, fault: &Fault) {
        if let Some(servers) = &self.shared.servers {
            servers.leave(&self.shared.address, self.shared.clock.now());
        }
        *self.shared.last_fault.lock() = Some(fault.clone());
        self.shared.link.lock().state = LinkState::Down(match fault {
            Fault::Denied { .. } | Fault::Down(_) => fault.clone(),
            fault => Fault::Down(fault.to_string().into()),
        });
    }

    async fn serve(mut self) {
        let mut attempt = 0;
        loop {
            let since = self.shared.clock.now();
            self.use_connection().await;
            if self.done {
                return;
            }
            self.connection_lost();
            self.settling.clear();
            // A connection that breaks at once was no success: a server may do so for ever.
            if self.shared.clock.now().since(since) >= LASTING {
                attempt = 0;
            }
            if !self.reconnect(&mut attempt).await {
                self.done = true;
                return;
            }
        }
    }

    /// Sees releases through until the connection is given up, or all is done.
    async fn use_connection(&mut self) {
        let shared = self.shared.clone();
        let mut closing = false;
        while shared.link.lock().state.is_up() {
            if closing && shared.link.lock().owed.is_empty() {
                self.done = true;
                return;
            }
            tokio::select! {
                biased;
                () = self.lost.notified() => {
                    let generation = *shared.generation.borrow();
                    shared.give_up(generation, "the server closed the connection");
                }
                () = shared.given_up.notified() => {}
                Some(settled) = self.settling.next() => self.settled(settled),
                Some((id, sending)) = self.owed.recv() => self.see_through(id, sending),
                () = shared.closing.cancelled(), if !closing => closing = true,
            }
        }
    }

    /// Tells of a connection that was given up.
    fn connection_lost(&mut self) {
        let shared = &self.shared;
        shared.settled.notify_waiters();
        let reason = match &*shared.last_fault.lock() {
            Some(Fault::Down(why)) => why.clone(),
            _ => "the connection was abandoned".into(),
        };
        let (losses, now) = (&mut self.losses, shared.clock.now());
        let outage = self.events.connection_lost(&shared.address, &reason, losses, now);
        self.outage.get_or_insert(outage);
    }

    fn see_through(&mut self, id: LeaseId, Sending { mut sent, first }: Sending) {
        let shared = self.shared.clone();
        self.settling.push(Box::pin(async move {
            let generation = sent.generation;
            let began_at = shared.clock.now();
            let answer = Some(shared.answer(&mut sent, shared.response_timeout).await);
            // A node that is slower than the majority is only ever answered here.
            if shared.servers.is_some() && matches!(answer, Some(Ok(_))) {
                shared.note_round_trip(shared.clock.now().since(began_at));
            }
            Settled { id, generation, answer, first }
        }));
    }

    fn send_again(&mut self, id: LeaseId, with_body: bool) {
        let mut link = self.shared.link.lock();
        let Link { state, owed } = &mut *link;
        if let (Some(owed), Ok(connection)) = (owed.get_mut(&id), state.connection()) {
            let sending = owed.send(connection, with_body);
            drop(link);
            self.see_through(id, sending);
        }
    }

    fn settled(&mut self, Settled { id, generation, answer, first }: Settled) {
        let mut link = self.shared.link.lock();
        let Link { state, owed: all } = &mut *link;
        let (Some(owed), Ok(connection)) = (all.get_mut(&id), state.connection()) else {
            return;
        };
        match (&answer, first) {
            // Before it is owed no more: an unlock then looks for it. That is not woken by it, and may be gone.
            (Some(Ok(reply)), Some(first)) => drop(first.send(reply.clone())),
            // It did not run: the next sending is the first one.
            (Some(Err(Fault::NoScript)), first) => owed.first = first,
            _ => {}
        }
        let now = self.shared.clock.now();
        let is_over = now > owed.until;
        let last_word = Some(generation) == owed.acquired_on
            || (generation == connection.generation && connection.is_alone(now, owed.ttl))
            || is_over;
        match answer {
            None => {
                drop(link);
                self.send_again(id, false);
            }
            Some(Err(Fault::NoScript)) => {
                drop(link);
                self.send_again(id, true);
            }
            Some(Err(Fault::Denied { .. } | Fault::WrongType | Fault::Closed)) => {
                all.remove(&id);
                drop(link);
                self.shared.settled.notify_waiters();
            }
            Some(Ok(_)) if last_word => {
                all.remove(&id);
                drop(link);
                self.shared.settled.notify_waiters();
            }
            // Whatever it says: the lease is over, and a server that still refuses may do so for ever.
            Some(Err(fault)) if is_over && fault.is_answer() => {
                all.remove(&id);
                drop(link);
                self.shared.settled.notify_waiters();
            }
            Some(answer) => {
                let clock = self.shared.clock.clone();
                let pause = owed.pause(&clock, now, answer.is_ok());
                drop(link);
                self.settling.push(Box::pin(async move {
                    clock.sleep(pause).await;
                    Settled { id, generation, answer: None, first: None }
                }));
            }
        }
    }

    /// Tries until there is a connection; false once nothing is left to do on one.
    ///
    /// The first attempt is made at once. `attempt` counts those since the last connection that lasted.
    async fn reconnect(&mut self, attempt: &mut u32) -> bool {
        let shared = self.shared.clone();
        let mut first = true;
        loop {
            if shared.clock.is_stopped() {
                return false;
            }
            if *attempt > 0 {
                let pause = shared.clock.sleep(shared.clock.back_off(*attempt, LONGEST_PAUSE));
                shared.while_needed(pause).await;
            }
            *attempt = attempt.saturating_add(1);
            if shared.closing.is_cancelled() {
                let now = shared.clock.now();
                let mut link = shared.link.lock();
                link.owed.retain(|_, owed| owed.until > now);
                let nothing_owed = link.owed.is_empty();
                drop(link);
                shared.settled.notify_waiters();
                if nothing_owed {
                    return false;
                }
            }
            let until = shared.clock.now().plus(shared.connect_timeout);
            let fault = match shared.while_needed(self.connect(until)).await {
                Some(Ok(())) => return true,
                Some(Err(fault)) => fault,
                None => continue,
            };
            if let (Fault::SameServer(problem), true) = (&fault, std::mem::take(&mut first)) {
                events::node_not_used(&shared.address, problem);
            }
            events::connecting_failed(&shared.address, &fault, *attempt);
            self.failed(&fault);
        }
    }

    /// Makes a connection and, in one step, sends what is owed on it and lets others use it.
    async fn connect(&mut self, until: Timestamp) -> Result<(), Fault> {
        let shared = self.shared.clone();
        let lost = Arc::new(Notify::new());
        let made = shared.clock.until(until, shared.connector.commands(lost.clone())).await;
        let commands = match made {
            Some(Ok(commands)) => commands,
            Some(Err(error)) => return Err(shared.greeting.fault(&error)),
            None => return Err(shared.greeting.silence(shared.connect_timeout)),
        };
        shared.connections_made.fetch_add(1, Ordering::Relaxed);
        let mut connection = Connection {
            commands,
            secrets: shared.greeting.secrets.clone(),
            generation: *shared.generation.borrow() + 1,
            haunted: false,
            made_at: Timestamp::NEVER,
            run: 0,
            counts_from: Timestamp::NEVER,
            past: None,
        };
        let limit = shared.connect_timeout;
        let handshake = Handshake { shared: &shared, connection: &connection, limit, until };
        let Met { identity, run } = handshake.run(&mut self.predecessors).await?;
        events::server_met(&shared.address, &run.past);
        if !self.may_listen {
            shared.hub.probe(until).await?;
            self.may_listen = true;
        }
        connection.haunted = self.predecessors.may_linger();
        connection.made_at = shared.clock.now();
        let is_another = {
            let mut quarantine = shared.quarantine.lock();
            let is_another = quarantine.meet(&run);
            connection.run = quarantine.run;
            connection.counts_from = quarantine.until;
            connection.past = quarantine.is_on().then(|| Arc::new(run.past.clone()));
            is_another
        };
        self.predecessors.follow(identity);
        self.lost = lost;
        if is_another {
            // Messages come from there from now on. Before the connection is used: no reading of this server's clock
            // may count for a letter of the other one.
            shared.hub.restart();
        }

        let mut link = shared.link.lock();
        let now = shared.clock.now();
        let mut sent = Vec::new();
        for (id, owed) in &mut link.owed {
            owed.until = owed.until.max(now.plus(owed.ttl));
            owed.repeats = 0;
            sent.push((id.clone(), owed.send(&connection, false)));
        }
        let generation = connection.generation;
        link.state = LinkState::Up(connection);
        drop(link);
        for (id, sending) in sent {
            self.see_through(id, sending);
        }
        shared.silent_since.store(0, Ordering::Relaxed);
        shared.last_fault.lock().take();
        shared.generation.send_replace(generation);
        if is_another {
            // Holders learn now whether they hold anything there.
            shared.forgot.notify_one();
        }
        if let Some(outage) = self.outage.take() {
            self.events.connected_again(&shared.address, &outage, shared.clock.now());
        }
        Ok(())
    }
}

/// The supervisor ends when all is done, or is dropped with its runtime: then only a farewell can be sent.
impl Drop for Supervisor {
    fn drop(&mut self) {
        if !self.done {
            self.shared.clock.stop();
        }
        self.shared.last_connection.lock().predecessors = std::mem::take(&mut self.predecessors);
        self.shared.link.lock().state = LinkState::Down(Fault::Closed);
        // Wakes those who wait for a connection, to learn that none comes.
        self.shared.generation.send_modify(|_| {});
        self.shared.settled.notify_waiters();
    }
}

/// After how long without an acknowledgement the kernel gives a connection up.
fn patience(ttl: Duration) -> Duration {
    (ttl / 3).clamp(Duration::from_secs(1), Duration::from_secs(5))
}

/// A connection that lasted so long was a good one: the next is made at once.
const LASTING: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A client that starts together with its server is not to wait for much longer than the server takes.
const LONGEST_PAUSE_AT_START: Duration = Duration::from_millis(250);
