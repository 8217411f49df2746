//! The renewals of many leases: together where that can be, and what becomes of one is nothing to the others.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{Client, Guard, LossReason};

use crate::checks::{LIMIT, nothing_left, setup, soon};
use crate::support::{Cluster, Run, Server, Spy, eventually};

const TTL: Duration = Duration::from_millis(900);

async fn held(client: &Client, number: usize) -> Vec<Guard> {
    held_for(client, number, TTL).await
}

async fn held_for(client: &Client, number: usize, ttl: Duration) -> Vec<Guard> {
    let lock = |number| client.mutex(format!("n{number}")).with_ttl(ttl);
    let locks: Vec<_> = (0..number).map(lock).collect();
    let guards = join_all(locks.iter().map(|lock| lock.lock())).await;
    guards.into_iter().map(|guard| guard.expect("free")).collect()
}

fn renewals(spy: &Spy) -> Vec<Run> {
    spy.runs().into_iter().filter(|run| run.script == "lock_renew").collect()
}

async fn given_back(guards: Vec<Guard>) {
    let ends = join_all(guards.into_iter().map(Guard::unlock)).await;
    ends.into_iter().for_each(|end| end.expect("held"));
}

/// The test's thread is the runtime's: while it sleeps, all of them become due.
#[tokio::test]
async fn leases_that_are_due_at_about_the_same_time_are_renewed_in_few_calls() {
    const LONG: Duration = Duration::from_secs(6);
    let (server, [client]) = setup().await;
    let spy = Spy::on(&server).await;
    let guards = held_for(&client, 300, LONG).await;
    std::thread::sleep(LONG / 2);
    eventually(LIMIT, "all were renewed", async || renewals(&spy).len() >= 300).await;
    let runs = renewals(&spy);
    let largest = runs.iter().map(|run| run.together).max().expect("a run");
    assert_eq!(largest, 128, "the largest call");
    assert!(guards.iter().all(Guard::is_held));
    given_back(guards).await;
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_one_is_no_loss_of_the_others() {
    let (server, [client]) = setup().await;
    let mut guards = held(&client, 20).await;
    server.command(&["DEL", "n7"]).await;
    server.command(&["SET", "n8", "x"]).await;
    let others = guards.split_off(9);
    for guard in guards.drain(7..) {
        assert_eq!(soon("it is lost", guard.lost()).await, LossReason::Gone);
    }
    tokio::time::sleep(2 * TTL).await;
    assert!(guards.iter().chain(&others).all(Guard::is_held));
    server.command(&["DEL", "n8"]).await;
    given_back(guards).await;
    given_back(others).await;
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgot_the_scripts_is_told_them_again() {
    let (server, [client]) = setup().await;
    let guards = held(&client, 20).await;
    for _ in 0..4 {
        server.command(&["SCRIPT", "FLUSH"]).await;
        tokio::time::sleep(TTL / 2).await;
    }
    assert!(guards.iter().all(Guard::is_held));
    given_back(guards).await;
    nothing_left(&server, &client).await;
}

/// The server refuses the whole call: each is renewed by itself then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_renew_one_goes_on_with_the_others() {
    let server = Server::start().await;
    server.command(&["ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all"]).await;
    let client = Client::connect(&server.url_as("u", "pw")).await.expect("connected");
    let mut guards = held(&client, 10).await;
    server.command(&["ACL", "SETUSER", "u", "resetkeys", "%R~n3", "~n[^3]", "~leasehold_*"]).await;
    let denied = guards.remove(3);
    assert_eq!(soon("it is lost", denied.lost()).await, LossReason::NotRenewed);
    tokio::time::sleep(TTL).await;
    assert!(guards.iter().all(Guard::is_held));
    drop(denied);
    given_back(guards).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_those_of_one_slot_go_together_and_those_of_others_by_themselves() {
    let cluster = Cluster::start().await;
    let builder = Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let client = builder.ttl(TTL).connect().await.expect("a cluster");
    let tag = cluster.name_on(0, "tag");
    let one_slot = (0..10).map(|number| format!("{{{tag}}}{number}"));
    let others = (0..10).map(|number| format!("other-{number}"));
    let locks: Vec<_> = one_slot.chain(others).map(|name| client.mutex(name)).collect();
    let spies = join_all((0..3).map(|shard| Spy::on(cluster.master(shard)))).await;
    let guards = join_all(locks.iter().map(|lock| lock.lock())).await;
    let guards: Vec<_> = guards.into_iter().map(|guard| guard.expect("free")).collect();
    let runs = || spies.iter().flat_map(renewals).collect::<Vec<_>>();
    eventually(LIMIT, "all were renewed twice", async || runs().len() >= 40).await;
    let runs = runs();
    let largest = runs.iter().map(|run| run.together).max().expect("a run");
    assert!((2..=10).contains(&largest), "the largest call had {largest}");
    let together = runs.iter().filter(|run| run.together > 1);
    let of_one_slot = |run: &Run| run.words[0].starts_with(&format!("{{{tag}}}"));
    assert!(together.clone().count() >= 2 && together.clone().all(of_one_slot));
    assert!(guards.iter().all(Guard::is_held));
    given_back(guards).await;
}
