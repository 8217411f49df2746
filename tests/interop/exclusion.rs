//! Who holds the lock keeps the other out, and a wait for it ends at its time.

use std::time::Duration;

use leasehold::blocking;
use leasehold_testkit::{Watch, java::Version};

use crate::{side::Table, with_each_redisson};

with_each_redisson!(
    each_keeps_the_other_out,
    a_thread_of_ours_and_one_of_java_exclude_each_other,
    a_wait_for_the_other_ends_at_its_time,
);

async fn each_keeps_the_other_out(version: Version) {
    let table = Table::lay(version, TTL).await;
    for (holder, other) in table.both_ways() {
        let name = format!("held-by-{}", holder.name());
        for lease in [None, Some(TTL)] {
            let held = lease.map_or_else(
                || holder.lock("a", &name),
                |lease| holder.lock_for("a", &name, lease),
            );
            assert_eq!(held.value().await, 1);
            // Another thread or owner of the holder's own is out as well.
            for side in [other, holder] {
                assert_eq!(side.try_lock("b", &name, NOW).value().await, 0);
                let wait = Duration::from_millis(20);
                assert_eq!(side.try_lock_for("b", &name, wait, TTL).value().await, 0);
            }
            assert_eq!(holder.unlock("a", &name).value().await, 1);
            assert_eq!(other.try_lock("b", &name, NOW).value().await, 1);
            assert_eq!(holder.try_lock("a", &name, NOW).value().await, 0);
            assert_eq!(other.unlock("b", &name).value().await, 1);
        }
    }
}

async fn a_thread_of_ours_and_one_of_java_exclude_each_other(version: Version) {
    let table = Table::lay(version, TTL).await;
    let url = table.server.url();
    let (holds, is_held) = tokio::sync::oneshot::channel();
    let (refused, was_refused) = tokio::sync::oneshot::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel();
    let thread = tokio::task::spawn_blocking(move || {
        let client = blocking::Client::connect(&url).expect("connected");
        let lock = client.mutex("n");
        let guard = lock.lock().expect("free");
        let nested = lock.lock().expect("the same thread");
        holds.send(()).expect("somebody listens");
        may_go_on.recv().expect("told");
        drop(nested);
        guard.unlock().expect("held");
        // Now it is Java's, which waited.
        may_go_on.recv().expect("told");
        assert!(lock.try_lock().expect("an answer").is_none());
        refused.send(()).expect("somebody listens");
        may_go_on.recv().expect("told");
        lock.lock().expect("Java gives it back").unlock().expect("held");
    });
    is_held.await.expect("sent");
    assert_eq!(table.java.try_lock("a", "n", NOW).value().await, 0);
    let waits = table.java.lock("a", "n");
    table.somebody_waits("n").await;
    go_on.send(()).expect("it listens");
    assert_eq!(waits.value().await, 1);
    go_on.send(()).expect("it listens");
    was_refused.await.expect("sent");
    // Java, which waited before, may listen for a while yet.
    table.nobody_waits("n").await;
    go_on.send(()).expect("it listens");
    table.somebody_waits("n").await;
    assert_eq!(table.java.unlock("a", "n").value().await, 1);
    thread.await.expect("no panic");
    let left = table.java().call("a", "is-locked plain 6e").value().await;
    assert_eq!(left, 0);
}

async fn a_wait_for_the_other_ends_at_its_time(version: Version) {
    const WAIT: Duration = Duration::from_millis(400);
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    for (holder, waiter) in table.both_ways() {
        let name = format!("held-by-{}", holder.name());
        assert_eq!(holder.lock("a", &name).value().await, 1);
        for lease in [None, Some(TTL)] {
            let wait = match lease {
                None => waiter.try_lock("b", &name, WAIT),
                Some(lease) => waiter.try_lock_for("b", &name, WAIT, lease),
            };
            let ended = wait.done().await;
            let took = ended.took();
            assert_eq!(ended.value(), 0);
            let limit = watch.widened(WAIT + waiter.lateness());
            assert!(took >= WAIT - MS && took <= limit, "{} waited for {took:?}", waiter.name());
        }
        assert_eq!(holder.unlock("a", &name).value().await, 1);
    }
}

const TTL: Duration = Duration::from_secs(30);
const NOW: Duration = Duration::ZERO;
/// To what Java rounds the time that is left.
const MS: Duration = Duration::from_millis(1);
