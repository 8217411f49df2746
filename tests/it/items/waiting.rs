//! Who waits for an item gets one in its turn, by a message.

use std::time::{Duration, Instant};

use leasehold::{Error, LockKind};
use redis::from_redis_value;

use super::{MS, all_are_done, are_waiting, jobs, places, status};
use crate::cancellation::drop_after;
use crate::checks::{AT_ONCE, LIMIT, connect, setup, setup_with_proxy, soon};
use crate::support::eventually;

/// A message brings so many bytes along at most.
const MOST_BYTES: usize = 8192;

#[tokio::test]
async fn workers_get_items_in_the_order_of_their_arrival_each_by_one_message() {
    let (server, [one, two]) = setup().await;
    let (queue, other) = (jobs(&one), jobs(&two));
    let mut workers = Vec::new();
    for number in 0..4 {
        let pop = if number % 2 == 0 { queue.pop() } else { other.newest_first().pop() };
        workers.push(tokio::spawn(pop));
        are_waiting(&queue, number + 1).await;
    }
    assert_eq!(status(&queue).await.waiting[0].client.as_ref(), one.name());
    queue.push_many(["0", "1"]).await.expect("pushed");
    are_waiting(&queue, 2).await;
    queue.push("2").await.expect("pushed");
    queue.push("3").await.expect("pushed");
    // The second takes the newest of the two.
    for (worker, payload) in workers.into_iter().zip(["0", "1", "2", "3"]) {
        let delivery = soon("its turn", worker).await.expect("no panic").expect("an item");
        assert_eq!(delivery.payload(), payload.as_bytes());
        assert!(delivery.is_held());
        delivery.ack().await.expect("held");
    }
    assert_eq!(one.stats().grants_by_message + two.stats().grants_by_message, 4);
    all_are_done(&server, &one).await;
}

/// What another library pushes is announced to nobody. The next request for an item lends it.
#[tokio::test]
async fn who_comes_later_takes_no_item_that_another_one_waits_for() {
    let (server, [one, two]) = setup().await;
    let waiting = tokio::spawn(jobs(&one).pop());
    are_waiting(&jobs(&two), 1).await;
    server.command(&["RPUSH", "jobs", "1"]).await;
    assert!(jobs(&two).try_pop().await.expect("an answer").is_none(), "it is the other one's");
    let delivery = soon("the item", waiting).await.expect("no panic").expect("an item");
    delivery.ack().await.expect("held");
    all_are_done(&server, &one).await;
}

/// Nobody asks for what a message has brought. It may be any bytes.
#[tokio::test]
async fn a_push_reaches_a_waiting_worker_by_one_message() {
    let (server, [client, other]) = setup().await;
    let queue = jobs(&client);
    let longest = vec![b'x'; MOST_BYTES];
    let payloads: [&[u8]; 7] =
        [b"1", b"", b" a  b ", b"grant a:b 1 2 3", b"\x00\xff\xfe\r\n\x00", b"1:2:3", &longest];
    // After this the client listens.
    let first = tokio::spawn(queue.pop());
    are_waiting(&queue, 1).await;
    queue.push("first").await.expect("pushed");
    soon("its turn", first).await.expect("no panic").expect("an item").ack().await.expect("held");
    let before = client.stats().grants_by_message;
    for payload in payloads {
        let waiting = tokio::spawn(queue.pop());
        are_waiting(&queue, 1).await;
        let has_heard = async || client.stats().waiters == 1;
        eventually(LIMIT, "it has heard that it must wait", has_heard).await;
        let (began, before) = (Instant::now(), server.calls("hget").await);
        assert_eq!(jobs(&other).push(payload).await.expect("pushed"), 1);
        let delivery = soon("its turn", waiting).await.expect("no panic").expect("an item");
        let reads = server.calls("hget").await - before;
        // Who has heard nothing for seconds asks.
        assert!(reads == 0 || began.elapsed() > Duration::from_secs(1), "it was asked for");
        assert_eq!((delivery.payload(), delivery.deliveries()), (payload, 1));
        assert!(delivery.is_held());
        delivery.ack().await.expect("held");
    }
    assert_eq!(client.stats().grants_by_message - before, payloads.len() as u64);
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn an_item_that_is_too_long_for_a_message_is_asked_for() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    let long = vec![0xff; MOST_BYTES + 1];
    let waiting = tokio::spawn(queue.pop());
    are_waiting(&queue, 1).await;
    queue.push(&long).await.expect("pushed");
    let first = soon("its turn", waiting).await.expect("no panic").expect("an item");
    assert_eq!((first.payload(), first.deliveries()), (&*long, 1));
    let waiting = tokio::spawn(queue.pop());
    are_waiting(&queue, 1).await;
    first.retry(Duration::ZERO).await.expect("held");
    let again = soon("its turn", waiting).await.expect("no panic").expect("an item");
    assert_eq!((again.payload(), again.deliveries()), (&*long, 2));
    again.ack().await.expect("held");
    assert_eq!(client.stats().grants_by_message, 2);
    all_are_done(&server, &client).await;
}

/// A message may arrive when its delivery is over. The test plays the server's part.
#[tokio::test]
async fn what_a_late_message_brings_is_given_to_nobody() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    let waiting = tokio::spawn(queue.pop());
    are_waiting(&queue, 1).await;
    let entries = server.command(&["ZRANGE", "leasehold_item_queue:{jobs}", "0", "0"]).await;
    let [entry]: [String; 1] = from_redis_value(entries).expect("an entry");
    let [_, how, nonce, id] = entry.split(' ').collect::<Vec<_>>()[..] else { panic!("{entry:?}") };
    let (worker, _) = id.split_once(':').expect("client:uuid");
    let (seconds, micros): (u64, u64) =
        from_redis_value(server.command(&["TIME"]).await).expect("a time");
    let late = format!("item {id} {seconds}{micros:06} 2000 {how} 1 7:over");
    // Less than half of the lease is left.
    tokio::time::sleep(1500 * MS).await;
    let mailbox = format!("leasehold_mailbox:{worker}:{nonce}");
    assert_eq!(server.command(&["PUBLISH", &mailbox, &late]).await, redis::Value::Int(1));
    eventually(LIMIT, "it has read the message", async || client.stats().grants_by_message == 1)
        .await;
    queue.push("1").await.expect("pushed");
    let delivery = soon("its turn", waiting).await.expect("no panic").expect("an item");
    assert_eq!(delivery.payload(), b"1");
    delivery.ack().await.expect("held");
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn a_push_is_heard_at_once_and_so_is_what_is_given_back() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    let waiting = tokio::spawn(queue.pop());
    are_waiting(&queue, 1).await;
    queue.push("1").await.expect("pushed");
    let delivery = tokio::time::timeout(server.widened(AT_ONCE), waiting).await;
    let delivery = delivery.expect("at once").expect("no panic").expect("an item");
    let waiting = tokio::spawn(queue.pop());
    are_waiting(&queue, 1).await;
    delivery.retry(200 * MS).await.expect("held");
    let limit = server.widened(AT_ONCE) + 200 * MS;
    let again = tokio::time::timeout(limit, waiting).await;
    let again = again.expect("in its time").expect("no panic").expect("an item");
    assert_eq!(again.deliveries(), 2);
    again.ack().await.expect("held");
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn who_stops_waiting_takes_no_item_along() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    let gone = tokio::spawn(queue.pop());
    are_waiting(&queue, 1).await;
    let stays = tokio::spawn(queue.pop());
    are_waiting(&queue, 2).await;
    gone.abort();
    are_waiting(&queue, 1).await;
    queue.push("1").await.expect("pushed");
    let delivery = soon("the second", stays).await.expect("no panic").expect("an item");
    assert_eq!(delivery.deliveries(), 1);
    delivery.ack().await.expect("held");
    assert!(queue.try_pop_for(500 * MS).await.expect("an answer").is_none());
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn who_waited_in_vain_is_told_how_many_items_are_lent_and_how_many_wait() {
    let (server, [client, other]) = setup().await;
    let (limit, queue) = (500 * MS, jobs(&other));
    let error = queue.pop_with_timeout(limit).await.expect_err("there is none");
    assert!(error.is_timeout() && error.is_retryable(), "{error:?}");
    let Error::StillWaiting { kind, name, state, waited, .. } = error else { panic!("{error:?}") };
    let text = "there is no item, and nobody else waits: push some, or wait longer";
    assert_eq!((kind, &*name, &*state), (LockKind::Queue, "jobs", text));
    assert!(waited >= limit, "{waited:?}");
    jobs(&client).push_many(["1", "2"]).await.expect("pushed");
    let deliveries = [(); 2].map(|()| jobs(&client).pop());
    let deliveries = futures_util::future::try_join_all(deliveries).await.expect("two items");
    let waiting = tokio::spawn(jobs(&client).pop());
    let text =
        "2 items are lent or come again later, and 1 other waits: Queue::status lists who has them";
    // At first the other may not listen yet, and counts as gone.
    eventually(LIMIT, "it is told of them", async || {
        let answer = queue.pop_with_timeout(limit).await;
        matches!(answer, Err(Error::StillWaiting { state, .. }) if *state == *text)
    })
    .await;
    waiting.abort();
    for delivery in deliveries {
        delivery.ack().await.expect("held");
    }
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn a_pop_that_is_dropped_anywhere_is_no_delivery() {
    let (server, proxy) = setup_with_proxy().await;
    let direct = connect(&server).await;
    let client = leasehold::Client::connect(&proxy.url()).await.expect("connected");
    let queue = jobs(&client);
    jobs(&direct).push("1").await.expect("pushed");
    for steps in 0.. {
        let Some(delivery) = drop_after(queue.pop(), steps).await else { continue };
        let delivery = delivery.expect("an item");
        assert!(steps >= 2, "it was never dropped half-way");
        assert_eq!((delivery.payload(), delivery.deliveries()), (&b"1"[..], 1));
        delivery.ack().await.expect("held");
        break;
    }
    all_are_done(&server, &client).await;
}

#[tokio::test]
async fn an_item_of_another_library_is_found_and_others_may_take_ours() {
    let (server, [client]) = setup().await;
    let queue = jobs(&client);
    let waiting = tokio::spawn(queue.pop());
    are_waiting(&queue, 1).await;
    server.command(&["RPUSH", "jobs", "theirs"]).await;
    // Nobody says so: it is found when the first in the queue asks.
    let delivery = tokio::time::timeout(Duration::from_secs(6), waiting).await;
    let delivery = delivery.expect("in time").expect("no panic").expect("an item");
    assert_eq!(delivery.payload(), b"theirs");
    delivery.ack().await.expect("held");
    queue.push("ours").await.expect("pushed");
    assert_eq!(server.command(&["LPOP", "jobs"]).await, redis::Value::BulkString(b"ours".to_vec()));
    assert_eq!(places(&queue).await, [0; 4]);
    all_are_done(&server, &client).await;
}
