//! What each sees of the other's lock.

use std::time::Duration;

use leasehold::Error;
use leasehold_testkit::java::{Failure, Version, hex};

use crate::{side::Table, with_each_redisson};

with_each_redisson!(we_see_a_lock_of_java, java_sees_a_lock_of_ours);

async fn we_see_a_lock_of_java(version: Version) {
    let table = Table::lay(version, TTL).await;
    let lock = table.rust().client.mutex("n");
    let free = lock.status().await.expect("an answer");
    assert_eq!((free.holder, free.hold_count, free.remaining), (None, 0, None));

    assert_eq!(table.java.lock("a", "n").value().await, 1);
    assert_eq!(table.java.lock("a", "n").value().await, 1);
    let holder = table.java().text("a", "id").await;
    let status = lock.status().await.expect("an answer");
    let seen = status.holder.clone().expect("held");
    assert_eq!((seen.as_str(), seen.client()), (&*holder, None));
    assert_eq!((status.hold_count, status.since, status.last_token), (2, None, None));
    let left = status.remaining.expect("a TTL");
    assert!(left <= TTL && left > TTL / 2, "{left:?} left");
    assert!(lock.is_locked().await.expect("an answer"));
    assert_eq!(lock.holder().await.expect("an answer"), Some(seen.clone()));
    assert!(lock.remaining_ttl().await.expect("an answer").expect("held") <= TTL);
    match lock.lock_with_timeout(Duration::from_millis(50)).await {
        Err(Error::Timeout { holder, remaining, .. }) => {
            assert_eq!(holder.as_ref(), Some(&seen));
            assert!(remaining.is_some_and(|left| left <= TTL), "{remaining:?}");
        }
        other => panic!("not a timeout: {other:?}"),
    }
    assert_eq!(table.java.unlock("a", "n").value().await, 1);
    assert_eq!(table.java.unlock("a", "n").value().await, 1);
    assert!(!lock.is_locked().await.expect("an answer"));
}

async fn java_sees_a_lock_of_ours(version: Version) {
    let table = Table::lay(version, TTL).await;
    let name = hex("n");
    let say = async |question: &str| table.java().number("a", question).await;
    let questions = [
        format!("is-held-by-current-thread plain {name}"),
        format!("is-held-by-thread plain {name} 1"),
        format!("hold-count plain {name}"),
    ];
    assert_eq!(table.java.is_locked("n").value().await, 0);
    assert_eq!(table.java.remaining_ttl("n").value().await, -2);
    for _ in 0..2 {
        assert_eq!(table.rust.lock("a", "n").value().await, 1);
    }
    assert_eq!(table.java.is_locked("n").value().await, 1);
    let left_ms = table.java.remaining_ttl("n").value().await;
    let ttl_ms = TTL.as_millis() as i64;
    assert!((ttl_ms / 2..=ttl_ms).contains(&left_ms), "{left_ms} ms left");
    // It is not Java's, and Java cannot give it back.
    for question in &questions {
        assert_eq!(say(question).await, 0, "{question}");
    }
    assert_eq!(table.java.unlock("a", "n").done().await.outcome, Err(Failure::NotHeld));
    assert!(table.rust().look("a", "n", |guard| guard.is_held()));
    for _ in 0..2 {
        assert_eq!(table.rust.unlock("a", "n").value().await, 1);
    }
    assert_eq!(table.java.is_locked("n").value().await, 0);

    // A fixed lease shows as what it is.
    let lease = Duration::from_secs(7);
    assert_eq!(table.rust.lock_for("a", "n", lease).value().await, 1);
    let left_ms = table.java().call("a", &format!("remaining-ttl plain {name}")).value().await;
    assert!((3500..=7000).contains(&left_ms), "{left_ms} ms left");
    assert_eq!(table.rust.unlock("a", "n").value().await, 1);
}

const TTL: Duration = Duration::from_secs(30);
