//! Races between an answer, a loss, a shutdown, a broken connection and those who wait: one test for each that
//! was once lost.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Waker},
    time::{Duration, Instant},
};

use leasehold::{Client, ClientBuilder, Error, Guard, LossReason};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

use crate::{
    checks::{LIMIT, client_is_idle, connect, exists, lock_keys, no_connection_left, nothing_left},
    support::{LateNetwork, Proxy, Server, Spy, Stalls, eventually, subscribers, within},
};

const MS: Duration = Duration::from_millis(1);
const CHANNEL: &str = "redisson_lock__channel:{n}";

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

fn builder(url: String) -> ClientBuilder {
    Client::builder().nodes([url])
}

async fn connect_through(proxy: &Proxy) -> Client {
    let client = Client::connect(&proxy.url()).await.expect("the proxy passes on");
    know_scripts(&client).await;
    client
}

/// Has the server learn the scripts, so that what is sent later runs at its first sending.
async fn know_scripts(client: &Client) {
    let guard = client.mutex("before").lock().await.expect("free");
    guard.extend(LIMIT).await.expect("held");
    guard.unlock().await.expect("held");
    client_is_idle(client).await;
}

/// A server, and a client of it whose tasks have a runtime of their own.
fn on_its_own_runtime(tests: &Runtime, tasks: &Runtime) -> (Server, Client) {
    tests.block_on(async {
        let server = Server::start().await;
        let builder = builder(server.url()).runtime(tasks.handle().clone());
        let client = builder.connect().await.expect("connected");
        (server, client)
    })
}

/// Polls a future once, and leaves it at that.
fn poll_once(future: std::pin::Pin<&mut impl Future>) {
    let mut nobody = Context::from_waker(Waker::noop());
    assert!(future.poll(&mut nobody).is_pending(), "it waits for an answer");
}

async fn subscribed(server: &Server) {
    let what = "the waiter listens";
    eventually(LIMIT, what, async || subscribers(server, CHANNEL).await == 1).await;
}

// Those who wait.

/// The driver that found no server once went on in circles, without ever asking again.
#[test]
fn a_waiter_of_a_server_that_is_away_rests_and_asks_again() {
    let (tests, tasks) = (runtime(), runtime());
    let (server, client) = on_its_own_runtime(&tests, &tasks);
    server.kill();
    // An ask is given up after a third of that.
    let waiting = tests.spawn(client.mutex("n").with_ttl(150 * MS).lock());
    tests.block_on(async {
        let what = "the first ask has failed";
        eventually(LIMIT, what, async || client.stats().waiters == 1).await;
        let busy = || tasks.metrics().worker_total_busy_duration(0);
        let (began_at, busy_before) = (Instant::now(), busy());
        // Through some asks of the one who asks for it, and the pauses between them.
        tokio::time::sleep(800 * MS).await;
        let (took, busy) = (began_at.elapsed(), busy() - busy_before);
        assert!(busy < took / 2, "busy for {busy:?} of {took:?}, without anything to do");

        server.restart().await;
        let guard = tokio::time::timeout(LIMIT, waiting).await.expect("it asks again");
        guard.expect("no panic").expect("free").unlock().await.expect("held");
        nothing_left(&server, &client).await;
    });
}

/// The waiter comes while the first one's ask is on its way: then nobody watches the lease that it wins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_came_during_an_ask_gets_in_when_that_hold_is_lost() {
    let server = Server::start().await;
    let stalls = Stalls::watch();
    let proxy = Proxy::start(server.port()).await;
    let client = connect_through(&proxy).await;
    proxy.hold_replies();
    let first = tokio::spawn(client.mutex("n").with_lease(500 * MS).lock());
    eventually(LIMIT, "it is granted", async || exists(&server, "n").await).await;
    let second = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "another waits", async || client.stats().waiters == 1).await;
    proxy.release_replies();

    let guard = first.await.expect("no panic").expect("free");
    let lost_at = Instant::now() + guard.remaining();
    let second = tokio::time::timeout(LIMIT, second).await.expect("it gets in");
    let second = second.expect("no panic").expect("the other is lost");
    let took = lost_at.elapsed();
    assert!(took < within(100 * MS, &stalls), "{took:?} after the loss");
    assert!(!guard.is_held() && second.is_held());
    drop((guard, second));
    nothing_left(&server, &client).await;
}

/// A server out of memory refuses every ask at once: after the silence of others that heard a release, too,
/// the next ask comes after a pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asks_that_fail_after_a_silence_are_backed_off() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let lock = client.mutex("n");
    let other = redis::Client::open(server.url()).expect("a valid URL");
    let mut deaf = other.get_async_pubsub().await.expect("connected");
    deaf.subscribe(CHANNEL).await.expect("subscribed");

    let guard = lock.lock().await.expect("free");
    // Past the hand-off window, so that the release goes out, and is heard by a client that never asks.
    tokio::time::sleep(30 * MS).await;
    let waiting = tokio::spawn(lock.lock());
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    guard.unlock().await.expect("held");
    let asks = async || rejected(&server).await;
    eventually(LIMIT, "it asks, and is refused", async || asks().await >= 2).await;
    let before = asks().await;
    tokio::time::sleep(400 * MS).await;
    let asked = asks().await - before;
    assert!(asked < 20, "{asked} asks in 400 ms");
    assert!(!waiting.is_finished());

    server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    let guard = tokio::time::timeout(LIMIT, waiting).await.expect("it asks again");
    guard.expect("no panic").expect("free").unlock().await.expect("held");
    drop(deaf);
    nothing_left(&server, &client).await;
}

/// How many commands the server has refused before they ran.
async fn rejected(server: &Server) -> u64 {
    let info = server.command(&["INFO", "errorstats"]).await;
    let info: String = redis::from_redis_value(info).expect("a text");
    let count = info.split("errorstat_OOM:count=").nth(1);
    count.map_or(0, |count| count.trim_end_matches(char::is_control).parse().expect("a number"))
}

/// The lock is given back after the waiter was refused and before it listens: it asks once more when it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_before_the_subscription_is_not_missed() {
    let server = Server::start().await;
    let stalls = Stalls::watch();
    let proxy = Proxy::start(server.port()).await;
    let (client, other) = (connect_through(&proxy).await, connect(&server).await);
    let theirs = other.mutex("n").lock().await.expect("free");
    // Its connection for subscriptions is yet to be made.
    proxy.refuse(true);
    let waiting = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "it was refused", async || client.stats().waiters == 1).await;
    let refused_at = Instant::now();
    assert_eq!(subscribers(&server, CHANNEL).await, 0);
    theirs.unlock().await.expect("held");
    proxy.refuse(false);
    let guard = tokio::time::timeout(LIMIT, waiting).await.expect("it asks again");
    let took = refused_at.elapsed();
    // It would ask by itself after two seconds at the earliest.
    assert!(took < within(1500 * MS, &stalls), "{took:?}");
    guard.expect("no panic").expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// A client that stands behind many others does not ask on the message. If none of them does, it asks soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_behind_clients_that_never_ask_asks_after_a_silence() {
    let server = Server::start().await;
    let stalls = Stalls::watch();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let theirs = other.mutex("n").lock().await.expect("free");
    let mut deaf = Vec::new();
    for _ in 0..8 {
        let listener = redis::Client::open(server.url()).expect("a valid URL");
        let mut listener = listener.get_async_pubsub().await.expect("connected");
        listener.subscribe(CHANNEL).await.expect("subscribed");
        deaf.push(listener);
    }
    let spy = Spy::on(&server).await;
    let waiting = tokio::spawn(client.mutex("n").lock());
    let refused = async || spy.count("lock_acquire") == 2;
    eventually(LIMIT, "it listens, and was refused after that", refused).await;
    // Its number in the line comes with that refusal.
    client.mutex("n").is_locked().await.expect("an answer behind it");
    let freed_at = Instant::now();
    theirs.unlock().await.expect("held");
    let guard = tokio::time::timeout(LIMIT, waiting).await.expect("it asks");
    let took = freed_at.elapsed();
    assert!(took < within(500 * MS, &stalls), "{took:?}");
    guard.expect("no panic").expect("free").unlock().await.expect("held");
    drop(deaf);
    nothing_left(&server, &client).await;
}

/// The lock was handed to a waiter that is dropped before it has looked: it goes to the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_handed_to_a_waiter_that_is_dropped_goes_on() {
    let server = Server::start().await;
    // Once by a hand-off, once by a release.
    for window in [Duration::from_secs(1), Duration::ZERO] {
        let builder = builder(server.url()).handoff_window(window);
        let client = builder.connect().await.expect("connected");
        let lock = client.mutex("n");
        let (guard, hindmost) = with_one_behind(&server, &client, &lock, &lock).await;
        hindmost.abort();
        assert!(hindmost.await.is_err_and(|error| error.is_cancelled()));
        let mut dropped = Box::pin(lock.lock());
        poll_once(dropped.as_mut());
        let next = tokio::spawn(lock.lock());
        eventually(LIMIT, "both wait", async || client.stats().waiters == 2).await;
        guard.unlock().await.expect("held");
        eventually(LIMIT, "it is handed on", async || client.stats().waiters == 1).await;
        drop(dropped);
        let next = tokio::time::timeout(LIMIT, next).await.expect("it has its turn");
        next.expect("no panic").expect("free").unlock().await.expect("held");
        nothing_left(&server, &client).await;
    }
}

/// `try_lock` stands in no line, and does not keep those who do from the lock for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_not_starved_by_attempts_of_its_own_process() {
    let server = Server::start().await;
    let (client, other) = (connect(&server).await, connect(&server).await);
    let lock = client.mutex("n");
    let theirs = other.mutex("n").lock().await.expect("free");
    let waiting = tokio::spawn(lock.lock());
    subscribed(&server).await;
    let over = Arc::new(AtomicBool::new(false));
    let polling = tokio::spawn({
        let (lock, over) = (lock.clone(), over.clone());
        async move {
            while !over.load(SeqCst) {
                if let Some(guard) = lock.try_lock().await.expect("an answer") {
                    tokio::time::sleep(5 * MS).await;
                    guard.unlock().await.expect("held");
                }
                // Refused by its own process it waits for nothing.
                tokio::task::yield_now().await;
            }
        }
    });
    theirs.unlock().await.expect("held");
    let guard = tokio::time::timeout(LIMIT, waiting).await.expect("it has its turn");
    over.store(true, SeqCst);
    guard.expect("no panic").expect("free").unlock().await.expect("held");
    polling.await.expect("no panic");
    nothing_left(&server, &client).await;
}

/// Who holds an `unlock` that it does not poll keeps nobody out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlock_that_is_not_polled_any_more_holds_nobody_up() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let stalls = Stalls::watch();
    let builder = builder(proxy.url()).response_timeout(300 * MS);
    let client = builder.connect().await.expect("connected");
    know_scripts(&client).await;
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    // The answer does not come during the poll.
    proxy.hold_replies();
    let mut unlock = pin!(guard.unlock());
    poll_once(unlock.as_mut());
    proxy.release_replies();
    let began_at = Instant::now();
    let next = tokio::time::timeout(LIMIT, lock.lock()).await.expect("it gets in").expect("free");
    let took = began_at.elapsed();
    assert!(took < within(400 * MS, &stalls), "{took:?}");
    unlock.await.expect("it was held");
    assert!(next.is_held());
    next.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

// The end of a client.

/// The answer to the ask, "held by another", comes after the shutdown: who asked may not wait on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ask_in_flight_at_a_shutdown_ends_closed() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let (client, other) = (connect_through(&proxy).await, connect(&server).await);
    let theirs = other.mutex("n").lock().await.expect("free");
    let spy = Spy::on(&server).await;
    proxy.hold_replies();
    let waits = [tokio::spawn(client.mutex("n").lock()), tokio::spawn(client.mutex("free").lock())];
    let asked = async || spy.count("lock_acquire") == 2;
    eventually(LIMIT, "the servers were asked", asked).await;
    let mut shutdown = pin!(client.shutdown());
    poll_once(shutdown.as_mut());
    proxy.release_replies();
    for waiting in waits {
        let answer = tokio::time::timeout(LIMIT, waiting).await.expect("it ends");
        let answer = answer.expect("no panic");
        assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
    }
    shutdown.await;
    assert_eq!(lock_keys(&server).await, ["n"], "what was granted meanwhile is released");
    client_is_idle(&client).await;
    assert_eq!(subscribers(&server, CHANNEL).await, 0);
    theirs.unlock().await.expect("held");
}

/// A shutdown right after a dropped attempt: its release is on its way when the shutdown returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_waits_for_the_release_of_a_dropped_attempt() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let client = connect_through(&proxy).await;
    proxy.delay_replies(100 * MS);
    {
        let mut attempt = pin!(client.mutex("n").lock());
        poll_once(attempt.as_mut());
        eventually(LIMIT, "it is granted", async || exists(&server, "n").await).await;
    }
    let guard = client.mutex("m").lock().await.expect("free");
    drop(guard);
    client.shutdown().await;
    assert_eq!(client.stats().owed_releases, 0, "{:?}", client.stats());
    assert!(lock_keys(&server).await.is_empty());
}

/// Nothing tells a drain of a wait that ends by its time, or of a hold that ends by its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_with_the_last_wait_and_the_last_hold_that_end_by_time() {
    let server = Server::start().await;
    let stalls = Stalls::watch();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let theirs = other.mutex("n").lock().await.expect("free");
    let began_at = Instant::now();
    let waiting = tokio::spawn(client.mutex("n").lock_with_timeout(400 * MS));
    let guard = client.mutex("m").with_lease(600 * MS).lock().await.expect("free");
    subscribed(&server).await;
    assert!(client.drain(LIMIT).await, "nothing is held");
    let took = began_at.elapsed();
    assert!(took < within(750 * MS, &stalls), "{took:?}");
    assert!(!guard.is_held());
    let answer = waiting.await.expect("no panic");
    assert!(matches!(answer, Err(Error::Timeout { .. })), "{answer:?}");
    theirs.unlock().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_an_ask_in_flight() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let client = connect_through(&proxy).await;
    proxy.hold_replies();
    let asking = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "it is granted", async || exists(&server, "n").await).await;
    assert!(!client.drain(50 * MS).await, "somebody is about to hold");
    proxy.release_replies();
    let guard = asking.await.expect("no panic").expect("it asked before");
    assert!(!client.drain(50 * MS).await, "somebody holds");
    guard.unlock().await.expect("held");
    assert!(client.drain(LIMIT).await);
    nothing_left(&server, &client).await;
}

/// One that asks and one behind it: the runtime of the client's tasks goes, and both are told at once.
#[test]
fn waits_end_closed_when_the_runtime_goes_with_an_ask_in_flight() {
    for waiters in [1, 2] {
        let (tests, tasks) = (runtime(), runtime());
        let (server, client) = on_its_own_runtime(&tests, &tasks);
        server.pause();
        let mut waits = Vec::new();
        tests.block_on(async {
            for waiter in 0..waiters {
                waits.push(tokio::spawn(client.mutex("n").lock_with_timeout(2 * LIMIT)));
                let came = async || {
                    let stats = client.stats();
                    (stats.gates, stats.waiters) == (1, waiter)
                };
                eventually(LIMIT, "it asks, or waits for the one that does", came).await;
            }
        });
        tasks.shutdown_background();
        tests.block_on(async {
            for waiting in waits {
                let answer = tokio::time::timeout(LIMIT, waiting).await.expect("it ends");
                let answer = answer.expect("no panic");
                assert!(matches!(answer, Err(Error::Closed)), "{waiters} waiters: {answer:?}");
            }
            for _ in 0..2 {
                let drain = tokio::time::timeout(LIMIT, client.drain(100 * MS));
                drain.await.expect("a drain ends");
                tokio::time::timeout(LIMIT, client.shutdown()).await.expect("a shutdown ends");
            }
        });
        server.resume();
    }
}

#[test]
fn a_shutdown_and_a_drain_end_although_the_runtime_went_with_a_hold() {
    let (tests, tasks) = (runtime(), runtime());
    let (_server, client) = on_its_own_runtime(&tests, &tasks);
    let guard = tests.block_on(client.mutex("n").with_ttl(400 * MS).lock()).expect("free");
    drop(tasks);
    tests.block_on(async {
        let drain = tokio::time::timeout(LIMIT, client.drain(100 * MS));
        drain.await.expect("a drain ends");
        tokio::time::timeout(LIMIT, client.shutdown()).await.expect("a shutdown ends");
        eventually(LIMIT, "it is lost by its deadline", async || !guard.is_held()).await;
    });
}

/// A connect is dropped ever later, until it succeeds; and clients come and go, with one waiting for the other.
#[test]
fn connects_that_are_dropped_and_clients_that_go_leave_no_task() {
    let (tests, tasks) = (runtime(), runtime());
    tests.block_on(async {
        let server = Server::start().await;
        let proxy = Proxy::start(server.port()).await;
        proxy.delay_replies(3 * MS);
        let connect = || builder(proxy.url()).runtime(tasks.handle().clone()).connect();
        let mut dropped = 0;
        while tokio::time::timeout(dropped * 2 * MS, connect()).await.is_err() {
            dropped += 1;
        }
        assert!(dropped > 5, "only {dropped} were dropped");
        for _ in 0..5 {
            let client = connect().await.expect("connected");
            let guard = client.mutex("n").lock().await.expect("free");
            // Longer than the hand-off window, so that it waits for the servers.
            let waiting = client.mutex("n").lock_with_timeout(30 * MS).await;
            assert!(matches!(waiting, Err(Error::Timeout { .. })), "{waiting:?}");
            guard.unlock().await.expect("held");
        }
        eventually(LIMIT, "all tasks end", async || tasks.metrics().num_alive_tasks() == 0).await;
        no_connection_left(&server).await;
    });
}

// Time that is up.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connect_takes_no_longer_than_its_timeout_over_all_its_steps() {
    let server = Server::start().await;
    let stalls = Stalls::watch();
    let proxy = Proxy::start(server.port()).await;
    // With some of them the first connection is made in time, and the second would not be.
    for delay in [60, 70, 80, 90, 150] {
        proxy.delay_replies(delay * MS);
        let timeout = 500 * MS;
        let began_at = Instant::now();
        let answer = builder(proxy.url()).connect_timeout(timeout).connect().await;
        let took = began_at.elapsed();
        assert!(took < within(timeout + 100 * MS, &stalls), "{took:?}, answers {delay} ms late");
        assert!(matches!(answer, Ok(_) | Err(Error::Unavailable { .. })), "{answer:?}");
    }
}

/// An answer that comes after the deadline says nothing any more, so it is not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlock_waits_to_the_deadline_at_most() {
    let server = Server::start().await;
    let stalls = Stalls::watch();
    let proxy = Proxy::start(server.port()).await;
    let client = connect_through(&proxy).await;
    let guard = client.mutex("n").with_lease(1500 * MS).lock().await.expect("free");
    proxy.drop_replies(true);
    // Fewer than the 500 ms that an answer may take.
    let nearly_over = async || guard.remaining() < 200 * MS;
    eventually(LIMIT, "it is nearly over", nearly_over).await;
    let (began_at, left) = (Instant::now(), guard.remaining());
    let answer = guard.unlock().await;
    let took = began_at.elapsed();
    assert!(took < within(left + 50 * MS, &stalls), "{took:?}, with {left:?} left");
    assert!(matches!(answer, Err(Error::Unavailable { .. } | Error::Lost { .. })), "{answer:?}");
    proxy.drop_replies(false);
    proxy.cut();
    nothing_left(&server, &client).await;
}

/// The release could not be sent before the deadline, and reaches the server when another has the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlock_is_no_success_when_another_had_the_lock_before_it_was_sent() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let (client, other) = (connect_through(&proxy).await, connect(&server).await);
    let guard = client.mutex("n").with_lease(600 * MS).lock().await.expect("free");
    let waiting = tokio::spawn(other.mutex("n").lock());
    subscribed(&server).await;
    proxy.refuse(true);
    proxy.cut();
    eventually(LIMIT, "it is nearly over", async || guard.remaining() < 50 * MS).await;
    let unlock = tokio::spawn(guard.unlock());
    let theirs = tokio::time::timeout(LIMIT, waiting).await.expect("the lease ends");
    let theirs = theirs.expect("no panic").expect("free");
    proxy.refuse(false);
    let answer = unlock.await.expect("no panic");
    assert!(matches!(answer, Err(Error::Unavailable { .. } | Error::Lost { .. })), "{answer:?}");
    eventually(LIMIT, "nothing is owed", async || client.stats().owed_releases == 0).await;
    assert!(exists(&server, "n").await && theirs.is_held());
    theirs.unlock().await.expect("nobody took it away");
}

/// The nested hold asked for more than the fixed lease, and not for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longest_hold_nested_in_a_fixed_lease_ends_within_a_ttl_of_it() {
    let server = Server::start().await;
    let stalls = Stalls::watch();
    let client = connect(&server).await;
    let lock = client.mutex("n").with_ttl(600 * MS).owned_by(&client.owner());
    let outer = lock.with_lease(300 * MS).lock().await.expect("free");
    let inner = lock.with_max_hold(500 * MS).lock().await.expect("ours");
    let began_at = Instant::now();
    let reason = tokio::time::timeout(LIMIT, inner.lost()).await.expect("it ends");
    let took = began_at.elapsed();
    assert_eq!(reason, LossReason::Ended);
    assert!(took > 490 * MS && took < within(1150 * MS, &stalls), "{took:?}");
    assert!(!outer.is_held());
    drop((outer, inner));
    nothing_left(&server, &client).await;
}

// Connections.

/// Answers later than a third of a short lease are too late for that lease, and for nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_too_short_for_the_network_breaks_no_connection() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let client = connect_through(&proxy).await;
    proxy.delay_replies(20 * MS);
    let before = client.stats().connections_made;
    let short = tokio::spawn({
        let lock = client.mutex("short").with_lease(30 * MS);
        async move {
            let mut unanswered = 0;
            for _ in 0..30 {
                unanswered += usize::from(lock.try_lock().await.is_err());
            }
            unanswered
        }
    });
    while !short.is_finished() {
        client.mutex("long").lock().await.expect("free").unlock().await.expect("held");
    }
    assert!(short.await.expect("no panic") > 20, "its answers are late");
    assert_eq!(client.stats().connections_made, before);
    nothing_left(&server, &client).await;
}

/// What the first connection sent is still in the network. The second breaks when it is about to kill the
/// first; the third must do so, or repeat the release: else the acquire runs behind it, and nobody knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_late_in_the_network_is_released_although_a_handshake_broke() {
    let server = Server::start().await;
    let network = LateNetwork::before(&server).await;
    let builder = builder(network.url()).response_timeout(300 * MS).ttl(Duration::from_secs(60));
    let client = builder.connect().await.expect("connected");
    // What a client asks about its server at first is answered: what is late from now on is a lock.
    know_scripts(&client).await;
    network.be_late();
    let error = client.mutex("n").try_lock().await.expect_err("no answer");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let broken = async || network.kills() >= 1;
    eventually(LIMIT, "a handshake breaks at the kill", broken).await;
    let settled = async || {
        let connections = network.connections();
        connections >= 3 && client.mutex("m").is_locked().await.is_ok()
    };
    eventually(LIMIT, "there is a new connection", settled).await;
    let deciding = Instant::now();
    while client.stats().owed_releases > 0 && deciding.elapsed() < 500 * MS {
        tokio::time::sleep(5 * MS).await;
    }
    network.deliver();
    let delivered = async || network.has_delivered();
    eventually(LIMIT, "what was late arrives, or is refused", delivered).await;
    nothing_left(&server, &client).await;
}

/// The runtime ends while an acquire is late in the network: no release of the supervisor's can follow it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_late_in_the_network_does_not_run_behind_the_farewell() {
    let server = Server::start().await;
    let network = LateNetwork::before(&server).await;
    network.spare_all();
    let tasks = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let tasks = tasks.expect("a runtime");
    let builder = builder(network.url()).runtime(tasks.handle().clone());
    let client = builder.connect().await.expect("connected");
    know_scripts(&client).await;
    network.be_late();
    let mut attempt = Box::pin(client.mutex("n").try_lock());
    assert!(futures_util::poll!(&mut attempt).is_pending());
    let on_its_way = async || network.kept() > 0;
    eventually(LIMIT, "the acquire is in the network", on_its_way).await;
    tasks.shutdown_background();
    let ended = async || client.stats().tasks == 0;
    eventually(LIMIT, "the tasks are gone", ended).await;
    drop(attempt);
    let released = async || client.stats().owed_releases == 0;
    eventually(LIMIT, "it is released", released).await;
    network.deliver();
    let delivered = async || network.has_delivered();
    eventually(LIMIT, "what was late arrives, or is refused", delivered).await;
    assert!(!exists(&server, "n").await, "it ran behind its release");
}

/// Who may not kill its first connection releases again and again, for as long as that one may still run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_late_in_the_network_is_released_by_a_user_who_may_not_kill() {
    let server = Server::start().await;
    let rules = ["on", ">pw", "~*", "&*", "+@all", "-client"];
    server.command(&[&["ACL", "SETUSER", "u"], &rules[..]].concat()).await;
    let network = LateNetwork::before(&server).await;
    let builder = builder(network.url_as("u", "pw")).response_timeout(300 * MS);
    let client = builder.ttl(Duration::from_secs(60)).connect().await.expect("connected");
    know_scripts(&client).await;
    let spy = Spy::on(&server).await;
    network.be_late();
    let error = client.mutex("n").try_lock().await.expect_err("no answer");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let released = async || spy.count("lock_release") >= 1;
    eventually(LIMIT, "it is released on the next connection", released).await;
    network.deliver();
    let came = async || spy.count("lock_acquire") == 1;
    eventually(LIMIT, "the acquire comes after that", came).await;
    let gone = async || !exists(&server, "n").await;
    eventually(LIMIT, "it is released again", gone).await;
    let last = spy.runs().last().map(|run| run.script);
    assert_eq!(last, Some("lock_release"), "{:?}", spy.runs());
}

/// A server that was started anew counts its connections anew: the number of our last one is another's there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strangers_connection_with_the_number_of_our_last_is_left_alone() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    // More than it takes to see that a server has started.
    for _ in 0..100 {
        number(&mut server.raw().await).await.expect("a number");
    }
    let client = connect_through(&proxy).await;
    let ours = number(&mut server.raw().await).await.expect("a number");
    proxy.refuse(true);
    server.kill();
    server.restart().await;
    let mut strangers = vec![server.raw().await];
    let first = number(&mut strangers[0]).await.expect("a number");
    assert!(first < 100, "they have all our numbers: the first is {first}");
    while number(strangers.last_mut().expect("one")).await.expect("a number") < ours {
        strangers.push(server.raw().await);
    }
    proxy.refuse(false);
    let connected = async || client.mutex("n").is_locked().await.is_ok();
    eventually(LIMIT, "it is connected again", connected).await;
    for stranger in &mut strangers {
        assert!(number(stranger).await.is_ok(), "its connection was killed");
    }
}

async fn number(connection: &mut redis::aio::MultiplexedConnection) -> redis::RedisResult<u64> {
    redis::cmd("CLIENT").arg("ID").query_async(connection).await
}

// Behind a release.

/// A renewal is on its way to a server that has forgotten its script; the answer that says so comes after the
/// release was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_of_a_forgotten_script_is_not_sent_again_behind_the_release() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let client = connect_through(&proxy).await;
    let spy = Spy::on(&server).await;
    let guard = client.mutex("n").with_ttl(1500 * MS).lock().await.expect("free");
    server.command(&["SCRIPT", "FLUSH"]).await;
    proxy.hold_replies();
    eventually(LIMIT, "it is renewed", async || spy.count("lock_renew") == 1).await;
    drop(guard);
    eventually(LIMIT, "it is released", async || spy.count("lock_release") == 1).await;
    proxy.release_replies();
    nothing_left(&server, &client).await;
    eventually(LIMIT, "it is released whole", async || spy.count("lock_release") == 2).await;
    assert_eq!(spy.count("lock_renew"), 1, "{:?}", spy.runs());
}

/// The renewal was sent before the deadline, and is confirmed after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_hold_stays_lost_although_a_renewal_is_confirmed_then() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let client = connect_through(&proxy).await;
    let guard = client.mutex("n").with_ttl(1200 * MS).lock().await.expect("free");
    let lost = guard.lost();
    proxy.hold_replies();
    eventually(LIMIT, "it is lost", async || !guard.is_held()).await;
    proxy.release_replies();
    assert_eq!(lost.await, LossReason::NotRenewed);
    // Behind the answers that were held back.
    client.mutex("n").is_locked().await.expect("an answer");
    assert!(!guard.is_held() && guard.remaining().is_zero());
    let answer = guard.unlock().await;
    assert!(matches!(answer, Err(Error::Lost { .. })), "{answer:?}");
    nothing_left(&server, &client).await;
}

type Waiting = tokio::task::JoinHandle<Result<Guard, Error>>;

/// A hold, and one who waits behind it: both have waited for another client, so that the lease may pass on.
async fn with_one_behind(
    server: &Server,
    client: &Client,
    first: &leasehold::Mutex,
    next: &leasehold::Mutex,
) -> (Guard, Waiting) {
    let theirs = connect(server).await.mutex(first.name()).lock().await.expect("free");
    let before = client.stats().waiters;
    let first = tokio::spawn(first.lock());
    eventually(LIMIT, "one waits", async || client.stats().waiters == before + 1).await;
    let next = tokio::spawn(next.lock());
    eventually(LIMIT, "both wait", async || client.stats().waiters == before + 2).await;
    theirs.unlock().await.expect("held");
    (first.await.expect("no panic").expect("free"), next)
}

/// The servers' counter is the end of the block: the one hold of a block of one has that token, and those to
/// whom a lease passes have none above it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_token_is_above_the_counter() {
    let server = Server::start().await;
    let builder = builder(server.url()).handoff_window(Duration::from_secs(1));
    let client = builder.connect().await.expect("connected");
    let lock = client.mutex("n");
    let counter = async || {
        let counter = server.command(&["GET", "leasehold_token:{n}"]).await;
        redis::from_redis_value::<u64>(counter).expect("a number")
    };
    let guard = lock.lock().await.expect("free");
    assert_eq!(guard.token(), counter().await);
    let waiting = tokio::spawn(lock.lock());
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
    guard.unlock().await.expect("held");
    let guard = waiting.await.expect("no panic").expect("free");
    assert!(guard.token() <= counter().await, "the block was used up");
    guard.unlock().await.expect("held");

    let (guard, waiting) = with_one_behind(&server, &client, &lock, &lock).await;
    let first = guard.token();
    assert_eq!(first + 1, counter().await);
    guard.unlock().await.expect("held");
    let guard = waiting.await.expect("no panic").expect("free");
    assert_eq!((guard.token(), counter().await), (first + 1, first + 1));
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// Who waits on other terms than the holder's does not take over the holder's lease, however young.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_on_other_terms_gets_a_lease_of_its_own() {
    let server = Server::start().await;
    let builder = builder(server.url()).handoff_window(Duration::from_secs(1));
    let client = builder.connect().await.expect("connected");
    let lock = client.mutex("n");
    let others = [lock.with_ttl(LIMIT), lock.with_lease(LIMIT), lock.with_ttl(4 * LIMIT)];
    for (other, ttl) in others.into_iter().zip([LIMIT, LIMIT, 4 * LIMIT]) {
        let (guard, waiting) = with_one_behind(&server, &client, &lock, &other).await;
        let (holder, token) = (guard.holder(), guard.token());
        guard.unlock().await.expect("held");
        let guard = waiting.await.expect("no panic").expect("free");
        assert_ne!(guard.holder(), holder);
        assert!(guard.token() > token);
        let left = guard.remaining();
        assert!(left <= ttl && left > ttl - Duration::from_secs(5), "{left:?} of {ttl:?}");
        guard.unlock().await.expect("held");
    }
    let (guard, waiting) = with_one_behind(&server, &client, &lock, &lock).await;
    let holder = guard.holder();
    guard.unlock().await.expect("held");
    let guard = waiting.await.expect("no panic").expect("free");
    assert_eq!(guard.holder(), holder, "on equal terms it is handed off");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// The longest hold is that of the one who has the lock, however the lock came to it, and of nobody after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longest_hold_counts_for_the_one_who_asked_for_it() {
    let server = Server::start().await;
    let stalls = Stalls::watch();
    let builder = builder(server.url()).handoff_window(Duration::from_secs(1));
    let client = builder.connect().await.expect("connected");
    let ends = async |guard: Guard| {
        let began_at = Instant::now();
        let reason = tokio::time::timeout(LIMIT, guard.lost()).await.expect("it ends");
        assert_eq!(reason, LossReason::Ended);
        let took = began_at.elapsed();
        assert!(took < within(1400 * MS, &stalls), "{took:?}");
    };
    let [a, c] = ["a", "c"].map(|name| client.mutex(name).with_ttl(900 * MS));
    let (guard, waiting) = with_one_behind(&server, &client, &a, &a.with_max_hold(300 * MS)).await;
    guard.unlock().await.expect("held");
    let handed_off = waiting.await.expect("no panic").expect("free");
    let theirs = connect(&server).await.mutex("c").lock().await.expect("free");
    let waiting = tokio::spawn(c.with_max_hold(300 * MS).lock());
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
    theirs.unlock().await.expect("held");
    let from_another = waiting.await.expect("no panic").expect("free");
    tokio::join!(ends(handed_off), ends(from_another));
    nothing_left(&server, &client).await;
}

/// The first hold was to end before any renewal; the next one has the same lease, and no end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_handed_on_by_a_short_longest_hold_is_renewed() {
    let server = Server::start().await;
    let builder = builder(server.url()).handoff_window(Duration::from_secs(1));
    let client = builder.connect().await.expect("connected");
    let lock = client.mutex("n").with_ttl(900 * MS);
    let short = lock.with_max_hold(300 * MS);
    let (guard, waiting) = with_one_behind(&server, &client, &short, &lock).await;
    guard.unlock().await.expect("held");
    let guard = waiting.await.expect("no panic").expect("free");
    let lost = tokio::time::timeout(1600 * MS, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// A lease that nobody has renewed for too long is given back, although it is young enough to pass on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_past_half_its_time_is_not_handed_on() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let builder = builder(proxy.url()).handoff_window(Duration::from_secs(1));
    let client = builder.connect().await.expect("connected");
    let lock = client.mutex("n").with_ttl(900 * MS);
    let (guard, waiting) = with_one_behind(&server, &client, &lock, &lock).await;
    let holder = guard.holder();
    proxy.hold_replies();
    eventually(LIMIT, "half is over", async || guard.remaining() < 440 * MS).await;
    drop(guard);
    proxy.release_replies();
    let guard = waiting.await.expect("no panic").expect("free");
    assert_ne!(guard.holder(), holder);
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// The ask in flight was for one who has left; who waits behind it wants other terms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_asked_for_one_who_left_goes_to_nobody_on_other_terms() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let (client, other) = (connect_through(&proxy).await, connect(&server).await);
    let theirs = other.mutex("n").lock().await.expect("free");
    let lock = client.mutex("n");
    let first = tokio::spawn(lock.with_lease(4 * LIMIT).lock());
    subscribed(&server).await;
    let second = tokio::spawn(lock.with_lease(LIMIT).lock());
    eventually(LIMIT, "both wait", async || client.stats().waiters == 2).await;
    // The message comes, is answered by an ask, and the grant is on its way for that long.
    proxy.delay_replies(300 * MS);
    theirs.unlock().await.expect("held");
    eventually(LIMIT, "it is granted", async || exists(&server, "n").await).await;
    first.abort();
    assert!(first.await.is_err_and(|error| error.is_cancelled()));
    let guard = tokio::time::timeout(LIMIT, second).await.expect("it has its turn");
    let guard = guard.expect("no panic").expect("free");
    assert!(guard.remaining() <= LIMIT, "{:?}", guard.remaining());
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

// All at once.

/// Waits, attempts, timeouts, dropped futures and both ways to give back, over several clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_uses_of_several_clients_never_overlap() {
    let server = Server::start().await;
    let inside = Arc::new(AtomicU32::new(0));
    let last_token = Arc::new(AtomicU64::new(0));
    let ends_at = Instant::now() + Duration::from_secs(2);
    let (mut clients, mut tasks) = (Vec::new(), Vec::new());
    for client_number in 0..4_u64 {
        let client = connect(&server).await;
        for task_number in 0..3_u64 {
            let lock = client.mutex("n");
            let (inside, last_token) = (inside.clone(), last_token.clone());
            let mut random = client_number * 7 + task_number;
            tasks.push(tokio::spawn(async move {
                let mut turns = 0;
                while Instant::now() < ends_at {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let patience = (random >> 40) as u32 % 5 * MS;
                    let guard = match (random >> 33) % 5 {
                        0 => tokio::time::timeout(patience, lock.lock()).await.ok(),
                        1 => lock.try_lock().await.transpose(),
                        2 => lock.try_lock_for(30 * MS).await.transpose(),
                        _ => Some(lock.lock().await),
                    };
                    let guard = match guard {
                        Some(Ok(guard)) => guard,
                        // A busy machine may keep an answer for longer than 30 ms.
                        None | Some(Err(Error::Unavailable { .. })) => continue,
                        Some(Err(error)) => panic!("{error:?}"),
                    };
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two are inside");
                    let before = last_token.swap(guard.token(), SeqCst);
                    assert!(before < guard.token(), "token {} after {before}", guard.token());
                    turns += 1;
                    if random % 3 == 0 {
                        tokio::time::sleep(MS).await;
                    }
                    inside.fetch_sub(1, SeqCst);
                    match random % 2 {
                        0 => drop(guard),
                        _ => guard.unlock().await.expect("held"),
                    }
                }
                turns
            }));
        }
        clients.push(client);
    }
    let mut turns = 0;
    for task in tasks {
        turns += task.await.expect("no panic");
    }
    assert!(turns > 50, "only {turns} turns");
    for client in &clients {
        nothing_left(&server, client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_is_starved_by_the_others() {
    const CLIENTS: usize = 4;
    const TASKS: usize = 3;
    let server = Server::start().await;
    let turns = Arc::new(Mutex::new([0_u32; CLIENTS]));
    let ends_at = Instant::now() + Duration::from_millis(2500);
    let (mut clients, mut tasks) = (Vec::new(), Vec::new());
    for number in 0..CLIENTS {
        let client = connect(&server).await;
        for _ in 0..TASKS {
            let (lock, turns) = (client.mutex("n"), turns.clone());
            tasks.push(tokio::spawn(async move {
                while Instant::now() < ends_at {
                    let guard = lock.lock().await.expect("held in the end");
                    turns.lock()[number] += 1;
                    tokio::time::sleep(MS).await;
                    guard.unlock().await.expect("held");
                }
            }));
        }
        clients.push(client);
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    let turns = *turns.lock();
    let (fewest, most) = (turns.iter().min(), turns.iter().max());
    let (fewest, most) = (*fewest.expect("some"), *most.expect("some"));
    println!("turns {turns:?}");
    assert!(most > 20 && fewest * 10 >= most, "{turns:?}");
    for client in &clients {
        nothing_left(&server, client).await;
    }
}

/// Nothing but an acquire and a release each, of whatever kind the lease is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_costs_one_script_to_take_and_one_to_give_back() {
    let server = Server::start().await;
    let client = connect(&server).await;
    know_scripts(&client).await;
    let spy = Spy::on(&server).await;
    for lock in [client.mutex("watched"), client.mutex("fixed").with_lease(LIMIT)] {
        for _ in 0..10 {
            lock.lock().await.expect("free").unlock().await.expect("held");
        }
    }
    eventually(LIMIT, "all is told", async || spy.count("lock_release") >= 20).await;
    client_is_idle(&client).await;
    assert_eq!((spy.count("lock_acquire"), spy.count("lock_release")), (20, 20));
    assert_eq!(spy.count("lock_renew"), 0);
}
