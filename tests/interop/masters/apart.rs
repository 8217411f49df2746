//! What a red lock or a multi lock of Java's does not do, so that it is not what ours is.

use std::time::Duration;

use leasehold::Error;
use leasehold_testkit::{
    Proxy, eventually,
    java::{Failure, Java, Version, hex},
};
use redis::Value;

use super::{Masters, NOW, TTL, builder, left_ms, start_three, urls};
use crate::{
    side::{Rust, Side},
    with_each_redisson,
};

with_each_redisson!(
    a_red_lock_does_not_notice_the_loss_of_its_majority,
    a_red_lock_does_not_wait_after_a_restart,
    a_late_red_lock_with_a_fixed_lease_is_held_beside_ours_and_cuts_it_short,
    a_red_lock_with_a_lease_in_seconds_holds_for_a_thousand_times_as_long,
    a_multi_lock_that_lost_a_server_keeps_the_others,
    a_red_lock_draws_no_tokens,
    a_red_lock_has_another_name_on_each_server,
);

async fn a_red_lock_does_not_notice_the_loss_of_its_majority(version: Version) {
    const TTL: Duration = Duration::from_millis(600);
    let masters = Masters::lay(version, "red", TTL).await;
    assert_eq!(masters.java.lock("a", NAME).value().await, 1);
    assert_eq!(held_by_java(&masters).await, 1);
    // One server forgets it: two are a majority still. It is not put back, and `isHeldByCurrentThread` is about
    // all of the servers.
    masters.servers[0].command(&["DEL", NAME]).await;
    tokio::time::sleep(TTL * 2).await;
    assert_eq!(masters.rust.try_lock("b", NAME, NOW).value().await, 0);
    masters.stand_at(NAME, &[1; 2]).await;
    assert_eq!(held_by_java(&masters).await, 0);
    // A second one: nobody is told, and the last one is renewed all the same.
    masters.servers[1].command(&["DEL", NAME]).await;
    assert_eq!(masters.rust.try_lock("b", NAME, NOW).value().await, 1);
    tokio::time::sleep(TTL * 2).await;
    masters.stand_at(NAME, &[1; 3]).await;
    assert!(masters.rust().look("b", NAME, |guard| guard.is_held()));
    assert_eq!(masters.java.unlock("a", NAME).value().await, 1, "without an exception");
    assert_eq!(masters.java.try_lock("a", NAME, NOW).value().await, 0);
    assert_eq!(masters.rust.unlock("b", NAME).value().await, 1);
}

async fn held_by_java(masters: &Masters) -> i64 {
    let command = format!("is-held-by-current-thread red {}", hex(NAME));
    masters.java().number("a", &command).await
}

async fn a_red_lock_does_not_wait_after_a_restart(version: Version) {
    let servers = start_three().await;
    servers[2].kill();
    let mut ways = Vec::new();
    for server in &servers {
        ways.push(Proxy::start(server.port()).await);
    }
    let builder = builder(&servers).nodes(ways.iter().map(Proxy::url));
    let rust = Rust::new(builder.ttl(TTL).connect().await.expect("connected"));
    let rust = Side::Rust(rust);
    assert_eq!(rust.lock("a", NAME).value().await, 1);
    // One of the two that have it forgets it, and the third never had it. Ours would put it back there, but cannot reach
    // them: Java can.
    for way in &ways[1..] {
        way.refuse(true);
        way.cut();
    }
    servers[1].kill();
    servers[1].restart().await;
    servers[2].restart().await;
    let java = Java::connect_to_all(version, &urls(&servers), TTL, "red").await;
    let java = Side::Java(java);
    assert_eq!(java.try_lock("b", NAME, NOW).value().await, 1);
    let Side::Rust(rust) = &rust else { unreachable!("BUG: made above") };
    assert!(rust.look("a", NAME, |guard| guard.is_held()), "held twice");
}

async fn a_late_red_lock_with_a_fixed_lease_is_held_beside_ours_and_cuts_it_short(
    version: Version,
) {
    const LEASE: Duration = Duration::from_millis(400);
    let masters = Masters::lay(version, "red", TTL).await;
    // It has the first two servers at once, and asks the third for longer than its lease lasts.
    masters.servers[2].pause();
    let late = masters.java.try_lock_for("a", NAME, NOW, LEASE);
    let taken = async || masters.counts_of_first_two(NAME).await == [1; 2];
    eventually(Duration::from_secs(5), "Java has two of them", taken).await;
    assert_eq!(masters.rust.lock("b", NAME).value().await, 1);
    assert!(!late.is_finished());
    assert!(left_ms(&masters.servers[0], NAME).await > 10_000);
    assert_eq!(late.value().await, 1, "it believes to have the lock");
    let left = masters.rust().look("b", NAME, |guard| guard.remaining());
    assert!(left > TTL / 3, "we believe so, too");
    // What it did last was to set its lease on the key, whosever it is.
    for server in &masters.servers[..2] {
        let left_ms = left_ms(server, NAME).await;
        assert!(left_ms <= LEASE.as_millis() as i64, "{left_ms} ms are left of our lock");
    }
    masters.servers[2].resume();
}

impl Masters {
    /// As [`counts`](Self::counts), where the third does not answer.
    async fn counts_of_first_two(&self, name: &str) -> [i64; 2] {
        let mut counts = [0; 2];
        for (server, count) in self.servers.iter().zip(&mut counts) {
            if let Value::Int(fields) = server.command(&["HLEN", name]).await {
                *count = fields;
            }
        }
        counts
    }
}

async fn a_red_lock_with_a_lease_in_seconds_holds_for_a_thousand_times_as_long(version: Version) {
    let masters = Masters::lay(version, "red", TTL).await;
    assert_eq!(masters.rust.lock("a", NAME).value().await, 1);
    let wait = masters.java().call("b", &format!("lock-for-seconds red {} 1", hex(NAME)));
    // Its first round ends after a second at most; the next takes milliseconds for seconds.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(masters.rust.unlock("a", NAME).value().await, 1);
    assert_eq!(wait.value().await, 1);
    let left_ms = left_ms(&masters.servers[0], NAME).await;
    assert!(left_ms > 900_000, "{left_ms} ms are left of 1 s");
    assert_eq!(masters.java.unlock("b", NAME).value().await, 1);
}

async fn a_multi_lock_that_lost_a_server_keeps_the_others(version: Version) {
    const TTL: Duration = Duration::from_millis(600);
    let masters = Masters::lay(version, "multi", TTL).await;
    assert_eq!(masters.java.lock("a", NAME).value().await, 1);
    masters.servers[0].command(&["DEL", NAME]).await;
    let unlocked = masters.java.unlock("a", NAME).done().await;
    assert_eq!(unlocked.outcome, Err(Failure::NotHeld));
    // It stopped at the first server, and the watchdogs of the others go on.
    assert_eq!(masters.rust.try_lock("b", NAME, TTL * 3).value().await, 0);
    masters.stand_at(NAME, &[1; 2]).await;
    // An operator of ours can end that.
    assert_eq!(masters.rust.force_unlock(NAME).value().await, 1);
    assert_eq!(masters.rust.lock("b", NAME).value().await, 1);
    tokio::time::sleep(TTL * 2).await;
    assert!(masters.rust().look("b", NAME, |guard| guard.is_held()));
    assert_eq!(masters.rust.unlock("b", NAME).value().await, 1);
}

async fn a_red_lock_draws_no_tokens(version: Version) {
    let masters = Masters::lay(version, "red", TTL).await;
    let lock = masters.rust().client.mutex(NAME);
    let guard = lock.lock().await.expect("free");
    let before = guard.token();
    guard.unlock().await.expect("held");
    let counters = async || {
        let mut counters = Vec::new();
        for server in &masters.servers {
            counters.push(server.command(&["GET", "leasehold_token:{n}"]).await);
        }
        counters
    };
    let counted = counters().await;
    assert_eq!(masters.java.lock("a", NAME).value().await, 1);
    assert_eq!(counters().await, counted);
    for server in &masters.servers {
        let java_s = server.command(&["EXISTS", "redisson_lock_token:{n}"]).await;
        assert_eq!(java_s, Value::Int(0));
    }
    assert_eq!(masters.java.unlock("a", NAME).value().await, 1);
    assert!(lock.lock().await.expect("free").token() > before);
}

async fn a_red_lock_has_another_name_on_each_server(version: Version) {
    let masters = Masters::lay(version, "red", TTL).await;
    let lock = masters.rust().client.mutex(NAME);
    assert_eq!(masters.java.lock("a", NAME).value().await, 1);
    let Err(Error::Timeout { holder: Some(holder), .. }) = lock.lock_with_timeout(NOW).await else {
        panic!("it is held");
    };
    // No name has a majority, and no majority says that it is free: `status` gives one of the names.
    let seen = lock.holder().await.expect("an answer").expect("held");
    assert_eq!(seen.client(), None);
    // One of its votes goes, and it has a majority still.
    assert!(!lock.force_unlock_if(&holder).await.expect("an answer"));
    masters.stand_at(NAME, &[1; 2]).await;
    assert_eq!(masters.rust.try_lock("b", NAME, NOW).value().await, 0);
    let asked = masters.java().ask("a", &format!("is-locked red {}", hex(NAME))).await.outcome;
    match asked {
        Err(Failure::Other(problem)) => {
            assert!(problem.starts_with("UnsupportedOperationException"), "{problem}");
        }
        other => panic!("it is not known as a whole: {other:?}"),
    }
    assert_eq!(masters.java.unlock("a", NAME).value().await, 1);
}

const NAME: &str = "n";
