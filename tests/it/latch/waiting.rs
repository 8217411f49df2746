//! Counting down, and those who wait for the last count.

use std::time::{Duration, Instant};

use leasehold::{Error, Latch, LockKind};

use super::{CHANNEL, HOUR, MS, shut};
use crate::cancellation::drop_after;
use crate::checks::{client_is_idle, connect, exists, lock_keys, setup, setup_with_proxy, soon};
use crate::support::{Server, eventually, subscribers};

async fn somebody_listens(server: &Server, many: i64) {
    let listens = async || subscribers(server, CHANNEL).await == many;
    eventually(crate::checks::LIMIT, "they listen", listens).await;
}

#[tokio::test]
async fn all_who_wait_go_on_with_the_last_count_and_hear_of_it_by_a_message() {
    let (server, [one, other]) = setup().await;
    let latch = shut(&one, 3).await;
    assert!(!other.latch("ready").try_set_count(9, HOUR).await.expect("an answer"));
    let here = tokio::spawn(latch.wait());
    let there = tokio::spawn(other.latch("ready").wait_with_timeout(HOUR));
    somebody_listens(&server, 2).await;
    for left in [2, 1] {
        assert_eq!(latch.count_down().await.expect("an answer"), left);
        assert_eq!(other.latch("ready").count().await.expect("an answer"), left);
    }
    assert!(!here.is_finished() && !there.is_finished());
    let counted_at = Instant::now();
    assert_eq!(other.latch("ready").count_down().await.expect("an answer"), 0);
    soon("here", here).await.expect("no panic").expect("it is open");
    soon("there", there).await.expect("no panic").expect("it is open");
    // The timer is at 2 s.
    assert!(counted_at.elapsed() < server.widened(1500 * MS), "{:?}", counted_at.elapsed());
    assert!(!exists(&server, "ready").await);
    for client in [&one, &other] {
        client_is_idle(client).await;
    }
}

#[tokio::test]
async fn a_latch_that_was_never_set_or_is_open_keeps_nobody() {
    let (_server, [client]) = setup().await;
    let latch = client.latch("ready");
    soon("nothing to wait for", latch.wait()).await.expect("it is open");
    assert_eq!(latch.count().await.expect("an answer"), 0);
    assert_eq!(latch.count_down().await.expect("an answer"), 0);
    let latch = shut(&client, 1).await;
    assert_eq!(latch.count_down().await.expect("an answer"), 0);
    soon("it was counted", latch.wait()).await.expect("it is open");
    // The next one of the name.
    let latch = shut(&client, 1).await;
    assert!(latch.wait_with_timeout(Duration::ZERO).await.is_err());
}

#[tokio::test]
async fn deleting_it_opens_it() {
    let (server, [one, other]) = setup().await;
    let latch = shut(&one, 3).await;
    let waiting = tokio::spawn(other.latch("ready").wait());
    somebody_listens(&server, 1).await;
    assert!(latch.delete().await.expect("an answer"));
    soon("it goes on", waiting).await.expect("no panic").expect("it is open");
    soon("so does who deleted it", latch.wait()).await.expect("it is open");
    assert!(!latch.delete().await.expect("an answer"));
}

#[tokio::test]
async fn a_wait_ends_with_its_time_and_says_what_is_left() {
    let (server, [client]) = setup().await;
    let latch = shut(&client, 2).await;
    let began_at = Instant::now();
    let error = latch.wait_with_timeout(200 * MS).await.expect_err("nobody counts");
    let took = began_at.elapsed();
    assert!((200 * MS..server.widened(500 * MS)).contains(&took), "{took:?}");
    let Error::StillWaiting { kind: LockKind::Latch, name, state, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!((&**name, &**state), ("ready", "2 counts are left"));
    assert!(error.is_timeout() && error.is_retryable());
    latch.count_down().await.expect("an answer");
    let error = latch.wait_with_timeout(Duration::ZERO).await.expect_err("one is left");
    assert!(error.to_string().ends_with("waiting for latch \"ready\": 1 count is left"), "{error}");
    client_is_idle(&client).await;
}

/// Somebody who publishes nothing stands for a message that is lost.
#[tokio::test]
async fn without_a_message_it_is_seen_within_four_seconds() {
    let (server, [client]) = setup().await;
    let latch = shut(&client, 1).await;
    let waiting = tokio::spawn(latch.wait());
    somebody_listens(&server, 1).await;
    server.command(&["DEL", "ready"]).await;
    soon("it looks again", waiting).await.expect("no panic").expect("it is open");
}

#[tokio::test]
async fn a_message_that_is_none_opens_nothing() {
    let (server, [client]) = setup().await;
    let latch = shut(&client, 1).await;
    let waiting = tokio::spawn(latch.wait());
    somebody_listens(&server, 1).await;
    for word in ["0", "1", "-1", "no number"] {
        server.command(&["PUBLISH", CHANNEL, word]).await;
    }
    tokio::time::sleep(100 * MS).await;
    assert!(!waiting.is_finished());
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_dropped_at_any_await_leaves_nothing() {
    let (server, proxy) = setup_with_proxy().await;
    let client = leasehold::Client::connect(&proxy.url()).await.expect("connected");
    let other = connect(&server).await;
    proxy.delay_replies(MS);
    let uses: [fn(Latch) -> _; 2] = [
        |latch: Latch| -> futures_util::future::BoxFuture<'static, Result<(), Error>> {
            Box::pin(async move { latch.wait().await })
        },
        |latch: Latch| Box::pin(async move { latch.wait_with_timeout(HOUR).await }),
    ];
    for usage in uses {
        let mut ended = false;
        for steps in 0..100 {
            shut(&other, 1).await;
            let counting = async {
                tokio::time::sleep(12 * MS).await;
                other.latch("ready").count_down().await.expect("an answer");
            };
            let (end, ()) = tokio::join!(drop_after(usage(client.latch("ready")), steps), counting);
            client_is_idle(&client).await;
            assert!(lock_keys(&server).await.is_empty());
            if let Some(end) = end {
                end.expect("it was counted");
                assert!(steps >= 4, "it was never dropped half-way");
                ended = true;
                break;
            }
        }
        assert!(ended);
    }
}
