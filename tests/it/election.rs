//! Elections: one leads at a time, in terms that only grow, and whoever observes learns of it.

mod bad_input;
mod blocking;
mod cancelling;
mod deployments;
mod observing;
mod proclaiming;
mod terms;

use std::time::Duration;

use leasehold::{Election, Leader, Leadership};

use crate::checks::{exists, soon};
use crate::support::Server;

const MS: Duration = Duration::from_millis(1);
const LIMIT: Duration = crate::checks::LIMIT;

/// Leads, where nobody else does.
async fn leading(election: &Election) -> Leadership {
    soon("it leads", election.campaign()).await.expect("nobody else leads")
}

async fn leader(election: &Election) -> Option<Leader> {
    soon("an answer", election.leader()).await.expect("an answer")
}

/// Whether what a leader said is still there.
async fn is_said(server: &Server) -> bool {
    exists(server, "leasehold_leader:{scheduler}").await
}
