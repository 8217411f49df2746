//! The time that a lock lasts: fixed, renewed, and cut off by a crash.

use std::time::Duration;

use leasehold_testkit::{
    Server, Watch, Worker,
    java::{Done, Failure, Java, Version},
    shared_clock_us,
};
use redis::Value;

use crate::{
    side::{Side, Table},
    with_each_redisson,
};

with_each_redisson!(
    a_fixed_lease_ends_under_a_waiter,
    a_renewed_lock_outlives_its_ttl,
    a_killed_holder_is_succeeded_at_the_end_of_its_lease,
);

async fn a_fixed_lease_ends_under_a_waiter(version: Version) {
    const LEASE: Duration = Duration::from_millis(700);
    let watch = Watch::begin();
    let table = Table::lay(version, Duration::from_secs(30)).await;
    for (holder, waiter) in table.both_ways() {
        let name = &format!("leased-by-{}", holder.name());
        let held = holder.lock_for("a", name, LEASE).done().await;
        let next = waiter.lock("b", name).done().await;
        let early = Duration::from_micros(next.ended_us - held.began_us);
        let late = Duration::from_micros(next.ended_us.saturating_sub(held.ended_us));
        println!("{version:?}: {} had it after {late:?} of {LEASE:?}", waiter.name());
        assert!(early >= LEASE - SERVER_MS, "{} had it after {early:?}", waiter.name());
        let limit = watch.widened(LEASE + LATENESS);
        assert!(late <= limit, "{} had it after {late:?}", waiter.name());
        assert_eq!((held.value(), next.value()), (1, 1));
        // It is told, and the successor is not harmed.
        assert_eq!(holder.unlock("a", name).done().await.outcome, Err(Failure::NotHeld));
        assert_eq!(holder.try_lock("a", name, Duration::ZERO).value().await, 0);
        assert_eq!(waiter.unlock("b", name).value().await, 1);
    }
}

async fn a_renewed_lock_outlives_its_ttl(version: Version) {
    const TTL: Duration = Duration::from_millis(900);
    let table = Table::lay(version, TTL).await;
    let [first, second] = table.both_ways();
    let outlives = async |holder: &Side, waiter: &Side| {
        let name = &format!("renewed-by-{}", holder.name());
        assert_eq!(holder.lock("a", name).value().await, 1);
        assert_eq!(waiter.try_lock("b", name, TTL * 4).value().await, 0);
        let left_ms = waiter.remaining_ttl(name).value().await;
        assert!((1..=TTL.as_millis() as i64).contains(&left_ms), "{left_ms} ms left");
        assert_eq!(holder.unlock("a", name).value().await, 1);
        assert_eq!(waiter.is_locked(name).value().await, 0);
    };
    tokio::join!(outlives(first.0, first.1), outlives(second.0, second.1));
}

async fn a_killed_holder_is_succeeded_at_the_end_of_its_lease(version: Version) {
    const TTL: Duration = Duration::from_millis(1200);
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    let server = &table.server;
    for killed in [false, true] {
        let name = &format!("java-{killed}");
        let java = Java::connect(version, &server.url(), TTL).await;
        let holder = Side::Java(java);
        assert_eq!(holder.lock("a", name).value().await, 1);
        let next = table.rust.lock("b", name);
        table.somebody_waits(name).await;
        // Past the first renewal, so that what ends is a renewed lease.
        tokio::time::sleep(TTL * 2 / 3).await;
        if let Side::Java(java) = &holder {
            if killed { java.kill() } else { java.crash() }
        }
        let late = lateness(server, name, TTL, next.done()).await;
        println!("{version:?}: java is gone, rust has it {late:?} after the end");
        assert!(late <= watch.widened(Duration::from_millis(50)), "{late:?} late");
        assert_eq!(table.rust.unlock("b", name).value().await, 1);
    }

    let mut holder = Worker::start();
    holder.tell(&format!("hold mutex {} rust {}", server.url(), TTL.as_millis()));
    assert_eq!(holder.answer()[0], "held");
    let next = table.java.lock("b", "rust");
    table.somebody_waits("rust").await;
    tokio::time::sleep(TTL * 2 / 3).await;
    holder.kill();
    let late = lateness(server, "rust", TTL, next.done()).await;
    println!("{version:?}: rust is gone, java has it {late:?} after the end");
    assert!(late <= watch.widened(LATENESS), "{late:?} late");
    assert_eq!(table.java.unlock("b", "rust").value().await, 1);
}

/// How long after the end of the key that is there now the next one has the lock.
pub(crate) async fn lateness(
    server: &Server,
    name: &str,
    ttl: Duration,
    next: impl Future<Output = Done<i64>>,
) -> Duration {
    let expires_at_us = expiry_us(server, name).await;
    let left_us = expires_at_us.saturating_sub(shared_clock_us());
    assert!(u128::from(left_us) <= ttl.as_micros() + SERVER_MS.as_micros(), "{left_us} us left");
    let next = next.await;
    let ended_us = next.ended_us;
    assert_eq!(next.value(), 1);
    assert!(ended_us + SERVER_MS.as_micros() as u64 >= expires_at_us, "taken before the end");
    Duration::from_micros(ended_us.saturating_sub(expires_at_us))
}

/// When a key ends, in microseconds of the server's clock, which is this host's: not before that. Now, if it is gone.
pub(crate) async fn expiry_us(server: &Server, name: &str) -> u64 {
    let asked_us = shared_clock_us();
    match server.command(&["PTTL", name]).await {
        Value::Int(left_ms) => asked_us + 1_000 * u64::try_from(left_ms).unwrap_or(0),
        other => panic!("not a time: {other:?}"),
    }
}

/// What Java's waits may take longer; it promises nothing.
const LATENESS: Duration = Duration::from_millis(250);
/// The server counts in milliseconds.
const SERVER_MS: Duration = Duration::from_millis(2);
