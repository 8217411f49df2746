//! Connections that break, and logins that are refused.

use std::time::{Duration, Instant};

use leasehold::{Client, Error};

use super::{MS, somebody_waits, unavailable, user};
use crate::{
    checks::{
        AT_ONCE, LIMIT, connect, lock_keys, nothing_left, setup, setup_with_proxy, soon, told,
    },
    support::{Outage, Server, eventually},
};

#[tokio::test]
async fn killed_connections_cost_neither_the_holder_nor_the_waiter_the_lock() {
    let (server, [holder, client]) = setup().await;
    let guard = holder.mutex("n").with_ttl(2 * Duration::from_secs(1)).lock().await.expect("free");
    let waiter = tokio::spawn(client.mutex("n").lock());
    somebody_waits(&holder.mutex("n")).await;
    for round in 0..4 {
        let before = (holder.stats().connections_made, client.stats().connections_made);
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
        eventually(LIMIT, "both connect again", async || {
            holder.stats().connections_made > before.0 && client.stats().connections_made > before.1
        })
        .await;
        assert!(guard.is_held(), "round {round}");
        assert!(!waiter.is_finished(), "round {round}");
    }
    // Longer than the TTL: the renewals went on.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert!(guard.is_held());
    guard.unlock().await.expect("held");
    let unlocked_at = Instant::now();
    let guard = soon("no hang", waiter).await.expect("no panic");
    assert!(unlocked_at.elapsed() < server.widened(100 * MS), "{:?}", unlocked_at.elapsed());
    guard.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
    nothing_left(&server, &holder).await;
}

#[tokio::test]
async fn a_network_that_swallows_answers_leaves_no_lock_behind() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::builder()
        .nodes([proxy.url()])
        .response_timeout(100 * MS)
        .unavailable_after(300 * MS)
        .connect()
        .await
        .expect("connected");
    let test = async |outage: &Outage<'_>| {
        outage.begins();
        unavailable(client.mutex("a").try_lock().await);
        unavailable(client.mutex("b").lock_with_timeout(150 * MS).await);
        unavailable(client.mutex("c").lock().await);
        outage.ends().await;
        nothing_left(&server, &client).await;
        for name in ["a", "b", "c"] {
            let guard = client.mutex(name).lock_with_timeout(LIMIT).await.expect("free");
            guard.unlock().await.expect("held");
        }
        assert!(lock_keys(&server).await.is_empty());
    };
    Outage::unanswered([&proxy]).twice(test).await;
}

#[tokio::test]
async fn a_refused_login_is_denied_at_connect_without_showing_the_password() {
    let server = Server::with(&["--requirepass", "right"]).await;
    let urls = [
        format!("redis://127.0.0.1:{}", server.port()),
        format!("redis://:canary@127.0.0.1:{}", server.port()),
        server.url_as("nobody", "canary"),
        server.url_as("default", "canary"),
    ];
    for url in urls {
        let started_at = Instant::now();
        let error = Client::connect(&url).await.expect_err("not the password");
        assert!(matches!(error, Error::Denied { .. }), "{url}: {error:?}");
        assert!(!told(&error).contains("canary"), "{}", told(&error));
        assert!(started_at.elapsed() < AT_ONCE);
    }
    let client = connect(&server).await;
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_password_changed_while_connected_is_told_once_the_connection_is_made_again() {
    let server = Server::start().await;
    let url = user(&server, "u", &["~*", "&*", "+@all"]).await;
    let client = Client::connect(&url).await.expect("the password is right");
    server.command(&["ACL", "SETUSER", "u", "resetpass", ">other"]).await;
    server.command(&["CLIENT", "KILL", "USER", "u"]).await;
    let lock = client.mutex("n");
    eventually(LIMIT, "the login is denied", async || {
        matches!(lock.try_lock().await, Err(Error::Denied { .. }))
    })
    .await;
    let error = lock.lock().await.expect_err("denied");
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    server.command(&["ACL", "SETUSER", "u", "resetpass", ">pw"]).await;
    eventually(LIMIT, "it is let in again", async || lock.try_lock().await.is_ok()).await;
    nothing_left(&server, &client).await;
}
