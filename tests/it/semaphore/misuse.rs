//! Bad input, keys that are no semaphore, missing rights, and several servers.

use leasehold::{Client, Error, LockKind, Semaphore};
use redis::Value;

use super::{MS, api};
use crate::checks::{LIMIT, connect, setup};
use crate::support::Server;

/// The errors of every call.
async fn errors(semaphore: &Semaphore) -> Vec<Error> {
    let mut errors = vec![
        semaphore.acquire().await.expect_err("it is refused"),
        semaphore.acquire_many(1).await.expect_err("it is refused"),
        semaphore.acquire_with_timeout(LIMIT).await.expect_err("it is refused"),
        semaphore.try_acquire().await.expect_err("it is refused"),
        semaphore.try_acquire_many(1).await.expect_err("it is refused"),
        semaphore.try_acquire_for(LIMIT).await.expect_err("it is refused"),
        semaphore.run(async |_| ()).await.expect_err("it is refused"),
    ];
    errors.extend(asking_errors(semaphore).await);
    errors
}

async fn asking_errors(semaphore: &Semaphore) -> Vec<Error> {
    vec![
        semaphore.set_permits(1).await.expect_err("it is refused"),
        semaphore.add_permits(1).await.expect_err("it is refused"),
        semaphore.available_permits().await.expect_err("it is refused"),
        semaphore.status().await.expect_err("it is refused"),
        semaphore.returned().await.expect_err("it is refused"),
    ]
}

#[tokio::test]
async fn over_several_servers_every_call_says_at_once_that_one_is_needed() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let builder = Client::builder().nodes(servers.iter().map(Server::url));
    let client = builder.connect().await.expect("they accept the client");
    for error in errors(&api(&client, 2)).await {
        let Error::SingleServerOnly { kind, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*kind, LockKind::Semaphore);
        assert!(
            error
                .to_string()
                .starts_with("a semaphore does not work over several independent masters, "),
            "{error}"
        );
        assert!(!error.is_retryable());
    }
    assert_eq!(client.stats().locks, 0);
}

#[tokio::test]
async fn a_bad_name_is_told_by_every_call() {
    let (_server, [client]) = setup().await;
    for name in ["", "leasehold_permit_queue:{api}", "leasehold_queue:{api}"] {
        for error in errors(&client.semaphore(name)).await {
            assert!(matches!(error, Error::InvalidName { .. }), "{name}: {error:?}");
        }
    }
}

#[tokio::test]
async fn a_weight_that_can_never_be_had_is_refused() {
    let (server, [client]) = setup().await;
    let unknown = client.semaphore("api");
    for (semaphore, weight) in [(&unknown, 0), (&unknown, 1001), (&api(&client, 3), 4)] {
        for error in [
            semaphore.acquire_many(weight).await.expect_err("it is refused"),
            semaphore.try_acquire_many(weight).await.expect_err("it is refused"),
        ] {
            let Error::InvalidArgument { problem, .. } = &error else { panic!("{error:?}") };
            assert!(problem.contains(&weight.to_string()), "{problem}");
        }
    }
    for semaphore in [api(&client, u32::MAX), api(&client, 1 << 31)] {
        let error = semaphore.try_acquire().await.expect_err("too many");
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
    }
    let error = unknown.set_permits(1 << 31).await.expect_err("too many");
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    for lease in [9 * MS, std::time::Duration::MAX] {
        for semaphore in [unknown.with_lease(lease), unknown.with_ttl(lease)] {
            let error = semaphore.acquire().await.expect_err("it is out of range");
            assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
        }
    }
    let error = unknown
        .with_max_hold(std::time::Duration::ZERO)
        .acquire()
        .await
        .expect_err("no time to hold it");
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
    assert_eq!(server.command(&["DBSIZE"]).await, Value::Int(0), "nobody asked the server");
    let most = client.semaphore("api").with_permits(1000).acquire_many(1000).await;
    most.expect("as many as can be").release().await.expect("held");
}

#[tokio::test]
async fn a_semaphore_without_permits_can_be_waited_for() {
    let (_server, [client]) = setup().await;
    let none = api(&client, 0);
    assert!(none.try_acquire().await.expect("an answer").is_none());
    assert!(none.try_acquire_for(300 * MS).await.expect("an answer").is_none());
    none.add_permits(1).await.expect("an answer");
    let one = none.try_acquire().await.expect("an answer").expect("there is one");
    one.release().await.expect("held");
}

#[tokio::test]
async fn a_lock_is_no_semaphore_and_a_semaphore_is_no_lock() {
    let (server, [client, other]) = setup().await;
    let guard = client.mutex("api").lock().await.expect("free");
    for error in errors(&other.semaphore("api")).await {
        assert!(matches!(error, Error::WrongType { .. }), "{error:?}");
    }
    let same_process = client.semaphore("api").acquire().await.expect_err("it is a lock's key");
    assert!(matches!(same_process, Error::WrongType { .. }), "{same_process:?}");
    guard.unlock().await.expect("nobody touched it");
    let permit = api(&client, 1).acquire().await.expect("the key is free");
    for client in [&client, &other] {
        let error = client.mutex("api").lock().await.expect_err("it is a semaphore");
        assert!(matches!(error, Error::WrongType { .. }), "{error:?}");
    }
    permit.release().await.expect("nobody touched it");
    server.command(&["SET", "api", "words"]).await;
    let error = api(&other, 1).acquire().await.expect_err("no number");
    assert!(matches!(error, Error::WrongType { .. }), "{error:?}");
}

/// A semaphore runs no command that a lock does not need: who connected may use both.
#[tokio::test]
async fn a_user_who_may_not_use_the_keys_is_denied_and_changes_nothing() {
    let server = Server::start().await;
    connect(&server).await.semaphore("api").set_permits(2).await.expect("an answer");
    let rules = ["reset", "on", ">p", "~api", "~leasehold_*", "~locks:*", "&*", "+@all"];
    server.command(&[&["ACL", "SETUSER", "u"], &rules[..]].concat()).await;
    let client = Client::connect(&server.url_as("u", "p")).await.expect("it has the commands");
    for error in errors(&client.semaphore("api")).await {
        assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    }
    assert_eq!(server.command(&["GET", "api"]).await, Value::BulkString(b"2".to_vec()));
    let lock = client.mutex("locks:1").lock().await;
    lock.expect("it may lock").unlock().await.expect("held");
}
