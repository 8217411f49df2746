//! How many permits there are, and Redisson's semaphores of the same name.

use leasehold::Error;

use super::{HOLDERS, MS, all_are_back, api, are_waiting};
use crate::checks::{setup, soon};

#[tokio::test]
async fn permits_that_are_set_or_added_serve_those_who_wait() {
    let (server, [one, two]) = setup().await;
    let unmade = one.semaphore("api");
    assert!(unmade.try_acquire().await.expect("an answer").is_none(), "there are none");
    let waiting = tokio::spawn(two.semaphore("api").acquire_many(2));
    are_waiting(&unmade, 1).await;
    unmade.set_permits(1).await.expect("an answer");
    assert_eq!(unmade.available_permits().await.expect("an answer"), 1);
    assert!(!waiting.is_finished());
    unmade.add_permits(1).await.expect("an answer");
    let two_permits = soon("its turn", waiting).await.expect("no panic").expect("two");
    two_permits.release().await.expect("held");
    assert_eq!(api(&one, 9).available_permits().await.expect("an answer"), 2, "it exists already");
    all_are_back(&server, &two, 2).await;
}

#[tokio::test]
async fn lowered_permits_stay_with_their_holders() {
    let (server, [client]) = setup().await;
    let semaphore = api(&client, 3);
    let held = semaphore.acquire_many(3).await.expect("there are three");
    semaphore.set_permits(1).await.expect("an answer");
    let status = semaphore.status().await.expect("an answer");
    assert_eq!((status.available, status.held, status.permits()), (-2, 3, 1));
    assert_eq!(semaphore.available_permits().await.expect("an answer"), 0);
    assert!(held.is_held());
    held.release().await.expect("held");
    let one = semaphore.acquire().await.expect("there is one");
    assert!(semaphore.try_acquire().await.expect("an answer").is_none());
    one.release().await.expect("held");
    all_are_back(&server, &client, 1).await;
}

/// What Redisson's clients write: a plain semaphore counts at the key alone, one whose permits expire writes their ends.
#[tokio::test]
async fn permits_of_redisson_count_and_their_release_is_heard() {
    let (server, [client]) = setup().await;
    server.command(&["SET", "api", "3"]).await;
    let semaphore = api(&client, 3);
    server.command(&["DECRBY", "api", "2"]).await;
    server.command(&["DECR", "api"]).await;
    server.command(&["ZADD", HOLDERS, "922337203685477", "0123456789abcdef"]).await;
    let status = semaphore.status().await.expect("an answer");
    assert_eq!((status.available, status.held, status.holders[0].remaining), (0, 1, None));
    assert_eq!(status.holders[0].holder.client(), None);
    let waiting = tokio::spawn(semaphore.acquire_many(2));
    let channel = "redisson_sc:{api}";
    crate::support::eventually(crate::checks::LIMIT, "the first listens", async || {
        crate::support::subscribers(&server, channel).await == 1
    })
    .await;
    let asked_at = std::time::Instant::now();
    server.command(&["INCRBY", "api", "2"]).await;
    server.command(&["PUBLISH", channel, "2"]).await;
    let permit = soon("its turn", waiting).await.expect("no panic").expect("two are back");
    let took = asked_at.elapsed();
    assert!(took < server.widened(1_000 * MS), "it heard of it: {took:?}");
    permit.release().await.expect("held");
    let status = semaphore.status().await.expect("an answer");
    assert!(semaphore.force_release(&status.holders[0]).await.expect("an answer"));
    all_are_back(&server, &client, 3).await;
}

#[tokio::test]
async fn every_holder_is_seen_and_freed_with_all_its_permits() {
    let (server, [client]) = setup().await;
    let pool = api(&client, 2500);
    let mut permits = Vec::new();
    for weight in [500, 600, 700] {
        permits.push(pool.acquire_many(weight).await.expect("there are enough"));
    }
    let status = pool.status().await.expect("an answer");
    let counts: Vec<u32> = status.holders.iter().map(|holder| holder.permits).collect();
    assert_eq!((status.held, counts), (1800, vec![500, 600, 700]));
    assert!(pool.force_release(&status.holders[1]).await.expect("an answer"));
    assert_eq!(pool.available_permits().await.expect("an answer"), 1300);
    assert!(!permits[1].is_held(), "it is told at once");
    // More than Redisson can count.
    let error = pool.add_permits(i32::MAX as u32 - 2499).await.expect_err("too many");
    assert!(matches!(&error, Error::InvalidArgument { .. }), "{error:?}");
    assert_eq!(pool.available_permits().await.expect("an answer"), 1300);
    drop(permits);
    all_are_back(&server, &client, 2500).await;
}
