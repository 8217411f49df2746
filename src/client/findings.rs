//! Settings of the servers that can break a lock's guarantees.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::config::{Config, Deployment, PubSub};
use crate::engine::gate::Engine;
use crate::error::{Error, Fault};
use crate::events;
use crate::node::{ClusterFacts, Facts, FailoverFacts, Node};
use crate::text::{Printable, shortened};

/// A property of a server that can break a lock's guarantees; see [`Client::check`](crate::Client::check).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// The server's address, without credentials.
    pub node: Arc<str>,
    /// The kind of problem.
    pub kind: FindingKind,
}

/// The kind of problem that a [`Finding`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum FindingKind {
    /// The server may evict locks when it runs out of memory. The value is the configured policy.
    Eviction(String),
    /// A restart loses every lock: two holders may have one until the first notices, at its next renewal.
    NotPersistent,
    /// A crash may lose the latest locks: the append-only file is not synced at every command.
    NotWrittenThrough,
    /// A failover may lose the latest locks: replicas receive writes later. The value is the number of replicas.
    Replicas(u64),
    /// The server's clock differs from this host's. The value says how many milliseconds it is ahead.
    ClockAhead(i64),
    /// The server is older than this library supports. The value is its version.
    OldVersion(String),
    /// The server is a Redis Cluster of one shard: if another shard is added, the server refuses some of the locks.
    OneShard,
    /// A master that has lost its replicas goes on granting locks, beside the one that has replaced it: its
    /// `min-replicas-to-write` is 0. Only clients of [Sentinels](crate::ClientBuilder::sentinel) report this.
    Unfenced,
    /// A master that has lost its replicas may go on granting locks beside the one that has replaced it: it stops up to two
    /// seconds after `min-replicas-max-lag`, and neither the Sentinels nor the
    /// [`restart_quarantine`](crate::ClientBuilder::restart_quarantine) wait for so long.
    #[non_exhaustive]
    FencedLate {
        /// The server's `min-replicas-max-lag`, in seconds.
        max_lag: u64,
        /// The Sentinels' `down-after-milliseconds`.
        down_after_ms: u64,
    },
    /// The replicas differ in their `replica-priority`, which is the value: the Sentinels promote the one with the lowest
    /// number, even if another one has more of the latest locks.
    ReplicaPriority(Vec<u64>),
    /// The server does not report whether it is a master, so an old master is recognised only when it refuses a write.
    RoleUnknown,
    /// The user may not end connections (`CLIENT KILL`), so a request that is still on its way to a server may run after
    /// the client has left that server and come back.
    NoKill,
    /// The server refused the key `leasehold_mark` when the client connected: after a failover, each client that meets it
    /// for the first time waits for a whole [`restart_quarantine`](crate::ClientBuilder::restart_quarantine).
    MarkRefused,
    /// While one master of the cluster is down, all others refuse locks, too, and do not renew them: its
    /// `cluster-require-full-coverage` is on.
    FullCoverage,
    /// Somebody waits for a lock on a channel of the kind that this client does not use, so neither hears of the other's
    /// releases; see [`ClientBuilder::pubsub`](crate::ClientBuilder::pubsub). It is seen only while somebody waits.
    #[non_exhaustive]
    OtherChannels {
        /// One such channel.
        channel: String,
        /// It is a sharded one, and this client uses plain ones.
        sharded: bool,
    },
    /// The user lacks the rights to read a setting, which the value names.
    Unknown(&'static str),
}

impl Finding {
    /// Asks the servers, and fails if no majority of them answers.
    pub(super) async fn ask(engine: &Engine) -> Result<Vec<Self>, Error> {
        let until = engine.clock.now().plus(engine.config.response_timeout);
        let nodes = engine.all_up(until).await?;
        let (findings, faults) = Self::of_all(&nodes, engine.config.clone()).await;
        engine.check_failures(faults).map(|()| findings)
    }

    /// Logs the findings, in the background.
    pub(super) fn log_all(engine: &Engine) {
        // Those of a cluster that no lock was on yet are not asked.
        let (nodes, config) = (engine.fleet.nodes(), engine.config.clone());
        engine.watchdog.adopt(Box::pin(async move {
            for finding in Self::of_all(&nodes, config).await.0 {
                events::finding(&finding);
            }
        }));
    }

    /// Returns the findings on all nodes, and the faults of those that did not answer.
    async fn of_all(nodes: &[Node], config: Arc<Config>) -> (Vec<Self>, Vec<(usize, Fault)>) {
        let facts = join_all(nodes.iter().map(|node| node.facts(CHECK_LIMIT))).await;
        let (mut findings, mut faults) = (Vec::new(), Vec::new());
        for (index, (node, facts)) in nodes.iter().zip(facts).enumerate() {
            match facts {
                Ok(facts) => findings.extend(Self::of(&node.address(), &facts, &config)),
                Err(fault) => faults.push((index, fault)),
            }
        }
        (findings, faults)
    }

    fn of(node: &Arc<str>, facts: &Facts, config: &Config) -> Vec<Self> {
        let mut kinds = Vec::new();
        match (&facts.eviction_policy, facts.max_memory) {
            (Some(policy), Some(1..)) if policy != "noeviction" => {
                kinds.push(FindingKind::Eviction(policy.clone()));
            }
            (None, _) | (_, None) => kinds.push(FindingKind::Unknown("the eviction policy")),
            _ => {}
        }
        match (facts.append_only, facts.fsync_always) {
            // The quarantine makes up for a restart.
            _ if !config.quarantine().is_zero() => {}
            (Some(false), _) => kinds.push(FindingKind::NotPersistent),
            (Some(true), Some(false)) => kinds.push(FindingKind::NotWrittenThrough),
            (Some(true), Some(true)) => {}
            _ => kinds.push(FindingKind::Unknown("the persistence")),
        }
        match facts.replicas {
            // Holders put back what a failover loses.
            _ if facts.failover.is_some() && !config.quarantine().is_zero() => {}
            Some(0) => {}
            Some(replicas) => kinds.push(FindingKind::Replicas(replicas)),
            None => kinds.push(FindingKind::Unknown("the replicas")),
        }
        if let Some(ahead) = facts.clock_ahead_ms.filter(|ms| ms.unsigned_abs() >= FAR_OFF_MS) {
            kinds.push(FindingKind::ClockAhead(ahead));
        }
        if let Some(failover) = &facts.failover {
            let spare = config.quarantine().saturating_sub(config.ttl);
            kinds.extend(of_failover(failover, spare));
        }
        if let Some(cluster) = &facts.cluster {
            kinds.extend(of_cluster(cluster, config.pubsub));
        }
        if facts.refuses_mark {
            kinds.push(FindingKind::MarkRefused);
        }
        if facts.is_cluster && config.deployment != Deployment::Cluster {
            kinds.push(FindingKind::OneShard);
        }
        if let Some(version) = facts.version.as_ref().filter(|version| is_old(version)) {
            kinds.push(FindingKind::OldVersion(version.clone()));
        }
        let finding = |kind| Self { node: node.clone(), kind };
        kinds.into_iter().map(finding).collect()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.node)?;
        match &self.kind {
            FindingKind::Eviction(policy) => write!(
                f,
                "maxmemory-policy is {policy}: when memory runs out, the server may evict held locks; set noeviction"
            ),
            FindingKind::NotPersistent => f.write_str(
                "appendonly is off: a restart loses every lock; set appendonly yes and appendfsync always",
            ),
            FindingKind::NotWrittenThrough => f.write_str(
                "appendfsync is not always: a power failure loses the latest locks",
            ),
            FindingKind::Replicas(replicas) => write!(
                f,
                "it has {replicas} replicas: a failover may lose the latest locks; let the resource check tokens"
            ),
            FindingKind::ClockAhead(ms) => write!(
                f,
                "its clock is {ms} ms ahead of this host's: correcting it shortens or lengthens every lock"
            ),
            FindingKind::OldVersion(version) => {
                write!(f, "it is version {version}; the oldest supported are Redis 6.2 and Valkey 7.2")
            }
            FindingKind::OneShard => f.write_str(
                "it is a Redis Cluster of one shard: if a shard is added, it refuses the locks in that shard's slots (MOVED)",
            ),
            FindingKind::Unfenced => f.write_str(
                "min-replicas-to-write is 0: a master that is cut off from its replicas goes on granting locks beside the new \
                 one; set it to 1 on all servers",
            ),
            FindingKind::FencedLate { max_lag, down_after_ms } => write!(
                f,
                "min-replicas-max-lag is {max_lag} s, so a master may stop {} s after it has lost its replicas, and the Sentinels \
                 replace it after {down_after_ms} ms: both may grant locks meanwhile; lower min-replicas-max-lag, or raise \
                 down-after-milliseconds",
                max_lag + LATE.as_secs()
            ),
            FindingKind::ReplicaPriority(priorities) => write!(
                f,
                "the replicas' replica-priority differs ({priorities:?}): a failover may promote one that lacks the latest \
                 locks; set the same on all"
            ),
            FindingKind::RoleUnknown => f.write_str(
                "it does not report its role: an old master is recognised only when it refuses a write; allow INFO",
            ),
            FindingKind::NoKill => f.write_str(
                "this user may not end connections: what is late on an old one may run after a failover; allow CLIENT ID and \
                 CLIENT KILL",
            ),
            FindingKind::MarkRefused => f.write_str(
                "it refused the key leasehold_mark: after a failover, each client that connects waits for a whole \
                 restart_quarantine; let this user write that key",
            ),
            FindingKind::FullCoverage => f.write_str(
                "cluster-require-full-coverage is yes: while one master is down, the locks of all others are neither granted \
                 nor renewed; set it to no",
            ),
            FindingKind::OtherChannels { channel, sharded } => {
                let [theirs, ours] = match sharded {
                    true => ["sharded", "plain"],
                    false => ["plain", "sharded"],
                };
                write!(
                    f,
                    "somebody listens for releases on the {theirs} channel {}, and this client uses {ours} ones: neither wakes \
                     the other; use the same kind in all programs (`pubsub`)",
                    Printable(&shortened(channel))
                )
            }
            FindingKind::Unknown(what) => write!(f, "this user cannot read {what}"),
        }
    }
}

/// Returns what can break the promises at a failover. `spare` is how much longer the grace is than a lease.
fn of_failover(facts: &FailoverFacts, spare: Duration) -> Vec<FindingKind> {
    let mut kinds = Vec::new();
    let down_after = facts.watch.as_ref().and_then(|watch| watch.down_after);
    match (facts.min_replicas, facts.max_lag, down_after) {
        (Some(0), ..) => kinds.push(FindingKind::Unfenced),
        (Some(_), Some(max_lag), Some(down_after))
            if max_lag >= down_after || max_lag + LATE > down_after + spare =>
        {
            kinds.push(FindingKind::FencedLate {
                max_lag: max_lag.as_secs(),
                down_after_ms: down_after.as_millis() as u64,
            });
        }
        (None, ..) | (_, None, _) => kinds.push(FindingKind::Unknown("min-replicas-to-write")),
        _ => {}
    }
    match &facts.watch {
        Some(watch) if watch.priorities.windows(2).any(|pair| pair[0] != pair[1]) => {
            kinds.push(FindingKind::ReplicaPriority(watch.priorities.clone()));
        }
        Some(_) => {}
        None => kinds.push(FindingKind::Unknown("the Sentinels' settings")),
    }
    if !facts.tells_role {
        kinds.push(FindingKind::RoleUnknown);
    }
    if !facts.may_kill {
        kinds.push(FindingKind::NoKill);
    }
    kinds
}

/// Returns what can keep the locks of a cluster, or those who wait for them, waiting.
fn of_cluster(facts: &ClusterFacts, wanted: PubSub) -> Vec<FindingKind> {
    let mut kinds = Vec::new();
    match facts.needs_full_coverage {
        Some(true) => kinds.push(FindingKind::FullCoverage),
        Some(false) => {}
        None => kinds.push(FindingKind::Unknown("cluster-require-full-coverage")),
    }
    if let Some(channel) = &facts.other_channel {
        let (channel, sharded) = (channel.clone(), !facts.is_sharded);
        kinds.push(FindingKind::OtherChannels { channel, sharded });
    }
    if facts.hides_sharded && wanted == PubSub::Auto {
        kinds.push(FindingKind::Unknown("whether there are sharded channels"));
    }
    kinds
}

fn is_old(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    (major, minor) < (6, 2)
}

/// The time limit for the servers' answers to a check.
const CHECK_LIMIT: Duration = Duration::from_secs(5);
/// A clock that is this far off is reported. The round trip alone does not cause such a difference.
const FAR_OFF_MS: u64 = 1000;
/// How long after `min-replicas-max-lag` a master may stop: it counts in whole seconds, and looks once a second.
const LATE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::WatchFacts;

    fn safe() -> FailoverFacts {
        FailoverFacts {
            tells_role: true,
            may_kill: true,
            min_replicas: Some(1),
            max_lag: Some(Duration::from_secs(1)),
            watch: Some(WatchFacts {
                down_after: Some(Duration::from_millis(1001)),
                priorities: vec![100, 100],
            }),
        }
    }

    #[test]
    fn what_keeps_the_locks_of_a_cluster_waiting_is_found() {
        let good = || ClusterFacts { needs_full_coverage: Some(false), ..ClusterFacts::default() };
        assert_eq!(of_cluster(&good(), PubSub::Auto), []);
        let needs = |needs_full_coverage| ClusterFacts { needs_full_coverage, ..good() };
        assert_eq!(of_cluster(&needs(Some(true)), PubSub::Auto), [FindingKind::FullCoverage]);
        let unknown = FindingKind::Unknown("cluster-require-full-coverage");
        assert_eq!(of_cluster(&needs(None), PubSub::Auto), [unknown]);
        for is_sharded in [false, true] {
            let other_channel = Some("redisson_lock__channel:{n}".to_owned());
            let found = ClusterFacts { is_sharded, other_channel, ..good() };
            let found = of_cluster(&found, PubSub::Auto);
            assert!(
                matches!(&found[..], [FindingKind::OtherChannels { channel, sharded }]
                    if channel == "redisson_lock__channel:{n}" && *sharded != is_sharded),
                "{found:?}"
            );
        }
        let hidden = ClusterFacts { hides_sharded: true, ..good() };
        let unknown = FindingKind::Unknown("whether there are sharded channels");
        assert_eq!(of_cluster(&hidden, PubSub::Auto), [unknown]);
        assert_eq!(of_cluster(&hidden, PubSub::Plain), []);
    }

    #[test]
    fn what_lets_two_masters_grant_is_found() {
        let usual = Duration::from_secs(3);
        let of_failover = |facts: &FailoverFacts| of_failover(facts, usual);
        assert_eq!(of_failover(&safe()), []);
        let unfenced = FailoverFacts { min_replicas: Some(0), ..safe() };
        assert_eq!(of_failover(&unfenced), [FindingKind::Unfenced]);
        let late = |down_after_ms, spare| {
            let down_after = Some(Duration::from_millis(down_after_ms));
            let watch = Some(WatchFacts { down_after, priorities: Vec::new() });
            super::of_failover(&FailoverFacts { watch, ..safe() }, spare)
        };
        let found = |down_after_ms| [FindingKind::FencedLate { max_lag: 1, down_after_ms }];
        assert_eq!((late(1000, usual), late(1001, usual)), (found(1000).into(), vec![]));
        assert_eq!(late(2999, Duration::ZERO), found(2999));
        assert_eq!(late(3000, Duration::ZERO), []);
        let watch = Some(WatchFacts { down_after: None, priorities: vec![100, 50] });
        let unequal = of_failover(&FailoverFacts { watch, ..safe() });
        assert_eq!(unequal, [FindingKind::ReplicaPriority(vec![100, 50])]);
        let blind = FailoverFacts { tells_role: false, may_kill: false, ..safe() };
        assert_eq!(of_failover(&blind), [FindingKind::RoleUnknown, FindingKind::NoKill]);
        let unknown = of_failover(&FailoverFacts { min_replicas: None, watch: None, ..safe() });
        let setting = FindingKind::Unknown("min-replicas-to-write");
        assert_eq!(unknown, [setting, FindingKind::Unknown("the Sentinels' settings")]);
    }
}
