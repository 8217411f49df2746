//! A Redis Cluster: locks are spread over its masters by slots, which may move from one to another at any time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::members::{Kit, Made, Members};
use super::slots::{Location, SlotMap};
use super::survey::Surveyor;
use super::translation::Translation;
use crate::clock::Timestamp;
use crate::config::{Address, AddressMap, PubSub};
use crate::error::{Fault, Redirect};
use crate::key::LeaseId;
use crate::node::{
    Common, Effect, First, Form, Generation, Node, NodeStatus, Owned, PendingRelease, Reports,
    Sent, Standing, member_of,
};
use crate::script::{Call, Reply};

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

    fn owner(&self, slot: u16) -> Result<Node, Fault> {
        let (node, made) = self.members.lock().owner(slot, &self.kit)?;
        self.attend(made);
        Ok(node)
    }

    pub(super) fn nodes(&self) -> Vec<Node> {
        self.members.lock().all().map(|(_, node)| node.clone()).collect()
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
        if is_news && !has_changed {
            self.tell_change();
        }
        if has_changed {
            self.note_slots();
            self.tell_change();
            // Holders learn at once whether the new owners have their leases.
            self.forgot.notify_one();
        }
    }

    /// The slots have other owners, which note since when they have them: those who come later are to wait for less long.
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
    fn note_slots_of(&self, node: Node) {
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

    pub(crate) fn number(&self) -> u16 {
        self.slot
    }

    pub(super) fn node(&self) -> Result<Node, Fault> {
        self.cluster.owner(self.slot)
    }

    pub(super) fn address(&self) -> Arc<str> {
        let members = self.cluster.members.lock();
        match members.map.owner(self.slot) {
            Some(location) => members.name_of(location, &self.cluster.kit),
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
        let counts = form.effect != Effect::None && !self.cluster.kit.config.quarantine().is_zero();
        let mut counts_from = None;
        let node = match asked {
            None => {
                let node = self.node()?;
                if counts {
                    counts_from = Some(self.standing(&node)?);
                }
                node
            }
            Some(Redirect { to, .. }) => {
                let (node, made) =
                    self.cluster.members.lock().asked(self.slot, to, &self.cluster.kit)?;
                self.cluster.attend(made);
                // Before the slot has come, nobody knows what comes with it.
                counts_from = counts.then_some((None, Timestamp::NEVER));
                node
            }
        };
        let mut sent = node.send(call, form).map_err(|fault| self.of_node(fault))?;
        if let Some((run, counts_from)) = counts_from {
            let is_same = run.is_none_or(|run| run == sent.run);
            let of_slot = if is_same { counts_from } else { Timestamp::NEVER };
            sent.counts_from = sent.counts_from.max(of_slot);
        }
        Ok(sent)
    }

    /// Returns the run of the node's server, and the time from which on its grants in this slot count. A fault if it is not
    /// known whether it has the slot; then it is asked.
    fn standing(&self, node: &Node) -> Result<(Option<u64>, Timestamp), Fault> {
        let (run, standing) = node.standing(self.slot);
        if let Some(Standing { counts_from, .. }) = standing {
            return Ok((Some(run), counts_from));
        }
        node.check_connected().map_err(|fault| self.of_node(fault))?;
        self.cluster.note_slots_of(node.clone());
        Err(Fault::Down("it has got the lock's slot just now".into()))
    }

    /// A node that has just left the cluster is closed. The client is not: another node gets the slot, or has it already.
    fn of_node(&self, fault: Fault) -> Fault {
        match fault {
            Fault::Closed if !self.is_stopped() => Fault::Down("it left the cluster".into()),
            fault => fault,
        }
    }

    /// Returns the reason why the answer to an acquire that is sent at `now` would not count, if there is one.
    pub(super) fn bar(&self, now: Timestamp) -> Option<Fault> {
        let node = match self.node() {
            Ok(node) => node,
            Err(fault) => return Some(fault),
        };
        if let Some(fault) = node.bar(now) {
            return Some(self.of_node(fault));
        }
        if self.cluster.kit.config.quarantine().is_zero() {
            return None;
        }
        let left = match self.standing(&node) {
            Ok((_, counts_from)) => counts_from.since(now),
            Err(fault) => return Some(fault),
        };
        (!left.is_zero()).then_some(Fault::Quarantined(left))
    }

    /// Returns the time from which on grants in this slot count, as far as the client knows.
    pub(super) fn counts_from(&self) -> Timestamp {
        let Ok(node) = self.node() else { return Timestamp::NEVER };
        let of_slot = node.standing(self.slot).1.map(|standing| standing.counts_from);
        node.counts_from().max(of_slot.unwrap_or_default())
    }

    /// Returns what is above all tokens of before that the server may have forgotten.
    pub(super) fn tokens_from(&self) -> u64 {
        let Ok(node) = self.node() else { return 0 };
        let of_slot = node.standing(self.slot).1.map(|standing| standing.tokens_from);
        of_slot.unwrap_or_else(|| node.tokens_from())
    }

    /// Returns true if a lease that the server behind this connection does not have in this run may be put back at `now`.
    pub(super) fn reclaims(&self, generation: Generation, run: u64, now: Timestamp) -> bool {
        self.maker(generation).is_some_and(|node| node.reclaims(run, Some(self.slot), now))
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
        let mut changed = self.cluster.kit.changed.subscribe();
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
                up = self.ready(&node, until) => match up {
                    // The node has just left the cluster.
                    Err(Fault::Closed) if !clock.is_stopped() && clock.now() < until => {
                        tokio::task::yield_now().await;
                    }
                    up => return up.map_err(|fault| self.of_node(fault)),
                },
                // The slot may have another owner, which is connected.
                _ = changed.changed() => {}
            }
        }
    }

    /// Waits for a connection of the node, and until it is known since when it has the slot.
    async fn ready(&self, node: &Node, until: Timestamp) -> Result<(), Fault> {
        node.up(until).await?;
        let clock = &self.cluster.kit.clock;
        if self.cluster.kit.config.quarantine().is_zero() {
            return Ok(());
        }
        while let Err(fault) = self.standing(node) {
            let next_at = clock.now().plus(NOTING);
            if next_at >= until {
                return Err(fault);
            }
            // A change is told when it is known, which ends this wait.
            clock.sleep_until(next_at).await;
        }
        Ok(())
    }

    pub(super) async fn moved_from(&self, member: u32) {
        let _watched = Watched::new(&self.cluster);
        let mut changed = self.cluster.kit.changed.subscribe();
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

/// How long a node is given to say which slots it has before it is asked again.
const NOTING: Duration = Duration::from_millis(50);

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
mod tests;
