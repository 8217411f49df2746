//! A Redis Cluster: locks are spread over its masters by slots, which may move from one to another at any time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::members::{Kit, Made, Members};
use super::slots::{Location, SlotMap};
use super::survey::Surveyor;
use super::translation::Translation;
use crate::config::{Address, AddressMap, PubSub};
use crate::error::{Fault, Redirect};
use crate::key::LeaseId;
use crate::node::{Common, First, Node, NodeStatus, Owned, Reports};
use crate::script::Reply;

/// A cluster as one client knows it.
pub(crate) struct Cluster {
    pub(super) seeds: Vec<Address>,
    pub(super) kit: Kit,
    pub(super) members: Mutex<Members>,
    /// Releases are told on sharded channels: decided once, by the user or as Redisson does.
    is_sharded: OnceLock<bool>,
    /// Wakes the surveyor: the map may be out of date.
    pub(super) doubt: Notify,
    /// Notified when a server may have forgotten leases, or has got locks from another.
    forgot: Notify,
    /// How many wait for the owner of a slot to change.
    pub(super) waiting: AtomicUsize,
    /// The surveyor pauses for long, because nobody waited. Then it is woken by the first who does.
    pub(super) is_slow: AtomicBool,
    pub(super) watched: Notify,
    pub(super) closing: CancellationToken,
    this: Weak<Self>,
}

impl Cluster {
    /// Starts to look for the cluster at the seeds. The second value is the result: whether the map of the slots is known
    /// and one node is connected.
    pub(crate) fn start(
        seeds: Vec<Address>,
        translation: Option<AddressMap>,
        common: &Common<'_>,
    ) -> Option<(Arc<Self>, First)> {
        let template = seeds.first()?.clone();
        let cluster = Arc::new_cyclic(|this: &Weak<Self>| {
            let reports: Weak<dyn Reports> = this.clone();
            Self {
                seeds,
                kit: Kit {
                    translation: translation.map(|map| Arc::new(Translation::new(map))),
                    changed: Arc::new(watch::Sender::new(0)),
                    network: common.network.cloned(),
                    config: Arc::new(common.config.clone()),
                    clock: common.clock.clone(),
                    tasks: common.tasks.clone(),
                    events: common.events.clone(),
                    farewell: Arc::downgrade(common.farewell),
                },
                members: Mutex::new(Members::new(template, reports)),
                is_sharded: OnceLock::new(),
                doubt: Notify::new(),
                forgot: Notify::new(),
                waiting: AtomicUsize::new(0),
                is_slow: AtomicBool::new(false),
                watched: Notify::new(),
                closing: CancellationToken::new(),
                this: this.clone(),
            }
        });
        let (result, first) = oneshot::channel();
        let surveyor = Surveyor::new(cluster.clone(), common.farewell.clone());
        common.tasks.spawn_on(surveyor.run(result), common.clock.runtime());
        Some((cluster, first))
    }

    /// Looks after a node that was made just now: if it is out of reach, its slots may have another owner soon.
    pub(super) fn attend(&self, made: Made) {
        let (Some(first), Some(cluster)) = (made, self.this.upgrade()) else { return };
        let attend = async move {
            if !matches!(first.await, Ok(Ok(()))) {
                cluster.doubt.notify_one();
            }
        };
        self.kit.tasks.spawn_on(attend, self.kit.clock.runtime());
    }

    pub(super) fn owner(&self, slot: u16) -> Result<Node, Fault> {
        let (node, made) = self.members.lock().owner(slot, &self.kit)?;
        self.attend(made);
        Ok(node)
    }

    pub(super) fn nodes(&self) -> Vec<Node> {
        self.members.lock().all().map(|(_, node)| node.clone()).collect()
    }

    /// Returns the nodes that are masters. Others have no slot any more, and are kept for a while.
    pub(super) fn used_masters(&self) -> Vec<Node> {
        self.members.lock().used_masters().cloned().collect()
    }

    /// Finds a node. No release goes from one node to another meanwhile.
    pub(super) fn find_node(&self, which: impl Fn(&Node) -> bool) -> Option<Node> {
        self.members.lock().all().map(|(_, node)| node).find(|node| which(node)).cloned()
    }

    pub(super) fn connections_made(&self) -> u64 {
        self.members.lock().connections_made()
    }

    /// Returns the status of each master, and of each node that still owes a release.
    pub(super) fn status(&self) -> Vec<NodeStatus> {
        let members = self.members.lock();
        let masters = members.map.masters();
        let unused = masters.iter().filter(|location| members.get(location).is_none());
        let unused =
            unused.map(|location| NodeStatus::unused(members.name_of(location, &self.kit)));
        let mut all: Vec<NodeStatus> = members.all().map(|(_, node)| node.status()).collect();
        all.extend(unused);
        all.sort_by(|one, other| one.address.cmp(&other.address));
        all
    }

    /// Returns a node for each master.
    pub(crate) fn masters(&self) -> Vec<Node> {
        let mut members = self.members.lock();
        let masters: Vec<Location> = members.map.masters().into_iter().cloned().collect();
        let found: Vec<_> =
            masters.iter().filter_map(|location| members.at(location, &self.kit).ok()).collect();
        drop(members);
        let attended = |(node, made)| {
            self.attend(made);
            node
        };
        found.into_iter().map(attended).collect()
    }

    /// A server says whether it has sharded channels. The first answer decides, unless the user did.
    pub(super) fn note_channels(&self, are_there: bool) -> Result<(), Fault> {
        let is_sharded = match self.kit.config.pubsub {
            PubSub::Auto => are_there,
            PubSub::Plain => false,
            PubSub::Sharded if are_there || self.is_sharded.get().is_some() => true,
            PubSub::Sharded => return Err(Fault::WrongServer(NONE_SHARDED.into())),
        };
        let decided = *self.is_sharded.get_or_init(|| is_sharded);
        self.members.lock().is_sharded = decided;
        Ok(())
    }

    /// Returns true if no server need be asked about its channels.
    pub(super) fn knows_channels(&self) -> bool {
        self.is_sharded.get().is_some()
    }

    /// The server at `location` says that the cluster is in order.
    pub(super) fn serves(&self, location: &Location) {
        let node = self.members.lock().get(location).cloned();
        if let Some(node) = node {
            node.serves();
        }
    }

    pub(super) fn is_sharded(&self) -> bool {
        self.is_sharded.get().is_some_and(|is_sharded| *is_sharded)
    }

    /// Returns true if every slot has an owner.
    pub(crate) fn is_covered(&self) -> bool {
        self.members.lock().map.is_covered()
    }

    pub(super) async fn forgets(&self) {
        self.forgot.notified().await;
    }

    pub(super) async fn all_released(&self) {
        loop {
            let pending = self.find_node(|node| node.pending_releases() > 0);
            let Some(node) = pending else { return };
            node.all_released(false).await;
        }
    }

    pub(super) fn close(&self) {
        self.members.lock().closed = true;
        self.closing.cancel();
        self.nodes().iter().for_each(Node::close);
    }

    /// Returns true if somebody waits for a slot's owner to change.
    pub(super) fn is_watched(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Returns true if a master that is in use has no connection. Once the client is gone, only those that owe something are in use.
    pub(super) fn misses_a_master(&self) -> bool {
        let members = self.members.lock();
        let is_used = |node: &Node| !members.closed || node.pending_releases() > 0;
        members.used_masters().any(|node| !node.is_up() && is_used(node))
    }

    /// Takes in a newer map of the slots.
    pub(super) fn adopt(&self, map: &SlotMap) {
        let mut is_news = false;
        if let Some(translation) = &self.kit.translation {
            // The user's code, so before anything is locked.
            for location in map.masters() {
                is_news |= translation.ask(location);
            }
        }
        let mut members = self.members.lock();
        let has_changed = members.map.renew(map);
        let made = members.hand_over(&self.kit);
        members.drop_unused(&self.kit);
        drop(members);
        for first in made {
            self.attend(Some(first));
        }
        // Also if the map says nothing new: a redirect may have been faster.
        self.note_slots();
        if is_news && !has_changed {
            self.tell_change();
        }
        if has_changed {
            self.tell_change();
            // Holders learn at once whether the new owners have their leases.
            self.forgot.notify_one();
        }
    }

    /// Nodes whose slots are not those that they have noted note since when they have them: those who come later are to wait for less
    /// long, and who gets a slot back counts from then.
    fn note_slots(&self) {
        let members = self.members.lock();
        let owned = |(location, node): (&Location, &Node)| {
            (node.is_up() && !node.has_noted(&members.map.ranges_of(location)))
                .then(|| node.clone())
        };
        let gainers: Vec<Node> = members.all().filter_map(owned).collect();
        drop(members);
        gainers.into_iter().for_each(|node| self.note_slots_of(node));
    }

    /// Asks a node which slots it has, in the background.
    pub(super) fn note_slots_of(&self, node: Node) {
        let Some(cluster) = self.this.upgrade() else { return };
        if !node.begins_to_note() {
            return;
        }
        let noting = async move {
            // Otherwise those who wait for a slot that it does not have would ask again at once, and over and over.
            if node.note_slots().await {
                cluster.tell_change();
                cluster.forgot.notify_one();
            }
        };
        self.kit.tasks.spawn_on(noting, self.kit.clock.runtime());
    }

    fn tell_change(&self) {
        self.kit.changed.send_modify(|count| *count += 1);
    }
}

impl Reports for Cluster {
    fn moved(&self, number: u32, redirect: &Redirect) {
        let mut members = self.members.lock();
        let from = members.numbered(number).map(|(from, _)| from.clone());
        let to = from.and_then(|from| Location::of_redirect(&redirect.to, &from));
        let is_news = to.is_some_and(|to| members.map.learn(redirect.slot, &to));
        drop(members);
        if is_news {
            self.tell_change();
        }
        self.doubt.notify_one();
    }

    fn troubled(&self) {
        self.doubt.notify_one();
    }

    fn forgot(&self) {
        self.forgot.notify_one();
    }

    fn owned_by(&self, number: u32, slots: &Reply) -> Option<Owned> {
        let members = self.members.lock();
        let (location, _) = members.numbered(number)?;
        let own = SlotMap::read(slots, location)?.owned_by(location);
        // It may call itself otherwise than the others call it.
        Some(if own.ranges.is_empty() { members.map.owned_by(location) } else { own })
    }

    fn redirected(&self, number: u32, id: &LeaseId, fault: &Fault) -> bool {
        let made = self.members.lock().redirect(number, id, fault, &self.kit);
        let is_done = made.is_some();
        self.attend(made.flatten());
        is_done
    }
}

const NONE_SHARDED: &str = "it has no sharded channels, which Redis 7 introduced, or this user may not ask about them \
                            (PUBSUB SHARDNUMSUB): `pubsub` must not be `Sharded`";
