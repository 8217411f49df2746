//! What the tests run against: real servers, a network that fails on demand, and patience with a limit.

// Not every helper has a user in every build of the tests.
#![allow(dead_code)]

mod cluster;
mod face;
mod failover;
mod late;
mod leftovers;
pub(crate) mod lua;
mod ports;
mod proxy;
mod resp;
mod server;
mod signals;
mod spy;
mod twister;
mod watch;
mod worker;

use std::time::{Duration, Instant};

#[allow(unused_imports)]
pub(crate) use self::{
    cluster::{Cluster, slot_of},
    face::{Face, Held},
    failover::{DOWN_AFTER_MS, Deployment, MASTER, Pretender},
    late::LateNetwork,
    leftovers::{IDLE_TASKS, nothing_is_left, subscribers, waiting},
    ports::next as free_port,
    proxy::Proxy,
    server::Server,
    spy::{Run, Spy},
    twister::{Twisted, Twister},
    watch::Watch,
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

/// What a future comes to, which must be there within `limit`.
///
/// # Panics
///
/// Names `what` when it is not.
pub(crate) async fn in_time<F: Future>(limit: Duration, what: &str, future: F) -> F::Output {
    match tokio::time::timeout(limit, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {limit:?}: {what}"),
    }
}

/// How often a condition is asked for.
const POLL: Duration = Duration::from_millis(2);
