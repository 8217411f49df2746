//! Looking at a lock, and breaking it, over several masters.

use std::time::Duration;

use leasehold::{Error, Holder, LossReason, Owner};

use super::deployment::{MS, Masters, connected, states_become};
use crate::{
    checks::LIMIT,
    support::{Server, eventually},
};

use leasehold::NodeState::{Down, Up};

async fn hold_by_hand(server: &Server, holder: &str, ttl_ms: u64) {
    server.command(&["HSET", "n", holder, "3"]).await;
    server.command(&["PEXPIRE", "n", &ttl_ms.to_string()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_is_seen_as_a_majority_has_it() {
    let masters = Masters::start(3).await;
    let (holder, looker) = (masters.client().await, masters.client().await);
    let lock = looker.mutex("n");
    let status = lock.status().await.expect("an answer");
    assert_eq!((status.holder, status.hold_count, status.remaining), (None, 0, None));
    assert!(!lock.is_locked().await.expect("an answer"));
    assert_eq!(lock.remaining_ttl().await.expect("an answer"), None);

    let me = Owner::new();
    let guard = holder.mutex("n").owned_by(&me).lock().await.expect("free");
    let nested = guard.reenter().expect("held");
    for away in [None, Some(0)] {
        if let Some(index) = away {
            masters.0[index].kill();
        }
        let seen = async || {
            let status = lock.status().await.expect("a majority answers");
            status.holder == Some(guard.holder()) && status.hold_count == 2
        };
        eventually(LIMIT, "two levels are seen", seen).await;
        let status = lock.status().await.expect("a majority answers");
        assert_eq!(&*status.name, "n");
        assert_eq!(status.since, None, "not known over several nodes");
        assert!(status.last_token >= Some(guard.token()));
        assert!(status.remaining.is_some_and(|left| left > 15_000 * MS && left <= 30_000 * MS));
        assert_eq!(lock.holder().await.expect("an answer"), Some(guard.holder()));
        assert!(lock.is_locked().await.expect("an answer"));
        let left = lock.remaining_ttl().await.expect("an answer").expect("held");
        assert!(left > 15_000 * MS && left <= 30_000 * MS);
        assert!(lock.try_lock().await.expect("an answer").is_none());
    }
    drop(nested);
    guard.unlock().await.expect("held");
    assert!(!lock.is_locked().await.expect("an answer"));
}

/// What a minority has is nobody's lock; it lasts as long as a majority has it.
#[tokio::test]
async fn a_minoritys_word_is_none() {
    let masters = Masters::start(3).await;
    let client = masters.client().await;
    let lock = client.mutex("n");
    let somebody = |number| format!("somebody:f81d4fae-7dec-41d0-a765-00a0c91e6bf{number}");
    hold_by_hand(&masters.0[0], &somebody(1), 20_000).await;
    assert_eq!(lock.holder().await.expect("an answer"), None);
    assert_eq!(lock.remaining_ttl().await.expect("an answer"), None);
    // Two holders on one node each, after a split vote: still nobody.
    hold_by_hand(&masters.0[1], &somebody(2), 20_000).await;
    assert!(!lock.is_locked().await.expect("an answer"));

    hold_by_hand(&masters.0[2], &somebody(2), 9000).await;
    let status = lock.status().await.expect("an answer");
    assert_eq!(status.holder.as_ref().map(Holder::as_str), Some(&*somebody(2)));
    assert_eq!(status.hold_count, 3);
    let left = status.remaining.expect("it has an end");
    assert!(left <= 9000 * MS, "for {left:?}: a majority has it no longer than the shorter one");
}

/// Nobody has a majority. Two masters would grant it, so all that refuse it are heard.
#[tokio::test]
async fn a_timeout_names_the_holder_that_more_masters_have() {
    let masters = Masters::start(5).await;
    let client = masters.client().await;
    let somebody = |number| format!("somebody:f81d4fae-7dec-41d0-a765-00a0c91e6bf{number}");
    for other in 0..3 {
        for (index, server) in masters.0[..3].iter().enumerate() {
            let (number, ttl_ms) = if index == other { (1, 20_000) } else { (2, 9000) };
            server.command(&["DEL", "n"]).await;
            hold_by_hand(server, &somebody(number), ttl_ms).await;
        }
        // What was granted before is given back.
        masters.are_held("n", &[0, 1, 2]).await;
        match client.mutex("n").lock_with_timeout(Duration::ZERO).await {
            Err(Error::Timeout { holder: Some(holder), remaining: Some(left), .. }) => {
                assert_eq!(holder.as_str(), somebody(2), "node {other} has the other one");
                assert!(left <= 9000 * MS, "{left:?}");
            }
            answer => panic!("three have it: {answer:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_seen() {
    let masters = Masters::start(3).await;
    let (holder, waiter) = (masters.client().await, masters.client().await);
    let guard = holder.mutex("n").lock().await.expect("free");
    let waiting = tokio::spawn(waiter.mutex("n").lock());
    let seen = async || holder.mutex("n").status().await.is_ok_and(|now| now.waiting_clients == 1);
    eventually(LIMIT, "one waits", seen).await;
    drop(guard);
    waiting.await.expect("no panic").expect("free").unlock().await.expect("held");
}

#[tokio::test]
async fn without_a_majority_nothing_is_said() {
    let masters = Masters::start(3).await;
    let client = connected(masters.builder().response_timeout(200 * MS)).await;
    hold_by_hand(&masters.0[2], "somebody:1", 20_000).await;
    masters.0[0].kill();
    masters.0[1].kill();
    states_become(&client, &[Down, Down, Up]).await;
    let lock = client.mutex("n");
    for answer in [
        lock.status().await.map(drop),
        lock.holder().await.map(drop),
        lock.is_locked().await.map(drop),
        lock.remaining_ttl().await.map(drop),
        lock.force_unlock().await.map(drop),
        client.check().await.map(drop),
    ] {
        assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_force_unlock_frees_all_nodes_and_wakes_those_who_wait() {
    let masters = Masters::start(3).await;
    let (holder, waiter) = (masters.client().await, masters.client().await);
    let lock = waiter.mutex("n");
    assert!(!lock.force_unlock().await.expect("an answer"), "it was free");
    let guard = holder.mutex("n").lock().await.expect("free");
    masters.are_held("n", &[0, 1, 2]).await;
    let waiting = tokio::spawn(waiter.mutex("n").lock());
    let waits = async || waiter.mutex("n").status().await.is_ok_and(|now| now.waiting_clients == 1);
    eventually(LIMIT, "one waits", waits).await;
    assert!(lock.force_unlock().await.expect("an answer"));
    // Long before the holder's next renewal.
    let next = tokio::time::timeout(1500 * MS, waiting).await.expect("woken").expect("no panic");
    let next = next.expect("free");
    assert!(next.token() > guard.token());
    next.unlock().await.expect("held");
    let answer = guard.unlock().await;
    assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Gone, .. })), "{answer:?}");
    masters.nothing_left(&[&holder, &waiter]).await;
}

#[tokio::test]
async fn a_force_unlock_of_a_certain_holder_frees_no_other() {
    let masters = Masters::start(3).await;
    let client = masters.client().await;
    let lock = client.mutex("n");
    let first = lock.lock().await.expect("free");
    let former = first.holder();
    first.unlock().await.expect("held");
    let guard = lock.lock().await.expect("free");
    assert!(!lock.force_unlock_if(&former).await.expect("an answer"));
    assert!(guard.is_held());
    assert!(lock.force_unlock_if(&guard.holder()).await.expect("an answer"));
    assert!(!guard.is_held(), "by the same client it is known at once");
    drop(guard);
    masters.nothing_left(&[&client]).await;
}

#[tokio::test]
async fn a_force_unlock_fails_where_the_silent_nodes_may_make_a_majority() {
    let masters = Masters::start(3).await;
    let client = connected(masters.builder().response_timeout(200 * MS)).await;
    hold_by_hand(&masters.0[1], "somebody:1", 20_000).await;
    masters.0[0].kill();
    states_become(&client, &[Down, Up, Up]).await;
    let answer = client.mutex("n").force_unlock().await;
    assert!(matches!(answer, Err(Error::Unavailable { .. })), "one freed, one silent: {answer:?}");
    let answer = client.mutex("n").force_unlock().await;
    assert!(matches!(answer, Ok(false)), "two had nothing to free: {answer:?}");
}

/// Whatever is left of a vote that nobody won.
#[tokio::test]
async fn a_force_unlock_clears_what_a_minority_has() {
    let masters = Masters::start(3).await;
    let client = masters.client().await;
    hold_by_hand(&masters.0[1], "somebody:1", 20_000).await;
    assert!(!client.mutex("n").force_unlock().await.expect("an answer"), "no majority had it");
    assert_eq!(masters.having("n").await, 0);
    let guard = client.mutex("n").lock_with_timeout(Duration::from_secs(1)).await;
    guard.expect("free").unlock().await.expect("held");
}
