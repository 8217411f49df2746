//! Settings of the servers that can break a lock's guarantees.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::config::{Config, Deployment};
use crate::engine::gate::Engine;
use crate::error::{Error, Fault};
use crate::events;
use crate::node::{Facts, Node};

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
            Some(0) => {}
            Some(replicas) => kinds.push(FindingKind::Replicas(replicas)),
            None => kinds.push(FindingKind::Unknown("the replicas")),
        }
        if let Some(ahead) = facts.clock_ahead_ms.filter(|ms| ms.unsigned_abs() >= FAR_OFF_MS) {
            kinds.push(FindingKind::ClockAhead(ahead));
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
            FindingKind::Unknown(what) => write!(f, "this user cannot read {what}"),
        }
    }
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
