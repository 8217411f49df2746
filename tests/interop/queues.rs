//! Queues: Redisson's RQueue, RDeque and RBlockingQueue, and our queue of the same name.

use std::{collections::BTreeSet, time::Duration};

use leasehold::{Delivery, Error, Queue};
use leasehold_testkit::{
    eventually,
    java::{Java, Version},
};
use tokio::time::timeout;

use crate::{side::Table, with_each_redisson};

with_each_redisson!(
    items_go_both_ways_byte_for_byte_and_in_order,
    a_worker_of_ours_finds_what_java_adds_and_java_hears_at_once_what_ours_pushes,
    java_sees_nothing_of_what_is_lent,
    each_item_is_taken_by_one_whoever_takes_it,
    a_lock_is_no_queue,
);

/// Asks Java for something of the queue `n`, with a codec.
async fn java(java: &Java, verb: &str, codec: &str) -> String {
    java.text("b", &format!("{verb} 6e {codec}")).await
}

async fn java_adds(java: &Java, verb: &str, codec: &str, item: &[u8]) {
    assert_eq!(java.number("b", &format!("{verb} 6e {codec} {}", digits(item))).await, 1);
}

fn digits(item: &[u8]) -> String {
    item.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An item as Java shows it.
fn shown(item: &[u8]) -> String {
    format!("x{}", digits(item))
}

async fn taken(queue: &Queue) -> Option<Vec<u8>> {
    let delivery = queue.try_pop().await.expect("an answer")?;
    let payload = delivery.payload().to_vec();
    delivery.ack().await.expect("held");
    Some(payload)
}

async fn items_go_both_ways_byte_for_byte_and_in_order(version: Version) {
    let table = Table::lay(version, TTL).await;
    let queue = table.rust().client.queue("n");
    let text = "größer: 1".as_bytes();
    let bytes: Vec<u8> = (0..=255).collect();
    for (codec, item) in [("text", text), ("bytes", &bytes)] {
        java_adds(table.java(), "queue-offer", codec, item).await;
        assert_eq!(taken(&queue).await.as_deref(), Some(item));
        queue.push(item).await.expect("pushed");
        assert_eq!(java(table.java(), "queue-poll", codec).await, shown(item));
    }
    queue.push("").await.expect("pushed");
    assert_eq!(java(table.java(), "queue-poll", "bytes").await, shown(b""));
    // The oldest is taken first, unless somebody wants the newest; Java can put one before all.
    java_adds(table.java(), "queue-offer", "text", b"2").await;
    queue.push_many(["3", "4", "5"]).await.expect("pushed");
    java_adds(table.java(), "queue-offer-first", "text", b"1").await;
    assert_eq!(java(table.java(), "queue-size", "text").await, "5");
    assert_eq!(queue.len().await.expect("an answer"), 5);
    assert_eq!(taken(&queue).await.as_deref(), Some(&b"1"[..]));
    assert_eq!(java(table.java(), "queue-poll", "text").await, shown(b"2"));
    assert_eq!(taken(&queue.newest_first()).await.as_deref(), Some(&b"5"[..]));
    assert_eq!(java(table.java(), "queue-poll-last", "text").await, shown(b"4"));
    assert_eq!(taken(&queue).await.as_deref(), Some(&b"3"[..]));
    assert_eq!(java(table.java(), "queue-poll", "text").await, "nothing");
    assert_eq!(taken(&queue).await, None);
}

async fn a_worker_of_ours_finds_what_java_adds_and_java_hears_at_once_what_ours_pushes(
    version: Version,
) {
    let table = Table::lay(version, TTL).await;
    let queue = table.rust().client.queue("n");
    let ours = tokio::spawn(queue.pop());
    eventually(FOUND, "it waits", async || {
        queue.status().await.expect("an answer").waiting.len() == 1
    })
    .await;
    java_adds(table.java(), "queue-offer", "text", b"theirs").await;
    let delivery = timeout(FOUND, ours).await.expect("in time").expect("no panic");
    let delivery = delivery.expect("an item");
    assert_eq!((delivery.payload(), delivery.deliveries()), (&b"theirs"[..], 1));
    delivery.ack().await.expect("held");

    // Java waits in BLPOP, which the server serves by itself.
    let javas = table.java().ask("a", "queue-take 6e text");
    eventually(FOUND, "Java waits", async || {
        let clients = table.server.command(&["CLIENT", "LIST"]).await;
        let clients: String = redis::from_redis_value(clients).expect("a list of clients");
        clients.contains("cmd=blpop")
    })
    .await;
    queue.push("ours").await.expect("pushed");
    let taken = timeout(FOUND, javas).await.expect("in time").value();
    assert_eq!(taken, shown(b"ours"));
}

async fn java_sees_nothing_of_what_is_lent(version: Version) {
    let table = Table::lay(version, TTL).await;
    let queue = table.rust().client.queue("n").with_lease(SHORT);
    java_adds(table.java(), "queue-offer", "text", b"1").await;
    let first = queue.pop().await.expect("an item");
    assert_eq!(java(table.java(), "queue-size", "text").await, "0");
    assert_eq!(java(table.java(), "queue-poll", "text").await, "nothing");
    // Given back or not in time, it goes to a worker of ours, not to Java.
    first.retry(Duration::ZERO).await.expect("held");
    assert_eq!(java(table.java(), "queue-poll", "text").await, "nothing");
    let second = queue.pop().await.expect("an item");
    assert_eq!(second.deliveries(), 2);
    second.lost().await;
    assert_eq!(java(table.java(), "queue-poll", "text").await, "nothing");
    let third = queue.pop().await.expect("an item");
    assert_eq!(third.deliveries(), 3);
    assert!(second.ack().await.expect_err("it was lost").is_lost());
    // A dead item is not Java's until it is redriven.
    third.reject().await.expect("held");
    assert_eq!(java(table.java(), "queue-poll", "text").await, "nothing");
    assert_eq!(queue.redrive(10).await.expect("an answer"), 1);
    assert_eq!(java(table.java(), "queue-poll", "text").await, shown(b"1"));
}

/// Java polls while workers of ours pop, drop and retry: nobody gets what another one has taken.
async fn each_item_is_taken_by_one_whoever_takes_it(version: Version) {
    const ITEMS: usize = 300;
    let table = Table::lay(version, TTL).await;
    let queue = table.rust().client.queue("n").with_max_deliveries(None);
    let work = |seed: usize| {
        let queue = queue.clone();
        tokio::spawn(async move {
            let mut done = Vec::new();
            let mut turn = seed;
            while let Some(delivery) = queue.try_pop_for(ENOUGH).await? {
                turn += 1;
                match turn % 3 {
                    0 => drop(delivery),
                    1 => delivery.retry(Duration::from_millis(2)).await?,
                    _ => done.push(acked(delivery).await?),
                }
            }
            Ok::<_, Error>(done)
        })
    };
    let workers: Vec<_> = (0..3).map(work).collect();
    let mut javas = Vec::new();
    for number in 0..ITEMS {
        let item = number.to_string();
        if number % 2 == 0 {
            queue.push(&item).await.expect("pushed");
        } else {
            java_adds(table.java(), "queue-offer", "text", item.as_bytes()).await;
        }
        if number % 3 == 0 {
            let polled = java(table.java(), "queue-poll", "text").await;
            javas.extend(polled.strip_prefix('x').map(str::to_owned));
        }
    }
    let mut all = javas.clone();
    for worker in workers {
        let done = worker.await.expect("no panic").expect("held until the end");
        all.extend(done.iter().map(|item| digits(item)));
    }
    println!("Java polled {} of {ITEMS} items", javas.len());
    assert_eq!(all.len(), ITEMS);
    let all: BTreeSet<String> = all.into_iter().collect();
    let pushed = (0..ITEMS).map(|number| digits(number.to_string().as_bytes()));
    assert_eq!(all, pushed.collect());
}

async fn acked(delivery: Delivery) -> Result<Vec<u8>, Error> {
    let payload = delivery.payload().to_vec();
    delivery.ack().await?;
    Ok(payload)
}

async fn a_lock_is_no_queue(version: Version) {
    let table = Table::lay(version, TTL).await;
    let queue = table.rust().client.queue("n");
    assert_eq!(table.java().number("b", "lock plain 6e").await, 1);
    for error in [
        queue.push("1").await.expect_err("it is a lock"),
        queue.try_pop().await.expect_err("it is a lock"),
    ] {
        assert!(matches!(error, Error::WrongType { .. }), "{error:?}");
    }
    assert_eq!(table.java().number("b", "unlock plain 6e").await, 1);
    java_adds(table.java(), "queue-offer", "text", b"1").await;
    let error = table.rust().client.mutex("n").try_lock().await.expect_err("it is a queue");
    assert!(matches!(error, Error::WrongType { .. }), "{error:?}");
}

const TTL: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(1200);
/// Ours looks every 2 to 4 s for what Java has added.
const ENOUGH: Duration = Duration::from_secs(6);
const FOUND: Duration = Duration::from_secs(20);
