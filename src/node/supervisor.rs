//! The task that keeps a node's command connection, and sends pending releases on it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::commands::Commands;
use super::connection::Connection;
use super::farewell::Farewell;
use super::handshake::{Handshake, Met};
use super::link::LinkState;
use super::masters::Listed;
use super::pending::Sending;
use super::predecessors::Predecessors;
use super::quarantine::Run;
use super::releases::Releases;
use super::shared::{ANOTHER, Shared};
use super::target::Target;
use super::witness::Witness;
use crate::clock::Timestamp;
use crate::error::Fault;
use crate::events::{self, Burst, Events, Outage};
use crate::key::LeaseId;

/// The result of the first attempt to connect.
pub(crate) type First = oneshot::Receiver<Result<(), Fault>>;

pub(super) struct Supervisor {
    shared: Arc<Shared>,
    releases: Releases,
    /// Notified by the connection itself when the server closes it.
    lost: Arc<Notify>,
    predecessors: Predecessors,
    /// The client tried once whether this user may subscribe, and the user may.
    may_listen: bool,
    events: Arc<Events>,
    /// How often connections were lost lately.
    losses: Burst,
    /// There was a connection, and there is none now.
    outage: Option<Outage>,
    /// The node's server is another one than that of the last connection.
    has_moved: bool,
    /// The task has nothing left to do.
    done: bool,
    _farewell: Arc<Farewell>,
}

impl Supervisor {
    pub(super) fn start(
        shared: &Arc<Shared>,
        left: mpsc::UnboundedReceiver<(LeaseId, Sending)>,
        events: &Arc<Events>,
        farewell: &Arc<Farewell>,
        tasks: &TaskTracker,
    ) -> First {
        let supervisor = Self {
            shared: shared.clone(),
            releases: Releases::new(shared.clone(), left),
            lost: Arc::default(),
            predecessors: Predecessors::default(),
            may_listen: false,
            events: events.clone(),
            losses: Burst::default(),
            outage: None,
            has_moved: false,
            done: false,
            _farewell: farewell.clone(),
        };
        let (result, first) = oneshot::channel();
        // On the client's own runtime, where the connection's task must live.
        tasks.spawn_on(supervisor.run(result), shared.endpoint.clock.runtime());
        first
    }

    /// Connects, reports the result, and then keeps the connection.
    async fn run(mut self, result: oneshot::Sender<Result<(), Fault>>) {
        let shared = self.shared.clone();
        let until = shared.endpoint.clock.now().plus(shared.endpoint.connect_timeout);
        let closing = shared.closing.clone();
        let first = closing.run_until_cancelled(self.connect_first(until)).await;
        let first = first.unwrap_or(Err(Fault::Closed));
        if let Err(fault) = &first {
            self.failed(fault);
            // The client has no other node to go on with.
            self.done = shared.servers.is_none() && shared.membership.is_none();
        }
        // If the client was dropped meanwhile, nobody receives this, and the node is closed.
        let _ = result.send(first);
        if self.done {
            shared.hub.closing().cancel();
            return;
        }
        self.keep_connected().await;
    }

    /// Connects for the first time. Waits until `until` for a server that is still starting.
    async fn connect_first(&mut self, until: Timestamp) -> Result<(), Fault> {
        let clock = self.shared.endpoint.clock.clone();
        let (mut attempt, mut before) = (0, None);
        loop {
            let fault = match (self.connect(until).await, before.take()) {
                (Ok(()), _) => return Ok(()),
                // This attempt had little time left, so the reason before it says more.
                (Err(Fault::NoAnswer(_)), Some(before)) => before,
                (Err(fault), _) => fault,
            };
            events::connecting_failed(&self.shared.endpoint.address(), &fault, attempt);
            let next_at = clock.now().plus(clock.back_off(attempt, LONGEST_PAUSE_AT_START));
            if !fault.may_pass_at_start() || next_at >= until || clock.is_stopped() {
                return Err(fault);
            }
            self.failed(&fault);
            before = Some(fault);
            self.shared.endpoint.moved_during(clock.sleep_until(next_at)).await;
            attempt += 1;
        }
    }

    /// An attempt to connect failed.
    fn failed(&self, fault: &Fault) {
        let endpoint = &self.shared.endpoint;
        if let Some(servers) = &self.shared.servers {
            servers.leave(&endpoint.name, endpoint.clock.now());
        }
        let mut link = self.shared.link.lock();
        let has_others = matches!(&link.state, LinkState::Down(Fault::OtherMasters(_)));
        // What it said of its masters holds until it says something else.
        if !has_others || fault.is_answer() {
            link.state = LinkState::Down(match fault {
                Fault::Denied { .. } | Fault::OtherMasters(_) | Fault::Down(_) => fault.clone(),
                fault => Fault::Down(fault.to_string().into()),
            });
            *self.shared.last_fault.lock() = Some(fault.clone());
        }
        drop(link);
        self.shared.report(|_, cluster| cluster.troubled());
    }

    async fn keep_connected(mut self) {
        let mut attempt = 0;
        loop {
            let since = self.shared.endpoint.clock.now();
            self.use_connection().await;
            if self.done {
                return;
            }
            self.connection_lost();
            self.releases.disconnected();
            // A connection that breaks at once was no success: a server may go on like that for ever.
            if self.shared.endpoint.clock.now().since(since) >= LASTING {
                attempt = 0;
            }
            if !self.reconnect(&mut attempt).await {
                self.done = true;
                return;
            }
        }
    }

    /// Processes pending releases until the connection is abandoned, or until nothing is left to do.
    async fn use_connection(&mut self) {
        let shared = self.shared.clone();
        let (generation, listed) = match shared.link.lock().state.connection() {
            Ok(connection) => (connection.generation, connection.listed.clone()),
            Err(_) => return,
        };
        shared.said.hear_on(Some(generation));
        let mut closing = false;
        while shared.link.lock().state.is_up() {
            if closing && shared.ends_if_idle() {
                self.done = true;
                break;
            }
            tokio::select! {
                biased;
                () = self.lost.notified() => {
                    let generation = *shared.generation.borrow();
                    shared.abandon(generation, "the server closed the connection");
                }
                () = shared.abandoned.notified() => {}
                () = shared.endpoint.moved() => shared.leave(),
                () = self.releases.step() => {}
                answer = shared.said.unheard() => {
                    let heard = listed.as_ref().map_or(Ok(()), |listed| listed.heard(answer));
                    if let Err(fault) = heard {
                        shared.note_answer(generation, &Err(fault));
                    }
                }
                () = shared.closing.cancelled(), if !closing => closing = true,
            }
        }
        shared.said.hear_on(None);
    }

    /// Reports that the connection was abandoned, or that there never was one, unless the client was closed before.
    fn connection_lost(&mut self) {
        let shared = &self.shared;
        shared.released.notify_waiters();
        let had_one = shared.was_connected();
        if !had_one && shared.closing.is_cancelled() {
            return;
        }
        let (node, reason) = (shared.endpoint.address(), shared.why_down());
        let (losses, now) = (&mut self.losses, shared.endpoint.clock.now());
        let outage = self.events.connection_lost(&node, &reason, had_one, losses, now);
        self.outage.get_or_insert(outage);
    }

    /// Tries until there is a connection. Returns false if nothing is left to do on one.
    ///
    /// The first attempt is made at once. `attempt` counts those since the last connection that lasted.
    async fn reconnect(&mut self, attempt: &mut u32) -> bool {
        let shared = self.shared.clone();
        let clock = &shared.endpoint.clock;
        let mut is_told = false;
        loop {
            if clock.is_stopped() {
                return false;
            }
            if *attempt > 0 {
                let pause = clock.sleep(clock.back_off(*attempt, LONGEST_PAUSE));
                let moved = shared.endpoint.moved_during(pause);
                if shared.while_needed(moved).await == Some(true) {
                    *attempt = 0;
                }
            }
            *attempt = attempt.saturating_add(1);
            if shared.closing.is_cancelled() && shared.drop_old_releases() {
                return false;
            }
            let until = clock.now().plus(shared.endpoint.connect_timeout);
            let fault = match shared.while_needed(self.connect(until)).await {
                Some(Ok(())) => return true,
                Some(Err(fault)) => fault,
                None => continue,
            };
            let problem = match &fault {
                Fault::SameServer(problem) | Fault::OtherMasters(problem) => Some(problem.clone()),
                Fault::Denied { .. } => Some(fault.to_string().into()),
                _ => None,
            };
            if let (Some(problem), false) = (problem, is_told) {
                events::node_not_used(&shared.endpoint.address(), &problem);
                is_told = true;
            }
            events::connecting_failed(&shared.endpoint.address(), &fault, *attempt);
            self.failed(&fault);
        }
    }

    /// Connects to where the server is now.
    async fn connect(&mut self, until: Timestamp) -> Result<(), Fault> {
        let shared = self.shared.clone();
        let endpoint = &shared.endpoint;
        let target = endpoint.guide.target(&endpoint.clock, until).await?;
        if let Some(before) = endpoint.turn_to(&target) {
            self.has_moved = true;
            shared.leave();
            events::master_moved(&endpoint.name, &before.address, &target.address);
        }
        tokio::select! {
            biased;
            // A server that hangs must not delay the connection to the one that has replaced it.
            () = endpoint.moved() => Err(Fault::Down(ANOTHER.into())),
            connected = self.connect_to(&target, until) => {
                connected.map_err(|fault| endpoint.guide.refused(&target, fault))
            }
        }
    }

    /// Makes a connection, checks its server and puts it in use.
    async fn connect_to(&mut self, target: &Target, until: Timestamp) -> Result<(), Fault> {
        let shared = self.shared.clone();
        let endpoint = &shared.endpoint;
        let lost = Arc::new(Notify::new());
        let made = endpoint.connect(target, &lost, until).await?;
        let commands = Commands::new(made, endpoint.greeting.secrets.clone());
        let limit = endpoint.connect_timeout;
        let handshake = Handshake { shared: &shared, commands: &commands, limit, until };
        let Met { identity, run, listed } = handshake.run(&mut self.predecessors).await?;
        events::server_met(&target.address, &run.past);
        if !self.may_listen {
            shared.hub.probe(until).await?;
            self.may_listen = true;
        }
        let witness = witness(&shared, target, &run, &lost, until).await?;
        let (connection, is_another) = self.meet(commands, &run, witness, listed);
        self.predecessors.follow(identity);
        self.lost = lost;
        self.put_in_use(connection, is_another);
        Ok(())
    }

    /// Returns the connection with what follows from the run of its server, and whether that is another run than the
    /// last one, or another history.
    fn meet(
        &self,
        commands: Commands,
        run: &Run,
        witness: Option<Arc<Witness>>,
        listed: Option<Listed>,
    ) -> (Connection, bool) {
        let mut quarantine = self.shared.quarantine.lock();
        let is_another = quarantine.meet(run);
        let connection = Connection {
            commands,
            generation: *self.shared.generation.borrow() + 1,
            older_may_run: self.predecessors.may_linger(),
            made_at: self.shared.endpoint.clock.now(),
            run: quarantine.run,
            counts_from: quarantine.until,
            past: quarantine.is_on().then(|| Arc::new(run.past.clone())),
            witness,
            listed: listed.map(Arc::new),
            silence: self.shared.silence.clone(),
            left: self.shared.endpoint.guide.is_dynamic().then(Arc::default),
        };
        (connection, is_another)
    }

    /// In one step, sends the pending releases and lets others use the connection (invariant 5).
    fn put_in_use(&mut self, connection: Connection, is_another: bool) {
        let shared = self.shared.clone();
        let (clock, generation) = (&shared.endpoint.clock, connection.generation);
        let has_moved = std::mem::take(&mut self.has_moved);
        if is_another || has_moved {
            // Messages come from the other server from now on. This is done before the connection is used, so that no
            // reading of this server's clock is compared with a grant of the old one.
            shared.hub.restart();
        }
        let mut link = shared.link.lock();
        let (now, mut sent) = (clock.now(), Vec::new());
        for (id, release) in &mut link.pending {
            release.renew(now);
            let form = release.form();
            sent.push((id.clone(), release.send(&connection, form)));
        }
        link.left.clone_from(&connection.left);
        link.state = LinkState::Up(connection);
        drop(link);
        for (id, sending) in sent {
            self.releases.await_answer(id, sending);
        }
        shared.silence.heard();
        shared.refusal.end();
        shared.last_fault.lock().take();
        shared.generation.send_replace(generation);
        // A node of a cluster may have been made just now: holders have asked the one that had its slots before.
        let is_first =
            shared.membership.as_ref().is_some_and(|it| generation == it.first_generation() + 1);
        if is_another || is_first {
            shared.forgot();
        }
        if let Some(outage) = self.outage.take() {
            self.events.connected_again(&shared.endpoint.address(), &outage, clock.now());
        }
    }
}

/// Makes the second connection, on which the client waits for replicas, if it must. It must lead to the same server. It
/// notifies `lost` as the command connection does, since neither is of use without the other.
async fn witness(
    shared: &Shared,
    target: &Target,
    run: &Run,
    lost: &Arc<Notify>,
    until: Timestamp,
) -> Result<Option<Arc<Witness>>, Fault> {
    let endpoint = &shared.endpoint;
    let Some(synced) = endpoint.synced else { return Ok(None) };
    let made = endpoint.connect(target, lost, until).await?;
    let commands = Commands::new(made, endpoint.greeting.secrets.clone());
    let limit = endpoint.connect_timeout;
    Handshake { shared, commands: &commands, limit, until }.check_witness(run).await?;
    let (clock, patience) = (endpoint.clock.clone(), endpoint.response_timeout);
    Ok(Some(Arc::new(Witness::new(commands, clock, patience, synced))))
}

/// The supervisor ends when nothing is left to do, or is dropped with its runtime: then only a farewell can be sent.
impl Drop for Supervisor {
    fn drop(&mut self) {
        if !self.done {
            self.shared.endpoint.clock.stop();
        }
        self.shared.endpoint.guide.close();
        self.shared.last_connection.lock().predecessors = std::mem::take(&mut self.predecessors);
        self.shared.link.lock().state = LinkState::Ended;
        // Wakes those who wait for a connection, because there will be none.
        self.shared.generation.send_modify(|_| {});
        self.shared.released.notify_waiters();
    }
}

/// After a connection that lasted this long, the next one is made at once.
const LASTING: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A client that starts together with its server should not wait for much longer than the server takes.
const LONGEST_PAUSE_AT_START: Duration = Duration::from_millis(250);
