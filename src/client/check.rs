//! The check of the servers' settings: what is asked of them, and which findings it comes to.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::findings::{Finding, FindingKind, LATE};
use crate::config::{Config, Deployment, PubSub, overlap};
use crate::engine::gate::{Engine, Service};
use crate::error::{Error, Fault};
use crate::events;
use crate::node::{ClusterFacts, Facts, FailoverFacts, Fence, Node};

impl Finding {
    /// Asks the servers, and fails if no majority of them answers; in a cluster, if none of them does.
    pub(super) async fn ask(engine: &Engine) -> Result<Vec<Self>, Error> {
        engine.check_service(Service::Draining)?;
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
            _ if (facts.failover.is_some() || facts.cluster.is_some())
                && !config.quarantine().is_zero() => {}
            Some(0) => {}
            Some(replicas) => kinds.push(FindingKind::Replicas { replicas }),
            None => kinds.push(FindingKind::unknown("the replicas")),
        }
        if let Some(ahead_ms) = facts.clock_ahead_ms.filter(|ms| ms.unsigned_abs() >= FAR_OFF_MS) {
            kinds.push(FindingKind::ClockAhead { ahead_ms });
        }
        if let Some(failover) = &facts.failover {
            kinds.extend(of_failover(failover, facts.replicas, config));
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

/// Returns what can break the promises at a failover.
fn of_failover(facts: &FailoverFacts, connected: Option<u64>, config: &Config) -> Vec<FindingKind> {
    let mut kinds = Vec::new();
    let spare = config.quarantine().saturating_sub(config.ttl);
    let down_after = facts.watch.as_ref().and_then(|watch| watch.down_after);
    let Fence { min_replicas, max_lag } = facts.fence;
    // Those that are away now may be back when it matters.
    let watched = facts.watch.as_ref().map_or(0, |watch| watch.priorities.len() as u64);
    let replicas = connected.unwrap_or(0).max(watched);
    match (min_replicas, max_lag, down_after) {
        (Some(0), ..) => kinds.push(FindingKind::Unfenced),
        (Some(_), Some(max_lag), Some(down_after))
            if max_lag >= down_after
                || max_lag + LATE > down_after + spare
                || may_end_there(config.ttl, down_after, max_lag + LATE) =>
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

/// Returns true if a lease of `ttl` may end on a master that was cut off while its holder renews it on the next one, so that
/// another client, cut off together with the old one, gets it there. The old one `stops` so long after it was cut off, and is
/// `replaced` so long after it or later.
///
/// The lease was last renewed there up to a third of the TTL before, so two thirds are left. A very short one is over everywhere
/// before the next master is there.
fn may_end_there(ttl: Duration, replaced: Duration, stops: Duration) -> bool {
    ttl >= replaced && stops > replaced && 2 * ttl < 3 * stops
}

fn short_ttl(
    facts: &ClusterFacts,
    node_timeout: Duration,
    replicas: Option<u64>,
    ttl: Duration,
) -> Option<FindingKind> {
    let stops = node_timeout + overlap(node_timeout);
    let stops = match (facts.fence.min_replicas, facts.fence.max_lag, replicas) {
        (Some(least @ 1..), Some(max_lag), Some(replicas)) if is_fence(least, replicas) => {
            stops.min(max_lag + LATE)
        }
        _ => stops,
    };
    let replaced = node_timeout;
    may_end_there(ttl, replaced, stops).then(|| FindingKind::TtlTooShort {
        node_timeout_ms: node_timeout.as_millis() as u64,
        needed_ms: (stops * 3 / 2).as_micros().div_ceil(1000) as u64,
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

#[cfg(test)]
mod tests;
