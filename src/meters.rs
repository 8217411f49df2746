//! What a client does and how it is, as metrics of the crate `metrics` (feature `metrics`).

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::client::Stats;
use crate::error::LossReason;
use crate::monitor::{Event, Monitor};
use crate::node::{NodeState, NodeStatus};

/// Gives what clients do to the recorder of the crate [`metrics`](https://docs.rs/metrics) 0.24 (feature `metrics`).
///
/// Install the recorder first, give this to [`ClientBuilder::monitor`](crate::ClientBuilder::monitor), and call
/// [`report`](Self::report) before each scrape, or every few seconds: what it reports is a state, and no event. The
/// [operating page](crate::docs::operating) lists the metrics.
///
/// The label `class` is a lock's name up to its last colon, `orders` for `orders:42`, and `other` for a name without one. If an
/// earlier part of your names is a number, or the part before the colon is, set the class by [`with_class`](Self::with_class):
/// there must not be many.
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use leasehold::{Client, Metrics};
///
/// # async fn run() -> Result<(), leasehold::Error> {
/// let metrics = Arc::new(Metrics::new());
/// let builder = Client::builder().nodes(["redis://127.0.0.1"]).monitor(metrics.clone());
/// let client = builder.connect().await?;
/// loop {
///     metrics.report(&client.stats(), &client.nodes());
///     tokio::time::sleep(Duration::from_secs(5)).await;
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Metrics {
    class: fn(&str) -> &str,
}

impl Metrics {
    /// Makes one, and describes its metrics to the recorder that is installed by now.
    pub fn new() -> Self {
        describe();
        Self { class }
    }

    /// Sets how a lock's class follows from its name, which has the client's prefix.
    pub fn with_class(self, class: fn(&str) -> &str) -> Self {
        Self { class }
    }

    /// Reports the state of a client and of its servers, without I/O.
    pub fn report(&self, stats: &Stats, nodes: &[NodeStatus]) {
        gauge!("leasehold.releases_pending").set(stats.releases_pending as f64);
        // With nothing to renew, nothing is near its end.
        let ratio = stats.least_remaining.unwrap_or(1.0);
        gauge!("leasehold.lease.remaining_ratio.min").set(ratio);
        counter!("leasehold.second_round_trips").absolute(stats.second_round_trips);
        for node in nodes {
            let labels = [("node", node.address.to_string())];
            let is = |state| f64::from(u8::from(node.state == state));
            gauge!("leasehold.node.up", &labels).set(is(NodeState::Up));
            gauge!("leasehold.node.quarantined", &labels).set(is(NodeState::Quarantined));
            gauge!("leasehold.node.round_trip", &labels).set(node.round_trip.as_secs_f64());
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Monitor for Metrics {
    fn on(&self, event: &Event<'_>) {
        let class = |lock| (self.class)(lock).to_owned();
        match *event {
            Event::WaitBegan { lock } => {
                gauge!("leasehold.waiting", "class" => class(lock)).increment(1.0);
            }
            Event::WaitEnded { lock } => {
                gauge!("leasehold.waiting", "class" => class(lock)).decrement(1.0);
            }
            Event::Asked { lock, outcome, path, took } => {
                let (outcome, path) = (outcome.as_str(), path.as_str());
                histogram!(
                    "leasehold.acquire.duration",
                    "class" => class(lock), "outcome" => outcome, "path" => path
                )
                .record(took);
            }
            Event::HoldBegan { lock } => {
                gauge!("leasehold.held", "class" => class(lock)).increment(1.0);
            }
            Event::HoldEnded { lock, end, held } => {
                gauge!("leasehold.held", "class" => class(lock)).decrement(1.0);
                histogram!("leasehold.hold.duration", "class" => class(lock), "end" => end.as_str())
                    .record(held);
            }
            Event::Lost { lock, reason } => {
                let reason = name_of(reason);
                counter!("leasehold.lost", "class" => class(lock), "reason" => reason).increment(1);
            }
            Event::Renewed { .. } => {
                counter!("leasehold.renewals", "outcome" => "renewed").increment(1);
            }
            Event::RenewalFailed { .. } => {
                counter!("leasehold.renewals", "outcome" => "failed").increment(1);
            }
            Event::SlowWait { lock, .. } => {
                counter!("leasehold.slow_waits", "class" => class(lock)).increment(1);
            }
            Event::LongHold { lock, .. } => {
                counter!("leasehold.slow_holds", "class" => class(lock)).increment(1);
            }
        }
    }
}

fn class(name: &str) -> &str {
    name.rsplit_once(':').map_or("other", |(class, _)| class)
}

fn name_of(reason: LossReason) -> &'static str {
    match reason {
        LossReason::NotRenewed => "not_renewed",
        LossReason::Gone => "gone",
        LossReason::Failover => "failover",
        LossReason::Ended => "ended",
        LossReason::Shutdown => "shutdown",
    }
}

fn describe() {
    let seconds = Unit::Seconds;
    describe_histogram!("leasehold.acquire.duration", seconds, "how long acquisitions took");
    describe_histogram!("leasehold.hold.duration", seconds, "how long locks were held");
    describe_gauge!("leasehold.held", "the holds whose guards are alive");
    describe_gauge!("leasehold.waiting", "the calls that wait for a lock");
    describe_counter!("leasehold.lost", "the locks that were lost");
    describe_counter!("leasehold.renewals", "the renewals of leases");
    describe_counter!("leasehold.slow_waits", "the reports of waits that go on");
    describe_counter!("leasehold.slow_holds", "the reports of holds that go on");
    describe_gauge!(
        "leasehold.lease.remaining_ratio.min",
        "the least part of its time that is left to any lease that is renewed"
    );
    describe_gauge!("leasehold.releases_pending", "the releases that no server has confirmed yet");
    describe_counter!(
        "leasehold.second_round_trips",
        "the acquisitions that needed a second round trip"
    );
    describe_gauge!("leasehold.node.up", "1 if the server can be used");
    describe_gauge!("leasehold.node.quarantined", "1 if the server's grants do not count yet");
    describe_gauge!("leasehold.node.round_trip", seconds, "the smoothed round trip to the server");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_never_a_whole_name() {
        assert_eq!(class("orders:42"), "orders");
        assert_eq!(class("shop:orders:42"), "shop:orders");
        assert_eq!(class("job-42"), "other");
    }
}
