//! What a new connection does first: it identifies its server, checks that every command is allowed, and kills its
//! predecessor there.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::link::{Commands, Form, InFlight};
use super::past::{Past, Role};
use super::predecessors::Predecessors;
use super::quarantine::{Mark, Run};
use super::shared::Shared;
use crate::clock::Timestamp;
use crate::error::Fault;
use crate::events;
use crate::key;
use crate::script::{Arg, Call, GRACE_MARK, PREFLIGHT, Reply};

/// The server of a connection, and the connection's id there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// It changes with every start of a server. `None` if the user may not read it.
    pub(super) run_id: Option<String>,
    /// The count starts again with every start of a server.
    pub(super) client_id: Option<i64>,
}

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
}

impl Handshake<'_> {
    /// Runs the handshake, and records in `predecessors` whether the older connections have ended.
    pub(super) async fn run(&self, predecessors: &mut Predecessors) -> Result<Met, Fault> {
        let mut client_id = redis::cmd("CLIENT");
        client_id.arg("ID");
        let client_id = self.commands.send(client_id);
        let mut run = self.meet().await?;
        let client_id = optional(self.answer(client_id).await)?.and_then(|reply| reply.number());
        let identity = Identity { client_id, run_id: run.id.clone() };
        self.check_rights().await?;
        run.mark = self.mark(&run).await?;

        let killed = match predecessors.to_kill(&identity) {
            Some(client_id) => self.kill(client_id).await?,
            None => false,
        };
        predecessors.met(&identity, killed);
        Ok(Met { identity, run })
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
        let uptime = field("uptime_in_seconds").and_then(|text| text.parse().ok());
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
        Ok(Run { id, uptime: uptime.map(Duration::from_secs), past, heard_at, mark: None })
    }

    /// Reads the server's mark, or leaves it, if this run with this history is news, or refused it before. Without it, the
    /// quarantine of those who come later is longer.
    async fn mark(&self, run: &Run) -> Result<Option<Mark>, Fault> {
        let (Some(id), Some(history)) = (&run.id, &run.past.history) else { return Ok(None) };
        let needed = {
            let quarantine = self.shared.quarantine.lock();
            let was_refused = self.shared.mark_refused.load(Ordering::Relaxed);
            quarantine.is_on() && (was_refused || !quarantine.is_known(run))
        };
        if !needed {
            return Ok(None);
        }
        let key = match &self.shared.membership {
            Some(it) => match it.report(|cluster| cluster.tag_at(it.number)).flatten() {
                Some(tag) => key::mark_key(Some(&tag)),
                None => return Ok(None),
            },
            None => key::mark_key(None),
        };
        let args = [id, history].map(|text| Arg::Text(text.as_str().into())).into();
        let call = Call { script: &GRACE_MARK, keys: vec![key], args };
        let asked_at = self.shared.endpoint.clock.now();
        let answer = self.answer(self.commands.call(&call, Form::WHOLE)).await;
        self.shared.mark_refused.store(answer.is_err(), Ordering::Relaxed);
        let times = match answer {
            Ok(reply) => read_mark(&reply),
            // It may not write the mark, or does not accept writes now, or its slots have moved.
            Err(fault) if fault.is_answer() => {
                events::mark_refused(&self.shared.endpoint.address(), &fault);
                None
            }
            Err(fault) => return Err(fault),
        };
        let heard_at = self.shared.endpoint.clock.now();
        Ok(times.map(|(since_us, age)| Mark { since_us, age, asked_at, heard_at }))
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
        let met = info(self, "server").await?.remove("run_id");
        if met.is_none() || met != run.id {
            let why = "a second connection to it led to another server";
            return Err(Fault::Down(why.into()));
        }
        let mut wait = redis::cmd("WAIT");
        wait.arg(0).arg(1);
        self.ask(wait).await.map(|_| ())
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

/// Reads the reply to `grace_mark`: since when by the server's clock, in microseconds, and for how long.
fn read_mark(reply: &Reply) -> Option<(u64, Duration)> {
    let [since, now] = reply.list()? else { return None };
    let [since, now] = [since, now].map(|us| u64::try_from(us.number()?).ok());
    Some((since?, Duration::from_micros(now?.saturating_sub(since?))))
}

async fn info(handshake: &Handshake<'_>, section: &str) -> Result<HashMap<String, String>, Fault> {
    Ok(fields(&handshake.ask(info_command(section)).await?))
}

pub(super) fn info_command(section: &str) -> redis::Cmd {
    let mut command = redis::cmd("INFO");
    command.arg(section);
    command
}

/// Returns the fields of a section of INFO.
pub(super) fn fields(info: &Reply) -> HashMap<String, String> {
    info.text()
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
        .collect()
}

/// Returns `None` if the server refuses to answer, in whatever words. A state that may pass is an error.
pub(super) fn optional<T>(answer: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.is_refusal() => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// The field of `INFO server` that says whether it is a Sentinel, a node of a cluster or neither: Redis's, Valkey's.
pub(super) const MODES: [&str; 2] = ["redis_mode", "server_mode"];
/// A key and a channel that nobody uses.
pub(super) const PROBE: &str = "leasehold_probe";
