//! Waiting for what must be so, with a limit.

use std::time::{Duration, Instant};

/// Waits until `condition` is true, asking every few milliseconds.
///
/// # Panics
///
/// Names `what` when it is still false after `limit`.
pub async fn eventually(limit: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
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
pub async fn in_time<F: Future>(limit: Duration, what: &str, future: F) -> F::Output {
    match tokio::time::timeout(limit, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {limit:?}: {what}"),
    }
}

/// How often a condition is asked for.
const POLL: Duration = Duration::from_millis(2);
