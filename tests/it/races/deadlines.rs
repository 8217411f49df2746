//! Calls and holds whose time is up before the answer comes.

use std::time::Instant;

use leasehold::{Error, LossReason};

use super::{MS, builder, connect_through, queued};
use crate::{
    checks::{LIMIT, connect, exists, nothing_left, setup, setup_with_proxy, soon},
    support::eventually,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connect_takes_no_longer_than_its_timeout_over_all_its_steps() {
    let (server, proxy) = setup_with_proxy().await;
    // With some of them the first connection is made in time, and the second would not be.
    for delay in [60, 70, 80, 90, 150] {
        proxy.delay_replies(delay * MS);
        let timeout = 500 * MS;
        let began_at = Instant::now();
        let answer = builder(proxy.url()).connect_timeout(timeout).connect().await;
        let took = began_at.elapsed();
        assert!(took < server.widened(timeout + 100 * MS), "{took:?}, answers {delay} ms late");
        assert!(matches!(answer, Ok(_) | Err(Error::Unavailable { .. })), "{answer:?}");
    }
}

/// An answer that comes after the deadline says nothing any more, so it is not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlock_waits_to_the_deadline_at_most() {
    let (server, proxy) = setup_with_proxy().await;
    let client = connect_through(&proxy).await;
    let guard = client.mutex("n").with_lease(1500 * MS).lock().await.expect("free");
    proxy.drop_replies(true);
    // Fewer than the 500 ms that an answer may take.
    let nearly_over = async || guard.remaining() < 200 * MS;
    eventually(LIMIT, "it is nearly over", nearly_over).await;
    let (began_at, left) = (Instant::now(), guard.remaining());
    let answer = guard.unlock().await;
    let took = began_at.elapsed();
    assert!(took < server.widened(left + 50 * MS), "{took:?}, with {left:?} left");
    assert!(matches!(answer, Err(Error::Unavailable { .. } | Error::Lost { .. })), "{answer:?}");
    proxy.drop_replies(false);
    proxy.cut();
    nothing_left(&server, &client).await;
}

/// The release could not be sent before the deadline, and reaches the server when another has the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlock_is_no_success_when_another_had_the_lock_before_it_was_sent() {
    let (server, proxy) = setup_with_proxy().await;
    let (client, other) = (connect_through(&proxy).await, connect(&server).await);
    let guard = client.mutex("n").with_lease(600 * MS).lock().await.expect("free");
    let waiting = tokio::spawn(other.mutex("n").lock());
    queued(&server).await;
    proxy.refuse(true);
    proxy.cut();
    eventually(LIMIT, "it is nearly over", async || guard.remaining() < 50 * MS).await;
    let unlock = tokio::spawn(guard.unlock());
    let theirs = soon("the lease ends", waiting).await;
    let theirs = theirs.expect("no panic").expect("free");
    proxy.refuse(false);
    let answer = unlock.await.expect("no panic");
    assert!(matches!(answer, Err(Error::Unavailable { .. } | Error::Lost { .. })), "{answer:?}");
    eventually(LIMIT, "nothing is owed", async || client.stats().releases_pending == 0).await;
    assert!(exists(&server, "n").await && theirs.is_held());
    theirs.unlock().await.expect("nobody took it away");
}

/// The nested hold asked for more than the fixed lease, and not for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longest_hold_nested_in_a_fixed_lease_ends_within_a_ttl_of_it() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n").with_ttl(600 * MS).owned_by(&client.owner());
    let outer = lock.with_lease(300 * MS).lock().await.expect("free");
    let inner = lock.with_max_hold(500 * MS).lock().await.expect("ours");
    let began_at = Instant::now();
    let reason = soon("it ends", inner.lost()).await;
    let took = began_at.elapsed();
    assert_eq!(reason, LossReason::Ended);
    assert!(took > 490 * MS && took < server.widened(1150 * MS), "{took:?}");
    assert!(!outer.is_held());
    drop((outer, inner));
    nothing_left(&server, &client).await;
}
