//! Several names at once: Redisson's multi lock and ours.

use std::time::Duration;

use leasehold::{Client, Error};
use leasehold_testkit::{
    Watch, eventually, in_time,
    java::{Call, Version, hex},
};

use crate::{side::Table, with_each_redisson};

with_each_redisson!(
    multi_locks_exclude_and_wake_each_other,
    multi_locks_in_opposite_orders_have_their_turns,
);

/// Begins a call of Java's multi lock over these names, in this order.
fn java(table: &Table, verb: &str, names: &[&str], more: &str) -> Call {
    let names: Vec<String> = names.iter().map(|name| hex(name)).collect();
    table.java().call("a", &format!("{verb} several {}{more}", names.join(",")))
}

/// Waits until all of these are held, or none is.
async fn are_held(client: &Client, names: &[&str], held: bool) {
    for name in names {
        let as_wanted = async || client.mutex(name).is_locked().await.expect("an answer") == held;
        eventually(LIMIT, &format!("{name} is held: {held}"), as_wanted).await;
    }
}

async fn multi_locks_exclude_and_wake_each_other(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    let client = &table.rust().client;
    assert_eq!(java(&table, "lock", &["a", "b"], "").value().await, 1);
    let ours = client.multi_lock(["c", "b"]);
    assert!(ours.try_lock().await.expect("an answer").is_none());
    let error = ours.lock_with_timeout(Duration::from_millis(100)).await.expect_err("held");
    assert!(matches!(&error, Error::Timeout { lock, .. } if &**lock == "b"), "{error:?}");
    are_held(client, &["c"], false).await;
    let wait = tokio::spawn(ours.lock());
    table.somebody_waits("b").await;
    assert_eq!(java(&table, "unlock", &["a", "b"], "").value().await, 1);
    let guard = in_time(watch.widened(WOKEN), "ours is woken", wait).await;
    let guard = guard.expect("no panic").expect("free");
    are_held(client, &["b", "c"], true).await;

    assert_eq!(java(&table, "try-lock", &["a", "b"], "").value().await, 0);
    assert_eq!(java(&table, "try-lock-within", &["a", "b"], " 300").value().await, 0);
    are_held(client, &["a"], false).await;
    let wait = java(&table, "lock", &["a", "b"], "");
    table.somebody_waits("b").await;
    guard.unlock().await.expect("held");
    assert_eq!(in_time(watch.widened(WOKEN), "Java is woken", wait.value()).await, 1);
    are_held(client, &["a", "b"], true).await;
    assert!(client.multi_lock(["a", "c"]).try_lock().await.expect("an answer").is_none());
    assert_eq!(java(&table, "unlock", &["a", "b"], "").value().await, 1);
    are_held(client, &["a", "b", "c"], false).await;
}

/// Each of them may hold the lock that the other one waits for.
async fn multi_locks_in_opposite_orders_have_their_turns(version: Version) {
    const TURNS: usize = 4;
    let table = Table::lay(version, TTL).await;
    let ours = table.rust().client.multi_lock(["a", "b"]);
    let turns_of_java = async {
        for _ in 0..TURNS {
            assert_eq!(java(&table, "lock", &["b", "a"], "").value().await, 1);
            assert!(ours.try_lock().await.expect("an answer").is_none(), "two have it");
            assert_eq!(java(&table, "unlock", &["b", "a"], "").value().await, 1);
        }
    };
    let turns_of_ours = async {
        for _ in 0..TURNS {
            let guard = ours.lock().await.expect("its turn comes");
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(guard.is_held());
            guard.unlock().await.expect("held");
        }
    };
    let all = async { tokio::join!(turns_of_java, turns_of_ours) };
    in_time(LIMIT, "all have their turns", all).await;
    are_held(&table.rust().client, &["a", "b"], false).await;
}

const TTL: Duration = Duration::from_secs(30);
/// Far below the TTL, and below the times at which either side looks by itself.
const WOKEN: Duration = Duration::from_millis(1500);
const LIMIT: Duration = Duration::from_secs(60);
