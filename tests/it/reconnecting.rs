//! What it costs to connect again, and again, and what is repeated on a new connection.

use std::time::{Duration, Instant};

use leasehold::{Client, ClientBuilder, Guard};

use crate::{
    checks::{LIMIT, client_is_idle, exists},
    support::{Server, Spy, eventually},
};

const MS: Duration = Duration::from_millis(1);

/// A user who may do all but end connections.
async fn who_may_not_kill(server: &Server) -> ClientBuilder {
    let rules = ["ACL", "SETUSER", "u", "reset", "on", ">pw", "~*", "&*", "+@all", "-@admin"];
    server.command(&rules).await;
    Client::builder().nodes([server.url_as("u", "pw")])
}

/// Ends the connections of that user, and waits until the client has another.
async fn break_connection(server: &Server, client: &Client) {
    let made = client.stats().connections_made;
    server.command(&["CLIENT", "KILL", "USER", "u"]).await;
    eventually(LIMIT, "it connects again", async || {
        client.stats().connections_made > made && client.mutex("?").is_locked().await.is_ok()
    })
    .await;
}

/// How often a user was refused a `CLIENT` command.
async fn refusals(server: &Server) -> u32 {
    let stats = server.command(&["INFO", "commandstats"]).await;
    let stats: String = redis::from_redis_value(stats).expect("a text");
    let counts = stats.lines().filter_map(|line| {
        let (_, rest) = line.strip_prefix("cmdstat_client")?.split_once("rejected_calls=")?;
        rest.split(',').next()?.parse::<u32>().ok()
    });
    counts.sum()
}

#[tokio::test]
async fn each_connection_asks_once_to_end_its_predecessor_though_it_never_may() {
    const BREAKS: u32 = 8;
    let server = Server::start().await;
    let client = who_may_not_kill(&server).await.connect().await.expect("connected");
    let before = refusals(&server).await;
    for _ in 0..BREAKS {
        break_connection(&server, &client).await;
    }
    assert_eq!(refusals(&server).await - before, BREAKS);
}

/// What an older connection was sent may come late in any lease's first TTL on the new one, and not much after.
#[tokio::test]
async fn a_release_long_after_a_broken_connection_is_not_repeated() {
    let server = Server::start().await;
    let client = who_may_not_kill(&server).await.connect().await.expect("connected");
    let guard = client.mutex("n").with_ttl(1500 * MS).lock().await.expect("free");
    break_connection(&server, &client).await;
    let reconnected_at = Instant::now();
    eventually(LIMIT, "a TTL is over", async || reconnected_at.elapsed() > 1600 * MS).await;
    let spy = Spy::on(&server).await;
    guard.unlock().await.expect("held");
    eventually(LIMIT, "nothing is owed", async || client.stats().owed_releases == 0).await;
    let releases = spy.count("lock_release");
    assert!(releases <= 2, "{releases} releases");
}

#[tokio::test]
async fn answered_releases_are_repeated_ever_more_rarely() {
    const LOCKS: usize = 20;
    let server = Server::start().await;
    let client = who_may_not_kill(&server).await.connect().await.expect("connected");
    let mut guards: Vec<Guard> = Vec::new();
    for n in 0..LOCKS {
        guards.push(client.mutex(format!("n{n}")).lock().await.expect("free"));
    }
    break_connection(&server, &client).await;
    let spy = Spy::on(&server).await;
    let began_at = Instant::now();
    drop(guards);
    eventually(LIMIT, "four seconds are over", async || began_at.elapsed() > 4000 * MS).await;
    let releases = spy.count("lock_release");
    assert!((2 * LOCKS..=12 * LOCKS).contains(&releases), "{releases} releases");
    assert_eq!(client.stats().owed_releases, LOCKS, "they are repeated for a TTL");
}

/// The server is asked for a lock that it does not keep: as a node of a cluster does, without the script being run.
#[tokio::test]
async fn a_release_that_is_refused_for_ever_is_owed_for_a_ttl_at_most() {
    let server = Server::with(&["--cluster-enabled", "yes"]).await;
    server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    eventually(LIMIT, "the cluster is ready", async || {
        server.try_command(&["SET", "x", "1"]).await.is_ok()
    })
    .await;
    let client = Client::connect(&server.url()).await.expect("connected");
    let guard = client.mutex("n").with_ttl(900 * MS).lock().await.expect("free");
    server.command(&["CLUSTER", "DELSLOTSRANGE", "0", "16383"]).await;
    drop(guard);
    eventually(LIMIT, "nothing is owed", async || client.stats().owed_releases == 0).await;
    client_is_idle(&client).await;
    server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    eventually(LIMIT, "the lock has ended", async || {
        server.try_command(&["SET", "x", "1"]).await.is_ok() && !exists(&server, "n").await
    })
    .await;
}
