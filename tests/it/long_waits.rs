//! Waits and holds that last for long are reported, with the lines of code that asked and that took.

use std::time::Duration;

use leasehold::{Client, Owner, blocking};

use crate::{
    checks::{LIMIT, connect, nothing_left, setup},
    logging::Log,
    support::{Server, eventually},
};

const MS: Duration = Duration::from_millis(1);

#[tokio::test]
async fn a_slow_wait_is_reported_with_its_line_and_the_holder_and_so_is_its_end() {
    let (log, _listening) = Log::listen();
    let (server, [client, other]) = setup().await;
    let held = other.mutex("n").lock().await.expect("free");
    let (holder, asked_in) = (held.holder().to_string(), line!() + 1);
    let waiter = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "it is told", async || log.has(&["still waiting"])).await;
    let (at, holder) = (format!("long_waits.rs:{asked_in}:"), format!("holder={holder}"));
    let told = ["INFO", "still waiting", "lock=\"n\"", &at, &holder, "waiters=1", "clients=1"];
    assert!(log.has(&told), "{}", log.text());
    assert!(!log.has(&["wait ended"]) && !log.has(&["hint="]), "{}", log.text());
    held.unlock().await.expect("held");
    let guard = waiter.await.expect("no panic").expect("free");
    let told = ["INFO", "wait ended", "lock=\"n\"", &at, "outcome=held", "waited_ms="];
    assert!(log.has(&told), "{}", log.text());
    assert_eq!(log.text().matches("wait ended").count(), 1, "{}", log.text());
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn who_holds_it_here_is_named_with_the_line_that_took_it() {
    let (log, _listening) = Log::listen();
    let (server, [client]) = setup().await;
    let held = client.mutex("n").owned_by(&Owner::named("nightly"));
    let (held, taken_in) = (held.lock().await.expect("free"), line!());
    let fair = tokio::spawn(client.fair_mutex("n").lock());
    let late = client.mutex("n").lock_with_timeout(1100 * MS);
    let late = tokio::spawn(late);
    let lines = || log.text().matches("still waiting").count();
    eventually(LIMIT, "both are told", async || lines() == 2).await;
    let taken_at = format!("long_waits.rs:{taken_in}:");
    let told =
        ["still waiting", "taken_at=", &taken_at, "holder_owner=nightly#", "held_ms=", "waiters=2"];
    assert!(log.has(&told), "{}", log.text());
    late.await.expect("no panic").expect_err("it is held");
    assert!(log.has(&["wait ended", "outcome=timed out"]), "{}", log.text());
    fair.abort();
    eventually(LIMIT, "it is gone", async || client.stats().waiters == 0).await;
    assert!(log.has(&["wait ended", "outcome=cancelled"]), "{}", log.text());
    assert_eq!(log.text().matches("wait ended").count(), 2, "{}", log.text());
    held.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// The wait of the first one is told of again after ten seconds, and that of the second one long before.
#[tokio::test]
async fn who_comes_once_another_wait_was_told_is_told_of_in_time_too() {
    let (log, _listening) = Log::listen();
    let (server, [client]) = setup().await;
    let held = client.mutex("n").lock().await.expect("free");
    let waits = || {
        let wait = client.mutex("n").lock();
        tokio::spawn(async move { wait.await?.unlock().await })
    };
    let lines = || log.text().matches("still waiting").count();
    let first = waits();
    eventually(LIMIT, "the first is told", async || lines() == 1).await;
    let second = waits();
    eventually(5000 * MS, "the second is told", async || lines() == 2).await;
    held.unlock().await.expect("held");
    for waiter in [first, second] {
        waiter.await.expect("no panic").expect("held");
    }
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_child_that_waits_for_the_lock_of_its_parent_is_told_so() {
    let (log, _listening) = Log::listen();
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    let (held, taken_in) = (lock.lock().await.expect("free"), line!());
    let child = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock_with_timeout(1500 * MS).await.map(drop) }
    });
    // The parent waits for its child, which waits for the parent's lock.
    child.await.expect("no panic").expect_err("the parent holds it");
    let taken_at = format!("long_waits.rs:{taken_in}:");
    let told = ["INFO", "still waiting", &taken_at, "hint=", "as for one that it spawned"];
    assert!(log.has(&told), "{}", log.text());
    held.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn of_many_who_wait_for_long_some_say_so_loudly() {
    let (log, _listening) = Log::listen();
    let (server, [client, other]) = setup().await;
    let held = other.mutex("n").lock().await.expect("free");
    let waiters = (0..12).map(|_| {
        let wait = client.mutex("n").lock();
        tokio::spawn(async move { wait.await?.unlock().await })
    });
    let waiters: Vec<_> = waiters.collect();
    // At 1 s five of them have said so already, and the others are only counted.
    let loud =
        || log.text().lines().any(|line| line.contains("WARN") && line.contains("still waiting"));
    eventually(LIMIT, "it is told", async || loud()).await;
    held.unlock().await.expect("held");
    for waiter in waiters {
        waiter.await.expect("no panic").expect("held");
    }
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_candidate_may_wait_for_as_long_as_it_likes() {
    let (log, _listening) = Log::listen();
    let (_server, [client, other]) = setup().await;
    let leader = other.election("n").campaign().await.expect("free");
    let locked = other.mutex("m").lock().await.expect("free");
    let candidate = tokio::spawn(client.election("n").campaign());
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
    let waiter = tokio::spawn(client.mutex("m").lock());
    eventually(LIMIT, "that is told", async || log.has(&["still waiting", "lock=\"m\""])).await;
    assert_eq!(log.text().matches("still waiting").count(), 1, "{}", log.text());
    locked.unlock().await.expect("held");
    leader.resign().await.expect("held");
    waiter.await.expect("no panic").expect("free").unlock().await.expect("held");
    candidate.await.expect("no panic").expect("free").resign().await.expect("held");
    assert_eq!(log.text().matches("wait ended").count(), 1, "{}", log.text());
}

#[tokio::test]
async fn a_long_hold_is_reported_where_that_is_wanted() {
    let (log, _listening) = Log::listen();
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).warn_held_after(50 * MS);
    let (client, silent) = (builder.connect().await.expect("connected"), connect(&server).await);
    let other = silent.mutex("other").lock().await.expect("free");
    let (held, taken_in) = (client.mutex("n").lock().await.expect("free"), line!());
    let [hold] = &client.holds()[..] else { panic!("one hold") };
    assert!(hold.taken_at.file().ends_with("long_waits.rs") && hold.taken_at.line() == taken_in);
    let lines = || log.text().matches("still held").count();
    eventually(LIMIT, "it is told again", async || lines() == 3).await;
    let taken_at = format!("taken_at=tests/it/long_waits.rs:{taken_in}:");
    let told = ["WARN", "still held", "lock=\"n\"", "token=", &taken_at, "held_ms=", "waiters=0"];
    assert!(log.has(&told), "{}", log.text());
    assert!(!log.has(&["still held", "other"]), "{}", log.text());
    let told = log.text();
    let lengths = told.lines().filter(|line| line.contains("still held")).map(|line| {
        let (_, length) = line.split_once("held_ms=").expect("a length");
        length.split_whitespace().next().expect("a number").parse().expect("a number")
    });
    let lengths: Vec<u64> = lengths.collect();
    assert!(lengths.iter().zip([50, 100, 200]).all(|(held, least)| *held >= least), "{lengths:?}");
    held.unlock().await.expect("held");
    other.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn of_readers_that_share_a_lease_each_long_hold_is_reported() {
    let (log, _listening) = Log::listen();
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).warn_held_after(50 * MS);
    let client = builder.connect().await.expect("connected");
    let lock = client.rw_lock("n");
    let (one, one_in) = (lock.read().await.expect("free"), line!());
    let (other, other_in) = (lock.read().await.expect("they share"), line!());
    for taken_in in [one_in, other_in] {
        let taken_at = format!("taken_at=tests/it/long_waits.rs:{taken_in}:");
        let told = async || log.has(&["still held", "lock=\"n\"", &taken_at]);
        eventually(LIMIT, "each hold is told", told).await;
    }
    one.unlock().await.expect("held");
    other.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[test]
fn a_thread_learns_which_line_took_a_lock() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let client = blocking::Client::connect(&server.url()).expect("connected");
    let (held, taken_in) = (client.mutex("n").lock().expect("free"), line!());
    let [hold] = &client.holds()[..] else { panic!("one hold") };
    assert!(hold.taken_at.file().ends_with("long_waits.rs") && hold.taken_at.line() == taken_in);
    held.unlock().expect("held");
    runtime.block_on(async { drop(server) });
}
