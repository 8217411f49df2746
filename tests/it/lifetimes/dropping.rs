//! Everything is dropped.

use std::time::Duration;

use leasehold::Client;

use super::{MS, gone_in_the_end, runtime};
use crate::{
    checks::{LIMIT, connect, lock_keys, no_connection_left},
    support::{MASTER, Pretender, Server, eventually, free_port},
};

#[test]
fn all_tasks_and_connections_end_after_everything_is_dropped() {
    let (tasks, servers) = (runtime(), runtime());
    let (server, client) = servers.block_on(async {
        let server = Server::start().await;
        let builder = Client::builder().nodes([server.url()]).runtime(tasks.handle().clone());
        let client = builder.connect().await.expect("connected");
        (server, client)
    });
    servers.block_on(async {
        let other = connect(&server).await;
        let held = other.mutex("theirs").lock().await.expect("free");
        // A holder, a nested one, waiters of both kinds and a subscription.
        let lock = client.mutex("ours");
        let guard = lock.lock().await.expect("free");
        let inner = guard.reenter().expect("held");
        let waits = [tokio::spawn(lock.lock()), tokio::spawn(client.mutex("theirs").lock())];
        eventually(LIMIT, "all wait", async || {
            let status = other.mutex("theirs").status().await.expect("an answer");
            client.stats().waiters == 2 && status.waiting_clients == 1
        })
        .await;
        drop((client, lock, guard));
        for wait in waits {
            wait.abort();
            assert!(wait.await.expect_err("aborted").is_cancelled());
        }
        assert!(inner.is_held());
        drop(inner);
        eventually(LIMIT, "all tasks end", async || tasks.metrics().num_alive_tasks() == 0).await;
        assert_eq!(lock_keys(&server).await, ["theirs"]);
        held.unlock().await.expect("held");
        drop(other);
        no_connection_left(&server).await;
        assert!(lock_keys(&server).await.is_empty());
    });
}

#[test]
fn all_tasks_end_after_everything_is_dropped_though_the_server_is_gone() {
    let (tasks, servers) = (runtime(), runtime());
    servers.block_on(async {
        let server = Server::start().await;
        let builder = Client::builder().nodes([server.url()]).runtime(tasks.handle().clone());
        let client = builder.response_timeout(100 * MS).connect().await.expect("connected");
        let guard = client.mutex("n").with_ttl(500 * MS).lock().await.expect("free");
        let waiter = tokio::spawn(client.mutex("n").lock());
        eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
        server.kill();
        waiter.abort();
        drop((guard, client));
        let ended = async || tasks.metrics().num_alive_tasks() == 0;
        eventually(LIMIT, "all tasks end, once the lease is over in any case", ended).await;
    });
}

#[test]
fn all_tasks_end_after_everything_is_dropped_though_the_server_refuses_releases() {
    let (tasks, servers) = (runtime(), runtime());
    servers.block_on(async {
        let server = Server::start().await;
        let url = {
            server.command(&["ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all"]).await;
            server.url_as("u", "pw")
        };
        let builder = Client::builder().nodes([url]).runtime(tasks.handle().clone());
        let client = builder.connect().await.expect("connected");
        let guard = client.mutex("n").with_ttl(500 * MS).lock().await.expect("free");
        server.command(&["ACL", "SETUSER", "u", "-hdel"]).await;
        drop((guard, client));
        let ended = async || tasks.metrics().num_alive_tasks() == 0;
        eventually(LIMIT, "all tasks end", ended).await;
        gone_in_the_end(&server, "n").await;
    });
}

/// Whether the client has met the master that they name, or could never connect.
#[test]
fn the_tasks_that_ask_sentinels_end_with_their_client() {
    let (tasks, servers) = (runtime(), runtime());
    servers.block_on(async {
        let server = Server::start().await;
        for (port, connects) in [(server.port(), true), (free_port(), false)] {
            let sentinel = Pretender::start(port, None).await;
            let builder = Client::builder().sentinel(MASTER, [sentinel.url()]);
            let builder = builder.connect_timeout(if connects { LIMIT } else { 2000 * MS });
            let builder = builder.restart_quarantine(Duration::ZERO);
            let client = builder.runtime(tasks.handle().clone()).connect().await;
            assert_eq!(client.is_ok(), connects, "{client:?}");
            assert!(sentinel.questions() > 0);
            drop(client);
            let ended = async || tasks.metrics().num_alive_tasks() == 0;
            eventually(LIMIT, "all tasks end", ended).await;
        }
    });
}

#[tokio::test]
async fn a_connect_that_is_dropped_half_way_leaves_no_connection() {
    let server = Server::start().await;
    server.pause();
    for _ in 0..3 {
        let url = server.url();
        assert!(tokio::time::timeout(50 * MS, Client::connect(&url)).await.is_err());
    }
    server.resume();
    no_connection_left(&server).await;
}

#[test]
fn a_client_whose_runtime_is_gone_drains_in_its_time_after_a_shutdown() {
    let (servers, first) = (runtime(), runtime());
    let server = servers.block_on(Server::start());
    let (client, guard) = first.block_on(async {
        let client = connect(&server).await;
        let guard = client.mutex("n").with_ttl(300 * MS).lock().await.expect("free");
        (client, guard)
    });
    drop(first);
    servers.block_on(async {
        // It marks the hold lost; the guard is still there.
        client.shutdown().await;
        // It spins inside of one poll: a timeout around it would never be asked.
        let drain = tokio::time::timeout(LIMIT, client.drain(Duration::from_secs(1))).await;
        assert!(drain.is_ok(), "drain hangs");
    });
    drop(guard);
}
