//! Workers that die, are stopped or are cut off, and answers that are lost.

use std::time::Duration;

use futures_util::FutureExt;
use leasehold::{Client, Delivery, Error};
use tokio::task::JoinHandle;

use super::{MS, all_are_done, are_waiting, jobs, places};
use crate::checks::{LIMIT, connect, setup, setup_with_proxy, soon};
use crate::support::{Proxy, eventually};

/// A client that does not wait long for an answer.
async fn impatient(proxy: &Proxy) -> Client {
    let builder = Client::builder().nodes([proxy.url()]).response_timeout(300 * MS);
    builder.connect().await.expect("connected")
}

#[tokio::test]
async fn who_is_cut_off_loses_its_item_before_another_one_gets_it() {
    let (server, proxy) = setup_with_proxy().await;
    let healthy = connect(&server).await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    jobs(&healthy).push("1").await.expect("pushed");
    let lost = soon("an item", jobs(&client).with_ttl(600 * MS).pop()).await.expect("there is one");
    let next = tokio::spawn(jobs(&healthy).pop());
    are_waiting(&jobs(&healthy), 1).await;
    proxy.black_hole(true);
    // Whoever waits asks when it is due. Anybody else who asks has the server look, too.
    let eager = async {
        while !next.is_finished() {
            assert!(jobs(&healthy).try_pop().await.expect("an answer").is_none(), "one waits");
        }
    };
    soon("the next one has it", eager).await;
    assert!(!lost.is_held(), "two have it");
    let next = next.await.expect("no panic").expect("an item");
    assert!(next.is_held() && next.deliveries() == 2);
    soon("the loss", lost.lost()).await;
    assert!(lost.ack().await.expect_err("it is lost").is_lost());
    next.ack().await.expect("held");
    proxy.black_hole(false);
    all_are_done(&server, &healthy).await;
}

#[tokio::test]
async fn an_ack_whose_answer_is_lost_is_done_all_the_same() {
    let (server, proxy) = setup_with_proxy().await;
    let client = impatient(&proxy).await;
    let queue = jobs(&client);
    queue.push("1").await.expect("pushed");
    let delivery = soon("an item", queue.pop()).await.expect("there is one");
    proxy.drop_replies(true);
    let answer = delivery.ack().await;
    proxy.drop_replies(false);
    proxy.cut();
    assert!(answer.is_err(), "nobody confirmed it");
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn a_pop_whose_answer_is_lost_loses_no_item() {
    let (server, proxy) = setup_with_proxy().await;
    let healthy = connect(&server).await;
    let client = impatient(&proxy).await;
    jobs(&healthy).push("1").await.expect("pushed");
    proxy.drop_replies(true);
    assert!(jobs(&client).try_pop().await.is_err(), "nobody answered");
    proxy.drop_replies(false);
    proxy.cut();
    let delivery = soon("the item", jobs(&healthy).pop()).await.expect("an item");
    assert_eq!(delivery.deliveries(), 1, "nobody has seen it");
    delivery.ack().await.expect("held");
    all_are_done(&server, &healthy).await;
}

/// A worker that waits on another way than `healthy` until it is given an item that is too long for a message, and cannot read it.
async fn given_what_it_cannot_read(
    healthy: &Client,
    client: &Client,
    proxy: &Proxy,
    pop: impl Future<Output = Result<Delivery, Error>> + Send + 'static,
) -> JoinHandle<Result<Delivery, Error>> {
    // After this the client listens.
    let first = tokio::spawn(jobs(client).pop());
    are_waiting(&jobs(healthy), 1).await;
    jobs(healthy).push("short").await.expect("pushed");
    let first = soon("an item", first).await.expect("no panic").expect("there is one");
    first.ack().await.expect("held");
    let before = client.stats().contended;
    let worker = tokio::spawn(pop);
    eventually(LIMIT, "it has heard that it must wait", async || client.stats().contended > before)
        .await;
    are_waiting(&jobs(healthy), 1).await;
    proxy.hold_answers();
    jobs(healthy).push(vec![b'x'; 9000]).await.expect("pushed");
    worker
}

#[tokio::test]
async fn who_cannot_read_what_it_was_given_waits_on() {
    let (server, proxy) = setup_with_proxy().await;
    let healthy = connect(&server).await;
    let client = impatient(&proxy).await;
    let pop = jobs(&client).pop();
    let worker = given_what_it_cannot_read(&healthy, &client, &proxy, pop).await;
    eventually(LIMIT, "it gives it back", async || client.stats().releases_pending > 0).await;
    assert!(!worker.is_finished(), "{:?}", client.stats());
    proxy.release_replies();
    let delivery = soon("an item", worker).await.expect("no panic").expect("it waited on");
    assert_eq!((delivery.payload().len(), delivery.deliveries()), (9000, 1));
    delivery.ack().await.expect("held");
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn who_cannot_read_what_it_was_given_waits_no_longer_than_it_may() {
    let (server, proxy) = setup_with_proxy().await;
    let healthy = connect(&server).await;
    let client = Client::builder()
        .nodes([proxy.url()])
        .response_timeout(3 * LIMIT)
        .connect()
        .await
        .expect("connected");
    let pop = jobs(&client).with_ttl(10 * LIMIT).pop_with_timeout(Duration::from_secs(1));
    let worker = given_what_it_cannot_read(&healthy, &client, &proxy, pop).await;
    let error = soon("its time is over", worker).await.expect("no panic").expect_err("no item");
    assert!(error.is_timeout(), "{error:?}");
    let delivery = soon("an item", jobs(&healthy).pop()).await.expect("it was given back");
    assert_eq!(delivery.payload().len(), 9000);
    proxy.release_replies();
    delivery.ack().await.expect("held");
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn a_shutdown_gives_all_items_back() {
    let (server, [client, other]) = setup().await;
    jobs(&client).push_many(["1", "2"]).await.expect("pushed");
    let held = soon("an item", jobs(&client).pop()).await.expect("there is one");
    client.shutdown().await;
    assert!(!held.is_held());
    assert_eq!(places(&jobs(&other)).await, [1, 0, 1, 0]);
    for deliveries in [2, 1] {
        let delivery = soon("an item", jobs(&other).pop()).await.expect("there is one");
        assert_eq!(delivery.deliveries(), deliveries);
        delivery.ack().await.expect("held");
    }
    all_are_done(&server, &other).await;
}

/// Who is told of a loss may rely on it: the item is delivered again.
#[tokio::test]
async fn what_was_decided_and_not_sent_before_a_loss_does_not_happen() {
    for rejects in [false, true] {
        let (server, [client, other]) = setup().await;
        jobs(&client).push("1").await.expect("pushed");
        let delivery = soon("an item", jobs(&client).pop()).await.expect("there is one");
        let ending = match rejects {
            true => delivery.reject().left_future(),
            false => delivery.ack().right_future(),
        };
        client.shutdown().await;
        assert!(ending.await.expect_err("it is lost").is_lost());
        assert_eq!(places(&jobs(&other)).await, [0, 0, 1, 0], "rejects: {rejects}");
        let delivery = soon("an item", jobs(&other).pop()).await.expect("there is one");
        delivery.ack().await.expect("held");
        all_are_done(&server, &other).await;
    }
}

#[tokio::test]
async fn a_delivery_that_somebody_removed_is_lost() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client).with_ttl(900 * MS);
    queue.push("1").await.expect("pushed");
    let delivery = soon("an item", queue.pop()).await.expect("there is one");
    server.command(&["DEL", "leasehold_lent:{jobs}", "leasehold_items:{jobs}"]).await;
    soon("the loss", delivery.lost()).await;
    assert!(delivery.ack().await.expect_err("it is lost").is_lost());
    all_are_done(&server, &client).await;
}

/// A pop that ran late, when its worker had an item already, has another one lent to the same delivery. The test plays its part.
#[tokio::test]
async fn what_a_late_request_was_lent_is_not_done_but_delivered() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    queue.push("1").await.expect("pushed");
    let delivery = soon("an item", queue.pop()).await.expect("there is one");
    let holder = delivery.holder();
    server.command(&["HSET", "leasehold_items:{jobs}", holder.as_str(), "1 7:other"]).await;
    assert!(delivery.ack().await.expect_err("it has another item").is_lost());
    assert_eq!(places(&queue).await, [0, 0, 1, 0]);
    let other = soon("the other one", queue.pop()).await.expect("there is one");
    assert_eq!((other.payload(), other.deliveries()), (&b"other"[..], 1));
    other.ack().await.expect("held");
    all_are_done(&server, &client).await;
}

/// A server that is full refuses pushes, but lends what it has, and takes what is done: the queue itself may be what fills it.
#[tokio::test]
async fn a_full_server_loses_nothing() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client).with_ttl(600 * MS);
    queue.push_many(["1", "2", "3"]).await.expect("pushed");
    let (one, two) = (queue.pop().await.expect("an item"), queue.pop().await.expect("an item"));
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert!(queue.push("4").await.is_err());
    let three = queue.pop().await.expect("a full server lends");
    assert_eq!((three.payload(), three.deliveries()), (&b"3"[..], 1));
    three.ack().await.expect("held");
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert!(one.is_held() && two.is_held(), "renewals pass");
    one.ack().await.expect("held");
    two.retry(Duration::ZERO).await.expect("held");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    soon("an item", queue.pop()).await.expect("an item").ack().await.expect("held");
    all_are_done(&server, &client).await;
}
