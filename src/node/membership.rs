//! What a node of a cluster reports to the cluster that it is a part of.

use std::sync::Weak;

use super::link::Generation;
use super::{Farewell, Node, PendingRelease};
use crate::error::{Fault, Redirect};
use crate::key::LeaseId;

/// The cluster, as its nodes see it.
pub(crate) trait Reports: Send + Sync {
    /// The server of node `number` says that a slot is elsewhere.
    fn moved(&self, number: u32, redirect: &Redirect);

    /// A server is out of reach, or says that the cluster is not in order: slots may have other owners soon.
    fn troubled(&self);

    /// A server may have forgotten leases.
    fn forgot(&self);

    /// Returns a hash tag whose slot node `number` owns: the same in all clients, as long as they know the same owners.
    /// `None` if it owns none.
    fn tag_at(&self, number: u32) -> Option<String>;

    /// The release `id`, which is pending at node `number`, was redirected by `fault`. Returns false if it is still
    /// pending there.
    fn redirected(&self, number: u32, id: &LeaseId, fault: &Fault) -> bool;
}

/// A node's place in its cluster.
#[derive(Clone)]
pub(crate) struct Membership {
    /// No other node that this client ever had has it. The first is 1.
    pub(crate) number: u32,
    /// Its hub listens to the sharded channels of locks.
    pub(crate) is_sharded: bool,
    pub(crate) cluster: Weak<dyn Reports>,
}

impl Membership {
    /// Returns what the cluster answers. Without a cluster the client is gone.
    pub(super) fn report<T>(&self, report: impl FnOnce(&dyn Reports) -> T) -> Option<T> {
        self.cluster.upgrade().map(|cluster| report(&*cluster))
    }

    /// Returns the number before that of the node's first connection.
    pub(super) fn first_generation(&self) -> Generation {
        u64::from(self.number) << 32
    }
}

/// Returns the number of the node of a cluster that made this connection.
pub(crate) fn member_of(generation: Generation) -> u32 {
    (generation >> 32) as u32
}

/// What only a cluster asks of its nodes.
impl Node {
    /// Returns true if a release of `id` is pending.
    pub(crate) fn owes(&self, id: &LeaseId) -> bool {
        self.shared.link.lock().pending.contains_key(id)
    }

    /// Takes a release over that is pending here.
    pub(crate) fn take_release(&self, id: &LeaseId) -> Option<PendingRelease> {
        let release = self.shared.link.lock().pending.remove(id)?;
        self.shared.released.notify_waiters();
        Some(release)
    }

    /// Takes over the releases that are pending here and meet the condition.
    pub(crate) fn take_releases(
        &self,
        condition: impl Fn(&PendingRelease) -> bool,
    ) -> Vec<(LeaseId, PendingRelease)> {
        let mut link = self.shared.link.lock();
        let ids = link.pending.iter().filter(|(_, release)| condition(release));
        let ids: Vec<LeaseId> = ids.map(|(id, _)| id.clone()).collect();
        let taken: Vec<_> =
            ids.into_iter().filter_map(|id| link.pending.remove_entry(&id)).collect();
        drop(link);
        if !taken.is_empty() {
            self.shared.released.notify_waiters();
        }
        taken
    }

    /// The client's end does not concern it any more.
    pub(crate) fn leave_farewell(&self, farewell: &Farewell) {
        farewell.leave(&self.shared);
    }

    /// Returns true if the client's runtime is gone.
    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.endpoint.clock.is_stopped()
    }

    /// Returns its number in its cluster.
    pub(crate) fn number(&self) -> u32 {
        self.shared.membership.as_ref().map_or(0, |membership| membership.number)
    }

    /// Returns true if there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        self.shared.link.lock().state.is_up()
    }
}
