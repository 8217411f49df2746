//! What nested acquisitions promise: a hold never ends before the longest of what its levels asked for, and the owner
//! of a scope stays the owner inside of `run`.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, Guard, LossReason, MultiLock, Mutex};

use crate::{
    checks::{nothing_left, setup, soon},
    support::Server,
};

const MS: Duration = Duration::from_millis(1);

/// Takes `outer`, then `inner` after a while, and sees the hold end no sooner than `least` after the inner one was
/// asked for, and no later than `most`.
async fn ends(
    outer: impl Fn(&Mutex) -> Mutex,
    after: Duration,
    inner: impl Fn(&Mutex) -> Mutex,
    least: Duration,
    most: Duration,
) {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n").owned_by(&client.owner());
    let first = outer(&lock).lock().await.expect("free");
    tokio::time::sleep(after).await;
    let asked_at = Instant::now();
    let second = inner(&lock).lock().await.expect("ours");
    let nested_at = Instant::now();
    assert_eq!(second.hold_count(), 2);
    let reason = soon("it ends", first.lost()).await;
    let (longest, shortest) = (asked_at.elapsed(), nested_at.elapsed());
    assert_eq!(reason, LossReason::Ended);
    assert!(longest >= least, "it ended {longest:?} after the nested one, not {least:?}");
    let most = server.widened(most + 50 * MS);
    assert!(shortest <= most, "it ended {shortest:?} after the nested one, not {most:?}");
    drop((first, second));
    nothing_left(&server, &client).await;
}

/// Less what is given up for clocks that drift.
fn lease(lease: Duration) -> Duration {
    lease - lease / 100 - 2 * MS
}

#[tokio::test]
async fn a_fixed_lease_nested_in_a_hold_that_ends_sooner_lasts_its_time() {
    let outer = |lock: &Mutex| lock.with_ttl(900 * MS).with_max_hold(600 * MS);
    let inner = |lock: &Mutex| lock.with_lease(3000 * MS);
    ends(outer, 100 * MS, inner, lease(3000 * MS), 3000 * MS).await;
}

#[tokio::test]
async fn a_longest_hold_that_is_nested_counts_from_its_own_acquisition() {
    let outer = |lock: &Mutex| lock.with_ttl(900 * MS).with_max_hold(2000 * MS);
    let inner = |lock: &Mutex| lock.with_ttl(900 * MS).with_max_hold(2500 * MS);
    // Counted from the outer one it would be over 2200 ms after the nested one at the latest.
    ends(outer, 1200 * MS, inner, 2500 * MS, 2500 * MS + 900 * MS).await;
}

#[tokio::test]
async fn a_longest_hold_nested_in_a_fixed_lease_counts_from_its_own_acquisition() {
    let outer = |lock: &Mutex| lock.with_lease(2500 * MS);
    let inner = |lock: &Mutex| lock.with_ttl(900 * MS).with_max_hold(2500 * MS);
    ends(outer, 1200 * MS, inner, 2500 * MS, 2500 * MS + 900 * MS).await;
}

#[tokio::test]
async fn a_shorter_longest_hold_that_is_nested_shortens_nothing() {
    let outer = |lock: &Mutex| lock.with_ttl(900 * MS).with_max_hold(2000 * MS);
    let inner = |lock: &Mutex| lock.with_ttl(900 * MS).with_max_hold(200 * MS);
    ends(outer, 100 * MS, inner, 1800 * MS, 2000 * MS + 900 * MS).await;
}

#[tokio::test]
async fn a_longer_ttl_that_is_nested_lasts_for_the_rest_of_the_hold() {
    let outer = |lock: &Mutex| lock.with_ttl(600 * MS).with_max_hold(1000 * MS);
    let inner = |lock: &Mutex| lock.with_ttl(3000 * MS).with_max_hold(1000 * MS);
    ends(outer, 100 * MS, inner, lease(3000 * MS), 1000 * MS + 3000 * MS).await;
}

/// Whoever waits for itself would wait for ever: one attempt says so.
async fn is_ours(lock: &Mutex, outer: &Guard) {
    let guard = lock.try_lock().await.expect("an answer");
    let nested = guard.expect("the owner of the scope holds it, and is the one who asks");
    assert_eq!((nested.owner(), nested.token()), (outer.owner(), outer.token()));
}

#[tokio::test]
async fn inside_of_run_the_owner_of_the_scope_re_enters_its_other_locks() {
    let (server, [client]) = setup().await;
    let (first, second, third) = (client.mutex("one"), client.mutex("two"), client.mutex("three"));
    let me = client.owner();
    me.scope(async {
        let outer = first.lock().await.expect("free");
        let answer = second.run(async |body| {
            assert_eq!(body.owner(), &me);
            is_ours(&first, &outer).await;
            is_ours(&second, body).await;
            // One more level of each.
            let inner = third.run(async |inner| {
                is_ours(&first, &outer).await;
                is_ours(&second, body).await;
                is_ours(&third, inner).await;
            });
            inner.await.expect("held");
            is_ours(&first, &outer).await;
        });
        answer.await.expect("held");
        is_ours(&first, &outer).await;
        outer.unlock().await.expect("held");
    })
    .await;
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn bodies_of_run_in_each_other_re_enter_each_of_their_locks() {
    let (server, [client]) = setup().await;
    let (first, second) = (client.mutex("one"), client.mutex("two"));
    let answer = first.run(async |outer| {
        let answer = second.run(async |inner| {
            is_ours(&first, outer).await;
            is_ours(&second, inner).await;
            assert_ne!(outer.owner(), inner.owner());
        });
        answer.await.expect("held");
        is_ours(&first, outer).await;
        let others = second.try_lock().await.expect("an answer").expect("it was given back");
        assert_ne!(others.owner(), outer.owner());
    });
    answer.await.expect("held");
    nothing_left(&server, &client).await;
}

/// The servers are asked to make the hold last as the inner acquisition wants, and do not answer.
#[tokio::test]
async fn an_inner_acquisition_waits_no_longer_than_its_caller_does() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).response_timeout(4000 * MS);
    let client = builder.connect().await.expect("connected");
    let owner = client.owner();
    let lock = client.mutex("n").owned_by(&owner);
    let several = MultiLock::of([lock.with_ttl(20_000 * MS)]);
    let outer = lock.with_lease(9000 * MS).lock().await.expect("free");
    server.pause();
    let began_at = Instant::now();
    let one = lock.with_lease(20_000 * MS).lock_with_timeout(200 * MS).await.map(drop);
    let took_one = began_at.elapsed();
    let all = several.lock_with_timeout(200 * MS).await.map(drop);
    let took_all = began_at.elapsed() - took_one;
    server.resume();
    for (answer, took) in [(one, took_one), (all, took_all)] {
        assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
        assert!(took < server.widened(500 * MS), "{took:?}");
    }
    assert_eq!((outer.is_held(), outer.hold_count()), (true, 1));
    outer.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}
