//! A Redis Cluster: locks are spread over its masters by slots, which may move from one to another at any time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::members::{Kit, Made, Members};
use super::slots::{Location, SlotMap, tag_of};
use super::survey::Surveyor;
use crate::clock::Timestamp;
use crate::config::{Address, AddressMap, PubSub};
use crate::error::{Fault, Redirect};
use crate::key::LeaseId;
use crate::node::{
    Common, First, Form, Generation, Node, NodeStatus, PendingRelease, Reports, Sent, member_of,
};
use crate::script::Call;

/// A cluster as one client knows it.
pub(crate) struct Cluster {
    pub(super) seeds: Vec<Address>,
    pub(super) kit: Kit,
    pub(super) members: Mutex<Members>,
    /// Releases are told on sharded channels: decided once, by the user or as Redisson does.
    is_sharded: OnceLock<bool>,
    /// Counts the maps that differ from the one before.
    changed: watch::Sender<u64>,
    /// Wakes the surveyor: the map may be out of date.
    pub(super) doubt: Notify,
    /// Notified when a server may have forgotten leases, or has got locks from another.
    forgot: Notify,
    /// How many wait for the owner of a slot to change.
    waiting: AtomicUsize,
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
                    translation,
                    network: common.network.cloned(),
                    config: Arc::new(common.config.clone()),
                    clock: common.clock.clone(),
                    tasks: common.tasks.clone(),
                    events: common.events.clone(),
                    farewell: Arc::downgrade(common.farewell),
                },
                members: Mutex::new(Members::new(template, reports)),
                is_sharded: OnceLock::new(),
                changed: watch::Sender::new(0),
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

    /// Looks after a node that was made just now: holders ask it at once what it has.
    pub(super) fn attend(&self, made: Made) {
        let (Some(first), Some(cluster)) = (made, self.this.upgrade()) else { return };
        let attend = async move {
            match first.await {
                Ok(Ok(())) => cluster.forgot.notify_one(),
                _ => cluster.doubt.notify_one(),
            }
        };
        self.kit.tasks.spawn_on(attend, self.kit.clock.runtime());
    }

    fn owner(&self, slot: u16) -> Result<Node, Fault> {
        let (node, made) = self.members.lock().owner(slot, &self.kit)?;
        self.attend(made);
        Ok(node)
    }

    pub(super) fn nodes(&self) -> Vec<Node> {
        self.members.lock().all().map(|(_, node)| node.clone()).collect()
    }

    /// Returns the status of each master, and of each node that still owes a release.
    pub(super) fn status(&self) -> Vec<NodeStatus> {
        let members = self.members.lock();
        let masters = members.map.masters();
        let unused = masters.iter().filter(|location| members.get(location).is_none());
        let unused = unused
            .map(|location| NodeStatus::unused(members.address_of(location, &self.kit).shown));
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
            let pending = self.nodes().into_iter().find(|node| node.pending_releases() > 0);
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

    /// Returns true if a master that is in use has no connection.
    pub(super) fn misses_a_master(&self) -> bool {
        let members = self.members.lock();
        let masters = members.map.masters();
        members.all().any(|(location, node)| !node.is_up() && masters.contains(location))
    }

    /// Takes in a newer map of the slots.
    pub(super) fn adopt(&self, map: &SlotMap) {
        let mut members = self.members.lock();
        let has_changed = members.map.renew(map);
        let made = members.hand_over(&self.kit);
        members.drop_unused(&self.kit);
        drop(members);
        for first in made {
            self.attend(Some(first));
        }
        if has_changed {
            self.tell_change();
            // Holders learn at once whether the new owners have their leases.
            self.forgot.notify_one();
        }
    }

    fn tell_change(&self) {
        self.changed.send_modify(|count| *count += 1);
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

    fn tag_at(&self, number: u32) -> Option<String> {
        let members = self.members.lock();
        let (location, _) = members.numbered(number)?;
        members.map.first_of(location).map(tag_of)
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

/// One slot of a cluster. Clones are the same.
#[derive(Clone)]
pub(crate) struct Slot {
    cluster: Arc<Cluster>,
    slot: u16,
}

impl Slot {
    pub(crate) fn of(cluster: &Arc<Cluster>, slot: u16) -> Self {
        Self { cluster: cluster.clone(), slot }
    }

    pub(super) fn node(&self) -> Result<Node, Fault> {
        self.cluster.owner(self.slot)
    }

    pub(super) fn address(&self) -> Arc<str> {
        let members = self.cluster.members.lock();
        match members.map.owner(self.slot) {
            Some(location) => members.address_of(location, &self.cluster.kit).shown,
            None => self.cluster.seeds[0].shown.clone(),
        }
    }

    pub(super) fn maker(&self, generation: Generation) -> Option<Node> {
        let members = self.cluster.members.lock();
        members.numbered(member_of(generation)).map(|(_, node)| node.clone())
    }

    pub(super) fn send(
        &self,
        call: &Call,
        form: Form,
        asked: Option<&Redirect>,
    ) -> Result<Sent, Fault> {
        let node = match asked {
            None => self.node()?,
            Some(Redirect { to, .. }) => {
                let (node, made) =
                    self.cluster.members.lock().asked(self.slot, to, &self.cluster.kit)?;
                self.cluster.attend(made);
                node
            }
        };
        node.send(call, form).map_err(|fault| match fault {
            // The node has just left the cluster; the client has not ended.
            Fault::Closed if !self.is_stopped() => Fault::Down("it left the cluster".into()),
            fault => fault,
        })
    }

    pub(super) fn leave_release(&self, id: LeaseId, release: PendingRelease, sent: Option<Sent>) {
        let Cluster { members, kit, .. } = &*self.cluster;
        let made = members.lock().leave(self.slot, id, release, sent, kit);
        self.cluster.attend(made);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.cluster.kit.clock.is_stopped()
    }

    pub(super) fn all_nodes(&self) -> Vec<Node> {
        self.cluster.nodes()
    }

    pub(super) async fn released(&self, id: &LeaseId, until: Timestamp) -> bool {
        loop {
            let owing = self.cluster.nodes().into_iter().find(|node| node.owes(id));
            let Some(node) = owing else { return true };
            // It may have been handed over to another node.
            if !node.released(id, until).await {
                return false;
            }
        }
    }

    pub(super) async fn up(&self, until: Timestamp) -> Result<(), Fault> {
        let mut changed = self.cluster.changed.subscribe();
        let clock = &self.cluster.kit.clock;
        loop {
            changed.mark_unchanged();
            let node = match self.node() {
                Ok(node) => node,
                Err(fault) => {
                    if clock.until(until, changed.changed()).await.is_none() {
                        return Err(fault);
                    }
                    continue;
                }
            };
            tokio::select! {
                biased;
                up = node.up(until) => match up {
                    // The node has just left the cluster.
                    Err(Fault::Closed) if !clock.is_stopped() && clock.now() < until => {
                        tokio::task::yield_now().await;
                    }
                    up => return up,
                },
                // The slot may have another owner, which is connected.
                _ = changed.changed() => {}
            }
        }
    }

    pub(super) async fn moved_from(&self, member: u32) {
        let _watched = Watched::new(&self.cluster);
        let mut changed = self.cluster.changed.subscribe();
        loop {
            changed.mark_unchanged();
            if self.node().is_ok_and(|node| node.number() != member) {
                return;
            }
            // The sender lives as long as the cluster.
            let _ = changed.changed().await;
        }
    }
}

/// One who waits for the owner of a slot to change. Then the map is looked at more often.
struct Watched<'a>(&'a Cluster);

impl<'a> Watched<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        cluster.waiting.fetch_add(1, Ordering::SeqCst);
        if cluster.is_slow.swap(false, Ordering::SeqCst) {
            cluster.watched.notify_one();
        }
        Self(cluster)
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::config::Config;

    impl Slot {
        /// Returns a slot of a cluster that is never found.
        pub(crate) fn unconnected(clock: &Clock) -> Self {
            let common = Common {
                network: Some(&Node::nowhere()),
                config: &Config::default(),
                clock,
                tasks: &Default::default(),
                events: &Arc::default(),
                servers: None,
                membership: None,
                farewell: &Arc::default(),
            };
            let seed = Address::parse("redis://nowhere:6379").expect("a valid URL");
            let (cluster, _) = Cluster::start(vec![seed], None, &common).expect("there is a seed");
            Self::of(&cluster, 1)
        }
    }
}
