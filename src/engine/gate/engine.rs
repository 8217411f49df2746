//! What all locks of one client share, and the list of those in use.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::noting::Noting;
use super::process::Process;
use super::{Gate, long_holds};
use crate::clock::{Clock, Timestamp};
use crate::config::Config;
use crate::engine::kind::{Kind, Sharing};
use crate::engine::quorum::Quorum;
use crate::engine::watchdog::Watchdog;
use crate::error::{ClosedReason, Error, Fault};
use crate::events::Events;
use crate::fleet::{Fleet, Site, Slot, slot_of};
use crate::node::{Farewell, Node};

/// What all locks of one client share.
pub(crate) struct Engine {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Clock,
    pub(crate) fleet: Fleet,
    /// The servers of each lock, if all locks are on all servers.
    quorum: Option<Arc<Quorum>>,
    pub(crate) watchdog: Watchdog,
    pub(crate) events: Arc<Events>,
    pub(crate) tasks: TaskTracker,
    pub(super) gates: Mutex<HashMap<GateKey, Arc<Gate>>>,
    /// How many gates were made for one acquisition each.
    own_gates: AtomicU64,
    phase: AtomicU8,
    /// What it has in common with the other clients of its process.
    pub(super) process: Arc<Process>,
    /// Notes waits on the servers.
    pub(super) noting: Arc<Noting>,
    /// A guard was asked whether others want its lock: who waits for those to come tells the holder.
    pub(super) asks_whether_wanted: AtomicBool,
    /// Wakes those who wait until nothing is held.
    pub(crate) left: Arc<Notify>,
}

// A panic in the caller's code leaves nothing half done in here: no mutex is held while it runs, what it gives to be called is
// called where a panic is caught, and every call can be dropped at each await anyway.
impl UnwindSafe for Engine {}
impl RefUnwindSafe for Engine {}

/// How much a client still does; in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Service {
    Open,
    /// Holders finish; nobody new waits.
    Draining,
    Closed,
}

/// What a gate is known by in its client.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GateKey {
    /// Not the channel: `n` and `{n}` have the same.
    name: Arc<str>,
    /// A name belongs to one kind of lock on the servers, which refuse the others.
    family: &'static str,
    /// 0 if all acquisitions share the gate.
    number: u64,
}

impl Hash for GateKey {
    /// Few keys share a name: the rest would only take time.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        if self.number > 0 {
            self.number.hash(state);
        }
    }
}

impl GateKey {
    fn shared(kind: &dyn Kind) -> Self {
        Self { name: kind.name().clone(), family: kind.family(), number: 0 }
    }

    pub(super) fn is_of_one(&self) -> bool {
        self.number != 0
    }

    /// Returns true if both are of one name and kind.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.name == other.name && self.family == other.family
    }
}

impl Engine {
    pub(crate) fn new(
        config: Arc<Config>,
        clock: Clock,
        fleet: Fleet,
        events: Arc<Events>,
        tasks: TaskTracker,
        farewell: Arc<Farewell>,
    ) -> Arc<Self> {
        let quorum = match &fleet {
            Fleet::Nodes(nodes) => {
                let sites = nodes.iter().cloned().map(Site::Node).collect();
                let (clock, config, events) = (clock.clone(), config.clone(), events.clone());
                Some(Arc::new(Quorum::new(sites, clock, config, events)))
            }
            Fleet::Cluster(_) => None,
        };
        let process = Process::of(&clock);
        let engine = Arc::new_cyclic(|engine| Self {
            watchdog: Watchdog::start(
                clock.clone(),
                events.clone(),
                &tasks,
                fleet.clone(),
                farewell,
                config.warn_held_after.map(|after| long_holds::reports(engine, after)),
            ),
            config,
            clock,
            fleet,
            quorum,
            events,
            tasks,
            gates: Mutex::default(),
            own_gates: AtomicU64::new(0),
            phase: AtomicU8::new(Service::Open as u8),
            process,
            noting: Arc::default(),
            asks_whether_wanted: AtomicBool::new(false),
            left: Arc::default(),
        });
        engine.process.waits.lock().note_client(&engine);
        engine
    }

    /// Which client this is, among those of the process.
    pub(crate) fn key(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self) as usize
    }

    pub(crate) fn service_ends(&self, phase: Service) {
        if phase == Service::Closed {
            self.clock.shut_down();
        }
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        if phase == Service::Closed {
            self.clock.end();
        }
        self.left.notify_waiters();
    }

    /// Waits until the client is closed. No change of a lock wakes who waits.
    pub(crate) async fn closed(&self) {
        self.clock.ended().await;
    }

    /// Returns what a call comes to that ends with the client. A loop that goes on after it must let others run, and its runtime
    /// end.
    pub(crate) async fn ended(&self) -> Error {
        tokio::task::coop::consume_budget().await;
        Error::closed(&self.clock)
    }

    pub(crate) fn check_service(&self, most: Service) -> Result<(), Error> {
        let phase = self.phase.load(Ordering::Acquire);
        if self.clock.is_stopped() || phase > most.max(Service::Draining) as u8 {
            return Err(Error::closed(&self.clock));
        }
        if phase > most as u8 {
            return Err(Error::Closed { reason: ClosedReason::Drained });
        }
        Ok(())
    }

    /// Returns the servers that what is called `name` lives on: all of the client's, or the owner of its slot.
    pub(crate) fn quorum_of(&self, name: &str) -> Arc<Quorum> {
        match (&self.quorum, &self.fleet) {
            (Some(quorum), _) => quorum.clone(),
            (None, Fleet::Cluster(cluster)) => {
                let site = Site::Slot(Slot::of(cluster, slot_of(name)));
                let (clock, config) = (self.clock.clone(), self.config.clone());
                Arc::new(Quorum::new(vec![site], clock, config, self.events.clone()))
            }
            (None, Fleet::Nodes(_)) => unreachable!("BUG: such a fleet has a quorum"),
        }
    }

    /// Waits until so many of the servers are connected for the first time as must be. `firsts` are the first attempts.
    pub(crate) async fn connected(
        &self,
        firsts: impl Iterator<Item = impl Future<Output = Result<(), Fault>>>,
    ) -> Result<(), Error> {
        match &self.quorum {
            Some(quorum) => {
                let began_at = self.clock.now();
                let connected = quorum.majority_of(firsts).await;
                connected.map_err(|fault| quorum.error(None, fault))?;
                // One of the others may say that its masters are other ones. They have as long as these took.
                let now = self.clock.now();
                let until = now.plus(now.since(began_at));
                join_all(quorum.sites().iter().map(|site| site.up(until))).await;
                match quorum.check_electorate() {
                    Err(other @ Fault::OtherMasters(_)) => Err(quorum.error(None, other)),
                    _ => Ok(()),
                }
            }
            None => Ok(()),
        }
    }

    /// Waits until all servers that are needed for all locks can be asked, and returns them.
    pub(crate) async fn all_up(&self, until: Timestamp) -> Result<Vec<Node>, Error> {
        match (&self.quorum, &self.fleet) {
            (Some(quorum), fleet) => {
                quorum.up(until).await.map_err(|fault| quorum.error(None, fault))?;
                Ok(fleet.nodes())
            }
            (None, Fleet::Cluster(cluster)) => {
                let masters = cluster.masters();
                // One that is down does not keep the others from being asked.
                join_all(masters.iter().map(|node| node.up(until))).await;
                Ok(masters)
            }
            (None, Fleet::Nodes(nodes)) => Ok(nodes.to_vec()),
        }
    }

    /// Fails if so many of the servers that were `asked` failed that no lock can be had.
    pub(crate) fn check_failures(
        &self,
        asked: &[Node],
        faults: Vec<(usize, Fault)>,
    ) -> Result<(), Error> {
        match &self.quorum {
            Some(quorum) if faults.len() > quorum.sites().len() - quorum.majority() => {
                Err(quorum.error(None, quorum.no_majority(faults.into_iter())))
            }
            Some(_) => Ok(()),
            None if faults.len() < asked.len() => Ok(()),
            None => faults.into_iter().next().map_or(Ok(()), |(node, fault)| {
                let address = asked.get(node).map(Node::address).unwrap_or_default();
                Err(Error::from_fault(&address, None, fault, &self.clock))
            }),
        }
    }

    /// How many grants needed a second round to settle their token.
    pub(crate) fn raises(&self) -> u64 {
        self.quorum.as_ref().map_or(0, |quorum| quorum.raises())
    }

    /// All gates, by name: what is done to all is done in an order that a simulation can repeat.
    pub(crate) fn gates(&self) -> Vec<Arc<Gate>> {
        let mut gates: Vec<Arc<Gate>> = self.gates.lock().values().cloned().collect();
        gates.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        gates
    }

    /// All gates of one lock: several, if each acquisition has its own.
    pub(crate) fn gates_of(&self, kind: &dyn Kind) -> Vec<Arc<Gate>> {
        let key = GateKey::shared(kind);
        let mut gates = self.gates();
        gates.retain(|gate| gate.key.is_like(&key));
        gates
    }

    /// Returns the names of the locks that somebody here waits for, each with the name of its kind.
    pub(crate) fn waited_for(&self) -> Vec<(Arc<str>, &'static str)> {
        let waited =
            |gate: &Arc<Gate>| (gate.waiters() > 0).then(|| (gate.name.clone(), gate.key.family));
        // In order: those of one name, which each acquisition of permits has, are neighbours.
        let mut names: Vec<_> = self.gates().iter().filter_map(waited).collect();
        names.dedup();
        names
    }

    pub(super) fn gate(self: &Arc<Self>, side: &dyn Kind) -> Arc<Gate> {
        let key = match side.sharing() {
            Sharing::Alone | Sharing::Together => GateKey::shared(side),
            Sharing::Each { .. } => {
                let number = self.own_gates.fetch_add(1, Ordering::Relaxed) + 1;
                GateKey { number, ..GateKey::shared(side) }
            }
        };
        let mut gates = self.gates.lock();
        if let Some(gate) = gates.get(&key) {
            return gate.clone();
        }
        let gate = Arc::new(Gate {
            key: key.clone(),
            engine: self.clone(),
            name: side.name().clone(),
            channel: side.channel().clone(),
            quorum: self.quorum_of(side.name()),
            state: Mutex::default(),
            changed: Notify::new(),
            asked: Notify::new(),
        });
        gates.insert(key, gate.clone());
        gate
    }

    /// The gate that all acquisitions of a lock share, if somebody uses it.
    pub(crate) fn existing_gate(&self, kind: &dyn Kind) -> Option<Arc<Gate>> {
        self.gates.lock().get(&GateKey::shared(kind)).cloned()
    }

    /// Returns the gate of that key, if there is one.
    pub(super) fn gate_at(&self, key: &GateKey) -> Option<Arc<Gate>> {
        self.gates.lock().get(key).cloned()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.fleet.close();
    }
}
