//! Bad input, keys that are no queue, full queues, missing rights, and several servers.

use std::time::Duration;

use leasehold::{Client, Error, LockKind, Queue};

use super::{MS, all_are_done, jobs};
use crate::checks::{LIMIT, setup};
use crate::support::Server;

/// The errors of every call.
async fn errors(queue: &Queue) -> Vec<Error> {
    vec![
        queue.push("1").await.expect_err("it is refused"),
        queue.push_many(["1", "2"]).await.expect_err("it is refused"),
        queue.pop().await.expect_err("it is refused"),
        queue.try_pop().await.expect_err("it is refused"),
        queue.try_pop_for(LIMIT).await.expect_err("it is refused"),
        queue.pop_with_timeout(LIMIT).await.expect_err("it is refused"),
        queue.len().await.expect_err("it is refused"),
        queue.status().await.expect_err("it is refused"),
        queue.dead(1).await.expect_err("it is refused"),
        queue.redrive(1).await.expect_err("it is refused"),
    ]
}

#[tokio::test]
async fn over_several_servers_every_call_says_at_once_that_one_is_needed() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let client = Client::builder()
        .nodes(servers.iter().map(Server::url))
        .connect()
        .await
        .expect("connected");
    for error in errors(&jobs(&client)).await {
        assert!(
            matches!(error, Error::SingleServerOnly { kind: LockKind::Queue, .. }),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_key_of_another_kind_is_left_alone() {
    let (server, [client]) = setup().await;
    let guard = client.mutex("jobs").lock().await.expect("free");
    for error in errors(&jobs(&client)).await {
        assert!(matches!(error, Error::WrongType { .. }), "{error:?}");
    }
    guard.unlock().await.expect("held");
    jobs(&client).push("1").await.expect("pushed");
    let error = client.mutex("jobs").try_lock().await.expect_err("it is a queue");
    assert!(matches!(error, Error::WrongType { .. }), "{error:?}");
    jobs(&client).pop().await.expect("an item").ack().await.expect("held");
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn bad_names_and_bad_numbers_are_refused_at_once() {
    let (_server, [client]) = setup().await;
    for name in ["", "leasehold_lent:{jobs}", "leasehold_item_queue:{jobs}"] {
        for error in errors(&client.queue(name)).await {
            assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
        }
    }
    let queue = jobs(&client);
    for error in [
        queue.push(vec![0; (16 << 20) + 1]).await.expect_err("too large"),
        queue.push_many(vec![""; 10_001]).await.expect_err("too many"),
    ] {
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    }
    for error in [
        queue.with_ttl(1 * MS).pop().await.expect_err("too short"),
        queue.with_lease(Duration::ZERO).pop().await.expect_err("too short"),
        queue.with_max_hold(Duration::ZERO).pop().await.expect_err("too short"),
        queue.with_max_deliveries(1_000_001).pop().await.expect_err("too many"),
        queue.with_max_deliveries(Some(1_000_001)).pop().await.expect_err("too many"),
    ] {
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
    }
    assert_eq!(queue.push_many([""; 0]).await.expect("nothing to do"), 0);
    queue.push("1").await.expect("pushed");
    let delivery = queue.pop().await.expect("an item");
    let error = delivery.retry(Duration::MAX).await.expect_err("too late");
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    let delivery = queue.pop().await.expect("it came back");
    delivery.ack().await.expect("held");
}

/// Elsewhere zero is nothing, so a number that was computed must not remove the limit.
#[tokio::test]
async fn a_limit_of_zero_is_refused_by_every_call_and_none_is_no_limit() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    for (zero, setting) in [
        (queue.with_capacity(0), "with_capacity"),
        (queue.with_max_deliveries(0), "with_max_deliveries"),
    ] {
        for error in errors(&zero).await {
            assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
            assert!(error.to_string().contains(&format!("{setting} is 0")), "{error}");
        }
    }
    assert!(queue.is_empty().await.expect("an answer"), "nothing was pushed");

    let too_many = queue.with_capacity(1).push_many(["1", "2"]).await.expect_err("never room");
    assert!(matches!(too_many, Error::InvalidArgument { .. }), "{too_many:?}");
    assert!(too_many.to_string().contains("at most 1 items have room in the queue"), "{too_many}");
    let one = queue.with_capacity(1);
    one.push("1").await.expect("there is room");
    let error = one.push("2").await.expect_err("it is full");
    assert!(matches!(error, Error::QueueFull { capacity: 1, .. }), "{error:?}");
    assert_eq!(one.with_capacity(None).push("2").await.expect("there is room"), 2);

    // What one handle would not deliver again, one without a limit does.
    let once = queue.with_max_deliveries(1);
    once.pop().await.expect("an item").retry(Duration::ZERO).await.expect("held");
    let any = once.with_max_deliveries(None);
    for deliveries in [2, 3] {
        let delivery = any.pop().await.expect("an item");
        assert_eq!((delivery.payload(), delivery.deliveries()), (&b"1"[..], deliveries));
        delivery.retry(Duration::ZERO).await.expect("held");
    }
    for _ in 0..2 {
        any.pop().await.expect("an item").ack().await.expect("held");
    }
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn a_full_queue_takes_all_items_of_a_push_or_none() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client).with_capacity(3);
    queue.push("1").await.expect("there is room");
    let delivery = queue.pop().await.expect("an item");
    let error = queue.push_many(["2", "3", "4"]).await.expect_err("it is full");
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(error.to_string(), "queue \"jobs\" is full: it has 1 items, and 3 are allowed");
    assert_eq!(queue.push_many(["2", "3"]).await.expect("there is room"), 3);
    delivery.ack().await.expect("held");
    assert_eq!(queue.push("4").await.expect("one is done"), 3);
    for _ in 0..3 {
        queue.pop().await.expect("an item").ack().await.expect("held");
    }
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn who_may_not_remove_an_item_gets_none() {
    let (server, [client]) = setup().await;
    jobs(&client).push("1").await.expect("pushed");
    server
        .command(&["ACL", "SETUSER", "some", "on", ">secret", "~*", "&*", "+@all", "-lpop"])
        .await;
    let denied = Client::connect(&server.url_as("some", "secret")).await.expect("connected");
    // Nobody waits, and then somebody did who is gone.
    for waited in [false, true] {
        let queue = "leasehold_item_queue:{jobs}";
        if waited {
            server.command(&["ZADD", queue, "1", "30000 21 ab12 gone:1"]).await;
        }
        let error = jobs(&denied).try_pop().await.expect_err("it is denied");
        assert!(matches!(error, Error::Denied { .. }), "{error:?}");
        assert_eq!(server.command(&["EXISTS", queue]).await, redis::Value::Int(0), "{waited}");
    }
    let delivery = jobs(&client).pop().await.expect("an item");
    assert_eq!(delivery.deliveries(), 1);
    delivery.ack().await.expect("held");
    all_are_done(&server, &client).await;
}
