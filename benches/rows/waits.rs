//! Rows 15 and 16: a wait behind a process that is stopped, and what it takes to be in the queue.

use std::time::{Duration, Instant};

use leasehold::{Client, Guard, Mutex};
use leasehold_testkit::bench::clock::Window;
use leasehold_testkit::bench::figures::Unit;
use tokio::task::JoinHandle;

use crate::relay::FOR_EVER_MS;
use crate::runners;
use crate::slow::Slow;
use crate::table::{Aim, Figure};
use crate::worker::Worker;
use crate::{Bench, Outcome};

/// Row 15: the first in the queue is a process that has been stopped, which the server cannot see.
pub(crate) async fn stopped_head(bench: &Bench, round: u32) -> Outcome<Vec<Figure>> {
    let name = format!("stopped:{round}");
    let (holding, others) = (bench.client.mutex(&name), Client::connect(bench.url()).await?);
    let held = holding.lock().await?;
    let args = [runners::RELAY, bench.url(), &name, "1", FOR_EVER_MS, "false"];
    let mut head = Worker::start(&args).await?;
    head.go(Window::soon(LIMIT)).await?;
    in_queue(&holding, 1).await?;
    head.stop().await?;
    let waiter = queue_up(&holding, others.mutex(&name), 2).await?;
    let released_at = Instant::now();
    held.unlock().await?;
    let (first, first_at) = waiter.await??;

    // It costs that once: the next waiter has not to wait for it again.
    let waiter = queue_up(&holding, holding.clone(), 1).await?;
    let released_again_at = Instant::now();
    first.unlock().await?;
    let (second, second_at) = waiter.await??;
    second.unlock().await?;
    others.shutdown().await;
    Ok(vec![
        Figure::new(
            "a waiter behind a stopped process: from the release until it has the lock",
            Unit::Seconds,
            (first_at - released_at).as_secs_f64(),
        )
        .aim(Aim::AtMost(2.5)),
        Figure::new(
            "the next hand-over, with that process still stopped",
            Unit::Seconds,
            (second_at - released_again_at).as_secs_f64(),
        ),
    ])
}

/// Starts a wait, and returns once so many are in the queue. It tells when it had the lock.
async fn queue_up(
    watched: &Mutex,
    lock: Mutex,
    length: usize,
) -> Outcome<JoinHandle<Outcome<(Guard, Instant)>>> {
    let waiter = tokio::spawn(async move {
        let guard = lock.lock().await?;
        Ok((guard, Instant::now()))
    });
    in_queue(watched, length).await?;
    Ok(waiter)
}

/// Row 16: how many round trips pass until a client stands in the queue, by the time that they take where a reply is
/// slow. The answer that says so is one of them.
pub(crate) async fn in_line(bench: &Bench, round: u32) -> Outcome<Vec<Figure>> {
    let slow = Slow::start(bench.url(), REPLY_DELAY).await?;
    let far = Client::connect(&slow.url()).await?;
    let mut round_trips = Vec::new();
    for time in 1..=2 {
        let holding = bench.client.mutex(format!("in-line:{round}:{time}"));
        let held = holding.lock().await?;
        let asked_at = Instant::now();
        let waiter = queue_up(&holding, far.mutex(holding.name()), 1).await?;
        // What was sent last is at the server; its answer is still to come.
        let answers = asked_at.elapsed().as_secs_f64() / REPLY_DELAY.as_secs_f64();
        round_trips.push(1.0 + answers.round());
        held.unlock().await?;
        waiter.await??.0.unlock().await?;
    }
    far.shutdown().await;
    let figure = |what: &str, round_trips: f64, most: f64| {
        Figure::new(
            format!("{what}: round trips until it is in the queue"),
            Unit::Number,
            round_trips,
        )
        .aim(Aim::AtMost(most))
    };
    Ok(vec![
        figure("a client's first contention", round_trips[0], 2.0),
        figure("its next, for another lock", round_trips[1], 1.0),
    ])
}

/// Waits until so many are in the queue.
async fn in_queue(lock: &Mutex, length: usize) -> Outcome<()> {
    let began_at = Instant::now();
    while lock.status().await?.waiting.len() < length {
        if began_at.elapsed() > LIMIT {
            return Err(format!("there are not {length} in the queue after {LIMIT:?}").into());
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// So much that nothing else counts beside it.
const REPLY_DELAY: Duration = Duration::from_millis(50);
const LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(1);
