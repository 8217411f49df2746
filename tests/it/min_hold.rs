//! Locks that stay taken for a minimum of time, also if they are given back before.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, Guard, Mutex, NodeState};

use crate::{
    checks::{LIMIT, client_is_idle, connect, exists, nothing_left, pttl, setup, setup_with_proxy},
    support::{Outage, Server, eventually},
};

const MS: Duration = Duration::from_millis(1);

async fn taken(lock: &Mutex) -> Guard {
    lock.lock().await.expect("free")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_given_back_early_stays_taken_until_its_min_hold_is_over() {
    const MIN_HOLD: Duration = Duration::from_millis(600);
    let (server, [here, elsewhere]) = setup().await;
    let job = here.mutex("job").with_min_hold(MIN_HOLD);
    for dropped in [false, true] {
        let began_at = Instant::now();
        let guard = taken(&job).await;
        let holder = guard.holder();
        if dropped {
            drop(guard);
            let shortened = async || pttl(&server, "job").await <= MIN_HOLD.as_millis() as i64;
            eventually(LIMIT, "the lock's time is shortened", shortened).await;
        } else {
            guard.unlock().await.expect("held");
        }
        assert_eq!(here.holds().len(), 0, "nobody here holds it any more");
        for client in [&here, &elsewhere] {
            let attempt = client.mutex("job").try_lock().await.expect("asked");
            let early = began_at.elapsed() < MIN_HOLD;
            assert!(attempt.is_none() || !early, "taken again after {:?}", began_at.elapsed());
        }
        let status = elsewhere.mutex("job").status().await.expect("asked");
        assert!(status.holder.is_none_or(|shown| shown == holder), "another holder is shown");
        let next = elsewhere.mutex("job").lock_with_timeout(LIMIT).await.expect("free in the end");
        assert!(began_at.elapsed() >= MIN_HOLD, "free after {:?}", began_at.elapsed());
        next.unlock().await.expect("held");
    }
    nothing_left(&server, &here).await;
}

/// Its release is owed until the server can be reached, and what was left of the min hold with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_given_back_in_an_outage_stays_taken_until_its_min_hold_is_over() {
    let (server, proxy) = setup_with_proxy().await;
    let here = Client::connect(&proxy.url()).await.expect("connected");
    let elsewhere = connect(&server).await;
    let other = elsewhere.mutex("job");
    let job = here.mutex("job").with_min_hold(Duration::from_secs(20));
    for dropped in [false, true] {
        let test = async |outage: &Outage<'_>| {
            let guard = taken(&job).await;
            outage.begins();
            let is_down = async || here.nodes()[0].state == NodeState::Down;
            eventually(LIMIT, "the outage is noticed", is_down).await;
            if dropped {
                drop(guard);
            } else {
                guard.unlock().await.expect_err("the server cannot be reached");
            }
            outage.ends().await;
            let is_sent = async || here.stats().releases_pending == 0;
            eventually(LIMIT, "the server has the release", is_sent).await;
            let left = pttl(&server, "job").await;
            assert!((1..=20_000).contains(&left), "the server keeps it for {left} ms");
            assert!(other.try_lock().await.expect("asked").is_none(), "it is free too early");
            assert!(other.force_unlock().await.expect("asked"));
        };
        Outage::cut_off([&proxy]).twice(test).await;
    }
    nothing_left(&server, &here).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_held_for_longer_than_its_min_hold_is_free_at_once() {
    let (server, [client]) = setup().await;
    let guard = taken(&client.mutex("job").with_min_hold(20 * MS)).await;
    tokio::time::sleep(21 * MS).await;
    guard.unlock().await.expect("held");
    assert!(!exists(&server, "job").await);
    client_is_idle(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_frees_no_lock_before_its_min_hold_is_over() {
    let server = Server::start().await;
    let client = Client::builder().nodes([server.url()]).ttl(900 * MS).connect().await;
    let client = client.expect("connected");
    let job = client.mutex("job").with_min_hold(Duration::from_secs(5));
    let _guard = taken(&job).await;
    let left = pttl(&server, "job").await;
    assert!((4_000..=5_000).contains(&left), "the server keeps it for {left} ms");
    // Nested terms count, too.
    let owner = client.owner();
    let outer = taken(&client.mutex("nested").owned_by(&owner)).await;
    let inner = taken(&client.mutex("nested").owned_by(&owner).with_min_hold(7_000 * MS)).await;
    let left = pttl(&server, "nested").await;
    assert!((6_000..=7_000).contains(&left), "the server keeps it for {left} ms");
    drop(inner);
    outer.unlock().await.expect("held");
    let left = pttl(&server, "nested").await;
    assert!((5_000..=7_000).contains(&left), "the server keeps it for {left} ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_with_a_min_hold_is_handed_to_nobody_in_the_process_before_its_time() {
    const MIN_HOLD: Duration = Duration::from_millis(300);
    let server = Server::start().await;
    let client = Client::builder()
        .nodes([server.url()])
        .ttl(MIN_HOLD)
        .handoff_window(MIN_HOLD / 2)
        .connect()
        .await
        .expect("connected");
    let theirs = taken(&connect(&server).await.mutex("job")).await;
    // The second might have the lease of the first, and the third that of the second.
    let mut waiting = Vec::new();
    for (place, min_hold) in [MIN_HOLD, Duration::ZERO, MIN_HOLD].into_iter().enumerate() {
        let lock = client.mutex("job").with_min_hold(min_hold);
        waiting.push(tokio::spawn(async move {
            let guard = lock.lock_with_timeout(LIMIT).await.expect("free in the end");
            let (holder, at) = (guard.holder(), Instant::now());
            guard.unlock().await.expect("held");
            (holder, at)
        }));
        eventually(LIMIT, "a task waits", async || client.stats().waiters == place + 1).await;
    }
    let began_at = Instant::now();
    theirs.unlock().await.expect("held");
    let mut turns = Vec::new();
    for waiting in waiting {
        turns.push(waiting.await.expect("no panic"));
    }
    let after = turns[1].1 - began_at;
    assert!(after >= MIN_HOLD, "handed on after {after:?}");
    assert_ne!(turns[1].0, turns[0].0, "the first lease ends with its min hold");
    // Somebody used it before: it is too short for a min hold.
    assert_ne!(turns[2].0, turns[1].0, "the third has a lease of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_that_is_dropped_keeps_nobody_out() {
    let (server, [client]) = setup().await;
    let job = client.mutex("job").with_min_hold(Duration::from_secs(20));
    for polls in 1..=2 {
        let mut acquiring = Box::pin(job.lock());
        server.pause();
        for _ in 0..polls {
            if futures_util::poll!(&mut acquiring).is_ready() {
                panic!("the answer cannot be there yet");
            }
        }
        drop(acquiring);
        server.resume();
        nothing_left(&server, &client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_unlock_ends_a_min_hold() {
    let (server, [client]) = setup().await;
    let job = client.mutex("job").with_min_hold(Duration::from_secs(20));
    taken(&job).await.unlock().await.expect("held");
    assert!(job.force_unlock().await.expect("asked"));
    taken(&client.mutex("job")).await.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_fixed_lease_shorter_than_the_min_hold_is_refused() {
    let (_server, [client]) = setup().await;
    let job = client.mutex("job").with_lease(1_000 * MS);
    let refused = job.with_min_hold(1_001 * MS).try_lock().await;
    let Err(Error::InvalidConfig { problem, .. }) = refused else { panic!("{refused:?}") };
    assert!(problem.contains("min_hold is 1.001s"), "{problem}");
    let too_long = client.mutex("job").with_min_hold(Duration::from_secs(31 * 24 * 60 * 60));
    assert!(matches!(too_long.try_lock().await, Err(Error::InvalidConfig { .. })));
    let kept = job.with_min_hold(1_000 * MS).try_lock().await.expect("asked");
    assert!(kept.is_some());
}

#[tokio::test]
async fn threads_have_min_holds_too() {
    let server = Server::start().await;
    let url = server.url();
    let early = tokio::task::spawn_blocking(move || {
        let client = leasehold::blocking::Client::connect(&url).expect("connected");
        let job = client.mutex("job").with_min_hold(Duration::from_secs(20));
        job.lock().expect("free").unlock().expect("held");
        client.mutex("job").try_lock().expect("asked").is_some()
    });
    assert!(!early.await.expect("no panic"), "it is free before its time");
    assert!((1..=20_000).contains(&pttl(&server, "job").await));
}
