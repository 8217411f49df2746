//! Where the server of a node is now.

use std::sync::Arc;
use std::time::Duration;

use super::sentinel::{Sentinels, WatchFacts};
use super::target::Target;
use crate::clock::{Clock, Timestamp};
use crate::error::Fault;

/// Knows where the server of a node is. The server itself decides whether it is a master, in the handshake.
pub(super) enum Guide {
    /// At one address. The host of that address is looked up for each connection.
    Fixed(Arc<Target>),
    /// Where the Sentinels say.
    Sentinels(Arc<Sentinels>),
}

impl Guide {
    /// Returns the server, if it is known without asking.
    pub(super) fn at_hand(&self) -> Option<Arc<Target>> {
        match self {
            Self::Fixed(target) => Some(target.clone()),
            Self::Sentinels(_) => None,
        }
    }

    /// Returns the server, waiting until `until` if nobody has said yet where it is.
    pub(super) async fn target(
        &self,
        clock: &Clock,
        until: Timestamp,
    ) -> Result<Arc<Target>, Fault> {
        match self {
            Self::Fixed(target) => Ok(target.clone()),
            Self::Sentinels(sentinels) => sentinels.target(clock, until).await,
        }
    }

    /// Waits until the server is another one than `from`. Nothing is lost by dropping the future.
    pub(super) async fn moved(&self, from: Option<&Arc<Target>>) {
        match self {
            Self::Fixed(_) => std::future::pending().await,
            Self::Sentinels(sentinels) => sentinels.moved(from).await,
        }
    }

    /// The handshake with `target` has failed. Returns the fault, with what it means on this way to a server.
    pub(super) fn refused(&self, target: &Arc<Target>, fault: Fault) -> Fault {
        match (self, fault) {
            (Self::Sentinels(sentinels), Fault::Replica(of)) => {
                sentinels.is_replica(target);
                let problem = format!("it is a replica{of}, and the Sentinels name it as master");
                Fault::Down(problem.into())
            }
            (_, fault) => fault,
        }
    }

    /// Returns what the Sentinels report within `limit`, if there are any.
    pub(super) async fn facts(&self, limit: Duration) -> Option<WatchFacts> {
        match self {
            Self::Fixed(_) => None,
            Self::Sentinels(sentinels) => sentinels.facts(limit).await,
        }
    }

    /// Returns the Sentinels, each with the master that it names, if they have named different ones for long.
    pub(super) fn disagreement(&self) -> Option<Vec<(Arc<str>, String)>> {
        match self {
            Self::Fixed(_) => None,
            Self::Sentinels(sentinels) => sentinels.disagreement(),
        }
    }

    /// Returns true if the server is looked up, so that it may be another one at any time.
    pub(super) fn is_dynamic(&self) -> bool {
        !matches!(self, Self::Fixed(_))
    }

    /// Nobody needs the server any more.
    pub(super) fn close(&self) {
        if let Self::Sentinels(sentinels) = self {
            sentinels.close();
        }
    }
}
