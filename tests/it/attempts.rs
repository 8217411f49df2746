//! Single attempts: beside an ask of their own process, whose answer speaks for whom; and what they leave.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use leasehold::{Client, Error, Guard, Mutex};

use crate::{
    checks::{LIMIT, connect, nothing_left, setup_with_proxy, soon},
    fair::make_heard,
    support::{Proxy, Server, Spy, eventually, waiting},
};

type Attempt = Pin<Box<dyn Future<Output = Result<Option<Guard>, Error>> + Send>>;

/// A client behind a proxy, and what its server runs from now on. The scripts are known there.
async fn set() -> (Server, Proxy, Client, Spy) {
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).response_timeout(Duration::from_secs(10));
    let client = builder.connect().await.expect("connected");
    client.mutex("before").lock().await.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
    let spy = Spy::on(&server).await;
    (server, proxy, client, spy)
}

/// Begins an attempt, which waits for an answer.
fn begun(attempt: impl Future<Output = Result<Option<Guard>, Error>> + Send + 'static) -> Attempt {
    let mut attempt: Attempt = Box::pin(attempt);
    assert!(!has_ended(&mut attempt), "it waits for an answer");
    attempt
}

fn has_ended(attempt: &mut Attempt) -> bool {
    attempt.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

async fn end(attempt: Attempt) -> Option<Guard> {
    let ended = soon("it ends", attempt).await;
    ended.expect("an answer of the servers")
}

async fn asked(spy: &Spy, times: usize) {
    let what = format!("the server was asked {times} times");
    eventually(LIMIT, &what, async || spy.count("lock_acquire") == times).await;
}

/// The ask that an attempt waits for is dropped: the attempt asks itself, at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_beside_an_ask_that_is_dropped_asks_at_once() {
    type Ask = fn(&Mutex) -> Attempt;
    let asks: [(&str, Ask); 3] = [
        ("lock", |lock| Box::pin(async_some(lock.lock()))),
        ("try_lock", |lock| Box::pin(lock.try_lock())),
        ("try_lock_for", |lock| Box::pin(lock.try_lock_for(LIMIT))),
    ];
    for (what, ask) in asks {
        let (server, proxy, client, spy) = set().await;
        let lock = client.mutex("n");
        proxy.hold_replies();
        let first = begun(ask(&lock));
        asked(&spy, 1).await;
        let second = begun(lock.try_lock());
        let dropped_at = Instant::now();
        drop(first);
        let second = tokio::spawn(end(second));
        asked(&spy, 2).await;
        proxy.release_replies();
        let guard = second.await.expect("no panic").expect("what was dropped is released");
        let took = dropped_at.elapsed();
        assert!(took < server.widened(Duration::from_secs(2)), "{what}: {took:?}");
        guard.unlock().await.expect("held");
        nothing_left(&server, &client).await;
    }
}

async fn async_some(
    lock: impl Future<Output = Result<Guard, Error>>,
) -> Result<Option<Guard>, Error> {
    lock.await.map(Some)
}

/// The lock was given back after the first had asked, and before the others came: its refusal does not speak for them.
/// Nor does it when a second ask, which would, is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_does_not_speak_for_attempts_that_came_after_its_ask() {
    let (server, proxy, client, spy) = set().await;
    let lock = client.mutex("n");
    // What the process knows of the lock is kept for as long as a lost guard is around.
    let lost = lock.with_lease(Duration::from_millis(50)).lock().await.expect("free");
    soon("it ends", lost.lost()).await;
    let other = connect(&server).await;
    let theirs = other.mutex("n").lock_with_timeout(LIMIT).await.expect("free again");
    other.mutex("n").is_locked().await.expect("an answer behind its ask");
    eventually(LIMIT, "the ask was seen", async || spy.count("lock_acquire") >= 2).await;
    let before = spy.count("lock_acquire");
    proxy.hold_replies();
    let first = begun(lock.try_lock());
    asked(&spy, before + 1).await;
    theirs.unlock().await.expect("held");
    let (mut second, mut third) = (begun(lock.try_lock()), begun(lock.try_lock()));
    proxy.release_replies();
    assert!(end(first).await.is_none(), "it asked while the lock was held");

    proxy.hold_replies();
    assert!(!has_ended(&mut second), "it asks");
    assert!(!has_ended(&mut third), "it waits for that answer");
    asked(&spy, before + 2).await;
    drop(second);
    let third = tokio::spawn(end(third));
    asked(&spy, before + 3).await;
    proxy.release_replies();
    let guard = third.await.expect("no panic").expect("nobody holds it");
    guard.unlock().await.expect("held");
    drop(lost);
    nothing_left(&server, &client).await;
}

/// However many attempts come during an ask, the next one speaks for all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_that_come_during_an_ask_share_the_next_one() {
    let (server, proxy, client, spy) = set().await;
    let other = connect(&server).await;
    let theirs = other.mutex("n").lock().await.expect("free");
    asked(&spy, 1).await;
    let lock = client.mutex("n");
    proxy.hold_replies();
    let first = begun(lock.try_lock());
    asked(&spy, 2).await;
    let later: Vec<Attempt> = (0..5).map(|_| begun(lock.try_lock())).collect();
    let all = tokio::spawn(futures_util::future::join_all(later.into_iter().map(end)));
    proxy.release_replies();
    assert!(end(first).await.is_none());
    assert!(all.await.expect("no panic").iter().all(Option::is_none));
    asked(&spy, 3).await;
    theirs.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// It is held by another, or is no lock: the attempt left nothing, and sends nothing more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_did_not_grant_is_not_released() {
    let (server, _proxy, client, spy) = set().await;
    server.command(&["HSET", "held", "another:1", "1"]).await;
    server.command(&["SET", "other", "no lock"]).await;
    assert!(client.mutex("held").try_lock().await.expect("an answer").is_none());
    let other = client.mutex("other").try_lock().await;
    assert!(matches!(other, Err(Error::WrongType { .. })), "{other:?}");
    // Comes behind whatever was sent for those.
    let last = client.mutex("last").lock().await.expect("free");
    let came = async || spy.runs().last().is_some_and(|run| run.words[0] == "last");
    eventually(LIMIT, "it is asked for the last", came).await;
    assert_eq!(spy.count("lock_release"), 0, "{:?}", spy.runs());
    last.unlock().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_round_trip_of_a_node_grows_with_a_slow_answer() {
    let (server, proxy, client, _spy) = set().await;
    proxy.delay_replies(Duration::from_millis(320));
    let guard = client.mutex("n").lock().await.expect("free");
    proxy.delay_replies(Duration::ZERO);
    // A sixteenth of it counts at once.
    let round_trip = client.nodes()[0].round_trip.expect("it was asked");
    assert!(round_trip >= Duration::from_millis(20), "{round_trip:?}");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// It asked in an outage, and nobody looked at it until others had an answer: that they have the lock, or that it is elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_fails_late_ends_no_wait_for_a_lock_that_is_held() {
    let (response, patience) = (Duration::from_millis(300), Duration::from_millis(800));
    for is_here in [true, false] {
        let (server, proxy) = setup_with_proxy().await;
        let builder = Client::builder().nodes([proxy.url()]).unavailable_after(patience);
        let client = builder.response_timeout(response).connect().await.expect("connected");
        let (lock, other) = (client.mutex("n"), connect(&server).await);
        proxy.drop_requests(true);
        let late = begun(lock.try_lock());
        tokio::time::sleep(response + Duration::from_millis(50)).await;
        proxy.drop_requests(false);
        let again = client.mutex("another").lock_with_timeout(LIMIT);
        drop(soon("the server answers", again).await.expect("free"));
        // So that it asks once, and then waits for a message.
        make_heard(&server, &[&client]).await;
        let holder = if is_here { &client } else { &other }.mutex("n");
        let first = soon("the first", holder.lock_with_timeout(LIMIT)).await.expect("free");
        let second = tokio::spawn(lock.lock());
        eventually(LIMIT, "the second waits", async || client.stats().waiters == 1).await;
        if !is_here {
            let queued = async || waiting(&server, "n").await == 1;
            eventually(LIMIT, "it is in the queue", queued).await;
            lock.is_locked().await.expect("an answer behind that to its ask");
        }
        let error = soon("its end", late).await.expect_err("it had no answer");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        // A wait is looked at after a second.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert!(!second.is_finished(), "here: {is_here}: {:?}", second.await);
        first.unlock().await.expect("held");
        let second = soon("the second", second).await.expect("no panic").expect("its turn");
        second.unlock().await.expect("held");
        nothing_left(&server, &client).await;
    }
}

/// The ask of a fair waiter is for nobody else, and its answer changes nothing that others see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_beside_a_fair_waiter_has_its_answer_at_once() {
    let (server, _proxy, client, _spy) = set().await;
    make_heard(&server, &[&client]).await;
    let theirs = connect(&server).await.mutex("n").lock().await.expect("free");
    let fair = tokio::spawn(client.fair_mutex("n").lock());
    let waits = async || client.stats().waiters == 1 && waiting(&server, "n").await == 1;
    eventually(LIMIT, "it waits in the queue", waits).await;
    for lock in [client.mutex("n"), client.fair_mutex("n"), client.mutex("n")] {
        let began_at = Instant::now();
        let tried = soon("the answer", lock.try_lock()).await.expect("an answer");
        let took = began_at.elapsed();
        assert!(tried.is_none(), "it is held");
        assert!(took < server.widened(Duration::from_secs(1)), "{took:?}");
    }
    theirs.unlock().await.expect("held");
    let guard = soon("its turn", fair).await.expect("no panic").expect("its turn comes");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// No grant counts for a while, and that needs no answer: beside others of this process, either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_in_a_quarantine_ends_at_once_beside_one_that_waits() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).restart_quarantine(LIMIT * 4);
    let client = builder.ttl(LIMIT * 4).response_timeout(LIMIT).connect().await.expect("connected");
    let waiting = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
    for _ in 0..2 {
        let began_at = Instant::now();
        let error = client.mutex("n").try_lock().await.expect_err("no grant counts");
        let took = began_at.elapsed();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(took < server.widened(LIMIT / 4), "{took:?}");
    }
    assert!(!waiting.is_finished(), "it waits on");
    waiting.abort();
}
