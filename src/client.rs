//! The client, which holds the connections and hands out locks.

use std::fmt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use futures_util::future::{FutureExt, join_all};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::clock::{Clock, Entropy, SystemEntropy, SystemTimeSource, TimeSource};
use crate::config::{Address, Config, SelfWait};
use crate::engine::gate::{Engine, Hold, Service};
use crate::engine::quorum::Quorum;
use crate::error::{Error, Fault};
use crate::events::{self, Events};
use crate::key::Holder;
use crate::node::{Common, Facts, Farewell, Network, Node, NodeStatus, Servers};
use crate::owner::Owner;
use crate::primitives::mutex::Mutex;

/// A client holds the connections to one or several Redis or Valkey servers, and the locks taken through them.
///
/// Clones are handles to the same client. One per process is enough: it uses two connections to each server, however many
/// locks there are. Its tasks run on the runtime that connected it. When that runtime is gone, every call fails with
/// [`Error::Closed`]; so do not keep a client in a `static` that the runtime of a test connects.
///
/// Guards keep working after the client is dropped.
///
/// # Ending a process
///
/// A process leaves no lock behind when its `main` returns, even with an error through `?`, or when it panics and
/// unwinds. When the runtime ends, it drops the client's tasks; the releases that are still unsent then go out over a
/// new connection. This blocks the thread that ends the runtime, or that drops a guard afterwards, until the servers
/// have answered: for at most 250 ms in total, and only if there is something to send.
///
/// A lock stays until its TTL is over
/// * after `std::process::exit`, an abort or a kill;
/// * if its guard or the runtime is never dropped: leaked, in a `static`, or on a thread or in a task that `main`
///   does not wait for, with [`shutdown_background`](tokio::runtime::Runtime::shutdown_background);
/// * if the server does not answer in that time.
///
/// [`shutdown`](Self::shutdown) waits longer, and also releases what guards still hold;
/// [`shutdown_after`](Self::shutdown_after) calls it however the work ends.
///
/// # Forking
///
/// A client must not be used in a child that was made by fork(2) without exec: the child has copies of the guards and
/// of the connections, but not of the threads. There, `is_held` reports on the parent's hold, and other calls hang or
/// disturb the parent's connections. Connect after the fork. When the child ends, it sends no releases over a new
/// connection, so the parent keeps its locks.
///
/// ```no_run
/// # async fn example() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("redis://127.0.0.1:6379").await?;
/// let guard = client.mutex("orders:42").lock().await?;
/// guard.unlock().await?;
/// # Ok(()) }
/// ```
#[doc(alias = "RedissonClient")]
#[derive(Clone)]
pub struct Client {
    engine: Arc<Engine>,
}

impl Client {
    /// Connects to `url` with the default settings.
    ///
    /// A URL is `redis://[user:password@]host[:port][/database]` or `unix:///path/to.sock`, or, with the feature `tls`,
    /// one that begins with `rediss://`.
    ///
    /// # Errors
    ///
    /// The same as [`ClientBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().nodes([url]).connect().await
    }

    /// Returns a builder, to connect with other settings than the defaults.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Returns a handle to the lock called `name`, without I/O.
    ///
    /// The [`name_prefix`](ClientBuilder::name_prefix) and the name are the lock's key on the servers: together 1 to 4096
    /// bytes of UTF-8. The first call that acquires reports a bad name.
    #[doc(alias = "getLock")]
    #[doc(alias = "getFencedLock")]
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(&self.engine, self.engine.config.prefixed(name.as_ref()))
    }

    /// Returns a new owner without a name, as [`Owner::new`] does.
    pub fn owner(&self) -> Owner {
        Owner::new()
    }

    /// Returns this client's name, by which the servers know its holds.
    pub fn name(&self) -> &str {
        &self.engine.config.name
    }

    /// Lists the locks that this client holds, oldest first.
    pub fn holds(&self) -> Vec<HeldLock> {
        let mut holds: Vec<HeldLock> = self
            .engine
            .gates()
            .iter()
            .filter_map(|gate| gate.current_hold())
            .filter_map(|hold| HeldLock::of(&hold))
            .collect();
        holds.sort_by_key(|hold| std::cmp::Reverse(hold.held_for));
        holds
    }

    /// Returns counts of what this client is busy with: locks, waiters, connections and pending releases.
    pub fn stats(&self) -> Stats {
        let gates = self.engine.gates();
        let nodes = self.engine.quorum.nodes();
        let queue = &self.engine.events.queue;
        Stats {
            gates: gates.len(),
            waiters: gates.iter().map(|gate| gate.waiters()).sum(),
            subscriptions: nodes.iter().map(Node::subscriptions).max().unwrap_or(0),
            tasks: self.engine.tasks.len(),
            owed_releases: nodes.iter().map(Node::pending_releases).sum(),
            connections_made: nodes.iter().map(Node::connections_made).sum(),
            token_raises: self.engine.quorum.raises(),
            grants_by_message: queue.grants_by_message.load(Relaxed),
            grants_confirmed: queue.grants_confirmed.load(Relaxed),
            grants_given_back: queue.grants_given_back.load(Relaxed),
            dead_waiters_passed: queue.dead_waiters_passed.load(Relaxed),
        }
    }

    /// Reports the state of each server, in the order in which they were named, without I/O.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.engine.quorum.nodes().iter().map(Node::status).collect()
    }

    /// Asks the servers about settings that can break a lock's guarantees, and returns the findings. It changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if they do not answer within 5 s, or if the client cannot reach them for the response
    /// timeout.
    pub async fn check(&self) -> Result<Vec<Finding>, Error> {
        let quorum = &self.engine.quorum;
        let until = self.engine.clock.now().plus(self.engine.config.response_timeout);
        quorum.up(until).await.map_err(|fault| quorum.error(None, fault))?;
        let restarts_matter = self.engine.config.quarantine().is_zero();
        let (findings, faults) = Finding::of_all(quorum, restarts_matter).await;
        if faults.len() > quorum.nodes().len() - quorum.majority() {
            return Err(quorum.error(None, quorum.no_majority(faults.into_iter())));
        }
        Ok(findings)
    }

    /// Returns true if, as far as this client knows, locks can be taken now: enough servers are connected, and their
    /// grants count. It does no I/O, so a readiness probe may call it as often as it likes. If it returns false,
    /// [`nodes`](Self::nodes) shows which servers are missing.
    pub fn is_ready(&self) -> bool {
        let quorum = &self.engine.quorum;
        let now = self.engine.clock.now();
        let counts = |node: &&Node| node.bar(now).is_none();
        self.engine.check_service(Service::Open).is_ok()
            && quorum.nodes().iter().filter(counts).count() >= quorum.majority()
    }

    /// Returns the tracker of the client's tasks.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.engine.tasks
    }

    /// Refuses new acquisitions, and waits until this client holds nothing, for at most `limit`. Returns true if it
    /// holds nothing.
    ///
    /// New acquisitions fail with [`Error::Closed`]. Nested ones by a holder and those that are waiting already go on.
    ///
    /// # Cancel safety
    ///
    /// The client stays drained.
    #[must_use = "it returns whether everything was released"]
    pub async fn drain(&self, limit: Duration) -> bool {
        self.engine.service_ends(Service::Draining);
        let until = self.engine.clock.now().plus(limit);
        let nothing_held = async {
            loop {
                let mut left = std::pin::pin!(self.engine.left.notified());
                left.as_mut().enable();
                let over = self.holds().is_empty() && !self.is_busy();
                if over || self.engine.clock.is_stopped() {
                    return;
                }
                left.await;
            }
        };
        let ended = self.engine.clock.until(until, nothing_held).await;
        ended.is_some() && self.holds().is_empty()
    }

    /// Closes the client, and releases all locks that it holds.
    ///
    /// Waiting calls fail with [`Error::Closed`], and holders see their locks as lost. The call returns when the servers
    /// have confirmed the releases, or after the response timeout.
    ///
    /// # Cancel safety
    ///
    /// The client is closed; the releases go on in the background.
    pub async fn shutdown(&self) {
        self.engine.service_ends(Service::Closed);
        for gate in self.engine.gates() {
            gate.shut();
        }
        let until = self.engine.clock.now().plus(self.engine.config.response_timeout);
        let released = async {
            while self.is_busy() {
                let mut left = std::pin::pin!(self.engine.left.notified());
                left.as_mut().enable();
                if self.is_busy() {
                    left.await;
                }
            }
            self.engine.watchdog.idle().await;
            let quorum = &self.engine.quorum;
            join_all(quorum.nodes().iter().map(|node| node.all_released(!quorum.is_one()))).await;
        };
        self.engine.clock.until(until, released).await;
    }

    /// Runs `work`, and then [shuts the client down](Self::shutdown), even if `work` returns an error or panics.
    ///
    /// ```no_run
    /// # async fn serve(_: &leasehold::Client) -> Result<(), leasehold::Error> { Ok(()) }
    /// #[tokio::main]
    /// async fn main() -> Result<(), leasehold::Error> {
    ///     let client = leasehold::Client::connect("redis://127.0.0.1:6379").await?;
    ///     client.shutdown_after(serve(&client)).await
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// It panics if `work` does, after the shutdown.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`. The client is then not shut down, unless `work` had already ended.
    pub async fn shutdown_after<F: Future>(&self, work: F) -> F::Output {
        let output = AssertUnwindSafe(work).catch_unwind().await;
        self.shutdown().await;
        output.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Returns true if this client holds a lock, requests one, waits for one or releases one.
    fn is_busy(&self) -> bool {
        self.engine.gates().iter().any(|gate| gate.is_busy())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.engine.config.name)
            .field(
                "servers",
                &self.engine.quorum.nodes().iter().map(Node::address).collect::<Vec<_>>(),
            )
            .finish_non_exhaustive()
    }
}

/// Collects the settings of a [`Client`], and connects it.
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until it connects"]
pub struct ClientBuilder {
    urls: Vec<String>,
    config: Config,
    #[cfg(feature = "tls")]
    certificates: crate::tls::Certificates,
    runtime: Option<Handle>,
    /// `None` means that they are logged.
    findings_at_connect: Option<bool>,
    seams: Seams,
}

/// The parts that a simulation replaces.
#[derive(Clone, Default)]
struct Seams {
    network: Option<Arc<dyn Network>>,
    time: Option<Arc<dyn TimeSource>>,
    entropy: Option<Arc<dyn Entropy>>,
}

impl ClientBuilder {
    /// Sets the servers' URLs: one, or those of several independent masters (Redlock).
    ///
    /// With several, a lock is held if a majority of them holds it, and locks are available while a majority is reachable.
    /// Three or five are usual. An even number tolerates no more failures than the odd number below it. Two servers are
    /// refused, since both would be needed.
    ///
    /// All clients that share locks must name the same servers.
    #[doc(alias = "Redlock")]
    #[doc(alias = "RedissonRedLock")]
    #[doc(alias = "RedissonMultiLock")]
    pub fn nodes<U: Into<String>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.urls = urls.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the client's name, which others see when it holds a lock: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
    /// Default: host name and process id.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.config.name = name.into();
        self
    }

    /// Sets the prefix for the names of all this client's locks: up to 256 bytes, without braces. Default: none.
    ///
    /// With the prefix `shop:`, `client.mutex("orders:7")` is the lock `shop:orders:7`, in errors and logs as on the
    /// servers; the keys of its fencing counter and channel contain the whole name. This separates services that share a
    /// server, and lets the server restrict each to its own keys: the [security page](crate::docs::security) has the rules.
    /// Java clients use the same locks with a `NameMapper` that adds the prefix.
    pub fn name_prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.config.name_prefix = prefix.into();
        self
    }

    /// Sets how long a lock can outlive a crashed holder, 10 ms to 30 days. The watchdog renews a lock every third of
    /// this time. Default: 30 s.
    #[doc(alias = "lockWatchdogTimeout")]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.config.ttl = ttl;
        self
    }

    /// Sets how long a call waits for a server's answer, 1 ms to a day, but at most a third of the lease.
    /// Default: 1 s.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.config.response_timeout = timeout;
        self
    }

    /// Sets how long it may take to open a connection, and how long [`connect`](Self::connect) waits for a server that
    /// is still starting, 1 ms to a day. Default: 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// Sets how long an acquisition without a timeout keeps waiting while the servers do not answer, 1 ms to 30 days.
    /// Default: 10 s.
    pub fn unavailable_after(mut self, patience: Duration) -> Self {
        self.config.unavailable_after = patience;
        self
    }

    /// Sets how long after its acquisition a lease may pass from one task of this process to the next without a
    /// request to the server: up to 1 s and half the TTL, or zero for never. Other processes may wait that much longer.
    /// Default: 20 ms.
    pub fn handoff_window(mut self, window: Duration) -> Self {
        self.config.handoff_window = window;
        self
    }

    /// Sets how long the server keeps a lock's fencing counter after its last use, a minute to a year. Default: a day.
    pub fn token_retention(mut self, retention: Duration) -> Self {
        self.config.token_retention = retention;
        self
    }

    /// Sets whether tokens come from the counter of Redisson's `FencedLock`, which never expires. Turn it on for locks
    /// that Java programs take as `FencedLock`. Default: off.
    pub fn redisson_fencing(mut self, on: bool) -> Self {
        self.config.redisson_fencing = on;
        self
    }

    /// Sets how long a server's grants do not count once it may have forgotten earlier ones, zero (they always count) to
    /// 30 days. It must be the same in all clients of these servers, and no TTL or lease may be longer. Default: 60 s
    /// with several servers, zero with one.
    ///
    /// A server may have forgotten grants if it restarted, or if it was a replica of another. The client detects both
    /// from what `INFO` reports about its run, its uptime and its replication, even while it stays connected. A server
    /// that gets its first replica, or has had none for `repl-backlog-ttl`, looks the same. A server that followed
    /// another at any time since its start is quarantined by every client that meets it for the first time. Until a
    /// majority is out of quarantine, acquiring fails with [`Error::Unavailable`].
    ///
    /// A server's report that it has an append-only file does not shorten this: the file may have been switched on
    /// since, or the server may have restarted with another disk. With zero you vouch for the servers yourself: each
    /// keeps every answer on a disk that outlives it (`appendonly yes`, `appendfsync always`,
    /// `no-appendfsync-on-rewrite no`, a volume of its own), and none is ever replaced by a replica. Zero is also right
    /// for connecting to servers that are started for the first time.
    ///
    /// This is Redlock's delayed restart (<https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>),
    /// done by the client.
    pub fn restart_quarantine(mut self, quarantine: Duration) -> Self {
        self.config.restart_quarantine = Some(quarantine);
        self
    }

    /// Sets how much of a lease must be left when its grant arrives, zero to half the TTL or lease of each lock. A grant
    /// with less is released again. Default: zero.
    pub fn min_validity(mut self, validity: Duration) -> Self {
        self.config.min_validity = validity;
        self
    }

    /// Sets how the client reacts to a task that waits for a lock that it holds itself. Default: [`SelfWait::Warn`].
    pub fn self_wait(mut self, reaction: SelfWait) -> Self {
        self.config.self_wait = reaction;
        self
    }

    /// Sets whether the client logs the findings of [`Client::check`] once after connecting, at INFO. Default: on.
    pub fn log_findings(mut self, on: bool) -> Self {
        self.findings_at_connect = Some(on);
        self
    }

    /// Sets the certificate authorities (in PEM) that the client trusts for `rediss://` servers. Default: those that the
    /// operating system trusts.
    #[cfg(feature = "tls")]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.trust(pem.into());
        self
    }

    /// Sets the client's certificate with its chain, and its private key, both in PEM, for `rediss://` servers that
    /// require one (`tls-auth-clients`). Default: none.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.certificates.present(certificate.into(), key.into());
        self
    }

    /// Sets the runtime for the client's tasks; it must have time and I/O enabled. Default: the one that `connect` runs on.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Connects to the servers, or to a majority of them.
    ///
    /// A server that refuses connections, loads its data or cannot be found by name may still be starting: the client
    /// retries until the [`connect_timeout`](Self::connect_timeout) is over. Permanent errors are returned at once, such
    /// as a refused login, or an address that leads to a replica or a Sentinel.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the server cannot be reached, or cannot keep locks; [`Error::Denied`] if it refuses the
    /// login, or a command that the client needs; [`Error::InvalidConfig`], [`Error::InvalidName`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn connect(self) -> Result<Client, Error> {
        let config = Config { nodes: self.urls.len(), ..self.config };
        config.check()?;
        if config.handoff_window > config.ttl / 2 {
            return Err(Error::config(format!(
                "handoff_window is {:?}, more than half the ttl of {:?}",
                config.handoff_window, config.ttl
            )));
        }
        #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "certificates are added"))]
        let mut addresses = Address::parse_all(&self.urls)?;
        #[cfg(feature = "tls")]
        self.certificates.apply(&mut addresses)?;
        let runtime = match self.runtime.map_or_else(Handle::try_current, Ok) {
            Ok(runtime) => runtime,
            Err(_) => {
                return Err(Error::config(
                    "there is no tokio runtime here: connect inside one, or set one with `runtime`",
                ));
            }
        };
        let clock = Clock::new(
            self.seams.time.unwrap_or_else(|| Arc::new(SystemTimeSource)),
            self.seams.entropy.unwrap_or_else(|| Arc::new(SystemEntropy)),
            runtime,
        );
        let tasks = TaskTracker::new();
        let events = Arc::<Events>::default();
        let servers = (addresses.len() > 1).then(Arc::<Servers>::default);
        let network = self.seams.network;
        let farewell = Arc::<Farewell>::default();
        let common = Common {
            network: network.as_ref(),
            config: &config,
            clock: &clock,
            tasks: &tasks,
            events: &events,
            servers: servers.as_ref(),
            farewell: &farewell,
        };
        let (mut nodes, mut firsts) = (Nodes::default(), Vec::new());
        for address in &addresses {
            let (node, first) = Node::start(address, &common)?;
            nodes.0.push(node);
            firsts.push(async move { first.await.unwrap_or(Err(Fault::Closed)) });
        }
        let config = Arc::new(config);
        let quorum =
            Arc::new(Quorum::new(nodes.0.clone(), clock.clone(), config.clone(), events.clone()));
        quorum.majority_of(firsts.into_iter()).await.map_err(|fault| quorum.error(None, fault))?;
        nodes.0.clear();
        let engine = Engine::new(config, clock, quorum, events, tasks, farewell);
        let client = Client { engine };
        if self.findings_at_connect != Some(false) {
            client.log_findings();
        }
        Ok(client)
    }
}

/// The nodes of a client that is being connected. Dropping this closes them.
#[derive(Default)]
struct Nodes(Vec<Node>);

impl Drop for Nodes {
    fn drop(&mut self) {
        self.0.iter().for_each(Node::close);
    }
}

impl Client {
    /// Logs the findings of `check`, in the background.
    fn log_findings(&self) {
        let quorum = self.engine.quorum.clone();
        let restarts_matter = self.engine.config.quarantine().is_zero();
        self.engine.watchdog.adopt(Box::pin(async move {
            for finding in Finding::of_all(&quorum, restarts_matter).await.0 {
                events::finding(&finding);
            }
        }));
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A snapshot of what a client is busy with, and of what it has done so far; see [`Client::stats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// The locks that this client holds, waits for, or has just released.
    pub gates: usize,
    /// The acquisitions that wait for another task of this client, or for another holder.
    pub waiters: usize,
    /// The channels to which this client listens for releases, on each node.
    pub subscriptions: usize,
    /// The running tasks: one for an idle client, two for each node, and one for each lock that is being waited for.
    pub tasks: usize,
    /// The releases that no server has confirmed yet.
    pub owed_releases: usize,
    /// The connections made so far.
    pub connections_made: u64,
    /// The acquisitions so far that needed a second round trip, because the nodes did not agree on a token.
    pub token_raises: u64,
    /// The locks so far that another holder's release passed to this client by a message, without a request of its own.
    pub grants_by_message: u64,
    /// The grants by message so far that this client confirmed with a request before it used them, because their end could
    /// not be computed, or was too near.
    pub grants_confirmed: u64,
    /// The grants by message so far that this client gave back, because nobody waited for them any more.
    pub grants_given_back: u64,
    /// The waiters so far that were gone when this client's requests granted a lock to the next one, and were passed over.
    pub dead_waiters_passed: u64,
}

/// A lock that this client holds; see [`Client::holds`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HeldLock {
    /// The lock's name.
    pub name: Arc<str>,
    /// The owner that holds it.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::text"))]
    pub owner: Owner,
    /// The holder's name on the servers.
    pub holder: Holder,
    /// Its fencing token.
    pub token: u64,
    /// The number of guards that share the hold.
    pub hold_count: u32,
    /// The time since its acquisition.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::seconds"))]
    pub held_for: Duration,
    /// The time of its acquisition, by this host's clock.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::time"))]
    pub since: SystemTime,
    /// The time for which it is certainly held if nothing renews it.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::seconds"))]
    pub remaining: Duration,
}

impl HeldLock {
    /// Returns `None` if the hold is lost.
    fn of(hold: &Hold) -> Option<Self> {
        let now = hold.gate.engine.clock.now();
        // This only reads the lease. If it recorded a loss, a subscriber that calls `holds` would suppress its log line.
        let remaining = hold.lease.remaining(now);
        if remaining.is_zero() {
            return None;
        }
        let held_for = now.since(hold.since);
        Some(Self {
            name: hold.gate.kind.name().clone(),
            owner: hold.owner.clone(),
            holder: Holder::new(hold.lease.id.0.clone()),
            token: hold.token,
            hold_count: hold.depth(),
            held_for,
            since: SystemTime::now() - held_for,
            remaining,
        })
    }
}

/// A property of a server that can break a lock's guarantees; see [`Client::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// The server's address, without credentials.
    pub node: Arc<str>,
    /// The kind of problem.
    pub kind: FindingKind,
}

/// The kind of problem that a [`Finding`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum FindingKind {
    /// The server may evict locks when it runs out of memory. The value is the configured policy.
    Eviction(String),
    /// A restart loses every lock: two holders may have one until the first notices, at its next renewal.
    NotPersistent,
    /// A crash may lose the latest locks: the append-only file is not synced at every command.
    NotWrittenThrough,
    /// A failover may lose the latest locks: replicas receive writes later. The value is the number of replicas.
    Replicas(u64),
    /// The server's clock differs from this host's. The value says how many milliseconds it is ahead.
    ClockAhead(i64),
    /// The server is older than this library supports. The value is its version.
    OldVersion(String),
    /// The server is a Redis Cluster of one shard: if another shard is added, the server refuses some of the locks.
    OneShard,
    /// The user lacks the rights to read a setting, which the value names.
    Unknown(&'static str),
}

impl Finding {
    /// Returns the findings on all nodes, and the faults of those that did not answer.
    ///
    /// `restarts_matter` is true if there is no quarantine, so that a server must not forget anything.
    async fn of_all(quorum: &Quorum, restarts_matter: bool) -> (Vec<Self>, Vec<(usize, Fault)>) {
        let nodes = quorum.nodes();
        let facts = join_all(nodes.iter().map(|node| node.facts(CHECK_LIMIT))).await;
        let (mut findings, mut faults) = (Vec::new(), Vec::new());
        for (index, (node, facts)) in nodes.iter().zip(facts).enumerate() {
            match facts {
                Ok(facts) => findings.extend(Self::of(node.address(), &facts, restarts_matter)),
                Err(fault) => faults.push((index, fault)),
            }
        }
        (findings, faults)
    }

    fn of(node: &Arc<str>, facts: &Facts, restarts_matter: bool) -> Vec<Self> {
        let mut kinds = Vec::new();
        match (&facts.eviction_policy, facts.max_memory) {
            (Some(policy), Some(1..)) if policy != "noeviction" => {
                kinds.push(FindingKind::Eviction(policy.clone()));
            }
            (None, _) | (_, None) => kinds.push(FindingKind::Unknown("the eviction policy")),
            _ => {}
        }
        match (facts.append_only, facts.fsync_always) {
            _ if !restarts_matter => {}
            (Some(false), _) => kinds.push(FindingKind::NotPersistent),
            (Some(true), Some(false)) => kinds.push(FindingKind::NotWrittenThrough),
            (Some(true), Some(true)) => {}
            _ => kinds.push(FindingKind::Unknown("the persistence")),
        }
        match facts.replicas {
            Some(0) => {}
            Some(replicas) => kinds.push(FindingKind::Replicas(replicas)),
            None => kinds.push(FindingKind::Unknown("the replicas")),
        }
        if let Some(ahead) = facts.clock_ahead_ms.filter(|ms| ms.unsigned_abs() >= FAR_OFF_MS) {
            kinds.push(FindingKind::ClockAhead(ahead));
        }
        if facts.is_cluster {
            kinds.push(FindingKind::OneShard);
        }
        if let Some(version) = facts.version.as_ref().filter(|version| is_old(version)) {
            kinds.push(FindingKind::OldVersion(version.clone()));
        }
        let finding = |kind| Self { node: node.clone(), kind };
        kinds.into_iter().map(finding).collect()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.node)?;
        match &self.kind {
            FindingKind::Eviction(policy) => write!(
                f,
                "maxmemory-policy is {policy}: when memory runs out, the server may evict held locks; set noeviction"
            ),
            FindingKind::NotPersistent => f.write_str(
                "appendonly is off: a restart loses every lock; set appendonly yes and appendfsync always",
            ),
            FindingKind::NotWrittenThrough => f.write_str(
                "appendfsync is not always: a power failure loses the latest locks",
            ),
            FindingKind::Replicas(replicas) => write!(
                f,
                "it has {replicas} replicas: a failover may lose the latest locks; let the resource check tokens"
            ),
            FindingKind::ClockAhead(ms) => write!(
                f,
                "its clock is {ms} ms ahead of this host's: correcting it shortens or lengthens every lock"
            ),
            FindingKind::OldVersion(version) => {
                write!(f, "it is version {version}; the oldest supported are Redis 6.2 and Valkey 7.2")
            }
            FindingKind::OneShard => f.write_str(
                "it is a Redis Cluster of one shard: if a shard is added, it refuses the locks in that shard's slots (MOVED)",
            ),
            FindingKind::Unknown(what) => write!(f, "this user cannot read {what}"),
        }
    }
}

fn is_old(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    (major, minor) < (6, 2)
}

/// The time limit for the servers' answers to a check.
const CHECK_LIMIT: Duration = Duration::from_secs(5);
/// A clock that is this far off is reported. The round trip alone does not cause such a difference.
const FAR_OFF_MS: u64 = 1000;

#[cfg(leasehold_sim)]
impl ClientBuilder {
    /// Replaces the network, the time and the randomness.
    pub fn seams(
        mut self,
        network: Arc<dyn Network>,
        time: Arc<dyn TimeSource>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        self.seams = Seams { network: Some(network), time: Some(time), entropy: Some(entropy) };
        self
    }
}
