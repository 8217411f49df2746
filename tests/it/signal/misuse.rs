//! Bad input, keys that are no signal, missing rights, several servers; and the handles for threads.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, Error, blocking};
use redis::Value;

use super::{GROUP_KEY, KEY, MS};
use crate::checks::setup;
use crate::support::Server;

/// The errors of every call.
async fn errors(client: &Client, name: &str) -> Vec<Error> {
    let (signal, group) = (client.signal(name), client.signal_group(name));
    vec![
        signal.seen().await.expect_err("it is refused"),
        signal.notify_all(b"").await.expect_err("it is refused"),
        signal.changed(0).await.expect_err("it is refused"),
        signal.changed_with_timeout(0, Duration::ZERO).await.expect_err("it is refused"),
        group.seen().await.expect_err("it is refused"),
        group.notify(["a"]).await.expect_err("it is refused"),
        group.changed(0).await.expect_err("it is refused"),
        group.changed_with_timeout(0, Duration::ZERO).await.expect_err("it is refused"),
    ]
}

#[tokio::test]
async fn over_several_servers_every_call_says_at_once_that_one_is_needed() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let builder = Client::builder().nodes(servers.iter().map(Server::url));
    let client = builder.connect().await.expect("they accept the client");
    for error in errors(&client, "prices").await {
        assert!(matches!(error, Error::SingleServerOnly { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn bad_names_and_data_are_refused_before_the_server_is_asked() {
    let (server, [client]) = setup().await;
    for name in ["", "leasehold_mark", "leasehold_signal:{prices}"] {
        for error in errors(&client, name).await {
            assert!(matches!(error, Error::InvalidName { .. }), "{name}: {error:?}");
        }
    }
    let (signal, group) = (client.signal("prices"), client.signal_group("prices"));
    let (long, many) = ("x".repeat(1025), vec!["a"; 1001]);
    for error in [
        signal.notify_all(vec![0; 64 * 1024 + 1]).await.expect_err("it is refused"),
        group.notify([""; 0]).await.expect_err("it is refused"),
        group.notify(&many).await.expect_err("it is refused"),
        group.notify(["a", ""]).await.expect_err("it is refused"),
        group.notify([&long]).await.expect_err("it is refused"),
    ] {
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    }
    assert_eq!(server.command(&["DBSIZE"]).await, Value::Int(0));
    group.notify(&many[1..]).await.expect("as many as can be");
    group.notify([&long[1..], "ä\r\n"]).await.expect("as long as can be");
    assert_eq!(server.command(&["ZCARD", GROUP_KEY]).await, Value::Int(4));
}

#[tokio::test]
async fn a_key_that_is_no_signal_is_told() {
    let (server, [client]) = setup().await;
    for key in [KEY, GROUP_KEY] {
        server.command(&["SET", key, "x", "EX", "60"]).await;
    }
    for error in errors(&client, "prices").await {
        assert!(matches!(error, Error::WrongType { .. }), "{error:?}");
    }
}

/// A signal runs no command that a lock does not need: who connected may use both.
#[tokio::test]
async fn a_user_who_may_not_use_the_keys_is_denied() {
    let server = Server::start().await;
    let rules = ["reset", "on", ">p", "~leasehold_mark*", "~locks:*", "&*", "+@all"];
    server.command(&[&["ACL", "SETUSER", "u"], &rules[..]].concat()).await;
    let client = Client::connect(&server.url_as("u", "p")).await.expect("it has the commands");
    for error in errors(&client, "prices").await {
        assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_client_that_is_closed_ends_those_who_wait() {
    let (server, [client]) = setup().await;
    let wait = tokio::spawn(client.signal("prices").changed(0));
    super::somebody_listens(&server, super::CHANNEL, 1).await;
    client.shutdown().await;
    let waited = wait.await.expect("no panic").expect_err("closed");
    let mut errors = errors(&client, "prices").await;
    errors.push(waited);
    for error in errors {
        assert!(matches!(error, Error::Closed { .. }), "{error:?}");
    }
}

#[test]
fn for_threads_every_call_does_what_its_async_twin_does() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let server = runtime.block_on(Server::start());
    let client = blocking::Client::connect(&server.url()).expect("connected");
    let (signal, group) = (client.signal("prices"), client.signal_group("prices"));
    assert_eq!((signal.name(), group.name()), ("prices", "prices"));
    assert_eq!(signal.seen().expect("an answer"), 0);
    let there = std::thread::spawn({
        let signal = signal.clone();
        move || signal.changed(0)
    });
    signal.notify_all("x").expect("an answer");
    let notice = there.join().expect("no panic").expect("a signal");
    assert_eq!(*notice.data, *b"x");
    assert!(
        signal.changed_with_timeout(notice.number, 200 * MS).expect_err("no more").is_timeout()
    );
    let both = [(signal.clone(), 0), (client.signal("taxes"), 0)];
    let (which, _) =
        blocking::Signal::any_changed_with_timeout(&both, Duration::MAX).expect("a signal");
    assert_eq!(which, 0);
    assert!(
        blocking::Signal::all_changed_with_timeout(&both, 200 * MS).expect_err("one").is_timeout()
    );
    let seen = group.seen().expect("an answer");
    group.notify(["apples"]).expect("an answer");
    let changes = group.changed(seen).expect("an answer");
    assert_eq!(changes.names, [Arc::from("apples")]);
    assert!(group.changed_with_timeout(changes.number, 200 * MS).expect_err("no").is_timeout());
    let error = runtime.block_on(async { signal.changed(0) }).expect_err("it would block");
    assert!(matches!(error, Error::InAsyncContext { .. }), "{error:?}");
}
