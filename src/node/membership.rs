//! What a node of a cluster reports to the cluster that it is a part of.

use std::sync::Weak;
use std::sync::atomic::Ordering;

use super::link::Generation;
use super::{Farewell, Node, Owned, PendingRelease, Standing, handshake};
use crate::error::{Fault, Redirect};
use crate::key::LeaseId;
use crate::script::Reply;

/// The cluster, as its nodes see it.
pub(crate) trait Reports: Send + Sync {
    /// The server of node `number` says that a slot is elsewhere.
    fn moved(&self, number: u32, redirect: &Redirect);

    /// A server is out of reach, or says that the cluster is not in order: slots may have other owners soon.
    fn troubled(&self);

    /// A server may have forgotten leases.
    fn forgot(&self);

    /// Returns the slots of node `number` by its own answer to CLUSTER SLOTS. `None` if that is not understood.
    fn owned_by(&self, number: u32, slots: &Reply) -> Option<Owned>;

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

    /// Returns the last run of its server, and how grants in a slot stand there; `None` if it is not known that it has it.
    pub(crate) fn standing(&self, slot: u16) -> (u64, Option<Standing>) {
        let quarantine = self.shared.quarantine.lock();
        (quarantine.run, quarantine.tenure.of(slot))
    }

    /// Returns true if its server is known to own these slots, or if that does not matter.
    pub(crate) fn has_noted(&self, ranges: &[(u16, u16)]) -> bool {
        let quarantine = self.shared.quarantine.lock();
        !quarantine.is_on() || quarantine.tenure.ranges() == ranges
    }

    /// Returns true if nobody else asks the server about its slots now. The caller is to do so.
    pub(crate) fn begins_to_note(&self) -> bool {
        !self.shared.is_noting.swap(true, Ordering::AcqRel)
    }

    /// Asks the server which slots it has, and since when. Returns true if it is known to have other slots now than before.
    pub(crate) async fn note_slots(&self) -> bool {
        let slots = || self.shared.quarantine.lock().tenure.ranges();
        let before = slots();
        let noted = handshake::note_slots(&self.shared).await;
        self.shared.is_noting.store(false, Ordering::Release);
        noted.is_ok() && slots() != before
    }

    /// Returns the reason why there is no connection, if there is none.
    pub(crate) fn check_connected(&self) -> Result<(), Fault> {
        self.shared.link.lock().state.connection().map(|_| ())
    }

    /// Returns true if there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        self.shared.link.lock().state.is_up()
    }
}
