//! An unlock whose release is not sent yet: the next task of the process to come takes the lock as it is.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use leasehold::{Client, Error, Guard, Mutex};
use tokio::runtime::Runtime;

use crate::{
    checks::{LIMIT, connect, exists, nothing_left, soon},
    support::{Server, Spy, eventually},
};

const MS: Duration = Duration::from_millis(1);
const WINDOW: Duration = Duration::from_secs(1);

type Unlock = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

async fn with_window(server: &Server, window: Duration) -> Client {
    let builder = Client::builder().nodes([server.url()]).handoff_window(window);
    builder.connect().await.expect("the server accepts the client")
}

/// Takes the lock by a lease that has a token for more holds, as one has who waited.
async fn take_after_a_wait(client: &Client, lock: &Mutex) -> Guard {
    let first = lock.lock().await.expect("free");
    let waiting = tokio::spawn(lock.lock());
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
    first.unlock().await.expect("held");
    waiting.await.expect("no panic").expect("its turn comes")
}

/// Polls an unlock for the first time: its hold is over, and its release is not sent yet.
fn begun(guard: Guard) -> Unlock {
    let mut unlock: Unlock = Box::pin(guard.unlock());
    let polled = unlock.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "others go first");
    unlock
}

/// Takes a lock on a server that is about to be asked, and begins to unlock it.
async fn setup(window: Duration) -> (Server, Client, Mutex, Unlock) {
    let server = Server::start().await;
    let client = with_window(&server, window).await;
    let lock = client.mutex("n");
    let guard = take_after_a_wait(&client, &lock).await;
    (server, client, lock, begun(guard))
}

#[tokio::test]
async fn tasks_that_take_turns_use_one_lease() {
    let server = Server::start().await;
    let client = with_window(&server, WINDOW).await;
    let lock = client.mutex("n");
    lock.lock().await.expect("free").unlock().await.expect("held");
    let spy = Spy::on(&server).await;
    let turns = || {
        let lock = lock.clone();
        tokio::spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..500 {
                let guard = lock.lock().await.expect("held");
                assert!(guard.is_held());
                tokens.push(guard.token());
                guard.unlock().await.expect("held");
            }
            tokens
        })
    };
    let (one, other) = (turns(), turns());
    let mut tokens = one.await.expect("no panic");
    tokens.extend(other.await.expect("no panic"));
    tokens.sort_unstable();
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "each turn has its own");
    nothing_left(&server, &client).await;
    let acquires = spy.count("lock_acquire");
    assert!(acquires <= 20, "{acquires} acquires for 1000 turns");
    assert_eq!(spy.count("lock_release"), acquires, "each lease is released once");
}

#[tokio::test]
async fn the_next_to_come_takes_the_lock_as_it_is_and_the_unlock_has_ended() {
    let server = Server::start().await;
    let client = with_window(&server, WINDOW).await;
    let lock = client.mutex("n");
    let guard = take_after_a_wait(&client, &lock).await;
    let (holder, token) = (guard.holder(), guard.token());
    let spy = Spy::on(&server).await;
    let unlock = begun(guard);
    let next = lock.lock().await.expect("held by this process");
    assert_eq!((next.holder(), next.token()), (holder, token + 1));
    unlock.await.expect("its hold is over, and was not lost");
    assert!(next.is_held() && exists(&server, "n").await);
    let attempt = lock.try_lock().await.expect("the server answers");
    assert!(attempt.is_none(), "the lock is held again");
    assert_eq!(spy.count("lock_release"), 0);
    let unlock = begun(next);
    let attempt = lock.try_lock().await.expect("the server answers").expect("it is free");
    unlock.await.expect("held");
    attempt.unlock().await.expect("held");
    nothing_left(&server, &client).await;
    assert_eq!((spy.count("lock_acquire"), spy.count("lock_release")), (0, 1));
}

#[tokio::test]
async fn an_unlock_that_is_dropped_releases_the_lock() {
    let (server, client, lock, unlock) = setup(WINDOW).await;
    assert!(exists(&server, "n").await, "nobody was told");
    drop(unlock);
    // Asked on the same connection, and so behind the release.
    let status = lock.status().await.expect("the server answers");
    assert_eq!(status.holder, None);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn an_unlock_that_is_not_polled_any_more_keeps_others_out_for_the_window_only() {
    let (server, client, _lock, unlock) = setup(20 * MS).await;
    let other = connect(&server).await;
    let began_at = Instant::now();
    let guard = soon("its turn", other.mutex("n").lock()).await.expect("free");
    assert!(began_at.elapsed() < server.widened(500 * MS));
    unlock.await.expect("it was released in time");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_lease_older_than_the_window_is_not_taken_back() {
    let server = Server::start().await;
    let client = with_window(&server, 20 * MS).await;
    let lock = client.mutex("n");
    let guard = take_after_a_wait(&client, &lock).await;
    let holder = guard.holder();
    tokio::time::sleep(25 * MS).await;
    let mut unlock: Unlock = Box::pin(guard.unlock());
    let polled = unlock.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    let next = lock.lock().await.expect("free");
    assert_ne!(next.holder(), holder);
    unlock.await.expect("held");
    next.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn who_wants_other_terms_asks_behind_the_release() {
    for change in [
        |_: &Client, lock: &Mutex| lock.with_lease(LIMIT),
        |_: &Client, lock: &Mutex| lock.with_ttl(4 * LIMIT),
        |_: &Client, lock: &Mutex| lock.with_min_hold(MS),
        // It must not pass those who wait in other processes.
        |client: &Client, lock: &Mutex| client.fair_mutex(lock.name()),
    ] {
        let (server, client, lock, unlock) = setup(WINDOW).await;
        let before = lock.status().await.expect("the server answers");
        let next = change(&client, &lock).try_lock().await.expect("the server answers");
        let next = next.expect("it asks behind the release");
        assert_ne!(Some(next.holder()), before.holder, "it has its own lease");
        unlock.await.expect("held");
        next.unlock().await.expect("held");
        nothing_left(&server, &client).await;
    }
}

#[tokio::test]
async fn a_lock_with_a_shortest_hold_stays_taken_and_is_not_taken_back() {
    let server = Server::start().await;
    let client = with_window(&server, WINDOW).await;
    let lock = client.mutex("n").with_min_hold(300 * MS);
    let guard = take_after_a_wait(&client, &lock).await;
    let unlock: Unlock = Box::pin(guard.unlock());
    unlock.await.expect("held");
    assert!(exists(&server, "n").await, "its time is not over");
    let next = lock.try_lock().await.expect("the server answers");
    assert!(next.is_none(), "nor is it free for this process");
    eventually(LIMIT, "it is over", async || !exists(&server, "n").await).await;
}

/// Whoever has it sent for another does not hear of what became of it.
#[tokio::test]
async fn a_release_that_another_has_sent_tells_its_own_unlock_of_the_loss() {
    let (server, client, lock, unlock) = setup(WINDOW).await;
    server.command(&["DEL", "n"]).await;
    let next = lock.with_lease(LIMIT).lock().await.expect("free");
    let error = unlock.await.expect_err("somebody removed the lock before");
    assert!(error.is_lost(), "{error}");
    next.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_forced_unlock_goes_behind_the_release() {
    let (server, client, lock, unlock) = setup(WINDOW).await;
    let freed = lock.force_unlock().await.expect("the server answers");
    assert!(!freed, "the release was before it");
    unlock.await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_shutdown_sends_what_was_not_sent() {
    let (server, client, _lock, unlock) = setup(WINDOW).await;
    let began_at = Instant::now();
    client.shutdown().await;
    assert!(began_at.elapsed() < server.widened(500 * MS));
    assert!(!exists(&server, "n").await);
    unlock.await.expect("its hold was over before");
}

/// Nobody polls the unlock, so the release is sent at the end of the window.
#[tokio::test]
async fn a_drain_waits_for_what_was_not_sent() {
    let server = Server::start().await;
    let client = with_window(&server, WINDOW).await;
    let lock = client.mutex("n");
    // Asked for behind a release, the lease has a token for one more hold, and nobody has waited for the lock.
    drop(lock.lock().await.expect("free"));
    let unlock = begun(lock.lock().await.expect("free"));
    assert!(client.drain(LIMIT).await, "nothing is held in the end");
    assert!(!exists(&server, "n").await, "nor does the server know of a hold");
    unlock.await.expect("its hold was over before");
}

/// The test's runtime and server, and a guard whose client lives on the other runtime.
fn held_on_another_runtime() -> (Runtime, Server, Runtime, Guard) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let test = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let test = test.expect("a runtime");
    let server = test.block_on(Server::start());
    let guard = runtime.block_on(async {
        let client = with_window(&server, WINDOW).await;
        take_after_a_wait(&client, &client.mutex("n")).await
    });
    (test, server, runtime, guard)
}

#[test]
fn the_end_of_the_runtime_sends_what_was_not_sent() {
    let (test, server, runtime, guard) = held_on_another_runtime();
    let unlock = begun(guard);
    drop(runtime);
    let free = async || !exists(&server, "n").await;
    test.block_on(eventually(LIMIT, "it is free, though the unlock is kept", free));
    drop(unlock);
}

#[test]
fn an_unlock_behind_the_end_of_the_runtime_sends_its_release_at_once() {
    let (test, server, runtime, guard) = held_on_another_runtime();
    drop(runtime);
    let mut unlock: Unlock = Box::pin(guard.unlock());
    let _ = unlock.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let free = async || !exists(&server, "n").await;
    test.block_on(eventually(LIMIT, "it is free, though the unlock is kept", free));
    drop(unlock);
}
