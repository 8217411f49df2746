//! Paused time, pipes instead of a network, and randomness from a number: the same input, the same run.

use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold::ClientBuilder;
use leasehold::seam::{
    Connecting, Connector, Entropy, Network, Seams, TimeSource, Timestamp, command_config,
};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisResult};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::brain::{Ask, Brain, Line, Out, Outlet, well};
use crate::request::{Request, Script};

/// Runs `body` to its end in time that passes only where all wait.
pub fn run<F: Future>(body: impl FnOnce() -> F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async { body().await })
}

/// `future`'s output and how long it took. Longer than `most`, and it hangs.
pub async fn bounded<F: Future>(what: &str, most: Duration, future: F) -> (F::Output, Duration) {
    let began = Instant::now();
    // Well behind the limit: a late end is told from none at all.
    let slack = Duration::from_millis(60);
    match tokio::time::timeout(most + Duration::from_secs(60), future).await {
        Ok(output) => {
            let took = began.elapsed();
            assert!(took <= most + slack, "{what} took {took:?}, more than {most:?}");
            (output, took)
        }
        Err(_) => panic!("{what} did not end within {most:?}, nor a minute after it"),
    }
}

/// Servers with one brain, and the time.
pub struct World<B> {
    shared: Arc<Shared<B>>,
}

struct Shared<B> {
    brain: Mutex<B>,
    began: Instant,
    connections: AtomicUsize,
    random: AtomicU64,
    nodes: usize,
}

impl<B> Clone for World<B> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<B: Brain> World<B> {
    pub fn new(nodes: usize, seed: u64, brain: B) -> Self {
        Self {
            shared: Arc::new(Shared {
                brain: Mutex::new(brain),
                began: Instant::now(),
                connections: AtomicUsize::new(0),
                random: AtomicU64::new(seed),
                nodes,
            }),
        }
    }

    pub fn brain(&self) -> MutexGuard<'_, B> {
        self.shared.brain.lock().expect("no panic before this one")
    }

    /// Since the world began.
    pub fn now(&self) -> Duration {
        self.shared.began.elapsed()
    }

    /// A builder of a client of these servers.
    pub fn client(&self) -> ClientBuilder {
        let urls = (0..self.shared.nodes).map(|node| format!("redis://node:{}", 1 + node));
        self.seams(leasehold::Client::builder().nodes(urls))
    }

    /// The same builder, for a client in this world.
    pub fn seams(&self, builder: ClientBuilder) -> ClientBuilder {
        let [network, time] = [self.clone(), self.clone()];
        builder.name("fuzz").seams(Seams {
            network: Some(Arc::new(network)),
            time: Some(Arc::new(time)),
            entropy: Some(Arc::new(self.clone())),
        })
    }

    /// The client's end of a new connection.
    fn open(&self, node: usize, line: Line) -> DuplexStream {
        let (here, there) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(there);
        let (queue, out) = mpsc::unbounded_channel();
        let connection = self.shared.connections.fetch_add(1, Ordering::Relaxed);
        let world = self.clone();
        let reading = tokio::spawn(async move {
            world.serve(reader, Outlet { queue }, node, line, connection).await
        });
        tokio::spawn(async move {
            write(writer, out).await;
            reading.abort();
        });
        here
    }

    async fn serve(
        self,
        mut reader: ReadHalf<DuplexStream>,
        outlet: Outlet,
        node: usize,
        line: Line,
        connection: usize,
    ) {
        let mut bytes = Vec::new();
        // The questions of a handshake end with its preflight.
        let mut met = false;
        loop {
            match reader.read_buf(&mut bytes).await {
                Ok(1..) => {}
                _ => return outlet.close(),
            }
            while let Some(request) = Request::take(&mut bytes) {
                let at = self.now();
                let ask = Ask { node, connection, line, request: &request, outlet: &outlet, at };
                match (request.script, line) {
                    (Some(Script::Preflight), _) => {
                        met = true;
                        let none = crate::brain::willing(Script::Preflight);
                        outlet.send(&none.encode());
                    }
                    (Some(script), _) => self.brain().script(ask, script),
                    (None, Line::Subscriptions) if request.word(1) != PROBE => {
                        self.brain().subscription(ask);
                    }
                    (None, Line::Subscriptions) => {
                        outlet.send(&crate::brain::subscription_reply(&request));
                    }
                    (None, Line::Commands) if met || is_about_others(&request) => {
                        self.brain().question(ask);
                    }
                    (None, Line::Commands) => outlet.send(&well(node, &request).encode()),
                }
            }
        }
    }
}

/// Whether a server is asked about others: a handshake does not do that.
fn is_about_others(request: &Request) -> bool {
    ["CLUSTER", "SENTINEL", "PUBSUB"].into_iter().any(|verb| request.is(verb))
}

async fn write(mut writer: WriteHalf<DuplexStream>, mut out: mpsc::UnboundedReceiver<Out>) {
    let mut is_silent = false;
    while let Some(next) = out.recv().await {
        match next {
            Out::Silence => is_silent = true,
            Out::Bytes(_) | Out::Wait(_) if is_silent => {}
            Out::Bytes(bytes) => {
                if writer.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Out::Wait(duration) => tokio::time::sleep(duration).await,
            Out::Close => break,
        }
    }
    let _ = writer.shutdown().await;
}

impl<B: Brain> Network for World<B> {
    fn connector(&self, address: &str) -> Arc<dyn Connector> {
        let port = address.strip_prefix("redis://node:").and_then(|port| port.parse().ok());
        let node = port.filter(|port| (1..=self.shared.nodes).contains(port)).map(|port| port - 1);
        Arc::new(Door { world: self.clone(), address: address.to_owned(), node })
    }
}

struct Door<B> {
    world: World<B>,
    address: String,
    /// `None`: nobody is there.
    node: Option<usize>,
}

impl<B: Brain> Door<B> {
    fn open(&self, line: Line) -> RedisResult<DuplexStream> {
        self.world.brain().dialled(&self.address);
        match self.node {
            Some(node) => Ok(self.world.open(node, line)),
            None => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into()),
        }
    }
}

impl<B: Brain> Connector for Door<B> {
    fn commands(&self, lost: Arc<Notify>) -> Connecting<MultiplexedConnection> {
        let stream = self.open(Line::Commands);
        let config = command_config(lost);
        Box::pin(async move {
            let stream = stream?;
            let login = login(ProtocolVersion::RESP3);
            let (connection, driver) =
                MultiplexedConnection::new_with_config(&login, stream, config).await?;
            tokio::spawn(driver);
            Ok(connection)
        })
    }

    fn subscriptions(&self) -> Connecting<PubSub> {
        let stream = self.open(Line::Subscriptions);
        Box::pin(async move { PubSub::new(&login(ProtocolVersion::RESP2), stream?).await })
    }
}

fn login(protocol: ProtocolVersion) -> RedisConnectionInfo {
    let info = "redis://node:1".into_connection_info().expect("an address");
    info.redis_settings().clone().set_protocol(protocol)
}

impl<B: Brain> TimeSource for World<B> {
    fn now(&self) -> Timestamp {
        // Not from zero, which could hide what is subtracted from it.
        Timestamp::from_origin(Duration::from_secs(1_000_000) + self.shared.began.elapsed())
    }
}

impl<B: Brain> Entropy for World<B> {
    fn bits(&self) -> u128 {
        let word = || {
            let state = self.shared.random.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ (mixed >> 31)
        };
        u128::from(word()) << 64 | u128::from(word())
    }
}

/// What the library's handshake tries to subscribe to.
const PROBE: &str = "leasehold_probe";
