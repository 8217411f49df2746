//! A lease that passes to a waiter of the same client, or may not.

use std::time::{Duration, Instant};

use leasehold::{Guard, LossReason};

use super::{MS, builder, connect_through, queued, with_one_behind};
use crate::{
    checks::{LIMIT, connect, exists, nothing_left, setup_with_proxy, soon},
    support::{Server, eventually},
};

/// The servers' counter is the end of the block: the one hold of a block of one has that token, and those to
/// whom a lease passes have none above it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_token_is_above_the_counter() {
    let server = Server::start().await;
    let builder = builder(server.url()).handoff_window(Duration::from_secs(1));
    let client = builder.connect().await.expect("connected");
    let lock = client.mutex("n");
    let counter = async || {
        let counter = server.command(&["GET", "leasehold_token:{n}"]).await;
        redis::from_redis_value::<u64>(counter).expect("a number")
    };
    let guard = lock.lock().await.expect("free");
    assert_eq!(guard.token(), counter().await);
    let waiting = tokio::spawn(lock.lock());
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
    guard.unlock().await.expect("held");
    let guard = waiting.await.expect("no panic").expect("free");
    assert!(guard.token() <= counter().await, "the block was used up");
    guard.unlock().await.expect("held");

    let (guard, waiting) = with_one_behind(&server, &client, &lock, &lock).await;
    let (first, end) = (guard.token(), counter().await);
    assert!(first < end, "there are tokens for those to whom it passes");
    guard.unlock().await.expect("held");
    let guard = waiting.await.expect("no panic").expect("free");
    assert_eq!((guard.token(), counter().await), (first + 1, end));
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// Who waits on other terms than the holder's does not take over the holder's lease, however young.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_on_other_terms_gets_a_lease_of_its_own() {
    let server = Server::start().await;
    let builder = builder(server.url()).handoff_window(Duration::from_secs(1));
    let client = builder.connect().await.expect("connected");
    let lock = client.mutex("n");
    let others = [lock.with_ttl(LIMIT), lock.with_lease(LIMIT), lock.with_ttl(4 * LIMIT)];
    for (other, ttl) in others.into_iter().zip([LIMIT, LIMIT, 4 * LIMIT]) {
        let (guard, waiting) = with_one_behind(&server, &client, &lock, &other).await;
        let (holder, token) = (guard.holder(), guard.token());
        guard.unlock().await.expect("held");
        let guard = waiting.await.expect("no panic").expect("free");
        assert_ne!(guard.holder(), holder);
        assert!(guard.token() > token);
        let left = guard.remaining();
        assert!(left <= ttl && left > ttl - Duration::from_secs(5), "{left:?} of {ttl:?}");
        guard.unlock().await.expect("held");
    }
    let (guard, waiting) = with_one_behind(&server, &client, &lock, &lock).await;
    let holder = guard.holder();
    guard.unlock().await.expect("held");
    let guard = waiting.await.expect("no panic").expect("free");
    assert_eq!(guard.holder(), holder, "on equal terms it is handed off");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// The longest hold is that of the one who has the lock, however the lock came to it, and of nobody after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longest_hold_counts_for_the_one_who_asked_for_it() {
    let server = Server::start().await;
    let builder = builder(server.url()).handoff_window(Duration::from_secs(1));
    let client = builder.connect().await.expect("connected");
    let ends = async |guard: Guard| {
        let began_at = Instant::now();
        let reason = soon("it ends", guard.lost()).await;
        assert_eq!(reason, LossReason::Ended);
        let took = began_at.elapsed();
        assert!(took < server.widened(1400 * MS), "{took:?}");
    };
    let [a, c] = ["a", "c"].map(|name| client.mutex(name).with_ttl(900 * MS));
    let (guard, waiting) = with_one_behind(&server, &client, &a, &a.with_max_hold(300 * MS)).await;
    guard.unlock().await.expect("held");
    let handed_off = waiting.await.expect("no panic").expect("free");
    let theirs = connect(&server).await.mutex("c").lock().await.expect("free");
    let waiting = tokio::spawn(c.with_max_hold(300 * MS).lock());
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
    theirs.unlock().await.expect("held");
    let from_another = waiting.await.expect("no panic").expect("free");
    tokio::join!(ends(handed_off), ends(from_another));
    nothing_left(&server, &client).await;
}

/// The first hold was to end before any renewal; the next one has the same lease, and no end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_handed_on_by_a_short_longest_hold_is_renewed() {
    let server = Server::start().await;
    let builder = builder(server.url()).handoff_window(Duration::from_secs(1));
    let client = builder.connect().await.expect("connected");
    let lock = client.mutex("n").with_ttl(900 * MS);
    let short = lock.with_max_hold(300 * MS);
    let (guard, waiting) = with_one_behind(&server, &client, &short, &lock).await;
    guard.unlock().await.expect("held");
    let guard = waiting.await.expect("no panic").expect("free");
    let lost = tokio::time::timeout(1600 * MS, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// A lease that nobody has renewed for too long is given back, although it is young enough to pass on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_past_half_its_time_is_not_handed_on() {
    let (server, proxy) = setup_with_proxy().await;
    let builder = builder(proxy.url()).handoff_window(Duration::from_secs(1));
    let client = builder.connect().await.expect("connected");
    let lock = client.mutex("n").with_ttl(900 * MS);
    let (guard, waiting) = with_one_behind(&server, &client, &lock, &lock).await;
    let holder = guard.holder();
    proxy.hold_replies();
    eventually(LIMIT, "half is over", async || guard.remaining() < 440 * MS).await;
    drop(guard);
    proxy.release_replies();
    let guard = waiting.await.expect("no panic").expect("free");
    assert_ne!(guard.holder(), holder);
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// The ask in flight was for one who has left; who waits behind it wants other terms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_asked_for_one_who_left_goes_to_nobody_on_other_terms() {
    let (server, proxy) = setup_with_proxy().await;
    let (client, other) = (connect_through(&proxy).await, connect(&server).await);
    let theirs = other.mutex("n").lock().await.expect("free");
    let lock = client.mutex("n");
    let first = tokio::spawn(lock.with_lease(4 * LIMIT).lock());
    queued(&server).await;
    let second = tokio::spawn(lock.with_lease(LIMIT).lock());
    eventually(LIMIT, "both wait", async || client.stats().waiters == 2).await;
    // The message comes, is answered by an ask, and the grant is on its way for that long.
    proxy.delay_replies(300 * MS);
    theirs.unlock().await.expect("held");
    eventually(LIMIT, "it is granted", async || exists(&server, "n").await).await;
    first.abort();
    assert!(first.await.is_err_and(|error| error.is_cancelled()));
    let guard = soon("it has its turn", second).await;
    let guard = guard.expect("no panic").expect("free");
    assert!(guard.remaining() <= LIMIT, "{:?}", guard.remaining());
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}
