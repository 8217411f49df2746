//! Nodes that nothing reaches, and what else the tests of others need.

use std::task::{Context, Poll, Waker};

use tokio::task::coop;

use super::*;
use crate::config::Address;

/// Does as much as tokio lets a task do in one turn.
pub(super) fn use_up_the_turn() {
    let mut nobody = Context::from_waker(Waker::noop());
    while let Poll::Ready(unit) = coop::poll_proceed(&mut nobody) {
        unit.made_progress();
    }
}

impl Common<'_> {
    /// For nodes of a client in a network in which no connection is ever made.
    pub(crate) fn of_nowhere<T>(clock: &Clock, start: impl FnOnce(&Common<'_>) -> T) -> T {
        let nowhere: Arc<dyn Network> = Arc::new(connector::Nowhere);
        start(&Common {
            network: Some(&nowhere),
            config: &Config::default(),
            clock,
            tasks: &TaskTracker::new(),
            events: &Arc::default(),
            servers: None,
            membership: None,
            farewell: &Arc::default(),
        })
    }
}

impl Node {
    /// Returns a node that never has a connection.
    pub(crate) fn unconnected(clock: &Clock) -> Self {
        let address = Address::parse("redis://nowhere").expect("a valid URL");
        let start = |common: &Common<'_>| Self::start(&Place::At(address), common);
        Common::of_nowhere(clock, start).expect("it connects to nothing").0
    }
}
