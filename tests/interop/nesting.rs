//! Nested holds: the lock is free when the last level is left, and not before.

use std::time::Duration;

use leasehold_testkit::{
    Watch, eventually,
    java::{Version, hex},
};

use crate::{side::Table, with_each_redisson};

with_each_redisson!(a_waiter_waits_for_the_last_level);

async fn a_waiter_waits_for_the_last_level(version: Version) {
    const DEPTH: u32 = 3;
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    for (holder, waiter) in table.both_ways() {
        let name = &format!("nested-by-{}", holder.name());
        let look = table.rust().client.mutex(name.as_str());
        let stands_at = async |depth| {
            let limit = Duration::from_secs(5);
            let counted = async || look.status().await.expect("an answer").hold_count == depth;
            eventually(limit, "the count is written down", counted).await;
        };
        for _ in 0..DEPTH {
            assert_eq!(holder.lock("a", name).value().await, 1);
        }
        stands_at(DEPTH).await;
        assert_eq!(own_count(&table, holder.name(), name).await, i64::from(DEPTH));
        let wait = waiter.lock("b", name);
        table.somebody_waits(name).await;
        for left in (1..DEPTH).rev() {
            assert_eq!(holder.unlock("a", name).value().await, 1);
            stands_at(left).await;
            assert_eq!(own_count(&table, holder.name(), name).await, i64::from(left));
            // What is shown is that nothing happens, for as long as a wake-up would take.
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert!(!wait.is_finished(), "{} has it at level {left}", waiter.name());
        }
        let freed = holder.unlock("a", name).done().await;
        let woken = wait.done().await;
        let latency = Duration::from_micros(woken.ended_us - freed.began_us);
        assert!(latency < watch.widened(Duration::from_millis(500)), "after {latency:?}");
        assert_eq!((freed.value(), woken.value()), (1, 1));
        // The new holder nests as well, also in a timed attempt.
        assert_eq!(waiter.try_lock("b", name, Duration::ZERO).value().await, 1);
        stands_at(2).await;
        assert_eq!(waiter.unlock("b", name).value().await, 1);
        assert_eq!(waiter.unlock("b", name).value().await, 1);
        assert_eq!(holder.is_locked(name).value().await, 0);
    }
}

/// What the holder itself says.
async fn own_count(table: &Table, holder: &str, name: &str) -> i64 {
    match holder {
        "java" => table.java().number("a", &format!("hold-count plain {}", hex(name))).await,
        _ => table.rust().look("a", name, |guard| guard.hold_count()).into(),
    }
}

const TTL: Duration = Duration::from_secs(30);
