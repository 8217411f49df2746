//! TTLs, and longest and shortest holds, which count from the moment when all are held.

use std::time::{Duration, Instant};

use leasehold::{Error, LossReason, MultiLock};

use super::{LIMIT, MS, are_held, taken, token};
use crate::checks::{nothing_left, pttl, setup, soon};
use crate::support::{eventually, waiting};

#[tokio::test]
async fn each_lock_is_renewed_by_the_ttl_of_the_handle() {
    let (server, [client]) = setup().await;
    let guard = taken(&client.multi_lock(["a", "b"]).with_ttl(900 * MS)).await;
    assert!(guard.remaining() <= 900 * MS);
    let lost = tokio::time::timeout(2_500 * MS, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(guard.is_held());
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_hold_begins_when_all_are_held() {
    const TTL: Duration = Duration::from_millis(900);
    const MAX_HOLD: Duration = Duration::from_millis(900);
    let (server, [client, other]) = setup().await;
    let held = other.mutex("b").lock().await.expect("free");
    let locks = client.multi_lock(["a", "b"]).with_ttl(TTL).with_max_hold(MAX_HOLD);
    let waits = tokio::spawn(locks.lock());
    are_held(&other, &["a"], true).await;
    let first = other.mutex("a").status().await.expect("an answer").last_token;
    // Longer than the hold would last if it counted from its own beginning.
    let until = Instant::now() + TTL + MAX_HOLD + 300 * MS;
    while Instant::now() < until {
        assert_eq!(other.mutex("a").status().await.expect("an answer").last_token, first);
        tokio::time::sleep(10 * MS).await;
    }
    held.unlock().await.expect("held");
    let freed_at = Instant::now();
    let guard = soon("all are held", waits).await.expect("no panic").expect("free");
    assert!(guard.is_held() && Some(token(&guard, "a")) == first, "a was lost meanwhile");
    let error = soon("it ends", guard.lost()).await;
    assert!(matches!(error, Error::Lost { reason: LossReason::Ended, .. }), "{error:?}");
    assert!(freed_at.elapsed() >= MAX_HOLD, "it ended after {:?}", freed_at.elapsed());
    drop(guard);
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nested_lock_never_ends_earlier_than_the_hold_around_it() {
    let (server, [client, other]) = setup().await;
    let me = client.owner();
    let outer = client.mutex("a").with_ttl(900 * MS).owned_by(&me).lock().await.expect("free");
    let locks = client.multi_lock(["a", "b"]).with_ttl(900 * MS).with_max_hold(100 * MS);
    let both = taken(&locks.owned_by(&me)).await;
    let error = soon("b ends", both.lost()).await;
    assert!(matches!(&error, Error::Lost { lock, .. } if &**lock == "b"), "{error:?}");
    drop(both);
    let lost = tokio::time::timeout(1200 * MS, outer.lost()).await;
    assert!(lost.is_err() && outer.is_held(), "{lost:?}");
    outer.unlock().await.expect("held");
    are_held(&other, &["a"], false).await;
    nothing_left(&server, &client).await;
}

/// A hold with an end that is nested in an acquisition that comes to nothing keeps its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_fails_changes_nothing_about_the_hold_around_it() {
    let (server, [client, other]) = setup().await;
    let me = client.owner();
    let limited = client.mutex("a").with_ttl(900 * MS).with_max_hold(900 * MS).owned_by(&me);
    let outer = limited.lock().await.expect("free");
    let held = other.mutex("b").lock().await.expect("free");
    let both = client.multi_lock(["a", "b"]).owned_by(&me);
    assert!(both.try_lock().await.expect("an answer").is_none());
    assert_eq!(outer.hold_count(), 1);
    let reason = soon("it ends in spite of that", outer.lost()).await;
    assert_eq!(reason, LossReason::Ended);
    held.unlock().await.expect("held");
    drop(outer);
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shortest_hold_begins_when_all_are_held() {
    let (server, [client, other]) = setup().await;
    let held = other.mutex("b").lock().await.expect("free");
    let job = client.mutex("a").with_min_hold(1500 * MS);
    let both = MultiLock::of([job, client.mutex("b")]);
    assert!(both.try_lock().await.expect("an answer").is_none());
    // What came to nothing keeps nobody out.
    are_held(&other, &["a"], false).await;
    let waits = tokio::spawn(both.lock());
    eventually(LIMIT, "it waits", async || waiting(&server, "b").await == 1).await;
    held.unlock().await.expect("held");
    let began_at = Instant::now();
    soon("all are held", waits)
        .await
        .expect("no panic")
        .expect("free")
        .unlock()
        .await
        .expect("held");
    let next = soon("it is free in the end", other.mutex("a").lock()).await.expect("free");
    assert!(began_at.elapsed() >= 1500 * MS, "free after {:?}", began_at.elapsed());
    next.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// A lock that was taken before the others has less left than that when all are held, unless it is lengthened then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shortest_hold_longer_than_the_ttl_lasts_from_the_moment_when_all_are_held() {
    const MIN_HOLD: Duration = Duration::from_millis(2400);
    let (server, [client, other]) = setup().await;
    let held = other.mutex("b").lock().await.expect("free");
    let job = client.mutex("a").with_ttl(900 * MS).with_min_hold(MIN_HOLD);
    let waits = tokio::spawn(MultiLock::of([job, client.mutex("b")]).lock());
    // It is renewed when a third of it is over.
    let has_less = async || (1..1_900).contains(&pttl(&server, "a").await);
    eventually(LIMIT, "a part of it is over", has_less).await;
    let began_at = Instant::now();
    held.unlock().await.expect("held");
    let both = soon("all are held", waits).await.expect("no panic").expect("free");
    both.unlock().await.expect("held");
    let next = soon("it is free in the end", other.mutex("a").lock()).await.expect("free");
    let after = began_at.elapsed();
    // A server counts whole milliseconds.
    assert!(after >= MIN_HOLD - 10 * MS, "free after {after:?}");
    next.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}
