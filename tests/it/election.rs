//! Elections: one leads at a time, in terms that only grow, and whoever observes learns of it.

mod bad_input;
mod blocking;
mod cancelling;
mod deployments;
mod observing;
mod proclaiming;
mod terms;

use std::time::Duration;

use leasehold::{Client, Election, Leader, Leadership};

use crate::checks::{client_is_idle, lock_keys, soon};
use crate::support::{Server, eventually};

const MS: Duration = Duration::from_millis(1);
const LIMIT: Duration = crate::checks::LIMIT;

/// Leads, where nobody else does.
async fn leading(election: &Election) -> Leadership {
    soon("it leads", election.campaign()).await.expect("nobody else leads")
}

async fn leader(election: &Election) -> Option<Leader> {
    soon("an answer", election.leader()).await.expect("an answer")
}

/// Waits until the client has nothing left of any election. What was said by a leader that is none any more is no key of a lock.
async fn nothing_left(server: &Server, client: &Client) {
    let none = async || {
        let keys = lock_keys(server).await;
        keys.iter().all(|key| key.starts_with("leasehold_leader:"))
    };
    eventually(LIMIT, "the server has no lock left", none).await;
    client_is_idle(client).await;
}
