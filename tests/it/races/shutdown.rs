//! Shutdowns, drains and runtimes that end while a request is in flight.

use std::{pin::pin, time::Instant};

use leasehold::{Client, Error};

use super::{
    CHANNEL, MS, builder, connect_through, know_scripts, on_its_own_runtime, poll_once, queued,
    runtime,
};
use crate::{
    checks::{
        LIMIT, client_is_idle, connect, exists, lock_keys, no_connection_left, nothing_left, setup,
        setup_with_proxy, soon,
    },
    support::{Spy, eventually, subscribers},
};

/// The answer to the ask, "held by another", comes after the shutdown: who asked may not wait on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ask_in_flight_at_a_shutdown_ends_closed() {
    let (server, proxy) = setup_with_proxy().await;
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
        let answer = soon("it ends", waiting).await;
        let answer = answer.expect("no panic");
        assert!(matches!(answer, Err(Error::Closed { .. })), "{answer:?}");
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
    let (server, proxy) = setup_with_proxy().await;
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
    assert_eq!(client.stats().releases_pending, 0, "{:?}", client.stats());
    assert!(lock_keys(&server).await.is_empty());
}

/// Nothing tells a drain of a wait that ends by its time, or of a hold that ends by its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_with_the_last_wait_and_the_last_hold_that_end_by_time() {
    let (server, [client, other]) = setup().await;
    let theirs = other.mutex("n").lock().await.expect("free");
    let began_at = Instant::now();
    let waiting = tokio::spawn(client.mutex("n").lock_with_timeout(400 * MS));
    let guard = client.mutex("m").with_lease(600 * MS).lock().await.expect("free");
    queued(&server).await;
    assert!(client.drain(LIMIT).await, "nothing is held");
    let took = began_at.elapsed();
    assert!(took < server.widened(750 * MS), "{took:?}");
    assert!(!guard.is_held());
    let answer = waiting.await.expect("no panic");
    assert!(matches!(answer, Err(Error::Timeout { .. })), "{answer:?}");
    theirs.unlock().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_an_ask_in_flight() {
    let (server, proxy) = setup_with_proxy().await;
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

/// One that waits behind it takes over from it after a while, and ends in vain: the first may be granted the lock nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_an_ask_from_which_another_took_over() {
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).response_timeout(LIMIT / 3);
    let client = builder.connect().await.expect("the proxy passes on");
    know_scripts(&client).await;
    proxy.hold_replies();
    let asking = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "it is granted", async || exists(&server, "n").await).await;
    let waited = client.mutex("n").lock_with_timeout(400 * MS).await;
    assert!(matches!(waited, Err(Error::Unavailable { .. })), "{waited:?}");
    assert!(!client.drain(50 * MS).await, "somebody is about to hold");
    proxy.release_replies();
    let guard = asking.await.expect("no panic").expect("it asked before");
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
                    (stats.locks, stats.waiters) == (1, waiter)
                };
                eventually(LIMIT, "it asks, or waits for the one that does", came).await;
            }
        });
        tasks.shutdown_background();
        tests.block_on(async {
            for waiting in waits {
                let answer = soon("it ends", waiting).await;
                let answer = answer.expect("no panic");
                assert!(
                    matches!(answer, Err(Error::Closed { .. })),
                    "{waiters} waiters: {answer:?}"
                );
            }
            for _ in 0..2 {
                let drain = tokio::time::timeout(LIMIT, client.drain(100 * MS));
                drain.await.expect("a drain ends");
                soon("a shutdown ends", client.shutdown()).await;
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
        soon("a shutdown ends", client.shutdown()).await;
        eventually(LIMIT, "it is lost by its deadline", async || !guard.is_held()).await;
    });
}

/// A connect is dropped ever later, until it succeeds; and clients come and go, with one waiting for the other.
#[test]
fn connects_that_are_dropped_and_clients_that_go_leave_no_task() {
    let (tests, tasks) = (runtime(), runtime());
    tests.block_on(async {
        let (server, proxy) = setup_with_proxy().await;
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
