//! What a client does is told to a monitor, and counted, and is named in the dashboard and the alerts as it is in the code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use leasehold::monitor::{Event, Monitor};
use leasehold::{Client, Error, Guard, Metrics, NodeState, Owner, blocking};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    checks::{LIMIT, connect, nothing_left, setup, setup_with_proxy, soon},
    layers::sources,
    logging::Log,
    support::{Server, eventually},
};

const MS: Duration = Duration::from_millis(1);

/// Writes down what it is told.
#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Diary {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }

    fn has(&self, entry: &str) -> bool {
        self.0.lock().iter().any(|told| told == entry)
    }
}

impl Monitor for Diary {
    fn on(&self, event: &Event<'_>) {
        self.0.lock().push(match *event {
            Event::WaitBegan { lock, .. } => format!("{lock} waits"),
            Event::WaitEnded { lock, .. } => format!("{lock} waits no more"),
            Event::Asked { lock, outcome, path, .. } => {
                format!("{lock} {} {}", outcome.as_str(), path.as_str())
            }
            Event::HoldBegan { lock, .. } => format!("{lock} begins"),
            Event::HoldEnded { lock, end, .. } => format!("{lock} {}", end.as_str()),
            Event::Lost { lock, reason, .. } => format!("{lock} lost: {reason:?}"),
            Event::Renewed { lock, .. } => format!("{lock} renewed"),
            Event::RenewalFailed { lock, .. } => format!("{lock} not renewed"),
            Event::SlowWait { lock, .. } => format!("{lock} waits for long"),
            Event::LongHold { lock, .. } => format!("{lock} is held for long"),
            _ => format!("{event:?}"),
        });
    }
}

async fn monitored(server: &Server, monitor: Arc<dyn Monitor>) -> Client {
    let builder = Client::builder().nodes([server.url()]).ttl(3000 * MS);
    builder.monitor(monitor).connect().await.expect("connected")
}

#[tokio::test]
async fn each_end_of_an_acquisition_and_of_a_hold_is_told_and_counted() {
    let (server, diary) = (Server::start().await, Arc::new(Diary::default()));
    let client = monitored(&server, diary.clone()).await;
    let (one, two) = (Owner::named("one"), Owner::named("two"));
    let (mutex, other) = (client.mutex("n").owned_by(&one), client.mutex("n").owned_by(&two));

    let guard = mutex.lock().await.expect("free");
    drop(mutex.lock().await.expect("nested"));
    assert_eq!(diary.take(), ["n begins", "n held free", "n held reentry"]);

    assert!(other.try_lock().await.expect("asked").is_none());
    assert_eq!(diary.take(), ["n timeout contended"]);
    let late = other.lock_with_timeout(50 * MS).await;
    late.expect_err("it is held");
    assert_eq!(diary.take(), ["n waits", "n waits no more", "n timeout contended"]);
    let dropped = tokio::time::timeout(50 * MS, other.lock()).await;
    dropped.expect_err("it is held");
    assert_eq!(diary.take(), ["n waits", "n waits no more", "n cancelled contended"]);

    let waiter = tokio::spawn(other.lock());
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
    assert!(client.stats().least_remaining.is_some_and(|part| part > 0.3 && part <= 1.0));
    guard.unlock().await.expect("held");
    let guard = waiter.await.expect("no panic").expect("free");
    eventually(LIMIT, "it is renewed", async || diary.has("n renewed")).await;
    guard.unlock().await.expect("held");
    let told = diary.take();
    for entry in ["n waits", "n waits no more", "n held contended", "n begins", "n released"] {
        assert!(told.iter().any(|told| told == entry), "no {entry:?} in {told:?}");
    }
    let begun = told.iter().filter(|told| *told == "n begins").count();
    assert_eq!(begun, 1, "the other hold began before: {told:?}");

    let guard = client.mutex("m").lock().await.expect("free");
    server.command(&["DEL", "m"]).await;
    guard.lost().await;
    drop(guard);
    let told = diary.take();
    let lost = ["m begins", "m held free", "m lost: Gone", "m lost"];
    assert_eq!(told, lost);

    let stats = client.stats();
    let ends = (stats.timed_out, stats.cancelled, stats.failed);
    assert_eq!((stats.acquired, stats.contended, ends, stats.lost), (3, 3, (2, 1, 0), 1));
    assert_eq!((stats.acquire_times.count(), stats.hold_times.count()), (3, 3));
    assert!(stats.renewals >= 1 && stats.hold_times.sum() >= 100 * MS, "{stats:?}");
    assert_eq!(stats.least_remaining, None);
    nothing_left(&server, &client).await;
}

/// Those say nothing of others who have the lock.
#[tokio::test]
async fn an_acquisition_without_an_answer_and_one_that_is_refused_have_failed() {
    let (server, diary) = (Server::start().await, Arc::new(Diary::default()));
    let builder = Client::builder().nodes([server.url()]).response_timeout(300 * MS);
    let client = builder.monitor(diary.clone()).connect().await.expect("connected");
    let ends = || {
        let stats = client.stats();
        (stats.timed_out, stats.cancelled, stats.failed)
    };
    server.pause();
    let error = client.mutex("n").try_lock().await.expect_err("no answer");
    server.resume();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!((diary.take(), ends()), (vec!["n unavailable free".to_owned()], (0, 0, 1)));

    server.command(&["SET", "m", "x"]).await;
    let error = soon("the answer", client.mutex("m").lock()).await.expect_err("it is no lock");
    assert!(matches!(error, Error::WrongType { .. }), "{error:?}");
    assert!(diary.has("m failed free"), "{:?}", diary.take());
    assert_eq!(ends(), (0, 0, 2));
    server.command(&["DEL", "m"]).await;
    nothing_left(&server, &client).await;
}

/// A lease that is not renewed is seen among others that are.
#[tokio::test]
async fn of_several_leases_it_is_told_how_near_its_end_the_nearest_is() {
    const TTL: Duration = Duration::from_secs(30);
    let (server, [client]) = setup().await;
    let part = |guard: &Guard| guard.remaining().as_secs_f64() / TTL.as_secs_f64();
    let old = client.mutex("old").with_ttl(TTL).lock().await.expect("free");
    eventually(LIMIT, "some of its time is over", async || part(&old) < 0.97).await;
    let new = client.mutex("new").with_ttl(TTL).lock().await.expect("free");
    let before = part(&old);
    let least = client.stats().least_remaining.expect("there are two");
    assert!(least <= before && least >= part(&old), "{least} instead of {before}");
    old.unlock().await.expect("held");
    new.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_downgrade_ends_the_hold_of_a_writer_and_begins_that_of_a_reader() {
    let (server, diary) = (Server::start().await, Arc::new(Diary::default()));
    let client = monitored(&server, diary.clone()).await;
    let writing = client.rw_lock("n").write().await.expect("free");
    assert_eq!(diary.take(), ["n begins", "n held free"]);
    let reading = writing.downgrade().await.expect("held");
    assert_eq!(diary.take(), ["n released", "n begins"]);
    reading.unlock().await.expect("held");
    assert_eq!(diary.take(), ["n released"]);
    assert_eq!(client.stats().hold_times.count(), 2);
    nothing_left(&server, &client).await;
}

#[test]
fn what_threads_do_is_counted() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let diary = Arc::new(Diary::default());
    let builder = blocking::Client::builder().nodes([server.url()]).monitor(diary.clone());
    let client = builder.connect_blocking().expect("connected");
    client.mutex("n").lock().expect("free").unlock().expect("held");
    assert_eq!(diary.take(), ["n begins", "n held free", "n released"]);
    let stats = client.stats();
    assert_eq!((stats.acquired, stats.hold_times.count()), (1, 1));
    runtime.block_on(async { drop(server) });
}

/// A recorder of the crate `metrics` that keeps the values of counters and gauges, and how many values a histogram got.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<BTreeMap<String, Arc<Value>>>>);

#[derive(Default)]
struct Value {
    number: Mutex<f64>,
    /// Since the last look.
    is_used: AtomicBool,
}

impl Value {
    fn number(&self) -> MutexGuard<'_, f64> {
        self.is_used.store(true, Relaxed);
        self.number.lock()
    }
}

impl metrics::HistogramFn for Value {
    fn record(&self, _: f64) {
        *self.number() += 1.0;
    }
}

impl Recorder {
    fn value(&self, key: &metrics::Key) -> Arc<Value> {
        let labels = key.labels().map(|label| format!("{}={}", label.key(), label.value()));
        let name = std::iter::once(key.name().to_owned()).chain(labels);
        self.0.lock().entry(name.collect::<Vec<_>>().join(" ")).or_default().clone()
    }

    /// As an exporter that drops what is idle: what was not used since the last time is gone.
    fn forget_unused(&self) {
        self.0.lock().retain(|_, value| value.is_used.swap(false, Relaxed));
    }

    fn exact(&self, name: &str) -> Option<f64> {
        self.0.lock().get(name).map(|value| *value.number.lock())
    }

    /// What is in front of the point.
    fn read(&self, name: &str) -> Option<i64> {
        let number = self.exact(name)?;
        Some(if number.is_nan() { NOT_A_NUMBER } else { number as i64 })
    }
}

impl metrics::CounterFn for Value {
    fn increment(&self, by: u64) {
        *self.number() += by as f64;
    }

    fn absolute(&self, value: u64) {
        *self.number() = value as f64;
    }
}

const NOT_A_NUMBER: i64 = i64::MAX;

impl metrics::GaugeFn for Value {
    fn increment(&self, by: f64) {
        *self.number() += by;
    }

    fn decrement(&self, by: f64) {
        *self.number() -= by;
    }

    fn set(&self, value: f64) {
        *self.number() = value;
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }
    fn describe_gauge(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }
    fn describe_histogram(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }

    fn register_counter(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        metrics::Counter::from_arc(self.value(key))
    }

    fn register_gauge(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
        metrics::Gauge::from_arc(self.value(key))
    }

    fn register_histogram(
        &self,
        key: &metrics::Key,
        _: &metrics::Metadata<'_>,
    ) -> metrics::Histogram {
        metrics::Histogram::from_arc(self.value(key))
    }
}

#[tokio::test]
async fn the_metrics_have_classes_and_no_names() {
    let recorder = Recorder::default();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let (server, meters) = (Server::start().await, Arc::new(Metrics::new()));
    let client = monitored(&server, meters.clone()).await;
    let guard = client.mutex("orders:42").lock().await.expect("free");
    assert_eq!(recorder.read("leasehold.held class=orders"), Some(1));
    // Whoever reads a counter that begins with one sees no increase.
    let lost = "leasehold.lost class=orders reason=gone";
    assert_eq!(recorder.read(lost), Some(0));
    assert_eq!(recorder.read("leasehold.slow_waits class=orders"), Some(0));
    let mut stats = client.stats();
    (stats.releases_pending, stats.second_round_trips) = (2, 3);
    meters.report(&stats, &client.nodes());
    assert_eq!(recorder.read("leasehold.renewals outcome=failed"), Some(0));
    assert_eq!(recorder.read("leasehold.releases_pending"), Some(2));
    assert_eq!(recorder.read("leasehold.second_round_trips"), Some(3));
    assert_eq!(recorder.exact("leasehold.lease.remaining_ratio.min"), stats.least_remaining);
    let late = client.mutex("orders:42").owned_by(&Owner::new()).try_lock().await;
    assert!(late.expect("asked").is_none());
    eventually(LIMIT, "it is renewed", async || {
        recorder.read("leasehold.renewals outcome=renewed") >= Some(1)
    })
    .await;
    server.command(&["DEL", "orders:42"]).await;
    guard.lost().await;
    drop(guard);
    meters.report(&client.stats(), &client.nodes());
    let [node] = &client.nodes()[..] else { panic!("one node") };
    let up = format!("leasehold.node.up node={}", node.address);
    for (name, value) in [
        ("leasehold.held class=orders", 0),
        ("leasehold.acquire.duration class=orders outcome=held path=free", 1),
        ("leasehold.acquire.duration class=orders outcome=timeout path=contended", 1),
        ("leasehold.hold.duration class=orders end=lost", 1),
        (lost, 1),
        ("leasehold.releases_pending", 0),
        ("leasehold.lease.remaining_ratio.min", 1),
        (&up, 1),
    ] {
        assert_eq!(recorder.read(name), Some(value), "{name}: {:?}", recorder.0.lock().keys());
    }
    assert!(recorder.0.lock().keys().all(|key| !key.contains("42")));
    nothing_left(&server, &client).await;
}

/// Each in a counter of its own, on which an alert rests.
#[tokio::test]
async fn waits_and_holds_that_go_on_and_renewals_that_fail_are_counted() {
    let recorder = Recorder::default();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).ttl(3000 * MS).warn_held_after(50 * MS);
    let builder = builder.monitor(Arc::new(Metrics::new()));
    let (client, other) = (builder.connect().await.expect("connected"), connect(&server).await);
    let count = |name: &str| recorder.read(name).unwrap_or_default();

    let ours = client.mutex("ours:1").lock().await.expect("free");
    let theirs = other.mutex("theirs:1").lock().await.expect("free");
    let waiter = tokio::spawn(client.mutex("theirs:1").lock());
    for name in ["leasehold.slow_holds class=ours", "leasehold.slow_waits class=theirs"] {
        // The first report of a wait comes after 1 s, and the next one after 10 s.
        eventually(8000 * MS, name, async || count(name) >= 1).await;
    }
    for name in ["leasehold.slow_waits class=ours", "leasehold.slow_holds class=theirs"] {
        assert_eq!(count(name), 0, "{name}");
    }
    theirs.unlock().await.expect("held");
    let theirs = soon("its turn", waiter).await.expect("no panic").expect("free");
    theirs.unlock().await.expect("held");

    let failed = || (count("leasehold.renewals outcome=failed"), client.stats().renewals_failed);
    proxy.refuse(true);
    proxy.cut();
    eventually(LIMIT, "a renewal fails", async || failed().0 >= 1).await;
    assert!(failed().1 >= 1);
    proxy.refuse(false);
    drop(ours);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_metric_that_the_exporter_forgot_is_there_again_after_a_report() {
    let recorder = Recorder::default();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let (server, meters) = (Server::start().await, Arc::new(Metrics::new()));
    let client = monitored(&server, meters.clone()).await;
    let mutex = client.mutex("orders:42");
    for _ in 0..2 {
        mutex.lock().await.expect("free").unlock().await.expect("held");
    }
    let held = "leasehold.hold.duration class=orders end=released";
    assert_eq!(recorder.read(held), Some(2));
    recorder.0.lock().clear();
    meters.report(&client.stats(), &client.nodes());
    assert_eq!(recorder.read("leasehold.lost class=orders reason=gone"), Some(0));
    mutex.lock().await.expect("free").unlock().await.expect("held");
    assert_eq!(recorder.read(held), Some(1));
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_server_that_the_client_does_not_use_or_not_any_more_is_not_reported_as_down() {
    let recorder = Recorder::default();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let (server, meters) = (Server::start().await, Metrics::new());
    let client = monitored(&server, Arc::new(meters.clone())).await;
    let report = |nodes: &[(&str, NodeState)]| {
        let status = |(address, state): &(&str, NodeState)| {
            let mut node = client.nodes().remove(0);
            (node.address, node.state) = ((*address).into(), *state);
            node.round_trip = Some(250 * MS);
            node
        };
        meters.report(&client.stats(), &nodes.iter().map(status).collect::<Vec<_>>());
    };
    let up_and_quarantined = |address| {
        let read = |of| recorder.read(&format!("leasehold.node.{of} node={address}"));
        (read("up"), read("quarantined"))
    };
    let gone = (Some(NOT_A_NUMBER), Some(NOT_A_NUMBER));
    report(&[("a", NodeState::Down), ("b", NodeState::Unused)]);
    assert_eq!(up_and_quarantined("a"), (Some(0), Some(0)));
    assert_eq!(up_and_quarantined("b"), (None, None));
    // Another server has replaced it.
    report(&[("b", NodeState::Up)]);
    assert_eq!((up_and_quarantined("a"), up_and_quarantined("b")), (gone, (Some(1), Some(0))));
    assert_eq!(recorder.exact("leasehold.node.round_trip node=b"), Some(0.25));
    assert_eq!(recorder.read("leasehold.node.round_trip node=a"), Some(NOT_A_NUMBER));
    report(&[("a", NodeState::Quarantined), ("b", NodeState::Unused)]);
    assert_eq!((up_and_quarantined("a"), up_and_quarantined("b")), ((Some(0), Some(1)), gone));
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn what_the_clients_of_a_program_report_stands_side_by_side() {
    let recorder = Recorder::default();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let server = Server::start().await;
    let meters = ["orders", "stock"].map(|name| Metrics::new().with_client(name));
    let [orders, stock] =
        meters.each_ref().map(|meters| monitored(&server, Arc::new(meters.clone())));
    let clients = [orders.await, stock.await];
    for (meters, client) in meters.iter().zip(&clients) {
        meters.report(&client.stats(), &client.nodes());
    }
    let [node] = &clients[0].nodes()[..] else { panic!("one node") };
    for client in ["orders", "stock"] {
        let pending = format!("leasehold.releases_pending client={client}");
        assert_eq!(recorder.read(&pending), Some(0), "{:?}", recorder.0.lock().keys());
        let up = format!("leasehold.node.up client={client} node={}", node.address);
        assert_eq!(recorder.read(&up), Some(1));
    }
    assert_eq!(recorder.read("leasehold.releases_pending"), None);
}

/// A leader may hold its lock for longer than an exporter keeps a metric that nobody uses.
#[tokio::test]
async fn an_exporter_that_forgets_does_not_lose_count_of_what_is_held() {
    let recorder = Recorder::default();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let (server, meters) = (Server::start().await, Arc::new(Metrics::new()));
    let client = monitored(&server, meters.clone()).await;
    let guard = client.mutex("orders:42").lock().await.expect("free");
    let held = "leasehold.held class=orders";
    for _ in 0..3 {
        meters.report(&client.stats(), &client.nodes());
        recorder.forget_unused();
        assert_eq!(recorder.read(held), Some(1));
    }
    guard.unlock().await.expect("held");
    assert_eq!(recorder.read(held), Some(0));
    nothing_left(&server, &client).await;
}

/// The words of a text that begin with `leasehold_` or `leasehold.`, as the code writes them.
fn named(text: &str, separator: char) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_' || c == separator;
    let words = text.split(|c| !is_part(c));
    let prefix = format!("leasehold{separator}");
    words.filter(|word| word.starts_with(&prefix)).map(str::to_owned).collect()
}

#[test]
fn every_metric_of_the_dashboard_the_alerts_and_the_page_exists() {
    let read = |path: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        std::fs::read_to_string(path).expect("a file")
    };
    let sources = sources();
    let code = sources.iter().find(|(path, _)| path == "meters.rs").expect("the metrics");
    let exist = named(&code.1, '.');
    assert!(exist.len() >= 14, "{exist:?}");
    let mut exposed: BTreeSet<String> = exist.iter().map(|name| name.replace('.', "_")).collect();
    exposed.append(&mut named(&read("cli/src/export/metrics.rs"), '_'));
    for file in ["docs/grafana.json", "docs/alerts.yml"] {
        let used = named(&read(file), '_');
        assert!(used.len() >= 6, "{file}: {used:?}");
        for name in used {
            let name = ["_bucket", "_count", "_sum"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .unwrap_or(&name);
            assert!(exposed.contains(name), "{file}: {name}");
        }
    }
    serde_json::from_str::<serde_json::Value>(&read("docs/grafana.json")).expect("JSON");
    let told = named(&read("docs/operating.md"), '.');
    assert_eq!(told, exist, "docs/operating.md lists them all, and no others");
}

/// Panics at the first two renewals that it is told of.
#[derive(Default)]
struct Fragile(AtomicU64);

impl Monitor for Fragile {
    fn on(&self, event: &Event<'_>) {
        if matches!(event, Event::Renewed { .. }) && self.0.fetch_add(1, Relaxed) < 2 {
            panic!("the monitor of a test");
        }
    }
}

#[tokio::test]
async fn a_monitor_that_panics_ends_nothing() {
    let (log, _listening) = Log::listen();
    let (server, fragile) = (Server::start().await, Arc::new(Fragile::default()));
    let client = monitored(&server, fragile.clone()).await;
    let guard = client.mutex("n").lock().await.expect("free");
    eventually(LIMIT, "it is renewed again", async || fragile.0.load(Relaxed) >= 3).await;
    assert!(guard.is_held());
    client.mutex("m").lock().await.expect("free").unlock().await.expect("held");
    guard.unlock().await.expect("held");
    let text = log.text();
    let told: Vec<&str> = text.lines().filter(|line| line.contains("monitor panicked")).collect();
    let [first, second] = &told[..] else { panic!("two lines: {text}") };
    assert!(first.contains("ERROR") && first.contains("Renewed"), "{first}");
    assert!(second.contains("DEBUG"), "{second}");
    nothing_left(&server, &client).await;
}
