//! Clients whose locks all begin with a prefix, and users of the server who may touch no others.

use std::time::Duration;

use leasehold::{Client, Error};

use crate::{
    checks::{AT_ONCE, LIMIT, connect, lock_keys, nothing_left},
    support::{self, Server, eventually},
};

async fn prefixed(url: &str, prefix: &str) -> Client {
    let client = Client::builder().nodes([url]).name_prefix(prefix).connect().await;
    client.expect("connected")
}

/// The user that SECURITY.md makes, for the names that it speaks of.
async fn documented_user(server: &Server) -> String {
    let page = include_str!("../../SECURITY.md");
    let (_, rules) = page.split_once("ACL SETUSER locks reset on >password").expect("the rules");
    let (rules, _) = rules.split_once("```").expect("the end of the rules");
    let start = ["ACL", "SETUSER", "locks", "reset", "on", ">password"];
    let words: Vec<&str> = start.into_iter().chain(rules.split_whitespace()).collect();
    server.command(&words).await;
    server.url_as("locks", "password")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefix_begins_the_names_of_all_keys_and_of_the_channel() {
    let server = Server::start().await;
    let (shop, plain) = (prefixed(&server.url(), "shop:").await, connect(&server).await);
    let guard = shop.mutex("orders:7").lock().await.expect("free");
    assert_eq!(guard.name(), "shop:orders:7");
    assert_eq!(shop.mutex("orders:7").name(), "shop:orders:7");
    assert_eq!(lock_keys(&server).await, ["shop:orders:7"]);
    let counter = server.command(&["EXISTS", "leasehold_token:{shop:orders:7}"]).await;
    assert_eq!(counter, redis::Value::Int(1));

    assert!(plain.mutex("shop:orders:7").try_lock().await.expect("asked").is_none());
    assert!(plain.mutex("orders:7").try_lock().await.expect("asked").is_some(), "another lock");
    let waiting = tokio::spawn(plain.mutex("shop:orders:7").lock_with_timeout(LIMIT));
    let waits = async || support::waiting(&server, "shop:orders:7").await == 1;
    eventually(LIMIT, "it waits in the queue", waits).await;
    guard.unlock().await.expect("held");
    waiting.await.expect("no panic").expect("woken").unlock().await.expect("held");
    nothing_left(&server, &shop).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_for_locks_with_that_prefix_and_for_no_others() {
    let server = Server::start().await;
    let url = documented_user(&server).await;
    let (one, other) = (prefixed(&url, "orders:").await, prefixed(&url, "orders:").await);
    for name in ["7", "a long name with spaces"] {
        let lock = one.mutex(name);
        let guard = lock.lock().await.expect("allowed");
        assert_eq!(lock.status().await.expect("allowed").holder, Some(guard.holder()));
        let waiting = tokio::spawn(other.mutex(name).lock());
        eventually(LIMIT, "it waits", async || {
            support::waiting(&server, &format!("orders:{name}")).await == 1
        })
        .await;
        let waits = Duration::from_millis(100);
        assert!(one.mutex(name).try_lock_for(waits).await.expect("allowed").is_none());
        guard.unlock().await.expect("held");
        let next = tokio::time::timeout(AT_ONCE * 2, waiting).await;
        next.expect("woken").expect("no panic").expect("allowed").unlock().await.expect("held");
    }
    let elsewhere = prefixed(&url, "other:").await;
    let denied = elsewhere.mutex("7").try_lock().await;
    assert!(matches!(denied, Err(Error::Denied { .. })), "{denied:?}");
    nothing_left(&server, &one).await;
}

#[tokio::test]
async fn a_prefix_that_cannot_be_one_is_refused() {
    let server = Server::start().await;
    let long = "x".repeat(257);
    for prefix in ["{shop}:", "shop}", &long] {
        let refused = Client::builder().nodes([server.url()]).name_prefix(prefix).connect().await;
        assert!(matches!(refused, Err(Error::InvalidName { .. })), "{prefix:?}: {refused:?}");
    }
    let client = prefixed(&server.url(), "shop:").await;
    for name in [String::new(), "x".repeat(4092)] {
        let refused = client.mutex(name).try_lock().await;
        assert!(matches!(refused, Err(Error::InvalidName { .. })), "{refused:?}");
    }
    let counters = prefixed(&server.url(), "leasehold_token:").await;
    let refused = counters.mutex("7").try_lock().await;
    assert!(matches!(refused, Err(Error::InvalidName { .. })), "{refused:?}");
}

#[tokio::test]
async fn threads_have_prefixes_too() {
    let server = Server::start().await;
    let url = server.url();
    let name = tokio::task::spawn_blocking(move || {
        let client = leasehold::blocking::Client::builder().nodes([url]).name_prefix("shop:");
        let client = client.connect_blocking().expect("connected");
        client.mutex("7").lock().expect("free").name().to_owned()
    });
    assert_eq!(name.await.expect("no panic"), "shop:7");
}
