//! Rows 26 and 27: a latch and a signal, from the change until the one who waits knows of it. By hand, the waiter subscribes to a
//! channel once, and reads the number behind each message, since a message may be older than the number.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use leasehold::Client;
use leasehold_testkit::bench::by_hand::{connection, load};
use leasehold_testkit::bench::figures::{Unit, median};
use redis::cmd;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::table::Figure;
use crate::{Bench, Outcome};

/// Row 26: from the last count until the waiter goes on.
pub(crate) async fn latch(bench: &Bench, round: u32) -> Outcome<Vec<Figure>> {
    let times = bench.times(400);
    let name = format!("latch:{round}");
    let floor = by_hand(bench, &name, times, COUNT).await?;
    let other = Client::connect(bench.url()).await?;
    let (told, mut changes) = mpsc::unbounded_channel();
    let (next, mut waits) = mpsc::unbounded_channel();
    let worker = tokio::spawn(async move {
        let mut spans = Vec::new();
        while let Some(name) = waits.recv().await {
            let name: String = name;
            other.latch(&name).wait().await?;
            spans.push(since(&mut changes).await?);
        }
        other.shutdown().await;
        Outcome::Ok(spans)
    });
    for number in 0..times {
        let latch = bench.client.latch(format!("{name}:{number}"));
        latch.try_set_count(1, Duration::from_secs(60)).await?;
        next.send(latch.name().to_owned())?;
        tokio::time::sleep(PAUSE).await;
        told.send(Instant::now())?;
        latch.count_down().await?;
    }
    drop(next);
    figure("the last count of a latch until the waiter goes on, p50", &worker.await??, floor)
}

/// Row 27: from a signal until the one who waits has its number and data.
pub(crate) async fn signal(bench: &Bench, round: u32) -> Outcome<Vec<Figure>> {
    let times = bench.times(400);
    let name = format!("signal:{round}");
    let floor = by_hand(bench, &name, times, NOTIFY).await?;
    let other = Client::connect(bench.url()).await?;
    let (told, mut changes) = mpsc::unbounded_channel();
    let signal = other.signal(&name);
    let mut seen = signal.seen().await?;
    let worker = tokio::spawn(async move {
        let mut spans = Vec::new();
        for _ in 0..times {
            seen = signal.changed(seen).await?.number;
            spans.push(since(&mut changes).await?);
        }
        Outcome::Ok(spans)
    });
    let signal = bench.client.signal(&name);
    for _ in 0..times {
        tokio::time::sleep(PAUSE).await;
        told.send(Instant::now())?;
        signal.notify_all(b"").await?;
    }
    let ours = worker.await??;
    other.shutdown().await;
    figure("a signal until the waiter has its number and data, p50", &ours, floor)
}

/// The same by hand, with a script that changes a number and publishes.
async fn by_hand(bench: &Bench, name: &str, times: u32, script: &str) -> Outcome<f64> {
    let (mut changing, mut reading) =
        (connection(bench.url()).await?, connection(bench.url()).await?);
    let script = load(&mut changing, script).await?;
    let (key, channel) = (format!("{name}:hand"), format!("{name}:told"));
    let mut subscriber = redis::Client::open(bench.url())?.get_async_pubsub().await?;
    subscriber.subscribe(&channel).await?;
    let (told, mut changes): (UnboundedSender<Instant>, _) = mpsc::unbounded_channel();
    let worker = tokio::spawn({
        let key = key.clone();
        async move {
            let mut messages = subscriber.into_on_message();
            let mut spans = Vec::new();
            for _ in 0..times {
                messages.next().await.ok_or("the messages ended")?;
                cmd("GET").arg(&key).exec_async(&mut reading).await?;
                spans.push(since(&mut changes).await?);
            }
            Outcome::Ok(spans)
        }
    });
    for _ in 0..times {
        cmd("SET").arg(&key).arg(1).exec_async(&mut changing).await?;
        tokio::time::sleep(PAUSE).await;
        told.send(Instant::now())?;
        let mut change = cmd("EVALSHA");
        change.arg(&script).arg(1).arg(&key).arg(&channel).exec_async(&mut changing).await?;
    }
    Ok(median(&worker.await??).unwrap_or_default())
}

/// Returns the seconds from the change that was told last until now.
async fn since(changes: &mut UnboundedReceiver<Instant>) -> Outcome<f64> {
    let knows_at = Instant::now();
    let changed_at = changes.recv().await.ok_or("the changes ended")?;
    Ok((knows_at - changed_at).as_secs_f64())
}

fn figure(what: &str, ours: &[f64], floor: f64) -> Outcome<Vec<Figure>> {
    let ours = median(ours).unwrap_or_default();
    Ok(vec![Figure::new(what, Unit::Seconds, ours).floor(floor)])
}

const COUNT: &str = "local left = redis.call('DECR', KEYS[1]) \
    if left <= 0 then redis.call('DEL', KEYS[1]) redis.call('PUBLISH', ARGV[1], left) end return left";
const NOTIFY: &str = "local number = redis.call('INCR', KEYS[1]) redis.call('PUBLISH', ARGV[1], number) return number";
/// In which the waiter comes to wait again.
const PAUSE: Duration = Duration::from_millis(4);
