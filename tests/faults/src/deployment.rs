//! The servers of a run, each behind one proxy per contender.

use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use leasehold_testkit::{Cluster, Deployment as Replicas, MASTER, Pretender, Proxy, Server};
use parking_lot::Mutex;
use redis::{InfoDict, RedisResult, Value, from_redis_value};
use serde::{Deserialize, Serialize};

use crate::{
    junction::{Junction, address_of},
    wall_clock::WallClock,
};

/// What kind of deployment it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// So many servers that know nothing of each other.
    Independent(usize),
    /// Some servers that know nothing of each other, of which an operator makes other ones the masters.
    Lists,
    /// A master, its replicas and their Sentinels.
    Sentinel,
    /// The same without a grace, and with masters that grant although no replica follows them.
    Unfenced,
    /// A cluster whose nodes soon give each other up.
    Cluster,
    /// A cluster with a `cluster-node-timeout` as outside of tests, in seconds, and clients with the library's defaults if these
    /// are long enough for that.
    Patient(u32),
    /// The same with clients whose grace is no longer than their leases.
    ShortGrace(u32),
}

/// The servers, as contenders are told of them.
pub(crate) struct Deployment {
    pub(crate) layout: Layout,
    pub(crate) nodes: Vec<Node>,
    pub(crate) watchers: Vec<Watcher>,
    /// What brought the nodes together, and knows how to change that.
    pub(crate) cluster: Option<Cluster>,
    /// A Sentinel that names the first master for ever.
    liar: Option<Pretender>,
    /// Which servers each contender is told of, where others become the masters.
    lists: Mutex<Vec<Vec<usize>>>,
}

pub(crate) struct Node {
    pub(crate) index: usize,
    pub(crate) server: Arc<Server>,
    /// One for each contender.
    pub(crate) proxies: Vec<Proxy>,
    /// Every write is on its disk before it is answered.
    pub(crate) keeps_data: bool,
    /// Its clock, if it may lose its data: it can be set.
    pub(crate) clock: Option<WallClock>,
    /// Where other servers reach it: its port, and in a cluster its bus.
    pub(crate) junctions: Vec<Junction>,
}

/// A Sentinel.
pub(crate) struct Watcher {
    pub(crate) server: Arc<Server>,
    pub(crate) proxies: Vec<Proxy>,
}

/// How a contender finds its servers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    pub kind: PlaceKind,
    pub urls: Vec<String>,
    /// The list of the masters as servers keep it, where it changes. Elsewhere it has a name that all share.
    pub list: Option<String>,
    /// The ports that servers announce, and where the contender reaches them.
    pub ports: BTreeMap<u16, u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlaceKind {
    Nodes,
    Sentinel,
    Cluster,
}

impl Layout {
    /// The name of the master that the Sentinels watch.
    pub const MASTER: &str = MASTER;

    pub(crate) fn is_replicated(self) -> bool {
        !matches!(self, Self::Independent(_) | Self::Lists)
    }

    /// Whether it is so many servers for the whole run that know nothing of each other.
    pub(crate) fn is_independent(self) -> bool {
        matches!(self, Self::Independent(_))
    }

    pub(crate) fn is_cluster(self) -> bool {
        self.node_timeout().is_some()
    }

    /// After how many milliseconds without an answer a node gives another up.
    fn node_timeout(self) -> Option<u32> {
        match self {
            Self::Independent(_) | Self::Lists | Self::Sentinel | Self::Unfenced => None,
            Self::Cluster => Some(1000),
            Self::Patient(seconds) | Self::ShortGrace(seconds) => Some(seconds * 1000),
        }
    }

    /// Whether clients are as they are by default.
    pub(crate) fn is_by_default(self) -> bool {
        // With a longer timeout, the default TTL is too short.
        matches!(self, Self::Patient(seconds) if seconds <= 12)
    }

    /// How many votes the checker knows of.
    pub(crate) fn votes(self) -> usize {
        match self {
            Self::Independent(count) => count,
            Self::Lists => POOL,
            _ => 1,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Independent(count) => write!(f, "{count}"),
            Self::Lists => f.write_str("lists"),
            Self::Sentinel => f.write_str("sentinel"),
            Self::Unfenced => f.write_str("unfenced"),
            Self::Cluster => f.write_str("cluster"),
            Self::Patient(seconds) => write!(f, "cluster-{seconds}s"),
            Self::ShortGrace(seconds) => write!(f, "short-grace-{seconds}s"),
        }
    }
}

impl FromStr for Layout {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "lists" => Ok(Self::Lists),
            "sentinel" => Ok(Self::Sentinel),
            "unfenced" => Ok(Self::Unfenced),
            "cluster" => Ok(Self::Cluster),
            name => {
                let seconds = |name: &str| name.strip_suffix('s')?.parse().ok();
                let patient = name.strip_prefix("cluster-").and_then(seconds).map(Self::Patient);
                let short = name.strip_prefix("short-grace-").and_then(seconds);
                patient.or(short.map(Self::ShortGrace)).ok_or(())
            }
        }
    }
}

impl Deployment {
    pub(crate) async fn start(layout: Layout, contenders: usize) -> Self {
        let mut this = Self {
            layout,
            nodes: Vec::new(),
            watchers: Vec::new(),
            cluster: None,
            liar: None,
            lists: Mutex::new(vec![(0..FIRST_MASTERS).collect(); contenders]),
        };
        match layout {
            Layout::Independent(count) => {
                // One server keeps its data, and of several a majority: the others may lose it.
                for index in 0..count {
                    let minority = (count - 1) / 2;
                    let clock = (index < minority).then(WallClock::make);
                    let clock = clock.transpose().expect("a clock");
                    let node = Node::start(index, index >= minority, clock, contenders).await;
                    this.nodes.push(node);
                }
            }
            Layout::Lists => {
                // All go the same way there: the addresses of the masters are what clients compare.
                for index in 0..POOL {
                    this.nodes.push(Node::start(index, true, None, 1).await);
                }
            }
            Layout::Sentinel => this.watch(FENCED, contenders).await,
            Layout::Unfenced => this.watch(&[], contenders).await,
            Layout::Cluster | Layout::Patient(_) | Layout::ShortGrace(_) => {
                this.join(contenders).await;
            }
        }
        this
    }

    async fn watch(&mut self, settings: &[&str], contenders: usize) {
        let (mut first, modern) = (String::new(), has_source_setting().await);
        for index in 0..REPLICATED {
            let junction = Junction::start().await;
            let announced = junction.port().to_string();
            let mut args = REPLICATION.to_vec();
            args.extend(["--replica-announce-ip", "127.0.0.1"]);
            args.extend(["--replica-announce-port", &announced]);
            args.extend(settings);
            if index == 0 {
                first.clone_from(&announced);
            } else {
                args.extend(["--replicaof", "127.0.0.1", &first]);
            }
            let node = Node::behind(index, vec![junction], modern, &args, contenders);
            self.nodes.push(node.await);
        }
        let port = self.nodes[0].announced();
        let settings = vec![String::new(); SENTINELS];
        let replicas = Replicas::of(self.servers(), port, settings).await;
        for server in &replicas.sentinels {
            // Above what the fence takes.
            let slower = ["SENTINEL", "SET", MASTER, "down-after-milliseconds", DOWN_AFTER_MS];
            server.command(&slower).await;
            let server = server.clone();
            let proxies = proxies(&server, contenders).await;
            self.watchers.push(Watcher { server, proxies });
        }
        self.liar = Some(Pretender::start(port, Some(0)).await);
    }

    async fn join(&mut self, contenders: usize) {
        let modern = has_source_setting().await;
        let node_timeout = self.layout.node_timeout().expect("it is a cluster").to_string();
        for index in 0..=CLUSTERED {
            let junctions = vec![Junction::start().await, Junction::start().await];
            let announced = [&junctions[0], &junctions[1]].map(|it| it.port().to_string());
            let mut args =
                vec!["--cluster-enabled", "yes", "--cluster-node-timeout", &node_timeout];
            // Each shard keeps its replica.
            args.extend(["--cluster-migration-barrier", "99"]);
            args.extend(REPLICATION);
            args.extend(["--cluster-announce-ip", "127.0.0.1"]);
            args.extend(["--cluster-announce-port", &announced[0]]);
            args.extend(["--cluster-announce-bus-port", &announced[1]]);
            let node = Node::behind(index, junctions, modern, &args, contenders);
            self.nodes.push(node.await);
        }
        // The last one is added later, and removed.
        let mut servers = self.servers();
        servers.pop();
        self.cluster = Some(Cluster::of(servers).await);
    }

    fn servers(&self) -> Vec<Arc<Server>> {
        self.nodes.iter().map(|node| node.server.clone()).collect()
    }

    /// Where contender number `slot` connects.
    pub(crate) fn place(&self, slot: usize) -> Place {
        let at = |proxies: &[Proxy]| proxies[slot].url();
        let announces = self.nodes.iter().filter(|node| !node.junctions.is_empty());
        let ports = announces.map(|node| (node.announced(), node.proxies[slot].port())).collect();
        let list = (self.layout == Layout::Lists).then(|| self.lists.lock()[slot].clone());
        let (kind, urls) = match self.layout {
            Layout::Lists => {
                let list = list.as_deref().unwrap_or_default();
                (PlaceKind::Nodes, list.iter().map(|index| self.nodes[*index].url(0)).collect())
            }
            Layout::Independent(_) => {
                (PlaceKind::Nodes, self.nodes.iter().map(|node| node.url(slot)).collect())
            }
            Layout::Sentinel | Layout::Unfenced => {
                let urls = self.watchers.iter().map(|watcher| at(&watcher.proxies));
                (PlaceKind::Sentinel, urls.chain(self.liar.iter().map(Pretender::url)).collect())
            }
            Layout::Cluster | Layout::Patient(_) | Layout::ShortGrace(_) => {
                let first = self.nodes.iter().take(CLUSTERED);
                (PlaceKind::Cluster, first.map(|node| at(&node.proxies)).collect())
            }
        };
        let list = list.map(|list| self.list_of(&list));
        Place { kind, urls, list, ports }
    }

    /// The masters that contender number `slot` is told of.
    pub(crate) fn masters_of(&self, slot: usize) -> Vec<usize> {
        self.lists.lock()[slot].clone()
    }

    /// From its next start on, contender number `slot` is told of these masters.
    pub(crate) fn name_masters(&self, slot: usize, masters: &[usize]) {
        self.lists.lock()[slot] = masters.to_vec();
    }

    /// The list of these masters, as an operator types it.
    pub(crate) fn list_of(&self, masters: &[usize]) -> String {
        let address = |index: &usize| format!("127.0.0.1:{}", self.nodes[*index].proxies[0].port());
        masters.iter().map(address).collect::<Vec<_>>().join(" ")
    }

    /// Cuts a server off from all other servers and the Sentinels, or from nobody any more. Contenders have ways of their
    /// own.
    pub(crate) fn isolate(&self, index: Option<usize>) {
        for node in &self.nodes {
            let all = self.nodes.iter().map(|node| address_of(node.index));
            let all = all.chain([crate::junction::ELSEWHERE]);
            let cut: Vec<IpAddr> = match index {
                Some(index) if index == node.index => all.collect(),
                Some(index) => vec![address_of(index)],
                None => Vec::new(),
            };
            node.junctions.iter().for_each(|junction| junction.cut_off(cut.iter().copied()));
        }
    }

    /// Cuts a server off from its replicas: nothing that it writes arrives there.
    pub(crate) fn cut_replication(&self, from: &Node) {
        let others = self.nodes.iter().filter(|node| node.index != from.index);
        from.junctions[0].cut_off(others.map(|node| address_of(node.index)));
    }

    /// The network between contenders and servers is cut in two: on one side the server `index` and contender number
    /// `beside`, on the other side all else. Or it is whole again.
    pub(crate) fn divide(&self, index: usize, beside: usize, cut: bool) {
        for node in &self.nodes {
            for (slot, proxy) in node.proxies.iter().enumerate() {
                if (slot == beside) != (node.index == index) {
                    proxy.black_hole(cut);
                }
            }
        }
        for watcher in &self.watchers {
            watcher.proxies[beside].black_hole(cut);
        }
    }
}

impl Node {
    async fn start(
        index: usize,
        keeps_data: bool,
        clock: Option<WallClock>,
        contenders: usize,
    ) -> Self {
        let rules = ["--user", USER, "on", &format!(">{USER}"), "~*", "&*", "+@all"];
        let written_through = ["--appendonly", "yes", "--appendfsync", "always"];
        let mut args = rules.to_vec();
        if keeps_data {
            args.extend(written_through);
        }
        let environment = clock.iter().flat_map(WallClock::environment).collect::<Vec<_>>();
        let environment = environment.iter().map(|(name, value)| (*name, value.as_str()));
        let environment = environment.collect::<Vec<_>>();
        let server = Arc::new(Server::in_environment(&environment, &args).await);
        let proxies = proxies(&server, contenders).await;
        Self { index, server, proxies, keeps_data, clock, junctions: Vec::new() }
    }

    /// A server that others reach at its junctions.
    async fn behind(
        index: usize,
        junctions: Vec<Junction>,
        modern: bool,
        args: &[&str],
        contenders: usize,
    ) -> Self {
        let address = address_of(index).to_string();
        // Servers before 7.0 connect from the first address at which they listen.
        let source = if modern {
            vec!["--bind-source-addr", &address]
        } else {
            vec!["--bind", &address, "127.0.0.1"]
        };
        let server = Arc::new(Server::with(&[&source, args].concat()).await);
        junctions[0].lead_to(server.port());
        if let Some(bus) = junctions.get(1) {
            bus.lead_to(server.port() + 10_000);
        }
        let proxies = proxies(&server, contenders).await;
        Self { index, server, proxies, keeps_data: false, clock: None, junctions }
    }

    /// Where contender number `slot` connects.
    pub(crate) fn url(&self, slot: usize) -> String {
        format!("redis://{USER}:{USER}@127.0.0.1:{}", self.proxies[slot].port())
    }

    /// The port that it announces.
    pub(crate) fn announced(&self) -> u16 {
        self.junctions[0].port()
    }

    /// Forgets everything. The server must be down.
    pub(crate) fn wipe(&self) {
        for entry in std::fs::read_dir(self.server.dir()).expect("the server's directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                std::fs::remove_dir_all(path).expect("removed");
            } else if path.extension().is_some_and(|kind| kind == "rdb" || kind == "aof") {
                std::fs::remove_file(path).expect("removed");
            }
        }
    }

    /// Runs a command until it is done: the server may be refusing or hanging for another fault.
    ///
    /// # Panics
    ///
    /// When it is not done in time, or refused for what is no fault.
    pub(crate) async fn insist(&self, words: &[&str]) -> Value {
        let asked_at = Instant::now();
        loop {
            match self.server.try_command(words).await {
                Ok(value) => return value,
                Err(error) if is_of_a_fault(&error) && asked_at.elapsed() < LIMIT => {
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => panic!("{words:?}: {error}"),
            }
        }
    }

    /// Runs a command as well as may be.
    pub(crate) async fn attempt(&self, words: &[&str]) -> RedisResult<Value> {
        self.server.try_command(words).await
    }
}

fn is_of_a_fault(error: &redis::RedisError) -> bool {
    let text = error.to_string();
    error.is_io_error()
        || error.is_timeout()
        || error.is_unrecoverable_error()
        || ["LOADING", "OOM", "READONLY", "NOREPLICAS", "BUSY", "BusyLoading", "rewriting"]
            .iter()
            .any(|code| text.contains(code))
}

/// Contenders log in as this user, whose rights come and go.
pub(crate) const USER: &str = "contender";
const LIMIT: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_millis(20);
/// Replicas need not wait for others before they get the data, and soon give up a link that is dead.
const REPLICATION: &[&str] = &["--repl-diskless-sync-delay", "0", "--repl-timeout", "10"];
/// An old master without replicas stops within three seconds.
const FENCED: &[&str] = &["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"];
const DOWN_AFTER_MS: &str = "1500";
/// The servers that may be masters where these change, and how many are at first.
pub(crate) const POOL: usize = 6;
pub(crate) const FIRST_MASTERS: usize = 3;
/// A master and its replicas.
const REPLICATED: usize = 3;
/// One may be dead and another hang, and there is still a majority.
const SENTINELS: usize = 5;
/// Three masters with a replica each.
pub(crate) const CLUSTERED: usize = 6;

async fn proxies(server: &Server, contenders: usize) -> Vec<Proxy> {
    join_all((0..contenders).map(|_| Proxy::start(server.port()))).await
}

/// What a server says of itself under `section`.
pub(crate) async fn info(server: &Server, section: &str) -> Option<InfoDict> {
    let info = server.try_command(&["INFO", section]).await.ok()?;
    from_redis_value(info).ok()
}

/// Whether servers can be told from which address they connect.
async fn has_source_setting() -> bool {
    let server = Server::start().await;
    let found = server.command(&["CONFIG", "GET", "bind-source-addr"]).await;
    from_redis_value::<Vec<String>>(found).is_ok_and(|found| !found.is_empty())
}
