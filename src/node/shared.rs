//! What a node, its supervisor and its farewell have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::commands::Generation;
use super::connection::Sent;
use super::endpoint::Endpoint;
use super::hub::Hub;
use super::last_connection::{LastConnection, Patience};
use super::link::{Link, LinkState};
use super::masters::Said;
use super::membership::{Membership, Reports};
use super::pending::Sending;
use super::quarantine::Quarantine;
use super::refusal::Refusal;
use super::server_time::ServerTime;
use super::servers::Servers;
use super::silence::Silence;
use crate::clock::Timestamp;
use crate::error::Fault;
use crate::key::LeaseId;
use crate::script::Reply;

pub(super) struct Shared {
    pub(super) endpoint: Arc<Endpoint>,
    /// Which servers the nodes of a quorum speak to, if the node is one of several.
    pub(super) servers: Option<Arc<Servers>>,
    /// Its place in a cluster, if it has one.
    pub(super) membership: Option<Membership>,
    pub(super) quarantine: Mutex<Quarantine>,
    /// The server did not take its mark when that was needed last.
    pub(super) mark_refused: AtomicBool,
    /// It did not since this user may not write it.
    pub(super) mark_denied: AtomicBool,
    /// What its servers have said about the list of the masters.
    pub(super) said: Arc<Said>,
    /// The server is being asked about its slots.
    pub(super) is_noting: AtomicBool,
    pub(super) link: Mutex<Link>,
    /// How many connections there have been: the newest one's generation. It changes when a connection is up.
    pub(super) generation: watch::Sender<Generation>,
    /// Wakes the supervisor when the connection was abandoned.
    pub(super) abandoned: Notify,
    /// Wakes those who wait for a pending release.
    pub(super) released: Notify,
    /// Notified when the server may have forgotten leases, because it restarted or is another one.
    pub(super) forgot: Notify,
    pub(super) silence: Arc<Silence>,
    /// Its cluster is down, if it is in one.
    pub(super) refusal: Refusal,
    /// Takes releases that were sent to the supervisor, which awaits the answers.
    pub(super) left: mpsc::UnboundedSender<(LeaseId, Sending)>,
    pub(super) closing: CancellationToken,
    /// The smoothed time of a round trip in nanoseconds; zero before the first.
    round_trip: AtomicU64,
    /// The latest reading of the server's clock.
    pub(super) server_time: Mutex<Option<ServerTime>>,
    /// Why the last attempt to connect failed, or why the last connection was abandoned.
    pub(super) last_fault: Mutex<Option<Fault>>,
    pub(super) hub: Hub,
    /// Sends pending releases after the runtime's end.
    pub(super) last_connection: Mutex<LastConnection>,
    /// The client's tasks are gone: whoever leaves a release must send it.
    pub(super) tasks_gone: AtomicBool,
    pub(super) patience: Arc<Patience>,
}

impl Shared {
    pub(super) fn new(
        endpoint: Arc<Endpoint>,
        servers: Option<Arc<Servers>>,
        membership: Option<Membership>,
        quarantine: Duration,
        left: mpsc::UnboundedSender<(LeaseId, Sending)>,
        hub: Hub,
        patience: Arc<Patience>,
    ) -> Self {
        let silence = Arc::new(Silence::new(endpoint.clock.clone()));
        let generation = membership.as_ref().map_or(0, Membership::first_generation);
        Self {
            endpoint,
            servers,
            membership,
            quarantine: Mutex::new(Quarantine::new(quarantine)),
            mark_refused: AtomicBool::new(false),
            mark_denied: AtomicBool::new(false),
            said: Arc::default(),
            is_noting: AtomicBool::new(false),
            link: Mutex::new(Link {
                state: LinkState::Down(Fault::Down("not connected yet".into())),
                pending: Default::default(),
                left: None,
            }),
            generation: watch::Sender::new(generation),
            abandoned: Notify::new(),
            released: Notify::new(),
            forgot: Notify::new(),
            silence,
            refusal: Refusal::new(),
            left,
            closing: CancellationToken::new(),
            round_trip: AtomicU64::new(0),
            server_time: Mutex::new(None),
            last_fault: Mutex::new(None),
            hub,
            last_connection: Mutex::default(),
            tasks_gone: AtomicBool::new(false),
            patience,
        }
    }

    /// Returns true if there has been a connection.
    pub(super) fn was_connected(&self) -> bool {
        let before = self.membership.as_ref().map_or(0, Membership::first_generation);
        *self.generation.borrow() > before
    }

    /// Returns why there is no connection.
    pub(super) fn why_down(&self) -> String {
        match &*self.last_fault.lock() {
            Some(Fault::Down(why) | Fault::OtherMasters(why)) => why.to_string(),
            Some(fault) => fault.to_string(),
            None => "the connection was abandoned".to_owned(),
        }
    }

    pub(super) async fn answer(&self, sent: &mut Sent, within: Duration) -> Result<Reply, Fault> {
        let sent_at = self.endpoint.clock.now();
        let answer = self.endpoint.clock.until(sent_at.plus(within), &mut *sent).await;
        match &answer {
            Some(answer) => self.note_answer(sent.generation, answer),
            None => self.unanswered(sent.generation, sent_at, sent_at.plus(within)),
        }
        answer.unwrap_or(Err(Fault::NoAnswer(within)))
    }

    /// Abandons the connection if the answer shows that it is of no use.
    pub(super) fn note_answer(&self, generation: Generation, answer: &Result<Reply, Fault>) {
        let answer = answer.as_ref().map_err(Fault::plain);
        match answer {
            Err(Fault::Broken(_)) => self.abandon(generation, "the connection broke"),
            Err(Fault::Refused(cause)) if cause.takes_no_writes() => {
                self.abandon(generation, &cause.to_string());
            }
            Err(fault @ Fault::Replaced) => self.abandon(generation, &fault.to_string()),
            Err(other @ Fault::OtherMasters(_)) => self.abandon_for(generation, other.clone()),
            _ => self.silence.heard(),
        }
        match answer {
            Ok(_) => self.refusal.end(),
            Err(Fault::Moved(to)) => self.report(|number, cluster| cluster.moved(number, to)),
            Err(fault) if fault.is_cluster_down() => {
                if self.membership.is_some() && fault.is_of_the_whole_cluster() {
                    self.refusal.begin(fault, self.endpoint.clock.now());
                }
                self.report(|_, cluster| cluster.troubled());
            }
            _ => {}
        }
    }

    /// Returns why a call is not sent now: the cluster is down, and another call has just asked whether it still is.
    pub(super) fn holds_back(&self) -> Option<Fault> {
        self.membership.as_ref()?;
        self.refusal.holds_back(&self.endpoint.clock)
    }

    /// The server may have forgotten leases: holders learn at once whether they still hold anything there.
    pub(super) fn forgot(&self) {
        self.forgot.notify_one();
        self.report(|_, cluster| cluster.forgot());
    }

    /// Tells the cluster something, with the number of this node, if it is in one.
    pub(super) fn report(&self, report: impl FnOnce(u32, &dyn Reports)) {
        if let Some(membership) = &self.membership {
            membership.report(|cluster| report(membership.number, cluster));
        }
    }

    /// Hands a pending release over to the node that `fault` names. Returns false if that is not possible now.
    pub(super) fn redirect(&self, id: &LeaseId, fault: &Fault) -> bool {
        let membership = self.membership.as_ref();
        membership.is_some_and(|it| {
            it.report(|cluster| cluster.redirected(it.number, id, fault)) == Some(true)
        })
    }

    /// A call that was sent at `sent_at` was not answered by `due_at`. If the server has answered nothing for the response
    /// timeout, the connection is abandoned. A server that is only slow goes on.
    pub(super) fn unanswered(&self, generation: Generation, sent_at: Timestamp, due_at: Timestamp) {
        let (now, most) = (self.endpoint.clock.now(), self.endpoint.response_timeout);
        if self.silence.lasts(sent_at, due_at, now, most) {
            self.abandon(generation, "the server does not answer");
        }
    }

    /// Takes a connection out of use. It is reported by the supervisor, because the caller may hold a mutex.
    pub(super) fn abandon(&self, generation: Generation, why: &str) {
        self.abandon_for(generation, Fault::Down(why.into()));
    }

    fn abandon_for(&self, generation: Generation, fault: Fault) {
        let mut link = self.link.lock();
        if matches!(&link.state, LinkState::Up(up) if up.generation == generation) {
            // Before anybody connects anew.
            *self.last_fault.lock() = Some(fault.clone());
            if let Some(servers) = &self.servers {
                servers.leave(&self.endpoint.name, self.endpoint.clock.now());
            }
            link.state = LinkState::Down(fault);
            drop(link);
            self.abandoned.notify_one();
            self.report(|_, cluster| cluster.troubled());
        }
    }

    /// Takes the connection out of use since its server is no longer the node's. What that one still grants does not count, even on
    /// a connection that was given up before.
    pub(super) fn leave(&self) {
        let link = self.link.lock();
        if let Some(left) = &link.left {
            left.store(true, Ordering::Release);
        }
        let LinkState::Up(connection) = &link.state else { return };
        let generation = connection.generation;
        drop(link);
        self.abandon(generation, ANOTHER);
    }

    pub(super) fn note_round_trip(&self, took: Duration) {
        let new = took.as_nanos() as u64;
        let old = self.round_trip.load(Ordering::Relaxed);
        // A caller that was not scheduled measures too much, but none measures too little.
        let smoothed = if old == 0 || new < old { new } else { old + (new - old) / 16 };
        self.round_trip.store(smoothed, Ordering::Relaxed);
    }

    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.round_trip.load(Ordering::Relaxed))
    }

    /// Returns the output of `future`, or `None` if the client is closed first and no release is pending.
    pub(super) async fn while_needed<F: Future>(&self, future: F) -> Option<F::Output> {
        if self.link.lock().pending.is_empty() {
            self.closing.run_until_cancelled(future).await
        } else {
            Some(future.await)
        }
    }

    /// Gives up the pending releases of leases that are over. If none are left, the link ends, and this returns true.
    pub(super) fn drop_old_releases(&self) -> bool {
        let now = self.endpoint.clock.now();
        self.link.lock().pending.retain(|_, release| release.until > now);
        self.released.notify_waiters();
        self.ends_if_idle()
    }

    /// Ends the link if no release is pending, and returns whether that is so. In one step: who leaves a release later is told.
    pub(super) fn ends_if_idle(&self) -> bool {
        let mut link = self.link.lock();
        let is_idle = link.pending.is_empty();
        if is_idle {
            link.state = LinkState::Ended;
        }
        is_idle
    }

    /// Returns true if the node's answers are votes, if its restarts matter, or if replicas are waited for on
    /// a second connection: then its server must be identified.
    pub(super) fn votes(&self) -> bool {
        self.servers.is_some() || self.quarantine.lock().is_on() || self.endpoint.synced.is_some()
    }
}

/// Why a server is left.
pub(super) const ANOTHER: &str = "another server is the master now";
