//! What a new connection does first: it identifies its server, checks that every command is allowed, compares the list of the
//! masters, and kills its predecessor there.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::commands::{Commands, InFlight};
use super::hub::PROBE;
use super::info::{MODES, fields, info_command, optional};
use super::masters::Listed;
use super::past::{Past, Role};
use super::predecessors::{Identity, Predecessors};
use super::quarantine::{Mark, Run};
use super::shared::Shared;
use super::tenure::{Noted, Owned, Slots};
use super::wire::Form;
use crate::clock::Timestamp;
use crate::error::Fault;
use crate::events;
use crate::key;
use crate::script::{Arg, Call, GRACE_MARK, PREFLIGHT, Reply};

pub(super) struct Handshake<'a> {
    pub(super) shared: &'a Shared,
    pub(super) commands: &'a Commands,
    /// How long the handshake may take.
    pub(super) limit: Duration,
    /// When the handshake must be over.
    pub(super) until: Timestamp,
}

/// What a handshake learned.
pub(super) struct Met {
    pub(super) identity: Identity,
    pub(super) run: Run,
    /// The list of the masters that the server is one of.
    pub(super) listed: Option<Listed>,
}

impl Handshake<'_> {
    /// Runs the handshake, and records in `predecessors` whether the older connections have ended.
    pub(super) async fn run(&self, predecessors: &mut Predecessors) -> Result<Met, Fault> {
        let mut client_id = redis::cmd("CLIENT");
        client_id.arg("ID");
        let client_id = self.commands.send(client_id);
        let named = self.name();
        let mut run = self.meet().await?;
        let client_id = optional(self.answer(client_id).await)?.and_then(|reply| reply.number());
        optional(self.answer(named).await)?;
        let identity = Identity { client_id, run_id: run.id.clone() };
        self.check_rights().await?;
        let owned = self.owned().await?;
        self.mark(&mut run, owned).await?;
        let listed = self.compare_masters(&run).await?;

        let killed = match predecessors.to_kill(&identity) {
            Some(client_id) => self.kill(client_id).await?,
            None => false,
        };
        predecessors.met(&identity, killed);
        Ok(Met { identity, run, listed })
    }

    /// Gives the connection the client's name, by which `CLIENT LIST` shows it. Nothing depends on the answer.
    fn name(&self) -> InFlight {
        let mut name = redis::cmd("CLIENT");
        name.arg("SETNAME").arg(format!("leasehold:{}", self.shared.endpoint.greeting.client));
        self.commands.send(name)
    }

    /// Identifies the server and its run. If its answers are votes, it must not be the server of another node.
    async fn meet(&self) -> Result<Run, Fault> {
        let votes = self.shared.votes();
        // Both requests are sent before the first answer is awaited.
        let replication = self.commands.send(info_command("replication"));
        let server = match info(self, "server").await {
            Err(fault @ Fault::Denied { .. }) if votes => return Err(fault),
            server => optional(server)?,
        };
        let replication = optional(self.answer(replication).await)?;
        let replication = replication.as_ref().map(fields).unwrap_or_default();
        let heard_at = self.shared.endpoint.clock.now();
        self.check_kind(server.as_ref()).await?;
        let field = |name| server.as_ref().and_then(|info| info.get(name));
        let id = field("run_id").cloned();
        if votes && id.is_none() {
            let message = "without run_id in INFO, servers cannot be distinguished";
            return Err(Fault::Denied { what: "info".into(), message: message.into() });
        }
        let lapse = self.shared.endpoint.response_timeout;
        if let (Some(servers), Some(id)) = (&self.shared.servers, &id)
            && let Err(other) = servers.claim(&self.shared.endpoint.name, id, heard_at, lapse)
        {
            let problem = format!("it is the same server as {other}, so it is not used");
            return Err(Fault::SameServer(problem.into()));
        }
        let past = Past::read(&replication);
        if let Some(Role::Replica(master)) = &past.role {
            let of = if master.is_empty() { String::new() } else { format!(" of {master}") };
            return Err(Fault::Replica(of.into()));
        }
        Ok(Run { id, past, heard_at, mark: None, slots: None })
    }

    /// Asks a node of a cluster which slots it owns. Without a quarantine that does not matter.
    async fn owned(&self) -> Result<Option<Owned>, Fault> {
        let is_on = self.shared.quarantine.lock().is_on();
        let Some(membership) = self.shared.membership.as_ref().filter(|_| is_on) else {
            return Ok(None);
        };
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let slots = self.ask(command).await?;
        let owned = membership.report(|cluster| cluster.owned_by(membership.number, &slots));
        Ok(Some(owned.flatten().unwrap_or_default()))
    }

    /// Reads the server's mark, or leaves it, if this run with this history or some of its slots are news, or if it was
    /// refused before. Without it, the quarantine of those who come later is longer.
    async fn mark(&self, run: &mut Run, owned: Option<Owned>) -> Result<(), Fault> {
        let needed = {
            let quarantine = self.shared.quarantine.lock();
            let was_refused = self.shared.mark_refused.load(Ordering::Relaxed);
            let has_slots = |owned: &Owned| owned.ranges != quarantine.tenure.ranges();
            let is_news = !quarantine.is_known(run) || owned.as_ref().is_some_and(has_slots);
            quarantine.is_on() && (was_refused || is_news)
        };
        let asked_at = self.shared.endpoint.clock.now();
        let said = match (&run.id, &run.past.history) {
            (Some(id), Some(history)) if needed => {
                self.read_marks(id, history, owned.as_ref()).await?
            }
            _ => None,
        };
        let heard_at = self.shared.endpoint.clock.now();
        let now_us = said.as_ref().map_or(0, |said| said.now_us);
        run.mark = said.as_ref().map(|said| {
            let age = Duration::from_micros(now_us.saturating_sub(said.since_us));
            Mark { since_us: said.since_us, age, asked_at, heard_at }
        });
        let noted = said.map(|said| said.noted);
        run.slots = owned.map(|owned| Slots { owned, noted, now_us, asked_at, heard_at });
        Ok(())
    }

    /// Sends the mark's script; in a cluster once for each of a few slots, because any of them may move.
    async fn read_marks(
        &self,
        id: &str,
        history: &str,
        owned: Option<&Owned>,
    ) -> Result<Option<Marks>, Fault> {
        let keys: Vec<_> = match owned {
            Some(owned) => owned.tags.iter().map(|tag| key::mark_key(Some(tag))).collect(),
            None => vec![key::mark_key(None)],
        };
        let mut args: Vec<Arg> = [id, history].map(|text| Arg::Text(text.into())).into();
        args.extend(owned.map(|owned| Arg::Text(owned.text().into())));
        let call = |key| Call { script: &GRACE_MARK, keys: vec![key], args: args.clone() };
        let sent: Vec<InFlight> =
            keys.into_iter().map(|key| self.commands.call(&call(key), Form::WHOLE)).collect();
        let (mut marks, mut refused, mut denied) = (None::<Marks>, false, false);
        for sent in sent {
            match self.answer(sent).await {
                Ok(reply) => match (Marks::read(&reply), &mut marks) {
                    (Some(read), Some(marks)) => marks.absorb(read),
                    (read, marks) => *marks = read,
                },
                // Nothing is known of this server until its cluster is in order, so this connection is of no use.
                Err(fault) if fault.is_of_the_whole_cluster() => return Err(fault),
                // It may not write the mark, or does not accept writes now, or a slot has moved.
                Err(fault) if fault.is_answer() => {
                    events::mark_refused(&self.shared.endpoint.address(), &fault);
                    denied |= matches!(fault, Fault::Denied { .. });
                    refused = true;
                }
                Err(fault) => return Err(fault),
            }
        }
        self.shared.mark_refused.store(refused && marks.is_none(), Ordering::Relaxed);
        self.shared.mark_denied.store(denied && marks.is_none(), Ordering::Relaxed);
        Ok(marks)
    }

    /// Compares the list with that of the server, and writes it if it is not there and this client may.
    async fn compare_masters(&self, run: &Run) -> Result<Option<Listed>, Fault> {
        let Some(servers) = self.shared.servers.clone() else { return Ok(None) };
        let (said, address) = (self.shared.said.clone(), self.shared.endpoint.address());
        let counts_from = self.shared.quarantine.lock().will_count_from(run);
        let listed = Listed::new(servers, said, address, counts_from);
        let written = listed.write(self.commands, self.shared.endpoint.clock.now());
        let read = self.commands.send(listed.read_command());
        let may_write = match written {
            Some(written) => optional(self.answer(written).await)?.is_some(),
            None => true,
        };
        let read = optional(self.answer(read).await)?;
        let is_denied = read.as_ref().is_none_or(|it| it.text().is_none() && !may_write);
        self.shared.said.is_denied.store(is_denied, Ordering::Relaxed);
        // Without the right to read it, nothing is compared.
        let Some(reply) = read else { return Ok(None) };
        if let Some(text) = reply.text() {
            listed.compare(text)?;
        }
        Ok(Some(listed))
    }

    /// Refuses a server that keeps no locks, or only some of them.
    async fn check_kind(&self, server: Option<&HashMap<String, String>>) -> Result<(), Fault> {
        let mode =
            |info: &HashMap<String, String>| MODES.iter().find_map(|name| info.get(*name).cloned());
        let in_cluster = self.shared.membership.is_some();
        match server.and_then(mode).as_deref() {
            Some("sentinel") => Err(Fault::WrongServer(
                "it is a Sentinel, which keeps no data: name it with `ClientBuilder::sentinel`".into(),
            )),
            Some("cluster") if in_cluster => Ok(()),
            Some(_) if in_cluster => Err(Fault::WrongServer(
                "it is a node of no Redis Cluster: name it with `nodes`, not with `cluster`".into(),
            )),
            Some("cluster") => match self.shards().await? {
                None | Some(1) => Ok(()),
                Some(shards) => Err(Fault::WrongServer(
                    format!(
                        "it is a node of a Redis Cluster with {shards} shards, and keeps some of the locks only: \
                         connect with `Client::builder().cluster(..)`, or name a server that is in no cluster"
                    )
                    .into(),
                )),
            },
            _ => Ok(()),
        }
    }

    /// Returns the number of masters in its cluster that keep data, or `None` if the server does not report it.
    async fn shards(&self) -> Result<Option<u64>, Fault> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("INFO");
        let cluster = optional(self.ask(command).await)?;
        Ok(cluster.and_then(|info| fields(&info).get("cluster_size")?.parse().ok()))
    }

    /// Ends a connection on the server, so that none of its commands run after those of this one. Returns false if the
    /// user may not do that.
    async fn kill(&self, client_id: i64) -> Result<bool, Fault> {
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(client_id);
        Ok(optional(self.ask(kill).await)?.is_some())
    }

    /// Checks a connection for a [`Witness`](super::witness::Witness): it must lead to the same run of a server, and its
    /// user must be allowed to wait for replicas.
    pub(super) async fn check_witness(&self, run: &Run) -> Result<(), Fault> {
        let named = self.name();
        let met = info(self, "server").await?.remove("run_id");
        if met.is_none() || met != run.id {
            let why = "a second connection to it led to another server";
            return Err(Fault::Down(why.into()));
        }
        let mut wait = redis::cmd("WAIT");
        wait.arg(0).arg(1);
        self.ask(wait).await?;
        optional(self.answer(named).await).map(|_| ())
    }

    async fn check_rights(&self) -> Result<(), Fault> {
        let is_sharded = self.shared.membership.as_ref().is_some_and(|it| it.is_sharded);
        let verb = if is_sharded { "SPUBLISH" } else { "PUBLISH" };
        let call = Call {
            script: &PREFLIGHT,
            keys: Vec::new(),
            args: vec![Arg::Word(PROBE), Arg::Word(verb)],
        };
        // In both ways, so that it fails here if the user may run only one of EVALSHA and EVAL.
        match self.answer(self.commands.call(&call, Form::PLAIN)).await {
            Ok(_) | Err(Fault::NoScript) => {}
            Err(Fault::Refused(cause)) if cause.is_unknown_command() => {
                let problem = format!(
                    "it runs no scripts, like a Sentinel or a server that is not Redis: {cause}"
                );
                return Err(Fault::WrongServer(problem.into()));
            }
            Err(fault) => return Err(fault),
        }
        let reply = self.answer(self.commands.call(&call, Form::WHOLE)).await;
        let denied: Vec<String> = reply?
            .list()
            .unwrap_or_default()
            .iter()
            .filter_map(|command| command.text().map(str::to_lowercase))
            .collect();
        if denied.is_empty() {
            return Ok(());
        }
        Err(Fault::Denied {
            what: denied.join(", ").into(),
            message: "the scripts need it, and this user may not run it".into(),
        })
    }

    async fn ask(&self, command: redis::Cmd) -> Result<Reply, Fault> {
        self.answer(self.commands.send(command)).await
    }

    pub(super) async fn answer(&self, mut sent: InFlight) -> Result<Reply, Fault> {
        let answer = self.shared.endpoint.clock.until(self.until, &mut sent).await;
        answer.unwrap_or(Err(Fault::NoAnswer(self.limit)))
    }
}

/// What a server's marks say.
struct Marks {
    /// By the server's clock, in microseconds.
    since_us: u64,
    now_us: u64,
    noted: Noted,
}

impl Marks {
    /// Reads the reply to `grace_mark`.
    fn read(reply: &Reply) -> Option<Self> {
        let numbers: Vec<i64> = reply.list()?.iter().filter_map(Reply::number).collect();
        let [since, now, ranges @ ..] = &*numbers else { return None };
        let [since_us, now_us] = [since, now].map(|us| u64::try_from(*us).ok());
        let mut noted = Noted::nothing();
        noted.read(ranges);
        Some(Self { since_us: since_us?, now_us: now_us?, noted })
    }

    /// Takes in another mark of the same server.
    fn absorb(&mut self, other: Self) {
        // One that was made by this very call says nothing.
        match (self.is_new(), other.is_new()) {
            (true, false) => self.noted = other.noted,
            (false, true) => {}
            _ => self.noted.absorb(&other.noted),
        }
        self.since_us = self.since_us.min(other.since_us);
        self.now_us = self.now_us.min(other.now_us);
    }

    fn is_new(&self) -> bool {
        self.since_us == self.now_us
    }
}

/// Asks a node of a cluster that is connected which slots it has now, and since when.
pub(super) async fn note_slots(shared: &Shared) -> Result<(), Fault> {
    let connection = shared.link.lock().state.connection()?.clone();
    let limit = shared.endpoint.response_timeout;
    let until = shared.endpoint.clock.now().plus(limit);
    let handshake = Handshake { shared, commands: &connection.commands, limit, until };
    let owned = handshake.owned().await?;
    let id = shared.quarantine.lock().run_id.clone();
    let past = connection.past.as_deref().cloned().unwrap_or_default();
    // It may have been demoted and promoted again, which need not break the connection. Its marks are not those of its past.
    let now = optional(info(&handshake, "replication").await)?;
    let now = now.as_ref().map(Past::read).unwrap_or_default();
    if now.role == Some(Role::Master) && !past.goes_on_in(&now) {
        shared.note_answer(connection.generation, &Err(Fault::Replaced));
        return Err(Fault::Replaced);
    }
    let heard_at = shared.endpoint.clock.now();
    let mut run = Run { id, past, heard_at, mark: None, slots: None };
    handshake.mark(&mut run, owned).await?;
    let mut quarantine = shared.quarantine.lock();
    // What was read is about the run of that connection.
    if quarantine.run == connection.run {
        quarantine.note(run.slots.as_ref());
    }
    Ok(())
}

async fn info(handshake: &Handshake<'_>, section: &str) -> Result<HashMap<String, String>, Fault> {
    Ok(fields(&handshake.ask(info_command(section)).await?))
}
