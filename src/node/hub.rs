//! The subscriptions of a node: one connection for all channels, opened for the first of them.
//!
//! A message is a hint and no more: whoever waits for one has a timer beside it. After a broken
//! connection every channel is subscribed again, and then everybody is woken, for what was said in the gap.
//! Only what comes in the client's mailbox has a content; see `mailbox.rs`.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use redis::Msg;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connector::Connector;
use super::greeting::Greeting;
use super::handshake::PROBE;
use super::mailbox::{Mailbox, NotUnderstood};
use crate::clock::{Clock, Timestamp};
use crate::config::Config;
use crate::error::Fault;
use crate::events::{self, Burst};

/// The channels of one node. Clones are the same.
#[derive(Clone)]
pub(super) struct Hub {
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
    channels: Mutex<BTreeMap<Arc<str>, Listeners>>,
    mailbox: Mailbox,
    orders: mpsc::UnboundedSender<Order>,
    /// Changes when the node's commands go to another server.
    moved: watch::Sender<()>,
    closing: CancellationToken,
    connections_made: AtomicU64,
}

/// Who listens on a channel.
enum Listeners {
    /// On that of a lock: one in general, but the locks `n` and `{n}` share theirs.
    Ears(Vec<Arc<Ear>>),
    Mailbox,
}

impl Listeners {
    fn ears(&self) -> &[Arc<Ear>] {
        match self {
            Self::Ears(ears) => ears,
            Self::Mailbox => &[],
        }
    }
}

enum Order {
    Subscribe(Arc<str>),
    Unsubscribe(Arc<str>),
}

/// One who listens on a channel.
#[derive(Default)]
struct Ear {
    heard: Mutex<Heard>,
    notify: Notify,
}

#[derive(Default)]
struct Heard {
    messages: u32,
    /// The channel was subscribed, for the first time or again, since the last look.
    subscribed: bool,
    /// Messages arrive.
    listening: bool,
}

/// What was heard on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// From now on nothing is missed; what was said before may have been.
    Subscribed,
    Messages(u32),
}

/// A place on a channel. Dropping it leaves the channel.
pub(crate) struct Subscription {
    hub: Hub,
    channel: Arc<str>,
    ear: Arc<Ear>,
}

impl Subscription {
    /// The next thing heard. Nothing is lost by dropping the future.
    pub(crate) async fn next(&self) -> Signal {
        loop {
            {
                let mut heard = self.ear.heard.lock();
                if std::mem::take(&mut heard.subscribed) {
                    heard.messages = 0;
                    return Signal::Subscribed;
                }
                if heard.messages > 0 {
                    return Signal::Messages(std::mem::take(&mut heard.messages));
                }
            }
            self.ear.notify.notified().await;
        }
    }

    /// Whether messages arrive, as far as is known here.
    pub(crate) fn is_listening(&self) -> bool {
        self.ear.heard.lock().listening
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut channels = self.hub.shared.channels.lock();
        let Some(Listeners::Ears(ears)) = channels.get_mut(&self.channel) else { return };
        ears.retain(|ear| !Arc::ptr_eq(ear, &self.ear));
        if !ears.is_empty() {
            return;
        }
        channels.remove(&self.channel);
        let _ = self.hub.shared.orders.send(Order::Unsubscribe(self.channel.clone()));
    }
}

impl Hub {
    pub(super) fn start(
        address: Arc<str>,
        connector: Arc<dyn Connector>,
        greeting: Greeting,
        clock: Clock,
        config: &Config,
        tasks: &TaskTracker,
    ) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            address,
            connector,
            greeting,
            response_timeout: config.response_timeout,
            connect_timeout: config.connect_timeout,
            channels: Mutex::default(),
            mailbox: Mailbox::new(&config.name, clock.nonce()),
            clock,
            orders,
            moved: watch::Sender::new(()),
            closing: CancellationToken::new(),
            connections_made: AtomicU64::new(0),
        });
        let attendant = Attendant {
            shared: shared.clone(),
            orders: received,
            pending: FuturesUnordered::new(),
            refused: Burst::default(),
        };
        tasks.spawn_on(attendant.serve(), shared.clock.runtime());
        Self { shared }
    }

    /// Listens on a channel.
    pub(super) fn subscribe(&self, channel: &Arc<str>) -> Subscription {
        let ear = Arc::new(Ear::default());
        let mut channels = self.shared.channels.lock();
        let new = || Listeners::Ears(Vec::new());
        if let Listeners::Ears(ears) = channels.entry(channel.clone()).or_insert_with(new) {
            ears.push(ear.clone());
        }
        // Under the lock, so that orders for a channel arrive in the order of what they follow.
        let _ = self.shared.orders.send(Order::Subscribe(channel.clone()));
        Subscription { hub: self.clone(), channel: channel.clone(), ear }
    }

    pub(super) fn mailbox(&self) -> &Mailbox {
        &self.shared.mailbox
    }

    #[allow(dead_code)] // The engine will use it.
    /// Subscribes to the mailbox, if that was not done yet. The subscription stays.
    pub(super) fn open_mailbox(&self) {
        let channel = self.shared.mailbox.channel();
        let mut channels = self.shared.channels.lock();
        if !channels.contains_key(channel) {
            channels.insert(channel.clone(), Listeners::Mailbox);
            let _ = self.shared.orders.send(Order::Subscribe(channel.clone()));
        }
    }

    /// Gives the connection up: commands go to another server by now, and messages come from there.
    pub(super) fn restart(&self) {
        self.shared.mailbox.moved();
        self.shared.moved.send_replace(());
    }

    /// Tries once, by `until`, whether this user may subscribe.
    pub(super) async fn probe(&self, until: Timestamp) -> Result<(), Fault> {
        let shared = self.shared.clone();
        let probe = async move {
            let Some((mut sink, _stream)) = shared.connect(until).await? else {
                return Err(Fault::NoAnswer(shared.connect_timeout));
            };
            match shared.clock.until(until, sink.subscribe(PROBE)).await {
                Some(Ok(())) => Ok(()),
                // The name of the probe may be out of bounds; the names of locks are another matter.
                Some(Err(error)) => match Fault::from_redis(&error, &shared.greeting.secrets) {
                    Fault::Denied { what, .. } if &*what == "the channel" => Ok(()),
                    fault => Err(fault),
                },
                None => Err(Fault::NoAnswer(shared.connect_timeout)),
            }
        };
        self.shared.clock.runtime().spawn(probe).await.unwrap_or(Err(Fault::Closed))
    }

    /// How many channels of locks are listened to.
    pub(super) fn len(&self) -> usize {
        let channels = self.shared.channels.lock();
        channels.values().filter(|listeners| !listeners.ears().is_empty()).count()
    }

    pub(super) fn connections_made(&self) -> u64 {
        self.shared.connections_made.load(Ordering::Relaxed)
    }

    /// Ends the task when it is cancelled.
    pub(super) fn closing(&self) -> &CancellationToken {
        &self.shared.closing
    }
}

impl Shared {
    /// A new connection; `None` if there is none by `until`.
    async fn connect(&self, until: Timestamp) -> Result<Option<(PubSubSink, PubSubStream)>, Fault> {
        match self.clock.until(until, self.connector.subscriptions()).await {
            Some(Ok(connection)) => {
                self.connections_made.fetch_add(1, Ordering::Relaxed);
                Ok(Some(connection.split()))
            }
            Some(Err(error)) => Err(self.greeting.fault(&error)),
            None => Ok(None),
        }
    }

    fn heard(&self, message: &Msg) {
        let channel = message.get_channel_name();
        if channel == &**self.mailbox.channel() {
            let payload = message.get_payload_bytes();
            if let Err(NotUnderstood) = self.mailbox.deliver(payload, self.clock.now()) {
                events::letter_not_understood(&self.address, payload.len());
            }
            return;
        }
        for ear in self.channels.lock().get(channel).map_or(&[][..], Listeners::ears) {
            ear.heard.lock().messages += 1;
            ear.notify.notify_one();
        }
    }

    /// The server confirmed a channel on a connection that was made after so many `moves`.
    fn subscribed(&self, channel: &str, moves: u64) {
        if channel == &**self.mailbox.channel() {
            return self.mailbox.subscribed(moves);
        }
        for ear in self.channels.lock().get(channel).map_or(&[][..], Listeners::ears) {
            let mut heard = ear.heard.lock();
            heard.subscribed = true;
            heard.listening = true;
            drop(heard);
            ear.notify.notify_one();
        }
    }

    fn deaf(&self) {
        self.mailbox.unsubscribed();
        for ear in self.channels.lock().values().flat_map(Listeners::ears) {
            ear.heard.lock().listening = false;
        }
    }
}

/// The task that keeps the connection.
struct Attendant {
    shared: Arc<Shared>,
    orders: mpsc::UnboundedReceiver<Order>,
    pending: FuturesUnordered<Pin<Box<dyn Future<Output = Done> + Send>>>,
    refused: Burst,
}

enum Done {
    Subscribed(Arc<str>),
    /// Left a channel, or got an answer to a ping.
    Nothing,
    /// The server refuses this channel, for a reason that a new connection does not mend.
    Refused(Arc<str>, Fault),
    Broken,
}

impl Attendant {
    async fn serve(mut self) {
        let closing = self.shared.closing.clone();
        let _ = closing.run_until_cancelled_owned(self.keep_connected()).await;
    }

    async fn keep_connected(&mut self) {
        let mut attempt = 0;
        loop {
            // Nobody listens: no connection is needed.
            if self.shared.clock.is_stopped() {
                return;
            }
            while self.shared.channels.lock().is_empty() {
                if self.orders.recv().await.is_none() {
                    return;
                }
            }
            // The list of channels says what is to be done: orders must not pile up without a connection.
            while self.orders.try_recv().is_ok() {}
            let until = self.shared.clock.now().plus(self.shared.connect_timeout);
            // From before the connection is made: it may lead to the old server.
            let moves = self.shared.mailbox.moves();
            let moved = self.shared.moved.subscribe();
            let mut longest = LONGEST_PAUSE;
            match self.shared.connect(until).await {
                Ok(Some((sink, stream))) => {
                    longest = LONGEST_DEAFNESS;
                    let began_at = self.shared.clock.now();
                    self.use_connection(sink, stream, moved, moves).await;
                    self.shared.deaf();
                    self.pending.clear();
                    // One that breaks at once was no success: a server may do so for ever.
                    if self.shared.clock.now().since(began_at) >= LASTING {
                        attempt = 0;
                    }
                }
                Ok(None) => events::no_connection_for_subscriptions(&self.shared.address, None),
                Err(fault) => {
                    events::no_connection_for_subscriptions(&self.shared.address, Some(&fault));
                }
            }
            if !self.shared.channels.lock().is_empty() {
                let pause = self.shared.clock.back_off(attempt, longest);
                attempt += 1;
                self.shared.clock.sleep(pause).await;
            }
        }
    }

    /// Until it breaks, leads to the wrong server, or nobody has listened for a while.
    async fn use_connection(
        &mut self,
        sink: PubSubSink,
        mut stream: PubSubStream,
        mut moved: watch::Receiver<()>,
        moves: u64,
    ) {
        let clock = self.shared.clock.clone();
        // What was ordered before is in the list of channels.
        while self.orders.try_recv().is_ok() {}
        let channels: Vec<Arc<str>> = self.shared.channels.lock().keys().cloned().collect();
        for channel in channels {
            self.subscribe(&sink, channel);
        }
        let mut check_at = clock.now().plus(PING_EVERY);
        let mut idle_since = None;
        loop {
            tokio::select! {
                biased;
                order = self.orders.recv() => match order {
                    Some(Order::Subscribe(channel)) => {
                        idle_since = None;
                        self.subscribe(&sink, channel);
                    }
                    Some(Order::Unsubscribe(channel)) => self.unsubscribe(&sink, channel),
                    None => return,
                },
                Some(done) = self.pending.next() => match done {
                    Done::Subscribed(channel) => self.shared.subscribed(&channel, moves),
                    Done::Nothing => {}
                    Done::Refused(channel, fault) => {
                        let (node, now) = (&self.shared.address, clock.now());
                        events::cannot_subscribe(node, &channel, &fault, &mut self.refused, now);
                    }
                    Done::Broken => return,
                },
                message = stream.next() => match message {
                    Some(message) => self.shared.heard(&message),
                    None => return,
                },
                Ok(()) = moved.changed() => return,
                () = clock.sleep_until(check_at) => {
                    if clock.is_stopped() {
                        return;
                    }
                    check_at = clock.now().plus(PING_EVERY);
                    if self.is_idle(&mut idle_since) {
                        return;
                    }
                    let mut sink = sink.clone();
                    self.await_answer(async move { sink.ping::<redis::Value>().await.map(|_| Done::Nothing) });
                }
            }
        }
    }

    fn is_idle(&self, since: &mut Option<Timestamp>) -> bool {
        if !self.shared.channels.lock().is_empty() {
            *since = None;
            return false;
        }
        let now = self.shared.clock.now();
        now.since(*since.get_or_insert(now)) >= IDLE
    }

    fn subscribe(&self, sink: &PubSubSink, channel: Arc<str>) {
        let mut sink = sink.clone();
        let secrets = self.shared.greeting.secrets.clone();
        self.await_answer(async move {
            let fault = |error| Fault::from_redis(&error, &secrets);
            match sink.subscribe(&*channel).await.map_err(fault) {
                Ok(()) => Ok(Done::Subscribed(channel)),
                Err(fault @ (Fault::Denied { .. } | Fault::Refused(_))) => {
                    Ok(Done::Refused(channel, fault))
                }
                Err(_) => Ok(Done::Broken),
            }
        });
    }

    fn unsubscribe(&self, sink: &PubSubSink, channel: Arc<str>) {
        let mut sink = sink.clone();
        let secrets = self.shared.greeting.secrets.clone();
        self.await_answer(async move {
            let fault = |error| Fault::from_redis(&error, &secrets);
            match sink.unsubscribe(&*channel).await.map_err(fault) {
                // Refused, the messages go on, and nobody listens to them.
                Ok(()) | Err(Fault::Denied { .. } | Fault::Refused(_)) => Ok(Done::Nothing),
                Err(_) => Ok(Done::Broken),
            }
        });
    }

    /// Polled in the order of these calls, which is the order on the wire. No answer in time: broken.
    fn await_answer(
        &self,
        answer: impl Future<Output = redis::RedisResult<Done>> + Send + 'static,
    ) {
        let clock = self.shared.clock.clone();
        let at = clock.now().plus(self.shared.response_timeout);
        self.pending.push(Box::pin(async move {
            match clock.until(at, answer).await {
                Some(Ok(done)) => done,
                Some(Err(_)) | None => Done::Broken,
            }
        }));
    }
}

/// A connection that lasted so long was a good one: the pauses begin anew.
const LASTING: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// After a connection that broke: a server is there, and waiters hear nothing meanwhile.
const LONGEST_DEAFNESS: Duration = Duration::from_millis(250);
const PING_EVERY: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
