//! The subscriptions of a node: one connection for all channels, made for the first of them.
//!
//! A message on a lock's channel is only a hint, so everybody who waits for one also has a timer. After a broken
//! connection, every channel is subscribed again, and then everybody is woken, since messages may have been missed.
//! Only messages in the client's mailbox have contents that matter; see `mailbox.rs`.

mod subscriber;
mod subscription;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::endpoint::Endpoint;
use super::mailbox::{Mailbox, NotUnderstood};
use crate::clock::Timestamp;
use crate::error::Fault;
use crate::events;
use subscriber::Subscriber;
use subscription::Listener;
pub(crate) use subscription::{Signal, Subscription};

/// The channels of one node. Clones are the same.
#[derive(Clone)]
pub(super) struct Hub {
    shared: Arc<Shared>,
    /// Where the channels of locks are: the same, or a connection of their own, because they are sharded ones.
    locks: Arc<Shared>,
}

struct Shared {
    endpoint: Arc<Endpoint>,
    /// All its channels are sharded ones.
    is_sharded: bool,
    channels: Mutex<BTreeMap<Arc<str>, Listeners>>,
    mailbox: Mailbox,
    orders: mpsc::UnboundedSender<Order>,
    /// Changes when the node's commands go to another server.
    moved: watch::Sender<()>,
    closing: CancellationToken,
}

/// Who listens on a channel.
enum Listeners {
    /// On a lock's channel: usually one listener, but the locks `n` and `{n}` have the same channel.
    Hints(Vec<Arc<Listener>>),
    Mailbox,
}

impl Listeners {
    fn to_hints(&self) -> &[Arc<Listener>] {
        match self {
            Self::Hints(listeners) => listeners,
            Self::Mailbox => &[],
        }
    }
}

/// What the subscriber has to send.
enum Order {
    /// For this listener. Those who listen already miss nothing by that, and are not woken. `None`: the mailbox.
    Subscribe(Arc<str>, Option<Arc<Listener>>),
    Unsubscribe(Arc<str>),
}

impl Hub {
    /// `sharded`: the channels of locks are sharded ones.
    pub(super) fn start(
        endpoint: Arc<Endpoint>,
        mailbox: Mailbox,
        sharded: bool,
        tasks: &TaskTracker,
    ) -> Self {
        let attend = |shared: &Arc<Shared>, orders| {
            let subscriber = Subscriber::new(shared.clone(), orders);
            tasks.spawn_on(subscriber.run(), shared.endpoint.clock.runtime());
        };
        let (mut hub, orders) = Self::unattended(endpoint.clone(), mailbox.clone());
        attend(&hub.shared, orders);
        if sharded {
            let closing = hub.shared.closing.clone();
            // Nobody writes to a sharded channel of that name.
            let (shared, orders) = Shared::new(endpoint, mailbox.unused(), true, closing);
            attend(&shared, orders);
            hub.locks = shared;
        }
        hub
    }

    /// A hub without its task, and the orders that the task would get.
    fn unattended(
        endpoint: Arc<Endpoint>,
        mailbox: Mailbox,
    ) -> (Self, mpsc::UnboundedReceiver<Order>) {
        let (shared, received) = Shared::new(endpoint, mailbox, false, CancellationToken::new());
        (Self { locks: shared.clone(), shared }, received)
    }

    /// Listens on a lock's channel.
    pub(super) fn subscribe(&self, channel: &Arc<str>) -> Subscription {
        let listener = Arc::new(Listener::default());
        let mut channels = self.locks.channels.lock();
        let nobody = || Listeners::Hints(Vec::new());
        if let Listeners::Hints(all) = channels.entry(channel.clone()).or_insert_with(nobody) {
            all.push(listener.clone());
        }
        // Under the mutex, so that the orders for a channel are in the order of their reasons.
        let _ = self.locks.orders.send(Order::Subscribe(channel.clone(), Some(listener.clone())));
        Subscription { hub: self.clone(), channel: channel.clone(), listener }
    }

    fn unsubscribe(&self, channel: &Arc<str>, listener: &Arc<Listener>) {
        let mut channels = self.locks.channels.lock();
        let Some(Listeners::Hints(listeners)) = channels.get_mut(channel) else { return };
        listeners.retain(|other| !Arc::ptr_eq(other, listener));
        if !listeners.is_empty() {
            return;
        }
        // Nothing stays for a lock that nobody here uses (invariant 7).
        channels.remove(channel);
        let _ = self.locks.orders.send(Order::Unsubscribe(channel.clone()));
    }

    pub(super) fn mailbox(&self) -> &Mailbox {
        &self.shared.mailbox
    }

    /// Subscribes to the mailbox, unless that was done before. It stays subscribed.
    pub(super) fn open_mailbox(&self) {
        let channel = self.shared.mailbox.channel();
        let mut channels = self.shared.channels.lock();
        if !channels.contains_key(channel) {
            channels.insert(channel.clone(), Listeners::Mailbox);
            let _ = self.shared.orders.send(Order::Subscribe(channel.clone(), None));
        }
    }

    /// Abandons the connection, because commands now go to another server, which is where messages come from.
    pub(super) fn restart(&self) {
        self.shared.mailbox.moved();
        self.shared.moved.send_replace(());
        self.locks.moved.send_replace(());
    }

    /// Tries once, by `until`, whether this user may subscribe.
    pub(super) async fn probe(&self, until: Timestamp) -> Result<(), Fault> {
        let endpoint = self.shared.endpoint.clone();
        let runtime = endpoint.clock.runtime().clone();
        let probe = async move {
            let (mut sink, _stream) = endpoint.connect_for_subscriptions(until).await?;
            match endpoint.clock.until(until, sink.subscribe(PROBE)).await {
                Some(Ok(())) => Ok(()),
                // This user may not use the probe's channel, but perhaps those of locks.
                Some(Err(error)) => match Fault::from_redis(&error, &endpoint.greeting.secrets) {
                    Fault::Denied { what, .. } if &*what == "the channel" => Ok(()),
                    fault => Err(fault),
                },
                None => Err(Fault::NoAnswer(endpoint.connect_timeout)),
            }
        };
        runtime.spawn(probe).await.unwrap_or(Err(Fault::Closed))
    }

    /// Returns the number of locks' channels that are listened to.
    pub(super) fn len(&self) -> usize {
        let channels = self.locks.channels.lock();
        channels.values().filter(|listeners| !listeners.to_hints().is_empty()).count()
    }

    /// Ends the task when it is cancelled.
    pub(super) fn closing(&self) -> &CancellationToken {
        &self.shared.closing
    }
}

impl Shared {
    fn new(
        endpoint: Arc<Endpoint>,
        mailbox: Mailbox,
        is_sharded: bool,
        closing: CancellationToken,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Order>) {
        let (orders, received) = mpsc::unbounded_channel();
        let shared = Self {
            endpoint,
            is_sharded,
            channels: Mutex::default(),
            mailbox,
            orders,
            moved: watch::Sender::new(()),
            closing,
        };
        (Arc::new(shared), received)
    }

    fn message(&self, channel: &str, payload: &[u8]) {
        if channel == &**self.mailbox.channel() {
            let now = self.endpoint.clock.now();
            if let Err(NotUnderstood) = self.mailbox.deliver(payload, now) {
                events::letter_not_understood(&self.endpoint.address(), payload.len());
            }
            return;
        }
        for listener in self.channels.lock().get(channel).map_or(&[][..], Listeners::to_hints) {
            listener.message();
        }
    }

    /// The server confirmed a channel, for one listener or for all of them, on a connection that was made when the mailbox had
    /// counted so many `moves`.
    fn subscribed(&self, channel: &str, listener: Option<&Listener>, moves: u64) {
        if channel == &**self.mailbox.channel() {
            return self.mailbox.subscribed(moves);
        }
        if let Some(listener) = listener {
            return listener.subscribed();
        }
        for listener in self.channels.lock().get(channel).map_or(&[][..], Listeners::to_hints) {
            listener.subscribed();
        }
    }

    /// The connection is gone, so no messages arrive.
    fn disconnected(&self) {
        self.mailbox.unsubscribed();
        for listener in self.channels.lock().values().flat_map(Listeners::to_hints) {
            listener.disconnected();
        }
    }
}

/// A channel and a key that nobody uses.
pub(super) const PROBE: &str = "leasehold_probe";

#[cfg(test)]
mod tests;
