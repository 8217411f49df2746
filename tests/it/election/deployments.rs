//! Over several masters, on a cluster, and behind Sentinels.

use std::time::Duration;

use leasehold::{Client, ElectionState};

use super::{LIMIT, leader, leading};
use crate::checks::{client_is_idle_with, soon};
use crate::support::{Cluster, Connects, Deployment, Server, eventually};

const TTL: Duration = Duration::from_millis(900);

/// One leads, another one waits, and a third one observes; then the first resigns.
async fn pass_on(clients: &[Client; 3], name: &str) {
    let [one, two, three] = clients.each_ref().map(|client| client.election(name));
    let first = leading(&one.with_value("one")).await;
    let mut observer = three.observe();
    let seen = soon("it is shown", observer.changed()).await.expect("an answer");
    assert_eq!(seen.map(|seen| seen.term), Some(first.term()));
    first.proclaim("more").await.expect("it leads");
    let seen = soon("it is shown", observer.changed()).await.expect("an answer");
    assert_eq!(&*seen.expect("it leads").value, "more");
    let waits = tokio::spawn(two.with_value("two").campaign());
    eventually(LIMIT, "it waits", async || clients[1].stats().waiters == 1).await;
    let term = first.term();
    first.resign().await.expect("held");
    let second = soon("the next leads", waits).await.expect("no panic").expect("its turn");
    assert!(second.term() > term);
    loop {
        let seen = soon("it is shown", observer.changed()).await.expect("an answer");
        if let Some(seen) = seen {
            assert_eq!((seen.term, &*seen.value), (second.term(), "two"));
            break;
        }
    }
    assert_eq!(leader(&one).await.map(|leader| leader.term), Some(second.term()));
    second.resign().await.expect("held");
    eventually(LIMIT, "nobody leads", async || leader(&one).await.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_three_masters_a_majority_decides_who_leads() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let connect = async || {
        let builder = Client::builder().nodes(servers.iter().map(Server::url));
        builder.restart_quarantine(Duration::ZERO).connect().await.expect("connected")
    };
    let clients = [connect().await, connect().await, connect().await];
    pass_on(&clients, "scheduler").await;
    servers[1].kill();
    pass_on(&clients, "scheduler").await;
    // What one server alone says is not believed.
    let leadership = leading(&clients[0].election("other")).await;
    servers[2]
        .command(&["SET", "leasehold_leader:{other}", "a:1 99999999999999 1 x", "PX", "600000"])
        .await;
    let known = leader(&clients[1].election("other")).await.expect("it leads");
    assert_eq!((known.term, known.holder), (leadership.term(), leadership.holder()));
    leadership.resign().await.expect("held");
    // One server is away, and the others disagree.
    servers[0].command(&["HSET", "split", "a:1", "1"]).await;
    let state = soon("an answer", clients[1].election("split").state()).await;
    assert_eq!(state.expect("an answer"), ElectionState::Undecided);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_each_election_is_in_its_slot() {
    let cluster = Cluster::start().await;
    let connect = async || {
        let builder = Client::builder().cluster(cluster.urls());
        builder.restart_quarantine(Duration::ZERO).ttl(TTL).connect().await.expect("a cluster")
    };
    let clients = [connect().await, connect().await, connect().await];
    for shard in 0..3 {
        pass_on(&clients, &cluster.name_on(shard, "scheduler")).await;
    }
    pass_on(&clients, "{braces}:scheduler").await;
    for client in &clients {
        client_is_idle_with(client, 2 + 3 * client.nodes().len()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_sentinels_a_leader_outlives_its_master() {
    let deployment = Deployment::start().await;
    let clients =
        [deployment.connect().await, deployment.connect().await, deployment.connect().await];
    pass_on(&clients, "scheduler").await;
    let [leads, _, observes] = &clients;
    let leadership = leading(&leads.election("scheduler").with_value("one")).await;
    let mut observer = observes.election("scheduler").observe();
    assert!(soon("it is shown", observer.changed()).await.expect("an answer").is_some());
    deployment.is_synced().await;
    deployment.fail_over().await;
    let next = deployment.servers[1].url();
    for client in [leads, observes] {
        let moved = async || client.nodes()[0].address.as_ref() == next && client.is_ready();
        eventually(LIMIT, "the client is at the new master", moved).await;
    }
    assert!(leadership.is_held(), "it was replicated");
    leadership.proclaim("two").await.expect("it leads");
    loop {
        let seen = soon("it is shown", observer.changed()).await.expect("an answer");
        if let Some(seen) = seen {
            assert_eq!(seen.term, leadership.term());
            if &*seen.value == "two" {
                break;
            }
        }
    }
    leadership.resign().await.expect("held");
}
