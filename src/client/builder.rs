//! The builder of a client.

mod places;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::{Client, Finding};
use crate::clock::{Clock, Entropy, SystemEntropy, SystemTimeSource, TimeSource};
use crate::config::{
    AddressMap, Config, Deadlocks, Deployment, LockOrder, Named, Place, PubSub, SelfWait,
};
use crate::engine::gate::Engine;
use crate::error::{Error, Fault};
use crate::events::Events;
use crate::fleet::{Cluster, Fleet};
use crate::monitor::Monitor;
use crate::node::{Common, Farewell, Network, Node, Servers};

/// Collects the settings of a [`Client`], and connects it.
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until it connects"]
pub struct ClientBuilder {
    named: Named,
    config: Config,
    #[cfg(feature = "tls")]
    certificates: crate::tls::Certificates,
    runtime: Option<Handle>,
    /// `None` means that they are logged.
    findings_at_connect: Option<bool>,
    monitor: Option<Arc<dyn Monitor>>,
    seams: Seams,
}

/// The parts that tests replace. `None`: the real one.
#[derive(Clone, Default)]
pub struct Seams {
    /// Where connections come from.
    pub network: Option<Arc<dyn Network>>,
    /// The clock of all deadlines.
    pub time: Option<Arc<dyn TimeSource>>,
    /// The randomness of all names and pauses.
    pub entropy: Option<Arc<dyn Entropy>>,
}

impl ClientBuilder {
    /// Sets the client's name, which others see when it holds a lock, and which its connections have in `CLIENT LIST`: 1 to 64
    /// characters of `A-Z a-z 0-9 . _ -`. Default: host name and process id.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.config.name = name.into();
        self
    }

    /// Sets the prefix for all names that this client uses: those of locks, semaphores, queues, latches and signals. It has at most
    /// 256 bytes and no braces. Default: none.
    ///
    /// With the prefix `shop:`, `client.mutex("orders:7")` is the lock `shop:orders:7`, in errors and logs as on the
    /// servers; the keys of its fencing counter and channel contain the whole name. This separates services that share a
    /// server, and lets the server restrict each to its own keys: the [security page](crate::docs::security) has the rules.
    /// Java clients use the same locks with a `NameMapper` that adds the prefix.
    pub fn name_prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.config.name_prefix = prefix.into();
        self
    }

    /// Sets what the list of several independent masters is called: 1 to 64 characters of `A-Z a-z 0-9 . _ -`. Set it if
    /// clients reach the same [`nodes`](Self::nodes) at different addresses. Default: none.
    ///
    /// Each master keeps the list of all of them in the key `leasehold_masters`, and refuses clients that name other ones, since
    /// two clients with different lists might hold one lock. With a name, the name and the number of the masters are compared
    /// and not their addresses. So give the list another name whenever a server is replaced. [The page on
    /// deployments](crate::docs::deployments) shows how the masters are changed.
    pub fn masters_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.config.masters_name = Some(name.into());
        self
    }

    /// Sets how long a lock can outlive a crashed holder: 10 ms to 30 days, and no longer than the
    /// [`restart_quarantine`](Self::restart_quarantine) if there is one. A TTL below 40 ms also needs a
    /// [`handoff_window`](Self::handoff_window) of at most half of it. The watchdog renews a lock every third of this time.
    /// Default: 30 s.
    #[doc(alias = "lockWatchdogTimeout")]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.config.ttl = ttl;
        self
    }

    /// Sets how long a call waits for a server's answer, 1 ms to a day, but at most a third of the lease.
    /// Default: 1 s. Answers that came while the process was paused count, even if it was paused for longer.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.config.response_timeout = timeout;
        self
    }

    /// Sets how long it may take to open a connection, and how long [`connect`](Self::connect) waits for a server that
    /// is still starting, or for a cluster that is down, 1 ms to a day. Default: 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// Sets how long an acquisition without a timeout keeps waiting while the servers do not answer, 1 ms to 30 days.
    /// Waits for latches, signals, returned permits and the observers of elections end after this time, too, even those with a
    /// longer timeout. Default: 10 s.
    pub fn unavailable_after(mut self, patience: Duration) -> Self {
        self.config.unavailable_after = patience;
        self
    }

    /// Sets how long after its acquisition a lease may pass from one task of this process to the next without a
    /// request to the server: up to 1 s and half the TTL, or zero for never. Other processes may wait that much longer,
    /// since the waiting tasks of a client share one place in the server's queue, except those of a
    /// [`fair_mutex`](crate::Client::fair_mutex), for which this setting has no effect. Default: 20 ms.
    ///
    /// An [`unlock`](crate::Guard::unlock) lets the other tasks go first, for 20 µs or one turn of the runtime, if tasks of
    /// this process take turns: the next to ask gets the lease without a request, too.
    pub fn handoff_window(mut self, window: Duration) -> Self {
        self.config.handoff_window = window;
        self
    }

    /// Sets how long the server keeps a lock's fencing counter after its last use, a minute to a year. Default: a day.
    pub fn token_retention(mut self, retention: Duration) -> Self {
        self.config.token_retention = retention;
        self
    }

    /// Sets whether tokens come from the counter of Redisson's `RFencedLock`, which never expires. Turn it on for locks
    /// that Java programs take as `RFencedLock`. Default: off.
    pub fn redisson_fencing(mut self, on: bool) -> Self {
        self.config.redisson_fencing = on;
        self
    }

    /// Sets how long a server's grants do not count once it may have forgotten earlier ones, zero (they always count) to 30 days.
    /// It must be the same in all clients of these servers, and no TTL or lease may be longer. Default: 60 s with several masters,
    /// 33 s with Sentinel, 40 s with Cluster, zero with one server.
    ///
    /// A server may have forgotten grants if it restarted, or took over from the master that it followed. The client
    /// sees both in `INFO`. A server that gets its first replica, or has had none for `repl-backlog-ttl`, looks the same.
    ///
    /// **With one server, Sentinel or Cluster,** this is a grace, in which locks survive a failover: holders put leases back that
    /// the server does not have. New acquisitions wait for its end; a wait that ends before, and
    /// [`try_lock`](crate::Mutex::try_lock), fail with [`Error::Unavailable`], which says how long it still lasts.
    /// [The page on deployments](crate::docs::deployments) says what this requires, and what happens without it.
    ///
    /// **With several masters** it is Redlock's delayed restart, done by the client: acquiring fails with [`Error::Unavailable`]
    /// until a majority is out of quarantine.
    ///
    /// A server's append-only file does not shorten this: the file may have been switched on since, or the server may have
    /// another disk. With zero you vouch for the servers: each keeps every answer on a disk that outlives it (`appendonly
    /// yes`, `appendfsync always`, `no-appendfsync-on-rewrite no`, a volume of its own), and none is ever replaced by a
    /// replica; or you accept that a lock can be lost. Zero is also right for servers that are started for the first time.
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

    /// Sets how many replicas must confirm a grant or a renewal before it counts. The client waits for them with `WAIT` on a
    /// second connection, for at most a third of the [`response_timeout`](Self::response_timeout). What too few of them
    /// have in that time is given back, and the call fails with [`Error::Unavailable`] or tries again; a lease that is
    /// not renewed in this way is lost at its end. Default: zero, which waits for none.
    ///
    /// A lock outlives a failover only if the replica that is promoted has it. So this protects from the loss of locks
    /// only if every replica that can be promoted is counted, and then one dead replica stops all locks. It is for one
    /// server or one deployment of Sentinel or Cluster: several masters have no replicas.
    pub fn synced(mut self, replicas: u32) -> Self {
        self.config.synced = replicas;
        self
    }

    /// Sets the kind of channels on which a [cluster](Self::cluster) tells waiters of releases. It must be the same in all
    /// programs that share locks, Java's included: a waiter that listens on the other kind of channel hears of no release, and
    /// polls, or waits for the end of the holder's TTL. Default: [`PubSub::Auto`], which decides as Redisson does from 3.28 on.
    /// A Redisson with `shardedSubscriptionMode` `OFF` needs [`PubSub::Plain`], and one with `ON` [`PubSub::Sharded`].
    ///
    /// Other deployments have plain channels only, and refuse this setting.
    #[doc(alias = "shardedSubscriptionMode")]
    pub fn pubsub(mut self, channels: PubSub) -> Self {
        self.config.pubsub = channels;
        self
    }

    /// Sets how the client reacts to a task that waits for a lock that it holds itself. Default: [`SelfWait::Warn`].
    pub fn self_wait(mut self, reaction: SelfWait) -> Self {
        self.config.self_wait = reaction;
        self
    }

    /// Makes the client warn of each hold that has lasted this long, 1 ms to 30 days, and again whenever its length has doubled.
    /// The line in the log names the lock and the line of code that took it; [the page on logs](crate::docs::logs) lists the
    /// fields. Default: off.
    ///
    /// Nothing happens to the hold. To end one that is stuck, use [`with_max_hold`](crate::Mutex::with_max_hold).
    pub fn warn_held_after(mut self, length: Duration) -> Self {
        self.config.warn_held_after = Some(length);
        self
    }

    /// Sets how the client reacts to a wait that is part of a circle of owners, each of which waits for what the next one holds.
    /// Default: [`Deadlocks::Certain`]. The [cookbook](crate::docs::cookbook#deadlocks) says what is found.
    pub fn deadlocks(mut self, reaction: Deadlocks) -> Self {
        self.config.deadlocks = reaction;
        self
    }

    /// Sets whether the client warns of locks that are taken one under the other in an order that contradicts an earlier one, and
    /// so may deadlock some day. Default: [`LockOrder::Warn`] in debug builds, otherwise [`LockOrder::Off`].
    pub fn lock_order(mut self, reaction: LockOrder) -> Self {
        self.config.lock_order = reaction;
        self
    }

    /// Sets the monitor that is told what the client does, for metrics. Default: none; [`Client::stats`] counts in any case.
    pub fn monitor(mut self, monitor: Arc<dyn Monitor>) -> Self {
        self.monitor = Some(monitor);
        self
    }

    /// Sets whether the client logs the findings of [`Client::check`] once after connecting, at INFO. Default: on.
    pub fn log_findings(mut self, on: bool) -> Self {
        self.findings_at_connect = Some(on);
        self
    }

    /// Sets the runtime for the client's tasks and timers; it must have time and I/O enabled. Default: the one that `connect` runs
    /// on. Somebody must drive it: on a current-thread runtime that nobody runs, even a call with a timeout does not end.
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
        #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "certificates are added"))]
        let (deployment, mut places) = self.named.places()?;
        let config = Config { deployment, ..self.config };
        config.check()?;
        if config.handoff_window > config.ttl / 2 {
            return Err(Error::config(format!(
                "handoff_window is {:?}, more than half the ttl of {:?}",
                config.handoff_window, config.ttl
            )));
        }
        #[cfg(feature = "tls")]
        self.certificates.apply(places.iter_mut().flat_map(Place::addresses))?;
        let Ok(runtime) = self.runtime.map_or_else(Handle::try_current, Ok) else {
            return Err(Error::config(
                "there is no tokio runtime here: connect inside one, or set one with `runtime`",
            ));
        };
        let Seams { network, time, entropy } = self.seams;
        #[cfg(feature = "__test-seam")]
        if network.is_some() || time.is_some() {
            crate::events::seam_replaced();
        }
        let clock = Clock::new(
            time.unwrap_or_else(|| Arc::new(SystemTimeSource)),
            entropy.unwrap_or_else(|| Arc::new(SystemEntropy)),
            runtime,
        );
        let translation = self.named.address_map;
        let events = Arc::new(Events::monitored(self.monitor));
        let config = Arc::new(config);
        let engine = start(config, clock, events, &places, translation, network.as_ref()).await?;
        if self.findings_at_connect != Some(false) {
            Finding::log_all(&engine);
        }
        Ok(Client { engine })
    }
}

impl Client {
    /// Connects to `url` with the default settings.
    ///
    /// A URL is `redis://[user:password@]host[:port][/database]` or `unix:///path/to.sock`, or, with the feature `tls`,
    /// one that begins with `rediss://`.
    ///
    /// One URL can also name a deployment, for programs that read it from their environment:
    /// `redis+sentinel://[user:password@]host[:port],host[:port]/master[/database]` with the hosts of Sentinels and the login
    /// for the servers, or `redis+cluster://[user:password@]host[:port],host[:port]`.
    /// [`ClientBuilder::sentinel`] and [`ClientBuilder::cluster`] have more settings.
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
}

/// Starts the nodes, and waits until a majority of them is connected.
async fn start(
    config: Arc<Config>,
    clock: Clock,
    events: Arc<Events>,
    places: &[Place],
    translation: Option<AddressMap>,
    network: Option<&Arc<dyn Network>>,
) -> Result<Arc<Engine>, Error> {
    let tasks = TaskTracker::new();
    let farewell = Arc::<Farewell>::default();
    let servers = (places.len() > 1).then(|| Arc::new(Servers::new(places, &config)));
    let common = Common {
        network,
        config: &config,
        clock: &clock,
        tasks: &tasks,
        events: &events,
        servers: servers.as_ref(),
        membership: None,
        farewell: &farewell,
    };
    if config.deployment == Deployment::Cluster {
        let seeds = places.iter().map(|place| place.server().clone()).collect();
        let Some((cluster, first)) = Cluster::start(seeds, translation, &common) else {
            return Err(Error::config("no node of the cluster was named"));
        };
        let engine = Engine::new(config, clock, Fleet::Cluster(cluster), events, tasks, farewell);
        let found = first.await.unwrap_or(Err(Fault::Closed));
        let error = |fault| Error::from_fault(places[0].name(), None, fault, &engine.clock);
        return found.map_err(error).map(|()| engine);
    }
    let (mut nodes, mut firsts) = (Vec::new(), Vec::new());
    for place in places {
        let (node, first) = Node::start(place, &common)?;
        nodes.push(node);
        firsts.push(async move { first.await.unwrap_or(Err(Fault::Closed)) });
    }
    // Dropped without having been returned, it closes the nodes.
    let engine = Engine::new(config, clock, Fleet::Nodes(nodes.into()), events, tasks, farewell);
    engine.connected(firsts.into_iter()).await?;
    Ok(engine)
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(feature = "__test-seam")]
impl ClientBuilder {
    /// Replaces the parts that `seams` names.
    #[doc(hidden)]
    pub fn seams(mut self, seams: Seams) -> Self {
        self.seams = seams;
        self
    }
}

#[cfg(test)]
#[cfg(feature = "serde")]
mod tests;
