//! Nodes that are added and removed, and addresses that clients cannot reach.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold::Client;
use redis::from_redis_value;

use super::{builder, is_idle};
use crate::checks::soon;
use crate::support::{Cluster, Proxy, eventually, slot_of};

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_lock_follows_its_slot_to_a_new_node_and_back_and_no_connection_stays() {
    let mut cluster = Cluster::start().await;
    // A release that was sent to another node than the acquire is repeated for a TTL.
    let client = builder(&cluster).ttl(Duration::from_secs(2)).connect().await;
    let client = client.expect("the cluster accepts the client");
    let name = cluster.name_on(0, "kept");
    let slot = slot_of(&name);
    let guard = soon("the lock", client.mutex(&name).lock()).await.expect("free");
    let added = cluster.add().await;
    let (old, new) = (cluster.master(0), &cluster.servers()[added]);
    cluster.move_slot(slot, old, new).await;
    eventually(LIMIT, "the new node is known", async || client.nodes().len() == 4).await;
    let other = client.mutex(format!("{{{name}}}:other"));
    let other = soon("another lock", other.lock()).await.expect("free at the new node");
    assert!(guard.is_held());
    cluster.move_slot(slot, new, old).await;
    eventually(LIMIT, "the old one has them", async || {
        client.mutex(&name).status().await.is_ok_and(|status| status.holder.is_some())
    })
    .await;
    soon("unlocking", other.unlock()).await.expect("held");
    soon("unlocking", guard.unlock()).await.expect("held");
    let made = client.stats().connections_made;
    cluster.forget(added).await;
    let clients = async || {
        let clients = new.command(&["CLIENT", "LIST", "TYPE", "NORMAL"]).await;
        from_redis_value::<String>(clients).expect("a list").lines().count()
    };
    eventually(LIMIT, "no connection to it is left", async || {
        client.nodes().len() == 3 && clients().await == 1
    })
    .await;
    assert!(client.stats().connections_made >= made, "those to the node that is gone count");
    is_idle(&client).await;
    behind_other_addresses(&cluster).await;
}

/// All but one of the nodes that the user has named accept connections and say nothing.
#[tokio::test]
async fn a_client_connects_if_any_of_the_nodes_that_it_was_given_answers() {
    let cluster = Cluster::start().await;
    let mut silent = Vec::new();
    for server in &cluster.servers()[..4] {
        let proxy = Proxy::start(server.port()).await;
        proxy.black_hole(true);
        silent.push(proxy);
    }
    for place in 0..=silent.len() {
        let mut seeds: Vec<String> = silent.iter().map(Proxy::url).collect();
        seeds.insert(place, cluster.master(1).url());
        let builder = Client::builder().cluster(seeds).restart_quarantine(Duration::ZERO);
        let client = soon("the client", builder.connect()).await;
        let client = client.unwrap_or_else(|error| panic!("at place {place}: {error}"));
        let lock = client.mutex(cluster.name_on(2, "n"));
        soon("the lock", lock.lock()).await.expect("free").unlock().await.expect("held");
    }
}

/// The cluster announces addresses that the client must translate.
async fn behind_other_addresses(cluster: &Cluster) {
    let mut ports = Vec::new();
    for server in &cluster.servers()[..6] {
        ports.push((server.port(), Proxy::start(server.port()).await));
    }
    let seed = format!("redis://127.0.0.1:{}", ports[0].1.port());
    let table: Vec<(u16, u16)> =
        ports.iter().map(|(inside, outside)| (*inside, outside.port())).collect();
    let client = Client::builder()
        .cluster([seed])
        .restart_quarantine(Duration::ZERO)
        .address_map(move |host, port| {
            let outside = table.iter().find(|(inside, _)| *inside == port);
            (host.to_owned(), outside.map_or(port, |(_, outside)| *outside))
        })
        .connect()
        .await
        .expect("the cluster accepts the client");
    for shard in 0..3 {
        let lock = client.mutex(cluster.name_on(shard, "mapped"));
        soon("the lock", lock.lock()).await.expect("free").unlock().await.expect("held");
    }
    let addresses: Vec<_> = client.nodes().iter().map(|node| node.address.to_string()).collect();
    for (inside, _) in &ports {
        let inside = format!("redis://127.0.0.1:{inside}");
        assert!(!addresses.contains(&inside), "{inside} is in {addresses:?}");
    }
}

/// The user's function may use the client, and may panic: the client goes on, and asks it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_translates_addresses_may_use_the_client_and_may_panic() {
    let cluster = Cluster::start().await;
    let used: Arc<OnceLock<Client>> = Arc::default();
    let (asked, panics) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(2)));
    let map = {
        let (used, asked, panics) = (used.clone(), asked.clone(), panics.clone());
        move |host: &str, port: u16| {
            if let Some(client) = used.get() {
                asked.fetch_add(client.nodes().len(), SeqCst);
                let left = panics.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
                assert!(left.is_err(), "as a user's code may do");
            }
            (host.to_owned(), port)
        }
    };
    let client = builder(&cluster).address_map(map).connect().await.expect("it is accepted");
    let tasks = client.stats().tasks;
    used.set(client.clone()).expect("set once");
    for shard in 0..2 {
        // The new master was in no map before.
        cluster.fail_over(shard).await;
        let lock = client.mutex(cluster.name_on(shard, "n"));
        let taken = async || match lock.lock_with_timeout(LIMIT).await {
            Ok(guard) => guard.unlock().await.is_ok(),
            Err(_) => false,
        };
        eventually(LIMIT, "the lock is to be had on the new master", taken).await;
    }
    assert_eq!(panics.load(SeqCst), 0, "it did panic");
    assert!(asked.load(SeqCst) > 0 && client.stats().tasks >= tasks, "a task has ended");
}

#[tokio::test]
async fn what_is_no_cluster_is_refused_at_once() {
    let server = crate::support::Server::start().await;
    let connecting = Client::builder().cluster([server.url()]).connect();
    let error = soon("an answer", connecting).await.expect_err("it is in no cluster").to_string();
    assert!(error.contains("no Redis Cluster") && error.contains("`nodes`"), "{error}");
    let nowhere = Client::builder()
        .cluster(["redis://127.0.0.1:1"])
        .connect_timeout(Duration::from_millis(300))
        .connect();
    let error = soon("an answer", nowhere).await.expect_err("nobody is there");
    assert!(matches!(error, leasehold::Error::Unavailable { .. }), "{error:?}");
}
