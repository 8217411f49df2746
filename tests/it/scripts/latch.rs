//! `latch.lua`, and the scripts that it stands before.

use super::bench::{Bench, Call};
use crate::support::lua;

const CHANNEL: &str = "redisson_countdownlatch__channel__{n}";

fn set(count: &str, ttl_ms: &str) -> Call {
    Call::new(lua::LATCH_SET, &["n"], &[count, ttl_ms, "PUBLISH", CHANNEL])
}

fn count_down() -> Call {
    Call::new(lua::LATCH_COUNT_DOWN, &["n"], &["PUBLISH", CHANNEL])
}

fn status() -> Call {
    Call::new(lua::LATCH_STATUS, &["n"], &[])
}

fn delete() -> Call {
    Call::new(lua::LATCH_DELETE, &["n"], &["PUBLISH", CHANNEL])
}

/// What a script answers: done, counts left, and its pttl, to the second.
async fn answer(bench: &mut Bench, call: &Call) -> (i64, i64, i64) {
    let reply = bench.run(call).await.expect("the script runs");
    let (done, left, pttl): (i64, i64, i64) = redis::from_redis_value(reply).expect("numbers");
    (done, left, if pttl > 0 { (pttl + 999) / 1000 } else { pttl })
}

/// The keys, values and messages are those of Redisson; so is when there is none.
#[tokio::test]
async fn a_latch_is_a_number_that_counts_down_and_is_gone_with_the_last_one() {
    let mut bench = Bench::start().await;
    let mut heard = bench.subscriber_of(CHANNEL).await;
    for (call, reply, value) in [
        (status(), (0, 0, -2), "nil"),
        (count_down(), (0, 0, -2), "nil"),
        (set("2", "0"), (1, 2, -1), "2"),
        (set("5", "60000"), (0, 2, -1), "2"),
        (status(), (0, 2, -1), "2"),
        (count_down(), (1, 1, -1), "1"),
        (count_down(), (1, 0, -2), "nil"),
        (count_down(), (0, 0, -2), "nil"),
        (set("3", "60000"), (1, 3, 60), "3"),
        (count_down(), (1, 2, 60), "2"),
        (delete(), (1, 0, -2), "nil"),
        (delete(), (0, 0, -2), "nil"),
    ] {
        assert_eq!(answer(&mut bench, &call).await, reply, "{call:?}");
        assert_eq!(bench.ask("GET n").await, value, "{call:?}");
    }
    assert_eq!(bench.messages(&mut heard).await, ["1", "0", "1", "0"]);
}

/// Redisson writes a zero if it is told so, and leaves it there.
#[tokio::test]
async fn a_latch_of_zero_is_open_and_can_be_set() {
    let mut bench = Bench::start().await;
    for zero in ["0", "-1"] {
        bench.command(&format!("SET n {zero}")).await;
        assert_eq!(answer(&mut bench, &status()).await, (0, 0, -1));
        assert_eq!(answer(&mut bench, &count_down()).await, (0, 0, -2));
        bench.command(&format!("SET n {zero}")).await;
        assert_eq!(answer(&mut bench, &set("4294967295", "0")).await, (1, 4_294_967_295, -1));
        assert_eq!(answer(&mut bench, &count_down()).await, (1, 4_294_967_294, -1));
    }
}
