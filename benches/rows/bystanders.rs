//! Who is there while a lock goes from client to client, and never takes it.

use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use leasehold_testkit::bench::by_hand::channel;
use tokio::task::AbortHandle;

use crate::Outcome;

/// Dropped it stops.
pub(crate) struct Bystander {
    task: AbortHandle,
}

impl Bystander {
    /// Hears what is said on the channel of a lock, and does nothing.
    pub(crate) async fn listener(url: &str, name: &str) -> Outcome<Self> {
        let mut subscriber = redis::Client::open(url)?.get_async_pubsub().await?;
        subscriber.subscribe(channel(name)).await?;
        let mut messages = subscriber.into_on_message();
        Ok(Self::new(async move { while messages.next().await.is_some() {} }))
    }

    /// A place in the queue that belongs to nobody. It is taken again soon after it was passed over.
    pub(crate) async fn dead_waiter(url: &str, name: &str, number: usize) -> Outcome<Self> {
        let client = redis::Client::open(url)?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut every = tokio::time::interval(AGAIN);
        // As the library writes it, for a client whose mailbox nobody hears.
        let entry =
            format!("30000 64 {number:x} dead-{number}:f81d4fae-7dec-41d0-a765-00a0c91e6bf6");
        let mut queue = redis::cmd("ZADD");
        queue.arg(format!("leasehold_queue:{{{name}}}")).arg("NX");
        Ok(Self::new(async move {
            loop {
                every.tick().await;
                let mut queue = queue.clone();
                queue.arg(now_us()).arg(&entry);
                if queue.query_async::<u64>(&mut connection).await.is_err() {
                    return;
                }
            }
        }))
    }

    fn new(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { task: tokio::spawn(task).abort_handle() }
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The time by which the server orders who waits: it runs on the same machine.
fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_micros() as u64)
}

const AGAIN: Duration = Duration::from_millis(1);
