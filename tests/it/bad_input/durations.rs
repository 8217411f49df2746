//! Leases, waits and settings that are zero, tiny, endless or out of range.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, Guard};

use super::{MS, acquiring_errors, builder, problem};
use crate::{
    checks::{LIMIT, client_is_idle, connect, nothing_left, setup, setup_with_proxy, soon, told},
    support::{Server, Spy, eventually},
};

#[tokio::test]
async fn a_duration_out_of_range_is_told_by_connect() {
    let server = Server::start().await;
    let day = Duration::from_secs(24 * 60 * 60);
    let absurd = [Duration::from_secs(u64::MAX), Duration::MAX];
    let never = [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999)];

    for ttl in never.into_iter().chain([9 * MS, 30 * day + MS]).chain(absurd) {
        let problem = problem(builder(&server).ttl(ttl)).await;
        assert!(problem.contains("ttl"), "{problem}");
    }
    for timeout in never.into_iter().chain(absurd) {
        let problems = [
            ("response_timeout", problem(builder(&server).response_timeout(timeout)).await),
            ("connect_timeout", problem(builder(&server).connect_timeout(timeout)).await),
            ("unavailable_after", problem(builder(&server).unavailable_after(timeout)).await),
            ("warn_held_after", problem(builder(&server).warn_held_after(timeout)).await),
        ];
        for (setting, problem) in problems {
            assert!(problem.contains(setting), "{problem}");
        }
    }
    for retention in [Duration::ZERO, Duration::from_secs(59), 366 * day, Duration::MAX] {
        let problem = problem(builder(&server).token_retention(retention)).await;
        assert!(problem.contains("token_retention"), "{problem}");
    }
    for window in [1001 * MS, Duration::MAX] {
        let problem = problem(builder(&server).handoff_window(window)).await;
        assert!(problem.contains("handoff_window"), "{problem}");
    }
    let problem = problem(builder(&server).ttl(100 * MS).handoff_window(51 * MS)).await;
    assert!(problem.contains("handoff_window") && problem.contains("ttl"), "{problem}");

    // The ends of the ranges are inside.
    let client = builder(&server)
        .ttl(30 * day)
        .response_timeout(day)
        .unavailable_after(30 * day)
        .handoff_window(Duration::ZERO)
        .connect()
        .await
        .expect("settings in range");
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_duration_out_of_range_is_told_by_the_acquiring_call() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    let month = Duration::from_secs(30 * 24 * 60 * 60);
    let mut handles = vec![lock.with_max_hold(Duration::ZERO)];
    let bad = [Duration::ZERO, Duration::from_nanos(1), 9 * MS, month + MS, Duration::MAX];
    for term in bad {
        handles.push(lock.with_lease(term));
        handles.push(lock.with_ttl(term));
    }
    for handle in handles {
        for error in acquiring_errors(&handle).await {
            assert!(matches!(error, Error::InvalidConfig { .. }), "{handle:?}: {error:?}");
        }
    }
    let guard = lock.with_lease(month).lock().await.expect("free");
    for term in bad {
        let error = guard.extend(term).await.expect_err("out of range");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    }
    assert!(guard.is_held() && guard.remaining() <= month);
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_lease_with_a_fraction_of_a_millisecond_is_rounded_up() {
    let (server, [client]) = setup().await;
    let spy = Spy::on(&server).await;
    let lease = Duration::from_secs(20) + Duration::from_nanos(1);
    let guard = client.mutex("n").with_lease(lease).lock().await.expect("free");
    assert!(guard.remaining() < lease, "here it ends before it does at the server");
    let asked = async || spy.count("lock_acquire") > 0;
    eventually(LIMIT, "the server was asked", asked).await;
    assert_eq!(spy.runs()[0].ttl_ms(), 20_001);
    guard.unlock().await.expect("held");
}

#[tokio::test]
async fn the_longest_hold_may_be_tiny_or_endless() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    let tiny = lock.with_ttl(100 * MS).with_max_hold(Duration::from_nanos(1));
    let guard = tiny.lock().await.expect("free");
    soon("never renewed, so it ends", guard.lost()).await;
    drop(guard);
    let guard = lock.with_max_hold(Duration::MAX).lock().await.expect("free");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_wait_of_zero_is_one_attempt() {
    let (server, [holder, client]) = setup().await;
    let lock = client.mutex("n");
    let guard = lock.lock_with_timeout(Duration::ZERO).await.expect("free");
    guard.unlock().await.expect("held");
    let guard = lock.try_lock_for(Duration::ZERO).await.expect("an answer").expect("free");
    guard.unlock().await.expect("held");

    let held = holder.mutex("n").lock().await.expect("free");
    let before = server.scripts_run().await;
    let error = lock.lock_with_timeout(Duration::ZERO).await.expect_err("another holds it");
    assert!(
        matches!(&error, Error::Timeout { holder, .. } if *holder == Some(held.holder())),
        "{error:?}"
    );
    assert!(lock.try_lock_for(Duration::ZERO).await.expect("an answer").is_none());
    assert!(lock.try_lock().await.expect("an answer").is_none());
    assert_eq!(server.scripts_run().await - before, 3, "each of the three asked once");
    // It never stood in line: one connection for commands, one that tried subscriptions at the start.
    assert_eq!(client.stats().connections_made, connect(&server).await.stats().connections_made);
    client_is_idle(&client).await;
    held.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn an_endless_wait_ends_with_the_lock_and_not_before() {
    let (server, [holder]) = setup().await;
    // The servers answer "held" all the time: that is no trouble, however short the patience with trouble.
    let client = builder(&server).unavailable_after(20 * MS).connect().await.expect("connected");
    let held = holder.mutex("n").lock().await.expect("free");
    let waits: Vec<_> =
        [Duration::MAX, Duration::MAX - Duration::from_nanos(1), Duration::from_secs(1 << 40)]
            .into_iter()
            .map(|timeout| {
                let lock = client.mutex("n");
                tokio::spawn(async move { lock.lock_with_timeout(timeout).await?.unlock().await })
            })
            .chain([tokio::spawn({
                let lock = client.mutex("n");
                async move { lock.lock().await?.unlock().await }
            })])
            .collect();
    eventually(LIMIT, "all wait", async || client.stats().waiters == 4).await;
    // Longer than the patience: what is tested is that nothing ends meanwhile.
    tokio::time::sleep(200 * MS).await;
    assert_eq!(client.stats().waiters, 4);
    held.unlock().await.expect("held");
    for wait in waits {
        let got = soon("no hang", wait).await.expect("no panic");
        got.expect("the lock, in the end");
    }
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_ttl_shorter_than_the_way_to_the_server_is_a_clear_error() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::builder()
        .nodes([proxy.url()])
        .unavailable_after(300 * MS)
        .connect()
        .await
        .expect("connected");
    proxy.delay_replies(200 * MS);
    let lock = client.mutex("n").with_ttl(100 * MS);
    let unavailable = |answer: Result<Option<Guard>, Error>| match answer {
        Err(error @ Error::Unavailable { .. }) => {
            assert!(told(&error).contains(&proxy.port().to_string()))
        }
        other => panic!("not what cannot be: {other:?}"),
    };

    let started_at = Instant::now();
    unavailable(lock.try_lock().await);
    // A third of the TTL, for want of a connection and then of an answer.
    assert!(started_at.elapsed() < server.widened(200 * MS), "{:?}", started_at.elapsed());
    let started_at = Instant::now();
    unavailable(lock.try_lock_for(250 * MS).await);
    let waited = started_at.elapsed();
    assert!((250 * MS..server.widened(300 * MS)).contains(&waited), "{waited:?}");
    let started_at = Instant::now();
    unavailable(lock.lock().await.map(Some));
    assert!(started_at.elapsed() < server.widened(2000 * MS), "{:?}", started_at.elapsed());
    nothing_left(&server, &client).await;

    proxy.delay_replies(Duration::ZERO);
    let guard = lock.lock_with_timeout(LIMIT).await.expect("the way is short again");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}
