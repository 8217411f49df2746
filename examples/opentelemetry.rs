//! What a client does, as metrics of OpenTelemetry: a monitor of your own, in the place of the feature `metrics`.
//!
//! Install a meter provider (`opentelemetry_sdk`) before this runs; without one, the meters do nothing.
//!
//! ```sh
//! scripts/with-server cargo run --example opentelemetry
//! ```

use std::sync::Arc;

use leasehold::monitor::{Event, Monitor};
use leasehold::{Client, Error};
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};
use opentelemetry::{KeyValue, global};

struct OpenTelemetry {
    acquire: Histogram<f64>,
    hold: Histogram<f64>,
    held: UpDownCounter<i64>,
    waiting: UpDownCounter<i64>,
    lost: Counter<u64>,
    renewals: Counter<u64>,
}

impl OpenTelemetry {
    fn new(meter: &Meter) -> Self {
        let seconds = |name| meter.f64_histogram(name).with_unit("s").build();
        Self {
            acquire: seconds("leasehold.acquire.duration"),
            hold: seconds("leasehold.hold.duration"),
            held: meter.i64_up_down_counter("leasehold.held").build(),
            waiting: meter.i64_up_down_counter("leasehold.waiting").build(),
            lost: meter.u64_counter("leasehold.lost").build(),
            renewals: meter.u64_counter("leasehold.renewals").build(),
        }
    }
}

/// `orders` for `orders:42`: never the whole name, since there may be any number of those.
fn class(lock: &str) -> KeyValue {
    let class = lock.rsplit_once(':').map_or("other", |(class, _)| class);
    KeyValue::new("lock.class", class.to_owned())
}

impl Monitor for OpenTelemetry {
    fn on(&self, event: &Event<'_>) {
        match *event {
            Event::Asked { lock, outcome, path, took, .. } => {
                let outcome = KeyValue::new("outcome", outcome.as_str());
                let labels = [class(lock), outcome, KeyValue::new("path", path.as_str())];
                self.acquire.record(took.as_secs_f64(), &labels);
            }
            Event::WaitBegan { lock, .. } => self.waiting.add(1, &[class(lock)]),
            Event::WaitEnded { lock, .. } => self.waiting.add(-1, &[class(lock)]),
            Event::HoldBegan { lock, .. } => self.held.add(1, &[class(lock)]),
            Event::HoldEnded { lock, end, held, .. } => {
                self.held.add(-1, &[class(lock)]);
                let end = KeyValue::new("end", end.as_str());
                self.hold.record(held.as_secs_f64(), &[class(lock), end]);
            }
            Event::Lost { lock, reason, .. } => {
                self.lost.add(1, &[class(lock), KeyValue::new("reason", reason.to_string())]);
            }
            Event::Renewed { .. } => self.renewals.add(1, &[KeyValue::new("outcome", "renewed")]),
            Event::RenewalFailed { .. } => {
                self.renewals.add(1, &[KeyValue::new("outcome", "failed")]);
            }
            _ => {}
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let monitor = Arc::new(OpenTelemetry::new(&global::meter("leasehold")));
    let client = Client::builder().nodes([url]).monitor(monitor).connect().await?;
    let guard = client.mutex("orders:42").lock().await?;
    guard.unlock().await?;
    let stats = client.stats();
    assert_eq!((stats.acquired, stats.hold_times.count()), (1, 1));
    println!("{} locks taken, held for {:?}", stats.acquired, stats.hold_times.sum());
    Ok(())
}
