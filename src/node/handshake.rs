//! What a new connection does first: learn which server it speaks to, see that every command is allowed,
//! and kill its predecessors there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Shared;
use super::link::Connection;
use super::past::Past;
use super::predecessors::Predecessors;
use super::quarantine::Run;
use crate::clock::Timestamp;
use crate::error::Fault;
use crate::script::{Arg, Call, PREFLIGHT, Reply};

/// Which server a connection speaks to, and who it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// New with every start of a server. `None`: the user may not read it.
    pub(super) run_id: Option<String>,
    /// Counted anew with every start of a server.
    pub(super) client_id: Option<i64>,
}

impl Identity {
    /// Its id on the server, if that is still in the same run.
    pub(super) fn client_on(&self, run_id: Option<&str>) -> Option<i64> {
        let same_run = run_id.is_some() && self.run_id.as_deref() == run_id;
        self.client_id.filter(|_| same_run)
    }
}

pub(super) struct Handshake<'a> {
    pub(super) shared: &'a Shared,
    pub(super) connection: &'a Connection,
    /// When it must be over.
    pub(super) until: Timestamp,
}

/// What a handshake learned.
pub(super) struct Met {
    pub(super) identity: Identity,
    pub(super) run: Run,
}

impl Handshake<'_> {
    /// Takes down in `predecessors` what became of the older connections.
    pub(super) async fn run(&self, predecessors: &mut Predecessors) -> Result<Met, Fault> {
        let mut client_id = redis::cmd("CLIENT");
        client_id.arg("ID");
        let client_id = optional(self.ask(client_id).await)?.and_then(|reply| reply.number());
        let run = self.meet().await?;
        let identity = Identity { client_id, run_id: run.id.clone() };
        self.check_rights().await?;

        let killed = match predecessors.to_kill(&identity) {
            Some(client_id) => self.kill(client_id).await?,
            None => false,
        };
        predecessors.met(&identity, killed);
        Ok(Met { identity, run })
    }

    /// Learns which run of which server this is. Where votes are counted, it must be no other node's.
    async fn meet(&self) -> Result<Run, Fault> {
        let votes = self.shared.votes();
        // Both are on the wire before the first answer is waited for.
        let replication = self.connection.send_command(info_command("replication"));
        let server = match info(self, "server").await {
            Err(fault @ Fault::Denied { .. }) if votes => return Err(fault),
            server => optional(server)?,
        };
        let replication = optional(self.answer(replication).await)?;
        let replication = replication.as_ref().map(fields).unwrap_or_default();
        let heard_at = self.shared.clock.now();
        let field = |name| server.as_ref().and_then(|info| info.get(name));
        let id = field("run_id").cloned();
        let uptime = field("uptime_in_seconds").and_then(|text| text.parse().ok());
        if votes && id.is_none() {
            let message = "without run_id in INFO a server cannot be told from another";
            return Err(Fault::Denied { what: "info".into(), message: message.into() });
        }
        let lapse = self.shared.response_timeout;
        if let (Some(servers), Some(id)) = (&self.shared.servers, &id)
            && let Err(other) = servers.claim(&self.shared.address, id, heard_at, lapse)
        {
            let problem = format!("it is the same server as {other}, and counts as one with it");
            return Err(Fault::SameServer(problem.into()));
        }
        let past = Past::read(&replication);
        Ok(Run { id, uptime: uptime.map(Duration::from_secs), past, heard_at })
    }

    /// Ends a connection on the server, so that nothing of it runs behind this one. False if that may not be done.
    async fn kill(&self, client_id: i64) -> Result<bool, Fault> {
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(client_id);
        Ok(optional(self.ask(kill).await)?.is_some())
    }

    async fn check_rights(&self) -> Result<(), Fault> {
        let call = Call {
            script: &PREFLIGHT,
            keys: Vec::new(),
            args: vec![Arg::Word(PROBE), Arg::Word("PUBLISH")],
        };
        // Both ways, so that a user who may do only one of EVALSHA and EVAL is found out here.
        match self.answer(self.connection.send(&call, false)).await {
            Ok(_) | Err(Fault::NoScript) => {}
            Err(fault) => return Err(fault),
        }
        let reply = self.answer(self.connection.send(&call, true)).await;
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
            message: "the scripts use it, and this user has no permissions to run it".into(),
        })
    }

    async fn ask(&self, command: redis::Cmd) -> Result<Reply, Fault> {
        self.answer(self.connection.send_command(command)).await
    }

    async fn answer(&self, mut sent: super::Sent) -> Result<Reply, Fault> {
        let answer = self.shared.clock.until(self.until, &mut sent).await;
        answer.unwrap_or(Err(Fault::NoAnswer(self.shared.connect_timeout)))
    }
}

/// What a server says of itself that bears on the promises of a lock. `None`: the user may not ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) version: Option<String>,
    pub(crate) replicas: Option<u64>,
    pub(crate) eviction_policy: Option<String>,
    pub(crate) max_memory: Option<u64>,
    pub(crate) append_only: Option<bool>,
    pub(crate) fsync_always: Option<bool>,
    /// How far the server's wall clock is ahead of this host's, half a round trip uncertain.
    pub(crate) clock_ahead_ms: Option<i64>,
}

pub(super) async fn facts(shared: &Arc<Shared>, connection: &Connection) -> Result<Facts, Fault> {
    let until = shared.clock.now().plus(shared.response_timeout);
    let handshake = Handshake { shared, connection, until };
    let server = optional(info(&handshake, "server").await)?;
    let replication = optional(info(&handshake, "replication").await)?;
    let eviction_policy = config(&handshake, "maxmemory-policy").await?;
    let max_memory = config(&handshake, "maxmemory").await?;
    let append_only = config(&handshake, "appendonly").await?;
    let fsync = config(&handshake, "appendfsync").await?;
    Ok(Facts {
        version: server.and_then(|mut info| {
            info.remove("valkey_version").or_else(|| info.remove("redis_version"))
        }),
        replicas: replication
            .and_then(|info| info.get("connected_slaves").and_then(|n| n.parse().ok())),
        eviction_policy,
        max_memory: max_memory.and_then(|bytes| bytes.parse().ok()),
        append_only: append_only.map(|value| value == "yes"),
        fsync_always: fsync.map(|value| value == "always"),
        clock_ahead_ms: clock_ahead_ms(&handshake).await?,
    })
}

async fn clock_ahead_ms(handshake: &Handshake<'_>) -> Result<Option<i64>, Fault> {
    let before = since_epoch();
    let reply = optional(handshake.ask(redis::cmd("TIME")).await)?;
    let after = since_epoch();
    let parts = reply.as_ref().and_then(Reply::list).unwrap_or_default();
    let [seconds, micros] = parts else {
        return Ok(None);
    };
    let (Some(seconds), Some(micros)) = (seconds.number(), micros.number()) else {
        return Ok(None);
    };
    let here = (before + after) / 2;
    let there = seconds.saturating_mul(1000).saturating_add(micros / 1000);
    Ok(Some(there.saturating_sub(here.as_millis() as i64)))
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

async fn info(handshake: &Handshake<'_>, section: &str) -> Result<HashMap<String, String>, Fault> {
    Ok(fields(&handshake.ask(info_command(section)).await?))
}

pub(super) fn info_command(section: &str) -> redis::Cmd {
    let mut command = redis::cmd("INFO");
    command.arg(section);
    command
}

/// The fields of a section of INFO.
pub(super) fn fields(info: &Reply) -> HashMap<String, String> {
    info.text()
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
        .collect()
}

async fn config(handshake: &Handshake<'_>, setting: &str) -> Result<Option<String>, Fault> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg(setting);
    let reply = optional(handshake.ask(command).await)?;
    let value = reply.as_ref().and_then(Reply::list).and_then(|pair| pair.get(1));
    Ok(value.and_then(Reply::text).map(str::to_owned))
}

/// What this user may not ask, or the server does not offer, is not known; anything else is a fault.
fn optional<T>(answer: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Fault::Denied { .. }) => Ok(None),
        Err(Fault::Refused(cause)) if cause.is_unknown_command() => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// A key and a channel that nobody uses.
pub(super) const PROBE: &str = "leasehold_probe";
