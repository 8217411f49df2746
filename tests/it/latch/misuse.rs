//! Bad input, keys that are no latch, missing rights, and several servers.

use std::time::Duration;

use leasehold::{Client, Error, Latch, LockKind};
use redis::Value;

use super::{HOUR, MS};
use crate::checks::{connect, setup};
use crate::support::Server;

/// The errors of every call.
async fn errors(latch: &Latch) -> Vec<Error> {
    vec![
        latch.try_set_count(1, HOUR).await.expect_err("it is refused"),
        latch.count_down().await.expect_err("it is refused"),
        latch.count().await.expect_err("it is refused"),
        latch.wait().await.expect_err("it is refused"),
        latch.wait_with_timeout(Duration::ZERO).await.expect_err("it is refused"),
        latch.wait_with_timeout(HOUR).await.expect_err("it is refused"),
        latch.delete().await.expect_err("it is refused"),
    ]
}

#[tokio::test]
async fn over_several_servers_every_call_says_at_once_that_one_is_needed() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let builder = Client::builder().nodes(servers.iter().map(Server::url));
    let client = builder.connect().await.expect("they accept the client");
    for error in errors(&client.latch("ready")).await {
        let Error::SingleServerOnly { kind, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*kind, LockKind::Latch);
    }
}

#[tokio::test]
async fn a_bad_name_is_told_by_every_call() {
    let (_server, [client]) = setup().await;
    for name in ["", "leasehold_mark", "leasehold_queue:{ready}"] {
        for error in errors(&client.latch(name)).await {
            assert!(matches!(error, Error::InvalidName { .. }), "{name}: {error:?}");
        }
    }
}

#[tokio::test]
async fn a_count_or_an_end_that_makes_no_sense_is_refused() {
    let (server, [client]) = setup().await;
    let latch = client.latch("ready");
    let (most, too_long) = (999_999_999_999_999, HOUR * 24 * 367);
    for (count, ttl) in [
        (0, HOUR),
        (most + 1, HOUR),
        (u64::MAX, HOUR),
        (1, Duration::ZERO),
        (1, 9 * MS),
        (1, too_long),
    ] {
        let error = latch.try_set_count(count, ttl).await.expect_err("it is refused");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    }
    assert_eq!(server.command(&["DBSIZE"]).await, Value::Int(0), "nobody asked the server");
    for ttl in [10 * MS, HOUR * 24 * 366, Duration::MAX] {
        assert!(latch.try_set_count(most, ttl).await.expect("an answer"));
        assert!(latch.count().await.is_ok_and(|left| left == most) || ttl < HOUR);
        assert!(latch.count_down().await.is_ok_and(|left| left == most - 1) || ttl < HOUR);
        latch.delete().await.expect("an answer");
    }
}

#[tokio::test]
async fn a_lock_is_no_latch_and_a_latch_is_no_lock() {
    let (server, [client]) = setup().await;
    let guard = client.mutex("ready").lock().await.expect("free");
    for error in errors(&client.latch("ready")).await {
        assert!(matches!(error, Error::WrongType { .. }), "{error:?}");
    }
    guard.unlock().await.expect("nobody touched it");
    for text in ["words", "1.5", "0x10", "9007199254740993"] {
        server.command(&["SET", "ready", text]).await;
        for error in errors(&client.latch("ready")).await {
            assert!(matches!(error, Error::WrongType { .. }), "{text}: {error:?}");
        }
        assert_eq!(server.command(&["GET", "ready"]).await, Value::BulkString(text.into()));
    }
    server.command(&["SET", "ready", "2"]).await;
    let error = client.mutex("ready").lock().await.expect_err("it is a latch");
    assert!(matches!(error, Error::WrongType { .. }), "{error:?}");
}

/// A latch runs no command that a lock does not need: who connected may use both.
#[tokio::test]
async fn a_user_who_may_not_use_the_key_is_denied_and_changes_nothing() {
    let server = Server::start().await;
    server.command(&["SET", "ready", "2"]).await;
    let rules = ["reset", "on", ">p", "~leasehold_*", "~locks:*", "&*", "+@all"];
    server.command(&[&["ACL", "SETUSER", "u"], &rules[..]].concat()).await;
    let client = Client::connect(&server.url_as("u", "p")).await.expect("it has the commands");
    for error in errors(&client.latch("ready")).await {
        assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    }
    let latch = connect(&server).await.latch("ready");
    assert_eq!(latch.count().await.expect("an answer"), 2);
}
