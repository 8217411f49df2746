//! A replicated deployment: a master, its replicas, and the Sentinels that watch it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use futures_util::{future::join_all, stream::StreamExt};
use leasehold::{Client, ClientBuilder};
use redis::{Value, from_redis_value};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use super::{
    Server, eventually,
    resp::{bulk, line, take_command},
};

/// The name by which the Sentinels know the master.
pub(crate) const MASTER: &str = "mymaster";

/// Servers that replicate, and their Sentinels; nothing of them outlives this value.
pub(crate) struct Deployment {
    // Dropped first, so that they start no failover at the end of a test.
    pub(crate) sentinels: Vec<Arc<Server>>,
    /// The first is the master at first.
    pub(crate) servers: Vec<Arc<Server>>,
}

impl Deployment {
    /// A master with one replica, and three Sentinels.
    pub(crate) async fn start() -> Self {
        Self::with(1, 3, &[]).await
    }

    /// A master with replicas and Sentinels, and options of the servers besides the usual ones. Waits until they all know
    /// of each other.
    pub(crate) async fn with(replicas: usize, sentinels: usize, args: &[&str]) -> Self {
        Self::watched_by(replicas, vec![String::new(); sentinels], args).await
    }

    /// As [`with`](Self::with), with a Sentinel for each text, which stands in its configuration.
    pub(crate) async fn watched_by(replicas: usize, more: Vec<String>, args: &[&str]) -> Self {
        // Replicas need not wait for others before they get the data.
        let args = [&["--repl-diskless-sync-delay", "0"], args].concat();
        let master = Server::with(&args).await;
        let port = master.port();
        let of = ["--replicaof", "127.0.0.1", &port.to_string()];
        let args = [&of[..], &args].concat();
        let mut servers = vec![master];
        servers.extend(join_all((0..replicas).map(|_| Server::with(&args))).await);
        Self::of(servers.into_iter().map(Arc::new).collect(), port, more).await
    }

    /// As [`watched_by`](Self::watched_by), of servers that run already. The Sentinels reach the first one at `port`.
    pub(crate) async fn of(servers: Vec<Arc<Server>>, port: u16, more: Vec<String>) -> Self {
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

    /// The settings of a client of it, whose servers have just started.
    pub(crate) fn builder(&self) -> ClientBuilder {
        let builder = Client::builder().sentinel(MASTER, self.sentinel_urls());
        builder.restart_quarantine(Duration::ZERO)
    }

    pub(crate) async fn connect(&self) -> Client {
        self.builder().connect().await.expect("the master accepts the client")
    }

    pub(crate) fn sentinel_urls(&self) -> Vec<String> {
        self.sentinels.iter().map(|sentinel| sentinel.url()).collect()
    }

    pub(crate) fn master(&self) -> &Server {
        &self.servers[0]
    }

    /// The server that a Sentinel names.
    pub(crate) async fn named_by(&self, sentinel: &Server) -> &Server {
        let at = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]).await;
        let (_, port): (String, u16) = from_redis_value(at).expect("an address");
        let server = self.servers.iter().find(|server| server.port() == port);
        server.expect("one of the deployment's")
    }

    /// Waits until every Sentinel that runs names `server`, and it says itself that it is the master.
    pub(crate) async fn is_led_by(&self, server: &Server) {
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
    pub(crate) async fn is_synced(&self) {
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
    pub(crate) async fn first_report(&self) -> impl Future<Output = Instant> + use<> {
        self.first_report_of("+switch-master").await
    }

    /// Waits for the first of the Sentinels that reports this event, from the time of this call on.
    pub(crate) async fn first_report_of(
        &self,
        event: &str,
    ) -> impl Future<Output = Instant> + use<> {
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
    pub(crate) async fn is_followed_by(&self, server: &Server) {
        eventually(SETTLE_LIMIT, "it follows", async || self.has_role(server, "slave").await).await;
    }

    async fn has_role(&self, server: &Server, name: &str) -> bool {
        // A change of the role cuts connections.
        let Ok(Value::Array(parts)) = server.try_command(&["ROLE"]).await else { return false };
        parts[0] == Value::BulkString(name.into())
            && parts.get(3).is_none_or(|state| *state == Value::BulkString(b"connected".into()))
    }

    /// Begins a failover although the master is well, as an operator does.
    pub(crate) async fn fail_over(&self) {
        eventually(SETTLE_LIMIT, "a failover can begin", async || {
            self.sentinels[0].try_command(&["SENTINEL", "FAILOVER", MASTER]).await.is_ok()
        })
        .await;
    }
}

/// A Sentinel of the tests, which names what it is told to, and reports what it is told to.
pub(crate) struct Pretender {
    port: u16,
    state: Arc<State>,
    _listening: JoinSet<()>,
}

struct State {
    /// What it answers: the port of the master, and the epoch if it tells that.
    says: watch::Sender<(u16, Option<u64>)>,
    reports: watch::Sender<Option<String>>,
    questions: AtomicUsize,
    subscriptions: AtomicUsize,
}

impl Pretender {
    /// Starts one that names the master at `port`.
    pub(crate) async fn start(port: u16, epoch: Option<u64>) -> Self {
        Self::at(0, port, epoch).await
    }

    /// Starts one that listens on `its_port`, or on any if that is zero.
    pub(crate) async fn at(its_port: u16, port: u16, epoch: Option<u64>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", its_port)).await.expect("a free port");
        let its_port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(State {
            says: watch::Sender::new((port, epoch)),
            reports: watch::Sender::new(None),
            questions: AtomicUsize::new(0),
            subscriptions: AtomicUsize::new(0),
        });
        let mut listening = JoinSet::new();
        let serving_state = state.clone();
        listening.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                serving.spawn(serve(client, serving_state.clone()));
            }
        });
        Self { port: its_port, state, _listening: listening }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// It names another master from now on, and reports nothing.
    pub(crate) fn says(&self, port: u16, epoch: Option<u64>) {
        self.state.says.send_replace((port, epoch));
    }

    /// It reports a switch, and answers accordingly.
    pub(crate) fn reports(&self, from: u16, to: u16) {
        self.state.says.send_modify(|(port, epoch)| {
            *port = to;
            *epoch = epoch.map(|epoch| epoch + 1);
        });
        let report = format!("{MASTER} 127.0.0.1 {from} 127.0.0.1 {to}");
        self.state.reports.send_replace(Some(report));
    }

    /// How often it was asked for the master's address.
    pub(crate) fn questions(&self) -> usize {
        self.state.questions.load(SeqCst)
    }

    pub(crate) fn subscriptions(&self) -> usize {
        self.state.subscriptions.load(SeqCst)
    }
}

async fn serve(mut client: TcpStream, state: Arc<State>) {
    let mut reports = state.reports.subscribe();
    let mut received = Vec::new();
    let mut listens = false;
    loop {
        let mut sent = Vec::new();
        tokio::select! {
            read = client.read_buf(&mut received) => match read {
                Ok(1..) => while let Some(words) = take_command(&mut received) {
                    let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
                    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
                    listens |= words[0] == "SUBSCRIBE";
                    answer(&words, &state, &mut sent);
                },
                _ => return,
            },
            Ok(()) = reports.changed(), if listens => {
                let report = reports.borrow_and_update().clone().unwrap_or_default();
                line('*', 3, &mut sent);
                ["message", "+switch-master", &report].iter().for_each(|word| bulk('$', word.as_bytes(), &mut sent));
            }
        }
        if client.write_all(&sent).await.is_err() {
            return;
        }
    }
}

fn answer(words: &[&str], state: &State, sent: &mut Vec<u8>) {
    let (port, epoch) = *state.says.borrow();
    match (words[0], words.get(1).copied().unwrap_or_default(), epoch) {
        ("HELLO", ..) => {
            line('%', 1, sent);
            line('+', "proto", sent);
            line(':', 3, sent);
        }
        ("SENTINEL", "MASTER", Some(epoch)) => {
            line('*', 2, sent);
            bulk('$', b"config-epoch", sent);
            bulk('$', epoch.to_string().as_bytes(), sent);
        }
        ("SENTINEL", "MASTER", None) => {
            line(
                '-',
                "NOPERM User x has no permissions to run the 'sentinel|master' command",
                sent,
            );
        }
        ("SENTINEL", ..) => {
            state.questions.fetch_add(1, SeqCst);
            line('*', 2, sent);
            bulk('$', b"127.0.0.1", sent);
            bulk('$', port.to_string().as_bytes(), sent);
        }
        ("SUBSCRIBE", channel, _) => {
            state.subscriptions.fetch_add(1, SeqCst);
            line('*', 3, sent);
            bulk('$', b"subscribe", sent);
            bulk('$', channel.as_bytes(), sent);
            line(':', 1, sent);
        }
        _ => line('+', "OK", sent),
    }
}

/// What the Sentinels wait for an answer of the master before they consider it down.
pub(crate) const DOWN_AFTER_MS: u64 = 500;
const SETTLE_LIMIT: Duration = Duration::from_secs(30);
