//! What is traced: where, how much of it, and that a subscriber may ask the client back.

use std::{
    collections::BTreeMap,
    mem::ManuallyDrop,
    sync::{Arc, Mutex as StdMutex, OnceLock, mpsc},
    time::{Duration, Instant},
};

use leasehold::{Client, Guard, NodeState, Owner};
use tracing::{Event, Level, Subscriber, field, span};
use tracing_subscriber::{
    layer::{Context, Layer, SubscriberExt},
    registry::LookupSpan,
};

use crate::{
    checks::{LIMIT, connect, nothing_left, setup, setup_with_proxy, soon},
    support::{MASTER, Outage, Pretender, Proxy, Server, Spy, Worker, eventually, traced_to},
};

const MS: Duration = Duration::from_millis(1);

/// What was traced, and a client that is asked at every chance.
#[derive(Clone, Default)]
struct Traced {
    client: Arc<OnceLock<Client>>,
    lines: Arc<StdMutex<Vec<Line>>>,
}

#[derive(Clone, Debug)]
struct Line {
    level: Level,
    target: &'static str,
    message: String,
    fields: BTreeMap<&'static str, String>,
}

impl Traced {
    fn listen() -> (Self, tracing::subscriber::DefaultGuard) {
        let traced = Self::default();
        let subscriber = tracing_subscriber::registry().with(traced.clone());
        (traced, traced_to(subscriber))
    }

    /// What an exporter of metrics does whenever it hears of something.
    fn ask(&self) {
        if let Some(client) = self.client.get() {
            let _ = (client.holds(), client.stats(), client.nodes());
        }
    }

    fn asked_by(&self, client: &Client) {
        assert!(self.client.set(client.clone()).is_ok(), "one client");
    }

    fn lines(&self) -> Vec<Line> {
        self.lines.lock().expect("no panic").clone()
    }

    fn with(&self, message: &str) -> Vec<Line> {
        self.lines().into_iter().filter(|line| line.message == message).collect()
    }

    async fn comes(&self, message: &str) -> Line {
        self.comes_within(LIMIT, message).await
    }

    async fn comes_within(&self, limit: Duration, message: &str) -> Line {
        eventually(limit, message, async || !self.with(message).is_empty()).await;
        self.with(message).remove(0)
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Traced {
    fn on_new_span(&self, _: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        self.ask();
    }

    fn on_record(&self, _: &span::Id, _: &span::Record<'_>, _: Context<'_, S>) {
        self.ask();
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        if metadata.target().starts_with("leasehold") {
            self.ask();
            self.lines.lock().expect("no panic").push(Line {
                level: *metadata.level(),
                target: metadata.target(),
                message: fields.0.remove("message").unwrap_or_default(),
                fields: fields.0,
            });
        }
    }

    fn on_enter(&self, _: &span::Id, _: Context<'_, S>) {
        self.ask();
    }

    fn on_exit(&self, _: &span::Id, _: Context<'_, S>) {
        self.ask();
    }

    fn on_close(&self, _: span::Id, _: Context<'_, S>) {
        self.ask();
    }
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl field::Visit for Fields {
    fn record_str(&mut self, field: &field::Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &field::Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// Runs a test on a thread of its own: one that locks itself up there fails instead of hanging.
fn on_a_thread(test: impl AsyncFnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(test());
        let _ = done.send(());
    };
    let thread = std::thread::spawn(run);
    match ended.recv_timeout(4 * LIMIT) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().expect("the test passes"),
    }
}

#[test]
fn a_subscriber_may_ask_the_client_while_a_lock_is_lost() {
    on_a_thread(async || {
        let (traced, _listening) = Traced::listen();
        let (_server, proxy) = setup_with_proxy().await;
        let client = Client::connect(&proxy.url()).await.expect("connected");
        traced.asked_by(&client);
        let lock = client.mutex("n");

        // Found by a nested call: the watchdog has no turn meanwhile.
        let guard = lock.with_lease(30 * MS).lock().await.expect("free");
        std::thread::sleep(60 * MS);
        guard.reenter().expect_err("it has ended");
        assert_eq!(traced.with("lock lost").len(), 1);
        drop(guard);

        // Found by the watchdog, after renewals that failed: with an answer that did not come, and unsent.
        let guard = lock.with_ttl(300 * MS).lock().await.expect("free");
        proxy.drop_replies(true);
        traced.comes("renewal failed").await;
        proxy.refuse(true);
        proxy.cut();
        soon("it is lost", guard.lost()).await;
        traced.comes("connection lost").await;
        traced.comes("connecting failed").await;
        proxy.drop_replies(false);
        proxy.refuse(false);
        traced.comes("connected again").await;
        drop(guard);

        // By a forced unlock, by its own task, and at the end of the client.
        let guard = lock.lock().await.expect("free");
        lock.lock_with_timeout(20 * MS).await.expect_err("it holds it itself");
        assert!(lock.try_lock().await.expect("an answer").is_none());
        lock.force_unlock().await.expect("an answer");
        traced.comes("force-unlocked").await;
        assert!(!guard.is_held());
        let _guard = client.mutex("m").lock().await.expect("free");
        client.shutdown().await;
        assert_eq!(traced.with("lock lost").len(), 3, "{:?}", traced.lines());
        let [given_up] = &traced.with("lock given up in a shutdown")[..] else {
            panic!("{:?}", traced.lines())
        };
        assert_eq!((given_up.level, &*given_up.fields["lock"]), (Level::DEBUG, "m"));
    });
}

#[test]
fn a_subscriber_may_ask_a_client_of_several_servers() {
    on_a_thread(async || {
        let (traced, _listening) = Traced::listen();
        let servers = [Server::start().await, Server::start().await, Server::start().await];
        let proxy = Proxy::start(servers[0].port()).await;
        let urls = [proxy.url(), servers[1].url(), servers[2].url()];
        let builder = Client::builder().nodes(urls).restart_quarantine(Duration::ZERO);
        let client = builder.connect().await.expect("connected");
        traced.asked_by(&client);
        let lock = client.mutex("n").with_ttl(600 * MS);
        // Missing on one server: it is put back, once that has not had it for a while.
        proxy.drop_requests(true);
        let guard = lock.lock().await.expect("a majority is free");
        proxy.drop_requests(false);
        traced.comes("lease put back").await;
        guard.unlock().await.expect("held");
        proxy.lead_to(servers[1].port());
        proxy.cut();
        traced.comes("node not used").await;
        client.shutdown().await;
    });
}

#[tokio::test]
async fn a_server_that_was_never_connected_has_lost_no_connection() {
    let (traced, _listening) = Traced::listen();
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    servers[2].kill();
    let builder = Client::builder().nodes(servers.each_ref().map(Server::url));
    let builder = builder.restart_quarantine(Duration::ZERO).connect_timeout(400 * MS);
    let client = builder.connect().await.expect("two of three");
    let line = traced.comes("not connected yet").await;
    assert_eq!((line.level, line.target), (Level::WARN, "leasehold::node"));
    assert!(line.fields["node"].contains(&servers[2].port().to_string()), "{line:?}");
    assert!(line.fields["reason"].contains("refused"), "{line:?}");
    servers[2].restart().await;
    assert_eq!(traced.comes("connected at last").await.level, Level::INFO);
    assert!(traced.with("connection lost").is_empty(), "{:?}", traced.lines());
    client.shutdown().await;
}

#[test]
fn a_client_that_is_closed_before_it_reaches_all_servers_says_nothing_of_that() {
    let (traced, _listening) = Traced::listen();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (tasks, others) = (runtime().expect("a runtime"), runtime().expect("a runtime"));
    let servers = others
        .block_on(async { [Server::start().await, Server::start().await, Server::start().await] });
    servers[2].kill();
    tasks.block_on(async {
        let builder = Client::builder().nodes(servers.each_ref().map(Server::url));
        drop(builder.restart_quarantine(Duration::ZERO).connect().await.expect("two of three"));
        let ended = async || tasks.metrics().num_alive_tasks() == 0;
        eventually(LIMIT, "its tasks end", ended).await;
    });
    for message in ["connection lost", "not connected yet"] {
        assert!(traced.with(message).is_empty(), "{:?}", traced.lines());
    }
}

#[test]
fn a_login_that_is_denied_when_connecting_again_is_told_once() {
    on_a_thread(async || {
        let (traced, _listening) = Traced::listen();
        let server = Server::start().await;
        server.command(&["ACL", "SETUSER", "u", "reset", "on", ">pw", "~*", "&*", "+@all"]).await;
        let client =
            Client::connect(&server.url_as("u", "pw")).await.expect("the password is right");
        traced.asked_by(&client);
        server.command(&["ACL", "SETUSER", "u", "resetpass", ">other"]).await;
        server.command(&["CLIENT", "KILL", "USER", "u"]).await;
        traced.comes("node not used").await;
        let tries = async || traced.with("connecting failed").len() > 2;
        eventually(LIMIT, "it tries again and again", tries).await;
        let [told] = &traced.with("node not used")[..] else { panic!("{:?}", traced.lines()) };
        assert_eq!(told.level, Level::ERROR);
        assert!(told.fields["problem"].contains("WRONGPASS"), "{told:?}");
        client.shutdown().await;
    });
}

/// Nobody renews a fixed lease: the next chance to tell might be its end.
#[tokio::test]
async fn what_an_extension_puts_back_is_told_with_it() {
    let (traced, _listening) = Traced::listen();
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let mut ways = Vec::new();
    for server in &servers {
        ways.push(Proxy::start(server.port()).await);
    }
    let builder = Client::builder().nodes(ways.iter().map(Proxy::url));
    let builder = builder.restart_quarantine(Duration::ZERO).response_timeout(LIMIT);
    let client = builder.connect().await.expect("connected");
    let state_is = async |state: NodeState| {
        eventually(LIMIT, "the third", async || client.nodes()[2].state == state).await;
    };
    state_is(NodeState::Up).await;
    ways[2].refuse(true);
    ways[2].cut();
    state_is(NodeState::Down).await;
    let hour = Duration::from_secs(3600);
    let guard = client.mutex("n").with_lease(hour).lock().await.expect("two of three");
    ways[2].refuse(false);
    state_is(NodeState::Up).await;
    assert!(traced.with("lease put back").is_empty());
    let spy = Spy::on(&servers[2]).await;
    ways[..2].iter().for_each(Proxy::hold_replies);
    let answers = async {
        eventually(LIMIT, "it is asked", async || spy.count("lock_renew") > 0).await;
        // Its answer comes in before the others'.
        tokio::time::sleep(200 * MS).await;
        ways[..2].iter().for_each(Proxy::release_replies);
    };
    let (extended, ()) = tokio::join!(guard.extend(hour), answers);
    extended.expect("two of three");
    let told = traced.with("lease put back");
    assert!(told.len() == 1 && told[0].fields["lock"] == "n", "{told:?}");
    guard.unlock().await.expect("held");
    client.shutdown().await;
}

/// Within a tenth of the TTL: the pause is at most 120 ms, and two thirds of the TTL are left.
#[tokio::test]
async fn a_renewal_that_fails_is_tried_again_before_long() {
    let (traced, _listening) = Traced::listen();
    let (_server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let guard = client.mutex("n").with_ttl(1200 * MS).lock().await.expect("free");
    proxy.refuse(true);
    proxy.cut();
    soon("it is lost", guard.lost()).await;
    let tries = traced.with("renewal failed").len();
    assert!(tries >= 5, "tried {tries} times");
}

/// The client does nothing else meanwhile.
#[tokio::test]
async fn losses_that_were_only_counted_are_summed_up_by_themselves() {
    let (traced, _listening) = Traced::listen();
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).ttl(1500 * MS);
    let client = builder.connect().await.expect("connected");
    let mut guards: Vec<Guard> = Vec::new();
    for n in 0..10 {
        guards.push(client.mutex(format!("n{n}")).lock().await.expect("free"));
    }
    server.command(&["FLUSHALL"]).await;
    let summary = traced.comes_within(2 * LIMIT, "more locks lost").await;
    assert_eq!((summary.level, &*summary.fields["more"]), (Level::WARN, "7"));
    let lost = traced.with("lock lost");
    assert_eq!(lost.len(), 10);
    assert_eq!(lost.iter().filter(|line| line.level == Level::WARN).count(), 3);
}

#[test]
fn a_subscriber_may_ask_while_a_subscription_is_refused() {
    on_a_thread(async || {
        let (traced, _listening) = Traced::listen();
        let server = Server::start().await;
        let rules = "ACL SETUSER deaf on >pw ~* +@all resetchannels &leasehold_probe";
        server.command(&rules.split(' ').collect::<Vec<_>>()).await;
        let client = Client::connect(&server.url_as("deaf", "pw")).await;
        let client = client.expect("connected");
        traced.asked_by(&client);
        let other = connect(&server).await;
        let guard = other.mutex("n").lock().await.expect("free");
        client.mutex("n").lock_with_timeout(300 * MS).await.expect_err("it is held");
        traced.comes("cannot subscribe: waiters poll").await;
        guard.unlock().await.expect("held");
    });
}

/// Whatever wakes a caller may run the caller's code at once.
struct Asking {
    client: Client,
    woken: mpsc::Sender<()>,
}

impl std::task::Wake for Asking {
    fn wake(self: Arc<Self>) {
        let _ = (self.client.holds(), self.client.stats(), self.client.nodes());
        let _ = self.woken.send(());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waker_may_ask_the_client() {
    let (_server, proxy) = setup_with_proxy().await;
    // A runtime whose thread can be left behind where it hangs.
    let tasks = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let tasks = ManuallyDrop::new(tasks.expect("a runtime"));
    let builder = Client::builder().nodes([proxy.url()]).response_timeout(5000 * MS);
    let client = builder.runtime(tasks.handle().clone()).connect().await.expect("connected");
    let guard = client.mutex("n").lock().await.expect("free");
    proxy.refuse(true);
    proxy.cut();
    eventually(LIMIT, "it is down", async || client.nodes()[0].state == NodeState::Down).await;
    let (woken, wakes) = mpsc::channel();
    let waker = std::task::Waker::from(Arc::new(Asking { client: client.clone(), woken }));
    // The release is sent by the next connection, and its answer is for this caller.
    let mut unlock = Box::pin(guard.unlock());
    let began_at = Instant::now();
    let unlocked = tokio::task::block_in_place(|| {
        let context = &mut std::task::Context::from_waker(&waker);
        assert!(unlock.as_mut().poll(context).is_pending());
        proxy.refuse(false);
        loop {
            let left = LIMIT.saturating_sub(began_at.elapsed());
            wakes.recv_timeout(left).expect("it is woken, and nothing hangs");
            if let std::task::Poll::Ready(unlocked) = unlock.as_mut().poll(context) {
                return unlocked;
            }
        }
    });
    unlocked.expect("it was held until then");
    ManuallyDrop::into_inner(tasks).shutdown_background();
}

/// What lasts half a minute with the default TTL of 30 s takes four with one of 2 s.
#[tokio::test]
async fn an_outage_with_a_thousand_locks_is_ten_warnings_at_most() {
    let (traced, _listening) = Traced::listen();
    let (server, proxy) = setup_with_proxy().await;
    // All of them must be held at once, and renewed in time.
    let slowness = server.slowness().await;
    let ttl = slowness * 2000 * MS;
    let builder = Client::builder().nodes([proxy.url()]).ttl(ttl);
    let builder = builder.response_timeout(slowness * 1000 * MS);
    let client = builder.connect_timeout(slowness * 5000 * MS).connect().await.expect("connected");
    let mut guards: Vec<Guard> = Vec::new();
    for some in 0..20 {
        let some = (50 * some..50 * (some + 1)).map(|n| client.mutex(format!("n{n}")).lock());
        let some = futures_util::future::join_all(some).await;
        guards.extend(some.into_iter().map(|guard| guard.expect("free")));
    }
    // The outage: as long as it takes to lose them all, and as long again.
    let began_at = Instant::now();
    proxy.refuse(true);
    proxy.cut();
    eventually(LIMIT + 2 * ttl, "all are lost", async || {
        guards.iter().all(|guard| !guard.is_held())
    })
    .await;
    tokio::time::sleep(began_at.elapsed()).await;
    proxy.refuse(false);
    let again = traced.comes_within(slowness * LIMIT, "connected again").await;

    let lines = traced.lines();
    let loud: Vec<&Line> = lines.iter().filter(|line| line.level <= Level::WARN).collect();
    assert!((2..=10).contains(&loud.len()), "{} warnings: {loud:#?}", loud.len());
    let lost = traced.with("connection lost");
    assert_eq!((lost.len(), lost[0].level), (1, Level::WARN));
    assert_eq!(lost[0].fields["holds"], "1000");
    assert_eq!(again.level, Level::INFO);
    assert_eq!(again.fields["locks_lost"], "1000");
    let failed: usize = again.fields["renewals_failed"].parse().expect("a number");
    assert!(failed >= 1000, "{failed}");
    // Each of them is there for who looks closer.
    assert_eq!(traced.with("lock lost").len(), 1000);
    // Some may fail before it is known that the connection is lost, and some after it is back.
    let outage = lines.iter().skip_while(|line| line.message != lost[0].message);
    let outage = outage.take_while(|line| line.message != again.message);
    let told = outage.filter(|line| line.message == "renewal failed").count();
    assert_eq!(told, failed);
    drop(guards);
}

#[tokio::test]
async fn each_outage_is_told_with_its_own_counts() {
    const LOCKS: usize = 3;
    let (traced, _listening) = Traced::listen();
    let (server, proxy) = setup_with_proxy().await;
    let slowness = server.slowness().await;
    let ttl = slowness * 300 * MS;
    let client = Client::builder().nodes([proxy.url()]).ttl(ttl).connect().await;
    let client = client.expect("connected");
    let test = async |outage: &Outage<'_>| {
        let number = outage.number() as usize;
        let mut guards: Vec<Guard> = Vec::new();
        for n in 0..LOCKS {
            guards.push(client.mutex(format!("n{n}")).lock().await.expect("free"));
        }
        let told_before = traced.lines().len();
        outage.begins();
        eventually(LIMIT, "all are lost", async || guards.iter().all(|guard| !guard.is_held()))
            .await;
        outage.ends().await;
        let is_told = async || traced.with("connected again").len() == number;
        eventually(slowness * LIMIT, "its end is told", is_told).await;
        let lost = traced.with("connection lost").remove(number - 1);
        assert_eq!(lost.fields["holds"], LOCKS.to_string());
        let again = traced.with("connected again").remove(number - 1);
        assert_eq!(again.fields["locks_lost"], LOCKS.to_string());
        let failed: usize = again.fields["renewals_failed"].parse().expect("a number");
        let lines = traced.lines();
        let told = lines[told_before..].iter().filter(|line| line.message == "renewal failed");
        assert!((LOCKS..=told.count()).contains(&failed), "{failed}");
        drop(guards);
        nothing_left(&server, &client).await;
    };
    Outage::cut_off([&proxy]).twice(test).await;
}

#[tokio::test]
async fn every_line_has_a_public_target_and_a_loss_names_lock_owner_and_token() {
    let (traced, _listening) = Traced::listen();
    let (server, [client]) = setup().await;
    let finding = traced.comes("the server's settings can break a lock's promises").await;
    assert_eq!((finding.level, finding.target), (Level::INFO, "leasehold::check"));
    let lock = client.mutex("n").owned_by(&Owner::named("req-17"));
    let guard = lock.with_lease(30 * MS).lock().await.expect("free");
    soon("it ends", guard.lost()).await;
    let lost = traced.comes("lock lost").await;
    assert_eq!((lost.level, lost.target), (Level::WARN, "leasehold::lock"));
    assert_eq!(lost.fields["lock"], "n");
    assert_eq!(lost.fields["token"], guard.token().to_string());
    assert!(lost.fields["owner"].starts_with("req-17#"), "{lost:?}");
    assert!(lost.fields["lease"].contains(&guard.holder().to_string()), "{lost:?}");
    drop(guard);
    let guard = lock.lock().await.expect("free");
    let token = guard.token().to_string();
    guard.unlock().await.expect("held");
    let released = traced.comes("lock released").await;
    assert_eq!((released.level, &released.fields["token"]), (Level::DEBUG, &token));
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    let lost = traced.comes("connection lost").await;
    assert_eq!(lost.target, "leasehold::node");
    assert_eq!(lost.fields["holds"], "0", "one was lost, one was given back");
    traced.comes("connected again").await;
    let targets: std::collections::BTreeSet<_> =
        traced.lines().iter().map(|line| line.target).collect();
    let public = ["leasehold::check", "leasehold::lock", "leasehold::node"];
    assert!(targets.iter().all(|target| public.contains(target)), "{targets:?}");
}

#[tokio::test]
async fn a_new_master_and_the_silence_of_all_sentinels_are_logged_once() {
    let (traced, _listening) = Traced::listen();
    let [old, new] = [Server::start().await, Server::start().await];
    let sentinel = Pretender::start(old.port(), Some(3)).await;
    let builder = Client::builder().sentinel(MASTER, [sentinel.url()]);
    let client = builder.restart_quarantine(Duration::ZERO).connect().await.expect("connected");
    traced.asked_by(&client);
    sentinel.says(new.port(), Some(4));
    let line = traced.comes("another server is the master").await;
    assert_eq!((line.level, line.target), (Level::INFO, "leasehold::node"));
    assert_eq!([&line.fields["from"], &line.fields["to"]], [&old.url(), &new.url()]);
    assert_eq!(line.fields["master"], MASTER);
    let port = sentinel.port();
    drop(sentinel);
    let silent_at = Instant::now();
    let silence = "no Sentinel answers: a failover would go unnoticed";
    assert_eq!(traced.comes(silence).await.level, Level::WARN);
    // It is told after 3 s without an answer, and asked each second.
    assert!(silent_at.elapsed() > 1900 * MS, "{:?}", silent_at.elapsed());
    let _again = Pretender::at(port, new.port(), Some(4)).await;
    eventually(LIMIT, "it is noticed that one answers", async || {
        traced.with("a Sentinel answers again").iter().any(|line| line.level == Level::INFO)
    })
    .await;
    for message in [silence, "another server is the master"] {
        assert_eq!(traced.with(message).len(), 1, "{message}");
    }
}

#[tokio::test]
async fn a_deadlock_over_processes_is_logged_once_however_long_it_stands() {
    let (traced, _listening) = Traced::listen();
    let server = Server::start().await;
    let client = connect(&server).await;
    let mut elder = Worker::start();
    elder.tell(&format!("nest nodes:{} warned a b", server.url()));
    assert_eq!(elder.answer(), ["held"]);
    let owner = client.owner();
    let guard = client.mutex("b").owned_by(&owner).lock().await.expect("free");
    let waiting = tokio::spawn(client.mutex("a").owned_by(&owner).lock());
    let message = "owners in several processes wait for each other: they may wait forever";
    assert_eq!(traced.comes(message).await.level, Level::WARN);
    // The notes of both are made again each second.
    tokio::time::sleep(3000 * MS).await;
    let begins = |line: &&Line| line.message.starts_with("owners in several processes");
    assert_eq!(traced.lines().iter().filter(begins).count(), 1);
    guard.unlock().await.expect("held");
    assert_eq!(elder.answer(), ["got"]);
    let guard = soon("its turn", waiting).await.expect("no panic").expect("free");
    guard.unlock().await.expect("held");
}

#[tokio::test]
async fn sentinels_that_name_different_masters_are_logged_once() {
    let (traced, _listening) = Traced::listen();
    let [server, other] = [Server::start().await, Server::start().await];
    let sentinels = [
        Pretender::start(server.port(), Some(3)).await,
        Pretender::start(other.port(), Some(9)).await,
    ];
    let urls = sentinels.each_ref().map(Pretender::url);
    let builder = Client::builder().sentinel(MASTER, &urls).restart_quarantine(Duration::ZERO);
    let client = builder.connect().await.expect("connected");
    traced.asked_by(&client);
    let message = "the Sentinels name different masters";
    eventually(LIMIT * 2, message, async || !traced.with(message).is_empty()).await;
    let asked = sentinels[0].questions();
    eventually(LIMIT, "it is asked again", async || sentinels[0].questions() > asked + 1).await;
    let lines = traced.with(message);
    let [line] = &lines[..] else { panic!("once: {lines:?}") };
    assert_eq!((line.level, line.target), (Level::WARN, "leasehold::node"));
    let at = [server.port(), other.port()].map(|port| format!("127.0.0.1:{port}"));
    let named = format!("{} names {}, {} names {}", urls[0], at[0], urls[1], at[1]);
    assert_eq!([&*line.fields["master"], &line.fields["used"]], [MASTER, &at[1]]);
    assert_eq!(line.fields["named"], named);
}
