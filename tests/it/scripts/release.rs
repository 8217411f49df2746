//! `lock_release.lua` and `force_unlock.lua`

use super::bench::{
    Bench, Call, NAME, TOKEN, acquire, answer, force_unlock, force_unlock_if, force_unlock_if_old,
    release, release_by, release_later,
};
use crate::support::lua;

#[tokio::test]
async fn a_release_frees_the_lock_of_its_holder_only() {
    let mut bench = Bench::start().await;
    bench.expect_twice(&release("a"), ["0"; 2], "none").await;
    let end = bench.acquired_deep("a", 3).await;
    bench.expect_twice(&release("b"), ["0"; 2], "[a, 3] 30s").await;
    bench.expect_twice(&release("a"), ["1", "0"], "none").await;
    assert_eq!(bench.counter(TOKEN).await, end, "the counter stays");
}

#[tokio::test]
async fn a_release_tells_each_subscriber_once() {
    let mut bench = Bench::start().await;
    let mut first = bench.subscriber().await;
    let mut second = bench.subscriber().await;
    bench.acquired(&acquire("a")).await;
    bench.run(&release("b")).await.expect("the script runs");
    assert!(bench.messages(&mut first).await.is_empty(), "not by one who does not hold it");
    bench.expect_twice(&release("a"), ["3", "0"], "none").await;
    assert_eq!(bench.messages(&mut first).await, ["0"]);
    assert_eq!(bench.messages(&mut second).await, ["0"]);
}

#[tokio::test]
async fn a_release_that_keeps_the_lock_shortens_its_time_and_never_lengthens_it() {
    let mut bench = Bench::start().await;
    let mut subscriber = bench.subscriber().await;
    bench.acquired(&acquire("a")).await;
    bench.expect_twice(&release_later("b", 1_000), ["0"; 2], "[a, 1] 30s").await;
    bench.expect_twice(&release_later("a", 40_000), ["1"; 2], "[a, 1] 30s").await;
    bench.expect_twice(&release_later("a", 5_000), ["1"; 2], "[a, 1] 5s").await;
    bench.expect_twice(&release_later("a", 20_000), ["1"; 2], "[a, 1] 5s").await;
    assert!(bench.messages(&mut subscriber).await.is_empty(), "nothing is free yet");
}

#[tokio::test]
async fn a_release_whose_message_is_refused_still_frees_the_lock() {
    let mut bench = Bench::start().await;
    let mut subscriber = bench.subscriber().await;
    let no_channel = ["~*", "resetchannels", "+@all"];
    let no_publish = ["~*", "&*", "+@all", "-publish"];
    for rules in [&no_channel[..], &no_publish[..]] {
        bench.acquired(&acquire("a")).await;
        let reply = bench.run_as(rules, &release("a")).await;
        assert_eq!(answer(reply), "1", "{rules:?}");
        assert_eq!(bench.state().await, "none", "{rules:?}");

        bench.acquired(&acquire("a")).await;
        let reply = bench.run_as(rules, &force_unlock()).await;
        assert_eq!(answer(reply), "1", "{rules:?}");
        assert_eq!(bench.state().await, "none", "{rules:?}");
    }
    assert!(bench.messages(&mut subscriber).await.is_empty());
}

#[tokio::test]
async fn a_release_with_a_verb_that_the_server_does_not_know_still_frees_the_lock() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a")).await;
    bench.expect_twice(&release_by("a", "XPUBLISH"), ["1", "0"], "none").await;
}

#[tokio::test]
async fn a_forced_unlock_frees_the_lock_whoever_holds_it() {
    let mut bench = Bench::start().await;
    let mut subscriber = bench.subscriber().await;
    bench.expect_twice(&force_unlock(), ["0"; 2], "none").await;
    bench.acquired_deep("a", 2).await;
    bench.expect_twice(&force_unlock(), ["1", "0"], "none").await;
    assert_eq!(bench.messages(&mut subscriber).await, ["0"]);
    bench.expect(&acquire("b"), "token", "[b, 1] 30s").await;
}

#[tokio::test]
async fn a_forced_unlock_of_a_lease_of_some_age_leaves_a_younger_one_alone() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire("a")).await;
    bench.expect_twice(&force_unlock_if_old("a", 20_000_000), ["0"; 2], "[a, 1] 30s").await;
    bench.expect_twice(&force_unlock_if_old("b", 0), ["0"; 2], "[a, 1] 30s").await;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    bench.expect_twice(&force_unlock_if_old("a", 20_000), ["1", "0"], "none").await;
}

/// Who was seen longer ago than a counter is kept may have handed its lease on.
#[tokio::test]
async fn a_lease_whose_counter_has_ended_is_only_as_old_as_that_is_kept() {
    let mut bench = Bench::start().await;
    let force = |age_us| {
        let args = ["a", "PUBLISH", "a channel", age_us, "60000"];
        Call::new(lua::FORCE_UNLOCK, &[NAME, TOKEN], &args)
    };
    bench.acquired(&acquire("a")).await;
    bench.command(&format!("DEL {TOKEN}")).await;
    bench.expect_twice(&force("60000001"), ["0"; 2], "[a, 1] 30s").await;
    bench.expect_twice(&force("60000000"), ["1", "0"], "none").await;
}

#[tokio::test]
async fn a_forced_unlock_of_a_given_lease_leaves_any_other_alone() {
    let mut bench = Bench::start().await;
    let mut subscriber = bench.subscriber().await;
    bench.expect_twice(&force_unlock_if("a"), ["0"; 2], "none").await;
    bench.acquired(&acquire("a")).await;
    bench.expect_twice(&force_unlock_if("b"), ["0"; 2], "[a, 1] 30s").await;
    assert!(bench.messages(&mut subscriber).await.is_empty());
    bench.expect_twice(&force_unlock_if("a"), ["1", "0"], "none").await;
    assert_eq!(bench.messages(&mut subscriber).await, ["0"]);
}

#[tokio::test]
async fn a_forced_unlock_frees_a_lock_without_an_end() {
    let mut bench = Bench::start().await;
    for call in [force_unlock(), force_unlock_if("left-by-hand")] {
        bench.command(&format!("HSET {NAME} left-by-hand 1")).await;
        bench.expect_twice(&call, ["1", "0"], "none").await;
    }
}

#[tokio::test]
async fn nothing_frees_a_key_of_another_type() {
    let mut bench = Bench::start().await;
    let mut subscriber = bench.subscriber().await;
    bench.command(&format!("SET {NAME} x")).await;
    for call in [force_unlock(), force_unlock_if("a"), release("a")] {
        bench.expect_twice(&call, ["WRONGTYPE"; 2], "string").await;
    }
    assert!(bench.messages(&mut subscriber).await.is_empty());
}

/// Any text that a client sends is data: it ends up in a field, a key or a message, never in the script.
#[tokio::test]
async fn a_name_cannot_run_as_lua() {
    let mut bench = Bench::start().await;
    let name = "'; redis.call('flushall'); --";
    bench.command("SET untouched 1").await;
    let call = Call::new(lua::LOCK_ACQUIRE, &[name, TOKEN], &[name, "30000", "1", "", "0", "1"]);
    assert_eq!(answer(bench.run(&call).await), "token");
    assert_eq!(bench.ask("EXISTS untouched").await, "1");
}
