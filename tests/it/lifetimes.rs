//! Clients and guards that outlive the runtime, the task, the process or each other, and those that end in order.

mod dropping;
mod ending;
mod exits;
mod guards;
mod runtimes;

use std::time::{Duration, Instant};

use leasehold::{ClosedReason, Error};
use tokio::runtime::{Builder, Runtime};

use crate::{
    checks::{AT_ONCE, LIMIT, exists},
    support::{Server, eventually},
};

const MS: Duration = Duration::from_millis(1);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// Fails after a while instead of hanging.
async fn at_once<F: Future>(what: &str, future: F) -> F::Output {
    let started_at = Instant::now();
    let output = tokio::time::timeout(LIMIT, future).await;
    let output = output.unwrap_or_else(|_| panic!("{what} hangs"));
    assert!(started_at.elapsed() < AT_ONCE, "{what} took {:?}", started_at.elapsed());
    output
}

/// Whether it failed because the client does nothing more, for that reason.
fn is_closed<T>(answer: &Result<T, Error>, by: ClosedReason) -> bool {
    matches!(answer, Err(Error::Closed { reason, .. }) if *reason == by)
}

async fn gone_in_the_end(server: &Server, name: &str) {
    eventually(LIMIT, "the lock is gone", async || !exists(server, name).await).await;
}
