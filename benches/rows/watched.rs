//! Rows 1 to 6 with everything switched on that watches, beside the same with everything off.

use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "metrics")]
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use leasehold::{Client, ClientBuilder, Deadlocks, LockOrder};
use leasehold_testkit::bench::figures::Unit;

use crate::table::{Aim, Figure};
use crate::{Bench, Outcome};

/// Whether everything is on, for the workers that are started from now on.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Whether the two are compared at all.
static ARE_COMPARED: AtomicBool = AtomicBool::new(false);

/// How a process that this program starts learns what to switch on.
pub(crate) const VARIABLE: &str = "LEASEHOLD_BENCH_WATCHED";

/// What the variable says to a new worker.
pub(crate) fn order() -> &'static str {
    match (are_compared(), IS_ON.load(Ordering::Relaxed)) {
        (false, _) => "",
        (true, false) => OFF,
        (true, true) => ON,
    }
}

pub(crate) fn are_compared() -> bool {
    ARE_COMPARED.load(Ordering::Relaxed)
}

/// In a worker: the settings that it was told.
pub(crate) fn as_ordered(builder: ClientBuilder) -> ClientBuilder {
    match std::env::var(VARIABLE).as_deref() {
        Ok(ON) => all_on(builder),
        Ok(OFF) => all_off(builder),
        _ => builder,
    }
}

/// Measures a row with all off and all on, in an order that changes from round to round.
pub(crate) async fn compare(off: &Bench, on: &Bench, row: u8, round: u32) -> Outcome<Vec<Figure>> {
    let first = round.is_multiple_of(2);
    let mut figures = [Vec::new(), Vec::new()];
    for is_on in [first, !first] {
        IS_ON.store(is_on, Ordering::Relaxed);
        // The names of locks go by the round: no run meets the locks of another one.
        let number = round * 2 + u32::from(is_on);
        figures[usize::from(is_on)] = if is_on { on } else { off }.row(row, number).await?;
    }
    let [off, on] = figures;
    let pairs = off.into_iter().zip(on);
    Ok(pairs.filter_map(|(off, on)| beside(&off, on)).collect())
}

fn beside(off: &Figure, mut on: Figure) -> Option<Figure> {
    let aim = match on.unit {
        Unit::Seconds => Aim::RatioUnder(MOST),
        Unit::PerSecond => Aim::RatioOver(LEAST),
        Unit::Bytes | Unit::Number => return None,
    };
    on.what = on.what.split(" (floor:").next().unwrap_or_default().to_owned();
    Some(on.floor(off.ours).aim(aim))
}

pub(crate) async fn clients(url: &str) -> Outcome<[Client; 2]> {
    ARE_COMPARED.store(true, Ordering::Relaxed);
    let builder = || Client::builder().nodes([url]);
    Ok([all_off(builder()).connect().await?, all_on(builder()).connect().await?])
}

fn all_off(builder: ClientBuilder) -> ClientBuilder {
    builder.deadlocks(Deadlocks::Off).lock_order(LockOrder::Off)
}

fn all_on(builder: ClientBuilder) -> ClientBuilder {
    let builder = builder.deadlocks(Deadlocks::Fail).lock_order(LockOrder::Warn);
    monitored(builder.warn_held_after(Duration::from_secs(60)))
}

#[cfg(feature = "metrics")]
fn monitored(builder: ClientBuilder) -> ClientBuilder {
    LazyLock::force(&RECORDER);
    builder.monitor(Arc::new(leasehold::Metrics::new()))
}

#[cfg(not(feature = "metrics"))]
fn monitored(builder: ClientBuilder) -> ClientBuilder {
    builder
}

/// The exporter for Prometheus, which sums up each second what it was given.
#[cfg(feature = "metrics")]
static RECORDER: LazyLock<()> = LazyLock::new(|| {
    let builder = metrics_exporter_prometheus::PrometheusBuilder::new();
    let handle = builder.install_recorder().expect("the only recorder of this process");
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            handle.run_upkeep();
        }
    });
});

const ON: &str = "on";
const OFF: &str = "off";
const MOST: f64 = 1.03;
const LEAST: f64 = 0.97;
