//! Clients that are drained or shut down.

use std::time::{Duration, Instant};

use leasehold::{Client, ClosedReason, Error, Guard, LossReason};

use super::{MS, at_once, gone_in_the_end, is_closed};
use crate::{
    checks::{
        LIMIT, client_is_idle, connect, exists, lock_keys, no_connection_left, nothing_left, setup,
        soon,
    },
    support::{Server, eventually},
};

#[tokio::test]
async fn draining_lets_holders_and_those_who_wait_finish_and_nobody_new_in() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    let waiter = tokio::spawn(lock.lock());
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;

    assert!(client.is_ready());
    assert!(!client.drain(50 * MS).await, "something is held");
    assert!(!client.is_ready(), "no work that needs a new lock is to come here");
    for name in ["n", "free"] {
        let lock = client.mutex(name);
        assert!(is_closed(&at_once("lock", lock.lock()).await, ClosedReason::Drained));
        assert!(is_closed(&at_once("try_lock", lock.try_lock()).await, ClosedReason::Drained));
        assert!(is_closed(
            &at_once("lock_with_timeout", lock.lock_with_timeout(LIMIT)).await,
            ClosedReason::Drained
        ));
    }
    let inner = guard.reenter().expect("a holder may nest");
    let nested = lock.owned_by(guard.owner()).lock().await.expect("a holder may nest");
    assert!(guard.is_held() && lock.is_locked().await.expect("it may still be asked about"));

    let draining = tokio::spawn({
        let client = client.clone();
        async move { client.drain(LIMIT).await }
    });
    drop((inner, nested));
    assert!(guard.is_held() && !draining.is_finished());
    guard.unlock().await.expect("held");
    let next = at_once("the waiter", waiter).await.expect("no panic").expect("it waited before");
    assert!(!draining.is_finished());
    next.unlock().await.expect("held");
    assert!(at_once("drain", draining).await.expect("no panic"), "nothing is held");
    assert!(at_once("draining again", client.drain(Duration::MAX)).await);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_drain_ends_when_the_held_lock_is_lost() {
    let (server, [client]) = setup().await;
    let guard = client.mutex("n").with_lease(200 * MS).lock().await.expect("free");
    assert!(soon("no hang", client.drain(Duration::MAX)).await);
    assert!(!guard.is_held());
    drop(guard);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn shutting_down_tells_holders_and_waiters_and_releases_before_it_returns() {
    let (server, [client, other]) = setup().await;
    let theirs = other.mutex("theirs").lock().await.expect("free");
    let guards = [
        client.mutex("watched").lock().await.expect("free"),
        client.mutex("fixed").with_lease(LIMIT).lock().await.expect("free"),
    ];
    let inner = guards[0].reenter().expect("held");
    let lost: Vec<_> = guards.iter().map(|guard| tokio::spawn(guard.lost())).collect();
    let body = tokio::spawn(client.mutex("body").run(async |_: &Guard| {
        std::future::pending::<()>().await;
    }));
    let waits = [
        tokio::spawn(client.mutex("watched").lock()),
        tokio::spawn(client.mutex("theirs").lock()),
        tokio::spawn(client.mutex("theirs").lock_with_timeout(LIMIT)),
    ];
    eventually(LIMIT, "all wait", async || {
        client.stats().waiters == 3 && client.holds().len() == 3
    })
    .await;

    at_once("shutdown", client.shutdown()).await;
    assert_eq!(lock_keys(&server).await, ["theirs"], "all of its locks are released");
    assert!(client.holds().is_empty());
    for wait in waits {
        let answer = at_once("a wait", wait).await.expect("no panic");
        assert!(is_closed(&answer, ClosedReason::Shutdown), "{answer:?}");
    }
    for lost in lost {
        assert_eq!(at_once("lost", lost).await.expect("no panic"), LossReason::Shutdown);
    }
    let answer = at_once("run", body).await.expect("no panic");
    assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Shutdown, .. })), "{answer:?}");
    assert!(is_closed(&at_once("lock", client.mutex("free").lock()).await, ClosedReason::Shutdown));
    assert!(guards.iter().chain([&inner]).all(|guard| !guard.is_held()));
    assert!(inner.reenter().is_err());
    for guard in guards.into_iter().chain([inner]) {
        let answer = at_once("unlock", guard.unlock()).await;
        assert!(
            matches!(answer, Err(Error::Lost { reason: LossReason::Shutdown, .. })),
            "{answer:?}"
        );
    }
    client_is_idle(&client).await;
    at_once("shutting down again", client.shutdown()).await;
    drop(client);

    assert!(theirs.is_held());
    theirs.unlock().await.expect("held");
    nothing_left(&server, &other).await;
    drop(other);
    no_connection_left(&server).await;
}

/// Guards that are never dropped show that it is the shutdown which gives them back.
#[tokio::test]
async fn a_client_is_shut_down_after_its_work_whatever_becomes_of_that() {
    let (server, [client]) = setup().await;
    let failing = client.shutdown_after(async {
        std::mem::forget(client.mutex("n").lock().await.expect("free"));
        Err::<(), _>("an error of the work")
    });
    assert_eq!(at_once("the work", failing).await, Err("an error of the work"));
    assert!(!exists(&server, "n").await);
    assert!(is_closed(&client.mutex("n").lock().await, ClosedReason::Shutdown));

    let client = connect(&server).await;
    let panicking = tokio::spawn(async move {
        let work = async {
            std::mem::forget(client.mutex("n").lock().await.expect("free"));
            std::panic::resume_unwind(Box::new("a panic without a message"));
        };
        client.shutdown_after(work).await
    });
    let end: Result<(), _> = at_once("the work", panicking).await;
    assert!(end.expect_err("it panicked").is_panic());
    assert!(!exists(&server, "n").await);
}

#[tokio::test]
async fn shutting_down_without_a_server_ends_in_its_time() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).response_timeout(300 * MS);
    let client = builder.connect().await.expect("connected");
    let guard = client.mutex("n").lock().await.expect("free");
    server.pause();
    let started_at = Instant::now();
    client.shutdown().await;
    let took = started_at.elapsed();
    assert!(took < server.widened(350 * MS), "{took:?}");
    assert!(!guard.is_held());
    server.resume();
    drop((guard, client));
    gone_in_the_end(&server, "n").await;
    no_connection_left(&server).await;
}
