//! Who leaves the queue, and what the others learn of it.

use std::time::Duration;

use super::{
    QUEUE, ask, entry, leave, leave_granted, leave_later, line, listen, queued, told, try_once,
};
use crate::scripts::bench::{Bench, NAME};

#[tokio::test]
async fn who_leaves_the_queue_is_gone_from_it_and_holds_nothing() {
    let mut bench = Bench::start().await;
    let [mut b, mut c, mut d] = line(&mut bench, ["b", "c", "d"]).await;
    bench.expect_twice(&leave("c:1"), ["0"; 2], "[a:1, 1] 30s").await;
    assert_eq!(queued(&mut bench).await, "b:1 d:1");
    for mailbox in [&mut b, &mut c, &mut d] {
        assert!(told(&mut bench, mailbox).await.is_empty(), "the first is still the first");
    }
}

#[tokio::test]
async fn when_the_first_leaves_the_next_is_told_once() {
    let mut bench = Bench::start().await;
    let [mut b, mut c, mut d] = line(&mut bench, ["b", "c", "d"]).await;
    bench.expect_twice(&leave("b:1"), ["0"; 2], "[a:1, 1] 30s").await;
    assert_eq!(queued(&mut bench).await, "c:1 d:1");
    assert_eq!(told(&mut bench, &mut c).await, ["next c:1 30s a:1"]);
    assert!(told(&mut bench, &mut b).await.is_empty());
    assert!(told(&mut bench, &mut d).await.is_empty());
}

#[tokio::test]
async fn when_the_first_leaves_a_free_lock_the_next_is_told_that_it_is_free() {
    let mut bench = Bench::start().await;
    let [_b, mut c] = line(&mut bench, ["b", "c"]).await;
    bench.command(&format!("DEL {NAME}")).await;
    bench.expect_twice(&leave("b:1"), ["0"; 2], "none").await;
    assert_eq!(told(&mut bench, &mut c).await, ["free c:1"]);
}

#[tokio::test]
async fn a_holder_without_an_end_is_told_as_such() {
    let mut bench = Bench::start().await;
    let [_b, mut c] = line(&mut bench, ["b", "c"]).await;
    bench.command(&format!("PERSIST {NAME}")).await;
    bench.expect(&leave("b:1"), "0", "[a:1, 1] -1").await;
    assert_eq!(told(&mut bench, &mut c).await, ["next c:1 -1 a:1"]);
}

#[tokio::test]
async fn when_the_first_leaves_those_behind_it_that_are_gone_leave_with_it() {
    let mut bench = Bench::start().await;
    let [_b, mut d] = line(&mut bench, ["b", "d"]).await;
    let arrival = bench.server.command(&["ZSCORE", QUEUE, &entry("b:1")]).await;
    let arrival: f64 = redis::from_redis_value(arrival).expect("a number");
    // It has no mailbox.
    let behind_b = (arrival + 1.0).to_string();
    bench.server.command(&["ZADD", QUEUE, &behind_b, &entry("c:1")]).await;
    assert_eq!(queued(&mut bench).await, "b:1 c:1 d:1");
    bench.run(&leave("b:1")).await.expect("the script runs");
    assert_eq!(queued(&mut bench).await, "d:1");
    assert_eq!(told(&mut bench, &mut d).await, ["next d:1 30s a:1"]);
}

#[tokio::test]
async fn who_leaves_after_it_was_granted_the_lock_frees_it_for_the_next() {
    let mut bench = Bench::start().await;
    let [_b, mut c, mut d] = line(&mut bench, ["b", "c", "d"]).await;
    bench.run(&leave("a:1")).await.expect("the script runs");
    told(&mut bench, &mut c).await;
    // It does not know of the grant.
    bench.expect(&leave("b:1"), "1", "[c:1, 1] 2s").await;
    assert_eq!(told(&mut bench, &mut c).await, ["grant c:1 token 2s token"]);
    assert_eq!(told(&mut bench, &mut d).await, ["next d:1 2s c:1"]);
}

#[tokio::test]
async fn a_release_that_runs_twice_frees_one_lease_and_grants_one() {
    for release in [leave("a:1"), leave_granted("a:1")] {
        let mut bench = Bench::start().await;
        let [mut b, mut c] = line(&mut bench, ["b", "c"]).await;
        bench.expect_twice(&release, ["1", "0"], "[b:1, 1] 2s").await;
        assert_eq!(told(&mut bench, &mut b).await, ["grant b:1 token 2s token"]);
        assert_eq!(told(&mut bench, &mut c).await, ["next c:1 2s b:1"]);
        assert_eq!(queued(&mut bench).await, "c:1");
    }
}

/// The lease was lost: the next one has the lock, and others wait.
#[tokio::test]
async fn a_release_that_comes_late_changes_nothing() {
    let mut bench = Bench::start().await;
    let [mut b, mut c] = line(&mut bench, ["b", "c"]).await;
    bench.command(&format!("DEL {NAME}")).await;
    bench.acquired(&ask("b:1")).await;
    told(&mut bench, &mut c).await;
    bench.expect_twice(&leave("a:1"), ["0"; 2], "[b:1, 1] 30s").await;
    assert_eq!(queued(&mut bench).await, "c:1");
    assert!(told(&mut bench, &mut b).await.is_empty());
    assert!(told(&mut bench, &mut c).await.is_empty());
}

#[tokio::test]
async fn a_release_that_keeps_the_lock_tells_the_first_for_how_long() {
    let mut bench = Bench::start().await;
    let [mut b, mut c] = line(&mut bench, ["b", "c"]).await;
    bench.expect_twice(&leave_later("a:1", 5_000), ["1"; 2], "[a:1, 1] 5s").await;
    assert_eq!(told(&mut bench, &mut b).await, ["next b:1 5s a:1"]);
    assert!(told(&mut bench, &mut c).await.is_empty());
    bench.expect(&leave_later("a:1", 20_000), "1", "[a:1, 1] 5s").await;
    assert!(told(&mut bench, &mut b).await.is_empty(), "nothing has changed");
    // One that waits may leave in this way, too.
    bench.expect(&leave_later("b:1", 20_000), "0", "[a:1, 1] 5s").await;
    assert_eq!(told(&mut bench, &mut c).await, ["next c:1 5s a:1"]);
}

/// A late ask may put a lease into the queue that has the lock.
#[tokio::test]
async fn a_confirmed_lease_leaves_the_queue() {
    let mut bench = Bench::start().await;
    let mut b = listen(&bench, "b").await;
    bench.acquired(&try_once("a:1")).await;
    bench.server.command(&["ZADD", QUEUE, "1", &entry("a:1")]).await;
    bench.run(&ask("b:1")).await.expect("the script runs");
    assert_eq!(queued(&mut bench).await, "a:1 b:1");
    bench.expect(&ask("a:1"), "token", "[a:1, 1] 30s").await;
    assert_eq!(queued(&mut bench).await, "b:1");
    assert_eq!(told(&mut bench, &mut b).await, ["next b:1 30s a:1"]);
}

/// Who gives the lock back lives: the next place of its client is not taken for one of a client that stands still.
#[tokio::test]
async fn a_client_keeps_its_places_that_kept_the_lock_for_its_shortest_hold() {
    let mut bench = Bench::start().await;
    let [mut b] = line(&mut bench, ["b"]).await;
    bench.run(&ask("b:2")).await.expect("the script runs");
    bench.expect(&leave("a:1"), "1", "[b:1, 1] 2s").await;
    bench.run(&leave_later("b:1", 20)).await.expect("the script runs");
    tokio::time::sleep(Duration::from_millis(40)).await;
    told(&mut bench, &mut b).await;
    bench.run(&try_once("d:1")).await.expect("the script runs");
    assert_eq!(told(&mut bench, &mut b).await, ["grant b:2 token 2s token"]);
}
