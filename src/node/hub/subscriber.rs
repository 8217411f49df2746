//! The task that keeps the connection for subscriptions.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::task::coop::unconstrained;

use super::{Listener, Order, Shared};
use crate::clock::Timestamp;
use crate::error::Fault;
use crate::events::{self, Burst};
use crate::node::halves::{Ear, Heard, Mouth};

pub(super) struct Subscriber {
    shared: Arc<Shared>,
    orders: mpsc::UnboundedReceiver<Order>,
    /// What was sent and not answered yet.
    pending: FuturesUnordered<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    /// The channels that are subscribed again after a pause: each by one timer, however many ask for it.
    put_off: BTreeSet<Arc<str>>,
    /// How many of our own requests to end the subscription of a sharded channel are not answered yet.
    leaving: BTreeMap<Arc<str>, u32>,
    refused: Burst,
}

enum Answer {
    /// For this listener, or for all of the channel.
    Subscribed(Arc<str>, Option<Arc<Listener>>),
    /// The server answered what needs no reaction: it unsubscribed, or answered a ping.
    Done,
    /// The server did not unsubscribe this channel, and says no more of it.
    Stayed(Arc<str>),
    /// The server refuses this channel, as long as nobody changes that: a right is missing, for example.
    Refused(Arc<str>, Fault),
    /// The server cannot subscribe this channel now: nobody owns its slot, for example.
    NotNow(Arc<str>),
    /// It is time to subscribe this channel again.
    Again(Arc<str>),
    Broken,
}

/// The moves of the node's commands to another server, as seen before a connection was made.
struct Moves {
    /// How many there had been.
    before: u64,
    /// Changes with the next one.
    changed: watch::Receiver<()>,
}

impl Subscriber {
    pub(super) fn new(shared: Arc<Shared>, orders: mpsc::UnboundedReceiver<Order>) -> Self {
        let (pending, put_off) = (FuturesUnordered::new(), BTreeSet::new());
        let leaving = BTreeMap::new();
        Self { shared, orders, pending, put_off, leaving, refused: Burst::default() }
    }

    pub(super) async fn run(mut self) {
        let closing = self.shared.closing.clone();
        let _ = closing.run_until_cancelled_owned(self.keep_connected()).await;
    }

    async fn keep_connected(&mut self) {
        let endpoint = self.shared.endpoint.clone();
        let clock = &endpoint.clock;
        let mut attempt = 0;
        loop {
            if clock.is_stopped() {
                return;
            }
            // While nobody listens, no connection is needed.
            while self.shared.channels.lock().is_empty() {
                if self.orders.recv().await.is_none() {
                    return;
                }
            }
            // The list of channels says what to subscribe. Orders must not pile up while there is no connection.
            while self.orders.try_recv().is_ok() {}
            let until = clock.now().plus(endpoint.connect_timeout);
            // Before the connection is made, which may lead to the old server. A move between the two lines ends the
            // connection: read the other way round, they would miss it.
            let mut moved = self.shared.moved.subscribe();
            let moves = Moves { before: self.shared.mailbox.moves(), changed: moved.clone() };
            let mut longest = LONGEST_PAUSE;
            let connected = tokio::select! {
                biased;
                // A server that hangs must not delay the connection to the one that has replaced it.
                Ok(()) = moved.changed() => {
                    attempt = 0;
                    continue;
                }
                connected = endpoint.connect_hub(self.shared.is_sharded, until) => connected,
            };
            match connected {
                Ok((mouth, ear)) => {
                    longest = LONGEST_PAUSE_AFTER_CONNECTION;
                    let began_at = clock.now();
                    self.use_connection(mouth, ear, moves).await;
                    self.shared.disconnected();
                    self.pending.clear();
                    self.put_off.clear();
                    self.leaving.clear();
                    // A connection that breaks at once was no success: a server may go on like that for ever.
                    if clock.now().since(began_at) >= LASTING {
                        attempt = 0;
                    }
                }
                Err(fault) => events::no_connection_for_subscriptions(&endpoint.address(), &fault),
            }
            if !self.shared.channels.lock().is_empty() {
                tokio::select! {
                    Ok(()) = moved.changed() => attempt = 0,
                    () = clock.sleep(clock.back_off(attempt, longest)) => attempt += 1,
                }
            }
        }
    }

    /// Returns when the connection breaks or leads to the wrong server, or when nobody has listened for a while.
    async fn use_connection(&mut self, mouth: Mouth, mut ear: Ear, mut moves: Moves) {
        let clock = self.shared.endpoint.clock.clone();
        // Orders from before are in the list of channels.
        while self.orders.try_recv().is_ok() {}
        let channels: Vec<Arc<str>> = self.shared.channels.lock().keys().cloned().collect();
        for channel in channels {
            self.subscribe(&mouth, channel, None);
        }
        // Made anew for each message, a timer would cost as much as what is done with the message.
        let mut check = clock.sleep(PING_EVERY);
        let mut idle_since = None;
        loop {
            tokio::select! {
                biased;
                order = self.orders.recv() => match order {
                    Some(Order::Subscribe(channel, listener)) => {
                        idle_since = None;
                        self.subscribe(&mouth, channel, listener);
                    }
                    Some(Order::Unsubscribe(channel)) => self.unsubscribe(&mouth, channel),
                    None => return,
                },
                Some(answer) = self.pending.next() => match answer {
                    Answer::Subscribed(channel, listener) => {
                        self.shared.subscribed(&channel, listener.as_deref(), moves.before);
                    }
                    Answer::Done => {}
                    Answer::Stayed(channel) => {
                        self.has_left(&channel);
                    }
                    Answer::Refused(channel, fault) => {
                        self.refused(&channel, &fault);
                        self.put_off(channel, REFUSED);
                    }
                    Answer::NotNow(channel) => self.put_off(channel, NOT_NOW),
                    Answer::Again(channel) => {
                        self.put_off.remove(&channel);
                        if self.shared.channels.lock().contains_key(&channel) {
                            self.subscribe(&mouth, channel, None);
                        }
                    }
                    Answer::Broken => return,
                },
                heard = ear.next() => match heard {
                    Some(Heard::Message { channel, payload }) => {
                        self.shared.message(&channel, &payload);
                    }
                    // It may be the answer to a request of ours, from before somebody listened again.
                    Some(Heard::Unsubscribed { channel }) if self.has_left(&channel) => {}
                    // The slot has another owner. The answers to come may be those to other requests.
                    Some(Heard::Unsubscribed { channel })
                        if self.shared.channels.lock().contains_key(&*channel) => return,
                    Some(Heard::Unsubscribed { .. }) => {}
                    None => return,
                },
                Ok(()) = moves.changed.changed() => return,
                () = &mut check => {
                    if clock.is_stopped() || self.is_idle(&mut idle_since) {
                        return;
                    }
                    check = clock.sleep(PING_EVERY);
                    self.ping(&mouth);
                }
            }
        }
    }

    fn refused(&mut self, channel: &str, fault: &Fault) {
        let endpoint = &self.shared.endpoint;
        let now = endpoint.clock.now();
        events::cannot_subscribe(&endpoint.address(), channel, fault, &mut self.refused, now);
    }

    fn is_idle(&self, since: &mut Option<Timestamp>) -> bool {
        if !self.shared.channels.lock().is_empty() {
            *since = None;
            return false;
        }
        let now = self.shared.endpoint.clock.now();
        now.since(*since.get_or_insert(now)) >= IDLE
    }

    fn subscribe(&self, mouth: &Mouth, channel: Arc<str>, listener: Option<Arc<Listener>>) {
        let mut mouth = mouth.clone();
        let secrets = self.shared.endpoint.greeting.secrets.clone();
        self.await_answer(async move {
            let fault = |error| Fault::from_redis(&error, &secrets);
            match mouth.subscribe(&channel).await.map_err(fault) {
                Ok(()) => Answer::Subscribed(channel, listener),
                Err(fault @ Fault::Refused(_)) if fault.may_pass_at_start() => {
                    Answer::NotNow(channel)
                }
                // Another node has the slot. Who listens looks there when it is asked next.
                Err(Fault::Moved(_) | Fault::Ask(_)) => Answer::NotNow(channel),
                Err(fault @ (Fault::Denied { .. } | Fault::Refused(_))) => {
                    Answer::Refused(channel, fault)
                }
                Err(_) => Answer::Broken,
            }
        });
    }

    /// Has a channel subscribed again after a pause. The connection stays: others hear on it.
    fn put_off(&mut self, channel: Arc<str>, pause: Duration) {
        if !self.put_off.insert(channel.clone()) {
            return;
        }
        let pause = self.shared.endpoint.clock.sleep(pause);
        self.pending.push(Box::pin(async move {
            pause.await;
            Answer::Again(channel)
        }));
    }

    /// One of our requests to end the subscription of a channel is answered. Returns false if there was none.
    fn has_left(&mut self, channel: &str) -> bool {
        let Some(unanswered) = self.leaving.get_mut(channel) else { return false };
        *unanswered -= 1;
        if *unanswered == 0 {
            self.leaving.remove(channel);
        }
        true
    }

    fn unsubscribe(&mut self, mouth: &Mouth, channel: Arc<str>) {
        if self.shared.is_sharded {
            *self.leaving.entry(channel.clone()).or_default() += 1;
        }
        let mut mouth = mouth.clone();
        let secrets = self.shared.endpoint.greeting.secrets.clone();
        self.await_answer(async move {
            let fault = |error| Fault::from_redis(&error, &secrets);
            match mouth.unsubscribe(&channel).await.map_err(fault) {
                // If it is refused, messages still arrive, and nobody listens to them. If the slot has another owner, they do not.
                Err(Fault::Denied { .. } | Fault::Refused(_) | Fault::Moved(_) | Fault::Ask(_)) => {
                    Answer::Stayed(channel)
                }
                Ok(()) => Answer::Done,
                Err(_) => Answer::Broken,
            }
        });
    }

    fn ping(&self, mouth: &Mouth) {
        let mut mouth = mouth.clone();
        self.await_answer(async move {
            match mouth.ping().await {
                Ok(_) => Answer::Done,
                Err(_) => Answer::Broken,
            }
        });
    }

    /// Futures are first polled in the order of these calls, which is the order on the wire. The connection counts as
    /// broken if the answer does not come in time.
    fn await_answer(&self, answer: impl Future<Output = Answer> + Send + 'static) {
        let clock = self.shared.endpoint.clock.clone();
        let until = clock.now().plus(self.shared.endpoint.response_timeout);
        // Otherwise tokio makes all behind the 128th of a turn wait, and they would reach the wire in another order.
        let answer = unconstrained(answer);
        self.pending.push(Box::pin(async move {
            clock.until(until, answer).await.unwrap_or(Answer::Broken)
        }));
    }
}

/// After a connection that lasted this long, the pauses start again from the shortest.
const LASTING: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// After a connection broke: there is a server, and waiters miss messages during the pause.
const LONGEST_PAUSE_AFTER_CONNECTION: Duration = Duration::from_millis(250);
/// After the server could not subscribe a channel.
const NOT_NOW: Duration = Duration::from_millis(250);
/// After the server refused a channel. Somebody may have given this user the right meanwhile.
const REFUSED: Duration = Duration::from_secs(1);
const PING_EVERY: Duration = Duration::from_secs(5);
pub(super) const IDLE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
