//! The time that a red lock and ours last: fixed, renewed, and cut off by a crash.

use std::time::Duration;

use leasehold_testkit::{
    Server, Watch, Worker,
    java::{Done, Failure, Java, Version},
    shared_clock_us,
};

use super::{MS, Masters, NOW, TTL, urls};
use crate::{leases::expiry_us, side::Side, with_each_redisson};

with_each_redisson!(
    a_fixed_lease_ends_under_a_waiter,
    a_renewed_lock_outlives_its_ttl,
    a_killed_holder_is_succeeded_at_the_end_of_its_lease,
);

async fn a_fixed_lease_ends_under_a_waiter(version: Version) {
    const LEASE: Duration = Duration::from_millis(700);
    let watch = Watch::begin();
    let masters = Masters::lay(version, "red", TTL).await;
    for (holder, waiter) in masters.both_ways() {
        let name = &format!("leased-by-{}", holder.name());
        let held = holder.lock_for("a", name, LEASE).done().await;
        let next = waiter.lock("b", name).done().await;
        let early = Duration::from_micros(next.ended_us - held.began_us);
        let late = Duration::from_micros(next.ended_us.saturating_sub(held.ended_us));
        println!("{version:?}: {} had it after {late:?} of {LEASE:?}", waiter.name());
        assert!(early >= LEASE - 2 * MS, "{} had it after {early:?}", waiter.name());
        let limit = watch.widened(LEASE + LATENESS);
        assert!(late <= limit, "{} had it after {late:?}", waiter.name());
        assert_eq!((held.value(), next.value()), (1, 1));
        // We are told that it is over; a red lock is not. Neither harms the successor.
        let told = holder.unlock("a", name).done().await.outcome;
        match holder {
            Side::Java(_) => assert_eq!(told, Ok(1)),
            Side::Rust(_) => assert_eq!(told, Err(Failure::NotHeld)),
        }
        assert_eq!(holder.try_lock("a", name, NOW).value().await, 0);
        assert_eq!(waiter.unlock("b", name).value().await, 1);
    }
}

async fn a_renewed_lock_outlives_its_ttl(version: Version) {
    const TTL: Duration = Duration::from_millis(1200);
    let masters = Masters::lay(version, "red", TTL).await;
    let [first, second] = masters.both_ways();
    let outlives = async |holder: &Side, waiter: &Side| {
        let name = &format!("renewed-by-{}", holder.name());
        assert_eq!(holder.lock("a", name).value().await, 1);
        assert_eq!(waiter.try_lock("b", name, TTL * 3).value().await, 0);
        assert!(masters.counts(name).await.len() >= 2, "a majority has it still");
        assert_eq!(holder.unlock("a", name).value().await, 1);
        assert_eq!(waiter.try_lock("b", name, NOW).value().await, 1);
        assert_eq!(waiter.unlock("b", name).value().await, 1);
    };
    tokio::join!(outlives(first.0, first.1), outlives(second.0, second.1));
}

async fn a_killed_holder_is_succeeded_at_the_end_of_its_lease(version: Version) {
    const TTL: Duration = Duration::from_millis(1800);
    let watch = Watch::begin();
    let masters = Masters::lay(version, "red", TTL).await;
    let urls = urls(&masters.servers);

    let java = Java::connect_to_all(version, &urls, TTL, "red").await;
    let holder = Side::Java(java);
    assert_eq!(holder.lock("a", "java").value().await, 1);
    let next = masters.rust.lock("b", "java");
    masters.waits(&masters.rust, "java").await;
    // Past the first renewal, so that what ends is a renewed lease.
    tokio::time::sleep(TTL / 2).await;
    if let Side::Java(java) = &holder {
        java.kill();
    }
    let late = lateness(&masters.servers, "java", TTL, next.done()).await;
    println!("{version:?}: java is gone, rust has it {late:?} after the end");
    assert!(late <= watch.widened(Duration::from_millis(50)), "{late:?} late");
    assert_eq!(masters.rust.unlock("b", "java").value().await, 1);

    let mut holder = Worker::start();
    holder.tell(&format!("hold mutex {} rust {}", urls.join(","), TTL.as_millis()));
    assert_eq!(holder.answer()[0], "held");
    let next = masters.java.lock("b", "rust");
    masters.waits(&masters.java, "rust").await;
    tokio::time::sleep(TTL / 2).await;
    holder.kill();
    let late = lateness(&masters.servers, "rust", TTL, next.done()).await;
    println!("{version:?}: rust is gone, java has it {late:?} after the end");
    assert!(late <= watch.widened(LATENESS), "{late:?} late");
    assert_eq!(masters.java.unlock("b", "rust").value().await, 1);
}

/// How long after the end of the last of the keys that are there now the next one has the lock; it may have it as
/// soon as two of them have ended.
async fn lateness(
    servers: &[Server],
    name: &str,
    ttl: Duration,
    next: impl Future<Output = Done<i64>>,
) -> Duration {
    let mut expire_at_us = Vec::new();
    for server in servers {
        expire_at_us.push(expiry_us(server, name).await);
    }
    expire_at_us.sort();
    let left_us = expire_at_us[2].saturating_sub(shared_clock_us());
    assert!(u128::from(left_us) <= (ttl + 2 * MS).as_micros(), "{left_us} us left");
    let next = next.await;
    let ended_us = next.ended_us;
    assert_eq!(next.value(), 1);
    assert!(
        ended_us + 2 * MS.as_micros() as u64 >= expire_at_us[1],
        "at {ended_us}, not {expire_at_us:?}"
    );
    Duration::from_micros(ended_us.saturating_sub(expire_at_us[2]))
}

/// What Java's waits may take longer; it promises nothing.
const LATENESS: Duration = Duration::from_millis(700);
