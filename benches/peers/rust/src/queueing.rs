//! What a worker does with queues and latches. Times are in nanoseconds.

use std::future::Future;
use std::time::Duration;

use apalis_core::backend::TaskSink;
use apalis_core::backend::ext::BackendExt;
use apalis_core::error::BoxDynError;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::ext::parallelize::ParallelizeExt;
use apalis_redis::{Config, ConnectionManager, RedisStorage};
use leasehold::{Client, Queue};
use leasehold_testkit::bench::clock::{self, Window};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::{AbortHandle, JoinSet};

use crate::Outcome;

/// Puts items at the end of a queue.
pub(crate) trait Push: Clone + Send + 'static {
    fn push(&mut self, item: String) -> impl Future<Output = Outcome<()>> + Send;
}

impl Push for Queue {
    async fn push(&mut self, item: String) -> Outcome<()> {
        Queue::push(self, item).await?;
        Ok(())
    }
}

impl Push for RedisStorage<String, ConnectionManager> {
    async fn push(&mut self, item: String) -> Outcome<()> {
        Ok(TaskSink::push(self, item).await?)
    }
}

/// Pushes the time, with a pause after each. The last item is a zero.
pub(crate) async fn offer(mut queue: impl Push, window: Window) -> Outcome<Vec<String>> {
    clock::wait_until(window.from).await;
    let mut pushed = 0_u32;
    while clock::now() < window.until {
        queue.push(clock::now().as_nanos().to_string()).await?;
        pushed += 1;
        tokio::time::sleep(BETWEEN_PUSHES).await;
    }
    queue.push("0".into()).await?;
    Ok(vec![pushed.to_string()])
}

/// How long each item took until the worker had it. Ends with the item that is a zero.
pub(crate) async fn take(queue: &Queue) -> Outcome<Vec<String>> {
    let mut spans = Vec::new();
    loop {
        let delivery = queue.pop().await?;
        let Some(span) = span(std::str::from_utf8(delivery.payload())?)? else {
            delivery.ack().await?;
            return Ok(spans);
        };
        delivery.ack().await?;
        spans.push(span);
    }
}

/// The same with apalis, which calls a function for each item.
pub(crate) async fn take_by_apalis(url: &str, name: &str) -> Outcome<Vec<String>> {
    let (mut items, _working) = apalis(url, name).await?;
    let mut spans = Vec::new();
    loop {
        match items.recv().await.ok_or("the worker ended")?? {
            Some(span) => spans.push(span),
            None => return Ok(spans),
        }
    }
}

fn span(item: &str) -> Outcome<Option<String>> {
    let pushed_at: u128 = item.parse()?;
    let now = clock::now().as_nanos();
    Ok((pushed_at > 0).then(|| (now - pushed_at).to_string()))
}

/// Several tasks push their share of the items at once.
pub(crate) async fn fill(
    queue: impl Push,
    tasks: usize,
    each: usize,
    window: Window,
) -> Outcome<Vec<String>> {
    let mut pushing = JoinSet::new();
    for _ in 0..tasks {
        let mut queue = queue.clone();
        pushing.spawn(async move {
            clock::wait_until(window.from).await;
            for _ in 0..each {
                queue.push(clock::now().as_nanos().to_string()).await?;
            }
            Outcome::Ok(())
        });
    }
    while let Some(end) = pushing.join_next().await {
        end??;
    }
    Ok(Vec::new())
}

/// Several tasks do their share of the items. Gives the time at which all were done.
pub(crate) async fn empty(queue: Queue, tasks: usize, each: usize) -> Outcome<Vec<String>> {
    let mut working = JoinSet::new();
    for _ in 0..tasks {
        let queue = queue.clone();
        working.spawn(async move {
            for _ in 0..each {
                queue.pop().await?.ack().await?;
            }
            Outcome::Ok(())
        });
    }
    while let Some(end) = working.join_next().await {
        end??;
    }
    Ok(vec![clock::now().as_nanos().to_string()])
}

/// The same with apalis, which decides how many it does at once.
pub(crate) async fn empty_by_apalis(url: &str, name: &str, items: usize) -> Outcome<Vec<String>> {
    let (mut done, _working) = apalis(url, name).await?;
    for _ in 0..items {
        done.recv().await.ok_or("the worker ended")??;
    }
    Ok(vec![clock::now().as_nanos().to_string()])
}

/// Shuts a latch and opens it, again and again. Gives the times at which it was opened.
pub(crate) async fn open(client: &Client, name: &str, window: Window) -> Outcome<Vec<String>> {
    let mut opened = Vec::new();
    for (number, at) in latches(window) {
        let latch = client.latch(format!("{name}:{number}"));
        clock::wait_until(at).await;
        latch.try_set_count(1, Duration::from_secs(60)).await?;
        clock::wait_until(at + OPENED_AFTER).await;
        opened.push(clock::now().as_nanos().to_string());
        latch.count_down().await?;
    }
    Ok(opened)
}

/// Waits for each of these latches. Gives the times at which each wait began and ended.
pub(crate) async fn wait(client: &Client, name: &str, window: Window) -> Outcome<Vec<String>> {
    let mut waits = Vec::new();
    for (number, at) in latches(window) {
        let latch = client.latch(format!("{name}:{number}"));
        clock::wait_until(at + AWAITED_AFTER).await;
        waits.push(clock::now().as_nanos().to_string());
        latch.wait().await?;
        waits.push(clock::now().as_nanos().to_string());
    }
    Ok(waits)
}

fn latches(window: Window) -> impl Iterator<Item = (u32, Duration)> {
    let of = move |number: u32| (number, window.from + BETWEEN_LATCHES * number);
    (0..).map(of).take_while(move |(_, at)| *at + BETWEEN_LATCHES <= window.until)
}

/// Where items are pushed with apalis.
pub(crate) async fn storage(
    url: &str,
    name: &str,
) -> Outcome<RedisStorage<String, ConnectionManager>> {
    let connection = apalis_redis::connect(url).await?;
    Ok(RedisStorage::new(connection).with_config(Config::default().queue(name)))
}

/// Starts a worker, which looks for new items by itself now and then. Gives what its function was called for. It ends when the
/// second value is dropped.
async fn apalis(
    url: &str,
    name: &str,
) -> Outcome<(UnboundedReceiver<Outcome<Option<String>>>, Ended)> {
    let backend = storage(url, name).await?.poll_with_interval(BETWEEN_LOOKS);
    let (called, calls) = mpsc::unbounded_channel();
    let worker = WorkerBuilder::new(name).backend(backend).parallelize(tokio::spawn).build(
        move |item: String| {
            let called = called.clone();
            async move {
                // Nobody listens once all is done.
                let _ = called.send(span(&item));
                Ok::<(), BoxDynError>(())
            }
        },
    );
    let running = tokio::spawn(worker.run());
    Ok((calls, Ended(running.abort_handle())))
}

struct Ended(AbortHandle);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

const BETWEEN_PUSHES: Duration = Duration::from_millis(2);
/// Items that are pushed are not announced: by itself a worker looks every 30 s.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
const BETWEEN_LATCHES: Duration = Duration::from_millis(20);
const AWAITED_AFTER: Duration = Duration::from_millis(6);
const OPENED_AFTER: Duration = Duration::from_millis(14);
