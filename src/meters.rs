//! What a client does and how it is, as metrics of the crate `metrics` (feature `metrics`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};
use parking_lot::{Mutex, RwLock};

use crate::client::Stats;
use crate::error::LossReason;
use crate::monitor::{Event, HoldEnd, Monitor, Outcome, Path};
use crate::node::{NodeState, NodeStatus};

/// Reports to the recorder of the crate [`metrics`](https://docs.rs/metrics) 0.24 what clients do (feature `metrics`).
///
/// Install the recorder first, give this to [`ClientBuilder::monitor`](crate::ClientBuilder::monitor), and call
/// [`report`](Self::report) before each scrape, or every few seconds: that reports states, which are no events. The
/// [operating page](crate::docs::operating) lists the metrics.
///
/// The label `class` is a lock's name up to its last colon, `orders` for `orders:42`, and `other` for a name without one. If that
/// part of your names contains a number, set the class with [`with_class`](Self::with_class): there must not be many classes.
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
#[derive(Clone, Debug)]
pub struct Metrics {
    class: fn(&str) -> &str,
    /// The label of what is reported, if it has one.
    client: Option<Label>,
    /// The classes of all locks so far.
    classes: Arc<RwLock<BTreeMap<Box<str>, Arc<Class>>>>,
    /// The servers of the last report that the client uses.
    nodes: Arc<Mutex<BTreeSet<Arc<str>>>>,
}

/// The metrics of the locks of one class that change with every acquisition. To ask the recorder for one takes several times as
/// long as to add to it, so each is asked for once.
#[derive(Debug)]
struct Class {
    name: Arc<str>,
    waiting: Gauge,
    held: Gauge,
    asked: [[OnceLock<Histogram>; PATHS]; OUTCOMES],
    hold_times: [OnceLock<Histogram>; ENDS],
}

const OUTCOMES: usize = Outcome::Failed as usize + 1;
const PATHS: usize = Path::Reentry as usize + 1;
const ENDS: usize = HoldEnd::Lost as usize + 1;

impl Class {
    fn new(name: &str) -> Self {
        let name: Arc<str> = name.into();
        Self {
            waiting: gauge!("leasehold.waiting", "class" => name.clone()),
            held: gauge!("leasehold.held", "class" => name.clone()),
            asked: Default::default(),
            hold_times: Default::default(),
            name,
        }
    }

    /// Has its counters be there with what they count so far, if that is nothing: a counter that begins with one has not grown for
    /// whoever reads it.
    fn begin(&self) {
        let class = || self.name.clone();
        for reason in
            [LossReason::NotRenewed, LossReason::Gone, LossReason::Failover, LossReason::Ended]
        {
            lost(class(), reason).increment(0);
        }
        counter!("leasehold.slow_waits", "class" => class()).increment(0);
        counter!("leasehold.slow_holds", "class" => class()).increment(0);
    }

    fn asked(&self, outcome: Outcome, path: Path) -> &Histogram {
        self.asked[outcome as usize][path as usize].get_or_init(|| {
            histogram!(
                "leasehold.acquire.duration",
                "class" => self.name.clone(), "outcome" => outcome.as_str(), "path" => path.as_str()
            )
        })
    }

    fn hold_times(&self, end: HoldEnd) -> &Histogram {
        self.hold_times[end as usize].get_or_init(|| {
            let class = self.name.clone();
            histogram!("leasehold.hold.duration", "class" => class, "end" => end.as_str())
        })
    }
}

impl Metrics {
    /// Makes one, and describes its metrics to the recorder that is installed by now.
    pub fn new() -> Self {
        describe();
        Self { class, client: None, classes: Arc::default(), nodes: Arc::default() }
    }

    /// Sets how a lock's class follows from its name, which has the client's prefix.
    pub fn with_class(self, class: fn(&str) -> &str) -> Self {
        Self { class, classes: Arc::default(), nodes: Arc::default(), ..self }
    }

    /// Gives what [`report`](Self::report) reports the label `client` with this value. A program with several clients needs one
    /// for each: what one of them reports would replace what another one has reported.
    pub fn with_client(self, name: &str) -> Self {
        let client = Some(Label::new("client", name.to_owned()));
        Self { client, nodes: Arc::default(), ..self }
    }

    /// Reports the state of a client and of its servers, without I/O. Each client needs a `Metrics` of its own: a server that
    /// the last report named and this one does not counts as no longer in use; see [`with_client`](Self::with_client).
    pub fn report(&self, stats: &Stats, nodes: &[NodeStatus]) {
        // An exporter may forget a metric that nobody has used for long, and does not learn of what is added to it later: it
        // is asked for each of them again. The gauges are used: what is taken from one that was forgotten goes below zero.
        for class in self.classes.write().values_mut() {
            *class = Arc::new(Class::new(&class.name));
            class.waiting.increment(0.0);
            class.held.increment(0.0);
        }
        let classes: Vec<_> = self.classes.read().values().cloned().collect();
        classes.iter().for_each(|class| class.begin());
        counter!("leasehold.renewals", "outcome" => "renewed").increment(0);
        counter!("leasehold.renewals", "outcome" => "failed").increment(0);
        let labels: Vec<Label> = self.client.iter().cloned().collect();
        gauge!("leasehold.releases_pending", labels.clone()).set(stats.releases_pending as f64);
        // With nothing to renew, nothing is near its end.
        let ratio = stats.least_remaining.unwrap_or(1.0);
        gauge!("leasehold.lease.remaining_ratio.min", labels.clone()).set(ratio);
        counter!("leasehold.second_round_trips", labels).absolute(stats.second_round_trips);
        let used = || nodes.iter().filter(|node| node.state != NodeState::Unused);
        for node in used() {
            let is = |state| f64::from(u8::from(node.state == state));
            let state = [is(NodeState::Up), is(NodeState::Quarantined)];
            self.report_node(&node.address, state, node.round_trip.map(|it| it.as_secs_f64()));
        }
        let used: BTreeSet<Arc<str>> = used().map(|node| node.address.clone()).collect();
        let before = std::mem::replace(&mut *self.nodes.lock(), used.clone());
        for left in before.difference(&used) {
            // A metric cannot be taken back, and the last value may say that the server is down.
            self.report_node(left, [f64::NAN; 2], Some(f64::NAN));
        }
    }

    fn report_node(&self, node: &Arc<str>, [up, quarantined]: [f64; 2], round_trip: Option<f64>) {
        let node = Label::new("node", node.to_string());
        let labels: Vec<Label> = self.client.iter().cloned().chain([node]).collect();
        gauge!("leasehold.node.up", labels.clone()).set(up);
        gauge!("leasehold.node.quarantined", labels.clone()).set(quarantined);
        if let Some(round_trip) = round_trip {
            gauge!("leasehold.node.round_trip", labels).set(round_trip);
        }
    }

    fn of(&self, lock: &str) -> Arc<Class> {
        let name = (self.class)(lock);
        if let Some(class) = self.classes.read().get(name) {
            return class.clone();
        }
        let class = Arc::new(Class::new(name));
        class.begin();
        self.classes.write().entry(name.into()).or_insert(class).clone()
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
            Event::WaitBegan { lock } => self.of(lock).waiting.increment(1.0),
            Event::WaitEnded { lock } => self.of(lock).waiting.decrement(1.0),
            Event::Asked { lock, outcome, path, took } => {
                self.of(lock).asked(outcome, path).record(took);
            }
            Event::HoldBegan { lock } => self.of(lock).held.increment(1.0),
            Event::HoldEnded { lock, end, held } => {
                let class = self.of(lock);
                class.held.decrement(1.0);
                class.hold_times(end).record(held);
            }
            Event::Lost { lock, reason } => {
                lost(class(lock).into(), reason).increment(1);
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

/// Counts the locks of a class that were lost for that reason.
fn lost(class: Arc<str>, reason: LossReason) -> Counter {
    counter!("leasehold.lost", "class" => class, "reason" => name_of(reason))
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
