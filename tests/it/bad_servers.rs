//! Servers that refuse, die, hang, forget or are full: the documented error in its time, and nothing left behind.

mod away;
mod connections;
mod forgetting;
mod hanging;
mod refusing;
mod rights;

use std::time::Duration;

use leasehold::{Client, ClientBuilder, Error, Mutex};

use crate::{
    checks::{LIMIT, told},
    support::{Server, eventually},
};

const MS: Duration = Duration::from_millis(1);

fn builder(server: &Server) -> ClientBuilder {
    Client::builder().nodes([server.url()])
}

/// A client that does not wait long for a server that is away.
async fn impatient(server: &Server) -> Client {
    let builder = builder(server).response_timeout(200 * MS).unavailable_after(400 * MS);
    builder.connect().await.expect("the server accepts the client")
}

/// Makes a user with these rules, and returns the URL with which to be that user.
async fn user(server: &Server, name: &str, rules: &[&str]) -> String {
    let mut command = vec!["ACL", "SETUSER", name, "reset", "on", ">pw"];
    command.extend(rules);
    server.command(&command).await;
    server.url_as(name, "pw")
}

async fn set(server: &Server, setting: &str, value: &str) {
    server.command(&["CONFIG", "SET", setting, value]).await;
}

#[track_caller]
fn unavailable<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Err(error @ Error::Unavailable { .. }) => told(&error),
        other => panic!("the server is not there: {other:?}"),
    }
}

/// Waits until a client of the server listens for releases of the lock.
async fn somebody_waits(lock: &Mutex) {
    eventually(LIMIT, "somebody waits", async || {
        lock.status().await.is_ok_and(|status| status.waiting_clients > 0)
    })
    .await;
}
