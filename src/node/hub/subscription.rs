//! One who listens on the channel of a lock.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Hub;

/// Listens on a channel until it is dropped.
pub(crate) struct Subscription {
    pub(super) hub: Hub,
    pub(super) channel: Arc<str>,
    pub(super) listener: Arc<Listener>,
}

/// What happened on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The channel was subscribed. Earlier messages may have been missed; from now on none are.
    Subscribed,
    /// The number of messages that arrived.
    Messages(u32),
}

impl Subscription {
    /// Returns what happened since the last call, or waits until something does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&self) -> Signal {
        loop {
            if let Some(signal) = self.listener.take() {
                return signal;
            }
            self.listener.notify.notified().await;
        }
    }

    /// Returns true if messages arrive, as far as the client knows.
    pub(crate) fn is_listening(&self) -> bool {
        self.listener.heard.lock().listening
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.unsubscribe(&self.channel, &self.listener);
    }
}

/// What the hub tells a subscription.
#[derive(Default)]
pub(super) struct Listener {
    heard: Mutex<Heard>,
    notify: Notify,
}

#[derive(Default)]
struct Heard {
    messages: u32,
    /// The channel was subscribed since the last look, for the first time or again.
    subscribed: bool,
    /// Messages arrive.
    listening: bool,
}

impl Listener {
    pub(super) fn message(&self) {
        self.heard.lock().messages += 1;
        self.notify.notify_one();
    }

    /// A release may have been missed, so this wakes the waiter (invariant 8).
    pub(super) fn subscribed(&self) {
        let mut heard = self.heard.lock();
        heard.subscribed = true;
        heard.listening = true;
        drop(heard);
        self.notify.notify_one();
    }

    pub(super) fn disconnected(&self) {
        self.heard.lock().listening = false;
    }

    fn take(&self) -> Option<Signal> {
        let mut heard = self.heard.lock();
        if std::mem::take(&mut heard.subscribed) {
            heard.messages = 0;
            return Some(Signal::Subscribed);
        }
        match std::mem::take(&mut heard.messages) {
            0 => None,
            messages => Some(Signal::Messages(messages)),
        }
    }
}
