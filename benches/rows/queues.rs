//! Rows 24 and 25: a queue of items, beside what one would write by hand.

use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use leasehold::Client;
use leasehold_testkit::bench::by_hand::{connection, load};
use leasehold_testkit::bench::figures::{Unit, median};
use redis::aio::MultiplexedConnection;
use redis::{Value, cmd, from_redis_value};
use tokio::sync::mpsc;

use crate::table::{Aim, Figure};
use crate::{Bench, Outcome};

/// Row 24: from a push until the worker that waits has the item and its lease. By hand: the push, the answer to the worker's
/// BLMOVE, and a script that writes the lease.
pub(crate) async fn hand_over(bench: &Bench, round: u32) -> Outcome<Vec<Figure>> {
    let times = bench.times(400);
    let name = format!("queue:{round}");
    let (mut pushing, mut waiting) =
        (connection(bench.url()).await?, connection(bench.url()).await?);
    let mut leasing = connection(bench.url()).await?;
    let lease = load(&mut leasing, LEASE).await?;
    let (mine, lent) = (format!("{name}:hand"), format!("{name}:lent"));
    let (sender, mut begun) = mpsc::unbounded_channel();
    let worker = tokio::spawn({
        let (source, taken) = (mine.clone(), format!("{name}:taken"));
        async move {
            let mut spans = Vec::new();
            for _ in 0..times {
                blmove(&mut waiting, &source, &taken).await?;
                let mut call = cmd("EVALSHA");
                call.arg(&lease).arg(1).arg(&lent).arg(TTL_MS).arg("worker");
                call.exec_async(&mut leasing).await?;
                let has_it_at = Instant::now();
                cmd("LREM").arg(&taken).arg(1).arg(ITEM).exec_async(&mut waiting).await?;
                let pushed_at: Instant = begun.recv().await.ok_or("the pushes ended")?;
                spans.push((has_it_at - pushed_at).as_secs_f64());
            }
            Outcome::Ok(spans)
        }
    });
    for _ in 0..times {
        tokio::time::sleep(PAUSE).await;
        sender.send(Instant::now())?;
        cmd("RPUSH").arg(&mine).arg(ITEM).exec_async(&mut pushing).await?;
    }
    let floor = worker.await??;

    let other = Client::connect(bench.url()).await?;
    let queue = other.queue(&name);
    let (sender, mut begun) = mpsc::unbounded_channel();
    let worker = tokio::spawn(async move {
        let mut spans = Vec::new();
        for _ in 0..times {
            let delivery = queue.pop().await?;
            let has_it_at = Instant::now();
            delivery.ack().await?;
            let pushed_at: Instant = begun.recv().await.ok_or("the pushes ended")?;
            spans.push((has_it_at - pushed_at).as_secs_f64());
        }
        Outcome::Ok(spans)
    });
    let queue = bench.client.queue(&name);
    for _ in 0..times {
        tokio::time::sleep(PAUSE).await;
        sender.send(Instant::now())?;
        queue.push(ITEM).await?;
    }
    let ours = worker.await??;
    other.shutdown().await;
    let figure = Figure::new(
        "a push until the waiting worker has the item and its lease, p50",
        Unit::Seconds,
        median(&ours).unwrap_or_default(),
    );
    Ok(vec![figure.floor(median(&floor).unwrap_or_default()).aim(Aim::RatioUnder(0.8))])
}

/// Row 25: 16 producers and 16 workers, until all items are done. By hand: BLMOVE to a list of those that are taken, and LREM,
/// with no lease; and a stream with a consumer group.
pub(crate) async fn many(bench: &Bench, round: u32) -> Outcome<Vec<Figure>> {
    let each = bench.times(200);
    let name = format!("queues:{round}");
    let by_hand = {
        let (source, taken) = (format!("{name}:hand"), format!("{name}:taken"));
        let pushing = connection(bench.url()).await?;
        let push = |_| {
            let (mut pushing, source) = (pushing.clone(), source.clone());
            async move {
                for _ in 0..each {
                    cmd("RPUSH").arg(&source).arg(ITEM).exec_async(&mut pushing).await?;
                }
                Outcome::Ok(())
            }
        };
        // Whoever waits in BLMOVE has a connection of its own.
        let work = |_| {
            let (source, taken, url) = (source.clone(), taken.clone(), bench.url().to_owned());
            async move {
                let mut waiting = connection(&url).await?;
                for _ in 0..each {
                    blmove(&mut waiting, &source, &taken).await?;
                    cmd("LREM").arg(&taken).arg(1).arg(ITEM).exec_async(&mut waiting).await?;
                }
                Outcome::Ok(())
            }
        };
        rate(each, push, work).await?
    };
    let streamed = {
        let stream = format!("{name}:stream");
        let pushing = connection(bench.url()).await?;
        let mut group = cmd("XGROUP");
        group.arg("CREATE").arg(&stream).arg("workers").arg("0").arg("MKSTREAM");
        group.exec_async(&mut pushing.clone()).await?;
        let push = |_| {
            let (mut pushing, stream) = (pushing.clone(), stream.clone());
            async move {
                for _ in 0..each {
                    cmd("XADD")
                        .arg(&stream)
                        .arg("*")
                        .arg("v")
                        .arg(ITEM)
                        .exec_async(&mut pushing)
                        .await?;
                }
                Outcome::Ok(())
            }
        };
        let work = |number| {
            let (stream, url) = (stream.clone(), bench.url().to_owned());
            async move {
                let mut waiting = connection(&url).await?;
                for _ in 0..each {
                    let id = read_stream(&mut waiting, &stream, number).await?;
                    cmd("XACK")
                        .arg(&stream)
                        .arg("workers")
                        .arg(&id)
                        .exec_async(&mut waiting)
                        .await?;
                    cmd("XDEL").arg(&stream).arg(&id).exec_async(&mut waiting).await?;
                }
                Outcome::Ok(())
            }
        };
        rate(each, push, work).await?
    };
    let other = Client::connect(bench.url()).await?;
    let (pushing, working) = (bench.client.queue(&name), other.queue(&name));
    let push = |_| {
        let queue = pushing.clone();
        async move {
            for _ in 0..each {
                queue.push(ITEM).await?;
            }
            Outcome::Ok(())
        }
    };
    let work = |_| {
        let queue = working.clone();
        async move {
            for _ in 0..each {
                queue.pop().await?.ack().await?;
            }
            Outcome::Ok(())
        }
    };
    let ours = rate(each, push, work).await?;
    other.shutdown().await;
    let what = "16 producers and 16 workers: items done";
    Ok(vec![
        Figure::new(what, Unit::PerSecond, ours).floor(by_hand).aim(Aim::RatioOver(0.7)),
        Figure::new(format!("{what}, beside a stream"), Unit::PerSecond, ours).floor(streamed),
    ])
}

/// How many items are done in a second where each of the producers makes so many.
async fn rate<P, W>(each: u32, push: impl Fn(usize) -> P, work: impl Fn(usize) -> W) -> Outcome<f64>
where
    P: Future<Output = Outcome<()>> + Send + 'static,
    W: Future<Output = Outcome<()>> + Send + 'static,
{
    let began_at = Instant::now();
    let workers: Vec<_> = (0..EACH_SIDE).map(|number| tokio::spawn(work(number))).collect();
    let producers: Vec<_> = (0..EACH_SIDE).map(|number| tokio::spawn(push(number))).collect();
    for end in try_join_all(producers.into_iter().chain(workers)).await? {
        end?;
    }
    Ok(f64::from(each) * EACH_SIDE as f64 / began_at.elapsed().as_secs_f64())
}

async fn blmove(connection: &mut MultiplexedConnection, from: &str, to: &str) -> Outcome<()> {
    let mut call = cmd("BLMOVE");
    call.arg(from).arg(to).arg("LEFT").arg("RIGHT").arg(0);
    match call.query_async(connection).await? {
        Value::BulkString(_) => Ok(()),
        other => Err(format!("BLMOVE was answered {other:?}").into()),
    }
}

/// Reads one entry of the stream. Returns its id.
async fn read_stream(
    connection: &mut MultiplexedConnection,
    stream: &str,
    number: usize,
) -> Outcome<String> {
    let mut call = cmd("XREADGROUP");
    call.arg("GROUP").arg("workers").arg(number).arg("COUNT").arg(1).arg("BLOCK").arg(0);
    // By stream, a list of entries: the id of each, and its fields.
    let reply: Vec<(String, Vec<(String, Value)>)> =
        from_redis_value(call.arg("STREAMS").arg(stream).arg(">").query_async(connection).await?)?;
    let entry = reply.into_iter().flat_map(|(_, entries)| entries).next();
    Ok(entry.ok_or("the stream gave nothing")?.0)
}

const LEASE: &str = "local time = redis.call('TIME') \
    redis.call('ZADD', KEYS[1], time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1], ARGV[2]) return 1";
const ITEM: &str = "an item of some forty bytes, as an order is";
const TTL_MS: u32 = 30_000;
/// In which the worker comes to wait again.
const PAUSE: Duration = Duration::from_millis(2);
const EACH_SIDE: usize = 16;
