//! Who waits is woken by the other's message, long before any timer.

use std::time::Duration;

use leasehold_testkit::{Watch, java::Version};

use crate::{side::Table, with_each_redisson};

with_each_redisson!(an_unlock_wakes_the_other);

async fn an_unlock_wakes_the_other(version: Version) {
    const ROUNDS: usize = 25;
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    for (holder, waiter) in table.both_ways() {
        let mut latencies_us = Vec::new();
        for round in 0..ROUNDS {
            assert_eq!(holder.lock("a", "n").value().await, 1);
            let wait = match round % 2 {
                0 => waiter.lock("b", "n"),
                _ => waiter.try_lock("b", "n", TTL),
            };
            table.somebody_waits("n").await;
            // What follows a subscription, the second look, is over: only a message or a timer is left.
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(!wait.is_finished());
            let freed = holder.unlock("a", "n").done().await;
            let woken = wait.done().await;
            latencies_us.push(woken.ended_us - freed.began_us);
            assert_eq!((freed.value(), woken.value()), (1, 1));
            assert_eq!(waiter.unlock("b", "n").value().await, 1);
        }
        latencies_us.sort();
        let (median, longest) = (latencies_us[ROUNDS / 2], latencies_us[ROUNDS - 1]);
        println!(
            "{version:?}: {} frees, {} has it after {:.2} ms (median), {:.2} ms (longest)",
            holder.name(),
            waiter.name(),
            median as f64 / 1e3,
            longest as f64 / 1e3
        );
        let limit = watch.widened(LIMIT);
        assert!(u128::from(longest) < limit.as_micros(), "woken after {longest} us");
    }
}

/// The other side's timers: Java sleeps for this long, ours looks after 2 s at the earliest.
const TTL: Duration = Duration::from_secs(30);
const LIMIT: Duration = Duration::from_millis(500);
