//! What holders, operators and logs are told: losses, terms, states, and no secrets.

use std::{
    io,
    sync::{
        Arc, Mutex as StdMutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use leasehold::{Client, Error, FindingKind, Guard, LossReason, Mutex, NodeState, Owner, SelfWait};
use redis::Value;
use tokio::task::JoinHandle;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::{MakeWriter, format::FmtSpan};

use crate::{
    checks::{AT_ONCE, LIMIT, client_is_idle, connect, exists, nothing_left, told},
    support::{Proxy, Server, Stalls, eventually, within},
};

const MS: Duration = Duration::from_millis(1);

async fn pttl(server: &Server, name: &str) -> i64 {
    match server.command(&["PTTL", name]).await {
        Value::Int(pttl) => pttl,
        other => panic!("not a number: {other:?}"),
    }
}

// A loss is told three ways.

/// Three holds that are about to be lost, one for each way to learn of it.
struct Doomed {
    /// Waits for `lost()`.
    waiting: JoinHandle<(LossReason, Instant)>,
    /// Runs a body that ends only if it is cancelled.
    running: JoinHandle<(Result<(), Error>, Instant)>,
    body_dropped: Arc<AtomicBool>,
    guards: [Guard; 2],
}

impl Doomed {
    const NAMES: [&str; 3] = ["waits", "runs", "unlocks"];

    async fn hold(client: &Client, terms: impl Fn(Mutex) -> Mutex) -> Self {
        let [waits, runs, unlocks] = Self::NAMES.map(|name| terms(client.mutex(name)));
        let waiting = waits.lock().await.expect("free");
        let body_dropped = Arc::new(AtomicBool::new(false));
        let running = runs.run({
            let dropped = SetOnDrop(body_dropped.clone());
            async move |_: &Guard| {
                let _dropped = dropped;
                std::future::pending::<()>().await;
            }
        });
        let running = tokio::spawn(async move { (running.await, Instant::now()) });
        eventually(LIMIT, "the body runs", async || client.holds().len() == 2).await;
        let unlocking = unlocks.lock().await.expect("free");
        let lost = waiting.lost();
        Self {
            waiting: tokio::spawn(async move { (lost.await, Instant::now()) }),
            running,
            body_dropped,
            guards: [waiting, unlocking],
        }
    }

    fn all_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
            && !self.waiting.is_finished()
            && !self.running.is_finished()
    }

    /// Waits until all three are told, for this reason; when the first and the last was.
    async fn told(self, expected: LossReason) -> (Instant, Instant) {
        let waiting = tokio::time::timeout(LIMIT, self.waiting).await.expect("lost() ends");
        let (reason, waiting_told_at) = waiting.expect("no panic");
        assert_eq!(reason, expected);
        let running = tokio::time::timeout(LIMIT, self.running).await.expect("run ends");
        let (answer, running_told_at) = running.expect("no panic");
        let Err(Error::Lost { reason, lock, .. }) = answer else { panic!("not lost: {answer:?}") };
        assert_eq!((reason, &*lock), (expected, "runs"));
        assert!(self.body_dropped.load(Ordering::SeqCst), "the body is cancelled");
        for guard in self.guards {
            let name = guard.name().to_owned();
            // Each of the locks was lost by itself, one perhaps a moment after the others.
            tokio::time::timeout(LIMIT, guard.lost()).await.expect("it is lost as well");
            assert!(!guard.is_held() && guard.remaining().is_zero());
            assert!(matches!(guard.reenter(), Err(Error::Lost { .. })));
            let answer = tokio::time::timeout(LIMIT, guard.unlock()).await.expect("no hang");
            let Err(Error::Lost { reason, lock, .. }) = answer else {
                panic!("not lost: {answer:?}")
            };
            assert_eq!((reason, &*lock), (expected, &*name));
        }
        (waiting_told_at.min(running_told_at), waiting_told_at.max(running_told_at))
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_server_paused_for_longer_than_the_ttl_is_told_at_the_deadline() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let client = connect(&server).await;
    let doomed = Doomed::hold(&client, |lock| lock.with_ttl(600 * MS)).await;
    server.pause();
    let paused_at = Instant::now();
    let remaining: Vec<_> = client.holds().iter().map(|hold| hold.remaining).collect();
    let (first_end, last_end) =
        (*remaining.iter().min().expect("three"), *remaining.iter().max().expect("three"));
    let (first, last) = doomed.told(LossReason::NotRenewed).await;
    // A renewal that was answered just before the pause may have been taken in after it.
    let latest = last_end.max(600 * MS);
    assert!(first >= paused_at + first_end - 5 * MS, "{:?}", first - paused_at);
    assert!(last <= paused_at + within(latest + 50 * MS, &stalls), "{:?}", last - paused_at);
    server.resume();
    nothing_left(&server, &client).await;
    stalls.report("a_server_paused_for_longer_than_the_ttl");
}

#[tokio::test]
async fn a_lock_force_unlocked_by_another_client_is_told_at_the_next_renewal() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let (client, other) = (connect(&server).await, connect(&server).await);
    let doomed = Doomed::hold(&client, |lock| lock.with_ttl(900 * MS)).await;
    for name in Doomed::NAMES {
        assert!(other.mutex(name).force_unlock().await.expect("an answer"));
    }
    let freed_at = Instant::now();
    let taken = other.mutex("waits").try_lock().await.expect("an answer").expect("free");
    let (_, last) = doomed.told(LossReason::Gone).await;
    assert!(last - freed_at < within(350 * MS, &stalls), "{:?}", last - freed_at);
    assert!(taken.is_held() && exists(&server, "waits").await, "the new hold is another's");
    taken.unlock().await.expect("held");
    nothing_left(&server, &client).await;
    nothing_left(&server, &other).await;
}

#[tokio::test]
async fn a_lock_force_unlocked_by_the_same_client_is_told_at_once() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let client = connect(&server).await;
    let doomed = Doomed::hold(&client, |lock| lock).await;
    for name in Doomed::NAMES {
        assert!(client.mutex(name).force_unlock().await.expect("an answer"));
    }
    let freed_at = Instant::now();
    let (_, last) = doomed.told(LossReason::Gone).await;
    assert!(last.saturating_duration_since(freed_at) < within(100 * MS, &stalls));
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_deleted_key_is_told_at_the_next_renewal() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let client = connect(&server).await;
    let doomed = Doomed::hold(&client, |lock| lock.with_ttl(900 * MS)).await;
    server.command(&["DEL", "waits", "runs", "unlocks"]).await;
    let deleted_at = Instant::now();
    let (_, last) = doomed.told(LossReason::Gone).await;
    assert!(last - deleted_at < within(350 * MS, &stalls), "{:?}", last - deleted_at);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn an_unlock_of_a_deleted_key_is_lost_although_nobody_knew_yet() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let guard = client.mutex("n").lock().await.expect("free");
    server.command(&["DEL", "n"]).await;
    assert!(guard.is_held(), "by all that is known here");
    let answer = guard.unlock().await;
    assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Gone, .. })), "{answer:?}");
    nothing_left(&server, &client).await;
}

/// The release could not be sent before: its first answer, on the next connection, says that the lease was gone.
#[tokio::test]
async fn an_unlock_without_a_connection_tells_of_what_happened_meanwhile() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let other = connect(&server).await;
    for taken in [false, true] {
        let lock = client.mutex("n").with_lease(Duration::from_secs(20));
        let guard = lock.lock().await.expect("free");
        proxy.refuse(true);
        proxy.cut();
        let down = async || client.nodes()[0].state == NodeState::Down;
        eventually(LIMIT, "the connection is lost", down).await;
        let theirs = if taken {
            server.command(&["DEL", "n"]).await;
            Some(other.mutex("n").try_lock().await.expect("an answer").expect("free"))
        } else {
            None
        };
        let unlock = tokio::spawn(guard.unlock());
        let owed = async || client.stats().owed_releases == 1;
        eventually(LIMIT, "the release is owed", owed).await;
        proxy.refuse(false);
        let answer = unlock.await.expect("no panic");
        match theirs {
            Some(theirs) => {
                assert!(
                    matches!(answer, Err(Error::Lost { reason: LossReason::Gone, .. })),
                    "{answer:?}"
                );
                assert!(theirs.is_held());
                theirs.unlock().await.expect("held");
            }
            None => answer.expect("it was held until then"),
        }
        nothing_left(&server, &client).await;
    }
}

#[tokio::test]
async fn the_end_of_a_fixed_lease_is_told_when_it_comes() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let client = connect(&server).await;
    let began_at = Instant::now();
    let doomed = Doomed::hold(&client, |lock| lock.with_lease(400 * MS)).await;
    let held_at = Instant::now();
    let (first, last) = doomed.told(LossReason::Ended).await;
    // The lease less what is given up for drift: 1 % and 2 ms.
    assert!(first >= began_at + 394 * MS, "{:?}", first - began_at);
    assert!(last <= held_at + within(444 * MS, &stalls), "{:?}", last - held_at);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn the_end_of_the_longest_hold_is_told_within_a_ttl_of_it() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let client = connect(&server).await;
    let began_at = Instant::now();
    let terms = |lock: Mutex| lock.with_ttl(300 * MS).with_max_hold(500 * MS);
    let doomed = Doomed::hold(&client, terms).await;
    let held_at = Instant::now();
    let (first, last) = doomed.told(LossReason::Ended).await;
    assert!(first >= began_at + 500 * MS, "{:?}", first - began_at);
    assert!(last <= held_at + within(850 * MS, &stalls), "{:?}", last - held_at);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_shutdown_is_told_at_once() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let doomed = Doomed::hold(&client, |lock| lock).await;
    assert!(doomed.all_held());
    let began_at = Instant::now();
    client.shutdown().await;
    let (_, last) = doomed.told(LossReason::Shutdown).await;
    assert!(last - began_at < AT_ONCE, "{:?}", last - began_at);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_hold_that_ended_in_order_is_never_lost() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let guard = client.mutex("n").with_lease(150 * MS).lock().await.expect("free");
    let lost = guard.lost();
    guard.unlock().await.expect("held");
    client.shutdown().await;
    // Past the lease's end: what is tested is that nothing is told.
    assert!(tokio::time::timeout(300 * MS, lost).await.is_err());
}

#[tokio::test]
async fn work_under_a_guard_is_cancelled_by_the_loss_and_not_before() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let guard = client.mutex("n").with_lease(300 * MS).lock().await.expect("free");
    let output = guard.run_until_lost(async { 42 }).await.expect("held");
    assert_eq!(output, 42);
    let answer = guard.run_until_lost(std::future::pending::<()>()).await;
    assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Ended, .. })), "{answer:?}");
    let answer = guard.run_until_lost(async { 42 }).await;
    assert!(matches!(answer, Err(Error::Lost { .. })), "{answer:?}");
    drop(guard);
    nothing_left(&server, &client).await;
}

// Terms.

#[tokio::test]
async fn a_watched_lock_never_falls_below_half_its_ttl() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let client = connect(&server).await;
    let guard = client.mutex("n").with_ttl(300 * MS).lock().await.expect("free");
    let mut raw = server.raw().await;
    let mut lowest = i64::MAX;
    let until = Instant::now() + 1500 * MS;
    while Instant::now() < until {
        let pttl: i64 = redis::cmd("PTTL").arg("n").query_async(&mut raw).await.expect("a number");
        lowest = lowest.min(pttl);
        assert!(guard.is_held());
        tokio::time::sleep(2 * MS).await;
    }
    let stall = i64::try_from(stalls.longest().as_millis()).expect("a short time");
    assert!(lowest >= 150 - stall, "{lowest} ms, with a stall of {stall} ms");
    assert!(lowest < 290, "it is not renewed all the time: {lowest}");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_fixed_lease_is_not_renewed() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let guard = client.mutex("n").with_lease(500 * MS).lock().await.expect("free");
    let mut last = (i64::MAX, Duration::MAX);
    while guard.is_held() {
        let now = (pttl(&server, "n").await, guard.remaining());
        assert!(now.0 <= last.0 && now.1 <= last.1, "{now:?} after {last:?}");
        last = now;
        tokio::time::sleep(5 * MS).await;
    }
    eventually(LIMIT, "the key is gone, too", async || !exists(&server, "n").await).await;
    drop(guard);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn extending_lengthens_a_fixed_lease_and_never_shortens_it() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let guard = client.mutex("n").with_lease(500 * MS).lock().await.expect("free");
    guard.extend(20 * Duration::from_secs(1)).await.expect("held");
    assert!(guard.remaining() > Duration::from_secs(15), "{:?}", guard.remaining());
    assert!(pttl(&server, "n").await > 15_000);
    guard.extend(50 * MS).await.expect("held");
    assert!(guard.remaining() > Duration::from_secs(15), "{:?}", guard.remaining());
    assert!(pttl(&server, "n").await > 15_000);
    server.command(&["DEL", "n"]).await;
    let answer = guard.extend(LIMIT).await;
    assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Gone, .. })), "{answer:?}");
    assert!(!guard.is_held());
    let answer = guard.extend(LIMIT).await;
    assert!(matches!(answer, Err(Error::Lost { .. })), "{answer:?}");
    assert!(!exists(&server, "n").await, "nothing is made again after a loss");
    drop(guard);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn an_extension_that_nobody_confirms_leaves_the_old_end() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let guard = client.mutex("n").with_lease(600 * MS).lock().await.expect("free");
    proxy.drop_replies(true);
    let answer = guard.extend(20 * Duration::from_secs(1)).await;
    assert!(matches!(answer, Err(Error::Unavailable { .. } | Error::Lost { .. })), "{answer:?}");
    assert!(guard.remaining() < 600 * MS);
    let reason =
        tokio::time::timeout(LIMIT, guard.lost()).await.expect("it ends when it would have");
    assert_eq!(reason, LossReason::Ended);
    drop(guard);
    proxy.drop_replies(false);
    proxy.cut();
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_nested_watchdog_outlasts_the_fixed_lease_around_it() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let lock = client.mutex("n").owned_by(&client.owner());
    let outer = lock.with_lease(300 * MS).lock().await.expect("free");
    let inner = lock.with_ttl(300 * MS).lock().await.expect("ours");
    assert_eq!((inner.hold_count(), inner.token()), (2, outer.token()));
    // Several leases: what is tested is that it stays held.
    let lost = tokio::time::timeout(900 * MS, outer.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    drop(inner);
    assert!(outer.is_held());
    outer.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_nested_watchdog_with_a_longest_hold_in_a_fixed_lease_ends() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let me = client.owner();
    let lock = client.mutex("n").owned_by(&me);
    let outer = lock.with_lease(200 * MS).lock().await.expect("free");
    let inner = lock.with_ttl(200 * MS).with_max_hold(300 * MS).lock().await.expect("ours");
    let lost = tokio::time::timeout(Duration::from_secs(3), outer.lost()).await;
    assert!(lost.is_ok(), "neither of the two asked for more than half a second");
    drop((outer, inner));
}

#[tokio::test]
async fn nested_terms_widen_and_never_shorten() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let second = Duration::from_secs(1);
    let lock = client.mutex("n").owned_by(&client.owner());

    // Longer and shorter leases in a fixed one.
    let outer = lock.with_lease(second).lock().await.expect("free");
    let longer = lock.with_lease(20 * second).lock().await.expect("ours");
    assert!(outer.remaining() > 15 * second && pttl(&server, "n").await > 15_000);
    let shorter = lock.with_lease(50 * MS).lock().await.expect("ours");
    assert!(outer.remaining() > 15 * second && pttl(&server, "n").await > 15_000);
    drop((shorter, longer));
    assert!(outer.remaining() > 15 * second && pttl(&server, "n").await > 15_000);
    outer.unlock().await.expect("held");

    // In a watched one.
    let outer = lock.with_ttl(300 * MS).lock().await.expect("free");
    let short = lock.with_lease(20 * MS).lock().await.expect("ours");
    let lost = tokio::time::timeout(600 * MS, outer.lost()).await;
    assert!(lost.is_err(), "a short lease inside does not stop its watchdog: {lost:?}");
    let long = lock.with_ttl(20 * second).lock().await.expect("ours");
    assert!(outer.remaining() > 15 * second && pttl(&server, "n").await > 15_000);
    drop((short, long));
    assert!(outer.remaining() > 15 * second);
    outer.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

// What can be asked.

#[tokio::test]
async fn a_lock_tells_who_holds_it_how_often_since_when_and_for_how_long() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).name("billing-7");
    let (client, other) = (builder.connect().await.expect("connected"), connect(&server).await);
    let lock = other.mutex("n");
    let status = lock.status().await.expect("an answer");
    assert_eq!((&*status.name, status.holder, status.hold_count), ("n", None, 0));
    assert_eq!((status.remaining, status.since, status.last_token), (None, None, None));
    assert_eq!(status.waiting_clients, 0);
    assert_eq!(
        (lock.holder().await.expect("an answer"), lock.is_locked().await.expect("an answer")),
        (None, false)
    );
    assert_eq!(lock.remaining_ttl().await.expect("an answer"), None);

    let guard = client.mutex("n").lock().await.expect("free");
    let inner = guard.reenter().expect("held");
    eventually(LIMIT, "the count reaches the server", async || {
        lock.status().await.is_ok_and(|status| status.hold_count == 2)
    })
    .await;
    let waiter = tokio::spawn(lock.lock());
    eventually(LIMIT, "the waiter is seen", async || {
        lock.status().await.is_ok_and(|status| status.waiting_clients == 1)
    })
    .await;
    let status = lock.status().await.expect("an answer");
    let holder = status.holder.expect("it is held");
    assert_eq!(holder, guard.holder());
    assert_eq!(holder.client(), Some("billing-7"));
    assert_eq!(status.last_token, Some(guard.token()));
    let ago = SystemTime::now().duration_since(status.since.expect("ours")).unwrap_or_default();
    assert!(ago < LIMIT, "{ago:?}");
    let remaining = status.remaining.expect("it has an end");
    assert!(remaining > Duration::from_secs(15) && remaining <= Duration::from_secs(30));
    let remaining = lock.remaining_ttl().await.expect("an answer").expect("it is held");
    assert!(remaining > Duration::from_secs(15) && remaining <= Duration::from_secs(30));
    assert!(lock.is_locked().await.expect("an answer"));
    assert_eq!(lock.holder().await.expect("an answer"), Some(guard.holder()));

    drop(inner);
    guard.unlock().await.expect("held");
    let next = waiter.await.expect("no panic").expect("free");
    assert_eq!(lock.holder().await.expect("an answer"), Some(next.holder()));
    next.unlock().await.expect("held");
    nothing_left(&server, &client).await;
    nothing_left(&server, &other).await;
}

#[tokio::test]
async fn a_client_tells_what_it_holds_oldest_first() {
    let server = Server::start().await;
    let client = connect(&server).await;
    assert!(client.holds().is_empty());
    let me = Owner::named("req-17");
    let first = client.mutex("first").owned_by(&me).lock().await.expect("free");
    let second = client.mutex("second").with_lease(300 * MS).lock().await.expect("free");
    let nested = first.reenter().expect("held");
    let holds = client.holds();
    let names: Vec<&str> = holds.iter().map(|hold| &*hold.name).collect();
    assert_eq!(names, ["first", "second"]);
    let [oldest, newest] = &holds[..] else { panic!("two") };
    assert_eq!((&oldest.owner, oldest.hold_count, oldest.token), (&me, 2, first.token()));
    assert_eq!((&oldest.holder, &newest.holder), (&first.holder(), &second.holder()));
    assert!(oldest.held_for >= newest.held_for && oldest.held_for < LIMIT);
    assert!(oldest.since <= SystemTime::now());
    assert!(oldest.remaining > Duration::from_secs(15) && newest.remaining <= 300 * MS);
    assert_eq!((first.hold_count(), first.owner(), first.name()), (2, &me, "first"));

    eventually(LIMIT, "what is lost is not held", async || client.holds().len() == 1).await;
    drop((first, nested, second));
    assert!(client.holds().is_empty());
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_check_finds_what_can_break_the_promises() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let kinds = async || -> Vec<FindingKind> {
        let findings = client.check().await.expect("an answer");
        findings.into_iter().map(|finding| finding.kind).collect()
    };
    assert_eq!(kinds().await, [FindingKind::NotPersistent]);
    server.command(&["CONFIG", "SET", "appendonly", "yes"]).await;
    assert_eq!(kinds().await, [FindingKind::NotWrittenThrough]);
    server.command(&["CONFIG", "SET", "appendfsync", "always"]).await;
    assert!(kinds().await.is_empty());
    // Without a limit of memory nothing is ever evicted.
    server.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]).await;
    assert!(kinds().await.is_empty());
    server.command(&["CONFIG", "SET", "maxmemory", "1gb"]).await;
    assert_eq!(kinds().await, [FindingKind::Eviction("volatile-ttl".to_owned())]);
    let finding = client.check().await.expect("an answer").remove(0);
    assert!(finding.to_string().contains("volatile-ttl"), "{finding}");
    assert!(finding.node.contains(&server.port().to_string()), "{finding}");
}

#[tokio::test]
async fn statistics_tell_what_a_client_is_busy_with() {
    let server = Server::start().await;
    let (client, other) = (connect(&server).await, connect(&server).await);
    client_is_idle(&client).await;
    let idle = client.stats();
    let held = other.mutex("theirs").lock().await.expect("free");
    let guard = client.mutex("ours").lock().await.expect("free");
    let waits = [
        tokio::spawn(client.mutex("theirs").lock()),
        tokio::spawn(client.mutex("theirs").lock()),
        tokio::spawn(client.mutex("ours").lock()),
    ];
    eventually(LIMIT, "all wait", async || client.stats().waiters == 3).await;
    let stats = client.stats();
    assert_eq!((stats.gates, stats.subscriptions, stats.owed_releases), (2, 1, 0), "{stats:?}");
    assert_eq!(stats.tasks, idle.tasks + 2, "one for each lock that is waited for: {stats:?}");
    for wait in &waits {
        wait.abort();
    }
    guard.unlock().await.expect("held");
    held.unlock().await.expect("held");
    nothing_left(&server, &client).await;
    assert_eq!(client.stats().tasks, idle.tasks);
    nothing_left(&server, &other).await;
}

// Operators' tools.

#[tokio::test]
async fn a_forced_unlock_of_a_certain_holder_frees_no_other() {
    let server = Server::start().await;
    let (client, other) = (connect(&server).await, connect(&server).await);
    let lock = other.mutex("n");
    let guard = client.mutex("n").lock().await.expect("free");
    let before = guard.holder();
    guard.unlock().await.expect("held");
    assert!(!lock.force_unlock_if(&before).await.expect("an answer"), "it is free");
    assert!(!lock.force_unlock().await.expect("an answer"), "it is free");

    let guard = client.mutex("n").lock().await.expect("free");
    for tool in [&lock, &client.mutex("n")] {
        assert!(!tool.force_unlock_if(&before).await.expect("an answer"), "another holds it");
        assert!(guard.is_held() && exists(&server, "n").await);
    }
    let error = lock.lock_with_timeout(20 * MS).await.expect_err("it is held");
    let Error::Timeout { holder, .. } = error else { panic!("{error:?}") };
    assert!(lock.force_unlock_if(&holder).await.expect("an answer"));
    assert!(!exists(&server, "n").await);
    let answer = guard.unlock().await;
    assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Gone, .. })), "{answer:?}");
    nothing_left(&server, &client).await;
    nothing_left(&server, &other).await;
}

#[tokio::test]
async fn a_forced_unlock_wakes_who_waits() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let (client, other) = (connect(&server).await, connect(&server).await);
    // The waiter in the holder's own client, and one in another, each on a lock of its own.
    for waiting in [&client, &other] {
        let guard = client.mutex("n").lock().await.expect("free");
        let waiter = tokio::spawn(waiting.mutex("n").lock());
        eventually(LIMIT, "it waits", async || waiting.stats().waiters == 1).await;
        if std::ptr::eq(waiting, &other) {
            eventually(LIMIT, "it listens", async || {
                client.mutex("n").status().await.is_ok_and(|status| status.waiting_clients == 1)
            })
            .await;
        }
        assert!(client.mutex("n").force_unlock().await.expect("an answer"));
        let freed_at = Instant::now();
        let next = tokio::time::timeout(LIMIT, waiter).await.expect("no hang").expect("no panic");
        let took = freed_at.elapsed();
        assert!(took < within(100 * MS, &stalls), "{took:?}");
        assert!(!guard.is_held());
        drop(guard);
        next.expect("free").unlock().await.expect("held");
    }
    nothing_left(&server, &client).await;
    nothing_left(&server, &other).await;
}

// The log.

/// All that is logged by this thread, which runs the client's tasks, too.
#[derive(Clone, Default)]
struct Log(Arc<StdMutex<Vec<u8>>>);

impl Log {
    fn listen() -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(log.clone())
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(FmtSpan::CLOSE)
            .with_ansi(false)
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn text(&self) -> String {
        let bytes = self.0.lock().expect("no panic").clone();
        String::from_utf8(bytes).expect("text")
    }

    /// The lines that end the span of an acquisition of this lock.
    fn spans(&self, lock: &str) -> Vec<String> {
        let text = self.text();
        let lock = format!("lock=\"{lock}\"");
        text.lines()
            .filter(|line| line.contains(" close ") && line.contains(&lock))
            .map(ToOwned::to_owned)
            .collect()
    }

    fn has(&self, parts: &[&str]) -> bool {
        self.text().lines().any(|line| parts.iter().all(|part| line.contains(part)))
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn each_acquisition_has_a_span_that_tells_how_it_went() {
    let (log, _listening) = Log::listen();
    let server = Server::start().await;
    let (client, other) = (connect(&server).await, connect(&server).await);
    let me = Owner::named("req-17");
    let lock = client.mutex("n").owned_by(&me);

    let guard = lock.lock().await.expect("free");
    let [free] = &log.spans("n")[..] else { panic!("one span: {:?}", log.spans("n")) };
    for part in ["owner=req-17#", "outcome=\"held\"", "contended=false", "wait_us=", "telling.rs:"]
    {
        assert!(free.contains(part), "no {part} in {free}");
    }
    assert!(free.contains(&format!("token={}", guard.token())), "{free}");
    let nested = lock.lock().await.expect("ours");
    assert_eq!(log.spans("n").len(), 2);
    assert!(log.spans("n")[1].contains("outcome=\"held\""));
    drop(nested);

    let elsewhere = other.mutex("n");
    elsewhere.lock_with_timeout(20 * MS).await.expect_err("it is held");
    let late = log.spans("n").pop().expect("a span");
    assert!(late.contains("outcome=timed out") && late.contains("held by"), "{late}");
    assert!(late.contains("contended=true"), "{late}");

    let waiter = tokio::spawn(elsewhere.lock());
    eventually(LIMIT, "it waits", async || other.stats().waiters == 1).await;
    guard.unlock().await.expect("held");
    let guard = waiter.await.expect("no panic").expect("free");
    let waited = log.spans("n").pop().expect("a span");
    assert!(waited.contains("contended=true") && waited.contains("outcome=\"held\""), "{waited}");
    assert_eq!(log.spans("n").len(), 4);
    guard.unlock().await.expect("held");
}

#[tokio::test]
async fn losses_failed_renewals_and_new_connections_are_logged() {
    let (log, _listening) = Log::listen();
    let server = Server::start().await;
    let client = connect(&server).await;
    eventually(LIMIT, "the findings are logged", async || log.has(&["INFO", "appendonly is off"]))
        .await;
    let guard = client.mutex("n").with_ttl(300 * MS).lock().await.expect("free");
    server.pause();
    tokio::time::timeout(LIMIT, guard.lost()).await.expect("it is told");
    assert!(log.has(&["WARN", "renewal failed", "lock=\"n\""]), "{}", log.text());
    assert!(
        log.has(&["WARN", "lock lost", "lock=\"n\"", "renewal was confirmed"]),
        "{}",
        log.text()
    );
    drop(guard);
    server.resume();
    let made = client.stats().connections_made;
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    eventually(LIMIT, "it connects again", async || client.stats().connections_made > made).await;
    eventually(LIMIT, "that is logged", async || {
        log.has(&["WARN", "connection lost"]) && log.has(&["INFO", "connected again"])
    })
    .await;
    client.mutex("n").force_unlock().await.expect("an answer");
    assert!(log.has(&["WARN", "force-unlocked", "lock=\"n\""]), "{}", log.text());
}

#[tokio::test]
async fn a_task_that_waits_for_itself_is_warned_of() {
    let (log, _listening) = Log::listen();
    let server = Server::start().await;
    let client = connect(&server).await;
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    // One attempt waits for nobody.
    assert!(lock.try_lock().await.expect("an answer").is_none());
    // Another task may wait.
    let waiter = tokio::spawn(lock.lock());
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
    waiter.abort();
    assert!(!log.has(&["owned_by"]), "{}", log.text());
    lock.lock_with_timeout(20 * MS).await.expect_err("it holds it itself");
    assert!(log.has(&["WARN", "lock=\"n\"", "owned_by", "scope"]), "{}", log.text());
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_task_that_waits_for_itself_fails_where_that_is_wanted() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).self_wait(SelfWait::Fail);
    let client = builder.connect().await.expect("connected");
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    for answer in [lock.lock().await, lock.lock_with_timeout(LIMIT).await] {
        let Err(Error::SelfWait { lock, .. }) = &answer else { panic!("{answer:?}") };
        assert_eq!(&**lock, "n");
    }
    assert!(lock.try_lock().await.expect("an answer").is_none());
    let nested = lock.owned_by(guard.owner()).lock().await.expect("that is how to nest");
    drop(nested);
    let elsewhere = tokio::spawn(lock.lock_with_timeout(20 * MS)).await.expect("no panic");
    assert!(matches!(elsewhere, Err(Error::Timeout { .. })), "{elsewhere:?}");
    guard.unlock().await.expect("held");

    let answer = tokio::spawn({
        let lock = lock.clone();
        async move {
            let _guard = lock.lock().await?;
            lock.lock().await
        }
    })
    .await
    .expect("no panic");
    assert!(matches!(answer, Err(Error::SelfWait { .. })), "{answer:?}");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn nothing_secret_is_ever_shown() {
    let (log, _listening) = Log::listen();
    let server = Server::with(&["--requirepass", "canary-password"]).await;
    let proxy = Proxy::start(server.port()).await;
    let url = proxy.url().replace("redis://", "redis://:canary-password@");
    let builder = Client::builder().nodes([url.clone()]).name("billing-7");
    let builder = builder.response_timeout(200 * MS).unavailable_after(300 * MS);
    let mut shown = format!("{builder:?}");
    let mut show = |text: String| shown.push_str(&text);
    let client = builder.connect().await.expect("the password is right");
    let lock = client.mutex("n").with_ttl(500 * MS);
    let guard = lock.lock().await.expect("free");
    let uuid = guard.holder().as_str().rsplit_once(':').expect("client:uuid").1.to_owned();
    let secret_end = &uuid[9..];

    let nested = guard.reenter().expect("held");
    show(format!(
        "{client:?} {lock:?} {guard:?} {nested:?} {:?} {:?}",
        guard.lost(),
        guard.owner()
    ));
    show(format!("{:?} {}", guard.holder(), guard.holder()));
    show(format!("{:?} {:?}", client.holds(), client.stats()));
    show(format!("{:?} {:?}", lock.status().await, lock.holder().await));
    show(format!("{:?}", client.check().await));
    show(told(&lock.lock_with_timeout(20 * MS).await.expect_err("it is held")));
    show(told(&client.mutex("").lock().await.expect_err("no name")));
    server.command(&["SET", "other", "1"]).await;
    show(told(&client.mutex("other").lock().await.expect_err("no lock")));
    server.command(&["DEL", "other"]).await;

    // A failed renewal, a loss, a broken connection, a refused and a forced unlock.
    proxy.drop_replies(true);
    tokio::time::timeout(LIMIT, guard.lost()).await.expect("it is told");
    show(told(&client.mutex("m").lock().await.expect_err("no answer")));
    show(told(&guard.unlock().await.expect_err("lost")));
    drop(nested);
    proxy.drop_replies(false);
    proxy.cut();
    let guard = lock.lock_with_timeout(LIMIT).await.expect("free");
    lock.force_unlock_if(&guard.holder()).await.expect("an answer");
    let second = guard.holder().as_str().rsplit_once(':').expect("client:uuid").1.to_owned();
    show(format!("{guard:?}"));
    drop(guard);
    client.shutdown().await;
    show(format!("{client:?}"));

    let bad = url.replace("canary-password", "canary-wrong");
    show(told(&Client::connect(&bad).await.expect_err("not the password")));
    proxy.refuse(true);
    show(told(&Client::connect(&url).await.expect_err("nobody is there")));

    let log = log.text();
    assert!(
        log.contains("lock lost") && log.contains(&uuid[..8]),
        "the log tells what it may: {log}"
    );
    for (place, text) in [("the log", &log), ("what is shown", &shown)] {
        for secret in ["canary", &uuid, secret_end, &second[9..]] {
            let at = text.find(secret);
            let around = at.map(|at| &text[at.saturating_sub(200)..(at + 40).min(text.len())]);
            assert!(at.is_none(), "{place} tells {secret}: {around:?}");
        }
    }
}
