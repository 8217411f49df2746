//! Watched locks, fixed leases, extensions, and terms nested in each other.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, LossReason};

use crate::{
    checks::{LIMIT, exists, nothing_left, pttl, setup, setup_with_proxy, soon},
    support::eventually,
};

const MS: Duration = Duration::from_millis(1);

#[tokio::test]
async fn a_watched_lock_never_falls_below_half_its_ttl() {
    let (server, [client]) = setup().await;
    let guard = client.mutex("n").with_ttl(900 * MS).lock().await.expect("free");
    let mut raw = server.raw().await;
    let mut lowest = i64::MAX;
    let until = Instant::now() + 3_000 * MS;
    while Instant::now() < until {
        let pttl: i64 = redis::cmd("PTTL").arg("n").query_async(&mut raw).await.expect("a number");
        lowest = lowest.min(pttl);
        assert!(guard.is_held());
        tokio::time::sleep(2 * MS).await;
    }
    let stall = i64::try_from(server.longest_stall().as_millis()).expect("a short time");
    assert!(lowest >= 450 - stall, "{lowest} ms, with a stall of {stall} ms");
    assert!(lowest < 890, "it is not renewed all the time: {lowest}");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_fixed_lease_is_not_renewed() {
    let (server, [client]) = setup().await;
    let guard = client.mutex("n").with_lease(500 * MS).lock().await.expect("free");
    let mut last = (i64::MAX, Duration::MAX);
    while guard.is_held() {
        let now = (pttl(&server, "n").await, guard.remaining());
        assert!(now.0 <= last.0 && now.1 <= last.1, "{now:?} after {last:?}");
        last = now;
        tokio::time::sleep(5 * MS).await;
    }
    eventually(LIMIT, "the key is gone, too", async || !exists(&server, "n").await).await;
    drop(guard);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn extending_lengthens_a_fixed_lease_and_never_shortens_it() {
    let (server, [client]) = setup().await;
    let guard = client.mutex("n").with_lease(500 * MS).lock().await.expect("free");
    guard.extend(20 * Duration::from_secs(1)).await.expect("held");
    assert!(guard.remaining() > Duration::from_secs(15), "{:?}", guard.remaining());
    assert!(pttl(&server, "n").await > 15_000);
    guard.extend(50 * MS).await.expect("held");
    assert!(guard.remaining() > Duration::from_secs(15), "{:?}", guard.remaining());
    assert!(pttl(&server, "n").await > 15_000);
    server.command(&["DEL", "n"]).await;
    let answer = guard.extend(LIMIT).await;
    assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Gone, .. })), "{answer:?}");
    assert!(!guard.is_held());
    let answer = guard.extend(LIMIT).await;
    assert!(matches!(answer, Err(Error::Lost { .. })), "{answer:?}");
    assert!(!exists(&server, "n").await, "nothing is made again after a loss");
    drop(guard);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn an_extension_that_nobody_confirms_leaves_the_old_end() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let guard = client.mutex("n").with_lease(600 * MS).lock().await.expect("free");
    proxy.drop_replies(true);
    let answer = guard.extend(20 * Duration::from_secs(1)).await;
    assert!(matches!(answer, Err(Error::Unavailable { .. } | Error::Lost { .. })), "{answer:?}");
    assert!(guard.remaining() < 600 * MS);
    let reason = soon("it ends when it would have", guard.lost()).await;
    assert_eq!(reason, LossReason::Ended);
    drop(guard);
    proxy.drop_replies(false);
    proxy.cut();
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_nested_watchdog_outlasts_the_fixed_lease_around_it() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n").owned_by(&client.owner());
    let outer = lock.with_lease(900 * MS).lock().await.expect("free");
    let inner = lock.with_ttl(900 * MS).lock().await.expect("ours");
    assert_eq!((inner.hold_count(), inner.token()), (2, outer.token()));
    // Several leases: what is tested is that it stays held.
    let lost = tokio::time::timeout(2_500 * MS, outer.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    drop(inner);
    assert!(outer.is_held());
    outer.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_nested_watchdog_with_a_longest_hold_in_a_fixed_lease_ends() {
    let (_server, [client]) = setup().await;
    let me = client.owner();
    let lock = client.mutex("n").owned_by(&me);
    let outer = lock.with_lease(600 * MS).lock().await.expect("free");
    let inner = lock.with_ttl(600 * MS).with_max_hold(900 * MS).lock().await.expect("ours");
    let lost = tokio::time::timeout(Duration::from_secs(3), outer.lost()).await;
    assert!(lost.is_ok(), "neither of the two asked for more than a second");
    drop((outer, inner));
}

#[tokio::test]
async fn what_a_nested_acquisition_asks_for_ends_with_it() {
    let (server, [client]) = setup().await;
    let ttl = Duration::from_secs(3);
    let lock = client.mutex("n").owned_by(&client.owner()).with_ttl(ttl);
    let outer = lock.with_max_hold(100 * MS).lock().await.expect("free");
    let inner = lock.lock().await.expect("ours");
    let again = inner.reenter().expect("ours");
    drop(inner);
    // More than one lease: what is entered again lasts as long as what it was made of.
    let lost = tokio::time::timeout(ttl * 3 / 2, outer.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    drop(again);
    soon("the end of the longest hold", outer.lost()).await;
    drop(outer);
    nothing_left(&server, &client).await;
}

/// Renewals go on where little was asked for.
#[tokio::test]
async fn a_watched_lock_that_is_extended_by_little_is_renewed_in_time() {
    let (server, [client]) = setup().await;
    let ttl = Duration::from_secs(2);
    let guard = client.mutex("n").with_ttl(ttl).lock().await.expect("free");
    let until = Instant::now() + 2 * ttl;
    while Instant::now() < until {
        guard.extend(50 * MS).await.expect("it is renewed");
        tokio::time::sleep(50 * MS).await;
    }
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn nested_terms_widen_and_never_shorten() {
    let (server, [client]) = setup().await;
    let second = Duration::from_secs(1);
    let lock = client.mutex("n").owned_by(&client.owner());

    // Longer and shorter leases in a fixed one.
    let outer = lock.with_lease(second).lock().await.expect("free");
    let longer = lock.with_lease(20 * second).lock().await.expect("ours");
    assert!(outer.remaining() > 15 * second && pttl(&server, "n").await > 15_000);
    let shorter = lock.with_lease(50 * MS).lock().await.expect("ours");
    assert!(outer.remaining() > 15 * second && pttl(&server, "n").await > 15_000);
    drop((shorter, longer));
    assert!(outer.remaining() > 15 * second && pttl(&server, "n").await > 15_000);
    outer.unlock().await.expect("held");

    // In a watched one.
    let outer = lock.with_ttl(900 * MS).lock().await.expect("free");
    let short = lock.with_lease(20 * MS).lock().await.expect("ours");
    let lost = tokio::time::timeout(2_000 * MS, outer.lost()).await;
    assert!(lost.is_err(), "a short lease inside does not stop its watchdog: {lost:?}");
    let long = lock.with_ttl(20 * second).lock().await.expect("ours");
    assert!(outer.remaining() > 15 * second && pttl(&server, "n").await > 15_000);
    drop((short, long));
    assert!(outer.remaining() > 15 * second);
    outer.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// They are granted the lock together, by the request of the first.
#[tokio::test]
async fn waiters_of_one_owner_have_what_each_of_them_asks_for() {
    let (server, [client, other]) = setup().await;
    let minute = Duration::from_secs(60);
    let lock = client.mutex("n").owned_by(&client.owner()).with_ttl(2_000 * MS);
    let pairs = [
        [lock.with_lease(5_000 * MS), lock.with_lease(minute)],
        [lock.clone(), lock.with_min_hold(minute)],
    ];
    for pair in pairs {
        let held = other.mutex("n").lock().await.expect("free");
        let mut waiting = Vec::new();
        for lock in pair {
            waiting.push(tokio::spawn(lock.lock()));
            let all_wait = async || client.stats().waiters == waiting.len();
            eventually(LIMIT, "they wait", all_wait).await;
        }
        held.unlock().await.expect("held");
        let mut guards = Vec::new();
        for waiting in waiting {
            let guard = soon("their turn comes", waiting).await;
            guards.push(guard.expect("no panic").expect("theirs"));
        }
        assert_eq!(guards[0].token(), guards[1].token(), "they use one hold");
        let left = pttl(&server, "n").await;
        assert!(left > 30_000, "the server keeps it for {left} ms");
        drop(guards);
        // The min hold is not over.
        other.mutex("n").force_unlock().await.expect("an answer");
    }
    nothing_left(&server, &client).await;
}
