//! Names of locks and of clients.

use std::time::{Duration, Instant};

use leasehold::Error;

use super::{acquiring_errors, asking_errors, builder};
use crate::{
    checks::{LIMIT, client_is_idle, exists, lock_keys, nothing_left, setup, told},
    support::{Server, eventually},
};

#[tokio::test]
async fn a_name_that_cannot_be_a_lock_is_told_by_every_call() {
    let (server, [client]) = setup().await;
    let long = "x".repeat(4097);
    // 4097 bytes of 4096 characters: it is the bytes that count.
    let wide = format!("{}ä", "x".repeat(4095));
    for name in ["", &long, &wide, "leasehold_token:{n}", "redisson_lock_token:{n}"] {
        let lock = client.mutex(name);
        for error in acquiring_errors(&lock).await.into_iter().chain(asking_errors(&lock).await) {
            assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
            assert!(told(&error).len() < 500, "the name is shown whole: {error}");
        }
    }
    assert!(lock_keys(&server).await.is_empty());
    client_is_idle(&client).await;
}

#[tokio::test]
async fn odd_names_lock_and_unlock() {
    let (server, [client, other]) = setup().await;
    let long = "x".repeat(4096);
    let names = [
        "a b",
        "{",
        "}",
        "{}",
        "a{b}c",
        "}{",
        "{{}}",
        "\0",
        "a\0b",
        "\r\n",
        "a\r\n*1\r\n",
        "ä",
        "锁",
        "🔒",
        "*",
        "?[a-z]",
        "%s%n",
        "'; return 1 --",
        "\u{202e}x",
        &long,
    ];
    for name in names {
        let guard = client.mutex(name).lock().await.expect(name);
        assert_eq!(guard.name(), name);
        let lock = other.mutex(name);
        assert_eq!(lock.holder().await.expect(name), Some(guard.holder()), "{name:?}");
        assert!(lock.try_lock().await.expect(name).is_none(), "{name:?}");

        // Waked by the message on its channel: the timers would take two seconds at least.
        let waiter = tokio::spawn(lock.lock());
        eventually(LIMIT, "the other one waits", async || {
            lock.status().await.is_ok_and(|status| status.waiting_clients == 1)
        })
        .await;
        let unlocked_at = Instant::now();
        guard.unlock().await.expect(name);
        let guard = waiter.await.expect("no panic").expect(name);
        assert!(unlocked_at.elapsed() < Duration::from_millis(1500), "{name:?} was not woken");
        guard.unlock().await.expect(name);
        assert!(!exists(&server, name).await, "{name:?}");
    }
    nothing_left(&server, &client).await;
    nothing_left(&server, &other).await;
}

#[tokio::test]
async fn a_bad_client_name_is_told_by_connect() {
    let server = Server::start().await;
    let long = "x".repeat(65);
    for name in ["", &long, "a:b", "a b", "ä", "a\n", "a/b", "{a}"] {
        let error = builder(&server).name(name).connect().await.expect_err("not a client's name");
        assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
    }
    let longest = "x".repeat(64);
    for name in ["a", "A-Z.9_", &longest] {
        let client = builder(&server).name(name).connect().await.expect("a client's name");
        let guard = client.mutex("n").lock().await.expect("free");
        assert_eq!((client.name(), guard.holder().client()), (name, Some(name)));
        guard.unlock().await.expect("held");
    }
}
