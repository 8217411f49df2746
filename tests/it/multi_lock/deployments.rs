//! Over several masters, on a cluster with names in several slots, and behind Sentinels.

use std::time::Duration;

use leasehold::{Client, Error, MultiLock};

use super::{LIMIT, MS, are_held, names, taken};
use crate::checks::{client_is_idle, client_is_idle_with, exists, lock_keys, soon};
use crate::support::{Cluster, Connects, Deployment, Server, eventually};

const TTL: Duration = Duration::from_millis(1500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_three_masters_all_are_held_or_none() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let connect = async || {
        let builder = Client::builder().nodes(servers.iter().map(Server::url)).ttl(TTL);
        builder.restart_quarantine(Duration::ZERO).connect().await.expect("connected")
    };
    let [client, other] = [connect().await, connect().await];
    let locks = client.multi_lock(["c", "a", "b"]);
    let guard = taken(&locks).await;
    assert_eq!(names(&guard), ["c", "a", "b"]);
    assert!(other.multi_lock(["d", "b"]).try_lock().await.expect("an answer").is_none());
    let waits = tokio::spawn(other.multi_lock(["d", "b", "a"]).lock());
    eventually(LIMIT, "it waits", async || other.stats().waiters == 1).await;
    // Where the other asked first it was refused: the next renewal puts the lease there, too.
    for (server, name) in
        servers.iter().flat_map(|server| ["a", "b", "c"].map(|name| (server, name)))
    {
        eventually(LIMIT, "every master has it", async || exists(server, name).await).await;
    }
    // A minority that is gone changes nothing.
    servers[2].kill();
    let lost = tokio::time::timeout(2 * TTL, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    guard.unlock().await.expect("held by a majority");
    let guard = soon("its turn comes", waits).await.expect("no panic").expect("free");
    assert!(client.mutex("a").force_unlock().await.is_ok());
    let error = soon("it is told", guard.lost()).await;
    assert!(matches!(&error, Error::Lost { lock, .. } if &**lock == "a"), "{error:?}");
    drop(guard);
    taken(&locks).await.unlock().await.expect("held");
    let fair = MultiLock::of([client.mutex("a"), client.fair_mutex("b")]);
    let error = fair.lock().await.expect_err("refused");
    assert!(matches!(error, Error::SingleServerOnly { .. }), "{error:?}");
    for server in &servers[..2] {
        eventually(LIMIT, "nothing is left", async || lock_keys(server).await.is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowds_over_three_masters_have_their_turns() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let mut tasks = Vec::new();
    for names in [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]] {
        let builder = Client::builder().nodes(servers.iter().map(Server::url));
        let client = builder.restart_quarantine(Duration::ZERO).connect().await;
        let client = client.expect("connected");
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let guard = client.multi_lock(names).lock().await.expect("its turn comes");
                tokio::time::sleep(2 * MS).await;
                guard.unlock().await.expect("held");
            }
            client_is_idle(&client).await;
        }));
    }
    for task in tasks {
        soon("all have their turns", task).await.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_the_names_may_be_in_different_slots() {
    let cluster = Cluster::start().await;
    let connect = async || {
        let builder = Client::builder().cluster(cluster.urls());
        builder.restart_quarantine(Duration::ZERO).ttl(TTL).connect().await.expect("a cluster")
    };
    let [client, other] = [connect().await, connect().await];
    let on_shards = [2, 0, 1].map(|shard| cluster.name_on(shard, "lock"));
    let locks = client.multi_lock(&on_shards);
    let guard = taken(&locks).await;
    assert_eq!(names(&guard), on_shards);
    for name in &on_shards {
        let both = other.multi_lock([name.as_str(), "another"]);
        assert!(both.try_lock().await.expect("an answer").is_none(), "{name}");
    }
    are_held(&other, &["another"], false).await;
    let waits = tokio::spawn(other.multi_lock(&on_shards).lock());
    eventually(LIMIT, "it waits", async || other.stats().waiters == 1).await;
    guard.unlock().await.expect("held");
    let guard = soon("its turn comes", waits).await.expect("no panic").expect("free");
    assert!(client.mutex(&on_shards[1]).force_unlock().await.expect("an answer"));
    let error = soon("it is told", guard.lost()).await;
    assert!(matches!(&error, Error::Lost { lock, .. } if **lock == *on_shards[1]), "{error:?}");
    drop(guard);
    taken(&locks).await.unlock().await.expect("held");
    for client in [&client, &other] {
        client_is_idle_with(client, 2 + 3 * client.nodes().len()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_sentinels_all_are_kept_when_the_master_is_replaced() {
    let deployment = Deployment::start().await;
    let [client, other] = [deployment.connect().await, deployment.connect().await];
    let guard = taken(&client.multi_lock(["b", "a"])).await;
    let waits = tokio::spawn(other.multi_lock(["a", "b"]).lock());
    eventually(LIMIT, "it waits", async || other.stats().waiters == 1).await;
    deployment.is_synced().await;
    deployment.fail_over().await;
    let next = deployment.servers[1].url();
    let moved = async || client.nodes()[0].address.as_ref() == next && client.is_ready();
    eventually(LIMIT, "the client is at the new master", moved).await;
    assert!(guard.is_held() && !waits.is_finished());
    guard.unlock().await.expect("held");
    let guard = soon("its turn comes", waits).await.expect("no panic").expect("free");
    guard.unlock().await.expect("held");
}
