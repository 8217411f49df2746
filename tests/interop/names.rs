//! Names of every sort mean the same key and the same channel to both.

use std::time::Duration;

use leasehold_testkit::{Watch, java::Version};

use crate::{side::Table, with_each_redisson};

with_each_redisson!(a_name_is_the_same_lock_to_both);

async fn a_name_is_the_same_lock_to_both(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, Duration::from_secs(30)).await;
    let long = "x".repeat(4096);
    let names = [
        "orders:{42}:lock",
        "{42}",
        "{}",
        "a{b",
        "a}b",
        "}{",
        "{{a}}",
        " spaces around ",
        "ünï-кот-锁-🔒",
        "quote\"s'and\\back\\slashes",
        "lines\r\nand\ttabs",
        "nul\0inside",
        "%s%d*?[a-z]^$",
        "redisson_lock__channel:{n}",
        &long,
    ];
    for name in names {
        for (holder, waiter) in table.both_ways() {
            assert_eq!(holder.lock("a", name).value().await, 1, "{name:?}");
            assert_eq!(waiter.try_lock("b", name, Duration::ZERO).value().await, 0, "{name:?}");
            let wait = waiter.lock("b", name);
            table.somebody_waits(name).await;
            let freed = holder.unlock("a", name).done().await;
            let woken = wait.done().await;
            let latency = Duration::from_micros(woken.ended_us - freed.began_us);
            let limit = watch.widened(Duration::from_millis(500));
            assert!(latency < limit, "{} of {name:?} after {latency:?}", waiter.name());
            assert_eq!((freed.value(), woken.value()), (1, 1));
            assert_eq!(waiter.unlock("b", name).value().await, 1);
        }
    }
}
