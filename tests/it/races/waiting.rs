//! Waiters: those that nobody wakes, those behind others, and those that go away.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use super::{
    CHANNEL, MS, builder, connect_through, know_scripts, on_its_own_runtime, poll_once, queued,
    runtime, with_one_behind,
};
use crate::{
    checks::{LIMIT, connect, exists, nothing_left, setup, setup_with_proxy, soon},
    support::{Server, eventually, subscribers},
};

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
        let guard = soon("it asks again", waiting).await;
        guard.expect("no panic").expect("free").unlock().await.expect("held");
        nothing_left(&server, &client).await;
    });
}

/// The waiter comes while the first one's ask is on its way: then nobody watches the lease that it wins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_came_during_an_ask_gets_in_when_that_hold_is_lost() {
    let (server, proxy) = setup_with_proxy().await;
    let client = connect_through(&proxy).await;
    proxy.hold_replies();
    let first = tokio::spawn(client.mutex("n").with_lease(500 * MS).lock());
    eventually(LIMIT, "it is granted", async || exists(&server, "n").await).await;
    let second = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "another waits", async || client.stats().waiters == 1).await;
    proxy.release_replies();

    let guard = first.await.expect("no panic").expect("free");
    let lost_at = Instant::now() + guard.remaining();
    let second = soon("it gets in", second).await;
    let second = second.expect("no panic").expect("the other is lost");
    let took = lost_at.elapsed();
    assert!(took < server.widened(100 * MS), "{took:?} after the loss");
    assert!(!guard.is_held() && second.is_held());
    drop((guard, second));
    nothing_left(&server, &client).await;
}

/// A server out of memory refuses every ask at once: after the silence of others that heard a release, too,
/// the next ask comes after a pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asks_that_fail_after_a_silence_are_backed_off() {
    let (server, [client]) = setup().await;
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
    let guard = soon("it asks again", waiting).await;
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
    let (server, proxy) = setup_with_proxy().await;
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
    let guard = soon("it asks again", waiting).await;
    let took = refused_at.elapsed();
    // It would ask by itself after two seconds at the earliest.
    assert!(took < server.widened(1500 * MS), "{took:?}");
    guard.expect("no panic").expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// Clients that listen on the lock's channel, and never ask, do not keep the one in the queue waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_beside_listeners_that_never_ask_gets_the_lock_at_once() {
    let (server, [client, other]) = setup().await;
    let theirs = other.mutex("n").lock().await.expect("free");
    let mut deaf = Vec::new();
    for _ in 0..8 {
        let listener = redis::Client::open(server.url()).expect("a valid URL");
        let mut listener = listener.get_async_pubsub().await.expect("connected");
        listener.subscribe(CHANNEL).await.expect("subscribed");
        deaf.push(listener);
    }
    let waiting = tokio::spawn(client.mutex("n").lock());
    queued(&server).await;
    let freed_at = Instant::now();
    theirs.unlock().await.expect("held");
    let guard = soon("it gets in", waiting).await;
    let took = freed_at.elapsed();
    assert!(took < server.widened(500 * MS), "{took:?}");
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
        let next = soon("it has its turn", next).await;
        next.expect("no panic").expect("free").unlock().await.expect("held");
        nothing_left(&server, &client).await;
    }
}

/// `try_lock` stands in no line, and does not keep those who do from the lock for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_not_starved_by_attempts_of_its_own_process() {
    let (server, [client, other]) = setup().await;
    let lock = client.mutex("n");
    let theirs = other.mutex("n").lock().await.expect("free");
    let waiting = tokio::spawn(lock.lock());
    queued(&server).await;
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
    let guard = soon("it has its turn", waiting).await;
    over.store(true, SeqCst);
    guard.expect("no panic").expect("free").unlock().await.expect("held");
    polling.await.expect("no panic");
    nothing_left(&server, &client).await;
}

/// Who holds an `unlock` that it does not poll keeps nobody out. If others were heard to listen for releases, its answer is
/// waited for, but not for longer than an answer may take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlock_that_is_not_polled_any_more_holds_nobody_up() {
    const RESPONSE: Duration = Duration::from_millis(300);
    for (others_listen, limit) in [(false, 400 * MS), (true, RESPONSE + 700 * MS)] {
        let (server, proxy) = setup_with_proxy().await;
        let builder = builder(proxy.url()).response_timeout(RESPONSE);
        // Without a window the release is sent by the first poll.
        let client = builder.handoff_window(Duration::ZERO).connect().await.expect("connected");
        know_scripts(&client).await;
        let lock = client.mutex("n");
        // What the process knows of the lock is kept for as long as a lost guard is around.
        let lost = lock.with_lease(500 * MS).lock().await.expect("free");
        soon("it ends", lost.lost()).await;
        let listener = redis::Client::open(server.url()).expect("a valid URL");
        let mut listener = listener.get_async_pubsub().await.expect("connected");
        if others_listen {
            listener.subscribe(CHANNEL).await.expect("subscribed");
        }
        lock.lock().await.expect("free").unlock().await.expect("held");
        let guard = lock.lock().await.expect("free");
        // The answer does not come during the poll.
        proxy.hold_replies();
        let mut unlock = pin!(guard.unlock());
        poll_once(unlock.as_mut());
        proxy.release_replies();
        let began_at = Instant::now();
        let next = soon("it gets in", lock.lock()).await.expect("free");
        let took = began_at.elapsed();
        assert!(took < server.widened(limit), "others listen: {others_listen}: {took:?}");
        unlock.await.expect("it was held");
        assert!(next.is_held());
        next.unlock().await.expect("held");
        drop((lost, listener));
        nothing_left(&server, &client).await;
    }
}
