use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use redis::RedisConnectionInfo;
use redis::aio::{MultiplexedConnection, PubSub};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::super::connector::{Connecting, Connector};
use super::super::greeting::Greeting;
use super::super::guide::Guide;
use super::super::mailbox::{Inbox, Letter, Registration};
use super::super::target::Target;
use super::*;
use crate::clock::{Clock, SystemEntropy, TimeSource};
use crate::config::Address;
use crate::key::LeaseId;

/// tokio's time, which the tests pause.
struct TokioTime(tokio::time::Instant);

impl TimeSource for TokioTime {
    fn now(&self) -> Timestamp {
        Timestamp::from_origin(self.0.elapsed())
    }
}

/// Writes to a connection; `None` closes it.
type Outlet = mpsc::UnboundedSender<Option<Vec<u8>>>;

/// A server that confirms all subscriptions, and sends what a test tells it to.
#[derive(Clone, Default)]
pub(super) struct Server {
    /// The connections so far.
    connections: Arc<Mutex<Vec<Outlet>>>,
    /// It answers no ping.
    is_deaf: Arc<AtomicBool>,
    /// It refuses all subscriptions.
    is_refusing: Arc<AtomicBool>,
    /// Connections to it are never made.
    is_away: Arc<AtomicBool>,
}

impl Server {
    /// Sends a message on connection number `connection`.
    fn publish(&self, connection: usize, channel: &str, payload: &[u8]) {
        let (length, channel_length) = (payload.len(), channel.len());
        let head =
            format!("*3\r\n$7\r\nmessage\r\n${channel_length}\r\n{channel}\r\n${length}\r\n");
        self.write(connection, Some([head.as_bytes(), payload, b"\r\n"].concat()));
    }

    fn write(&self, connection: usize, bytes: Option<Vec<u8>>) {
        self.connections.lock()[connection].send(bytes).expect("an open connection");
    }

    fn connections(&self) -> usize {
        self.connections.lock().len()
    }
}

impl Connector for Server {
    fn commands(&self, _: Arc<Notify>) -> Connecting<MultiplexedConnection> {
        Box::pin(std::future::pending())
    }

    fn subscriptions(&self) -> Connecting<PubSub> {
        if self.is_away.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (replies, outgoing) = mpsc::unbounded_channel();
        self.connections.lock().push(replies.clone());
        let (is_deaf, is_refusing) = (self.is_deaf.clone(), self.is_refusing.clone());
        Box::pin(async move {
            tokio::spawn(serve(theirs, replies, outgoing, is_deaf, is_refusing));
            PubSub::new(&RedisConnectionInfo::default(), ours).await
        })
    }
}

async fn serve(
    stream: DuplexStream,
    replies: Outlet,
    mut outgoing: mpsc::UnboundedReceiver<Option<Vec<u8>>>,
    is_deaf: Arc<AtomicBool>,
    is_refusing: Arc<AtomicBool>,
) {
    let (reader, mut writer) = tokio::io::split(stream);
    let read = async move {
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let count = line.strip_prefix('*').expect("a command").parse().expect("its length");
            let mut words = Vec::new();
            for _ in 0..count {
                lines.next_line().await.expect("the length of a word");
                words.push(lines.next_line().await.expect("a word").expect("a whole command"));
            }
            let confirm = |kind: &str| {
                let (length, channel) = (words[1].len(), &words[1]);
                format!("*3\r\n${}\r\n{kind}\r\n${length}\r\n{channel}\r\n:1\r\n", kind.len())
            };
            let reply = match &*words[0].to_lowercase() {
                "subscribe" if is_refusing.load(Ordering::Relaxed) => {
                    "-NOPERM No permissions to access a channel\r\n".to_owned()
                }
                kind @ ("subscribe" | "unsubscribe") => confirm(kind),
                "ping" if is_deaf.load(Ordering::Relaxed) => continue,
                "ping" => "*2\r\n$4\r\npong\r\n$0\r\n\r\n".to_owned(),
                _ => "+OK\r\n".to_owned(),
            };
            let _ = replies.send(Some(reply.into_bytes()));
        }
    };
    let write = async move {
        while let Some(Some(bytes)) = outgoing.recv().await {
            writer.write_all(&bytes).await.expect("the client reads");
        }
        writer.shutdown().await.expect("an open connection");
    };
    tokio::join!(read, write);
}

pub(super) fn endpoint(server: &Server) -> Arc<Endpoint> {
    let time = Arc::new(TokioTime(tokio::time::Instant::now()));
    let clock = Clock::new(time, Arc::new(SystemEntropy), tokio::runtime::Handle::current());
    let address = Address::parse("redis://nowhere").expect("a valid URL");
    let (name, greeting) = (address.shown.clone(), Greeting::of(&address, &"here".into()));
    let connector = Arc::new(server.clone());
    let target = Target { address: name.clone(), connector, greeting: greeting.clone() };
    let guide = Guide::Fixed(Arc::new(target));
    Arc::new(Endpoint::new(name, guide, greeting, clock, [Duration::from_secs(1); 2], None))
}

/// A hub with its server, and an inbox for the letters about the request `a:1`.
struct World {
    server: Server,
    hub: Hub,
    inbox: Inbox,
    _registration: Registration,
}

const MAILBOX: &str = "leasehold_mailbox:client:c000000000000007";

impl World {
    fn start() -> Self {
        let server = Server::default();
        let mailbox = Mailbox::new("client", 7);
        let hub = Hub::start(endpoint(&server), mailbox, false, &TaskTracker::new());
        let inbox = hub.mailbox().inbox();
        let registration = inbox.register(&LeaseId("a:1".into()));
        Self { server, hub, inbox, _registration: registration }
    }

    async fn letter(&self) -> Letter {
        timeout(LIMIT, self.inbox.next()).await.expect("a letter in time")
    }

    /// Lets all tasks run as far as they can without the time going on.
    async fn settle(&self) {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
}

fn free() -> Letter {
    Letter::Free { id: LeaseId("a:1".into()) }
}

const LIMIT: Duration = Duration::from_secs(60);

/// If the last listener leaves a channel while another one comes, the order to unsubscribe must not come after the
/// order to subscribe, or the newcomer would hear nothing.
#[tokio::test]
async fn orders_for_a_channel_come_in_the_order_of_what_they_follow() {
    const ROUNDS: usize = 100_000;
    let (hub, mut received) =
        Hub::unattended(endpoint(&Server::default()), Mailbox::new("client", 0));
    let channel: Arc<str> = "c".into();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..ROUNDS).for_each(|_| drop(hub.subscribe(&channel))));
        }
    });
    let (mut listens, mut orders) = (false, 0);
    while let Ok(order) = received.try_recv() {
        orders += 1;
        match order {
            Order::Subscribe(..) => listens = true,
            Order::Unsubscribe(_) => {
                assert!(listens, "order {orders}: it was left before, so somebody had come since");
                listens = false;
            }
        }
    }
    assert!(!listens && hub.len() == 0 && orders > 2 * ROUNDS);
}

#[tokio::test(start_paused = true)]
async fn a_mailbox_is_subscribed_when_it_is_opened_and_again_after_its_connection_broke() {
    let world = World::start();
    let mailbox = world.hub.mailbox();
    world.settle().await;
    assert_eq!((world.server.connections(), mailbox.epoch()), (0, None), "nobody needs it yet");
    world.hub.open_mailbox();
    world.hub.open_mailbox();
    assert_eq!(world.letter().await, Letter::Subscribed);
    let first = mailbox.epoch().expect("it was confirmed");
    world.server.publish(0, MAILBOX, b"free a:1");
    assert_eq!(world.letter().await, free());

    world.server.write(0, None);
    world.settle().await;
    assert_eq!((mailbox.epoch(), world.inbox.next().now_or_never()), (None, None));
    assert_eq!(world.letter().await, Letter::Subscribed);
    assert!(mailbox.epoch().is_some_and(|epoch| epoch != first), "it is another subscription");
    world.server.publish(1, MAILBOX, b"free a:1");
    assert_eq!(world.letter().await, free());
    assert_eq!(world.server.connections(), 2);
}

/// A network that swallows everything closes no connection. Each time, a waiter hears again within seven seconds: five until
/// the next ping, one for its answer, and one to connect.
#[tokio::test(start_paused = true)]
async fn a_ping_that_is_not_answered_in_its_time_ends_the_connection_every_time() {
    let world = World::start();
    world.hub.open_mailbox();
    assert_eq!(world.letter().await, Letter::Subscribed);
    for outage in 1..3 {
        world.server.is_deaf.store(true, Ordering::Relaxed);
        let began_at = tokio::time::Instant::now();
        assert_eq!(world.letter().await, Letter::Subscribed, "on another connection");
        world.server.is_deaf.store(false, Ordering::Relaxed);
        assert!(began_at.elapsed() <= Duration::from_secs(7), "{:?}", began_at.elapsed());
        assert_eq!(world.server.connections(), 1 + outage);
        tokio::time::sleep(Duration::from_secs(12)).await;
        assert_eq!(world.server.connections(), 1 + outage, "it answers");
    }
}

/// What is to be tried again on one connection ends with it. On the next one it begins anew.
#[tokio::test(start_paused = true)]
async fn a_channel_that_is_refused_on_two_connections_is_subscribed_once_it_may_be() {
    let world = World::start();
    world.server.is_refusing.store(true, Ordering::Relaxed);
    world.hub.open_mailbox();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.server.connections(), 1);
    // The pause after the first refusal is not over.
    world.server.write(0, None);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((world.server.connections(), world.hub.mailbox().epoch()), (2, None));
    world.server.is_refusing.store(false, Ordering::Relaxed);
    assert_eq!(world.letter().await, Letter::Subscribed);
    assert_eq!(world.server.connections(), 2, "others hear on it");
}

#[tokio::test(start_paused = true)]
async fn letters_and_hints_share_a_connection_and_garbage_does_no_harm() {
    let world = World::start();
    let lock = world.hub.subscribe(&"c".into());
    world.hub.open_mailbox();
    assert_eq!(world.letter().await, Letter::Subscribed);
    assert_eq!(timeout(LIMIT, lock.next()).await.expect("in time"), Signal::Subscribed);
    for payload in [&b"0"[..], b"\xff\0", b"grant a:1"] {
        world.server.publish(0, MAILBOX, payload);
        world.server.publish(0, "c", payload);
        world.server.publish(0, "another", payload);
    }
    world.server.publish(0, MAILBOX, b"free a:1");
    assert_eq!(world.letter().await, free());
    assert_eq!(lock.next().now_or_never(), Some(Signal::Messages(3)));
    assert_eq!((world.server.connections(), world.hub.len()), (1, 1));
}

/// A process may have a thousand tasks that wait for one signal: each that comes must not have all others ask again.
#[tokio::test(start_paused = true)]
async fn who_listens_is_not_woken_by_one_who_comes_but_again_after_the_connection_broke() {
    let world = World::start();
    let listen = async || {
        let listener = world.hub.subscribe(&"c".into());
        assert_eq!(timeout(LIMIT, listener.next()).await.expect("in time"), Signal::Subscribed);
        listener
    };
    let (one, other) = (listen().await, listen().await);
    drop(listen().await);
    world.settle().await;
    assert_eq!([&one, &other].map(|it| it.next().now_or_never()), [None, None]);
    world.server.publish(0, "c", b"0");
    world.settle().await;
    let heard = [&one, &other].map(|it| it.next().now_or_never());
    assert_eq!(heard, [Some(Signal::Messages(1)); 2]);
    world.server.write(0, None);
    for listener in [&one, &other] {
        assert_eq!(timeout(LIMIT, listener.next()).await.expect("in time"), Signal::Subscribed);
    }
    assert_eq!(world.server.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_connection_is_closed_when_nobody_listens_for_a_while_but_not_while_there_is_a_mailbox()
{
    let world = World::start();
    let channel = Arc::from("c");
    let listen = async || {
        let lock = world.hub.subscribe(&channel);
        assert_eq!(timeout(LIMIT, lock.next()).await.expect("in time"), Signal::Subscribed);
    };
    listen().await;
    tokio::time::sleep(subscriber::IDLE * 2).await;
    listen().await;
    assert_eq!(world.server.connections(), 2, "the first was idle for too long");
    world.hub.open_mailbox();
    assert_eq!(world.letter().await, Letter::Subscribed);
    tokio::time::sleep(subscriber::IDLE * 10).await;
    world.server.publish(1, MAILBOX, b"free a:1");
    assert_eq!(world.letter().await, free());
    assert_eq!((world.server.connections(), world.hub.len()), (2, 0));
}

/// Where commands go to another server already, nobody waits for the one that hangs.
#[tokio::test(start_paused = true)]
async fn an_attempt_to_connect_to_a_server_that_was_left_is_given_up() {
    let world = World::start();
    world.server.is_away.store(true, Ordering::Relaxed);
    world.hub.open_mailbox();
    world.settle().await;
    world.server.is_away.store(false, Ordering::Relaxed);
    let began_at = tokio::time::Instant::now();
    world.hub.restart();
    assert_eq!(world.letter().await, Letter::Subscribed);
    // The attempt has a second.
    assert!(began_at.elapsed() < Duration::from_millis(500), "{:?}", began_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn letters_of_a_server_that_the_node_has_left_do_not_count() {
    let world = World::start();
    let mailbox = world.hub.mailbox();
    world.hub.open_mailbox();
    assert_eq!(world.letter().await, Letter::Subscribed);
    let first = mailbox.epoch().expect("it was confirmed");
    // On its way when the node meets another server.
    world.server.publish(0, MAILBOX, b"free a:1");
    world.hub.restart();
    assert_eq!(mailbox.epoch(), None, "from that moment on");
    assert_eq!(world.letter().await, Letter::Subscribed);
    assert!(mailbox.epoch().is_some_and(|epoch| epoch != first));
    assert_eq!((world.server.connections(), world.inbox.next().now_or_never()), (2, None));
    world.server.publish(1, MAILBOX, b"free a:1");
    assert_eq!(world.letter().await, free());
    assert_eq!(world.hub.shared.endpoint.connections_made.load(Ordering::Relaxed), 2);
}
