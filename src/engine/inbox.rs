//! What is sent to a task that may be dropped at any time, with its runtime.
//!
//! Nothing that is sent gets stuck: either the task receives it, or it is dropped, by the task or by the sender. What a
//! release still owes is paid when it is dropped, so none may be kept for nobody. tokio's channel alone would keep what
//! is sent at the very moment when its receiver is dropped, until the last sender is dropped, too.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(super) struct Sender<T> {
    sender: UnboundedSender<T>,
    /// Held while something is sent.
    receiver_is_gone: Arc<Mutex<bool>>,
}

pub(super) struct Receiver<T> {
    receiver: UnboundedReceiver<T>,
    is_gone: Arc<Mutex<bool>>,
}

pub(super) fn inbox<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = unbounded_channel();
    let is_gone: Arc<Mutex<bool>> = Arc::default();
    (Sender { sender, receiver_is_gone: is_gone.clone() }, Receiver { receiver, is_gone })
}

impl<T> Sender<T> {
    /// Sends it to the task. Without its task it is dropped.
    pub(super) fn send(&self, work: T) {
        let is_gone = self.receiver_is_gone.lock();
        let refused = match *is_gone {
            true => Some(work),
            false => self.sender.send(work).err().map(|refused| refused.0),
        };
        // Dropping the work may send more.
        drop(is_gone);
        drop(refused);
    }
}

impl<T> Receiver<T> {
    /// Receives what is sent next, or `None` if there is no sender any more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn receive(&mut self) -> Option<T> {
        self.receiver.recv().await
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // All that was sent before is in the channel, which drops it with the receiver.
        *self.is_gone.lock() = true;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn nothing_is_kept_that_is_sent_while_the_receiver_is_dropped() {
        for round in 0..ROUNDS {
            let (sender, receiver) = inbox();
            let (work, both) = (Arc::new(()), Barrier::new(2));
            thread::scope(|scope| {
                scope.spawn(|| {
                    both.wait();
                    (0..SENT).for_each(|_| sender.send(work.clone()));
                });
                both.wait();
                drop(receiver);
            });
            assert_eq!(Arc::strong_count(&work), 1, "in round {round} something is kept");
        }
    }

    #[test]
    fn work_that_sends_more_as_it_is_dropped_does_not_block() {
        struct Work(Option<Arc<Sender<Self>>>);
        impl Drop for Work {
            fn drop(&mut self) {
                if let Some(sender) = self.0.take() {
                    sender.send(Self(None));
                }
            }
        }
        let (sender, receiver) = inbox();
        let sender = Arc::new(sender);
        sender.send(Work(Some(sender.clone())));
        drop(receiver);
        sender.send(Work(Some(sender.clone())));
        assert_eq!(Arc::strong_count(&sender), 1, "all was dropped");
    }

    const ROUNDS: u32 = 20_000;
    const SENT: u32 = 50;
}
