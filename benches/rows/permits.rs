//! Row 22: a semaphore that more clients want than it has permits.

use std::time::Duration;

use futures_util::StreamExt;
use leasehold::Client;
use leasehold_testkit::bench::clock;
use leasehold_testkit::bench::figures::Unit;

use crate::pairs::{Pair, permit_channel};
use crate::relay::{FLOOR_SPAN, Run, run};
use crate::runners::{TURN_LIMIT, hold, report};
use crate::table::Figure;
use crate::worker::{self, Worker};
use crate::{Bench, Outcome};

pub(crate) const OURS: &str = "permits";
pub(crate) const BY_HAND: &str = "permits-by-hand";

/// Row 22. In the floor just as many clients send the scripts by hand, and each knows when its turn is.
pub(crate) async fn contend(bench: &Bench, round: u32) -> Outcome<Vec<Figure>> {
    let name = format!("permits:{round}");
    let floor_name = format!("{name}:floor");
    let mut workers = Vec::new();
    for number in 0..PROCESSES {
        let args = [BY_HAND, bench.url(), &floor_name, &number.to_string()];
        workers.push(Worker::start(&args).await?);
    }
    let floor = run(bench, workers, FLOOR_SPAN, PERMITS).await?;
    let mut workers = Vec::new();
    for _ in 0..PROCESSES {
        workers.push(Worker::start(&[OURS, bench.url(), &name]).await?);
    }
    Ok(figures(&run(bench, workers, SPAN, PERMITS).await?, &floor))
}

fn figures(run: &Run, floor: &Run) -> Vec<Figure> {
    let figure = |part: &str, unit: Unit, ours: f64| {
        let what = format!("{PERMITS} permits, {PROCESSES} processes, for 1 ms: {part}");
        Figure::new(what, unit, ours)
    };
    let (p50, p99) = run.quantiles();
    let (floor_p50, floor_p99) = floor.quantiles();
    vec![
        figure("hand-over above the hold, p50", Unit::Seconds, p50).floor(floor_p50),
        figure("hand-over above the hold, p99", Unit::Seconds, p99).floor(floor_p99),
        figure("acquisitions of all", Unit::PerSecond, run.rate()).floor(floor.rate()),
        figure("scripts per acquisition", Unit::Number, run.scripts_per_turn())
            .floor(floor.scripts_per_turn()),
        figure("fewest / most", Unit::Number, run.evenness()),
    ]
}

/// One of the processes.
pub(crate) async fn contender(url: &str, name: &str) -> Outcome<()> {
    let client = Client::connect(url).await?;
    let semaphore = client.semaphore(name).with_permits(PERMITS as u32);
    let window = worker::ready().await?;
    let mut turns = Vec::new();
    while clock::now() < window.until {
        let permit = semaphore.acquire().await?;
        let turn = hold(true).await?;
        permit.release().await?;
        if window.contains(turn.0) {
            turns.push(turn);
        }
    }
    report(&[turns]);
    client.shutdown().await;
    Ok(())
}

/// One of the processes of the floor. The turns go round, and everybody hears of each that ends: as many as there are permits
/// may have begun and not ended.
pub(crate) async fn by_hand(url: &str, name: &str, number: usize) -> Outcome<()> {
    let mut subscriber = redis::Client::open(url)?.get_async_pubsub().await?;
    subscriber.subscribe(permit_channel(name)).await?;
    let mut messages = subscriber.into_on_message();
    let mut pair = Pair::of_a_permit(url, name, PERMITS).await?;
    let window = worker::ready().await?;
    let (mut turns, mut next, mut ended) = (Vec::new(), number, 0);
    while clock::now() < window.until {
        if next < ended + PERMITS {
            pair.acquire().await?;
            let turn = hold(true).await?;
            pair.release().await?;
            next += PROCESSES;
            if window.contains(turn.0) {
                turns.push(turn);
            }
        }
        // At the end somebody stops first.
        if tokio::time::timeout(TURN_LIMIT, messages.next()).await.is_ok() {
            ended += 1;
        }
    }
    report(&[turns]);
    Ok(())
}

const PROCESSES: usize = 8;
const PERMITS: usize = 2;
const SPAN: Duration = Duration::from_millis(1500);
