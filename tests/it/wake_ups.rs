//! Whoever waits is woken within a second, whatever the kind of lock, the deployment and the reason.
//!
//! Polls of 2 to 4 s repair a lost wake-up, so that nothing but the time shows one.

use std::{
    fmt,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use leasehold::{
    Client, ClientBuilder, Delivery, Error, Guard, Latch, Leadership, LossReason, MultiGuard,
    MultiLock, NodeState, Permit, PubSub, ReadGuard, Signal, SignalGroup, WriteGuard,
};
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value, aio::MultiplexedConnection};
use tokio::sync::{mpsc, oneshot};

use crate::{
    checks::{LIMIT, soon},
    support::{Cluster, Connects, Deployment, Proxy, Server, eventually, slot_of, waiting},
};

/// Half as long as it takes until somebody asks unasked.
const WOKEN: Duration = Duration::from_secs(1);
/// Who waits has asked for the last time by then, so that only a wake-up or a poll makes it ask again.
const ASKED: Duration = Duration::from_millis(100);
/// Nobody asks unasked sooner after its last ask.
const POLL: Duration = Duration::from_secs(2);
/// How many threads must run, one after the other, for a wake-up: each may be kept waiting.
const HOPS: u32 = 8;
/// Of a lock that is not given back.
const LEASE: Duration = Duration::from_millis(700);

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mutex,
    Fair,
    /// A reader behind a writer.
    Read,
    /// A writer behind a reader.
    Write,
    /// A writer behind a writer.
    NextWrite,
    Semaphore,
    Multi,
    Candidate,
    /// Who observes an election, until nobody leads.
    Observer,
    /// A worker behind one that has the only item.
    Worker,
    /// Who waits for a latch.
    Participant,
    /// Who waits for a signal, alone or in a group.
    Listener,
    GroupListener,
}

use Kind::{
    Candidate, Fair, GroupListener, Listener, Multi, Mutex, NextWrite, Observer, Participant, Read,
    Semaphore, Worker, Write,
};

impl Kind {
    const ALL: [Self; 13] = [
        Mutex,
        Fair,
        Read,
        Write,
        NextWrite,
        Semaphore,
        Multi,
        Candidate,
        Observer,
        Worker,
        Participant,
        Listener,
        GroupListener,
    ];

    /// Nobody has it, and those who wait stand in no queue: it is read until it has changed.
    fn is_read(self) -> bool {
        matches!(self, Participant | Listener | GroupListener)
    }

    /// Independent servers have no common order, no permits, and no numbers that are the same on all of them.
    fn needs_one_server(self) -> bool {
        matches!(self, Fair | Semaphore | Worker) || self.is_read()
    }
}

/// Why what is waited for comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Release,
    Drop,
    /// By somebody else.
    Force,
    /// The first who waits gives up just before it is its turn.
    GivenUp,
    /// The first who waits gives up while its turn is on the way to it.
    GivenUpLate,
    /// Nobody gives it back: its lease ends.
    End,
    /// All subscriptions are cut off just before the release, so that nobody hears of it.
    CutOff,
    Downgrade,
    /// There is another permit, or another item.
    Added,
    Proclaimed,
}

impl Cause {
    const ALL: [Self; 10] = [
        Self::Release,
        Self::Drop,
        Self::Force,
        Self::GivenUp,
        Self::GivenUpLate,
        Self::End,
        Self::CutOff,
        Self::Downgrade,
        Self::Added,
        Self::Proclaimed,
    ];

    fn is_for(self, kind: Kind) -> bool {
        match self {
            Self::Release | Self::CutOff => true,
            Self::Drop => !kind.is_read(),
            // A leader's lease is renewed; a multi lock has no lease of its own, and a signal does not end.
            Self::End => !matches!(kind, Candidate | Observer | Multi | Listener | GroupListener),
            Self::Force => !matches!(kind, Observer | Worker | Listener | GroupListener),
            // One who observes or reads keeps nobody waiting.
            Self::GivenUp | Self::GivenUpLate => kind != Observer && !kind.is_read(),
            Self::Downgrade => kind == Read,
            Self::Added => matches!(kind, Semaphore | Worker),
            Self::Proclaimed => kind == Observer,
        }
    }
}

/// What somebody has.
enum Held {
    Guard(Guard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(Permit),
    Multi(MultiGuard),
    Leads(Leadership),
    Lent(Delivery),
    Shut(Latch),
    Quiet(Signal),
    QuietGroup(SignalGroup),
    /// What an observer waited for is so.
    Seen,
}

impl Held {
    async fn release(self) -> Result<(), Error> {
        match self {
            Self::Guard(guard) => guard.unlock().await,
            Self::Read(guard) => guard.unlock().await,
            Self::Write(guard) => guard.unlock().await,
            Self::Permit(permit) => permit.release().await,
            Self::Multi(guard) => guard.unlock().await,
            Self::Leads(leadership) => leadership.resign().await,
            Self::Lent(delivery) => delivery.retry(Duration::ZERO).await,
            Self::Shut(latch) => latch.count_down().await.map(drop),
            Self::Quiet(signal) => signal.notify_all(b"").await.map(drop),
            Self::QuietGroup(group) => group.notify(["name"]).await.map(drop),
            Self::Seen => Ok(()),
        }
    }
}

/// One kind for one cause, with a name of its own.
#[derive(Clone)]
struct Cell {
    kind: Kind,
    cause: Cause,
    name: String,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} by {:?}", self.kind, self.cause)
    }
}

impl Cell {
    /// The last of the locks that a multi lock is of is waited for.
    fn multi(&self, client: &Client) -> MultiLock {
        let other = format!("{}:first", self.name);
        let mut names = [other, self.name.clone()];
        names.sort();
        MultiLock::of(names.map(|name| client.mutex(name)))
    }

    /// Takes what others wait for then.
    async fn hold(&self, client: &Client) -> Result<Held, Error> {
        let ends = self.cause == Cause::End;
        Ok(match self.kind {
            Mutex | Fair | Multi => {
                let lock = client.mutex(&*self.name);
                let lock = if ends { lock.with_lease(LEASE) } else { lock };
                Held::Guard(lock.lock().await?)
            }
            Write => {
                let lock = client.rw_lock(&*self.name);
                let lock = if ends { lock.with_lease(LEASE) } else { lock };
                Held::Read(lock.read().await?)
            }
            Read | NextWrite => {
                let lock = client.rw_lock(&*self.name);
                let lock = if ends { lock.with_lease(LEASE) } else { lock };
                Held::Write(lock.write().await?)
            }
            Semaphore => {
                let semaphore = client.semaphore(&*self.name).with_permits(1);
                let semaphore = if ends { semaphore.with_lease(LEASE) } else { semaphore };
                Held::Permit(semaphore.acquire().await?)
            }
            Candidate | Observer => Held::Leads(client.election(&*self.name).campaign().await?),
            Worker => {
                let queue = client.queue(&*self.name);
                queue.push("item").await?;
                let queue = if ends { queue.with_lease(LEASE) } else { queue };
                Held::Lent(queue.pop().await?)
            }
            Participant => {
                let latch = client.latch(&*self.name);
                let ttl = if ends { LEASE } else { Duration::MAX };
                assert!(latch.try_set_count(1, ttl).await?, "{self}");
                Held::Shut(latch)
            }
            Listener => Held::Quiet(client.signal(&*self.name)),
            GroupListener => Held::QuietGroup(client.signal_group(&*self.name)),
        })
    }

    /// How many clients wait for it.
    async fn waiting(&self, client: &Client) -> Result<u32, Error> {
        let name = &*self.name;
        Ok(match self.kind {
            Mutex | Fair | Multi | Candidate => client.mutex(name).status().await?.waiting_clients,
            Read | Write | NextWrite => client.rw_lock(name).status().await?.waiting_clients,
            Semaphore => client.semaphore(name).status().await?.waiting_clients,
            Worker => client.queue(name).status().await?.waiting.len() as u32,
            Observer | Participant | Listener | GroupListener => 0,
        })
    }

    /// Waits for it, and gives it back. Who observes says when it has seen what is so at first.
    async fn wait(self, client: Client, observes: oneshot::Sender<()>) -> Result<Instant, Error> {
        let held = match self.kind {
            Mutex => Held::Guard(client.mutex(&*self.name).lock().await?),
            Fair => Held::Guard(client.fair_mutex(&*self.name).lock().await?),
            Multi => Held::Multi(self.multi(&client).lock().await?),
            Read => Held::Read(client.rw_lock(&*self.name).read().await?),
            Write | NextWrite => Held::Write(client.rw_lock(&*self.name).write().await?),
            Semaphore => {
                Held::Permit(client.semaphore(&*self.name).with_permits(1).acquire().await?)
            }
            Candidate => Held::Leads(client.election(&*self.name).campaign().await?),
            Observer => {
                let mut observer = client.election(&*self.name).observe();
                let awaited = |value: Option<&str>| match self.cause {
                    Cause::Proclaimed => value == Some("more"),
                    _ => value.is_none(),
                };
                while awaited(observer.changed().await?.as_ref().map(|leader| &*leader.value)) {}
                let _ = observes.send(());
                while !awaited(observer.changed().await?.as_ref().map(|leader| &*leader.value)) {}
                Held::Seen
            }
            Worker => Held::Lent(client.queue(&*self.name).pop().await?),
            Participant => match client.latch(&*self.name).wait().await {
                // Its end opens it for nobody.
                Err(Error::Lost { .. }) if self.cause == Cause::End => Held::Seen,
                end => end.map(|()| Held::Seen)?,
            },
            Listener => {
                let signal = client.signal(&*self.name);
                let seen = signal.seen().await?;
                let _ = observes.send(());
                signal.changed(seen).await.map(|_| Held::Seen)?
            }
            GroupListener => {
                let group = client.signal_group(&*self.name);
                let seen = group.seen().await?;
                let _ = observes.send(());
                group.changed(seen).await.map(|_| Held::Seen)?
            }
        };
        let woken_at = Instant::now();
        let released = held.release().await;
        // Over several servers a forced unlock that comes to one of them late ends the next hold there, too.
        if self.cause != Cause::Force {
            released?;
        }
        Ok(woken_at)
    }
}

/// Who takes part.
struct Clients<'a> {
    servers: &'a [&'a Server],
    holds: Client,
    waits: Client,
    /// Waits before the other one, and does what a third one does.
    other: Client,
}

impl<'a> Clients<'a> {
    async fn connect(servers: &'a [&'a Server], builder: impl Fn() -> ClientBuilder) -> Self {
        let connect = async || builder().connect().await.expect("connected");
        let (holds, waits, other) = tokio::join!(connect(), connect(), connect());
        Self { servers, holds, waits, other }
    }

    /// What takes the time from the cause to the wake-up.
    async fn try_cell(&self, cell: &Cell, cut_off: &CutOff<'_>) -> Result<Duration, Error> {
        let held = cell.hold(&self.holds).await?;
        let first = match cell.cause {
            Cause::GivenUp | Cause::GivenUpLate => Some(self.waiter(cell, &self.other, 1).await),
            _ => None,
        };
        let waiter = self.waiter(cell, &self.waits, 1 + u32::from(first.is_some())).await;
        tokio::time::sleep(ASKED).await;
        if cell.cause == Cause::CutOff {
            cut_off.now().await;
        }
        let mut freed_at = Instant::now();
        // What is kept until the other one has been woken.
        let mut kept = None;
        match (cell.cause, held) {
            (Cause::Drop, held) => drop(held),
            (Cause::Force, held) => {
                self.force(cell).await?;
                kept = Some(held);
            }
            (Cause::End, held) => {
                match &held {
                    Held::Guard(guard) => drop(guard.lost().await),
                    Held::Read(guard) => drop(guard.lost().await),
                    Held::Write(guard) => drop(guard.lost().await),
                    Held::Permit(permit) => drop(permit.lost().await),
                    Held::Lent(delivery) => drop(delivery.lost().await),
                    Held::Shut(latch) => {
                        let has_ended = async || latch.count().await.is_err();
                        eventually(LIMIT, "the latch ends", has_ended).await;
                    }
                    _ => unreachable!("it has no lease of its own"),
                }
                freed_at = Instant::now();
                kept = Some(held);
            }
            (Cause::Downgrade, Held::Write(guard)) => {
                kept = Some(Held::Read(guard.downgrade().await?));
            }
            (Cause::Added, held) => {
                match &held {
                    Held::Lent(_) => drop(self.other.queue(&*cell.name).push("another").await?),
                    _ => drop(self.other.semaphore(&*cell.name).add_permits(1).await?),
                }
                kept = Some(held);
            }
            (Cause::Proclaimed, Held::Leads(leadership)) => {
                leadership.proclaim("more").await?;
                kept = Some(Held::Leads(leadership));
            }
            (cause, held) => {
                if let (Cause::GivenUp, Some(first)) = (cause, &first) {
                    first.abort();
                }
                held.release().await?;
            }
        }
        if let Some(first) = first {
            first.abort();
        }
        let woken_at = soon(&cell.to_string(), waiter).await.expect("no panic")?;
        drop(kept);
        Ok(woken_at.saturating_duration_since(freed_at))
    }

    /// Somebody who waits; returns when it does.
    async fn waiter(
        &self,
        cell: &Cell,
        client: &Client,
        waiting: u32,
    ) -> tokio::task::JoinHandle<Result<Instant, Error>> {
        let (observes, seen) = oneshot::channel();
        let waiter = tokio::spawn(cell.clone().wait(client.clone(), observes));
        if cell.kind == Observer {
            soon("who observes", seen).await.expect("it sees who leads");
        } else if cell.kind.is_read() {
            let listens = async || is_listened_to(self.servers, &cell.name).await;
            eventually(LIMIT, &format!("somebody listens: {cell}"), listens).await;
        } else {
            let waits = async || cell.waiting(&self.holds).await.is_ok_and(|now| now >= waiting);
            eventually(LIMIT, &format!("somebody waits: {cell}"), waits).await;
        }
        waiter
    }

    async fn force(&self, cell: &Cell) -> Result<(), Error> {
        let name = &*cell.name;
        let freed = match cell.kind {
            Mutex | Fair | Multi | Candidate | Observer => {
                self.other.mutex(name).force_unlock().await?
            }
            Read | Write | NextWrite => self.other.rw_lock(name).force_unlock().await?,
            Semaphore => {
                let semaphore = self.other.semaphore(name);
                let holder = semaphore.status().await?.holders.remove(0);
                semaphore.force_release(&holder).await?
            }
            Participant => self.other.latch(name).delete().await?,
            Worker | Listener | GroupListener => unreachable!("nobody can force it"),
        };
        assert!(freed, "{cell}");
        Ok(())
    }
}

/// Returns true if somebody listens to a channel of that name, of whichever kind.
async fn is_listened_to(servers: &[&Server], name: &str) -> bool {
    let pattern = format!("*{{{name}}}*");
    for server in servers {
        for kind in ["CHANNELS", "SHARDCHANNELS"] {
            let channels = server.command(&["PUBSUB", kind, &pattern]).await;
            if channels.as_sequence().is_some_and(|channels| !channels.is_empty()) {
                return true;
            }
        }
    }
    false
}

/// A waiter of Redisson: it hears by its channel alone.
struct Java {
    name: String,
    heard: mpsc::UnboundedReceiver<PushInfo>,
    _connection: MultiplexedConnection,
}

impl Java {
    async fn listens(server: &Server, kind: Kind, name: String, sharded: bool) -> Self {
        let channel = match kind {
            Mutex => format!("redisson_lock__channel:{{{name}}}"),
            Semaphore => format!("redisson_sc:{{{name}}}"),
            Participant => format!("redisson_countdownlatch__channel__{{{name}}}"),
            _ => format!("redisson_rwlock:{{{name}}}"),
        };
        let (pushes, heard) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new().set_push_sender(pushes);
        let client = redis::Client::open(format!("{}/?protocol=resp3", server.url()));
        let client = client.expect("a valid URL");
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.expect("a server");
        let verb = if sharded { "SSUBSCRIBE" } else { "SUBSCRIBE" };
        let mut subscribe = redis::cmd(verb);
        connection.send_packed_command(subscribe.arg(&channel)).await.expect("subscribed");
        let count = if sharded { "SHARDNUMSUB" } else { "NUMSUB" };
        eventually(LIMIT, "it listens", async || {
            let count = server.command(&["PUBSUB", count, &channel]).await;
            count.as_sequence().and_then(|count| count.last()) == Some(&Value::Int(1))
        })
        .await;
        Self { name, heard, _connection: connection }
    }

    async fn hears(&mut self, kind: Kind, cause: Cause) {
        let message = async {
            loop {
                let push = self.heard.recv().await.expect("a connection");
                if matches!(push.kind, PushKind::Message | PushKind::SMessage) {
                    return;
                }
            }
        };
        soon(&format!("{}: {kind:?} by {cause:?} is heard", self.name), message).await;
    }
}

/// What Redisson waits for is told on the channel on which it listens in such a cluster.
async fn redisson_is_told(cluster: &Cluster, place: &str, sharded: bool, client: Client) {
    let (holds, waits) = (client.clone(), client.clone());
    let clients = Clients { servers: &[], holds, waits, other: client };
    let causes = [Cause::Release, Cause::Drop, Cause::Force, Cause::Added];
    for kind in [Mutex, Write, NextWrite, Semaphore, Participant] {
        for cause in causes.into_iter().filter(|cause| cause.is_for(kind)) {
            let name = cluster.name_on(0, &format!("{place}:java:{kind:?}:{cause:?}"));
            let cell = Cell { kind, cause, name: name.clone() };
            let held = cell.hold(&clients.holds).await.expect("free");
            let mut java = Java::listens(cluster.master(0), kind, name, sharded).await;
            match cause {
                Cause::Release => held.release().await.expect("held"),
                Cause::Drop => drop(held),
                Cause::Force => clients.force(&cell).await.expect("held"),
                _ => {
                    let semaphore = clients.other.semaphore(&*cell.name);
                    semaphore.add_permits(1).await.expect("an answer");
                }
            }
            java.hears(kind, cause).await;
        }
    }
}

/// Cuts off all subscriptions once everybody waits.
struct CutOff<'a> {
    servers: &'a [&'a Server],
    all_wait: tokio::sync::Barrier,
    cut: tokio::sync::Barrier,
}

impl CutOff<'_> {
    async fn now(&self) {
        if self.all_wait.wait().await.is_leader() {
            join_all(
                self.servers
                    .iter()
                    .map(|server| server.command(&["CLIENT", "KILL", "TYPE", "pubsub"])),
            )
            .await;
        }
        self.cut.wait().await;
    }
}

/// Tries all kinds for all causes, all at once, but for those cells that `is_there` excludes.
async fn all_are_woken(
    place: &str,
    servers: &[&Server],
    builder: impl Fn() -> ClientBuilder,
    is_there: impl Fn(Kind, Cause) -> bool,
) {
    let clients = Clients::connect(servers, builder).await;
    let mut slow = Vec::new();
    // Those who are cut off come last, since all are.
    for cut_off in [false, true] {
        let cells = Kind::ALL.iter().flat_map(|kind| Cause::ALL.map(|cause| (*kind, cause)));
        let cells = cells.filter(|(kind, cause)| {
            (*cause == Cause::CutOff) == cut_off && cause.is_for(*kind) && is_there(*kind, *cause)
        });
        let cells: Vec<Cell> = cells
            .map(|(kind, cause)| Cell { kind, cause, name: format!("{place}:{kind:?}:{cause:?}") })
            .collect();
        let count = cells.len();
        let barrier = tokio::sync::Barrier::new;
        let cut_off = CutOff { servers, all_wait: barrier(count), cut: barrier(count) };
        let woken = join_all(cells.iter().map(|cell| clients.try_cell(cell, &cut_off))).await;
        let limit = servers[0].widened_by(HOPS, WOKEN);
        for (cell, took) in cells.iter().zip(woken) {
            match took {
                Ok(took) if took <= limit => {}
                Ok(took) => slow.push(format!("{cell} after {took:.1?}")),
                Err(error) => slow.push(format!("{cell}: {error}")),
            }
        }
    }
    assert!(slow.is_empty(), "{place}: not within a second: {slow:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_server_all_are_woken_within_a_second() {
    let server = Server::start().await;
    all_are_woken("one", &[&server], || Client::builder().nodes([server.url()]), |_, _| true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_three_masters_all_are_woken_within_a_second() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let builder = || {
        let builder = Client::builder().nodes(servers.iter().map(Server::url));
        builder.restart_quarantine(Duration::ZERO)
    };
    let is_there = |kind: Kind, _| !kind.needs_one_server();
    all_are_woken("masters", &servers.each_ref(), builder, is_there).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_sentinels_all_are_woken_within_a_second() {
    let deployment = Deployment::with(1, 1, &[]).await;
    let builder = || deployment.builder().restart_quarantine(Duration::ZERO);
    all_are_woken("sentinels", &[deployment.master()], builder, |_, _| true).await;
}

/// By the channels that such a cluster has for each slot, and by those of all clusters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_all_are_woken_within_a_second() {
    let cluster = Cluster::start().await;
    let servers: Vec<&Server> = cluster.servers().iter().map(|server| &**server).collect();
    let builder = |channels| {
        let builder = Client::builder().cluster(cluster.urls()).pubsub(channels);
        builder.restart_quarantine(Duration::ZERO)
    };
    for (place, channels) in [("sharded", PubSub::Sharded), ("plain", PubSub::Plain)] {
        all_are_woken(place, &servers, || builder(channels), |_, _| true).await;
        let client = builder(channels).connect().await.expect("connected");
        redisson_is_told(&cluster, place, channels == PubSub::Sharded, client).await;
    }
}

/// Whoever waits for a lock that moves to another master is passed over in the queue there, and nobody tells it. It finds out
/// with the map of the slots, and by a poll not before 2 s after its last ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_lock_that_moves_hears_of_it_within_a_second() {
    let cluster = Cluster::start().await;
    let (source, target) = (cluster.master(0), cluster.master(1));
    let connect = async || {
        // The one that it asks for the map is the first to know.
        let builder = Client::builder().cluster([source.url()]);
        builder.restart_quarantine(Duration::ZERO).connect().await.expect("connected")
    };
    let (holder, waits) = (connect().await, connect().await);
    for number in 0.. {
        assert!(number < 20, "nobody hears of it but by a poll");
        let name = cluster.name_on(0, &format!("moves-{number}"));
        let guard = soon("the lock", holder.mutex(&*name).lock()).await.expect("free");
        let asked_at = Instant::now();
        let lock = waits.mutex(&*name);
        let waiter =
            tokio::spawn(async move { lock.lock().await.map(|guard| (guard, Instant::now())) });
        let is_queued = async || waiting(source, &name).await == 1;
        eventually(LIMIT, "it is in the queue", is_queued).await;
        tokio::time::sleep(ASKED).await;
        cluster.move_slot(slot_of(&name), source, target).await;
        soon("unlocking", guard.unlock()).await.expect("held");
        let freed_at = Instant::now();
        let (guard, woken_at) = soon("its turn", waiter).await.expect("no panic").expect("free");
        soon("unlocking", guard.unlock()).await.expect("held");
        let took = woken_at.saturating_duration_since(freed_at);
        assert!(took < source.widened_by(HOPS, WOKEN), "{took:?}");
        // On a busy machine a poll may have been in time, too.
        if woken_at.duration_since(asked_at) < POLL {
            return;
        }
    }
}

/// Who waits for a latch or a signal listens at the master of its slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_what_moves_hears_of_it_within_a_second() {
    let cluster = Cluster::start().await;
    let servers: Vec<&Server> = cluster.servers().iter().map(|server| &**server).collect();
    let (source, target) = (cluster.master(0), cluster.master(1));
    for channels in [PubSub::Sharded, PubSub::Plain] {
        let builder = || {
            let builder = Client::builder().cluster([source.url()]).pubsub(channels);
            builder.restart_quarantine(Duration::ZERO)
        };
        let clients = Clients::connect(&servers, builder).await;
        for kind in [Participant, Listener, GroupListener] {
            let name = cluster.name_on(0, &format!("moves:{channels:?}:{kind:?}"));
            let cell = Cell { kind, cause: Cause::Release, name };
            let slot = slot_of(&cell.name);
            let held = cell.hold(&clients.holds).await.expect("an answer");
            let waiter = clients.waiter(&cell, &clients.waits, 1).await;
            cluster.move_slot(slot, source, target).await;
            let on_target = async || is_listened_to(&[target], &cell.name).await;
            eventually(LIMIT, &format!("{cell} listens there: {channels:?}"), on_target).await;
            let moved_at = Instant::now();
            tokio::time::sleep(ASKED).await;
            let freed_at = Instant::now();
            soon("the change", held.release()).await.expect("an answer");
            let woken_at = soon("the waiter", waiter).await.expect("no panic").expect("changed");
            let took = woken_at.saturating_duration_since(freed_at);
            assert!(took < source.widened_by(HOPS, WOKEN), "{cell}, {channels:?}: {took:?}");
            assert!(freed_at > moved_at);
            cluster.move_slot(slot, target, source).await;
        }
    }
}

/// A master dies, and the client cannot reach the next one until it has given up its first attempt to connect: what it asks it
/// meanwhile about a fixed lease, which is asked about once, gets no answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_master_of_a_shard_is_found_and_asked_within_a_second() {
    const RESPONSE: Duration = Duration::from_millis(200);
    const CONNECT: Duration = Duration::from_millis(600);
    let cluster = Cluster::with(&["--cluster-node-timeout", "15000"]).await;
    let (dies, next) = (cluster.master(0), cluster.replica(0));
    let way = Proxy::start(next.port()).await;
    let (inside, outside) = (next.port(), way.port());
    let builder = Client::builder().cluster([cluster.master(1).url()]).response_timeout(RESPONSE);
    let builder = builder.restart_quarantine(Duration::ZERO).connect_timeout(CONNECT);
    let builder = builder.address_map(move |host, port| {
        (host.to_owned(), if port == inside { outside } else { port })
    });
    let client = builder.connect().await.expect("connected");
    let state_of = |url: String| {
        let node = client.nodes().into_iter().find(|node| *node.address == *url);
        node.map(|node| node.state)
    };
    let lock = client.mutex(cluster.name_on(0, "n")).with_lease(Duration::from_secs(60));
    let guard = soon("the lock", lock.lock()).await.expect("free");

    way.refuse(true);
    next.command(&["CONFIG", "SET", "replica-read-only", "no"]).await;
    dies.kill();
    next.command(&["FLUSHALL"]).await;
    let is_missed = async || state_of(dies.url()) == Some(NodeState::Down);
    eventually(LIMIT, "the old one is missed", is_missed).await;
    tokio::time::sleep(ASKED).await;
    next.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
    let taken_at = Instant::now();
    eventually(LIMIT, "the next one is found", async || state_of(way.url()).is_some()).await;
    let took = taken_at.elapsed();
    assert!(took < next.widened_by(HOPS, WOKEN), "found after {took:?}");

    tokio::time::sleep(CONNECT + 2 * RESPONSE).await;
    assert!(guard.is_held(), "nobody has told it");
    way.refuse(false);
    let is_up = async || state_of(way.url()) == Some(NodeState::Up);
    eventually(LIMIT, "it is connected", is_up).await;
    let up_at = Instant::now();
    assert_eq!(soon("the loss is told", guard.lost()).await, LossReason::Failover);
    let took = up_at.elapsed();
    assert!(took < next.widened_by(HOPS, WOKEN), "told after {took:?}");
}
