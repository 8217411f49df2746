//! Addresses that cannot work.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Instant,
};

use leasehold::{Client, Error};

use crate::{
    checks::{AT_ONCE, exists, told},
    support::Server,
};

#[tokio::test]
async fn an_address_that_cannot_work_is_refused_at_once_and_never_shown() {
    let server = Server::start().await;
    let mut bad: Vec<Vec<String>> = vec![Vec::new(), vec![server.url(), server.url()]];
    for url in [
        "",
        "canary",
        "user:canary@localhost",
        "redis://",
        "redis://user:canary@",
        "redis://user:canary@:no port/",
        "redis://user:canary@localhost:99999",
        "redis://user:canary@localhost:6379/no-number",
        "redis://user:canary@[::1",
        "redis://user:canary@local host",
        "redis://user:canary%zz@localhost/x",
        "http://user:canary@localhost",
        "redis+sentinel://user:canary@localhost",
        "postgres://user:canary@localhost/0",
    ] {
        bad.push(vec![url.to_owned()]);
    }
    if cfg!(not(feature = "tls")) {
        bad.push(vec!["rediss://user:canary@localhost:6379".to_owned()]);
    }
    for urls in bad {
        let builder = Client::builder().nodes(urls.clone());
        assert!(!format!("{builder:?}").contains("canary"), "{builder:?}");
        let started_at = Instant::now();
        let error =
            builder.connect().await.err().unwrap_or_else(|| panic!("{urls:?} was accepted"));
        assert!(matches!(error, Error::InvalidConfig { .. }), "{urls:?}: {error:?}");
        assert!(!told(&error).contains("canary"), "{}", told(&error));
        assert!(started_at.elapsed() < AT_ONCE, "{urls:?}");
    }
}

#[tokio::test]
async fn a_database_that_the_server_has_not_is_an_error_at_connect() {
    let server = Server::start().await;
    for database in ["9999", "-1"] {
        let started_at = Instant::now();
        let url = format!("{}/{database}", server.url());
        let error = Client::connect(&url).await.expect_err("there are 16 databases");
        assert!(told(&error).contains("DB index"), "{}", told(&error));
        assert!(started_at.elapsed() < AT_ONCE);
    }

    let client = Client::connect(&format!("{}/3", server.url())).await.expect("it has that one");
    let guard = client.mutex("n").lock().await.expect("free");
    assert!(!exists(&server, "n").await, "it is in another database");
    guard.unlock().await.expect("held");
}

#[test]
fn connecting_outside_of_any_runtime_is_refused() {
    let mut connecting = pin!(Client::connect("redis://127.0.0.1:1"));
    let Poll::Ready(answer) = connecting.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("there is nothing to wait for");
    };
    assert!(matches!(answer, Err(Error::InvalidConfig { .. })), "{answer:?}");
}
