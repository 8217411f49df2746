//! A replicated deployment: a master, its replicas, and the Sentinels that watch it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{future::join_all, stream::StreamExt};
use redis::{Value, from_redis_value};
use tokio::task::JoinSet;

use crate::{Server, eventually};

/// The name by which the Sentinels know the master.
pub const MASTER: &str = "mymaster";

/// Servers that replicate, and their Sentinels; nothing of them outlives this value.
pub struct Deployment {
    /// The Sentinels.
    // Dropped first, so that they start no failover at the end of a test.
    pub sentinels: Vec<Arc<Server>>,
    /// The first is the master at first.
    pub servers: Vec<Arc<Server>>,
}

impl Deployment {
    /// A master with one replica, and three Sentinels.
    pub async fn start() -> Self {
        Self::with(1, 3, &[]).await
    }

    /// A master with replicas and Sentinels, and options of the servers besides the usual ones. Waits until they all know
    /// of each other.
    pub async fn with(replicas: usize, sentinels: usize, args: &[&str]) -> Self {
        // Replicas need not wait for others before they get the data.
        let args = [&["--repl-diskless-sync-delay", "0"], args].concat();
        let master = Server::with(&args).await;
        let port = master.port();
        let of = ["--replicaof", "127.0.0.1", &port.to_string()];
        let args = [&of[..], &args].concat();
        let mut servers = vec![master];
        servers.extend(join_all((0..replicas).map(|_| Server::with(&args))).await);
        let servers = servers.into_iter().map(Arc::new).collect();
        Self::of(servers, port, vec![String::new(); sentinels]).await
    }

    /// The same of servers that run already, with a Sentinel for each text of `more`, which stands in its configuration. They
    /// reach the first server at `port`.
    pub async fn of(servers: Vec<Arc<Server>>, port: u16, more: Vec<String>) -> Self {
        let quorum = more.len() / 2 + 1;
        let conf = |more: String| {
            format!(
                "sentinel monitor {MASTER} 127.0.0.1 {port} {quorum}\n\
                 sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}\n\
                 sentinel failover-timeout {MASTER} 5000\n{more}"
            )
        };
        let start = |more: String| async move { Arc::new(Server::sentinel(&conf(more)).await) };
        let sentinels = join_all(more.into_iter().map(start)).await;
        let this = Self { sentinels, servers };
        for sentinel in &this.sentinels {
            // They find each other and the replicas sooner. Servers before 7.0 do not know it, and take longer.
            let sooner = ["SENTINEL", "DEBUG", "INFO-PERIOD", "300", "PUBLISH-PERIOD", "300"];
            let _ = sentinel.try_command(&sooner).await;
        }
        eventually(SETTLE_LIMIT, "the Sentinels know everything", this.is_settled()).await;
        this
    }

    fn is_settled(&self) -> impl AsyncFnMut() -> bool {
        async || {
            for sentinel in &self.sentinels {
                let others = self.field(sentinel, "num-other-sentinels").await;
                let replicas = self.field(sentinel, "num-slaves").await;
                let complete = others == (self.sentinels.len() - 1).to_string()
                    && replicas == (self.servers.len() - 1).to_string();
                if !complete || !self.replicas_are_usable(sentinel).await {
                    return false;
                }
            }
            true
        }
    }

    async fn replicas_are_usable(&self, sentinel: &Server) -> bool {
        let replicas = sentinel.command(&["SENTINEL", "REPLICAS", MASTER]).await;
        let replicas: Vec<Vec<String>> = from_redis_value(replicas).expect("lists of fields");
        replicas.iter().all(|fields| {
            let is = |name: &str, value: &str| {
                fields.chunks_exact(2).any(|pair| pair[0] == name && pair[1] == value)
            };
            is("flags", "slave") && is("master-link-status", "ok")
        })
    }

    /// What a Sentinel says of the master.
    async fn field(&self, sentinel: &Server, name: &str) -> String {
        let fields = sentinel.command(&["SENTINEL", "MASTER", MASTER]).await;
        let fields: Vec<String> = from_redis_value(fields).expect("a list of fields");
        let mut pairs = fields.chunks_exact(2);
        pairs.find(|pair| pair[0] == name).map(|pair| pair[1].clone()).unwrap_or_default()
    }

    /// The URLs of all Sentinels.
    pub fn sentinel_urls(&self) -> Vec<String> {
        self.sentinels.iter().map(|sentinel| sentinel.url()).collect()
    }

    /// The master at first.
    pub fn master(&self) -> &Server {
        &self.servers[0]
    }

    /// The server that a Sentinel names.
    async fn named_by(&self, sentinel: &Server) -> &Server {
        let at = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]).await;
        let (_, port): (String, u16) = from_redis_value(at).expect("an address");
        let server = self.servers.iter().find(|server| server.port() == port);
        server.expect("one of the deployment's")
    }

    /// Waits until every Sentinel that runs names `server`, and it says itself that it is the master.
    pub async fn is_led_by(&self, server: &Server) {
        eventually(SETTLE_LIMIT, "all name the new master", async || {
            for sentinel in &self.sentinels {
                if self.named_by(sentinel).await.port() != server.port() {
                    return false;
                }
            }
            self.has_role(server, "master").await
        })
        .await;
    }

    /// Waits until the replicas have everything.
    pub async fn is_synced(&self) {
        let replicas = self.servers.len() as u64 - 1;
        eventually(SETTLE_LIMIT, "the replicas have everything", async || {
            let mut raw = self.master().raw().await;
            let mut pipeline = redis::pipe();
            pipeline.cmd("SET").arg("mark").arg(1).ignore().cmd("WAIT").arg(replicas).arg(100);
            let (acked,): (u64,) = pipeline.query_async(&mut raw).await.expect("answered");
            acked == replicas
        })
        .await;
    }

    /// Waits for the first of the Sentinels that reports a switch, from the time of this call on.
    pub async fn first_report(&self) -> impl Future<Output = Instant> + use<> {
        self.first_report_of("+switch-master").await
    }

    /// Waits for the first of the Sentinels that reports this event, from the time of this call on.
    pub async fn first_report_of(&self, event: &str) -> impl Future<Output = Instant> + use<> {
        let mut listening = JoinSet::new();
        for sentinel in &self.sentinels {
            let client = redis::Client::open(sentinel.url()).expect("a URL");
            let mut reports = client.get_async_pubsub().await.expect("the Sentinel accepts it");
            reports.subscribe(event).await.expect("subscribed");
            listening.spawn(async move {
                reports.on_message().next().await.expect("it still runs");
                Instant::now()
            });
        }
        async move { listening.join_next().await.expect("a Sentinel").expect("no panic") }
    }

    /// Waits until `server` follows another one.
    pub async fn is_followed_by(&self, server: &Server) {
        eventually(SETTLE_LIMIT, "it follows", async || self.has_role(server, "slave").await).await;
    }

    async fn has_role(&self, server: &Server, name: &str) -> bool {
        // A change of the role cuts connections.
        let Ok(Value::Array(parts)) = server.try_command(&["ROLE"]).await else { return false };
        parts[0] == Value::BulkString(name.into())
            && parts.get(3).is_none_or(|state| *state == Value::BulkString(b"connected".into()))
    }

    /// Begins a failover although the master is well, as an operator does.
    pub async fn fail_over(&self) {
        eventually(SETTLE_LIMIT, "a failover can begin", async || {
            self.sentinels[0].try_command(&["SENTINEL", "FAILOVER", MASTER]).await.is_ok()
        })
        .await;
    }
}

/// What the Sentinels wait for an answer of the master before they consider it down.
pub const DOWN_AFTER_MS: u64 = 500;
const SETTLE_LIMIT: Duration = Duration::from_secs(30);
