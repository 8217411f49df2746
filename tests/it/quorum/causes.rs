//! Nodes that fail for different causes: what may pass is waited for as long as a majority can come of it.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, Guard, NodeState};
use tokio::task::JoinHandle;

use super::deployment::{Masters, Ways, connected, states_become, trusting};
use crate::{
    checks::{AT_ONCE, LIMIT, soon},
    support::Proxy,
};

use NodeState::{Down, Up};

const RESPONSE: Duration = Duration::from_millis(200);

/// A client that may do everything, by ways that can fail.
async fn set(count: usize) -> (Masters, Ways, Client) {
    let masters = Masters::start(count).await;
    let ways = masters.ways().await;
    for server in &masters.0 {
        server.command(&["ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all"]).await;
    }
    let as_user = |way: &Proxy| format!("redis://u:pw@127.0.0.1:{}", way.port());
    let urls: Vec<String> = ways.0.iter().map(as_user).collect();
    let client = connected(trusting(&urls).response_timeout(RESPONSE)).await;
    client.mutex("before").lock().await.expect("free").unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
    (masters, ways, client)
}

/// This server denies the lock from now on, or has another thing of its name.
async fn deny(masters: &Masters, node: usize) {
    masters.0[node].command(&["ACL", "SETUSER", "u", "resetkeys", "~others*"]).await;
}

async fn occupy(masters: &Masters, node: usize) {
    masters.0[node].command(&["SET", "n", "no lock"]).await;
}

async fn got(waiting: JoinHandle<Result<Guard, Error>>) {
    let answer = soon("it ends", waiting).await;
    let guard = answer.expect("no panic").expect("a majority is there");
    guard.unlock().await.expect("held");
}

/// Waits through several asks that find no majority, and must not end by that.
async fn waits_on(waiting: &mut JoinHandle<Result<Guard, Error>>) {
    let early = tokio::time::timeout(5 * RESPONSE, waiting).await;
    assert!(early.is_err(), "what is away may come back: {early:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_denies_and_one_that_is_away_are_waited_for() {
    for occupied in [false, true] {
        let (masters, ways, client) = set(3).await;
        if occupied {
            occupy(&masters, 0).await
        } else {
            deny(&masters, 0).await
        }
        ways.close(&[1], true);
        states_become(&client, &[Up, Down, Up]).await;
        let mut waiting = tokio::spawn(client.mutex("n").lock());
        waits_on(&mut waiting).await;
        ways.close(&[1], false);
        got(waiting).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_that_refuse_for_good_and_one_that_is_away_are_waited_for() {
    let (masters, ways, client) = set(5).await;
    deny(&masters, 0).await;
    occupy(&masters, 4).await;
    ways.close(&[2], true);
    states_become(&client, &[Up, Up, Down, Up, Up]).await;
    let mut waiting = tokio::spawn(client.mutex("n").lock());
    waits_on(&mut waiting).await;
    ways.close(&[2], false);
    got(waiting).await;
}

/// They are a majority, though for different causes: no wait can mend that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_refuses_for_good_is_not_waited_for() {
    let (masters, _ways, client) = set(3).await;
    deny(&masters, 0).await;
    occupy(&masters, 1).await;
    let began_at = Instant::now();
    let answer = tokio::time::timeout(LIMIT, client.mutex("n").lock()).await;
    let error = answer.expect("no wait").expect_err("no majority");
    let took = began_at.elapsed();
    let final_cause = matches!(error, Error::Denied { .. } | Error::WrongType { .. });
    assert!(final_cause, "{error:?}");
    assert!(took <= masters.widened(AT_ONCE), "{took:?}");
}
