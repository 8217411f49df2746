//! What a server reports about the cluster that it is in.

use std::sync::Arc;

use tokio::sync::Notify;

use super::commands::{Commands, InFlight};
use super::info::{fields, optional};
use super::target::Dial;
use super::{Common, Node};
use crate::clock::{Clock, Timestamp};
use crate::config::Address;
use crate::error::Fault;
use crate::script::Reply;

/// A server's view of its cluster.
pub(crate) struct Chart {
    /// The reply to CLUSTER SLOTS.
    pub(crate) slots: Reply,
    /// The server finds the cluster in order.
    pub(crate) is_ok: bool,
    /// The number of the last change that the server knows of; zero if it does not say.
    pub(crate) epoch: u64,
    /// It has sharded channels (Redis 7), and this user may ask about them; `None`: it was not asked.
    pub(crate) has_sharded_channels: Option<bool>,
}

impl Node {
    /// Asks the server on the present connection, also about its `channels` if that is not known yet.
    pub(crate) async fn chart(&self, channels: bool, until: Timestamp) -> Result<Chart, Fault> {
        let commands = self.shared.link.lock().state.connection()?.commands.clone();
        ask(&commands, &self.shared.endpoint.clock, channels, until).await
    }
}

impl Chart {
    /// Asks the server at `address` on a connection of its own. To be polled on the client's runtime.
    pub(crate) fn of(
        address: &Address,
        common: &Common<'_>,
        until: Timestamp,
    ) -> impl Future<Output = Result<Self, Fault>> + Send + use<> {
        let Common { network, config, clock, .. } = *common;
        let target = Dial::of(network, config).target(address);
        let (clock, limit) = (clock.clone(), config.connect_timeout);
        async move {
            let target = target?;
            let lost = Arc::new(Notify::new());
            let connection = target.commands(&clock, &lost, limit, until).await?;
            let commands = Commands::new(connection, target.greeting.secrets.clone());
            ask(&commands, &clock, true, until).await
        }
    }
}

async fn ask(
    commands: &Commands,
    clock: &Clock,
    channels: bool,
    until: Timestamp,
) -> Result<Chart, Fault> {
    let command = |verb: &str, word: &str| {
        let mut command = redis::cmd(verb);
        command.arg(word);
        commands.send(command)
    };
    let (slots, info) = (command("CLUSTER", "SLOTS"), command("CLUSTER", "INFO"));
    let sharded = channels.then(|| command("PUBSUB", "SHARDNUMSUB"));
    let slots = answer(slots, clock, until).await.map_err(explained)?;
    // Some services do not offer it.
    let info = optional(answer(info, clock, until).await)?;
    let info = info.as_ref().map(fields).unwrap_or_default();
    let has_sharded_channels = match sharded {
        Some(sharded) => Some(optional(answer(sharded, clock, until).await)?.is_some()),
        None => None,
    };
    Ok(Chart {
        slots,
        is_ok: info.get("cluster_state").is_none_or(|state| state == "ok"),
        epoch: info.get("cluster_current_epoch").and_then(|it| it.parse().ok()).unwrap_or(0),
        has_sharded_channels,
    })
}

async fn answer(sent: InFlight, clock: &Clock, until: Timestamp) -> Result<Reply, Fault> {
    let asked_at = clock.now();
    let silence = Fault::NoAnswer(until.since(asked_at));
    clock.until(until, sent).await.unwrap_or(Err(silence))
}

fn explained(fault: Fault) -> Fault {
    match fault {
        Fault::Refused(cause) if cause.is_no_cluster() || cause.is_unknown_command() => {
            let problem =
                "it is a node of no Redis Cluster: name it with `nodes`, not with `cluster`";
            Fault::WrongServer(problem.into())
        }
        fault => fault,
    }
}
