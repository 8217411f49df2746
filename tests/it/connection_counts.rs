//! How many connections a client makes, as `docs/operating.md` says: each server has a limit for those of all clients.

use std::time::Duration;

use leasehold::Client;

use crate::{
    checks::{LIMIT, soon},
    support::{Cluster, Connects, Deployment, Server, eventually},
    synced::{replicated, synced},
};

/// The connections of clients to a server, without those of other servers and the one that asks.
async fn connections(server: &Server) -> usize {
    let clients = server.command(&["CLIENT", "LIST"]).await;
    let clients: String = redis::from_redis_value(clients).expect("a list of clients");
    let by_clients = |line: &&str| {
        // Replicas, masters and Sentinels are clients, too.
        !line.contains(" flags=S") && !line.contains(" flags=M") && !line.contains(" name=sentinel")
    };
    clients.lines().filter(by_clients).count() - 1
}

async fn has(server: &Server, count: usize, what: &str) {
    let mut found = 0;
    let as_many = async || {
        found = connections(server).await;
        found == count
    };
    eventually(LIMIT, what, as_many).await;
}

/// Waits for a lock once, so that the client subscribes to what it needs.
async fn wait_for_a_lock(client: &Client, name: &str) {
    let guard = soon("the lock", client.mutex(name).lock()).await.expect("free");
    let waiting = {
        let lock = client.mutex(name);
        tokio::spawn(async move { lock.lock().await })
    };
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
    guard.unlock().await.expect("held");
    let guard = soon("its turn", waiting).await.expect("it runs").expect("free");
    guard.unlock().await.expect("held");
}

#[tokio::test]
async fn one_server_has_two_connections_and_a_third_for_replicas() {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.expect("it accepts the client");
    wait_for_a_lock(&client, "n").await;
    has(&server, 2, "one for commands, one for messages").await;

    let (master, _replica) = replicated().await;
    let client = synced(&master).connect().await.expect("it accepts the client");
    wait_for_a_lock(&client, "n").await;
    has(&master, 3, "one more, to wait for replicas").await;
}

#[tokio::test]
async fn each_sentinel_has_two_connections() {
    let deployment = Deployment::start().await;
    let client = deployment.connect().await;
    wait_for_a_lock(&client, "n").await;
    has(&deployment.servers[0], 2, "the master").await;
    has(&deployment.servers[1], 0, "the replica").await;
    for sentinel in &deployment.sentinels {
        has(sentinel, 2, "one to ask, one for its messages").await;
    }
}

#[tokio::test]
async fn each_master_of_a_cluster_has_two_connections_and_a_third_for_sharded_channels() {
    let cluster = Cluster::start().await;
    let builder = Client::builder().cluster(cluster.urls());
    let client = builder.restart_quarantine(Duration::ZERO).connect().await;
    let client = client.expect("the cluster accepts the client");
    for shard in 0..2 {
        wait_for_a_lock(&client, &cluster.name_on(shard, "n")).await;
        has(cluster.master(shard), 2, "a master with locks").await;
        has(cluster.replica(shard), 0, "a replica").await;
    }
    // Another library's holder is listened to on the channel of the lock.
    let name = cluster.name_on(1, "foreign");
    cluster.master(1).command(&["HSET", &name, "java:1", "1"]).await;
    cluster.master(1).command(&["PEXPIRE", &name, "60000"]).await;
    let waiting = {
        let lock = client.mutex(&name);
        tokio::spawn(async move { lock.lock().await })
    };
    has(cluster.master(1), 3, "a master with a lock that another library has").await;
    waiting.abort();
}

#[tokio::test]
async fn connections_show_the_name_of_their_client() {
    let server = Server::start().await;
    let client = Client::builder().name("billing-7").nodes([server.url()]).connect().await;
    let client = client.expect("it accepts the client");
    wait_for_a_lock(&client, "n").await;
    let list = server.command(&["CLIENT", "LIST"]).await;
    let list: String = redis::from_redis_value(list).expect("a list of clients");
    let count = |part: &str| list.lines().filter(|line| line.contains(part)).count();
    assert_eq!(count(" name=leasehold:billing-7 "), 1, "that for commands: {list}");
    // Since Redis 7.2.
    if list.contains(" lib-name=") {
        assert_eq!(count(" lib-name=leasehold(billing-7) "), 2, "both: {list}");
    }
}
