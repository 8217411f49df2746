//! What Java may use on the name of a lock of ours, and what it must not: what happens then.

use std::time::Duration;

use leasehold::Error;
use leasehold_testkit::{
    Watch, eventually,
    java::{Failure, Java, Version, hex},
};
use redis::Value;

use crate::{side::Table, with_each_redisson};

with_each_redisson!(
    a_spin_lock_excludes_and_wakes_nobody,
    a_fair_lock_excludes_but_its_wake_ups_go_elsewhere,
    a_read_write_lock_excludes_nobody,
    a_semaphore_is_not_a_lock,
    a_mapped_name_is_another_lock,
);

/// Waiters of ours find out by looking, waiters of Java's always do.
async fn a_spin_lock_excludes_and_wakes_nobody(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    let spin = async |verb: &str| table.java().number("a", &format!("{verb} spin 6e")).await;
    assert_eq!(spin("lock").await, 1);
    assert_eq!(table.rust.try_lock("b", "n", NOW).value().await, 0);
    let wait = table.rust.lock("b", "n");
    table.somebody_waits("n").await;
    assert_eq!(spin("unlock").await, 1);
    let took = wait.done().await.took();
    assert!(took <= watch.widened(LOOK), "ours had it after {took:?}");

    assert_eq!(spin("try-lock").await, 0);
    let wait = table.java().call("a", "lock spin 6e");
    // It spins: there is nothing to wait for.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!wait.is_finished());
    let freed = table.rust.unlock("b", "n").done().await;
    let next = wait.done().await;
    let latency = Duration::from_micros(next.ended_us - freed.began_us);
    assert!(latency <= watch.widened(Duration::from_millis(500)), "after {latency:?}");
    assert_eq!((freed.value(), next.value()), (1, 1));
}

/// It tells only the thread that is first in its own queue: exclusion holds, waiting is by timers.
async fn a_fair_lock_excludes_but_its_wake_ups_go_elsewhere(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, Duration::from_secs(3)).await;
    let fair = async |verb: &str| table.java().number("a", &format!("{verb} fair 6e")).await;
    assert_eq!(fair("lock").await, 1);
    assert_eq!(table.rust.try_lock("b", "n", NOW).value().await, 0);
    let wait = table.rust.lock("b", "n");
    table.somebody_waits("n").await;
    assert_eq!(fair("unlock").await, 1);
    let took = wait.done().await.took();
    assert!(took <= watch.widened(LOOK), "ours had it after {took:?}");

    assert_eq!(fair("try-lock").await, 0);
    let wait = table.java().call("a", "lock fair 6e");
    // On a channel of its own; what follows the subscription, the second look, has to be over.
    let own_channels = ["PUBSUB", "CHANNELS", "redisson_lock__channel:{n}:*"];
    let waits = async || table.server.command(&own_channels).await != Value::Array(Vec::new());
    eventually(Duration::from_secs(20), "Java waits", waits).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let freed = table.rust.unlock("b", "n").done().await;
    let next = wait.done().await;
    let latency = Duration::from_micros(next.ended_us - freed.began_us);
    println!("{version:?}: a fair waiter has our lock {latency:?} after it was freed");
    assert!(latency > Duration::from_millis(500), "it was told after all: {latency:?}");
    assert_eq!((freed.value(), next.value()), (1, 1));
}

/// Its hash has fields of its own: it gets in beside a holder of ours.
async fn a_read_write_lock_excludes_nobody(version: Version) {
    let table = Table::lay(version, TTL).await;
    for kind in ["read", "write"] {
        let name = format!("{kind}-lock");
        let words = hex(&name);
        // Java first: ours stays out, and says why.
        assert_eq!(table.java().number("a", &format!("try-lock {kind} {words}")).await, 1);
        let attempt = table.rust().client.mutex(&name).try_lock().await;
        assert!(matches!(attempt, Err(Error::WrongType { .. })), "{attempt:?}");
        assert_eq!(table.java().number("a", &format!("unlock {kind} {words}")).await, 1);
        // Ours first: Java does not see it.
        assert_eq!(table.rust.try_lock("b", &name, NOW).value().await, 1);
        assert_eq!(table.java().number("a", &format!("try-lock {kind} {words}")).await, 1);
        assert!(table.rust().look("b", &name, |guard| guard.is_held()));
    }
    // Ours looks at the kind, in either direction.
    assert_eq!(table.java().number("a", &format!("lock plain {}", hex("mutex"))).await, 1);
    let lock = table.rust().client.rw_lock("mutex");
    let attempts = [lock.try_read().await.map(drop), lock.try_write().await.map(drop)];
    for attempt in attempts {
        assert!(matches!(attempt, Err(Error::WrongType { .. })), "{attempt:?}");
    }
    assert_eq!(table.java().number("a", &format!("unlock plain {}", hex("mutex"))).await, 1);
}

async fn a_semaphore_is_not_a_lock(version: Version) {
    let table = Table::lay(version, TTL).await;
    assert_eq!(table.java().number("a", "set-permits 6e 3").await, 1);
    let client = &table.rust().client;
    let attempts = [
        client.mutex("n").try_lock().await.map(drop),
        client.rw_lock("n").try_read().await.map(drop),
        client.rw_lock("n").try_write().await.map(drop),
    ];
    for attempt in attempts {
        assert!(matches!(attempt, Err(Error::WrongType { .. })), "{attempt:?}");
    }
    // Nor is a lock a semaphore, to either of both.
    let name = hex("lock");
    for kind in ["plain", "write"] {
        assert_eq!(table.java().number("a", &format!("lock {kind} {name}")).await, 1);
        let attempt = client.semaphore("lock").with_permits(1).try_acquire().await;
        assert!(matches!(attempt, Err(Error::WrongType { .. })), "{attempt:?}");
        assert_eq!(table.java().number("a", &format!("unlock {kind} {name}")).await, 1);
    }
    let ours = client.rw_lock("lock").write().await.expect("free");
    for sort in ["plain", "expirable=1000"] {
        let attempt = table.java().ask("a", &format!("try-acquire {sort} {name}")).await.outcome;
        // 3.28.0 fails over the server's answer, and does not pass it on.
        let tells = |why: &str| why.contains("WRONGTYPE") || version == Version::V3_28_0;
        let is_refused = matches!(&attempt, Err(Failure::Other(why)) if tells(why));
        assert!(is_refused, "{attempt:?}");
    }
    assert!(ours.is_held());
}

/// Java's name is not what stands in Redis: ours has to be that.
async fn a_mapped_name_is_another_lock(version: Version) {
    let table = Table::lay(version, TTL).await;
    let url = table.server.url();
    let java = Java::connect_with_prefix(version, &url, TTL, Some("app:")).await;
    assert_eq!(java.number("a", "lock plain 6e").await, 1);
    assert_eq!(table.rust.try_lock("b", "n", NOW).value().await, 1);
    assert_eq!(table.rust.try_lock("b", "app:n", NOW).value().await, 0);
    let prefixed = leasehold::Client::builder().nodes([url]).name_prefix("app:").connect().await;
    let held = prefixed.expect("connected").mutex("n").try_lock().await.expect("asked");
    assert!(held.is_none(), "ours got the lock of a Java client with the same prefix");
    let wait = table.rust.lock("b", "app:n");
    table.somebody_waits("app:n").await;
    let freed = java.ask("a", "unlock plain 6e").await;
    let next = wait.done().await;
    let latency = Duration::from_micros(next.ended_us - freed.began_us);
    assert!(latency < LOOK / 8, "woken after {latency:?}");
    assert_eq!((freed.value().as_str(), next.value()), ("1", 1));
    assert_eq!(java.number("a", "try-lock plain 6e").await, 0);
}

const TTL: Duration = Duration::from_secs(30);
const NOW: Duration = Duration::ZERO;
/// How late ours looks at a lock of which it hears nothing, at the latest.
const LOOK: Duration = Duration::from_millis(4200);
