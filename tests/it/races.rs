//! Races between an answer, a loss, a shutdown, a broken connection and those who wait: one test for each that
//! was once lost.

mod connections;
mod deadlines;
mod handoffs;
mod mixed;
mod renewals;
mod shutdown;
mod waiting;

use std::{
    future::Future,
    task::{Context, Waker},
    time::Duration,
};

use leasehold::{Client, ClientBuilder, Error, Guard};
use tokio::runtime::{Builder, Runtime};

use crate::{
    checks::{LIMIT, client_is_idle, connect},
    support::{Proxy, Server, eventually, waiting},
};

const MS: Duration = Duration::from_millis(1);
const CHANNEL: &str = "redisson_lock__channel:{n}";

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

fn builder(url: String) -> ClientBuilder {
    Client::builder().nodes([url])
}

async fn connect_through(proxy: &Proxy) -> Client {
    let client = Client::connect(&proxy.url()).await.expect("the proxy passes on");
    know_scripts(&client).await;
    client
}

/// Has the server learn the scripts, so that what is sent later runs at its first sending.
async fn know_scripts(client: &Client) {
    let guard = client.mutex("before").lock().await.expect("free");
    guard.extend(LIMIT).await.expect("held");
    guard.unlock().await.expect("held");
    client_is_idle(client).await;
}

/// A server, and a client of it whose tasks have a runtime of their own.
fn on_its_own_runtime(tests: &Runtime, tasks: &Runtime) -> (Server, Client) {
    tests.block_on(async {
        let server = Server::start().await;
        let builder = builder(server.url()).runtime(tasks.handle().clone());
        let client = builder.connect().await.expect("connected");
        (server, client)
    })
}

/// Polls a future once, and leaves it at that.
fn poll_once(future: std::pin::Pin<&mut impl Future>) {
    let mut nobody = Context::from_waker(Waker::noop());
    assert!(future.poll(&mut nobody).is_pending(), "it waits for an answer");
}

async fn queued(server: &Server) {
    let what = "it waits in the queue";
    eventually(LIMIT, what, async || waiting(server, "n").await == 1).await;
}

type Waiting = tokio::task::JoinHandle<Result<Guard, Error>>;

/// A hold, and one who waits behind it: both have waited for another client, so that the lease may pass on.
async fn with_one_behind(
    server: &Server,
    client: &Client,
    first: &leasehold::Mutex,
    next: &leasehold::Mutex,
) -> (Guard, Waiting) {
    let theirs = connect(server).await.mutex(first.name()).lock().await.expect("free");
    let before = client.stats().waiters;
    let first = tokio::spawn(first.lock());
    eventually(LIMIT, "one waits", async || client.stats().waiters == before + 1).await;
    let next = tokio::spawn(next.lock());
    eventually(LIMIT, "both wait", async || client.stats().waiters == before + 2).await;
    theirs.unlock().await.expect("held");
    (first.await.expect("no panic").expect("free"), next)
}
