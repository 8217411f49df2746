//! What all locks of one client share, and the list of those in use.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::Gate;
use crate::clock::Clock;
use crate::config::Config;
use crate::engine::kind::Kind;
use crate::engine::quorum::Quorum;
use crate::engine::watchdog::Watchdog;
use crate::error::Error;
use crate::events::Events;
use crate::node::{Farewell, Node};

/// What all locks of one client share.
pub(crate) struct Engine {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Clock,
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) watchdog: Watchdog,
    pub(crate) events: Arc<Events>,
    pub(crate) tasks: TaskTracker,
    /// By name. Not by channel: `n` and `{n}` have the same.
    pub(super) gates: Mutex<HashMap<Arc<str>, Arc<Gate>>>,
    phase: AtomicU8,
    /// Wakes those who wait until nothing is held.
    pub(crate) left: Arc<Notify>,
}

/// How much a client still does; in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Service {
    Open,
    /// Holders finish; nobody new waits.
    Draining,
    Closed,
}

impl Engine {
    pub(crate) fn new(
        config: Arc<Config>,
        clock: Clock,
        quorum: Arc<Quorum>,
        events: Arc<Events>,
        tasks: TaskTracker,
        farewell: Arc<Farewell>,
    ) -> Arc<Self> {
        Arc::new(Self {
            watchdog: Watchdog::start(
                clock.clone(),
                events.clone(),
                &tasks,
                quorum.clone(),
                farewell,
            ),
            config,
            clock,
            quorum,
            events,
            tasks,
            gates: Mutex::default(),
            phase: AtomicU8::new(Service::Open as u8),
            left: Arc::default(),
        })
    }

    /// Which client this is, among those of the process.
    pub(crate) fn key(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self) as usize
    }

    pub(crate) fn service_ends(&self, phase: Service) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
    }

    pub(crate) fn check_service(&self, most: Service) -> Result<(), Error> {
        if self.phase.load(Ordering::Acquire) > most as u8 || self.clock.is_stopped() {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Returns the servers that a lock lives on: today all locks of a client live on all of its servers.
    pub(crate) fn quorum_of(&self, _lock: &dyn Kind) -> &Arc<Quorum> {
        &self.quorum
    }

    /// All gates, by name: what is done to all is done in an order that a simulation can repeat.
    pub(crate) fn gates(&self) -> Vec<Arc<Gate>> {
        let mut gates: Vec<Arc<Gate>> = self.gates.lock().values().cloned().collect();
        gates.sort_unstable_by(|one, other| one.kind.name().cmp(other.kind.name()));
        gates
    }

    pub(super) fn gate(self: &Arc<Self>, kind: &Arc<dyn Kind>) -> Arc<Gate> {
        let mut gates = self.gates.lock();
        if let Some(gate) = gates.get(kind.name()) {
            return gate.clone();
        }
        let gate = Arc::new(Gate {
            engine: self.clone(),
            kind: kind.clone(),
            quorum: self.quorum_of(&**kind).clone(),
            state: Mutex::default(),
            changed: Notify::new(),
            asked: Notify::new(),
        });
        gates.insert(kind.name().clone(), gate.clone());
        gate
    }

    /// The gate of a lock if somebody uses it.
    pub(crate) fn existing_gate(&self, kind: &dyn Kind) -> Option<Arc<Gate>> {
        self.gates.lock().get(kind.name()).cloned()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.quorum.nodes().iter().for_each(Node::close);
    }
}
