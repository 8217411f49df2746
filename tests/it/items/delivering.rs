//! What is pushed is delivered, in order, until it is done.

use std::time::{Duration, Instant};

use leasehold::{Client, Queue};

use super::{MS, all_are_done, are_waiting, jobs, places};
use crate::checks::{LIMIT, connect, setup, setup_with_proxy, soon};
use crate::support::{Server, eventually};

/// A drop gives back in the background.
async fn is_given_back(queue: &Queue) {
    eventually(LIMIT, "it is given back", async || places(queue).await[1] == 0).await;
}

#[tokio::test]
async fn items_come_in_the_order_of_their_pushes_and_are_gone_once_they_are_done() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    let pushed: [&[u8]; 5] = [b"1", b"", b"a:b\n\0", b"\xff\xfe", "grün".as_bytes()];
    assert_eq!(queue.push(pushed[0]).await.expect("pushed"), 1);
    assert_eq!(queue.push_many(&pushed[1..]).await.expect("pushed"), 5);
    assert_eq!(queue.len().await.expect("an answer"), 5);
    for payload in pushed {
        let delivery = soon("an item", queue.pop()).await.expect("there is one");
        assert_eq!((delivery.payload(), delivery.deliveries()), (payload, 1));
        assert!(delivery.is_held() && delivery.queue() == "jobs");
        assert_eq!(places(&queue).await[1], 1);
        delivery.ack().await.expect("held");
    }
    assert!(queue.try_pop().await.expect("an answer").is_none());
    assert!(queue.is_empty().await.expect("an answer"));
    all_are_done(&server, &client).await;
}

/// Each may be large, and the server does nothing else meanwhile.
#[tokio::test]
async fn a_status_reads_no_payload_of_what_is_to_be_delivered_again() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    queue.push_many(["1", "2", "3"]).await.expect("pushed");
    for _ in 0..2 {
        let delivery = soon("an item", queue.pop()).await.expect("there is one");
        delivery.retry(Duration::from_secs(60)).await.expect("held");
    }
    let lent = soon("an item", queue.pop()).await.expect("there is one");
    let before = server.calls("hget").await;
    assert_eq!(places(&queue).await, [0, 1, 2, 0]);
    assert_eq!(server.calls("hget").await - before, 1, "that of the one that is lent");
    lent.ack().await.expect("held");
}

#[tokio::test]
async fn a_stack_takes_the_newest_item_first() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    queue.push_many(["1", "2", "3"]).await.expect("pushed");
    for (queue, payload) in
        [(queue.newest_first(), "3"), (queue.clone(), "1"), (queue.newest_first(), "2")]
    {
        let delivery = soon("an item", queue.pop()).await.expect("there is one");
        assert_eq!(delivery.payload(), payload.as_bytes());
        delivery.ack().await.expect("held");
    }
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn what_is_given_back_comes_again_before_all_others_and_not_before_its_time() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    queue.push_many(["1", "2"]).await.expect("pushed");
    let first = soon("an item", queue.pop()).await.expect("there is one");
    drop(first);
    is_given_back(&queue).await;
    let first = soon("the same again", queue.pop()).await.expect("there is one");
    assert_eq!((first.payload(), first.deliveries()), (&b"1"[..], 2));
    let given_back = Instant::now();
    first.retry(300 * MS).await.expect("held");
    assert_eq!(places(&queue).await, [1, 0, 1, 0]);
    let second = soon("the other", queue.pop()).await.expect("there is one");
    assert_eq!((second.payload(), second.deliveries()), (&b"2"[..], 1));
    second.ack().await.expect("held");
    let first = soon("the first, in its time", queue.pop()).await.expect("there is one");
    let after = given_back.elapsed();
    assert_eq!((first.payload(), first.deliveries()), (&b"1"[..], 3));
    assert!((300 * MS..1300 * MS).contains(&after), "{after:?}");
    first.ack().await.expect("held");
    all_are_done(&server, &client).await;
}

/// As by a `select!` that another branch has won.
#[tokio::test]
async fn how_a_delivery_ends_is_decided_by_the_call_though_its_future_is_never_polled() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    queue.push_many(["done", "bad", "later"]).await.expect("pushed");
    let next = async || soon("an item", queue.pop()).await.expect("there is one");
    drop(next().await.ack());
    is_given_back(&queue).await;
    assert_eq!(places(&queue).await, [2, 0, 0, 0]);
    drop(next().await.reject());
    is_given_back(&queue).await;
    assert_eq!(places(&queue).await, [1, 0, 0, 1]);
    drop(next().await.retry(Duration::from_secs(1)));
    is_given_back(&queue).await;
    assert_eq!(places(&queue).await, [0, 0, 1, 1], "its time has not come");
    next().await.ack().await.expect("held");
    assert_eq!(queue.redrive(1).await.expect("done"), 1);
    next().await.ack().await.expect("held");
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn what_is_delivered_too_often_or_rejected_is_dead_until_it_is_redriven() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client).with_max_deliveries(2);
    queue.push_many([&b"\xffpoison"[..], b"bad", b"good"]).await.expect("pushed");
    for _ in 0..2 {
        let poison = soon("poison", queue.pop()).await.expect("there is one");
        assert_eq!(poison.payload(), b"\xffpoison");
        drop(poison);
        is_given_back(&queue).await;
    }
    let bad = soon("the next one", queue.pop()).await.expect("there is one");
    assert_eq!(bad.payload(), b"bad");
    bad.reject().await.expect("held");
    assert_eq!(places(&queue).await, [1, 0, 0, 2]);
    let oldest = queue.dead(1).await.expect("an answer");
    assert_eq!((oldest.len(), &*oldest[0].payload), (1, &b"\xffpoison"[..]));
    assert_eq!(queue.dead(9).await.expect("an answer").len(), 2);

    assert_eq!(queue.redrive(1).await.expect("done"), 1);
    assert_eq!(queue.redrive(9).await.expect("done"), 1);
    for payload in [&b"good"[..], b"\xffpoison", b"bad"] {
        let delivery = soon("an item", queue.pop()).await.expect("there is one");
        assert_eq!((delivery.payload(), delivery.deliveries()), (payload, 1));
        delivery.ack().await.expect("held");
    }
    all_are_done(&server, &client).await;
}

/// However many the dead are, no script keeps the server from others for long.
#[tokio::test]
async fn many_dead_items_are_redriven_by_several_scripts() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    queue.push("first").await.expect("pushed");
    soon("it", queue.pop()).await.expect("there is one").reject().await.expect("held");
    for _ in 0..25 {
        let items = vec!["x"; 100];
        server.command(&[&["RPUSH", "leasehold_dead:{jobs}"], &items[..]].concat()).await;
    }
    let scripts = async || server.scripts_run().await;
    let before = scripts().await;
    assert_eq!(queue.redrive(2_200).await.expect("done"), 2_200);
    assert!(scripts().await - before >= 3);
    assert_eq!(places(&queue).await, [2_200, 0, 0, 301]);
    assert_eq!(queue.redrive(u32::MAX).await.expect("done"), 301);
    assert_eq!(places(&queue).await, [2_501, 0, 0, 0]);
    server.command(&["FLUSHALL"]).await;
    all_are_done(&server, &client).await;
}

/// Each of them is moved once, although it is dead again at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redrive_ends_while_a_worker_rejects_what_it_moves() {
    const DEAD: usize = 20;
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    // The worker rejects some before the next are moved.
    proxy.delay_replies(20 * MS);
    let queue = jobs(&client);
    server.command(&[&["RPUSH", "leasehold_dead:{jobs}"], &[""; DEAD][..]].concat()).await;
    let rejecting = jobs(&connect(&server).await);
    let worker = tokio::spawn(async move {
        loop {
            rejecting.pop().await.expect("an item").reject().await.expect("held");
        }
    });
    are_waiting(&queue, 1).await;
    let moved = soon("its end", queue.redrive(u32::MAX)).await.expect("done");
    assert_eq!(moved, DEAD as u64);
    eventually(LIMIT, "all are dead again", async || {
        places(&queue).await == [0, 0, 0, DEAD as u64]
    })
    .await;
    worker.abort();
    server.command(&["FLUSHALL"]).await;
    all_are_done(&server, &client).await;
}

/// One script moves 16 MiB of them at most. Who has asked once asks again.
#[tokio::test]
async fn an_attempt_gets_the_item_behind_large_ones_that_were_delivered_too_often() {
    let server = Server::start().await;
    // A busy server takes its time for so much.
    let builder = Client::builder().nodes([server.url()]).response_timeout(LIMIT);
    let client = builder.connect().await.expect("connected");
    let queue = jobs(&client);
    let large = format!("10 5:{}", "x".repeat(9 << 20));
    for number in 0..2 {
        let due = format!("due:{number}");
        server.command(&["HSET", "leasehold_items:{jobs}", &due, &large]).await;
        server.command(&["ZADD", "leasehold_lent:{jobs}", "1", &due]).await;
    }
    // The end of another one tells when to ask again, too.
    server.command(&["HSET", "leasehold_items:{jobs}", "a:b", "1 5:lent"]).await;
    server.command(&["ZADD", "leasehold_lent:{jobs}", "99999999999999", "a:b"]).await;
    queue.push("good").await.expect("pushed");
    let delivery = soon("an answer", queue.try_pop()).await.expect("an answer");
    let delivery = delivery.expect("there is one");
    assert_eq!((delivery.payload(), delivery.deliveries()), (&b"good"[..], 1));
    assert_eq!(places(&queue).await, [0, 2, 0, 2]);
    delivery.ack().await.expect("held");
    server.command(&["FLUSHALL"]).await;
    all_are_done(&server, &client).await;
}

/// A worker that takes what there is until there is nothing would stop before the items that are behind them.
#[tokio::test]
async fn an_attempt_gets_the_item_behind_many_that_were_delivered_too_often() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    for number in 0..250 {
        let due = format!("due:{number}");
        server.command(&["HSET", "leasehold_items:{jobs}", &due, "10 5:bad"]).await;
        server.command(&["ZADD", "leasehold_lent:{jobs}", "1", &due]).await;
    }
    queue.push("good").await.expect("pushed");
    let delivery = soon("an answer", queue.try_pop()).await.expect("an answer");
    let delivery = delivery.expect("there is one");
    assert_eq!((delivery.payload(), delivery.deliveries()), (&b"good"[..], 1));
    assert_eq!(places(&queue).await, [0, 1, 0, 250]);
    delivery.ack().await.expect("held");
    assert!(soon("an answer", queue.try_pop()).await.expect("an answer").is_none());
    server.command(&["FLUSHALL"]).await;
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn without_a_limit_an_item_comes_as_often_as_it_is_given_back() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client).with_max_deliveries(None);
    queue.push("1").await.expect("pushed");
    for deliveries in 1..=15 {
        let delivery = soon("an item", queue.pop()).await.expect("there is one");
        assert_eq!(delivery.deliveries(), deliveries);
        delivery.retry(Duration::ZERO).await.expect("held");
    }
    soon("an item", queue.pop()).await.expect("there is one").ack().await.expect("held");
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn if_nothing_is_said_an_item_is_dead_after_ten_deliveries() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    queue.push("1").await.expect("pushed");
    for deliveries in 1..=10 {
        let delivery = soon("an item", queue.pop()).await.expect("there is one");
        assert_eq!(delivery.deliveries(), deliveries);
        delivery.retry(Duration::ZERO).await.expect("held");
    }
    assert!(queue.try_pop().await.expect("an answer").is_none());
    assert_eq!(places(&queue).await, [0, 0, 0, 1]);
    assert_eq!(queue.redrive(1).await.expect("done"), 1);
    soon("an item", queue.pop()).await.expect("there is one").ack().await.expect("held");
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn a_delivery_is_renewed_for_as_long_as_it_exists() {
    let (server, [client]) = setup().await;
    let ttl = 300 * MS * server.slowness().await;
    let queue = jobs(&client).with_ttl(ttl);
    queue.push("1").await.expect("pushed");
    let delivery = soon("an item", queue.pop()).await.expect("there is one");
    tokio::time::sleep(3 * ttl).await;
    assert!(delivery.is_held());
    assert!(queue.try_pop().await.expect("an answer").is_none());
    delivery.ack().await.expect("held");
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn a_delivery_has_a_fixed_length_if_that_is_asked_for() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    queue.push("1").await.expect("pushed");
    let fixed = soon("an item", queue.with_lease(300 * MS).pop()).await.expect("there is one");
    let limited = soon("the same", queue.with_ttl(300 * MS).with_max_hold(200 * MS).pop()).await;
    let limited = limited.expect("the lease has ended");
    assert!(!fixed.is_held() && limited.deliveries() == 2);
    assert!(fixed.ack().await.expect_err("it is lost").is_lost());
    soon("the loss", limited.lost()).await;
    let last = soon("an item", queue.pop()).await.expect("there is one");
    assert_eq!(last.deliveries(), 3);
    last.ack().await.expect("held");
    drop(limited);
    all_are_done(&server, &client).await;
}
