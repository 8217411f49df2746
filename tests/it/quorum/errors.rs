//! Contention is not a failure of servers, nor the other way round; and what the servers refuse is told as it is.

use std::time::{Duration, Instant};

use leasehold::{Client, ClientBuilder, Error, NodeState};

use super::deployment::{
    MS, Masters, all_up, connected, failures, names_just, states_become, trusting,
};
use crate::{
    checks::{AT_ONCE, LIMIT, exists, told},
    support::{Server, eventually},
};

use NodeState::{Down, Up};

const RESPONSE: Duration = Duration::from_millis(300);

fn builder(masters: &Masters) -> ClientBuilder {
    masters.builder().response_timeout(RESPONSE)
}

async fn hold_by_hand(server: &Server, name: &str) {
    server.command(&["HSET", name, "somebody:1", "1"]).await;
    server.command(&["PEXPIRE", name, "20000"]).await;
}

async fn names_the_holder(client: &Client) {
    let lock = client.mutex("n");
    assert!(matches!(lock.try_lock().await, Ok(None)));
    for timeout in [Duration::ZERO, 400 * MS] {
        match lock.lock_with_timeout(timeout).await {
            Err(Error::Timeout { holder: Some(holder), remaining, .. }) => {
                assert_eq!(holder.as_str(), "somebody:1");
                assert!(remaining.is_some_and(|left| left > 10_000 * MS), "{remaining:?}");
            }
            other => panic!("it is held by somebody: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_refuses_and_one_that_is_away_are_contention() {
    let masters = Masters::start(3).await;
    let client = connected(builder(&masters)).await;
    // The scripts are known: a release that must be sent again would come behind the next ask.
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
    hold_by_hand(&masters.0[1], "n").await;
    masters.0[0].pause();
    // Who is silent may have granted it.
    names_the_holder(&client).await;
    masters.0[0].kill();
    states_become(&client, &[Down, Up, Up]).await;
    names_the_holder(&client).await;
    let gone = async || !exists(&masters.0[2], "n").await;
    eventually(LIMIT, "what was granted is given back", gone).await;
    masters.0[1].command(&["DEL", "n"]).await;
    client.mutex("n").lock().await.expect("two of three").unlock().await.expect("held");
}

/// Another task of its process asks, and waits for the one that is away: what the others said is the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_anothers_ask_is_told_what_that_knows() {
    let masters = Masters::start(3).await;
    let client = connected(masters.builder().response_timeout(LIMIT)).await;
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
    hold_by_hand(&masters.0[1], "n").await;
    masters.0[0].pause();
    let asking = tokio::spawn(client.mutex("n").lock_with_timeout(LIMIT));
    let granted = async || exists(&masters.0[2], "n").await;
    eventually(LIMIT, "one has granted it", granted).await;
    // Later, another task takes over the right to ask, and finds what the first one was granted, too.
    for timeout in [100 * MS, 400 * MS] {
        match client.mutex("n").lock_with_timeout(timeout).await {
            Err(Error::Timeout { holder: Some(holder), remaining, .. }) => {
                assert_eq!(holder.as_str(), "somebody:1", "after {timeout:?}");
                assert!(remaining.is_some_and(|left| left > 10_000 * MS), "{remaining:?}");
            }
            other => panic!("it is held by somebody: {other:?}"),
        }
    }
    masters.0[0].resume();
    asking.await.expect("no panic").expect("two of three").unlock().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_is_away_is_no_contention_whatever_the_rest_says() {
    let masters = Masters::start(3).await;
    // The one that is there must answer in time.
    let slowness = masters.0[1].slowness().await;
    let client = connected(masters.builder().response_timeout(slowness * RESPONSE)).await;
    hold_by_hand(&masters.0[1], "n").await;
    for how in ["stopped", "killed"] {
        for index in [0, 2] {
            if how == "stopped" { masters.0[index].pause() } else { masters.0[index].kill() }
        }
        let away = [masters.urls()[0].clone(), masters.urls()[2].clone()];
        for name in ["n", "free"] {
            let lock = client.mutex(name);
            names_just(lock.try_lock().await, &away);
            for timeout in [slowness * 100 * MS, slowness * 500 * MS] {
                let began_at = Instant::now();
                names_just(lock.lock_with_timeout(timeout).await, &away);
                let took = began_at.elapsed();
                let limit = masters.0[1].widened_by(3, timeout + 50 * MS);
                assert!(took <= limit, "{how}: {took:?}");
            }
        }
    }
}

/// It was contention at first: what counts is the last answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_outlives_its_servers_ends_as_their_failure() {
    let masters = Masters::start(3).await;
    let (holder, client) = (masters.client().await, connected(builder(&masters)).await);
    let _guard = holder.mutex("n").lock().await.expect("free");
    let waiting = tokio::spawn(client.mutex("n").lock_with_timeout(5500 * MS));
    let listens = async || client.stats().subscriptions == 1;
    eventually(LIMIT, "it waits", listens).await;
    // It asks again after 4 s at the latest.
    masters.0[0].kill();
    masters.0[1].kill();
    names_just(waiting.await.expect("no panic"), &masters.urls()[..2]);
}

#[tokio::test]
async fn a_key_that_is_no_lock_on_one_node_is_no_matter() {
    let masters = Masters::start(3).await;
    let client = masters.client().await;
    masters.0[1].command(&["SET", "n", "canary"]).await;
    let lock = client.mutex("n");
    for _ in 0..3 {
        let guard = lock.with_ttl(600 * MS).lock().await.expect("two of three");
        tokio::time::sleep(700 * MS).await;
        assert!(guard.is_held(), "it is renewed");
        guard.unlock().await.expect("held");
    }
    assert_eq!(
        masters.0[1].command(&["GET", "n"]).await,
        redis::Value::BulkString(b"canary".into())
    );
}

#[tokio::test]
async fn a_key_that_is_no_lock_on_a_majority_is_told() {
    let masters = Masters::start(3).await;
    let client = masters.client().await;
    for server in &masters.0[1..] {
        server.command(&["SET", "n", "canary"]).await;
    }
    let lock = client.mutex("n");
    let began_at = Instant::now();
    let errors = [
        lock.lock().await.expect_err("no lock"),
        lock.try_lock().await.expect_err("no lock"),
        lock.lock_with_timeout(5000 * MS).await.expect_err("no lock"),
        lock.status().await.expect_err("no lock"),
        lock.force_unlock().await.expect_err("no lock"),
    ];
    assert!(began_at.elapsed() < 2 * AT_ONCE, "waiting cannot mend it");
    for error in errors {
        assert!(matches!(&error, Error::WrongType { lock, .. } if &**lock == "n"), "{error:?}");
    }
    for server in &masters.0[1..] {
        server.command(&["DEL", "n"]).await;
    }
    lock.lock().await.expect("free").unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
}

/// A user on each server: `rules` say what it may.
async fn users(masters: &Masters, rules: &[&[&str]]) -> Vec<String> {
    let mut urls = Vec::new();
    for (server, rules) in masters.0.iter().zip(rules) {
        let mut command = vec!["ACL", "SETUSER", "u", "reset", "on", ">pw", "~*", "&*", "+@all"];
        command.extend(*rules);
        server.command(&command).await;
        urls.push(server.url_as("u", "pw"));
    }
    urls
}

/// A quorum must know its servers apart, and see their restarts.
#[tokio::test]
async fn no_right_to_info_on_a_majority_is_denied_at_connect() {
    let masters = Masters::start(3).await;
    let urls = users(&masters, &[&["-info"], &[], &["-info"]]).await;
    let began_at = Instant::now();
    let error = trusting(&urls).connect().await.expect_err("a majority denies");
    assert!(began_at.elapsed() < 2 * AT_ONCE);
    assert!(matches!(&error, Error::Denied { what, .. } if &**what == "info"), "{error:?}");
    assert!(!told(&error).contains("pw"), "{}", told(&error));

    // One server alone need not be known.
    Client::connect(&urls[0]).await.expect("no quorum");
}

#[tokio::test]
async fn one_node_that_denies_is_shown_and_not_needed() {
    for denied in ["-info", "-evalsha", "-pexpire", "-subscribe"] {
        let masters = Masters::start(3).await;
        let urls = users(&masters, &[&[], &[denied], &[]]).await;
        let client = trusting(&urls).connect().await.expect("two of three are enough");
        let tried = async || client.nodes()[1].last_error.is_some();
        eventually(LIMIT, "the node was tried", tried).await;
        states_become(&client, &[Up, Down, Up]).await;
        let why = client.nodes()[1].last_error.clone().expect("why it is not used");
        assert!(why.contains("denied") && why.contains(&denied[1..]), "{denied}: {why}");
        let guard = client.mutex("n").lock().await.expect("two of three");
        guard.unlock().await.expect("held");
        // It is tried again: a right that is given later is found.
        masters.0[1].command(&["ACL", "SETUSER", "u", "+@all"]).await;
        all_up(&client).await;
    }
}

/// Rights that are taken away while the client runs.
#[tokio::test]
async fn a_right_taken_away_on_a_majority_is_named() {
    let masters = Masters::start(3).await;
    let urls = users(&masters, &[&[], &[], &[]]).await;
    let client = connected(trusting(&urls)).await;
    let lock = client.mutex("n");
    lock.lock().await.expect("free").unlock().await.expect("held");
    masters.0[0].command(&["ACL", "SETUSER", "u", "-hset"]).await;
    lock.lock().await.expect("two of three may").unlock().await.expect("held");
    masters.0[1].command(&["ACL", "SETUSER", "u", "-hset"]).await;
    for answer in [lock.lock().await.map(Some), lock.try_lock().await] {
        assert!(matches!(answer, Err(Error::Denied { .. })), "{answer:?}");
    }
    masters.nothing_left(&[&client]).await;
}

/// Each node has a reason of its own, and none is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_is_named_with_its_own_cause() {
    let masters = Masters::start(5).await;
    let client = connected(builder(&masters)).await;
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    masters.0[0].kill();
    masters.0[1].pause();
    masters.0[2].command(&["SET", "n", "no lock"]).await;
    let down = async || client.nodes()[0].state == Down;
    eventually(LIMIT, "it is down", down).await;
    let causes = failures(client.mutex("n").try_lock().await);
    let urls = masters.urls();
    assert_eq!(causes.len(), 3, "{causes:?}");
    for (index, cause) in [(0, "not connected"), (1, "no"), (2, "not a lock")] {
        let found = causes.iter().any(|(node, said)| *node == urls[index] && said.contains(cause));
        assert!(found, "{cause} of node {index} in {causes:?}");
    }
}
