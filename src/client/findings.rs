//! Settings of the servers that can break a lock's guarantees.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::config::{Config, Deployment, PubSub, overlap};
use crate::engine::gate::Engine;
use crate::error::{Error, Fault};
use crate::events;
use crate::node::{ClusterFacts, Facts, FailoverFacts, Fence, NamedMasters, Node};
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
    /// The server may evict locks when it runs out of memory.
    #[non_exhaustive]
    Eviction {
        /// Its `maxmemory-policy`.
        policy: String,
    },
    /// A restart loses every lock: two holders may have one until the first notices, at its next renewal.
    NotPersistent,
    /// A crash may lose the latest locks: the append-only file is not synced at every command.
    NotWrittenThrough,
    /// A failover may lose the latest locks: replicas receive writes later than the master.
    #[non_exhaustive]
    Replicas {
        /// How many replicas the server has.
        replicas: u64,
    },
    /// The server's clock differs from this host's.
    #[non_exhaustive]
    ClockAhead {
        /// By how many milliseconds it is ahead. If it is behind, the number is negative.
        ahead_ms: i64,
    },
    /// The server is older than this library supports.
    #[non_exhaustive]
    OldVersion {
        /// Its version, as the server says it.
        version: String,
    },
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
    /// A master that is cut off together with some of its replicas may go on granting locks beside the one that has replaced
    /// it: its `min-replicas-to-write` is less than half of the replicas, so there may be enough of them on both sides.
    #[non_exhaustive]
    FencedByFew {
        /// The server's `min-replicas-to-write`.
        min_replicas: u64,
        /// How many replicas it has.
        replicas: u64,
    },
    /// A master of the cluster that is cut off may go on granting locks beside the one that has replaced it, for longer than
    /// the [`restart_quarantine`](crate::ClientBuilder::restart_quarantine) is than the TTL.
    #[non_exhaustive]
    QuarantineTooShort {
        /// The node's `cluster-node-timeout`, in milliseconds.
        node_timeout_ms: u64,
        /// What the `restart_quarantine` must be at least with this client's TTL, in milliseconds.
        needed_ms: u64,
    },
    /// A lease may end on a master of the cluster that is cut off before that master stops, while its holder renews it on the one
    /// that has replaced it: whoever was cut off together with the old one may then have the lock, too.
    #[non_exhaustive]
    TtlTooShort {
        /// The node's `cluster-node-timeout`, in milliseconds.
        node_timeout_ms: u64,
        /// What the TTL must be at least, in milliseconds.
        needed_ms: u64,
    },
    /// The server did not answer, so nothing is known of it.
    #[non_exhaustive]
    NoAnswer {
        /// What went wrong.
        why: String,
    },
    /// The replicas differ in their `replica-priority`: the Sentinels promote the one with the lowest number, even if another
    /// one has more of the latest locks.
    #[non_exhaustive]
    ReplicaPriority {
        /// The priority of each replica that can be promoted.
        priorities: Vec<u64>,
    },
    /// Sentinels that answer have named different masters for 10 s or longer, so clients may use different servers, and two of
    /// them hold one lock: one of the Sentinels watches another deployment by the same name, or is cut off from the others.
    #[non_exhaustive]
    SentinelsDisagree {
        /// Each Sentinel that answers, and the address of the master that it names.
        named: Vec<(Arc<str>, String)>,
    },
    /// The server does not report whether it is a master, so an old master is recognised only when it refuses a write.
    RoleUnknown,
    /// The user may not end connections (`CLIENT KILL`), so a request that is still on its way to a server may run after
    /// the client has left that server and come back.
    KillRefused,
    /// The user may not write the key `leasehold_mark`, as was seen when the client connected: each client that meets the
    /// server for the first time waits for a whole [`restart_quarantine`](crate::ClientBuilder::restart_quarantine).
    MarkRefused,
    /// The user may not read and write the key `leasehold_masters` (with a `name_prefix`, `leasehold_masters:{..}`), as was seen
    /// when the client connected: nobody notices if clients name different [masters](crate::ClientBuilder::nodes), and then two
    /// of them may hold one lock.
    MastersRefused,
    /// The user may not use the keys `leasehold_wait:..`, as was seen for a lock that this client holds, or else when a wait was
    /// to be noted last: [deadlocks](crate::ClientBuilder::deadlocks) over several processes are not found.
    NotesRefused,
    /// The server is used with other [masters](crate::ClientBuilder::nodes) than this client names, so this client takes no
    /// locks.
    #[non_exhaustive]
    OtherMasters {
        /// Which masters it is used with, and what to do.
        why: String,
    },
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
    /// The user lacks the rights to read a setting, so nothing is known of it.
    #[non_exhaustive]
    Unknown {
        /// The setting, such as `"the eviction policy"`.
        setting: &'static str,
    },
}

impl FindingKind {
    fn unknown(setting: &'static str) -> Self {
        Self::Unknown { setting }
    }
}

impl Finding {
    /// Asks the servers, and fails if no majority of them answers; in a cluster, if none of them does.
    pub(super) async fn ask(engine: &Engine) -> Result<Vec<Self>, Error> {
        let until = engine.clock.now().plus(engine.config.response_timeout);
        let nodes = engine.all_up(until).await?;
        let (mut findings, faults) = Self::of_all(&nodes, engine.config.clone()).await;
        findings.extend(faults.iter().map(|(index, fault)| Self {
            node: nodes[*index].address(),
            kind: match fault {
                Fault::OtherMasters(problem) => {
                    FindingKind::OtherMasters { why: problem.to_string() }
                }
                fault => FindingKind::NoAnswer { why: fault.to_string() },
            },
        }));
        engine.check_failures(&nodes, faults)?;
        let refuses_notes = engine.refuses_notes().await;
        findings.extend(refuses_notes.map(|node| Self { node, kind: FindingKind::NotesRefused }));
        Ok(findings)
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
                kinds.push(FindingKind::Eviction { policy: policy.clone() });
            }
            (None, _) | (_, None) => kinds.push(FindingKind::unknown("the eviction policy")),
            _ => {}
        }
        match (facts.append_only, facts.fsync_always) {
            // The quarantine makes up for a restart.
            _ if !config.quarantine().is_zero() => {}
            (Some(false), _) => kinds.push(FindingKind::NotPersistent),
            (Some(true), Some(false)) => kinds.push(FindingKind::NotWrittenThrough),
            (Some(true), Some(true)) => {}
            _ => kinds.push(FindingKind::unknown("the persistence")),
        }
        match facts.replicas {
            // Holders put back what a failover loses.
            _ if facts.failover.is_some() && !config.quarantine().is_zero() => {}
            Some(0) => {}
            Some(replicas) => kinds.push(FindingKind::Replicas { replicas }),
            None => kinds.push(FindingKind::unknown("the replicas")),
        }
        if let Some(ahead_ms) = facts.clock_ahead_ms.filter(|ms| ms.unsigned_abs() >= FAR_OFF_MS) {
            kinds.push(FindingKind::ClockAhead { ahead_ms });
        }
        if let Some(failover) = &facts.failover {
            let spare = config.quarantine().saturating_sub(config.ttl);
            kinds.extend(of_failover(failover, facts.replicas, spare));
        }
        if let Some(cluster) = &facts.cluster {
            kinds.extend(of_cluster(cluster, facts.replicas, config));
        }
        if facts.refuses_mark {
            kinds.push(FindingKind::MarkRefused);
        }
        if facts.refuses_list {
            kinds.push(FindingKind::MastersRefused);
        }
        if facts.is_cluster && config.deployment != Deployment::Cluster {
            kinds.push(FindingKind::OneShard);
        }
        if let Some(version) = facts.version.as_ref().filter(|version| is_old(version)) {
            kinds.push(FindingKind::OldVersion { version: version.clone() });
        }
        let finding = |kind| Self { node: node.clone(), kind };
        kinds.into_iter().map(finding).collect()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.node)?;
        match &self.kind {
            FindingKind::Eviction { policy } => write!(
                f,
                "maxmemory-policy is {policy}: when memory runs out, the server may evict held locks; set noeviction"
            ),
            FindingKind::NotPersistent => f.write_str(
                "appendonly is off: a restart loses every lock; set appendonly yes and appendfsync always",
            ),
            FindingKind::NotWrittenThrough => f.write_str(
                "appendfsync is not always: a power failure loses the latest locks",
            ),
            FindingKind::Replicas { replicas } => write!(
                f,
                "it has {replicas} replicas: a failover may lose the latest locks; let the resource check tokens"
            ),
            FindingKind::ClockAhead { ahead_ms } => write!(
                f,
                "its clock is {ahead_ms} ms ahead of this host's: correcting it shortens or lengthens every lock"
            ),
            FindingKind::OldVersion { version } => {
                write!(f, "it is version {version}; the oldest supported are Redis 6.2 and Valkey 8")
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
            FindingKind::FencedByFew { min_replicas, replicas } => write!(
                f,
                "min-replicas-to-write is {min_replicas}, and it has {replicas} replicas: a master that is cut off together with \
                 {min_replicas} of them goes on granting locks beside the new one; set it to at least half of the replicas on \
                 all servers"
            ),
            FindingKind::QuarantineTooShort { node_timeout_ms, needed_ms } => write!(
                f,
                "cluster-node-timeout is {node_timeout_ms} ms, so a master that is cut off may grant locks for {} ms beside the \
                 one that has replaced it: set restart_quarantine to {needed_ms} ms or more in all clients, or lower \
                 cluster-node-timeout, or set min-replicas-to-write",
                overlap(Duration::from_millis(*node_timeout_ms)).as_millis()
            ),
            FindingKind::TtlTooShort { node_timeout_ms, needed_ms } => write!(
                f,
                "cluster-node-timeout is {node_timeout_ms} ms, so a lease may end on a master that is cut off before that master \
                 stops, while its holder has it on the one that has replaced it: set a TTL of {needed_ms} ms or more, or lower \
                 cluster-node-timeout, or set min-replicas-to-write"
            ),
            FindingKind::NoAnswer { why } => write!(f, "it could not be asked: {why}"),
            FindingKind::ReplicaPriority { priorities } => write!(
                f,
                "the replicas' replica-priority differs ({priorities:?}): a failover may promote one that lacks the latest \
                 locks; set the same on all"
            ),
            FindingKind::SentinelsDisagree { named } => write!(
                f,
                "the Sentinels name different masters ({}): other clients may use another one, and hold the same locks; leave \
                 out a Sentinel that watches another deployment by this name, and connect one that is cut off",
                NamedMasters(named)
            ),
            FindingKind::RoleUnknown => f.write_str(
                "it does not report its role: an old master is recognised only when it refuses a write; allow INFO",
            ),
            FindingKind::KillRefused => f.write_str(
                "this user may not end connections: what is late on an old one may run after a failover; allow CLIENT ID and \
                 CLIENT KILL",
            ),
            FindingKind::MarkRefused => f.write_str(
                "it refused the key leasehold_mark: each client that connects waits for a whole restart_quarantine; let this \
                 user write that key",
            ),
            FindingKind::MastersRefused => f.write_str(
                "it refused the key leasehold_masters: if clients name different masters, nobody notices it, and two of them may \
                 hold one lock; let this user read and write that key",
            ),
            FindingKind::NotesRefused => f.write_str(
                "it refused the keys leasehold_wait:..: deadlocks over several processes are not found; let this user read and \
                 write them",
            ),
            FindingKind::OtherMasters { why } => f.write_str(why),
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
            FindingKind::Unknown { setting } => write!(f, "this user cannot read {setting}"),
        }
    }
}

/// Returns what can break the promises at a failover. `spare` is how much longer the grace is than a lease.
fn of_failover(facts: &FailoverFacts, connected: Option<u64>, spare: Duration) -> Vec<FindingKind> {
    let mut kinds = Vec::new();
    let down_after = facts.watch.as_ref().and_then(|watch| watch.down_after);
    let Fence { min_replicas, max_lag } = facts.fence;
    // Those that are away now may be back when it matters.
    let watched = facts.watch.as_ref().map_or(0, |watch| watch.priorities.len() as u64);
    let replicas = connected.unwrap_or(0).max(watched);
    match (min_replicas, max_lag, down_after) {
        (Some(0), ..) => kinds.push(FindingKind::Unfenced),
        (Some(_), Some(max_lag), Some(down_after))
            if max_lag >= down_after || max_lag + LATE > down_after + spare =>
        {
            kinds.push(FindingKind::FencedLate {
                max_lag: max_lag.as_secs(),
                down_after_ms: down_after.as_millis() as u64,
            });
        }
        (None, ..) | (_, None, _) => kinds.push(FindingKind::unknown("min-replicas-to-write")),
        _ => {}
    }
    if let Some(min_replicas @ 1..) = min_replicas
        && !is_fence(min_replicas, replicas)
    {
        kinds.push(FindingKind::FencedByFew { min_replicas, replicas });
    }
    match &facts.watch {
        Some(watch) => {
            // One of priority 0 is never promoted.
            let priorities: Vec<u64> =
                watch.priorities.iter().copied().filter(|priority| *priority > 0).collect();
            if priorities.windows(2).any(|pair| pair[0] != pair[1]) {
                kinds.push(FindingKind::ReplicaPriority { priorities });
            }
        }
        None => kinds.push(FindingKind::unknown("the Sentinels' settings")),
    }
    if let Some(named) = facts.disagreement.clone() {
        kinds.push(FindingKind::SentinelsDisagree { named });
    }
    if !facts.tells_role {
        kinds.push(FindingKind::RoleUnknown);
    }
    if !facts.may_kill {
        kinds.push(FindingKind::KillRefused);
    }
    kinds
}

/// Returns true if there can never be enough replicas both with a master that is cut off and with the one of them that has
/// replaced it, which is then no replica any more.
fn is_fence(min_replicas: u64, replicas: u64) -> bool {
    2 * min_replicas >= replicas
}

/// A lease was last renewed on the old master up to a third of the TTL before that was cut off, so that two thirds are left there.
/// With a very short TTL it is over everywhere before anybody replaces the master.
fn short_ttl(
    facts: &ClusterFacts,
    node_timeout: Duration,
    replicas: Option<u64>,
    ttl: Duration,
) -> Option<FindingKind> {
    let stops = node_timeout + Duration::from_secs(1);
    let stops = match (facts.fence.min_replicas, facts.fence.max_lag, replicas) {
        (Some(least @ 1..), Some(max_lag), Some(replicas)) if is_fence(least, replicas) => {
            stops.min(max_lag + LATE)
        }
        _ => stops,
    };
    let replaced = node_timeout / 2;
    let is_short = ttl >= replaced && stops > replaced && 2 * ttl < 3 * stops;
    is_short.then(|| FindingKind::TtlTooShort {
        node_timeout_ms: node_timeout.as_millis() as u64,
        needed_ms: (stops * 3 / 2).as_millis() as u64,
    })
}

/// Returns what can break the promises of a cluster, or keep its locks, or those who wait for them, waiting.
fn of_cluster(facts: &ClusterFacts, replicas: Option<u64>, config: &Config) -> Vec<FindingKind> {
    let mut kinds = Vec::new();
    let (wanted, grace) = (config.pubsub, config.quarantine());
    match facts.node_timeout {
        _ if grace.is_zero() => {}
        Some(node_timeout) => {
            let needed = config.ttl + overlap(node_timeout);
            let spare = grace.saturating_sub(config.ttl);
            let is_fenced = match (facts.fence.min_replicas, facts.fence.max_lag, replicas) {
                (Some(least @ 1..), Some(max_lag), Some(replicas)) => {
                    is_fence(least, replicas) && max_lag + LATE <= node_timeout + spare
                }
                _ => false,
            };
            if needed > grace && !is_fenced {
                kinds.push(FindingKind::QuarantineTooShort {
                    node_timeout_ms: node_timeout.as_millis() as u64,
                    needed_ms: needed.as_millis() as u64,
                });
            }
            kinds.extend(short_ttl(facts, node_timeout, replicas, config.ttl));
        }
        None => kinds.push(FindingKind::unknown("cluster-node-timeout")),
    }
    match facts.needs_full_coverage {
        Some(true) => kinds.push(FindingKind::FullCoverage),
        Some(false) => {}
        None => kinds.push(FindingKind::unknown("cluster-require-full-coverage")),
    }
    if let Some(channel) = &facts.other_channel {
        let (channel, sharded) = (channel.clone(), !facts.is_sharded);
        kinds.push(FindingKind::OtherChannels { channel, sharded });
    }
    if facts.hides_sharded && wanted == PubSub::Auto {
        kinds.push(FindingKind::unknown("whether there are sharded channels"));
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
mod tests;
