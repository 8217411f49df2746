//! Keys that are no locks, or not locks of ours.

use std::time::{Duration, Instant};

use leasehold::Error;

use super::{MS, acquiring_errors, asking_errors};
use crate::{
    checks::{AT_ONCE, LIMIT, client_is_idle, exists, nothing_left, setup, soon},
    support::{eventually, waiting},
};

#[tokio::test]
async fn a_key_of_another_type_is_told_by_every_call_and_left_alone() {
    let (server, [client]) = setup().await;
    let others: [&[&str]; 5] = [
        &["SET", "string", "1"],
        &["RPUSH", "list", "1"],
        &["SADD", "set", "1"],
        &["ZADD", "sorted", "1", "1"],
        &["XADD", "stream", "*", "f", "1"],
    ];
    for command in others {
        server.command(command).await;
        let name = command[1];
        let before = server.command(&["DUMP", name]).await;
        let lock = client.mutex(name);
        let started_at = Instant::now();
        let mut errors = acquiring_errors(&lock).await;
        errors.extend(asking_errors(&lock).await);
        assert!(started_at.elapsed() < 2 * AT_ONCE);
        for error in errors {
            assert!(
                matches!(&error, Error::WrongType { lock, .. } if &**lock == name),
                "{error:?}"
            );
        }
        assert_eq!(server.command(&["DUMP", name]).await, before, "{name} was changed");
    }
    let status = client.mutex("free").force_unlock().await.expect("nothing to free");
    assert!(!status);
    client_is_idle(&client).await;
}

#[tokio::test]
async fn a_waiter_learns_that_the_key_has_become_another_type() {
    let (server, [holder, client]) = setup().await;
    let held = holder.mutex("n").with_lease(400 * MS).lock().await.expect("free");
    let waiter = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "it waits", async || waiting(&server, "n").await == 1).await;
    server.command(&["SET", "n", "1"]).await;
    let answer = soon("no hang", waiter).await.expect("no panic");
    assert!(matches!(answer, Err(Error::WrongType { .. })), "{answer:?}");
    let error = held.unlock().await.expect_err("it is not there any more");
    assert!(matches!(error, Error::Lost { .. } | Error::WrongType { .. }), "{error:?}");
    server.command(&["DEL", "n"]).await;
    client_is_idle(&client).await;
    nothing_left(&server, &holder).await;
}

#[tokio::test]
async fn a_counter_of_another_type_gives_an_error_and_no_lock() {
    let (server, [client]) = setup().await;
    server.command(&["RPUSH", "leasehold_token:{n}", "1"]).await;
    let answer = soon("no hang", client.mutex("n").lock()).await;
    answer.expect_err("there is no token to be had");
    assert!(client.mutex("n").try_lock().await.is_err());
    assert!(!exists(&server, "n").await);
    server.command(&["DEL", "leasehold_token:{n}"]).await;
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_replaced() {
    let (server, [client]) = setup().await;
    server.command(&["SET", "leasehold_token:{n}", "no number", "PX", "600000"]).await;
    let guard = client.mutex("n").lock_with_timeout(Duration::from_secs(5)).await.expect("free");
    assert!(guard.token() > 0);
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// The poll that is the last resort comes every 2 to 4 seconds.
#[tokio::test]
async fn a_hash_without_an_end_is_waited_for_and_taken_soon_after_it_goes_silently() {
    let (server, [client]) = setup().await;
    server.command(&["HSET", "n", "by:hand", "1"]).await;
    let lock = client.mutex("n");
    let status = lock.status().await.expect("a status");
    assert_eq!(status.holder.map(|holder| holder.as_str().to_owned()), Some("by:hand".to_owned()));
    assert_eq!((status.remaining, status.since), (None, None));
    assert_eq!(lock.remaining_ttl().await.expect("a status"), Some(Duration::MAX));
    let error = lock.lock_with_timeout(300 * MS).await.expect_err("it is held");
    assert!(matches!(error, Error::Timeout { remaining: None, .. }), "{error:?}");

    let before = server.scripts_run().await;
    let waiter = tokio::spawn(lock.lock());
    // It has asked, subscribed and asked again: now it waits, and nobody will tell it anything.
    eventually(LIMIT, "it waits", async || server.scripts_run().await - before >= 2).await;
    server.command(&["DEL", "n"]).await;
    let deleted_at = Instant::now();
    let guard = soon("no hang", waiter).await.expect("no panic");
    let waited = deleted_at.elapsed();
    assert!(waited < server.widened(Duration::from_millis(4100)), "{waited:?}");
    guard.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_count_that_is_no_number_is_shown_as_zero() {
    let (server, [client]) = setup().await;
    for count in ["many", "-1"] {
        server.command(&["HSET", "n", "by:hand", count]).await;
        let status = client.mutex("n").status().await.expect("an answer");
        assert_eq!((status.hold_count, status.holder.is_some()), (0, true), "{count}");
    }
}
