//! Nodes that nothing reaches, for the tests of others.

use super::*;
use crate::config::Address;

impl Node {
    /// Returns a node that never has a connection.
    pub(crate) fn unconnected(clock: &Clock) -> Self {
        let common = Common {
            network: Some(&(Arc::new(connector::Nowhere) as Arc<dyn Network>)),
            config: &Config::default(),
            clock,
            tasks: &TaskTracker::new(),
            events: &Arc::default(),
            servers: None,
            membership: None,
            farewell: &Arc::default(),
        };
        let address = Address::parse("redis://nowhere").expect("a valid URL");
        Self::start(&Place::At(address), &common).expect("it connects to nothing").0
    }

    /// Returns a network in which no connection is ever made.
    pub(crate) fn nowhere() -> Arc<dyn Network> {
        Arc::new(connector::Nowhere)
    }
}
