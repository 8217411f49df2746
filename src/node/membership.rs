//! What a node of a cluster reports to the cluster that it is a part of.

use std::sync::Weak;

use super::commands::Generation;
use super::tenure::Owned;
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
