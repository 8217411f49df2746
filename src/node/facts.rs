//! What a server reports about itself, for `Client::check`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::commands::{Commands, InFlight};
use super::handshake::Handshake;
use super::info::{MODES, fields, info_command, optional};
use super::sentinel::WatchFacts;
use super::shared::Shared;
use crate::error::Fault;
use crate::key;
use crate::script::Reply;

/// What a server reports that bears on the promises of a lock. `None`: the user may not ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// It is a node of a Redis Cluster.
    pub(crate) is_cluster: bool,
    pub(crate) version: Option<String>,
    pub(crate) replicas: Option<u64>,
    pub(crate) eviction_policy: Option<String>,
    pub(crate) max_memory: Option<u64>,
    pub(crate) append_only: Option<bool>,
    pub(crate) fsync_always: Option<bool>,
    /// What matters for a failover, if the server is one of a replicated deployment.
    pub(crate) failover: Option<FailoverFacts>,
    /// What matters for a master of a cluster, if locks are spread over one.
    pub(crate) cluster: Option<ClusterFacts>,
    /// This user may not write its mark, as was seen when that was needed last.
    pub(crate) refuses_mark: bool,
    /// This user may not read or write the list of the masters.
    pub(crate) refuses_list: bool,
    /// By how much at least the server's wall clock is ahead of this host's.
    pub(crate) clock_ahead_ms: Option<i64>,
}

/// What decides whether an old master goes on granting beside the new one.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailoverFacts {
    /// It says whether it is a master.
    pub(crate) tells_role: bool,
    /// The user may end older connections.
    pub(crate) may_kill: bool,
    pub(crate) fence: Fence,
    /// What the Sentinels report.
    pub(crate) watch: Option<WatchFacts>,
    /// The Sentinels, each with the master that it names, if they have named different ones for long.
    pub(crate) disagreement: Option<Vec<(Arc<str>, String)>>,
}

/// When a master that is cut off from its replicas stops by itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fence {
    /// With fewer replicas it refuses writes.
    pub(crate) min_replicas: Option<u64>,
    /// A replica counts if it was heard of within this time.
    pub(crate) max_lag: Option<Duration>,
}

/// What decides whether a master of a cluster serves locks, and whether waiters hear of their releases.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterFacts {
    /// It serves no lock while a slot has no master.
    pub(crate) needs_full_coverage: Option<bool>,
    /// How long another node may be silent before it counts as down.
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) fence: Fence,
    /// This client uses sharded channels.
    pub(crate) is_sharded: bool,
    /// The user may not ask whether there are such.
    pub(crate) hides_sharded: bool,
    /// A channel of a lock on which somebody listens, of the kind that this client does not use.
    pub(crate) other_channel: Option<String>,
}

/// Asks for everything at once, in one round trip of at most `limit`.
pub(super) async fn ask(
    shared: &Shared,
    commands: &Commands,
    limit: Duration,
) -> Result<Facts, Fault> {
    let until = shared.endpoint.clock.now().plus(limit);
    let handshake = Handshake { shared, commands, limit, until };
    let sent = ["server", "replication", "memory", "persistence"]
        .map(|section| commands.send(info_command(section)));
    let settings = ["maxmemory-policy", "maxmemory", "appendonly", "appendfsync"];
    let settings = settings.map(|setting| commands.send(config_command(setting)));
    let asked_at = since_epoch();
    let time = commands.send(redis::cmd("TIME"));

    let [server, replication, memory, persistence] = sent;
    let mut server = info_of(&handshake, server).await?;
    let replication = info_of(&handshake, replication).await?;
    let mut memory = info_of(&handshake, memory).await?;
    let persistence = info_of(&handshake, persistence).await?;
    let [eviction_policy, max_memory, append_only, fsync] = settings;
    let eviction_policy = setting_of(&handshake, eviction_policy).await?;
    let max_memory = setting_of(&handshake, max_memory).await?;
    let append_only = setting_of(&handshake, append_only).await?;
    let fsync = setting_of(&handshake, fsync).await?;
    let time = optional(handshake.answer(time).await)?;
    // Before the rest is waited for, which others are asked about.
    let clock_ahead_ms = time.and_then(|time| clock_ahead_ms(&time, asked_at, since_epoch()));
    let failover = match shared.endpoint.guide.is_dynamic() {
        true => Some(failover(&handshake, &replication).await?),
        false => None,
    };
    let cluster = match &shared.membership {
        Some(membership) => Some(cluster(&handshake, &replication, membership.is_sharded).await?),
        None => None,
    };
    Ok(Facts {
        failover,
        cluster,
        refuses_mark: shared.mark_denied.load(Ordering::Relaxed),
        refuses_list: shared.said.is_denied.load(Ordering::Relaxed),
        is_cluster: MODES
            .iter()
            .any(|name| server.get(*name).is_some_and(|mode| mode == "cluster")),
        version: server.remove("valkey_version").or_else(|| server.remove("redis_version")),
        replicas: replication.get("connected_slaves").and_then(|count| count.parse().ok()),
        // Many services forbid CONFIG, and let everybody ask for INFO.
        eviction_policy: eviction_policy.or_else(|| memory.remove("maxmemory_policy")),
        max_memory: max_memory
            .or_else(|| memory.remove("maxmemory"))
            .and_then(|bytes| bytes.parse().ok()),
        append_only: append_only
            .map(|value| value == "yes")
            .or_else(|| persistence.get("aof_enabled").map(|value| value == "1")),
        fsync_always: fsync.map(|value| value == "always"),
        clock_ahead_ms,
    })
}

async fn failover(
    handshake: &Handshake<'_>,
    replication: &HashMap<String, String>,
) -> Result<FailoverFacts, Fault> {
    let fence = FenceAsked::of(handshake);
    let mut kill = redis::cmd("CLIENT");
    // No connection has this id.
    kill.arg("KILL").arg("ID").arg(i64::MAX);
    let kill = handshake.commands.send(kill);
    let mut id = redis::cmd("CLIENT");
    id.arg("ID");
    let id = handshake.commands.send(id);
    let watch = handshake.shared.endpoint.guide.facts(handshake.limit).await;
    Ok(FailoverFacts {
        fence: fence.answer(handshake, replication).await?,
        tells_role: replication.contains_key("role"),
        may_kill: optional(handshake.answer(kill).await)?.is_some()
            && optional(handshake.answer(id).await)?.is_some(),
        watch,
        disagreement: handshake.shared.endpoint.guide.disagreement(),
    })
}

/// The questions about the fence.
struct FenceAsked([InFlight; 2]);

impl FenceAsked {
    fn of(handshake: &Handshake<'_>) -> Self {
        let settings = ["min-replicas-to-write", "min-replicas-max-lag"];
        Self(settings.map(|setting| handshake.commands.send(config_command(setting))))
    }

    async fn answer(
        self,
        handshake: &Handshake<'_>,
        replication: &HashMap<String, String>,
    ) -> Result<Fence, Fault> {
        let [min_replicas, max_lag] = self.0;
        let min_replicas = setting_of(handshake, min_replicas).await?;
        let max_lag = setting_of(handshake, max_lag).await?;
        let number = |setting: Option<String>| setting.and_then(|value| value.parse().ok());
        // INFO counts the replicas that are near enough only if some are needed.
        let needs_none = replication.contains_key("role")
            && !GOOD.iter().any(|it| replication.contains_key(*it));
        let max_lag = number(max_lag);
        // Each of the two, if it is 0, turns off the other.
        let is_off = needs_none || max_lag == Some(0);
        Ok(Fence {
            min_replicas: if is_off { Some(0) } else { number(min_replicas) },
            max_lag: max_lag.map(Duration::from_secs),
        })
    }
}

async fn cluster(
    handshake: &Handshake<'_>,
    replication: &HashMap<String, String>,
    is_sharded: bool,
) -> Result<ClusterFacts, Fault> {
    let ask = |words: &[&str]| {
        let mut command = redis::cmd("PUBSUB");
        command.arg(words);
        handshake.commands.send(command)
    };
    let coverage = handshake.commands.send(config_command("cluster-require-full-coverage"));
    let node_timeout = handshake.commands.send(config_command("cluster-node-timeout"));
    let fence = FenceAsked::of(handshake);
    let others = if is_sharded { "CHANNELS" } else { "SHARDCHANNELS" };
    let (others, sharded) = (ask(&[others, key::ALL_CHANNELS]), ask(&["SHARDNUMSUB"]));
    let coverage = setting_of(handshake, coverage).await?;
    let node_timeout = setting_of(handshake, node_timeout).await?;
    let fence = fence.answer(handshake, replication).await?;
    let others = optional(handshake.answer(others).await)?;
    let sharded = handshake.answer(sharded).await;
    let hides_sharded = matches!(sharded, Err(Fault::Denied { .. }));
    optional(sharded)?;
    let others = others.as_ref().and_then(Reply::list).unwrap_or_default();
    Ok(ClusterFacts {
        needs_full_coverage: coverage.map(|value| value == "yes"),
        node_timeout: node_timeout.and_then(|ms| ms.parse().ok()).map(Duration::from_millis),
        fence,
        is_sharded,
        hides_sharded,
        other_channel: others.first().and_then(Reply::text).map(str::to_owned),
    })
}

/// Evaluates a reply to TIME that was requested at `before` and arrived at `after`.
fn clock_ahead_ms(time: &Reply, before: Duration, after: Duration) -> Option<i64> {
    let [seconds, micros] = time.list()? else { return None };
    let there = seconds.number()?.saturating_mul(1000).saturating_add(micros.number()? / 1000);
    let here = (before + after) / 2;
    let ahead = there.saturating_sub(here.as_millis() as i64);
    // It may have looked at any time in between.
    let doubt = (after.saturating_sub(before) / 2).as_millis() as i64;
    Some(ahead.signum() * (ahead.saturating_abs() - doubt).max(0))
}

async fn info_of(
    handshake: &Handshake<'_>,
    sent: InFlight,
) -> Result<HashMap<String, String>, Fault> {
    Ok(optional(handshake.answer(sent).await)?.as_ref().map(fields).unwrap_or_default())
}

pub(super) async fn setting_of(
    handshake: &Handshake<'_>,
    sent: InFlight,
) -> Result<Option<String>, Fault> {
    let reply = optional(handshake.answer(sent).await)?;
    let value = reply.as_ref().and_then(Reply::list).and_then(|pair| pair.get(1));
    Ok(value.and_then(Reply::text).map(str::to_owned))
}

/// The field of `INFO replication` that counts the replicas that are near enough: Redis's, Valkey's.
const GOOD: [&str; 2] = ["min_slaves_good_slaves", "min_replicas_good_replicas"];

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

pub(super) fn config_command(setting: &str) -> redis::Cmd {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg(setting);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_off_by_what_is_certain_in_its_direction() {
        let [before, after] = [1_000_000, 1_000_200].map(Duration::from_millis);
        let ahead_ms = |there_ms: u64| {
            let time = [there_ms / 1000, there_ms % 1000 * 1000].map(|part| part.to_string());
            clock_ahead_ms(&Reply::List(time.map(Reply::Text).into()), before, after)
        };
        let found = [1_005_100, 1_000_200, 1_000_000, 995_100].map(ahead_ms);
        assert_eq!(found, [4900, 0, 0, -4900].map(Some));
        assert_eq!(clock_ahead_ms(&Reply::Nil, before, after), None);
    }
}
