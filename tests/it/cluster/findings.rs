//! What `check` finds on a cluster.

use std::time::Duration;

use leasehold::{Client, FindingKind};

use super::{builder, connect};
use crate::checks::LIMIT;
use crate::support::{Cluster, eventually};

/// How often a check finds it.
async fn count(client: &Client, is_it: impl Fn(&FindingKind) -> bool) -> usize {
    let findings = client.check().await.expect("an answer");
    findings.iter().filter(|finding| is_it(&finding.kind)).count()
}

#[tokio::test]
async fn a_cluster_that_stops_as_a_whole_is_found() {
    let cluster = Cluster::start().await;
    let client = connect(&cluster).await;
    let needs_all = |kind: &FindingKind| *kind == FindingKind::FullCoverage;
    assert_eq!(count(&client, needs_all).await, 3, "one for each master");
    for server in cluster.servers() {
        server.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    assert_eq!(count(&client, needs_all).await, 0);

    let rules = ["on", ">p", "~*", "&*", "+@all", "-pubsub|shardnumsub", "-config"];
    for server in cluster.servers() {
        server.command(&[&["ACL", "SETUSER", "u", "reset"], &rules[..]].concat()).await;
    }
    let urls = cluster.servers().iter().map(|server| server.url_as("u", "p"));
    let limited = builder(&cluster).cluster(urls).connect().await.expect("enough rights");
    for what in ["cluster-require-full-coverage", "whether there are sharded channels"] {
        let is_unknown = |kind: &FindingKind| matches!(kind, FindingKind::Unknown { setting, .. } if *setting == what);
        assert_eq!(count(&limited, is_unknown).await, 3, "{what}");
        assert_eq!(count(&client, is_unknown).await, 0, "{what}");
    }
}

#[tokio::test]
async fn a_grace_shorter_than_an_old_master_lives_on_is_found() {
    let cluster = Cluster::start().await;
    let client = builder(&cluster).restart_quarantine(Duration::from_secs(33)).connect().await;
    let client = client.expect("connected");
    let found = async || {
        let findings = client.check().await.expect("an answer");
        let needed = |kind: &FindingKind| match kind {
            FindingKind::QuarantineTooShort { node_timeout_ms: 15_000, needed_ms, .. } => {
                Some(*needed_ms)
            }
            _ => None,
        };
        findings.iter().filter_map(|finding| needed(&finding.kind)).collect::<Vec<_>>()
    };
    assert!(found().await.is_empty(), "the timeout of the tests is short");
    cluster.master(0).command(&["CONFIG", "SET", "cluster-node-timeout", "15000"]).await;
    assert_eq!(found().await, [38_500]);
    cluster.master(0).command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    assert!(found().await.is_empty(), "it stops without its replica");
    cluster.master(0).command(&["CONFIG", "SET", "min-replicas-max-lag", "0"]).await;
    assert_eq!(found().await, [38_500], "that turns it off");
    let may_lose = |kind: &FindingKind| matches!(kind, FindingKind::Replicas { .. });
    assert_eq!(count(&client, may_lose).await, 0, "holders put back what a failover loses");
}

#[tokio::test]
async fn one_master_that_is_down_does_not_hide_what_the_others_say() {
    let cluster = Cluster::start().await;
    let client = connect(&cluster).await;
    cluster.replica(2).kill();
    cluster.master(2).kill();
    let dead = cluster.master(2).url();
    eventually(LIMIT, "two are asked and one is not", async || {
        let findings = client.check().await.expect("two of them answer");
        let silent = |kind: &FindingKind| matches!(kind, FindingKind::NoAnswer { .. });
        let silent = findings.iter().filter(|finding| silent(&finding.kind));
        let silent: Vec<&str> = silent.map(|finding| &*finding.node).collect();
        let coverage = findings.iter().filter(|it| it.kind == FindingKind::FullCoverage).count();
        silent == [&*dead] && coverage == 2
    })
    .await;
}
