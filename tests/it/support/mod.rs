//! What the tests run against: real servers, a network that fails on demand, and patience with a limit.

// Not every helper has a user in every build of the tests.
#![allow(dead_code)]

mod face;
mod leftovers;
mod ports;
mod proxy;
mod server;
mod spy;
mod stall;
mod twister;
mod worker;

use std::time::{Duration, Instant};

#[allow(unused_imports)]
pub(crate) use self::{
    face::{Face, Held},
    leftovers::{IDLE_TASKS, nothing_is_left, subscribers},
    ports::next as free_port,
    proxy::Proxy,
    server::Server,
    spy::{Run, Spy},
    stall::{Stalls, within},
    twister::Twister,
    worker::{Worker, shared_clock_us},
};

/// Waits until `condition` is true, asking every few milliseconds.
///
/// # Panics
///
/// Names `what` when it is still false after `limit`.
pub(crate) async fn eventually(
    limit: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> bool,
) {
    let started_at = Instant::now();
    while !condition().await {
        assert!(started_at.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// How often a condition is asked for.
const POLL: Duration = Duration::from_millis(2);
