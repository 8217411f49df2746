//! `fence_raise.lua`

use super::bench::{Bench, Call, NAME, TOKEN, acquire};
use crate::support::lua;

fn raise(id: &str, end: i64, retention_ms: u64) -> Call {
    Call::new(lua::FENCE_RAISE, &[NAME, TOKEN], &[id, &end.to_string(), &retention_ms.to_string()])
}

#[tokio::test]
async fn a_counter_that_is_behind_is_lifted_and_kept_for_its_retention() {
    for (retention_ms, kept) in [(0, "-1"), (300_000, "300s")] {
        let mut bench = Bench::start().await;
        let end = bench.acquired(&acquire("a").retention_ms(retention_ms)).await;
        bench.expect_twice(&raise("a", end + 7, retention_ms), ["1"; 2], "[a, 1] 30s").await;
        assert_eq!(bench.counter(TOKEN).await, end + 7);
        assert_eq!(bench.ask(&format!("PTTL {TOKEN}")).await, kept);
    }
}

#[tokio::test]
async fn a_counter_that_is_ahead_is_never_lowered() {
    let mut bench = Bench::start().await;
    let end = bench.acquired(&acquire("a")).await;
    for lower in [end, end - 1, 1] {
        bench.expect(&raise("a", lower, 0), "1", "[a, 1] 30s").await;
        assert_eq!(bench.counter(TOKEN).await, end);
    }
}

/// The counter must not outlive its use by names that nobody locks, and the answer is a vote.
#[tokio::test]
async fn a_counter_is_lifted_for_the_holder_only() {
    let mut bench = Bench::start().await;
    bench.expect(&raise("a", 7, 0), "0", "none").await;
    assert_eq!(bench.ask(&format!("EXISTS {TOKEN}")).await, "0");
    let end = bench.acquired(&acquire("a")).await;
    bench.expect(&raise("b", end + 7, 0), "0", "[a, 1] 30s").await;
    assert_eq!(bench.counter(TOKEN).await, end);
}

#[tokio::test]
async fn a_lost_counter_is_made_again() {
    let mut bench = Bench::start().await;
    let end = bench.acquired(&acquire("a")).await;
    bench.command(&format!("DEL {TOKEN}")).await;
    bench.expect(&raise("a", end, 0), "1", "[a, 1] 30s").await;
    assert_eq!(bench.counter(TOKEN).await, end);
}
