//! Names, durations, addresses and keys that cannot work, and those that look as if they could not.

mod addresses;
mod durations;
mod keys;
mod names;

use std::{future::Future, time::Duration};

use leasehold::{Client, ClientBuilder, Error, Mutex};

use crate::{checks::soon, support::Server};

const MS: Duration = Duration::from_millis(1);

/// The error of each call that can acquire the lock.
async fn acquiring_errors(lock: &Mutex) -> Vec<Error> {
    async fn error<T>(call: impl Future<Output = Result<T, Error>>) -> Error {
        let answer = soon("an answer, and no hang", call).await;
        answer.err().expect("an error")
    }
    vec![
        error(lock.lock()).await,
        error(lock.try_lock()).await,
        error(lock.try_lock_for(Duration::from_secs(5))).await,
        error(lock.lock_with_timeout(Duration::from_secs(5))).await,
        error(lock.lock_with_timeout(Duration::MAX)).await,
        error(lock.run(async |_| ())).await,
    ]
}

/// The error of each call that asks about the lock.
async fn asking_errors(lock: &Mutex) -> Vec<Error> {
    vec![
        lock.status().await.expect_err("no status"),
        lock.is_locked().await.expect_err("no status"),
        lock.holder().await.expect_err("no status"),
        lock.remaining_ttl().await.expect_err("no status"),
        lock.force_unlock().await.expect_err("nothing to force"),
    ]
}

fn builder(server: &Server) -> ClientBuilder {
    Client::builder().nodes([server.url()])
}

async fn problem(builder: ClientBuilder) -> String {
    match builder.connect().await {
        Err(Error::InvalidConfig { problem, .. }) => problem.to_string(),
        other => panic!("not a bad setting: {other:?}"),
    }
}
