//! One Redis deployment: a command connection that is made again when it breaks, and a hub of subscriptions.
//!
//! * Commands run in the order in which they were sent on one connection. A call that was sent on a broken connection
//!   may still run, late.
//! * Only releases cross connections. Pending releases are sent first on a new connection, after the old one was killed
//!   on the server, so that none of its commands can run after the release.
//! * Every call ends by its own deadline, whatever the connection does. If the server is silent for the response
//!   timeout, the connection is abandoned.

mod chart;
mod commands;
mod connection;
mod connector;
mod endpoint;
mod facts;
mod farewell;
mod greeting;
mod guide;
mod halves;
mod handshake;
mod hub;
mod info;
mod last_connection;
mod link;
mod mailbox;
mod masters;
mod member;
mod membership;
mod past;
mod pending;
mod predecessors;
mod quarantine;
mod refusal;
mod releases;
mod sentinel;
mod server_time;
mod servers;
mod shared;
mod silence;
mod status;
mod supervisor;
mod target;
mod tenure;
mod wire;
mod witness;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

pub(crate) use chart::Chart;
pub(crate) use commands::Generation;
pub(crate) use connection::Sent;
#[cfg(feature = "__test-seam")]
pub use connector::{Connecting, command_config};
pub use connector::{Connector, Network};
pub(crate) use facts::{ClusterFacts, Facts, FailoverFacts, Fence};
pub(crate) use farewell::Farewell;
pub(crate) use hub::{Signal, Subscription};
pub use mailbox::Epoch;
pub(crate) use mailbox::{Demand, Inbox, Letter, Mailbox, MailedGrant, Registration};
pub(crate) use membership::{Membership, Reports, member_of};
pub(crate) use pending::{Detour, FirstWord, PendingRelease};
pub(crate) use quarantine::Source;
pub(crate) use sentinel::NamedMasters;
#[cfg(test)]
pub(crate) use sentinel::WatchFacts;
pub(crate) use server_time::ServerTime;
pub(crate) use servers::Servers;
pub use status::{NodeState, NodeStatus};
pub(crate) use supervisor::First;
pub(crate) use tenure::{Owned, Standing};
pub(crate) use wire::{Effect, Form};

use crate::clock::{Clock, Timestamp};
use crate::config::{Config, Place};
use crate::error::{Error, Fault};
use crate::events::Events;
use crate::key::LeaseId;
use crate::script::{Call, Reply};
use endpoint::Endpoint;
use greeting::Greeting;
use guide::Guide;
use hub::Hub;
use link::LinkState;
use pending::Sending;
use sentinel::Sentinels;
use shared::Shared;
use supervisor::Supervisor;
use target::Dial;
use witness::Synced;

/// One Redis deployment. Clones are the same.
#[derive(Clone)]
pub(crate) struct Node {
    shared: Arc<Shared>,
}

/// What the nodes of one client have in common.
#[derive(Clone, Copy)]
pub(crate) struct Common<'a> {
    pub(crate) network: Option<&'a Arc<dyn Network>>,
    pub(crate) config: &'a Config,
    pub(crate) clock: &'a Clock,
    pub(crate) tasks: &'a TaskTracker,
    pub(crate) events: &'a Arc<Events>,
    pub(crate) servers: Option<&'a Arc<Servers>>,
    /// The place of the node in its cluster.
    pub(crate) membership: Option<&'a Membership>,
    pub(crate) farewell: &'a Arc<Farewell>,
}

impl Node {
    /// Starts to keep a connection. The second value is the result of the first attempt, which lasts at most for the
    /// connect timeout. If it fails, only a node of several keeps trying.
    pub(crate) fn start(place: &Place, common: &Common<'_>) -> Result<(Self, First), Error> {
        let Common { network, config, clock, tasks, events, servers, .. } = *common;
        let Common { membership, farewell, .. } = *common;
        let dial = Dial::of(network, config);
        let limits = [config.response_timeout, config.connect_timeout];
        let failed = |fault| Error::from_fault(place.name(), None, fault, clock);
        let guide = match place {
            Place::At(address) => Guide::Fixed(Arc::new(dial.target(address).map_err(failed)?)),
            Place::Watched(watched) => Guide::Sentinels(
                Sentinels::start(watched, dial, clock, limits, tasks).map_err(failed)?,
            ),
        };
        let greeting = Greeting::of(place.server(), &config.name);
        let name = place.name().clone();
        let synced = (config.synced > 0)
            .then(|| Synced { replicas: config.synced, within: config.sync_timeout() });
        let endpoint = Endpoint::new(name, guide, greeting, clock.clone(), limits, synced);
        let endpoint = Arc::new(endpoint);
        let is_sharded = membership.is_some_and(|membership| membership.is_sharded);
        let mailbox = Mailbox::new(&config.name, clock.nonce());
        let hub = Hub::start(endpoint.clone(), mailbox, is_sharded, tasks);
        let (left, received) = mpsc::unbounded_channel();
        let (servers, membership) = (servers.cloned(), membership.cloned());
        let (quarantine, patience) = (config.quarantine(), farewell.patience.clone());
        let shared = Shared::new(endpoint, servers, membership, quarantine, left, hub, patience);
        let shared = Arc::new(shared);
        farewell.join(&shared);
        let first = Supervisor::start(&shared, received, events, farewell, tasks);
        Ok((Self { shared }, first))
    }

    /// Returns the server's address, without credentials, or the node's name if its server is not known yet.
    pub(crate) fn address(&self) -> Arc<str> {
        self.shared.endpoint.address()
    }

    /// Sends a call after all that were sent before. Does not wait.
    pub(crate) fn send(&self, call: &Call, form: Form) -> Result<Sent, Fault> {
        if let Some(fault) = self.shared.holds_back() {
            return Err(fault);
        }
        // Read before the call is sent: the answer then comes after that subscription was confirmed.
        let epoch = self.mailbox().epoch();
        let mut sent = self.shared.link.lock().state.connection()?.send(call, form);
        sent.epoch = epoch;
        Ok(sent)
    }

    /// Processes what an answer says about the connection that it came on.
    pub(crate) fn note_answer(&self, generation: Generation, answer: &Result<Reply, Fault>) {
        self.shared.note_answer(generation, answer);
    }

    /// Processes that a call was not answered from `sent_at` until `due_at`, which was not long ago.
    pub(crate) fn unanswered(&self, generation: Generation, sent_at: Timestamp, due_at: Timestamp) {
        self.shared.unanswered(generation, sent_at, due_at);
    }

    /// Leaves a release to the supervisor, which sends it until it has reached the server, on this connection or a
    /// later one. `sent` is its first sending, if there was one. Returns false if the supervisor had nothing left to do and is gone.
    pub(crate) fn leave_release(
        &self,
        id: LeaseId,
        mut release: PendingRelease,
        sent: Option<Sent>,
    ) -> bool {
        let mut link = self.shared.link.lock();
        let has_ended = matches!(link.state, LinkState::Ended) && !self.is_stopped();
        let sending = link.state.connection().ok().map(|up| match sent {
            Some(sent) if sent.generation == up.generation => {
                Sending { sent, form: release.form(), first: None }
            }
            // Nobody waits for what was sent on a connection that was given up.
            _ => release.send(up, release.form()),
        });
        link.pending.insert(id.clone(), release);
        if let Some(sending) = sending {
            // Fails if the supervisor is gone, and with it the runtime: then only a farewell can send it.
            let _ = self.shared.left.send((id, sending));
        }
        !has_ended
    }

    /// If the nodes' runtime is gone, sends their pending releases, and waits for the answers within limits.
    pub(crate) fn say_farewell(nodes: &[Self]) {
        if let [first, ..] = nodes
            && first.shared.endpoint.clock.is_stopped()
        {
            farewell::send_pending(nodes.iter().map(|node| &node.shared), &first.shared.patience);
        }
    }

    /// Waits until no release is pending. If `others` can make up for this node, it does not wait without a connection.
    pub(crate) async fn all_released(&self, others: bool) {
        loop {
            let mut next = std::pin::pin!(self.shared.released.notified());
            next.as_mut().enable();
            {
                let link = self.shared.link.lock();
                if link.pending.is_empty() || (others && !link.state.is_up()) {
                    return;
                }
            }
            next.await;
        }
    }

    /// Waits, until `until`, for a release that is pending. Returns true once it is not.
    pub(crate) async fn released(&self, id: &LeaseId, until: Timestamp) -> bool {
        let released = async {
            loop {
                let mut next = std::pin::pin!(self.shared.released.notified());
                next.as_mut().enable();
                {
                    let link = self.shared.link.lock();
                    if !link.pending.contains_key(id) {
                        return true;
                    }
                    if matches!(link.state, LinkState::Ended) {
                        return false;
                    }
                }
                next.await;
            }
        };
        self.shared.endpoint.clock.until(until, released).await.unwrap_or(false)
    }

    /// Waits until the server may have forgotten leases. Only one caller waits at a time.
    pub(crate) async fn forgets(&self) {
        self.shared.forgot.notified().await;
    }

    /// Waits for a connection on which calls are not refused. Returns the reason if there is none by `until`.
    pub(crate) async fn up(&self, until: Timestamp) -> Result<(), Fault> {
        let clock = &self.shared.endpoint.clock;
        let mut generation = self.shared.generation.subscribe();
        let mut over = self.shared.refusal.over();
        loop {
            generation.mark_unchanged();
            over.mark_unchanged();
            let is_up = self.shared.link.lock().state.connection().map(|_| ());
            let refused = self.shared.refusal.until(clock.now());
            let next_at = match (is_up, refused) {
                (Ok(()), None) => return Ok(()),
                (Ok(()), Some((fault, _))) if clock.now() >= until => return Err(fault),
                (Ok(()), Some((_, ask_at))) => ask_at.min(until),
                (Err(fault), _) if !fault.may_pass() => return Err(fault),
                (Err(_), _) => until,
            };
            let changed = async {
                tokio::select! {
                    _ = generation.changed() => {}
                    _ = over.changed() => {}
                }
            };
            let changed = clock.until(next_at, changed).await;
            if changed.is_none() && (next_at == until || clock.is_stopped()) {
                let is_up = self.shared.link.lock().state.connection().map(|_| ());
                let refused = self.shared.refusal.until(clock.now());
                return is_up.and(refused.map_or(Ok(()), |(fault, _)| Err(fault)));
            }
        }
    }

    /// The server says that its cluster is in order.
    pub(crate) fn serves(&self) {
        self.shared.refusal.end();
    }

    /// Listens on a lock's channel.
    pub(crate) fn subscribe(&self, channel: &Arc<str>) -> Subscription {
        self.shared.hub.subscribe(channel)
    }

    /// Returns the mailbox, in which the server writes to this client about its queued requests.
    pub(crate) fn mailbox(&self) -> &Mailbox {
        self.shared.hub.mailbox()
    }

    /// Subscribes to the mailbox, unless that was done before. Does not wait: a [`Letter::Subscribed`] follows.
    pub(crate) fn open_mailbox(&self) {
        self.shared.hub.open_mailbox();
    }

    /// Remembers a reading of the server's clock, for [`not_before`](Self::not_before).
    pub(crate) fn note_server_time(&self, read: ServerTime) {
        let mut latest = self.shared.server_time.lock();
        if latest.is_none_or(|latest| latest.sent_at <= read.sent_at) {
            *latest = Some(read);
        }
    }

    /// Returns a time at or before the moment of a grant that arrived in the mailbox. `None` if the server's clock was
    /// not read on the present connection since the subscription that delivered the grant was confirmed.
    pub(crate) fn not_before(&self, grant: &MailedGrant) -> Option<Timestamp> {
        let generation = self.shared.link.lock().state.connection().ok()?.generation;
        let read = (*self.shared.server_time.lock())?;
        read.is_of(generation, grant.epoch).then(|| read.not_before(grant.server_us))
    }

    /// Returns the smoothed time of a round trip, or zero before the first.
    pub(crate) fn round_trip(&self) -> Duration {
        self.shared.round_trip()
    }

    /// Remembers how long a call took that was answered at `now`.
    pub(crate) fn note_round_trip(&self, sent_at: Timestamp, now: Timestamp) {
        self.shared.note_round_trip(now.since(sent_at));
    }

    pub(crate) fn connections_made(&self) -> u64 {
        self.shared.endpoint.connections_made.load(Ordering::Relaxed)
    }

    /// Returns the reason why the answer to an acquire that is sent at `now` would not count, if there is one.
    pub(crate) fn bar(&self, now: Timestamp) -> Option<Fault> {
        let (counts_from, fault) = match self.shared.link.lock().state.connection() {
            Ok(connection) => (connection.counts_from, None),
            Err(fault) => (self.counts_from(), Some(fault)),
        };
        let left = counts_from.since(now);
        let is_final = matches!(fault, Some(Fault::OtherMasters(_)));
        if left.is_zero() || is_final { fault } else { Some(Fault::Quarantined(left)) }
    }

    /// Returns the time from which on its grants count, as far as the client knows.
    pub(crate) fn counts_from(&self) -> Timestamp {
        self.shared.quarantine.lock().until
    }

    /// Returns what is above all tokens that were granted before the present run of its server, or before its present
    /// history; zero if that is not known.
    pub(crate) fn tokens_from(&self) -> u64 {
        self.shared.quarantine.lock().tokens_from
    }

    /// Returns the last run of its server that the client met.
    pub(crate) fn source(&self) -> Source {
        Source { member: self.number(), run: self.shared.quarantine.lock().run }
    }

    /// Returns true if a lease that this run of its server does not have may be put back at `now`; in a cluster, a lease in
    /// this slot.
    pub(crate) fn reclaims(&self, run: u64, slot: Option<u16>, now: Timestamp) -> bool {
        self.shared.quarantine.lock().reclaims(run, slot, now)
    }

    /// Returns true if a grant of its server counts only if the server confirms afterwards that it is still the same.
    pub(crate) fn checks_grants(&self) -> bool {
        self.shared.quarantine.lock().is_on()
    }

    pub(crate) fn status(&self) -> NodeStatus {
        status::of(&self.shared)
    }

    /// Returns the number of releases that the server has not confirmed for good.
    pub(crate) fn pending_releases(&self) -> usize {
        self.shared.link.lock().pending.len()
    }

    /// Returns the number of locks' channels that are listened to.
    pub(crate) fn subscriptions(&self) -> usize {
        self.shared.hub.len()
    }

    /// Asks the server for everything that bears on the promises of a lock.
    pub(crate) async fn facts(&self, limit: Duration) -> Result<Facts, Fault> {
        let commands = self.shared.link.lock().state.connection()?.commands.clone();
        facts::ask(&self.shared, &commands, limit).await
    }

    /// Ends the node's tasks, as soon as no release is pending whose lease may still exist.
    pub(crate) fn close(&self) {
        self.shared.closing.cancel();
        self.shared.hub.closing().cancel();
    }
}

#[cfg(test)]
mod tests;
