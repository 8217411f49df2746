//! Whether a node has a connection, and what must be sent on it or on a later one.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::connection::Connection;
use super::pending::Pending;
use crate::error::Fault;

/// The connection, and what must be sent on it or on a later one.
pub(super) struct Link {
    pub(super) state: LinkState,
    /// Releases that the server has not confirmed for good.
    pub(super) pending: Pending,
    /// Whether the client has left the server of the last connection, which may be answered still.
    pub(super) left: Option<Arc<AtomicBool>>,
}

pub(super) enum LinkState {
    Up(Connection),
    /// There is no connection, for this reason.
    Down(Fault),
    /// The supervisor is gone, so there will never be a connection again.
    Ended,
}

impl LinkState {
    pub(super) fn connection(&self) -> Result<&Connection, Fault> {
        match self {
            Self::Up(connection) => Ok(connection),
            Self::Down(fault) => Err(fault.clone()),
            Self::Ended => Err(Fault::Closed),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self, Self::Up(_))
    }
}
