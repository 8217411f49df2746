//! What a red lock or a multi lock of Java's and our lock do to each other while all is well, and with a server dead.

use std::time::Duration;

use leasehold::Error;
use leasehold_testkit::{Watch, eventually, java::Version};

use super::{MS, Masters, NOW, TTL};
use crate::{side::Side, with_each_redisson};

with_each_redisson!(
    each_keeps_the_other_out,
    a_wait_for_the_other_ends_at_its_time,
    an_unlock_wakes_the_other,
    a_waiter_waits_for_the_last_level,
    with_a_dead_server_both_go_on,
    a_multi_lock_and_ours_exclude_each_other,
);

async fn each_keeps_the_other_out(version: Version) {
    let masters = Masters::lay(version, "red", TTL).await;
    for (holder, other) in masters.both_ways() {
        let name = &format!("held-by-{}", holder.name());
        for lease in [None, Some(TTL)] {
            let held = match lease {
                None => holder.lock("a", name),
                Some(lease) => holder.lock_for("a", name, lease),
            };
            assert_eq!(held.value().await, 1);
            // Another thread or owner of the holder's own is out as well.
            for side in [other, holder] {
                assert_eq!(side.try_lock("b", name, NOW).value().await, 0);
                let wait = Duration::from_millis(30);
                assert_eq!(side.try_lock_for("b", name, wait, TTL).value().await, 0);
            }
            assert_eq!(holder.unlock("a", name).value().await, 1);
            assert_eq!(other.try_lock("b", name, NOW).value().await, 1);
            assert_eq!(holder.try_lock("a", name, NOW).value().await, 0);
            assert_eq!(other.unlock("b", name).value().await, 1);
        }
    }
}

async fn a_wait_for_the_other_ends_at_its_time(version: Version) {
    const WAIT: Duration = Duration::from_millis(450);
    let watch = Watch::begin();
    let masters = Masters::lay(version, "red", TTL).await;
    for (holder, waiter) in masters.both_ways() {
        let name = &format!("held-by-{}", holder.name());
        assert_eq!(holder.lock("a", name).value().await, 1);
        for lease in [None, Some(TTL)] {
            let wait = match lease {
                None => waiter.try_lock("b", name, WAIT),
                Some(lease) => waiter.try_lock_for("b", name, WAIT, lease),
            };
            let ended = wait.done().await;
            let took = ended.took();
            assert_eq!(ended.value(), 0);
            // Java waits for its servers one after the other, a third of the time each.
            let limit = watch.widened(WAIT + waiter.lateness());
            assert!(took >= WAIT - 3 * MS && took <= limit, "{} took {took:?}", waiter.name());
        }
        if matches!(holder, Side::Java(_)) {
            // It has a name on each server; the error gives one of them.
            let names = masters.java().text("a", "id").await;
            let lock = masters.rust().client.mutex(name.as_str());
            match lock.lock_with_timeout(WAIT).await {
                Err(Error::Timeout { holder: Some(holder), .. }) => {
                    let named = names.split(',').any(|name| name == holder.to_string());
                    assert!(named, "{holder} is none of {names}");
                }
                other => panic!("not a timeout: {other:?}"),
            }
        }
        assert_eq!(holder.unlock("a", name).value().await, 1);
    }
}

async fn an_unlock_wakes_the_other(version: Version) {
    const ROUNDS: usize = 10;
    let watch = Watch::begin();
    let masters = Masters::lay(version, "red", TTL).await;
    for (holder, waiter) in masters.both_ways() {
        let mut latencies = Vec::new();
        for round in 0..ROUNDS {
            latencies.push(hand_over(&masters, holder, waiter, round).await);
        }
        latencies.sort();
        let (median, longest) = (latencies[ROUNDS / 2], latencies[ROUNDS - 1]);
        println!("{version:?}: {} has it after {median:?}, at most {longest:?}", waiter.name());
        assert!(longest < watch.widened(WAKES_WITHIN), "{} had to wait", waiter.name());
    }
}

/// How long after the holder's unlock the waiter has the lock.
async fn hand_over(masters: &Masters, holder: &Side, waiter: &Side, round: usize) -> Duration {
    assert_eq!(holder.lock("a", "n").value().await, 1);
    let wait = match round % 2 {
        0 => waiter.lock("b", "n"),
        _ => waiter.try_lock("b", "n", TTL),
    };
    masters.waits(waiter, "n").await;
    // What follows a subscription, the second look, is over: only a message or a timer is left.
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!wait.is_finished());
    let freed = holder.unlock("a", "n").done().await;
    let woken = wait.done().await;
    let latency = Duration::from_micros(woken.ended_us - freed.began_us);
    assert_eq!((freed.value(), woken.value()), (1, 1));
    assert_eq!(waiter.unlock("b", "n").value().await, 1);
    latency
}

async fn a_waiter_waits_for_the_last_level(version: Version) {
    const DEPTH: i64 = 3;
    let watch = Watch::begin();
    let masters = Masters::lay(version, "red", TTL).await;
    for (holder, waiter) in masters.both_ways() {
        let name = &format!("nested-by-{}", holder.name());
        for _ in 0..DEPTH {
            assert_eq!(holder.lock("a", name).value().await, 1);
        }
        masters.stand_at(name, &[DEPTH; 3]).await;
        let wait = waiter.lock("b", name);
        masters.waits(waiter, name).await;
        for left in (1..DEPTH).rev() {
            assert_eq!(holder.unlock("a", name).value().await, 1);
            masters.stand_at(name, &[left; 3]).await;
            // What is shown is that nothing happens, for as long as a wake-up would take.
            tokio::time::sleep(Duration::from_millis(150)).await;
            assert!(!wait.is_finished(), "{} has it at level {left}", waiter.name());
        }
        let freed = holder.unlock("a", name).done().await;
        let woken = wait.done().await;
        let latency = Duration::from_micros(woken.ended_us - freed.began_us);
        assert!(latency < watch.widened(WAKES_WITHIN), "after {latency:?}");
        assert_eq!((freed.value(), woken.value()), (1, 1));
        // The new holder nests as well, also in one attempt.
        assert_eq!(waiter.try_lock("b", name, NOW).value().await, 1);
        for _ in 0..2 {
            assert_eq!(holder.try_lock("a", name, NOW).value().await, 0);
            assert_eq!(waiter.unlock("b", name).value().await, 1);
        }
        masters.stand_at(name, &[]).await;
    }
}

async fn with_a_dead_server_both_go_on(version: Version) {
    let masters = Masters::lay(version, "red", TTL).await;
    // The first and the last of those that Java asks in turn.
    for dead in [0, 2] {
        masters.servers[dead].kill();
        for (holder, waiter) in masters.both_ways() {
            let name = &format!("{dead}-dead-and-held-by-{}", holder.name());
            assert_eq!(holder.lock("a", name).value().await, 1);
            assert_eq!(masters.counts(name).await, [1, 1]);
            assert_eq!(waiter.try_lock("b", name, NOW).value().await, 0);
            let wait = waiter.lock("b", name);
            masters.waits(waiter, name).await;
            let freed = holder.unlock("a", name).done().await;
            let woken = wait.done().await;
            let latency = Duration::from_micros(woken.ended_us - freed.began_us);
            println!("{version:?}: {dead} dead, {} has it after {latency:?}", waiter.name());
            // Java may learn anew that a server is dead first; it is far from the TTL.
            assert!(latency < TTL / 4, "{} has it after {latency:?}", waiter.name());
            assert_eq!((freed.value(), woken.value()), (1, 1));
            assert_eq!(holder.try_lock("a", name, NOW).value().await, 0);
            assert_eq!(waiter.unlock("b", name).value().await, 1);
            masters.stand_at(name, &[]).await;
        }
        masters.servers[dead].restart().await;
        // Both use it again by themselves.
        for side in [&masters.java, &masters.rust] {
            let everywhere = async || {
                assert_eq!(side.lock("a", "again").value().await, 1);
                let holds = masters.counts("again").await.len();
                assert_eq!(side.unlock("a", "again").value().await, 1);
                holds == 3
            };
            eventually(Duration::from_secs(20), "all servers are in use", everywhere).await;
        }
    }
}

async fn a_multi_lock_and_ours_exclude_each_other(version: Version) {
    let watch = Watch::begin();
    let masters = Masters::lay(version, "multi", TTL).await;
    for (holder, waiter) in masters.both_ways() {
        for round in 0..4 {
            let latency = hand_over(&masters, holder, waiter, round).await;
            assert!(latency < watch.widened(WAKES_WITHIN), "{} had to wait", waiter.name());
        }
        assert_eq!(holder.lock("a", "n").value().await, 1);
        assert_eq!(waiter.try_lock("b", "n", NOW).value().await, 0);
        let wait = Duration::from_millis(50);
        assert_eq!(waiter.try_lock_for("b", "n", wait, TTL).value().await, 0);
        assert_eq!(holder.unlock("a", "n").value().await, 1);
    }
    // It needs every server, we need two of them; what it got of them it gives back.
    masters.servers[1].kill();
    assert_eq!(masters.java.try_lock("a", "n", NOW).value().await, 0);
    masters.stand_at("n", &[]).await;
    assert_eq!(masters.rust.try_lock("b", "n", NOW).value().await, 1);
    assert_eq!(masters.rust.unlock("b", "n").value().await, 1);
}

/// Without a message ours would look after 2 s at the earliest, a red lock after 1.5 s.
const WAKES_WITHIN: Duration = Duration::from_millis(500);
