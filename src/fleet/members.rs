//! The nodes of a cluster that a client uses: made when first needed, and dropped when they own no slot and owe nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::slots::{Location, SlotMap, slot_of};
use super::translation::Translation;
use crate::clock::{Clock, Timestamp};
use crate::config::{Address, Config, Place};
use crate::error::{Error, Fault};
use crate::events::Events;
use crate::key::LeaseId;
use crate::node::{
    Chart, Common, Detour, Farewell, First, Membership, Network, Node, PendingRelease, Reports,
    Sent, member_of,
};

/// What nodes are made of.
pub(super) struct Kit {
    /// How the addresses that the cluster announces are reached.
    pub(super) translation: Option<Arc<Translation>>,
    /// Counts the maps that differ from the one before, and the addresses that were translated later.
    pub(super) changed: Arc<watch::Sender<u64>>,
    pub(super) network: Option<Arc<dyn Network>>,
    pub(super) config: Arc<Config>,
    pub(super) clock: Clock,
    pub(super) tasks: TaskTracker,
    pub(super) events: Arc<Events>,
    /// The tasks hold it: it must be dropped with the last of them.
    pub(super) farewell: Weak<Farewell>,
}

impl Kit {
    fn start(&self, address: &Address, membership: &Membership) -> Result<(Node, First), Fault> {
        let Some(farewell) = self.farewell.upgrade() else { return Err(Fault::Closed) };
        let problem = |error: Error| Fault::Down(error.to_string().into());
        Node::start(&Place::At(address.clone()), &self.common(&farewell, Some(membership)))
            .map_err(problem)
    }

    /// Returns how a location is reached. If the user has not translated it yet, that is begun.
    fn reached(&self, location: &Location) -> Result<(String, u16), Fault> {
        let Some(translation) = &self.translation else {
            return Ok((location.host.to_string(), location.port));
        };
        let (reached, is_to_be_asked) = translation.of(location);
        if is_to_be_asked {
            let (translation, changed) = (translation.clone(), self.changed.clone());
            let location = location.clone();
            let ask = async move {
                translation.ask(&location);
                changed.send_modify(|count| *count += 1);
            };
            self.tasks.spawn_on(ask, self.clock.runtime());
        }
        reached
    }

    /// Asks the server at `address` for its view of the cluster. `None`: the client's tasks are gone.
    pub(super) fn chart(
        &self,
        address: &Address,
        until: Timestamp,
    ) -> Option<impl Future<Output = Result<Chart, Fault>> + Send + use<>> {
        let farewell = self.farewell.upgrade()?;
        Some(Chart::of(address, &self.common(&farewell, None), until))
    }

    fn common<'a>(
        &'a self,
        farewell: &'a Arc<Farewell>,
        membership: Option<&'a Membership>,
    ) -> Common<'a> {
        Common {
            network: self.network.as_ref(),
            config: &self.config,
            clock: &self.clock,
            tasks: &self.tasks,
            events: &self.events,
            servers: None,
            membership,
            farewell,
        }
    }
}

/// The map of the slots, and the nodes that were needed so far.
pub(super) struct Members {
    pub(super) map: SlotMap,
    nodes: BTreeMap<Location, Member>,
    /// How many there have been.
    made: u32,
    /// How many connections those made that were dropped.
    connections_made: u64,
    /// The client is gone: a node is only needed for the releases that it owes.
    pub(super) closed: bool,
    /// Nodes listen to sharded channels.
    pub(super) is_sharded: bool,
    /// Login, TLS and database of all nodes.
    template: Address,
    cluster: Weak<dyn Reports>,
}

struct Member {
    node: Node,
    number: u32,
    used_at: Timestamp,
}

/// A node that was made just now, and the result of its first attempt to connect.
pub(super) type Made = Option<First>;

impl Members {
    pub(super) fn new(template: Address, cluster: Weak<dyn Reports>) -> Self {
        Self {
            map: SlotMap::default(),
            nodes: BTreeMap::new(),
            made: 0,
            connections_made: 0,
            closed: false,
            is_sharded: false,
            template,
            cluster,
        }
    }

    pub(super) fn address_of(&self, location: &Location, kit: &Kit) -> Result<Address, Fault> {
        kit.reached(location).map(|(host, port)| self.template.at(&host, port))
    }

    /// Returns what a location is called: as the cluster does, as long as nobody has translated it.
    pub(super) fn name_of(&self, location: &Location, kit: &Kit) -> Arc<str> {
        let announced = || self.template.at(&location.host, location.port);
        self.address_of(location, kit).unwrap_or_else(|_| announced()).shown
    }

    /// Returns the node at `location`, which is made if there is none.
    pub(super) fn at(&mut self, location: &Location, kit: &Kit) -> Result<(Node, Made), Fault> {
        let found = self.open_at(location, kit)?;
        if self.closed {
            found.0.close();
        }
        Ok(found)
    }

    /// As `at`, for a node to which a release is left before it is closed: closed before, it might end without it.
    fn open_at(&mut self, location: &Location, kit: &Kit) -> Result<(Node, Made), Fault> {
        let now = kit.clock.now();
        if let Some(member) = self.nodes.get_mut(location) {
            member.used_at = now;
            return Ok((member.node.clone(), None));
        }
        let (number, is_sharded) = (self.made + 1, self.is_sharded);
        let membership = Membership { number, is_sharded, cluster: self.cluster.clone() };
        let (node, first) = kit.start(&self.address_of(location, kit)?, &membership)?;
        self.made += 1;
        let member = Member { node: node.clone(), number: self.made, used_at: now };
        self.nodes.insert(location.clone(), member);
        Ok((node, Some(first)))
    }

    /// Returns the node that owns a slot.
    pub(super) fn owner(&mut self, slot: u16, kit: &Kit) -> Result<(Node, Made), Fault> {
        let Some(location) = self.map.owner(slot).cloned() else {
            return Err(Fault::Down(format!("no node of the cluster owns slot {slot}").into()));
        };
        self.at(&location, kit)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&Location, &Node)> {
        self.nodes.iter().map(|(location, member)| (location, &member.node))
    }

    /// Returns the nodes that own a slot.
    pub(super) fn used_masters(&self) -> impl Iterator<Item = &Node> {
        let masters = self.map.masters();
        self.all().filter(move |(location, _)| masters.contains(location)).map(|(_, node)| node)
    }

    /// Returns the number of connections that all nodes made that there have been.
    pub(super) fn connections_made(&self) -> u64 {
        let made = self.nodes.values().map(|member| member.node.connections_made());
        self.connections_made + made.sum::<u64>()
    }

    pub(super) fn get(&self, location: &Location) -> Option<&Node> {
        self.nodes.get(location).map(|member| &member.node)
    }

    /// Returns the node with this number, and where it is.
    pub(super) fn numbered(&self, number: u32) -> Option<(&Location, &Node)> {
        let member = self.nodes.iter().find(|(_, member)| member.number == number)?;
        Some((member.0, &member.1.node))
    }

    /// Leaves a release of a lock in `slot` to the node that it was sent on, if that is connected, or else to the owner.
    pub(super) fn leave(
        &mut self,
        slot: u16,
        id: LeaseId,
        mut release: PendingRelease,
        sent: Option<Sent>,
        kit: &Kit,
    ) -> Made {
        let sent_on = sent.as_ref().and_then(|sent| self.numbered(member_of(sent.generation)));
        let sent_on = sent_on.filter(|(_, node)| node.is_up());
        let found = match sent_on {
            Some((_, node)) => (node.clone(), None),
            None => {
                let owner = self.map.owner(slot).cloned();
                let owner = owner.and_then(|location| self.open_at(&location, kit).ok());
                // A node that is not the owner says who is.
                owner.or(self.any())?
            }
        };
        let number = found.0.number();
        release.detour.from_elsewhere |= release.acquired_on.map(member_of) != Some(number);
        let sent = sent.filter(|sent| member_of(sent.generation) == number);
        self.leave_to(found, id, release, sent, kit)
    }

    /// Leaves a release to a node. After the end of the client a node ends as soon as it owes nothing: another one takes the place
    /// of one that has.
    fn leave_to(
        &mut self,
        (node, made): (Node, Made),
        id: LeaseId,
        release: PendingRelease,
        sent: Option<Sent>,
        kit: &Kit,
    ) -> Made {
        let is_left = node.leave_release(id.clone(), release, sent);
        if self.closed {
            node.close();
        }
        if is_left { made } else { self.replace(&node, id, kit) }
    }

    fn replace(&mut self, ended: &Node, id: LeaseId, kit: &Kit) -> Made {
        let location = self.numbered(ended.number())?.0.clone();
        let member = self.nodes.remove(&location)?;
        let Ok((node, made)) = self.open_at(&location, kit) else {
            self.nodes.insert(location, member);
            return None;
        };
        let_go(ended, &mut self.connections_made, kit);
        if let Some(mut release) = ended.take_release(&id) {
            release.detour.from_elsewhere = true;
            node.leave_release(id, release, None);
        }
        node.close();
        made
    }

    fn any(&self) -> Option<(Node, Made)> {
        self.nodes.values().next().map(|member| (member.node.clone(), None))
    }

    /// Hands the releases of locks that have another owner over to it.
    pub(super) fn hand_over(&mut self, kit: &Kit) -> Vec<First> {
        let mut moved = Vec::new();
        for (location, member) in &self.nodes {
            let (map, is_up) = (&self.map, member.node.is_up());
            let misplaced = |release: &PendingRelease| {
                let owner = map.owner(slot_of(&release.call.keys[0]));
                // A slot on its way to a node without a connection may never arrive there.
                let may_stay = release.detour.asking && is_up;
                !may_stay && owner.is_some_and(|owner| owner != location)
            };
            moved.extend(member.node.take_releases(misplaced));
        }
        let leave = |(id, release): (LeaseId, PendingRelease)| {
            let slot = slot_of(&release.call.keys[0]);
            let detour =
                Detour { from_elsewhere: true, asking: false, one_key: false, ..release.detour };
            self.leave(slot, id, PendingRelease { detour, ..release }, None, kit)
        };
        moved.into_iter().filter_map(leave).collect()
    }

    /// Hands one release over that node `number` was told to send elsewhere, or that it does not have all keys for: then the
    /// slot's owner gets it back. `None`: it is not possible now.
    pub(super) fn redirect(
        &mut self,
        number: u32,
        id: &LeaseId,
        fault: &Fault,
        kit: &Kit,
    ) -> Option<Made> {
        let (from, node) = self.numbered(number).map(|(at, node)| (at.clone(), node.clone()))?;
        let (to, asking) = match fault {
            Fault::Moved(redirect) => (Location::of_redirect(&redirect.to, &from)?, false),
            Fault::Ask(redirect) => (Location::of_redirect(&redirect.to, &from)?, true),
            fault if fault.is_try_again() => {
                (self.map.owner(slot_of(&node.pending_key(id)?))?.clone(), false)
            }
            _ => return None,
        };
        if to == from || !node.owes(id) {
            return None;
        }
        let found = self.open_at(&to, kit).ok()?;
        let mut release = node.take_release(id)?;
        // Who has the slot for good has all keys.
        release.detour.one_key = fault.is_try_again() || release.detour.one_key && asking;
        release.detour.asking = asking;
        release.detour.from_elsewhere = true;
        release.detour.hops = release.detour.hops.saturating_add(1);
        Some(self.leave_to(found, id.clone(), release, None, kit))
    }

    /// Drops the nodes that own no slot, owe nothing and were not used for a while.
    pub(super) fn drop_unused(&mut self, kit: &Kit) {
        let masters = self.map.masters();
        let now = kit.clock.now();
        let connections_made = &mut self.connections_made;
        self.nodes.retain(|location, member| {
            let node = &member.node;
            let is_used = masters.contains(location)
                || node.pending_releases() > 0
                || now.since(member.used_at) < UNUSED;
            if !is_used {
                let_go(node, connections_made, kit);
            }
            is_used
        });
        if let Some(translation) = &kit.translation {
            let nodes = &self.nodes;
            translation.keep(|location| masters.contains(location) || nodes.contains_key(location));
        }
    }

    /// Sends a call to the node of which `asked` says that the slot is on its way there.
    pub(super) fn asked(
        &mut self,
        slot: u16,
        redirect: &str,
        kit: &Kit,
    ) -> Result<(Node, Made), Fault> {
        let from = self.map.owner(slot).cloned();
        let to = from.and_then(|from| Location::of_redirect(redirect, &from));
        match to {
            Some(to) => self.at(&to, kit),
            None => Err(Fault::Down("the cluster does not say where the slot goes".into())),
        }
    }
}

/// Ends a node that is a member no more.
fn let_go(node: &Node, connections_made: &mut u64, kit: &Kit) {
    *connections_made += node.connections_made();
    node.close();
    if let Some(farewell) = kit.farewell.upgrade() {
        node.leave_farewell(&farewell);
    }
}

/// How long a node is kept that owns no slot: one may be on its way to it.
const UNUSED: Duration = Duration::from_secs(3);
