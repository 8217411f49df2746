//! Connecting to several masters, some of which are away, or the same.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use leasehold::{Client, Error, NodeState};

use super::deployment::{MS, Masters, all_up, connected, failures, names_just, states_become};
use crate::{
    checks::{LIMIT, no_connection_left},
    support::{Proxy, Server, eventually},
};

use NodeState::{Down, SameServer, Up};

#[tokio::test]
async fn a_client_connects_without_a_minority_and_to_the_rest_later() {
    let masters = Masters::start(5).await;
    let ways = masters.ways().await;
    masters.0[1].kill();
    ways.0[3].black_hole(true);
    let began_at = Instant::now();
    let client = ways.builder().connect().await.expect("three of five are there");
    assert!(began_at.elapsed() < 2000 * MS, "it does not wait for the others");
    let tried = async || client.nodes()[1].last_error.is_some();
    eventually(LIMIT, "the node was tried", tried).await;
    states_become(&client, &[Up, Down, Up, Down, Up]).await;
    let told = client.nodes()[1].last_error.clone().expect("why it is down");
    assert!(!told.is_empty() && client.nodes()[0].last_error.is_none(), "{told}");
    client.mutex("n").lock().await.expect("a majority").unlock().await.expect("held");

    masters.0[1].restart().await;
    ways.0[3].black_hole(false);
    all_up(&client).await;
    let guard = client.mutex("n").lock().await.expect("free");
    masters.are_held("n", &[0, 1, 2, 3, 4]).await;
    guard.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
}

#[tokio::test]
async fn without_a_majority_connecting_fails_after_its_time_where_nobody_listens() {
    let masters = Masters::start(5).await;
    for server in &masters.0[2..] {
        server.kill();
    }
    let began_at = Instant::now();
    let answer = masters.builder().connect_timeout(400 * MS).connect().await;
    assert!(began_at.elapsed() < 1000 * MS, "{:?}", began_at.elapsed());
    for (node, said) in failures(answer.as_ref().map_err(Clone::clone)) {
        assert!(said.contains(&node) && said.contains("refused"), "{said}");
    }
    names_just(answer, &masters.urls()[2..]);
    for server in &masters.0[..2] {
        no_connection_left(server).await;
    }
}

/// One refuses, one is stopped, one asks for a password: each is named with its own cause.
#[tokio::test]
async fn without_a_majority_connecting_fails_within_its_time_with_each_cause() {
    let mut masters = Masters::start(4).await;
    masters.0.push(Server::with(&["--requirepass", "secret"]).await);
    let mut urls = masters.urls();
    urls[4] = format!("redis://127.0.0.1:{}", masters.0[4].port());
    masters.0[2].kill();
    masters.0[3].pause();
    let limit = 600 * MS;
    let began_at = Instant::now();
    let builder = Client::builder().nodes(urls.clone()).connect_timeout(limit);
    let answer = builder.connect().await;
    let took = began_at.elapsed();
    assert!(took <= masters.widened(limit + 50 * MS), "{took:?}");
    let causes = failures(answer);
    let cause = |index: usize| {
        let named = causes.iter().find(|(node, _)| *node == urls[index]);
        &named.unwrap_or_else(|| panic!("node {index} is not in {causes:?}")).1
    };
    assert_eq!(causes.len(), 3, "{causes:?}");
    assert!(cause(2).contains("refused"), "{causes:?}");
    assert!(cause(3).contains("no answer within"), "{causes:?}");
    assert!(cause(4).contains("denied") && cause(4).contains("NOAUTH"), "{causes:?}");
}

/// At each of its polls, and at many moments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_connect_leaves_nothing_behind() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    ways.0.iter().for_each(|way| way.delay_replies(3 * MS));
    // This one never gets further than its first step.
    ways.0[2].hold_replies();
    for polls in 0..4 {
        let mut connecting = pin!(ways.builder().connect());
        let mut nobody = Context::from_waker(Waker::noop());
        for _ in 0..polls {
            assert!(connecting.as_mut().poll(&mut nobody).is_pending());
        }
    }
    let (mut connected, mut step) = (0, 0);
    // On a busy machine, none of the first thirty may have time enough.
    while step < 30 || connected == 0 {
        assert!(step < 500, "the last ones were given time enough");
        let connecting = ways.builder().connect();
        connected += u32::from(tokio::time::timeout(step * 4 * MS, connecting).await.is_ok());
        step += 1;
    }
    ways.0[2].release_replies();
    for (way, server) in ways.0.iter().zip(&masters.0) {
        eventually(LIMIT, "the proxy has no connection left", async || way.connections() == 0)
            .await;
        no_connection_left(server).await;
    }
}

#[tokio::test]
async fn no_node_two_nodes_or_one_node_twice_is_no_quorum() {
    let invalid = async |urls: &[&str]| {
        let answer = Client::builder().nodes(urls.iter().copied()).connect().await;
        match answer {
            Err(Error::InvalidConfig { problem, .. }) => problem.to_string(),
            other => panic!("{urls:?}: {other:?}"),
        }
    };
    let (a, b) = ("redis://127.0.0.1:1", "redis://127.0.0.1:2");
    assert!(invalid(&[]).await.contains("no server"));
    let two = invalid(&[a, b]).await;
    assert!(two.contains("two servers") && two.contains("majority"), "{two}");
    let twice = invalid(&[a, b, a]).await;
    assert!(twice.contains(a) && twice.contains("twice"), "{twice}");
    // Another database or user of one server is no other server.
    let twice = invalid(&[a, b, "redis://user:canary@127.0.0.1:1/3"]).await;
    assert!(twice.contains(a) && !twice.contains("canary"), "{twice}");
}

/// Another address of a server that is a node already is no second vote.
#[tokio::test]
async fn two_addresses_of_one_server_are_one_vote() {
    let masters = Masters::start(2).await;
    let again = Proxy::start(masters.0[0].port()).await;
    let mut urls = masters.urls();
    urls.push(again.url());
    let builder = || Client::builder().nodes(urls.clone()).restart_quarantine(Duration::ZERO);
    let client = builder().response_timeout(200 * MS).connect().await.expect("two servers");
    let settled = async || {
        let states: Vec<_> = client.nodes().iter().map(|node| node.state).collect();
        [[SameServer, Up, Up], [Up, Up, SameServer]].iter().any(|wanted| states == wanted)
    };
    eventually(LIMIT, "one of the two is the same server", settled).await;
    let same = client.nodes().into_iter().find(|node| node.state == SameServer);
    let told = same.expect("found just now").last_error.expect("why");
    assert!(told.contains("same server"), "{told}");

    client.mutex("n").lock().await.expect("two of three").unlock().await.expect("held");
    masters.0[1].kill();
    let (node, _) = &failures(client.mutex("n").try_lock().await)[0];
    assert!(urls.contains(node));
}

/// With no second server at all there is no majority to connect to.
#[tokio::test]
async fn three_addresses_of_one_server_are_no_majority() {
    let server = Server::start().await;
    let (one, two) = (Proxy::start(server.port()).await, Proxy::start(server.port()).await);
    let urls = [server.url(), one.url(), two.url()];
    let answer = Client::builder().nodes(urls).connect().await;
    let said = failures(answer);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said.iter().all(|(_, said)| said.contains("same server")), "{said:?}");
    no_connection_left(&server).await;
}

/// An address that leads to another node's server later, as after a mistake in a name service.
#[tokio::test]
async fn an_address_that_turns_to_another_nodes_server_loses_its_vote() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder().response_timeout(200 * MS)).await;
    let lock = client.mutex("n");
    lock.lock().await.expect("free").unlock().await.expect("held");

    ways.0[2].lead_to(masters.0[0].port());
    states_become(&client, &[Up, Up, SameServer]).await;
    lock.lock().await.expect("two of three").unlock().await.expect("held");
    ways.close(&[1], true);
    states_become(&client, &[Up, Down, SameServer]).await;
    for _ in 0..3 {
        names_just(lock.try_lock().await, &ways.urls()[1..]);
    }
    // Not even the other way round: it counts as the node that it was first.
    ways.0[2].cut();
    names_just(lock.try_lock().await, &ways.urls()[1..]);

    ways.0[2].lead_to(masters.0[2].port());
    states_become(&client, &[Up, Down, Up]).await;
    lock.lock().await.expect("two of three").unlock().await.expect("held");
    ways.close(&[1], false);
    all_up(&client).await;
    masters.nothing_left(&[&client]).await;
}
