//! What several tests ask of a server and a client, above all what must be left at the end: nothing.

use std::time::Duration;

use leasehold::{Client, Error};

use crate::support::{Proxy, Server, eventually, in_time};

/// Long enough for anything that happens at all.
pub(crate) const LIMIT: Duration = Duration::from_secs(15);

/// Long enough for what is answered at once.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(500);

/// A server, and clients of it.
pub(crate) async fn setup<const N: usize>() -> (Server, [Client; N]) {
    let server = Server::start().await;
    let clients = futures_util::future::join_all((0..N).map(|_| connect(&server))).await;
    (server, clients.try_into().expect("as many as were made"))
}

/// A server, and a proxy for those who are to reach it over a network that fails.
pub(crate) async fn setup_with_proxy() -> (Server, Proxy) {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    (server, proxy)
}

/// The output of a future that ends within [`LIMIT`].
///
/// # Panics
///
/// If it does not; `what` says what was waited for.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    in_time(LIMIT, what, future).await
}

pub(crate) async fn connect(server: &Server) -> Client {
    Client::connect(&server.url()).await.expect("the server accepts the client")
}

/// The keys of the server, but for the fencing counters, which outlive their locks, and the mark.
pub(crate) async fn lock_keys(server: &Server) -> Vec<String> {
    let keys = server.command(&["KEYS", "*"]).await;
    let keys: Vec<String> = redis::from_redis_value(keys).expect("a list of names");
    keys.into_iter()
        .filter(|key| !key.starts_with("leasehold_token:"))
        .filter(|key| !["leasehold_mark", "leasehold_masters"].contains(&key.as_str()))
        .collect()
}

pub(crate) async fn exists(server: &Server, name: &str) -> bool {
    server.command(&["EXISTS", name]).await == redis::Value::Int(1)
}

/// For how many milliseconds a key lasts still: -1 without an end, and -2 if there is none.
pub(crate) async fn pttl(server: &Server, key: &str) -> i64 {
    match server.command(&["PTTL", key]).await {
        redis::Value::Int(left) => left,
        other => panic!("not a number: {other:?}"),
    }
}

/// Waits until neither the server nor the client has anything left of a lock.
pub(crate) async fn nothing_left(server: &Server, client: &Client) {
    eventually(LIMIT, "the server has no lock left", async || lock_keys(server).await.is_empty())
        .await;
    client_is_idle(client).await;
}

pub(crate) async fn client_is_idle(client: &Client) {
    client_is_idle_with(client, 1 + 2 * client.nodes().len()).await;
}

/// Waits until the client has nothing left of any lock, and at most so many tasks.
pub(crate) async fn client_is_idle_with(client: &Client, most_tasks: usize) {
    let idle = async || {
        let stats = client.stats();
        let busy = (stats.locks, stats.waiters, stats.subscriptions, stats.releases_pending);
        busy == (0, 0, 0, 0) && stats.tasks <= most_tasks && client.holds().is_empty()
    };
    let started_at = std::time::Instant::now();
    while !idle().await {
        assert!(started_at.elapsed() < LIMIT, "the client is still busy: {:?}", client.stats());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until only the connection that asks is left.
pub(crate) async fn no_connection_left(server: &Server) {
    eventually(LIMIT, "no connection is left at the server", async || {
        let clients = server.command(&["CLIENT", "LIST"]).await;
        let clients: String = redis::from_redis_value(clients).expect("a list of clients");
        clients.lines().count() == 1
    })
    .await;
}

/// The cause of an error, and its cause, and so on: all that a log would show of it.
pub(crate) fn told(error: &Error) -> String {
    let mut told = format!("{error} {error:?}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        told.push_str(&format!(" / {error} {error:?}"));
        cause = error.source();
    }
    told
}
