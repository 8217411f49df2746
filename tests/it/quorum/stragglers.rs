//! A master that is slow, hangs or is dead costs nothing while the others are a majority.

use std::time::{Duration, Instant};

use leasehold::{
    Client,
    NodeState::{Down, Up},
    Owner,
};

use super::deployment::{MS, Masters, all_up, connected, states_become};
use crate::{
    checks::{LIMIT, exists},
    support::{Spy, eventually},
};

/// Far above what anything here takes that does not wait for the slow one.
const LATE: Duration = Duration::from_secs(1);

/// Everything that is done with a lock, within one answer of the slow one.
async fn uses(client: &Client) {
    let began_at = Instant::now();
    let lock = client.mutex("n").owned_by(&Owner::new());
    for _ in 0..3 {
        let guard = lock.lock().await.expect("a majority");
        let nested = lock.with_ttl(20_000 * MS).lock().await.expect("widened");
        nested.extend(25_000 * MS).await.expect("held");
        drop(nested);
        guard.unlock().await.expect("held");
        let guard = lock.try_lock().await.expect("a majority").expect("free");
        let other = client.mutex("other").lock().await.expect("another lock");
        other.unlock().await.expect("held");
        guard.unlock().await.expect("held");
    }
    lock.run(async |guard| assert!(guard.is_held())).await.expect("held");
    assert!(began_at.elapsed() < LATE, "it waited for the slow one: {:?}", began_at.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_waits_for_a_slow_node() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder().ttl(10_000 * MS).response_timeout(3 * LATE)).await;
    uses(&client).await;
    masters.nothing_left(&[&client]).await;
    ways.0[1].delay_replies(LATE);
    uses(&client).await;
    masters.nothing_left(&[&client]).await;
}

/// Stopped it answers nothing at all until it goes on: everything is over before that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_waits_for_a_node_that_hangs() {
    let masters = Masters::start(3).await;
    let client = connected(masters.builder().ttl(10_000 * MS)).await;
    uses(&client).await;
    masters.0[1].pause();
    uses(&client).await;
    let guard = client.mutex("n").lock().await.expect("two of three");
    guard.unlock().await.expect("held");
    // By now it is given up, or will be.
    uses(&client).await;
    // What it was sent runs now; the releases behind it, too.
    masters.0[1].resume();
    masters.nothing_left(&[&client]).await;
}

/// The third never had the lease, so that it is free on a majority without the one that hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlock_waits_for_no_node_that_hangs_though_it_held_a_bare_majority() {
    let masters = Masters::start(3).await;
    let client = connected(masters.builder().ttl(10_000 * MS).response_timeout(3 * LATE)).await;
    masters.0[2].command(&["HSET", "n", "another:0", "1"]).await;
    let guard = client.mutex("n").lock().await.expect("two of three");
    masters.0[1].pause();
    let began_at = Instant::now();
    guard.unlock().await.expect("held");
    assert!(began_at.elapsed() < LATE, "{:?}", began_at.elapsed());
    assert!(!exists(&masters.0[0], "n").await);
    masters.0[1].resume();
    masters.0[2].command(&["DEL", "n"]).await;
    masters.nothing_left(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_waits_for_a_dead_node() {
    let masters = Masters::start(3).await;
    let client = connected(masters.builder().ttl(10_000 * MS)).await;
    uses(&client).await;
    masters.0[1].kill();
    uses(&client).await;
    masters.0[1].restart().await;
    masters.nothing_left(&[&client]).await;
}

/// Its grant counts as soon as it is known: it keeps the lease then, and loses it with the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_answers_late_keeps_the_lease_and_is_released() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder().ttl(3000 * MS)).await;
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
    ways.0[2].delay_replies(300 * MS);
    let spy = Spy::on(&masters.0[2]).await;
    let guard = client.mutex("n").lock().await.expect("two of three");
    masters.are_held("n", &[0, 1, 2]).await;
    // Through two renewals: the late one is renewed like the others, and not given the lease anew.
    let renewals = async || spy.count("lock_renew") >= 2;
    eventually(LIMIT, "it is renewed", renewals).await;
    assert_eq!(spy.count("lock_acquire"), 1, "it was put back although it was there");
    assert_eq!(spy.count("lock_release"), 0);
    let id = guard.holder().as_str().to_owned();
    guard.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
    let runs = spy.runs();
    let last = runs.last().expect("it was asked");
    assert_eq!((last.script, last.id()), ("lock_release", id.as_str()));
}

/// The acquire reaches the stopped node, and runs there when it goes on: in its place, before renewals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hung_during_an_acquire_has_the_lease_when_it_goes_on() {
    let masters = Masters::start(3).await;
    let client = masters.client().await;
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
    masters.0[2].pause();
    let guard = client.mutex("n").lock().await.expect("two of three");
    masters.0[2].resume();
    masters.are_held("n", &[0, 1, 2]).await;
    guard.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
}

/// A server that has been started anew knows no script: it must be sent whole, also to the node that nobody
/// waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_node_that_does_not_know_the_scripts_has_the_lease_before_long() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder()).await;
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
    ways.0[2].delay_replies(100 * MS);
    masters.0[2].command(&["SCRIPT", "FLUSH"]).await;
    // Neither is renewed within the time that is allowed here.
    let watched = client.mutex("watched").lock().await.expect("two of three");
    let fixed = client.mutex("fixed").with_lease(30_000 * MS).lock().await.expect("two of three");
    let began_at = Instant::now();
    for name in ["watched", "fixed"] {
        let has_it = async || exists(&masters.0[2], name).await;
        eventually(5000 * MS, "the slow node has the lease", has_it).await;
    }
    println!("after {:?}", began_at.elapsed());
    watched.unlock().await.expect("held");
    fixed.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
}

/// Other locks, taken and given back by other tasks and clients, all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_does_not_delay_other_locks() {
    let masters = Masters::start(5).await;
    let client = masters.client().await;
    for n in 0..8 {
        client.mutex(format!("n{n}")).lock().await.expect("free").unlock().await.expect("held");
    }
    masters.0[4].pause();
    let began_at = Instant::now();
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let lock = client.mutex(format!("n{n}"));
            tokio::spawn(async move {
                for _ in 0..20 {
                    lock.lock().await.expect("four of five").unlock().await.expect("held");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    println!("160 locks in {:?} with a node that hangs", began_at.elapsed());
    masters.0[4].resume();
    masters.nothing_left(&[&client]).await;
}

/// Nobody waits for its answers, and it is given up for want of them all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_while_a_lock_is_held_is_seen_to_be_down() {
    let masters = Masters::start(3).await;
    let client = connected(masters.builder().ttl(3000 * MS)).await;
    let guard = client.mutex("n").lock().await.expect("free");
    masters.are_held("n", &[0, 1, 2]).await;
    masters.0[1].pause();
    states_become(&client, &[Up, Down, Up]).await;
    assert!(client.is_ready(), "a majority is enough");
    masters.0[1].resume();
    all_up(&client).await;
    guard.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
}

/// All its answers come when nobody waits for them any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_node_that_takes_no_writes_any_more_is_seen_to_be_down() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder().ttl(3000 * MS)).await;
    ways.0[2].delay_replies(100 * MS);
    let guard = client.mutex("n").lock().await.expect("two of three");
    masters.are_held("n", &[0, 1, 2]).await;
    masters.0[2].command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    states_become(&client, &[Up, Up, Down]).await;
    masters.0[2].command(&["REPLICAOF", "NO", "ONE"]).await;
    guard.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
}
