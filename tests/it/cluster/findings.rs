//! What `check` finds on a cluster.

use leasehold::{Client, FindingKind};

use super::{builder, connect};
use crate::support::Cluster;

/// How often a check finds it.
async fn count(client: &Client, kind: &FindingKind) -> usize {
    let findings = client.check().await.expect("an answer");
    findings.iter().filter(|finding| finding.kind == *kind).count()
}

#[tokio::test]
async fn a_cluster_that_stops_as_a_whole_is_found() {
    let cluster = Cluster::start().await;
    let client = connect(&cluster).await;
    assert_eq!(count(&client, &FindingKind::FullCoverage).await, 3, "one for each master");
    for server in cluster.servers() {
        server.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    assert_eq!(count(&client, &FindingKind::FullCoverage).await, 0);

    let rules = ["on", ">p", "~*", "&*", "+@all", "-pubsub|shardnumsub", "-config"];
    for server in cluster.servers() {
        server.command(&[&["ACL", "SETUSER", "u", "reset"], &rules[..]].concat()).await;
    }
    let urls = cluster.servers().iter().map(|server| server.url_as("u", "p"));
    let limited = builder(&cluster).cluster(urls).connect().await.expect("enough rights");
    for what in ["cluster-require-full-coverage", "whether there are sharded channels"] {
        assert_eq!(count(&limited, &FindingKind::Unknown(what)).await, 3, "{what}");
        assert_eq!(count(&client, &FindingKind::Unknown(what)).await, 0, "{what}");
    }
}
