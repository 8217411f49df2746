//! `lock_reclaim.lua`

use super::bench::{Bench, Call, NAME, TOKEN, acquire, release, renew};
use crate::support::lua;

const QUEUE: &str = "leasehold_queue:{orders}";
/// A lease of this library, and a holder of Redisson.
const OURS: &str = "web-1:0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f01";
const STALE: &str = "web-2:0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f02";
const REDISSON: &str = "0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f03:42";

/// Of a lease that had the tokens from `first` to `last`, for 30 s.
fn reclaim(id: &str, first: i64, last: i64) -> Call {
    reclaim_for(id, 30_000, first, last, 86_400_000)
}

fn reclaim_for(id: &str, ttl_ms: u64, first: i64, last: i64, retention_ms: u64) -> Call {
    let [ttl_ms, retention_ms] = [ttl_ms, retention_ms].map(|ms| ms.to_string());
    let (first, last) = (first.to_string(), last.to_string());
    Call::new(lua::LOCK_RECLAIM, &[NAME, TOKEN], &[id, "2", &ttl_ms, &first, &last, &retention_ms])
}

#[tokio::test]
async fn a_lost_lease_is_put_back_with_its_count_and_its_tokens() {
    for (retention_ms, kept) in [(86_400_000, "1d"), (0, "-1")] {
        let mut bench = Bench::start().await;
        let call = reclaim_for(OURS, 30_000, 700, 709, retention_ms);
        bench.expect_twice(&call, ["1"; 2], &format!("[{OURS}, 2] 30s")).await;
        assert_eq!(bench.counter(TOKEN).await, 709);
        assert_eq!(bench.ask(&format!("PTTL {TOKEN}")).await, kept);
        bench.expect(&renew(OURS, 2, 30_000), "1", &format!("[{OURS}, 2] 30s")).await;
        bench.expect(&release(OURS), "1", "none").await;
    }
}

#[tokio::test]
async fn a_lease_that_is_there_is_not_shortened_and_its_counter_not_lowered() {
    let mut bench = Bench::start().await;
    let end = bench.acquired(&acquire(OURS).ttl_ms(60_000)).await;
    bench.expect(&reclaim(OURS, 7, 9), "1", &format!("[{OURS}, 2] 60s")).await;
    assert_eq!(bench.counter(TOKEN).await, end);
    bench.expect(&reclaim_for(OURS, 300_000, end, end, 0), "1", &format!("[{OURS}, 2] 300s")).await;
}

#[tokio::test]
async fn it_is_refused_where_another_has_the_lock_since() {
    let mut bench = Bench::start().await;
    let end = bench.acquired(&acquire(STALE)).await;
    for first in [7, end - 1, end] {
        bench.expect(&reclaim(OURS, first, end), "0", &format!("[{STALE}, 1] 30s")).await;
    }
    assert_eq!(bench.counter(TOKEN).await, end);
}

/// The release of the lease before it was lost with it.
#[tokio::test]
async fn it_replaces_a_lease_that_was_over_before_it_began() {
    let mut bench = Bench::start().await;
    let end = bench.acquired(&acquire(STALE)).await;
    let call = reclaim(OURS, end + 1, end + 5);
    bench.expect_twice(&call, ["1"; 2], &format!("[{OURS}, 2] 30s")).await;
    assert_eq!(bench.counter(TOKEN).await, end + 5);
    bench.expect(&renew(STALE, 1, 30_000), "0", &format!("[{OURS}, 2] 30s")).await;
}

/// Redisson does not raise the counter, and a counter that is gone says nothing.
#[tokio::test]
async fn it_replaces_nothing_whose_age_is_not_known() {
    let mut bench = Bench::start().await;
    bench.acquired(&acquire(STALE)).await;
    bench.command(&format!("DEL {TOKEN}")).await;
    bench.expect(&reclaim(OURS, 700, 700), "0", &format!("[{STALE}, 1] 30s")).await;
    bench.command(&format!("SET {TOKEN} 600")).await;
    bench.command(&format!("HSET {NAME} {REDISSON} 1")).await;
    assert_eq!(bench.ask(&format!("HLEN {NAME}")).await, "2");
    bench.expect(&reclaim(OURS, 700, 700), "0", &format!("[{STALE}, 1, {REDISSON}, 1] 30s")).await;
}

#[tokio::test]
async fn it_never_replaces_a_holder_of_redisson() {
    let mut bench = Bench::start().await;
    bench.command(&format!("SET {TOKEN} 600")).await;
    bench.command(&format!("HSET {NAME} {REDISSON} 1")).await;
    bench.command(&format!("PEXPIRE {NAME} 30000")).await;
    bench.expect(&reclaim(OURS, 700, 700), "0", &format!("[{REDISSON}, 1] 30s")).await;
}

/// The grant that took it out of the queue was lost, too.
#[tokio::test]
async fn its_entry_leaves_the_queue() {
    let mut bench = Bench::start().await;
    bench.server.keeps(QUEUE);
    for entry in ["ours", "others"] {
        bench.command(&format!("ZADD {QUEUE} 1 {entry}")).await;
    }
    let call = reclaim(OURS, 700, 700).and(QUEUE, &["ours"]);
    bench.expect_twice(&call, ["1"; 2], &format!("[{OURS}, 2] 30s")).await;
    assert_eq!(bench.ask(&format!("ZRANGE {QUEUE} 0 -1")).await, "[others]");
}

#[tokio::test]
async fn a_lock_that_gets_no_end_does_not_stay() {
    let bench = Bench::start().await;
    let rules = ["~*", "+@all", "-pexpire"];
    assert!(bench.run_as(&rules, &reclaim(OURS, 700, 700)).await.is_err());
    assert_eq!(bench.server.command(&["EXISTS", NAME]).await, redis::Value::Int(0));
}
