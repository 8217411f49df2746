//! A network between a client and a server that fails on demand.

use std::{
    future::poll_fn,
    io,
    net::{Ipv4Addr, TcpListener as StdListener},
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    runtime::{Builder, Runtime},
    sync::{Notify, mpsc, watch},
    time::Instant,
};

use crate::ports;

/// Passes bytes between its own port and a server's on 127.0.0.1; its switches act at once, on live connections too.
///
/// It runs on a thread of its own, so that it goes on while a test blocks.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    /// `None` only while dropped.
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct Shared {
    server_port: AtomicU16,
    switches: watch::Sender<Switches>,
    /// `None` while it refuses.
    listener: Mutex<Option<TcpListener>>,
    listener_changed: Notify,
    connections: AtomicUsize,
    /// How many messages were passed on to clients that subscribe, at least.
    messages: AtomicUsize,
}

#[derive(Clone, Debug, Default)]
struct Switches {
    delay: Duration,
    drop_requests: bool,
    drop_replies: bool,
    hold_replies: Option<Held>,
    /// How often all connections were cut.
    cuts: u64,
    /// How often all connections were half-closed.
    half_closings: u64,
    /// How often the connections were silenced on which replicas are waited for.
    silences: u64,
}

/// Which of the server's answers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    All,
    /// Those on connections that subscribe to nothing.
    OfCommands,
}

impl Switches {
    fn holds(&self, subscribes: bool) -> bool {
        self.hold_replies.is_some_and(|held| held == Held::All || !subscribes)
    }
}

impl Proxy {
    /// Starts a proxy before the server on `server_port`.
    pub async fn start(server_port: u16) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime for the proxy can be made");
        let (port, listener) = listen();
        let listener = {
            let _context = runtime.enter();
            TcpListener::from_std(listener).expect("the listener can be polled")
        };
        let shared = Arc::new(Shared {
            server_port: AtomicU16::new(server_port),
            switches: watch::Sender::default(),
            listener: Mutex::new(Some(listener)),
            listener_changed: Notify::new(),
            connections: AtomicUsize::new(0),
            messages: AtomicUsize::new(0),
        });
        runtime.spawn(accept(Arc::clone(&shared)));
        Self { port, shared, runtime: Some(runtime) }
    }

    /// Where to connect, to reach the server through the proxy.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Replies that arrive from now on are passed on this much later, in order. Zero: at once.
    pub fn delay_replies(&self, delay: Duration) {
        self.switch(|switches| switches.delay = delay);
    }

    /// Swallows what clients send. Off again, it cuts what is live, as [`drop_replies`](Self::drop_replies) does.
    pub fn drop_requests(&self, on: bool) {
        self.switch(|switches| {
            switches.cuts += u64::from(switches.drop_requests && !on);
            switches.drop_requests = on;
        });
    }

    /// Swallows what the server answers: commands run, and nobody is told.
    ///
    /// Off again, it cuts what is live: replies are matched to commands by their order, and on no real
    /// connection does a later byte arrive where an earlier one did not.
    pub fn drop_replies(&self, on: bool) {
        self.switch(|switches| {
            switches.cuts += u64::from(switches.drop_replies && !on);
            switches.drop_replies = on;
        });
    }

    /// Keeps the server's answers until [`release_replies`](Self::release_replies).
    pub fn hold_replies(&self) {
        self.switch(|switches| switches.hold_replies = Some(Held::All));
    }

    /// Keeps the server's answers to commands, but not its messages, until [`release_replies`](Self::release_replies).
    pub fn hold_answers(&self) {
        self.switch(|switches| switches.hold_replies = Some(Held::OfCommands));
    }

    /// A number that grows with each message that a client has been sent.
    pub fn messages(&self) -> usize {
        self.shared.messages.load(Ordering::SeqCst)
    }

    /// Passes on what was held, in order, and whatever follows.
    pub fn release_replies(&self) {
        self.switch(|switches| switches.hold_replies = None);
    }

    /// Swallows everything in both directions, as a network does that is down. Off again, it cuts what is live.
    pub fn black_hole(&self, on: bool) {
        self.switch(|switches| {
            switches.cuts += u64::from(switches.drop_replies && !on);
            switches.drop_requests = on;
            switches.drop_replies = on;
        });
    }

    /// Leads new connections to another server from now on.
    pub fn lead_new_ones_to(&self, server_port: u16) {
        self.shared.server_port.store(server_port, Ordering::SeqCst);
    }

    /// Leads to another server from now on; live connections end.
    pub fn lead_to(&self, server_port: u16) {
        self.lead_new_ones_to(server_port);
        self.cut();
    }

    /// Breaks all live connections: clients see a reset. What the server has already been sent still runs.
    pub fn cut(&self) {
        self.switch(|switches| switches.cuts += 1);
    }

    /// Ends all live connections on the server's side only: it is told that the client has closed, and the client
    /// is told nothing. It gets the replies that were on their way, and no more.
    pub fn half_close(&self) {
        self.switch(|switches| switches.half_closings += 1);
    }

    /// Swallows from now on what the server answers on the live connections on which replicas are waited for (`WAIT`).
    pub fn silence_waits(&self) {
        self.switch(|switches| switches.silences += 1);
    }

    /// Refuses new connections, or accepts them again. Live ones go on.
    pub fn refuse(&self, on: bool) {
        let mut listener = self.shared.listener();
        if on {
            *listener = None;
        } else if listener.is_none() {
            let _context = self.runtime.as_ref().map(Runtime::enter);
            let again = bind(self.port).and_then(TcpListener::from_std);
            *listener = Some(again.expect("the proxy's port is still free"));
            self.shared.listener_changed.notify_one();
        }
    }

    /// How many connections live: those that the client has not closed.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    fn switch(&self, change: impl FnOnce(&mut Switches)) {
        self.shared.switches.send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // In async code a runtime may not wait for its own end.
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn listener(&self) -> MutexGuard<'_, Option<TcpListener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn accepted(&self) -> io::Result<TcpStream> {
        // The listener is not kept across an await: `refuse` closes it at once.
        let accepted = poll_fn(|context| match &*self.listener() {
            Some(listener) => listener.poll_accept(context),
            None => Poll::Pending,
        });
        Ok(accepted.await?.0)
    }
}

fn listen() -> (u16, StdListener) {
    for _ in 0..PORTS_TRIED {
        let port = ports::next();
        if let Ok(listener) = bind(port) {
            return (port, listener);
        }
    }
    panic!("none of {PORTS_TRIED} ports was free for a proxy");
}

fn bind(port: u16) -> io::Result<StdListener> {
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn accept(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            () = shared.listener_changed.notified() => {}
            accepted = shared.accepted() => {
                // A client that has gone again before it was accepted is no matter.
                if let Ok(client) = accepted {
                    let live = Live::count(Arc::clone(&shared));
                    tokio::spawn(serve(live, client));
                }
            }
        }
    }
}

/// One live connection, counted until dropped.
struct Live {
    shared: Arc<Shared>,
}

impl Live {
    fn count(shared: Arc<Shared>) -> Self {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        Self { shared }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.shared.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(live: Live, mut client: TcpStream) {
    let shared = Arc::clone(&live.shared);
    let mut switches = shared.switches.subscribe();
    let cuts = switches.borrow_and_update().cuts;
    let server_port = shared.server_port.load(Ordering::SeqCst);
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server_port)).await else {
        return;
    };
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
    }
    let was_cut = {
        let (client_reads, client_writes) = client.split();
        let (server_reads, server_writes) = server.split();
        let (arrived, kept) = mpsc::unbounded_channel();
        let used = Use::default();
        let pumps = async {
            tokio::join!(
                pass_requests(live, client_reads, server_writes, &used, switches.clone()),
                take_replies(server_reads, arrived, &used, switches.clone()),
                deliver_replies(kept, client_writes, &used, &shared.messages, switches.clone()),
            )
        };
        let mut switches = switches.clone();
        tokio::select! {
            biased;
            _ = switches.wait_for(|switches| switches.cuts != cuts) => true,
            _ = pumps => false,
        }
    };
    if was_cut {
        let _ = client.set_zero_linger();
    }
}

/// What a client uses a connection for.
#[derive(Default)]
struct Use {
    subscribes: AtomicBool,
    waits: AtomicBool,
}

async fn pass_requests(
    live: Live,
    mut client: ReadHalf<'_>,
    mut server: WriteHalf<'_>,
    used: &Use,
    switches: watch::Receiver<Switches>,
) {
    let mut bytes = vec![0; BUFFER];
    let (cuts, half_closings) = {
        let switches = switches.borrow();
        (switches.cuts, switches.half_closings)
    };
    let mut closings = switches.clone();
    let mut half_closed = pin!(async move {
        // Its result would keep the switches borrowed.
        let _ = closings.wait_for(|now| now.half_closings != half_closings).await;
    });
    let mut is_open = true;
    loop {
        let read = tokio::select! {
            biased;
            () = &mut half_closed, if is_open => {
                is_open = false;
                let _ = server.shutdown().await;
                continue;
            }
            read = client.read(&mut bytes) => read,
        };
        let Ok(count @ 1..) = read else { break };
        for (word, has_it) in [(SUBSCRIBE, &used.subscribes), (WAIT, &used.waits)] {
            if bytes[..count].windows(word.len()).any(|part| part == word) {
                has_it.store(true, Ordering::SeqCst);
            }
        }
        let passes = {
            let switches = switches.borrow();
            // After a cut nothing may follow what was swallowed.
            !switches.drop_requests && switches.cuts == cuts && is_open
        };
        if passes {
            // A server that has gone is told to the client by the end of its replies.
            let _ = server.write_all(&bytes[..count]).await;
        }
    }
    drop(live);
    // A request that has been passed on still runs when the client goes: the end stands behind it.
    let _ = server.shutdown().await;
}

/// Bytes, and when they may be passed on.
type Reply = (Instant, Vec<u8>);

async fn take_replies(
    mut server: ReadHalf<'_>,
    arrived: mpsc::UnboundedSender<Reply>,
    used: &Use,
    switches: watch::Receiver<Switches>,
) {
    let mut bytes = vec![0; BUFFER];
    let at_first = switches.borrow().silences;
    while let Ok(count @ 1..) = server.read(&mut bytes).await {
        let Switches { delay, drop_replies, silences, .. } = *switches.borrow();
        let is_silenced = silences != at_first && used.waits.load(Ordering::SeqCst);
        if !drop_replies && !is_silenced {
            // Once the client has gone, replies are read and thrown away: the server must not see an abort.
            let _ = arrived.send((Instant::now() + delay, bytes[..count].to_vec()));
        }
    }
}

async fn deliver_replies(
    mut kept: mpsc::UnboundedReceiver<Reply>,
    mut client: WriteHalf<'_>,
    used: &Use,
    messages: &AtomicUsize,
    mut switches: watch::Receiver<Switches>,
) {
    let half_closings = switches.borrow().half_closings;
    while let Some((due_at, bytes)) = kept.recv().await {
        tokio::time::sleep_until(due_at).await;
        let subscribes = used.subscribes.load(Ordering::SeqCst);
        let _ = switches.wait_for(|switches| !switches.holds(subscribes)).await;
        if client.write_all(&bytes).await.is_err() {
            return;
        }
        messages.fetch_add(subscribes.into(), Ordering::SeqCst);
    }
    // The server's end is kept back or lost just like its replies.
    let passes = |switches: &Switches| {
        !switches.holds(used.subscribes.load(Ordering::SeqCst)) && !switches.drop_replies
    };
    let _ = switches.wait_for(passes).await;
    if switches.borrow().half_closings == half_closings {
        let _ = client.shutdown().await;
    }
}

/// A client that sends it reads messages on that connection, and nothing else.
const SUBSCRIBE: &[u8] = b"SUBSCRIBE";
const WAIT: &[u8] = b"\r\nWAIT\r\n";
const BUFFER: usize = 64 * 1024;
const PORTS_TRIED: usize = 100;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use redis::{AsyncConnectionConfig, Client, RedisResult, aio::MultiplexedConnection};

    use crate::{Proxy, Server, eventually};

    /// Long enough for any answer of a server on this machine.
    const SHORT: Duration = Duration::from_millis(100);
    const LIMIT: Duration = Duration::from_secs(10);

    async fn connect(proxy: &Proxy) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(LIMIT));
        let client = Client::open(proxy.url())?;
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    async fn start() -> (Server, Proxy, MultiplexedConnection) {
        let server = Server::start().await;
        let proxy = Proxy::start(server.port()).await;
        let connection = connect(&proxy).await.expect("the proxy passes on");
        (server, proxy, connection)
    }

    async fn incr(connection: &mut MultiplexedConnection) -> RedisResult<i64> {
        redis::cmd("INCR").arg("n").query_async(connection).await
    }

    async fn count(server: &Server) -> i64 {
        let count = server.command(&["INCRBY", "n", "0"]).await;
        redis::from_redis_value(count).expect("a number")
    }

    #[tokio::test]
    async fn replies_are_delayed_on_a_live_connection() {
        let (_server, proxy, mut connection) = start().await;
        proxy.delay_replies(SHORT);
        let sent_at = Instant::now();
        assert_eq!(incr(&mut connection).await, Ok(1));
        assert!(sent_at.elapsed() >= SHORT);
    }

    #[tokio::test]
    async fn a_dropped_request_does_not_run() {
        let (server, proxy, mut connection) = start().await;
        proxy.drop_requests(true);
        assert!(tokio::time::timeout(SHORT, incr(&mut connection)).await.is_err());
        assert_eq!(count(&server).await, 0);
        proxy.drop_requests(false);
        let mut connection = connect(&proxy).await.expect("the proxy passes on again");
        assert_eq!(incr(&mut connection).await, Ok(1));
    }

    #[tokio::test]
    async fn a_command_whose_reply_is_dropped_has_run() {
        let (server, proxy, mut connection) = start().await;
        proxy.drop_replies(true);
        assert!(tokio::time::timeout(SHORT, incr(&mut connection)).await.is_err());
        assert_eq!(count(&server).await, 1);
    }

    #[tokio::test]
    async fn held_replies_arrive_when_they_are_released() {
        let (server, proxy, mut connection) = start().await;
        proxy.hold_replies();
        let mut reply = Box::pin(incr(&mut connection));
        assert!(tokio::time::timeout(SHORT, &mut reply).await.is_err());
        assert_eq!(count(&server).await, 1);
        proxy.release_replies();
        assert_eq!(reply.await, Ok(1));
    }

    #[tokio::test]
    async fn a_cut_breaks_live_connections_and_no_later_ones() {
        let (_server, proxy, mut connection) = start().await;
        assert_eq!(proxy.connections(), 1);
        proxy.cut();
        assert!(incr(&mut connection).await.is_err());
        eventually(LIMIT, "no connection is left", async || proxy.connections() == 0).await;
        let mut connection = connect(&proxy).await.expect("the proxy passes on again");
        assert!(incr(&mut connection).await.is_ok());
    }

    #[tokio::test]
    async fn a_black_hole_swallows_both_ways_and_cuts_at_its_end() {
        let (server, proxy, mut connection) = start().await;
        proxy.black_hole(true);
        assert!(tokio::time::timeout(SHORT, incr(&mut connection)).await.is_err());
        proxy.black_hole(false);
        assert!(incr(&mut connection).await.is_err());
        assert_eq!(count(&server).await, 0);
        let mut connection = connect(&proxy).await.expect("the proxy passes on again");
        assert_eq!(incr(&mut connection).await, Ok(1));
    }

    #[tokio::test]
    async fn a_proxy_can_lead_to_another_server() {
        let (server, proxy, mut connection) = start().await;
        assert_eq!(incr(&mut connection).await, Ok(1));
        let other = Server::start().await;
        proxy.lead_to(other.port());
        assert!(incr(&mut connection).await.is_err());
        let mut connection = connect(&proxy).await.expect("the proxy passes on");
        assert_eq!(incr(&mut connection).await, Ok(1));
        assert_eq!((count(&server).await, count(&other).await), (1, 1));
    }

    #[tokio::test]
    async fn a_half_closed_connection_is_over_for_the_server_only() {
        let (server, proxy, mut connection) = start().await;
        assert_eq!(incr(&mut connection).await, Ok(1));
        proxy.half_close();
        assert!(tokio::time::timeout(SHORT, incr(&mut connection)).await.is_err());
        assert_eq!((count(&server).await, proxy.connections()), (1, 1));
        let mut connection = connect(&proxy).await.expect("the proxy passes on again");
        assert_eq!(incr(&mut connection).await, Ok(2));
    }

    #[tokio::test]
    async fn a_refusing_proxy_leaves_live_connections_alone() {
        let (_server, proxy, mut connection) = start().await;
        proxy.refuse(true);
        assert!(connect(&proxy).await.is_err());
        assert_eq!(incr(&mut connection).await, Ok(1));
        proxy.refuse(false);
        assert!(connect(&proxy).await.is_ok());
    }

    #[tokio::test]
    async fn a_dropped_proxy_breaks_its_connections() {
        let (_server, proxy, mut connection) = start().await;
        drop(proxy);
        assert!(incr(&mut connection).await.is_err());
    }

    #[tokio::test]
    async fn a_request_runs_although_its_client_goes_at_once() {
        let (server, proxy, _connection) = start().await;
        let mut client = tokio::net::TcpStream::connect(("127.0.0.1", proxy.port()))
            .await
            .expect("the proxy accepts");
        tokio::io::AsyncWriteExt::write_all(&mut client, b"INCR n\r\nINCR n\r\n")
            .await
            .expect("the proxy reads");
        drop(client);
        eventually(LIMIT, "both have run", async || count(&server).await == 2).await;
    }
}
