//! One test for each invariant of the protocol. Each fails when the line that keeps its invariant is removed.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::{Client, Error, Owner};
use parking_lot::Mutex;
use redis::Value;

use crate::{
    checks::{LIMIT, setup_with_proxy},
    support::{Face, Held, Proxy, Server, Spy, eventually, nothing_is_left, waiting},
};

async fn connect(url: &str, ttl_ms: u64) -> Client {
    let ttl = Duration::from_millis(ttl_ms);
    Client::builder().nodes([url]).ttl(ttl).connect().await.expect("connected")
}

/// 1. Short leases, a server that stops for longer than they last, connections that are cut: from the grant
/// until `is_held()` is false or the unlock is called, nobody else's hold begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_holds_of_one_name_are_never_both_held() {
    never_two_holds_at_once::<Client>(12).await;
}

pub(crate) async fn never_two_holds_at_once<F: Face>(rounds: usize) {
    let server = Server::start().await;
    let holds = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    let mut proxies = Vec::new();
    for contender in 0..4 {
        let proxy = Proxy::start(server.port()).await;
        let client = F::open(&proxy.url(), 150 * MS).await;
        proxies.push(proxy);
        for task in 0..2 {
            let (client, holds) = (client.clone(), holds.clone());
            tasks.push(tokio::spawn(async move {
                let ends_at = Instant::now() + rounds as u32 * 500 * MS;
                while Instant::now() < ends_at {
                    let Ok(guard) = client.lock_within("n", None, 500 * MS).await else {
                        continue;
                    };
                    let granted_at = Instant::now();
                    let mut held_until = granted_at;
                    let work = Duration::from_millis(2 + 40 * contender * task);
                    while granted_at.elapsed() < work {
                        let asked_at = Instant::now();
                        if !guard.is_held() {
                            break;
                        }
                        held_until = asked_at;
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    holds.lock().push((granted_at, held_until, guard.token()));
                    let _ = guard.unlock().await;
                }
            }));
        }
    }
    for round in 0..rounds {
        tokio::time::sleep(Duration::from_millis(200)).await;
        match round % 3 {
            0 => {
                server.pause();
                tokio::time::sleep(Duration::from_millis(250)).await;
                server.resume();
            }
            1 => proxies[round % 4].cut(),
            _ => {
                proxies[round % 4].drop_replies(true);
                tokio::time::sleep(Duration::from_millis(250)).await;
                proxies[round % 4].drop_replies(false);
                proxies[round % 4].cut();
            }
        }
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    let mut holds = holds.lock().clone();
    holds.sort();
    for pair in holds.windows(2) {
        let ((_, until, token), (from, _, next_token)) = (pair[0], pair[1]);
        assert!(until <= from, "two holds at once, for {:?}", until - from);
        assert!(token < next_token, "token {next_token} after {token}");
    }
    println!("{} holds", holds.len());
    assert!(holds.len() > 4 * rounds, "only {} holds", holds.len());
}

/// 2. With replies 200 ms late the deadline is 200 ms nearer, at the grant and at a renewal; and a reply that
/// is later than others never moves it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_counts_from_before_the_request() {
    const LATE: Duration = Duration::from_millis(200);
    let (server, proxy) = setup_with_proxy().await;
    let ttl_ms = u64::from(server.slowness().await) * 1500;
    let drift = Duration::from_millis(ttl_ms / 100 + 2);
    let most = Duration::from_millis(ttl_ms) - LATE - drift;
    let client = connect(&proxy.url(), ttl_ms).await;
    proxy.delay_replies(LATE);
    let guard = client.mutex("n").lock().await.expect("free");
    assert!(guard.remaining() <= most, "{:?} left of {most:?}", guard.remaining());

    // Through two renewals: what is left rises at each, and never above what a late reply allows.
    let (mut before, mut renewals) = (guard.remaining(), 0);
    while renewals < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let left = guard.remaining();
        assert!(left > Duration::ZERO, "it is renewed in time");
        assert!(left <= most, "{left:?} left, more than {most:?}");
        if left > before {
            renewals += 1;
        }
        before = left;
    }
    proxy.delay_replies(Duration::ZERO);
    guard.unlock().await.expect("held");
}

/// 3. What is renewed is renewed before the release, also with a renewal on its way at that moment; and a
/// lost hold stays lost although its key would still be there to renew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_renewed_after_a_release() {
    let server = Server::start().await;
    let spy = Spy::on(&server).await;
    let proxy = Proxy::start(server.port()).await;
    let slowness = server.slowness().await;
    let client = connect(&proxy.url(), u64::from(slowness) * 300).await;
    let mut tasks = Vec::new();
    for n in 0..40 {
        let lock = client.mutex(format!("n{n}")).owned_by(&Owner::new());
        tasks.push(tokio::spawn(async move {
            let guard = lock.lock().await.expect("free");
            // On a machine that is too busy the lease may end meanwhile, and an answer may be late. That is no matter here.
            let nested = lock.lock().await;
            // About the time of the first renewal.
            tokio::time::sleep(slowness * (95 + n % 15) * MS).await;
            drop(nested);
            let _ = guard.unlock().await;
        }));
    }
    let names = tasks.len();
    for task in tasks {
        task.await.expect("no panic");
    }
    // Beyond the end of any lease, and of any renewal that might still come.
    tokio::time::sleep(slowness * 400 * MS).await;
    let runs = spy.runs();
    assert!(spy.count("lock_renew") > 20, "{} renewals", spy.count("lock_renew"));
    let (mut acquired, mut released) = (HashSet::new(), HashSet::new());
    for run in &runs {
        match run.script {
            "lock_acquire" => drop(acquired.insert(run.id().to_owned())),
            "lock_release" => drop(released.insert(run.id().to_owned())),
            "lock_renew" => assert!(!released.contains(run.id()), "renewed after its release"),
            _ => {}
        }
    }
    assert!(acquired.len() >= names, "{} leases", acquired.len());
    assert_eq!(acquired, released);

    let guard = client.mutex("lost").lock().await.expect("free");
    proxy.hold_replies();
    tokio::time::sleep(slowness * 400 * MS).await;
    assert!(!guard.is_held());
    proxy.release_replies();
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!guard.is_held(), "a lost hold came back");
    }
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
}

/// 4. An acquire whose answer never comes is never renewed, however long its future waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_renewed_before_it_is_confirmed() {
    let server = Server::start().await;
    let spy = Spy::on(&server).await;
    let proxy = Proxy::start(server.port()).await;
    let client = connect(&proxy.url(), 200).await;
    proxy.drop_replies(true);
    let attempt = client.mutex("n").lock_with_timeout(Duration::from_millis(600)).await;
    assert!(matches!(attempt, Err(Error::Unavailable { .. })), "{attempt:?}");
    proxy.drop_replies(false);
    proxy.cut();
    nothing_is_left(&server, &client, "n").await;
    assert!(spy.count("lock_acquire") >= 1, "it was sent");
    assert_eq!(spy.count("lock_renew"), 0);
}

/// 5. Replies lost, connections cut, futures dropped, with a TTL far beyond the test: at the end no key is
/// left, and every acquire that the server granted has its release behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acquire_sent_ends_in_a_hold_or_a_release() {
    let server = Server::start().await;
    let spy = Spy::on(&server).await;
    let proxy = Proxy::start(server.port()).await;
    let client = Client::builder()
        .nodes([proxy.url()])
        .response_timeout(Duration::from_millis(50))
        .connect()
        .await
        .expect("connected");
    for round in 0_u64..30 {
        // What is asked of no connection is not sent.
        eventually(LIMIT, "it is connected", async || client.is_ready()).await;
        let attempts: Vec<_> = (0..4)
            .map(|n| {
                let lock = client.mutex(format!("n{n}"));
                let patience = Duration::from_millis(1 + (round * 7 + n * 13) % 80);
                tokio::spawn(async move {
                    if let Ok(Ok(guard)) = tokio::time::timeout(patience, lock.lock()).await {
                        drop(guard);
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(1)).await;
        match round % 5 {
            0 => proxy.drop_replies(true),
            1 => proxy.cut(),
            2 => proxy.delay_replies(Duration::from_millis(30)),
            3 => drop(server.command(&["SCRIPT", "FLUSH"]).await),
            _ => {
                server.pause();
                tokio::time::sleep(Duration::from_millis(70)).await;
                server.resume();
            }
        }
        for attempt in attempts {
            attempt.await.expect("no panic");
        }
        proxy.drop_replies(false);
        proxy.delay_replies(Duration::ZERO);
    }
    for n in 0..4 {
        nothing_is_left(&server, &client, &format!("n{n}")).await;
    }
    let runs = spy.runs();
    let last_of = |script: &str| -> HashMap<String, usize> {
        let of_it = runs.iter().enumerate().filter(|(_, run)| run.script == script);
        of_it.map(|(at, run)| (run.id().to_owned(), at)).collect()
    };
    let (acquired, released) = (last_of("lock_acquire"), last_of("lock_release"));
    let followed = acquired.iter().filter(|(id, at)| released.get(*id) > Some(at)).count();
    println!("{} acquires, {followed} with a release behind them", acquired.len());
    assert!(acquired.len() > 50 && followed > 30);
}

/// 6. Over hand-offs, releases, clients, a lost counter and a server that comes back empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_strictly_increase() {
    tokens_increase::<Client>().await;
}

pub(crate) async fn tokens_increase<F: Face>() {
    let server = Server::start().await;
    let clients = [F::open(&server.url(), LONG).await, F::open(&server.url(), LONG).await];
    let tokens = Arc::new(Mutex::new(Vec::new()));
    for disaster in 0..3 {
        let mut tasks = Vec::new();
        for client in &clients {
            for _ in 0..8 {
                let (client, tokens, me) = (client.clone(), tokens.clone(), Owner::new());
                tasks.push(tokio::spawn(async move {
                    for _ in 0..200 {
                        let guard = client.lock("n", Some(&me)).await.expect("held");
                        tokens.lock().push(guard.token());
                        let nested = client.lock("n", Some(&me)).await.expect("nested");
                        assert_eq!(nested.token(), guard.token(), "re-entry keeps the token");
                    }
                }));
            }
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        for client in &clients {
            nothing_is_left(&server, client, "n").await;
        }
        match disaster {
            0 => drop(server.command(&["DEL", "leasehold_token:{n}"]).await),
            1 => {
                server.kill();
                server.restart().await;
            }
            _ => {}
        }
    }
    let tokens = tokens.lock().clone();
    assert_eq!(tokens.len(), 3 * 16 * 200);
    for pair in tokens.windows(2) {
        assert!(pair[0] < pair[1], "{} after {}", pair[1], pair[0]);
    }
    assert!(tokens.last() < Some(&(1 << 53)));
}

/// 7. After contention between clients and inside one, with nested guards dropped in any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stays_after_the_last_guard() {
    nothing_stays::<Client>().await;
}

pub(crate) async fn nothing_stays<F: Face>() {
    let server = Server::start().await;
    let clients = [F::open(&server.url(), 400 * MS).await, F::open(&server.url(), 400 * MS).await];
    let mut tasks = Vec::new();
    for client in &clients {
        for _ in 0..4 {
            let (client, me) = (client.clone(), Owner::new());
            tasks.push(tokio::spawn(async move {
                for _ in 0..20 {
                    let outer = client.lock("n", Some(&me)).await.expect("held");
                    let inner = client.lock("n", Some(&me)).await.expect("nested");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    drop(outer);
                    drop(inner);
                }
            }));
        }
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    for client in &clients {
        nothing_is_left(&server, client, "n").await;
    }
    let spy = Spy::on(&server).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(spy.runs().is_empty(), "after the end: {:?}", spy.runs());
}

/// 8. By its message; by the reconnection after a broken subscription; by the holder's TTL; and, where
/// nothing tells of it, by the safety poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_a_waiter() {
    let server = Server::start().await;
    let (holder, waiter) =
        (connect(&server.url(), 30_000).await, connect(&server.url(), 30_000).await);
    let wait = || {
        let lock = waiter.mutex("n");
        tokio::spawn(async move {
            let guard = lock.lock().await.expect("it is freed");
            let woken_at = Instant::now();
            guard.unlock().await.expect("held");
            woken_at
        })
    };
    let waits = async |server: &Server| {
        let what = "it waits in the queue";
        eventually(Duration::from_secs(5), what, async || waiting(server, "n").await == 1).await;
        // It asks once more after it has subscribed.
        tokio::time::sleep(Duration::from_millis(20)).await;
    };

    let guard = holder.mutex("n").lock().await.expect("free");
    let waiting = wait();
    waits(&server).await;
    let freed_at = Instant::now();
    guard.unlock().await.expect("held");
    let took = waiting.await.expect("no panic").since(freed_at);
    assert!(took < server.widened(Duration::from_millis(50)), "by message after {took:?}");

    let guard = holder.mutex("n").lock().await.expect("free");
    let waiting = wait();
    waits(&server).await;
    let freed_at = Instant::now();
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    guard.unlock().await.expect("held");
    let took = waiting.await.expect("no panic").since(freed_at);
    assert!(took < server.widened(Duration::from_millis(100)), "by reconnection after {took:?}");

    server.command(&["HSET", "n", "stranger:1", "1"]).await;
    server.command(&["PEXPIRE", "n", "300"]).await;
    let from = Instant::now();
    let took = wait().await.expect("no panic").since(from);
    let limit = server.widened(Duration::from_millis(350));
    assert!(took > Duration::from_millis(250) && took < limit, "by the TTL after {took:?}");

    server.command(&["HSET", "n", "stranger:1", "1"]).await;
    let waiting = wait();
    waits(&server).await;
    let freed_at = Instant::now();
    server.command(&["DEL", "n"]).await;
    let took = waiting.await.expect("no panic").since(freed_at);
    assert!(took < server.widened(Duration::from_millis(4100)), "by the poll after {took:?}");
}

trait Since {
    fn since(self, earlier: Instant) -> Duration;
}

impl Since for Instant {
    fn since(self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

/// 9. Neither early nor late: behind a holder elsewhere, behind one in this process, with a server that is
/// stopped before or during the wait, and with one that is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_when_it_should() {
    waits_end_in_time::<Client>().await;
}

pub(crate) async fn waits_end_in_time<F: Face>() {
    let server = Server::start().await;
    let (holder, waiter) = (F::open(&server.url(), LONG).await, F::open(&server.url(), LONG).await);
    let elsewhere = holder.lock("elsewhere", None).await.expect("free");
    let here = waiter.lock("here", None).await.expect("free");
    let wait = async |name: &str, ms: u64| {
        let timeout = Duration::from_millis(ms);
        let (refused, took) = waiter.timed_lock_within(name, timeout).await;
        let limit = server.widened_by(4 * F::HOPS, timeout + 50 * MS);
        assert!(
            took >= timeout && took <= limit,
            "{name}: {took:?} instead of {timeout:?}, stalls {:?}",
            server.longest_stall()
        );
        refused.err().expect("it is held")
    };
    for ms in [1, 20, 300] {
        // A busy machine may keep the answer for longer than that.
        let error = wait("elsewhere", ms).await;
        let slow = server.widened_by(4, MS) >= Duration::from_millis(ms);
        let unheard = slow && matches!(error, Error::Unavailable { .. });
        assert!(unheard || matches!(error, Error::Timeout { .. }), "{error}");
        assert!(matches!(wait("here", ms).await, Error::Timeout { .. }));
    }
    server.pause();
    for ms in [1, 20, 300, 1500] {
        assert!(matches!(wait("elsewhere", ms).await, Error::Unavailable { .. }));
        assert!(matches!(wait("here", ms).await, Error::Timeout { .. }));
    }
    server.resume();
    let after = async || {
        let refused = waiter.lock_within("elsewhere", None, Duration::ZERO).await;
        matches!(refused, Err(Error::Timeout { .. }))
    };
    eventually(Duration::from_secs(5), "the server answers again", after).await;
    let stopping = async {
        tokio::time::sleep(server.widened_by(4, 100 * MS).min(Duration::from_secs(1))).await;
        server.kill();
    };
    // The last answer was "held", and no later ask is overdue: that is what it knows.
    let (error, ()) = tokio::join!(wait("elsewhere", 1500), stopping);
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(matches!(wait("elsewhere", 300).await, Error::Unavailable { .. }));
    drop((elsewhere, here));
}

/// Re-entry, for which there is no number: the count is on the server, and the hold ends with its last guard,
/// in whatever order they go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hold_count_is_on_the_server() {
    counts_are_written::<Client>().await;
}

pub(crate) async fn counts_are_written<F: Face>() {
    let server = Server::start().await;
    let client = F::open(&server.url(), LONG).await;
    let me = Owner::new();
    let mut guards = Vec::new();
    for _ in 0..5 {
        guards.push(client.lock("n", Some(&me)).await.expect("re-entered"));
    }
    let written = async |count: &str| {
        let values = server.command(&["HVALS", "n"]).await;
        values == Value::Array(vec![Value::BulkString(count.into())])
    };
    eventually(Duration::from_secs(5), "count 5", async || written("5").await).await;
    for left in [4, 3, 2, 1] {
        drop(guards.remove(left / 2));
        assert_eq!(guards[0].hold_count(), left as u32);
        let count = left.to_string();
        eventually(Duration::from_secs(5), "the count goes down", async || written(&count).await)
            .await;
    }
    assert!(guards[0].is_held());
    drop(guards);
    nothing_is_left(&server, &client, "n").await;
}

const MS: Duration = Duration::from_millis(1);
/// Far beyond the test.
const LONG: Duration = Duration::from_secs(30);
