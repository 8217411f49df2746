//! The servers of a client: nodes that are always the same, or the masters of a cluster, between which locks move.
//!
//! A lock lives at a [`Site`]: at a node, or at the slot of a cluster, which is looked up at each use.

mod cluster;
mod members;
mod path;
mod slot;
mod slots;
mod survey;
mod translation;

use std::sync::Arc;
use std::task::Poll;

pub(crate) use cluster::Cluster;
pub(crate) use path::{Path, Step};
pub(crate) use slot::Slot;
pub(crate) use slots::slot_of;

use crate::clock::Timestamp;
use crate::error::Fault;
use crate::key::{self, LeaseId};
use crate::node::{
    Form, Generation, Node, NodeStatus, PendingRelease, Sent, ServerTime, Subscription,
};
use crate::script::{Call, Reply};

/// All servers of a client. Clones are the same.
#[derive(Clone)]
pub(crate) enum Fleet {
    /// Each lock is on all of them.
    Nodes(Arc<[Node]>),
    /// Each lock is on the node that owns its slot.
    Cluster(Arc<Cluster>),
}

impl Fleet {
    /// Returns the nodes that there are now.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        match self {
            Self::Nodes(nodes) => nodes.to_vec(),
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// Returns the number of connections that were made so far.
    pub(crate) fn connections_made(&self) -> u64 {
        match self {
            Self::Nodes(nodes) => nodes.iter().map(Node::connections_made).sum(),
            Self::Cluster(cluster) => cluster.connections_made(),
        }
    }

    /// Returns the status of every server that is known.
    pub(crate) fn status(&self) -> Vec<NodeStatus> {
        match self {
            Self::Nodes(nodes) => nodes.iter().map(Node::status).collect(),
            Self::Cluster(cluster) => cluster.status(),
        }
    }

    /// Returns true if locks can be taken now, as far as the client knows: so many servers are connected as must be, and
    /// their grants count.
    pub(crate) fn is_ready(&self, now: Timestamp) -> bool {
        match self {
            Self::Nodes(nodes) => {
                let bars: Vec<Fault> = nodes.iter().filter_map(|node| node.bar(now)).collect();
                bars.len() < nodes.len().div_ceil(2)
                    && !bars.iter().any(|fault| matches!(fault, Fault::OtherMasters(_)))
            }
            // A master that no lock was on yet has no connection, and may get one at any time. A server that has lost its
            // slots does not matter.
            Self::Cluster(cluster) => {
                let masters = cluster.used_masters();
                cluster.is_covered() && masters.iter().all(|node| node.bar(now).is_none())
            }
        }
    }

    /// Waits until some server may have forgotten leases. For one who waits; nothing is lost by dropping the future.
    pub(crate) async fn forgets(&self) {
        let nodes = match self {
            Self::Cluster(cluster) => return cluster.forgets().await,
            Self::Nodes(nodes) => nodes,
        };
        if let [node] = &**nodes {
            return node.forgets().await;
        }
        let mut any: Vec<_> = nodes.iter().map(|node| Box::pin(node.forgets())).collect();
        std::future::poll_fn(|cx| {
            // All of them: each must be waited for.
            let polls = any.iter_mut().map(|one| one.as_mut().poll(cx));
            polls.fold(Poll::Pending, |before, now| if now.is_ready() { now } else { before })
        })
        .await;
    }

    /// Returns true if locks' channels are sharded ones.
    pub(crate) fn is_sharded(&self) -> bool {
        match self {
            Self::Nodes(_) => false,
            Self::Cluster(cluster) => cluster.is_sharded(),
        }
    }

    /// Returns the reason why `name` cannot name a lock here.
    pub(crate) fn name_problem(&self, name: &str) -> Option<&'static str> {
        let Self::Cluster(_) = self else { return None };
        let is_split = slot_of(name) != slot_of(&key::token_key(name, false));
        is_split.then_some("a cluster would split it: braces must enclose a part of the name")
    }

    /// Returns the reason why what is called `name` cannot have its messages on `channel` here.
    pub(crate) fn channel_problem(&self, name: &str, channel: &str) -> Option<&'static str> {
        let Self::Cluster(_) = self else { return None };
        let is_split = slot_of(name) != slot_of(channel);
        is_split.then_some("with braces in it, a cluster would have its channel in another slot")
    }

    /// Waits until no release is pending. Of several nodes it does not wait for those that have no connection.
    pub(crate) async fn all_released(&self) {
        match self {
            Self::Nodes(nodes) => {
                let others = nodes.len() > 1;
                let released = nodes.iter().map(|node| node.all_released(others));
                futures_util::future::join_all(released).await;
            }
            Self::Cluster(cluster) => cluster.all_released().await,
        }
    }

    /// Ends the tasks, as soon as no release is pending whose lease may still exist.
    pub(crate) fn close(&self) {
        match self {
            Self::Nodes(nodes) => nodes.iter().for_each(Node::close),
            Self::Cluster(cluster) => cluster.close(),
        }
    }
}

/// Where a lock lives. Clones are the same.
#[derive(Clone)]
pub(crate) enum Site {
    Node(Node),
    Slot(Slot),
}

impl Site {
    /// Returns the address of the server that has the lock now, without credentials.
    pub(crate) fn address(&self) -> Arc<str> {
        match self {
            Self::Node(node) => node.address().clone(),
            Self::Slot(slot) => slot.address(),
        }
    }

    /// Returns the node that has the lock now; `None` if no node of the cluster owns its slot.
    pub(crate) fn node(&self) -> Option<Node> {
        match self {
            Self::Node(node) => Some(node.clone()),
            Self::Slot(slot) => slot.node().ok(),
        }
    }

    fn on_node<T>(&self, ask: impl FnOnce(&Node) -> T) -> Result<T, Fault> {
        match self {
            Self::Node(node) => Ok(ask(node)),
            Self::Slot(slot) => slot.node().map(|node| ask(&node)),
        }
    }

    /// Runs `note` on the node that made this connection, if it is still there.
    fn on_maker(&self, generation: Generation, note: impl FnOnce(&Node)) {
        match self {
            Self::Node(node) => note(node),
            Self::Slot(slot) => {
                if let Some(node) = slot.maker(generation) {
                    note(&node);
                }
            }
        }
    }

    /// Sends a call with the script's text.
    pub(crate) fn send_whole(&self, call: &Call) -> Result<Sent, Fault> {
        self.send_as(call, Form::WHOLE)
    }

    /// Like [`send_whole`](Self::send_whole), for a call that counts only once enough replicas have what it wrote.
    pub(crate) fn send_durable_whole(&self, call: &Call) -> Result<Sent, Fault> {
        self.send_as(call, Form { whole: true, ..Form::DURABLE })
    }

    /// Sends a call after all that were sent before. Does not wait.
    pub(crate) fn send_as(&self, call: &Call, form: Form) -> Result<Sent, Fault> {
        match self {
            Self::Node(node) => node.send(call, form),
            Self::Slot(slot) => slot.send(call, form, None),
        }
    }

    /// Sends a call again that did not run, on the path on which it might.
    pub(crate) fn send_on(&self, call: &Call, path: &Path) -> Result<Sent, Fault> {
        match self {
            Self::Node(node) => node.send(call, path.form),
            Self::Slot(slot) => slot.send(call, path.form, path.asked.as_ref()),
        }
    }

    /// Returns what to do about a call that came to `fault` on `path`.
    pub(crate) fn after(&self, fault: &Fault, path: &Path, call: &Call) -> Step {
        match self {
            Self::Node(_) => path.after_on_node(fault),
            Self::Slot(_) => path.after_in_cluster(fault, call),
        }
    }

    /// Processes what an answer says about the connection that it came on.
    pub(crate) fn note_answer(&self, generation: Generation, answer: &Result<Reply, Fault>) {
        self.on_maker(generation, |node| node.note_answer(generation, answer));
    }

    /// Processes that a call was not answered from `sent_at` until `due_at`, which was not long ago.
    pub(crate) fn unanswered(&self, generation: Generation, sent_at: Timestamp, due_at: Timestamp) {
        self.on_maker(generation, |node| node.unanswered(generation, sent_at, due_at));
    }

    /// Remembers a reading of the server's clock.
    pub(crate) fn note_server_time(&self, read: ServerTime) {
        self.on_maker(read.generation, |node| node.note_server_time(read));
    }

    /// Remembers how long a call took that was answered at `now` on this connection.
    pub(crate) fn note_round_trip(
        &self,
        generation: Generation,
        sent_at: Timestamp,
        now: Timestamp,
    ) {
        self.on_maker(generation, |node| node.note_round_trip(sent_at, now));
    }

    /// Leaves a release to the node that has the lock, which sends it until it has reached the server. `sent` is its
    /// first sending, if there was one.
    pub(crate) fn leave_release(&self, id: LeaseId, release: PendingRelease, sent: Option<Sent>) {
        match self {
            // The node ends when nobody can leave anything any more, or with its runtime.
            Self::Node(node) => {
                node.leave_release(id, release, sent);
            }
            Self::Slot(slot) => slot.leave_release(id, release, sent),
        }
    }

    /// If the servers' runtime is gone, sends their pending releases, and waits for the answers within limits.
    pub(crate) fn say_farewell(sites: &[Self]) {
        // Looked at only then: nobody else pays for the list.
        if let [first, ..] = sites
            && first.is_stopped()
        {
            let nodes: Vec<Node> = sites.iter().flat_map(Self::nodes).collect();
            Node::say_farewell(&nodes);
        }
    }

    fn is_stopped(&self) -> bool {
        match self {
            Self::Node(node) => node.is_stopped(),
            Self::Slot(slot) => slot.is_stopped(),
        }
    }

    fn nodes(&self) -> Vec<Node> {
        match self {
            Self::Node(node) => vec![node.clone()],
            Self::Slot(slot) => slot.all_nodes(),
        }
    }

    /// Waits, until `until`, for a release that is pending. Returns true once it is not.
    pub(crate) async fn released(&self, id: &LeaseId, until: Timestamp) -> bool {
        match self {
            Self::Node(node) => node.released(id, until).await,
            Self::Slot(slot) => slot.released(id, until).await,
        }
    }

    /// Waits for a connection. Returns the reason if there is none by `until`.
    pub(crate) async fn up(&self, until: Timestamp) -> Result<(), Fault> {
        match self {
            Self::Node(node) => node.up(until).await,
            Self::Slot(slot) => slot.up(until).await,
        }
    }

    /// Waits until another node than number `member` has the lock. Dropping the future loses nothing.
    pub(crate) async fn moved_from(&self, member: u32) {
        match self {
            Self::Node(_) => std::future::pending().await,
            Self::Slot(slot) => slot.moved_from(member).await,
        }
    }

    /// Listens on a lock's channel, where messages on it are counted now.
    pub(crate) fn subscribe(&self, channel: &Arc<str>) -> Option<Subscription> {
        self.on_node(|node| node.subscribe(channel)).ok()
    }

    /// Returns the smoothed time of a round trip, or zero before the first.
    pub(crate) fn round_trip(&self) -> std::time::Duration {
        self.on_node(Node::round_trip).unwrap_or_default()
    }

    /// Returns the reason why the answer to an acquire that is sent at `now` would not count, if there is one.
    pub(crate) fn bar(&self, now: Timestamp) -> Option<Fault> {
        match self {
            Self::Node(node) => node.bar(now),
            Self::Slot(slot) => slot.bar(now),
        }
    }

    /// Returns true if a lease that the server behind this connection does not have in this run may be put back at `now`.
    pub(crate) fn reclaims(&self, generation: Generation, run: u64, now: Timestamp) -> bool {
        match self {
            Self::Node(node) => node.reclaims(run, None, now),
            Self::Slot(slot) => slot.reclaims(generation, run, now),
        }
    }

    /// Returns the time from which on its grants count, as far as the client knows.
    pub(crate) fn counts_from(&self) -> Timestamp {
        match self {
            Self::Node(node) => node.counts_from(),
            Self::Slot(slot) => slot.counts_from(),
        }
    }

    /// Returns what is above all tokens of before that its server may have forgotten.
    pub(crate) fn tokens_from(&self) -> u64 {
        match self {
            Self::Node(node) => node.tokens_from(),
            Self::Slot(slot) => slot.tokens_from(),
        }
    }
}

#[cfg(test)]
mod tests;
