//! A lock that is freed by force: its holder is told, and who waits is woken.

use std::time::{Duration, Instant};

use leasehold::LossReason;
use leasehold_testkit::{
    Watch,
    java::{Failure, Version, hex},
};

use crate::{side::Table, with_each_redisson};

with_each_redisson!(
    a_holder_of_ours_is_told_that_java_freed_its_lock,
    a_holder_in_java_is_told_that_we_freed_its_lock,
    a_forced_unlock_wakes_the_other,
);

async fn a_holder_of_ours_is_told_that_java_freed_its_lock(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    assert_eq!(table.rust.lock("a", "n").value().await, 1);
    let lost = table.rust().lost("a", "n");
    assert_eq!(table.java.force_unlock("n").value().await, 1);
    let freed_at = Instant::now();
    assert_eq!(table.java.lock("b", "n").value().await, 1);
    assert_eq!(lost.await, LossReason::Gone);
    let told = freed_at.elapsed();
    println!("{version:?}: told after {told:?}, with a TTL of {TTL:?}");
    assert!(told <= watch.widened(TTL / 3 + Duration::from_millis(150)), "after {told:?}");
    assert!(!table.rust().look("a", "n", |guard| guard.is_held()));
    assert_eq!(table.rust.unlock("a", "n").done().await.outcome, Err(Failure::NotHeld));
    // Neither our watchdog nor our release touched the new hold.
    tokio::time::sleep(TTL).await;
    assert_eq!(table.java().number("b", &format!("hold-count plain {}", hex("n"))).await, 1);
    assert_eq!(table.rust.try_lock("c", "n", Duration::ZERO).value().await, 0);
    assert_eq!(table.java.unlock("b", "n").value().await, 1);
    assert_eq!(table.java.force_unlock("n").value().await, 0);
}

async fn a_holder_in_java_is_told_that_we_freed_its_lock(version: Version) {
    let table = Table::lay(version, TTL).await;
    assert_eq!(table.java.lock("a", "n").value().await, 1);
    let lock = table.rust().client.mutex("n");
    let holder = lock.holder().await.expect("an answer").expect("held");
    assert!(lock.force_unlock_if(&holder).await.expect("an answer"));
    assert!(!lock.force_unlock_if(&holder).await.expect("an answer"));
    assert_eq!(table.rust.lock("b", "n").value().await, 1);
    // A newer hold is spared.
    assert!(!lock.force_unlock_if(&holder).await.expect("an answer"));
    assert_eq!(table.java.unlock("a", "n").done().await.outcome, Err(Failure::NotHeld));
    tokio::time::sleep(TTL).await;
    assert!(table.rust().look("b", "n", |guard| guard.is_held()));
    assert_eq!(table.rust.unlock("b", "n").value().await, 1);

    assert_eq!(table.java.lock("a", "n").value().await, 1);
    assert_eq!(table.rust.force_unlock("n").value().await, 1);
    assert_eq!(table.rust.force_unlock("n").value().await, 0);
    assert_eq!(table.java.unlock("a", "n").done().await.outcome, Err(Failure::NotHeld));
}

async fn a_forced_unlock_wakes_the_other(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, Duration::from_secs(30)).await;
    for (holder, waiter) in table.both_ways() {
        for operator in [holder, waiter] {
            assert_eq!(holder.lock("a", "n").value().await, 1);
            let wait = waiter.lock("b", "n");
            table.somebody_waits("n").await;
            let freed = operator.force_unlock("n").done().await;
            let woken = wait.done().await;
            let latency = Duration::from_micros(woken.ended_us - freed.began_us);
            assert!(latency < watch.widened(Duration::from_millis(500)), "after {latency:?}");
            assert_eq!((freed.value(), woken.value()), (1, 1));
            assert_eq!(holder.unlock("a", "n").done().await.outcome, Err(Failure::NotHeld));
            assert_eq!(waiter.unlock("b", "n").value().await, 1);
        }
    }
}

const TTL: Duration = Duration::from_millis(1500);
