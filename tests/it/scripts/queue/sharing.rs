//! The queue beside Redisson, whose waiters listen to the lock's channel and are in no queue.

use super::granting::gone;
use super::{ask, leave, leave_granted, line, queued, told, try_once};
use crate::scripts::bench::{Bench, NAME};

const JAVA: &str = "8c4dc58a-7bd1-4d2f-9e53-0b2a4ac4b3a7:1";

#[tokio::test]
async fn a_lease_that_came_by_message_leaves_the_lock_free_for_those_on_the_channel() {
    let mut bench = Bench::start().await;
    let [mut b, mut c] = line(&mut bench, ["b", "c"]).await;
    let mut java = bench.subscriber().await;
    bench.expect_twice(&leave_granted("a:1"), ["2", "0"], "none").await;
    assert_eq!(bench.messages(&mut java).await, ["0"]);
    assert_eq!(told(&mut bench, &mut b).await, ["free b:1"]);
    assert!(told(&mut bench, &mut c).await.is_empty());
    assert_eq!(queued(&mut bench).await, "b:1 c:1");

    // Nobody took it.
    bench.expect(&ask("b:1"), "token", "[b:1, 1] 30s").await;
    assert_eq!(told(&mut bench, &mut c).await, ["next c:1 30s b:1"]);
}

#[tokio::test]
async fn a_lease_that_came_by_an_answer_is_followed_by_a_grant_whoever_is_on_the_channel() {
    let mut bench = Bench::start().await;
    let [mut b, _c] = line(&mut bench, ["b", "c"]).await;
    let mut java = bench.subscriber().await;
    bench.expect(&leave("a:1"), "1", "[b:1, 1] 2s").await;
    assert!(bench.messages(&mut java).await.is_empty(), "nothing is free");
    assert_eq!(told(&mut bench, &mut b).await, ["grant b:1 token 2s token"]);
}

#[tokio::test]
async fn with_nobody_on_the_channel_grant_follows_grant() {
    let mut bench = Bench::start().await;
    let [mut b, _c] = line(&mut bench, ["b", "c"]).await;
    bench.expect(&leave_granted("a:1"), "1", "[b:1, 1] 2s").await;
    assert_eq!(told(&mut bench, &mut b).await, ["grant b:1 token 2s token"]);
}

#[tokio::test]
async fn the_first_in_the_queue_learns_that_java_holds_the_lock() {
    let mut bench = Bench::start().await;
    let [_b, mut c] = line(&mut bench, ["b", "c"]).await;
    bench.command(&format!("DEL {NAME}")).await;
    bench.command(&format!("HSET {NAME} {JAVA} 1")).await;
    bench.command(&format!("PEXPIRE {NAME} 30000")).await;
    let held = format!("[{JAVA}, 1] 30s");
    bench.expect(&ask("b:1"), &format!("[0, 30s, {JAVA}, 0, 0, token, []]"), &held).await;
    bench.expect(&leave("b:1"), "0", &held).await;
    assert_eq!(told(&mut bench, &mut c).await, [format!("next c:1 30s {JAVA}")]);
}

/// It has the next place, too, and that one is not taken for a place of a client that stands still.
#[tokio::test]
async fn a_client_keeps_its_places_that_gave_the_lock_back_where_others_are_on_the_channel() {
    let mut bench = Bench::start().await;
    let [mut b, _c] = line(&mut bench, ["b", "c"]).await;
    bench.run(&leave("c:1")).await.expect("the script runs");
    bench.run(&ask("b:2")).await.expect("the script runs");
    bench.run(&ask("c:1")).await.expect("the script runs");
    let _java = bench.subscriber().await;
    bench.expect(&leave("a:1"), "1", "[b:1, 1] 2s").await;
    bench.expect(&leave_granted("b:1"), "2", "none").await;
    assert_eq!(queued(&mut bench).await, "b:2 c:1");
    told(&mut bench, &mut b).await;
    // A poll of the other finds the lock free.
    bench.run(&ask("c:1")).await.expect("the script runs");
    assert_eq!(told(&mut bench, &mut b).await, ["grant b:2 token 2s token"]);
    assert_eq!(queued(&mut bench).await, "c:1");
}

/// Nobody else listens for Java's release.
#[tokio::test]
async fn who_asks_behind_java_and_a_first_that_is_gone_finds_who_has_to_listen() {
    for (asks, place) in [(ask("c:1"), 0), (ask("d:1"), 1)] {
        let mut bench = Bench::start().await;
        let [b, mut c, _d] = line(&mut bench, ["b", "c", "d"]).await;
        bench.command(&format!("DEL {NAME}")).await;
        bench.command(&format!("HSET {NAME} {JAVA} 1")).await;
        bench.command(&format!("PEXPIRE {NAME} 30000")).await;
        drop(b);
        gone(&mut bench, ["b"]).await;
        // The first may have come just now, and not have its mailbox yet: who comes then looks at nobody.
        let newcomer = format!("[0, 30s, {JAVA}, 0, -1, token, []]");
        bench.expect(&try_once("e:1"), &newcomer, &format!("[{JAVA}, 1] 30s")).await;
        assert_eq!(queued(&mut bench).await, "b:1 c:1 d:1");
        let refused = format!("[0, 30s, {JAVA}, 0, {place}, token, []]");
        for is_news in [place != 0, false] {
            bench.expect(&asks, &refused, &format!("[{JAVA}, 1] 30s")).await;
            let told = told(&mut bench, &mut c).await;
            let next = format!("next c:1 30s {JAVA}");
            assert_eq!(told, if is_news { vec![next] } else { vec![] }, "{asks:?}");
        }
    }
}

/// Java knows no queue: it frees its lock and publishes `0`.
#[tokio::test]
async fn the_first_takes_what_java_freed_and_no_other_does() {
    let mut bench = Bench::start().await;
    let [mut b, mut c] = line(&mut bench, ["b", "c"]).await;
    bench.command(&format!("DEL {NAME}")).await;
    bench.expect(&ask("c:1"), "[0, 2s, b:1, 0, 0, token, []]", "[b:1, 1] 2s").await;
    assert_eq!(told(&mut bench, &mut b).await, ["grant b:1 token 2s token"]);
    assert_eq!(told(&mut bench, &mut c).await, ["next c:1 2s b:1"]);
}
