//! One slot of a cluster, as the locks in it see the cluster: it is on another master from one moment to the next.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::cluster::Cluster;
use crate::clock::Timestamp;
use crate::error::{Fault, Redirect};
use crate::key::LeaseId;
use crate::node::{Effect, Form, Generation, Node, PendingRelease, Sent, Standing, member_of};
use crate::script::Call;

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
            let owing = self.cluster.find_node(|node| node.owes(id));
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
            // Behind the runtime's end no wait takes any time.
            if next_at >= until || self.is_stopped() {
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
