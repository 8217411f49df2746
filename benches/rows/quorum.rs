//! Rows 10 to 13: a free lock over several masters, beside its scripts sent by hand to all of them at once until a
//! majority has answered.

use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold::Client;
use leasehold_testkit::bench::by_hand::{ByHand, Keys, TTL_MS};
use leasehold_testkit::bench::figures::{Unit, median};
use leasehold_testkit::bench::server::Server;
use rustix::process::{Pid, Signal, kill_process};

use crate::slow::Slow;
use crate::table::{Aim, Figure};
use crate::{Bench, Outcome};

/// What is wrong with the last of the masters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Healthy,
    Hanging,
    Slow,
}

/// Lock and unlock of a free lock, one after the other.
pub(crate) async fn pair(bench: &Bench, count: usize, last: Last) -> Outcome<Vec<Figure>> {
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(Server::start().await?);
    }
    let mut urls: Vec<String> = servers.iter().map(|server| server.url().to_owned()).collect();
    let slow = match (last, urls.last_mut()) {
        (Last::Slow, Some(url)) => {
            let slow = Slow::start(url, DELAY).await?;
            *url = slow.url();
            Some(slow)
        }
        _ => None,
    };
    let mut by_hand = Vec::new();
    for url in &urls {
        by_hand.push(ByHand::connect(url).await?);
    }
    let client = Client::builder().nodes(urls).restart_quarantine(Duration::ZERO).connect().await?;
    while client.nodes().iter().any(|node| node.state != leasehold::NodeState::Up) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let stopped = match (last, servers.last()) {
        (Last::Hanging, Some(server)) => Some(Stopped::stop(server.pid())?),
        _ => None,
    };
    let name = "free";
    let (keys, lock) = (Keys::of(name), client.mutex(name));
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..bench.times(20) {
        let mut floor = Vec::new();
        for _ in 0..PAIRS {
            let began_at = Instant::now();
            majority(&by_hand, |node| node.acquire(&keys, TTL_MS)).await?;
            // A node outside the majority may not have had it.
            majority(&by_hand, |node| async { Ok(node.release(&keys).await.is_ok()) }).await?;
            floor.push(began_at.elapsed().as_secs_f64());
        }
        floors.extend(median(&floor));
        let mut own = Vec::new();
        for _ in 0..PAIRS {
            let began_at = Instant::now();
            lock.lock().await?.unlock().await?;
            own.push(began_at.elapsed().as_secs_f64());
        }
        ours.extend(median(&own));
    }
    drop(stopped);
    client.shutdown().await;
    drop(slow);
    let what = match last {
        Last::Healthy => format!("lock + unlock over {count} masters"),
        Last::Hanging => format!("lock + unlock over {count} masters, one hanging"),
        Last::Slow => format!("lock + unlock over {count} masters, one {DELAY:?} slow"),
    };
    let (floor, ours) = (median(&floors), median(&ours));
    Ok(vec![
        Figure::new(what, Unit::Seconds, ours.unwrap_or_default())
            .floor(floor.unwrap_or_default())
            .aim(Aim::RatioUnder(1.25)),
    ])
}

/// Asks all at once, and waits until a majority has said yes.
async fn majority<'a, F: Future<Output = Outcome<bool>>>(
    nodes: &'a [ByHand],
    ask: impl Fn(&'a ByHand) -> F,
) -> Outcome<()> {
    let mut asks: FuturesUnordered<F> = nodes.iter().map(ask).collect();
    let mut yes = 0;
    while let Some(answer) = asks.next().await {
        yes += usize::from(answer?);
        if yes > nodes.len() / 2 {
            return Ok(());
        }
    }
    Err("no majority".into())
}

/// A process that does not run until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn stop(pid: u32) -> Outcome<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("no process")?;
        kill_process(pid, Signal::STOP)?;
        Ok(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

const PAIRS: u32 = 200;
const DELAY: Duration = Duration::from_millis(20);
