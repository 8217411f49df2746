//! Row 8: many locks that are held for long, and renewed.

use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold::{Client, Guard};
use leasehold_testkit::bench::by_hand::{ByHand, Keys};
use leasehold_testkit::bench::clock::{self, Window};
use leasehold_testkit::bench::figures::Unit;
use rustix::time::{ClockId, clock_gettime};

use crate::table::{Aim, Figure};
use crate::worker::{self, Worker};
use crate::{Bench, Outcome};

pub(crate) const OURS: &str = "held";
pub(crate) const BY_HAND: &str = "held-by-hand";

/// Row 8: 10 000 locks are held with a TTL of 3 s, so each is renewed every second.
pub(crate) async fn held(bench: &Bench, round: u32) -> Outcome<Vec<Figure>> {
    let locks = bench.times(LOCKS);
    let floor = run(bench, BY_HAND, &format!("held:{round}:floor"), locks).await?;
    let ours = run(bench, OURS, &format!("held:{round}"), locks).await?;
    let mut figures = vec![
        Figure::new(
            format!("{locks} held locks with a TTL of 3 s: renewals"),
            Unit::PerSecond,
            ours.renewals_per_second,
        )
        .floor(floor.renewals_per_second),
        Figure::new("our processor time per renewal", Unit::Seconds, ours.cpu_per_renewal)
            .floor(floor.cpu_per_renewal)
            .aim(Aim::RatioUnder(0.8)),
    ];
    figures.push(
        Figure::new("the server's time per renewal", Unit::Seconds, ours.server_per_renewal)
            .floor(floor.server_per_renewal),
    );
    if ours.bytes_per_lock > 0.0 {
        figures.push(
            Figure::new("memory per held lock", Unit::Bytes, ours.bytes_per_lock)
                .aim(Aim::Under(1024.0)),
        );
    }
    Ok(figures)
}

struct Run {
    renewals_per_second: f64,
    cpu_per_renewal: f64,
    server_per_renewal: f64,
    bytes_per_lock: f64,
}

async fn run(bench: &Bench, order: &str, name: &str, locks: u32) -> Outcome<Run> {
    let mut worker = Worker::start(&[order, bench.url(), name, &locks.to_string()]).await?;
    let window = Window::soon(bench.span(SPAN).max(TTL / 3));
    worker.go(window).await?;
    // One call may renew many leases, each of which gets a new end.
    let work = bench.server.work_in(window).await?;
    let renewals = work.calls(&["pexpire"]);
    let report = worker.report::<f64>(window).await?;
    let [cpu, bytes] = report[..] else {
        return Err("a worker's report is not what it should be".into());
    };
    Ok(Run {
        renewals_per_second: renewals / window.seconds(),
        cpu_per_renewal: cpu / renewals,
        server_per_renewal: work.cpu / renewals,
        bytes_per_lock: bytes / f64::from(locks),
    })
}

/// The process that holds the locks.
pub(crate) async fn ours(url: &str, name: &str, locks: u32) -> Outcome<()> {
    let client = Client::builder().nodes([url]).ttl(TTL).connect().await?;
    // Buffers, queues and threads are there before the first lock is counted.
    drop(take(&client, &format!("{name}:warm"), WARM).await?);
    let before = resident_bytes();
    let guards = take(&client, name, locks).await?;
    let bytes = resident_bytes() - before;

    let cpu = cpu_in(worker::ready().await?).await;
    if let Some(lost) = guards.iter().find(|guard| !guard.is_held()) {
        return Err(format!("{} was lost meanwhile", lost.name()).into());
    }
    worker::report([cpu, bytes]);
    // The server is private and the names are used once: they end by themselves.
    Ok(())
}

async fn take(client: &Client, name: &str, locks: u32) -> Outcome<Vec<Guard>> {
    let numbers: Vec<u32> = (0..locks).collect();
    let mut guards = Vec::with_capacity(locks as usize);
    for numbers in numbers.chunks(AT_ONCE) {
        let taken = numbers.iter().map(|number| client.mutex(format!("{name}:{number}")).lock());
        guards.extend(try_join_all(taken).await?);
    }
    Ok(guards)
}

/// The same renewals, sent by hand once a second.
pub(crate) async fn by_hand(url: &str, name: &str, locks: u32) -> Outcome<()> {
    let by_hand = ByHand::connect(url).await?;
    let keys: Vec<Keys> = (0..locks).map(|number| Keys::of(&format!("{name}:{number}"))).collect();
    for keys in keys.chunks(AT_ONCE) {
        let taken = keys.iter().map(|keys| by_hand.acquire(keys, TTL.as_millis() as u64));
        try_join_all(taken).await?;
    }
    let window = worker::ready().await?;
    let renew = async {
        let mut every = tokio::time::interval(TTL / 3);
        loop {
            every.tick().await;
            for keys in keys.chunks(AT_ONCE) {
                let renewals = keys.iter().map(|keys| by_hand.renew(keys, TTL.as_millis() as u64));
                try_join_all(renewals).await?;
            }
        }
    };
    let cpu = tokio::select! {
        failed = renew => return failed,
        cpu = cpu_in(window) => cpu,
    };
    worker::report([cpu, 0.0]);
    Ok(())
}

/// The seconds of processor time that this process takes in the window.
async fn cpu_in(window: Window) -> f64 {
    clock::wait_until(window.from).await;
    let before = cpu();
    clock::wait_until(window.until).await;
    (cpu() - before).as_secs_f64()
}

/// How long the processors have worked for this process so far.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How much memory this process uses, in bytes; zero where the system does not tell.
fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next())
        .and_then(|kilobytes| kilobytes.parse::<f64>().ok());
    resident.unwrap_or_default() * 1024.0
}

const LOCKS: u32 = 10_000;
const WARM: u32 = 256;
const AT_ONCE: usize = 64;
const TTL: Duration = Duration::from_secs(3);
const SPAN: Duration = Duration::from_secs(3);
