//! Waiting for a lock that another holds on a majority of the masters.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, Guard};

use super::deployment::{MS, Masters, Ways, connected, states_become};
use crate::{
    checks::{LIMIT, soon},
    support::{Proxy, Server, Spy, eventually, subscribers},
};

use leasehold::NodeState::{Down, Up};

const CHANNEL: &str = "redisson_lock__channel:{n}";

/// Somebody who cannot reach server 2 holds the lock on the other two.
async fn held_on_two(masters: &Masters, ttl: Duration) -> (Ways, Client, Guard) {
    let ways = masters.ways().await;
    let holder = connected(ways.builder().ttl(ttl).name("holder")).await;
    ways.close(&[2], true);
    states_become(&holder, &[Up, Up, Down]).await;
    let guard = holder.mutex("n").lock().await.expect("two of three");
    masters.are_held("n", &[0, 1]).await;
    (ways, holder, guard)
}

async fn listen(servers: &[Server], count: i64) {
    for server in servers {
        let listen = async || subscribers(server, CHANNEL).await == count;
        eventually(LIMIT, "they listen", listen).await;
    }
}

/// Two wait: each takes server 2 whenever it asks and gives it back at once, which tells the other. Neither may
/// ask for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_asks_less_than_twice_a_second_and_not_for_its_own_releases() {
    const WATCHED: Duration = Duration::from_secs(5);
    let masters = Masters::start(3).await;
    let (_ways, _holder, guard) = held_on_two(&masters, 30_000 * MS).await;
    let mut waiting = Vec::new();
    for name in ["one", "two"] {
        let client = connected(masters.builder().name(name)).await;
        let lock = client.mutex("n");
        waiting.push(tokio::spawn(async move {
            lock.lock().await.expect("free at last").unlock().await.expect("held");
        }));
    }
    listen(&masters.0, 2).await;
    let mut spies = Vec::new();
    for server in &masters.0 {
        spies.push(Spy::on(server).await);
    }
    // What is tested is that little happens: it takes its time.
    tokio::time::sleep(WATCHED).await;
    for (server, spy) in spies.iter().enumerate() {
        let runs = spy.runs();
        for name in ["one", "two"] {
            let by = |run: &&crate::support::Run| {
                run.script == "lock_acquire" && run.id().starts_with(name)
            };
            let asks = runs.iter().filter(by).count();
            println!("{name} asked server {server} {asks} times in {WATCHED:?}");
            assert!(asks < 2 * WATCHED.as_secs() as usize, "{name}: {asks} asks in {WATCHED:?}");
        }
    }
    assert!(spies[0].count("lock_acquire") > 0, "the safety poll, at least");

    guard.unlock().await.expect("held");
    for waiter in waiting {
        soon("woken", waiter).await.expect("no panic");
    }
}

/// Well before the next poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_on_a_majority_wakes_a_waiter() {
    let masters = Masters::start(3).await;
    let client = masters.client().await;
    let (_ways, _holder, guard) = held_on_two(&masters, 30_000 * MS).await;
    let spy = Spy::on(&masters.0[0]).await;
    let waiting = tokio::spawn(client.mutex("n").lock());
    listen(&masters.0, 1).await;
    let asks_again = async || spy.count("lock_acquire") >= 2;
    eventually(LIMIT, "it asks again once it listens", asks_again).await;
    let freed_at = Instant::now();
    guard.unlock().await.expect("held");
    let guard = soon("woken", waiting).await.expect("no panic");
    let took = freed_at.elapsed();
    assert!(took < masters.widened(100 * MS), "{took:?}");
    let guard = guard.expect("free");
    // Nobody waits behind it, so its lease has one token: the version in its id says that it passes to nobody.
    let version = guard.holder().as_str().rsplit('-').nth(2).map(|group| group.starts_with('4'));
    assert_eq!(version, Some(true), "{}", guard.holder());
    guard.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
}

/// An ask is refused, the lock is given back, and the message is there before the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_during_an_ask_that_was_refused_is_not_missed() {
    const NOT_BY_A_POLL: Duration = Duration::from_secs(1);
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder().response_timeout(5000 * MS)).await;
    states_become(&client, &[Up, Up, Up]).await;
    let holder = connected(masters.builder().name("holder")).await;
    let guard = holder.mutex("n").lock().await.expect("free");
    let mut spies = Vec::new();
    for server in &masters.0 {
        spies.push(Spy::on(server).await);
    }
    let asked = async |times| {
        let all = async || spies.iter().all(|spy| spy.count("lock_acquire") >= times);
        eventually(LIMIT, &format!("{times} asks"), all).await;
    };
    let waiting = tokio::spawn(client.mutex("n").lock());
    listen(&masters.0, 1).await;
    asked(2).await;
    // Answers come in order: those to the asks are there, too.
    client.mutex("n").status().await.expect("an answer");

    ways.0.iter().for_each(Proxy::hold_answers);
    // As if it were free.
    for server in &masters.0 {
        server.command(&["PUBLISH", CHANNEL, "0"]).await;
    }
    asked(3).await;
    let before: Vec<usize> = ways.0.iter().map(Proxy::messages).collect();
    guard.unlock().await.expect("held");
    let told = async || ways.0.iter().zip(&before).all(|(way, before)| way.messages() > *before);
    eventually(LIMIT, "the messages are there", told).await;
    let answered_at = Instant::now();
    ways.0.iter().for_each(Proxy::release_replies);
    let guard = soon("woken", waiting).await.expect("no panic").expect("free");
    let took = answered_at.elapsed();
    assert!(took < masters.widened(NOT_BY_A_POLL), "{took:?}");
    guard.unlock().await.expect("held");
}

/// Nobody tells of it: its keys end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_a_holder_that_is_gone_is_had_when_its_time_is_over() {
    const TTL: Duration = Duration::from_millis(1200);
    let masters = Masters::start(3).await;
    let client = masters.client().await;
    let (ways, _holder, guard) = held_on_two(&masters, TTL).await;
    let waiting = tokio::spawn(client.mutex("n").lock());
    listen(&masters.0, 1).await;
    // As if its host had lost its power.
    ways.0.iter().for_each(|way| way.black_hole(true));
    let gone_at = Instant::now();
    let next = soon("its time", waiting).await.expect("no panic");
    let next = next.expect("free");
    let took = gone_at.elapsed();
    assert!(!guard.is_held(), "held twice");
    assert!(took > TTL / 2 && took < masters.widened(TTL + 150 * MS), "{took:?}");
    assert!(next.token() > guard.token());
    next.unlock().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_at_its_timeout_and_names_the_holder() {
    let masters = Masters::start(3).await;
    let client = masters.client().await;
    let (_ways, _holder, guard) = held_on_two(&masters, 30_000 * MS).await;
    for timeout in [Duration::ZERO, 30 * MS, 400 * MS] {
        let began_at = Instant::now();
        let answer = client.mutex("n").lock_with_timeout(timeout).await;
        let took = began_at.elapsed();
        assert!(took >= timeout && took < masters.widened(timeout + 50 * MS), "{took:?}");
        let Err(Error::Timeout { holder, remaining, .. }) = answer else { panic!("{answer:?}") };
        assert_eq!(holder, Some(guard.holder()));
        assert!(remaining.is_some_and(|left| left > 15_000 * MS), "{remaining:?}");
    }
    assert!(client.mutex("n").try_lock().await.expect("an answer").is_none());
    masters.are_held("n", &[0, 1]).await;
}

/// As on one server: the lock is given back after the waiter was refused and before it listens anywhere. It asks once
/// more when it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_before_the_subscriptions_is_not_missed() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let (client, other) = (connected(ways.builder()).await, masters.client().await);
    let theirs = other.mutex("n").lock().await.expect("free");
    masters.are_held("n", &[0, 1, 2]).await;
    // The connections for subscriptions are yet to be made.
    ways.0.iter().for_each(|way| way.refuse(true));
    let waiting = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "it was refused", async || client.stats().waiters == 1).await;
    let refused_at = Instant::now();
    listen(&masters.0, 0).await;
    theirs.unlock().await.expect("held");
    ways.0.iter().for_each(|way| way.refuse(false));
    let guard = soon("it asks again", waiting).await;
    let took = refused_at.elapsed();
    // It would ask by itself after two seconds at the earliest.
    assert!(took < masters.widened(1500 * MS), "{took:?}");
    guard.expect("no panic").expect("free").unlock().await.expect("held");
    masters.nothing_left(&[&client, &other]).await;
}
