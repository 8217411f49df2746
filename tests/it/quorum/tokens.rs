//! Tokens over several masters: each is above all before it, whichever majority gave it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use leasehold::{
    Client,
    NodeState::{Down, Up},
};

use super::deployment::{MS, Masters, connected, names_just, states_become, trusting};
use crate::{
    checks::LIMIT,
    support::{Proxy, Spy, Twister, eventually, lua},
};

const COUNTER: &str = "leasehold_token:{n}";

async fn take(client: &Client) -> u64 {
    let guard = client.mutex("n").lock_with_timeout(LIMIT).await.expect("a majority");
    let token = guard.token();
    guard.unlock().await.expect("held");
    token
}

/// Servers' clocks are rounded down to ten seconds: not across the end of them.
async fn early_in_ten_seconds() {
    let into = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        now.as_millis() % 10_000
    };
    let early = async || (200..6000).contains(&into());
    eventually(LIMIT, "it is early in ten seconds", early).await;
}

/// Three clients, each without one of the nodes, take turns, while counters are set far ahead here and there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_increase_over_changing_majorities() {
    let masters = Masters::start(3).await;
    let (mut clients, mut all_ways) = (Vec::new(), Vec::new());
    for without in 0..3 {
        let ways = masters.ways().await;
        let client = connected(ways.builder()).await;
        ways.close(&[without], true);
        let states = [0, 1, 2].map(|node| if node == without { Down } else { Up });
        states_become(&client, &states).await;
        clients.push(client);
        all_ways.push(ways);
    }
    let mut last = 0;
    for round in 0..90_usize {
        if round % 7 == 3 {
            let ahead = last + 1000 * (round as u64 + 1);
            masters.0[round % 3]
                .command(&["SET", COUNTER, &ahead.to_string(), "PX", "600000"])
                .await;
        }
        let token = take(&clients[(round * round + round / 4) % 3]).await;
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
    }
    let raises: u64 = clients.iter().map(|client| client.stats().second_round_trips).sum();
    println!("90 turns over changing majorities: {raises} raised tokens");
    assert!(raises > 0, "counters that differ must be lifted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_increase_while_nodes_go_and_come() {
    let masters = Masters::start(5).await;
    let ways = masters.ways().await;
    let clients = join_all((0..3).map(|_| connected(ways.builder()))).await;
    let mut last = 0;
    for round in 0..10 {
        let (one, other) = (round % 5, (round * 2 + 1) % 5);
        ways.close(&[one, other], true);
        for turn in 0..9 {
            let token = take(&clients[turn % 3]).await;
            assert!(token > last, "round {round}: {token} after {last}");
            last = token;
        }
        ways.close(&[one, other], false);
    }
}

/// On healthy nodes one round of requests is enough, as long as each of them got every acquire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_raised_on_healthy_nodes_without_contention() {
    for nodes in [3, 5] {
        let masters = Masters::start(nodes).await;
        let client = masters.client().await;
        let everywhere: Vec<usize> = (0..nodes).collect();
        // Every node must know the scripts: a release that is sent again with its text may come after the next acquire,
        // which is refused there then.
        let warm = client.mutex("warm").lock().await.expect("free");
        masters.are_held("warm", &everywhere).await;
        warm.unlock().await.expect("held");
        masters.nothing_left(&[&client]).await;
        // Counters start from clocks that are rounded to ten seconds: a mark between the answers of the nodes sets
        // them apart, for this acquire or the next one.
        let mark = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs() / 10;
        let mut allowed = 0;
        let mut last = 0;
        for round in 0..60 {
            if round % 20 == 0 {
                early_in_ten_seconds().await;
            }
            let before = mark();
            let guard = client.mutex("n").lock().await.expect("free");
            assert!(guard.token() > last);
            last = guard.token();
            // What the slowest was not sent when the lock is given back is not sent any more.
            masters.are_held("n", &everywhere).await;
            allowed += 2 * u64::from(mark() != before);
            guard.unlock().await.expect("held");
            // Otherwise the slowest may have this lease still when the next one is looked for.
            masters.are_held("n", &[]).await;
        }
        let raises = client.stats().second_round_trips;
        assert!(raises <= allowed, "{raises} with {nodes} nodes, {allowed} allowed");
        masters.nothing_left(&[&client]).await;
    }
}

/// Only the node that is behind is lifted, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_that_is_behind_is_lifted_once() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder()).await;
    ways.close(&[2], true);
    states_become(&client, &[Up, Up, Down]).await;
    let ahead = take(&client).await + 100_000_000;
    masters.0[0].command(&["SET", COUNTER, &ahead.to_string(), "PX", "600000"]).await;
    let spies = [Spy::on(&masters.0[0]).await, Spy::on(&masters.0[1]).await];
    let raises = || client.stats().second_round_trips;
    let before = raises();

    let guard = client.mutex("n").lock().await.expect("two of three");
    assert_eq!(guard.token(), ahead + 1);
    assert_eq!(raises() - before, 1);
    assert_eq!(masters.counters("n").await[..2], [Some(ahead + 1), Some(ahead + 1)]);
    guard.unlock().await.expect("held");
    assert_eq!(take(&client).await, ahead + 2, "they agree from now on");
    assert_eq!(raises() - before, 1);
    eventually(LIMIT, "it was seen", async || spies[1].count("fence_raise") > 0).await;
    assert_eq!(spies[0].count("fence_raise"), 0);

    // The third learns of it as soon as it counts.
    ways.close(&[2], false);
    ways.close(&[0], true);
    states_become(&client, &[Down, Up, Up]).await;
    assert!(take(&client).await > ahead + 2);
}

/// The first two answers are a majority, whose tokens differ, and the node that is behind cannot be raised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_node_with_the_highest_token_is_waited_for_if_another_cannot_be_raised() {
    let masters = Masters::start(3).await;
    let load = masters.0[0].command(&["SCRIPT", "LOAD", lua::FENCE_RAISE]).await;
    let hash: String = redis::from_redis_value(load).expect("a text");
    let refuses = Twister::start(masters.0[0].port(), move |words| {
        let raises = words.get(1).is_some_and(|it| *it == hash || it == lua::FENCE_RAISE);
        raises.then(|| "OOM command not allowed when used memory > 'maxmemory'.".to_owned())
    })
    .await;
    let slow = Proxy::start(masters.0[2].port()).await;
    let client = connected(trusting(&[refuses.url(), masters.0[1].url(), slow.url()])).await;
    let ahead = take(&client).await + 100_000_000;
    masters.nothing_left(&[&client]).await;
    for master in &masters.0[1..] {
        master.command(&["SET", COUNTER, &ahead.to_string(), "PX", "600000"]).await;
    }
    slow.delay_replies(200 * MS);
    let guard = client.mutex("n").try_lock().await.expect("two of three").expect("it is free");
    assert_eq!(guard.token(), ahead + 1);
    guard.unlock().await.expect("held");
    slow.delay_replies(Duration::ZERO);
    masters.nothing_left(&[&client]).await;
}

/// A majority granted, but the highest token is on one node only when the other falls silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_for_its_token_a_grant_is_given_back() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder().response_timeout(1000 * MS)).await;
    ways.close(&[2], true);
    states_become(&client, &[Up, Up, Down]).await;
    let ahead = take(&client).await + 100_000_000;
    masters.nothing_left(&[&client]).await;
    masters.0[0].command(&["SET", COUNTER, &ahead.to_string(), "PX", "600000"]).await;

    ways.0[1].hold_replies();
    let attempt = tokio::spawn(client.mutex("n").try_lock());
    masters.are_held("n", &[0, 1]).await;
    masters.0[1].pause();
    ways.0[1].release_replies();
    let answer = attempt.await.expect("no panic");
    // The first had the token already.
    names_just(answer, &ways.urls()[1..]);
    assert_eq!(client.stats().second_round_trips, 1);
    masters.0[1].resume();
    masters.nothing_left(&[&client]).await;
    assert!(take(&client).await > ahead);
}

/// How often it happens: a figure, not a promise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_increase_under_contention() {
    let masters = Masters::start(3).await;
    let clients = join_all((0..6).map(|_| masters.client())).await;
    let tokens = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let contenders = clients.iter().cloned().map(|client| {
        let tokens = tokens.clone();
        tokio::spawn(async move {
            for _ in 0..40 {
                let guard = client.mutex("n").lock().await.expect("its turn comes");
                tokens.lock().push(guard.token());
                guard.unlock().await.expect("held");
            }
        })
    });
    for contender in join_all(contenders).await {
        contender.expect("no panic");
    }
    let tokens = tokens.lock().clone();
    assert_eq!(tokens.len(), 240);
    for pair in tokens.windows(2) {
        assert!(pair[0] < pair[1], "{} after {}", pair[1], pair[0]);
    }
    assert!(tokens.last() < Some(&(1 << 53)));
    let raises: u64 = clients.iter().map(|client| client.stats().second_round_trips).sum();
    println!("6 contenders on 3 nodes: {raises} raised tokens in {} turns", tokens.len());
}

/// Clocks are rounded, so the second acquire finds the counters ahead of them: they are kept for no longer for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_counter_is_kept_for_its_retention_however_it_was_set() {
    let masters = Masters::start(3).await;
    let retention = Duration::from_secs(90 * 60);
    let client = connected(masters.builder().token_retention(retention)).await;
    let most = retention.as_millis() as i64;
    for turn in 0..4 {
        // The third time one of them must be lifted to the others.
        if turn == 2 {
            masters.0[1].command(&["SET", "leasehold_token:{n}", "1", "PX", "600000"]).await;
            masters.0[2].command(&["DEL", "leasehold_token:{n}"]).await;
        }
        let guard = client.mutex("n").lock().await.expect("free");
        masters.are_held("n", &[0, 1, 2]).await;
        guard.unlock().await.expect("held");
        for (node, server) in masters.0.iter().enumerate() {
            let left = server.command(&["PTTL", "leasehold_token:{n}"]).await;
            let left: i64 = redis::from_redis_value(left).expect("a number");
            assert!((most - 60_000..=most).contains(&left), "turn {turn}, node {node}: {left} ms");
        }
        masters.nothing_left(&[&client]).await;
    }
}
