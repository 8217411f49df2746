//! Behind Sentinels: these tell Redisson and us where the master is.

use std::time::Duration;

use super::{Both, Crossed, LIMIT};
use crate::{
    java::{Java, Version},
    side::{Rust, Side},
    support::{Deployment, MASTER, in_time},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_stay_with_their_holders_when_the_master_is_killed() {
    let deployment = Deployment::start().await;
    let crossed = cross(&deployment).await;
    deployment.master().kill();
    go_on_at_the_replica(&deployment, crossed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_stay_with_their_holders_when_a_master_that_is_well_is_replaced() {
    let deployment = Deployment::start().await;
    let crossed = cross(&deployment).await;
    deployment.fail_over().await;
    go_on_at_the_replica(&deployment, crossed).await;
}

/// Each holds a lock for which the other waits, and the replica has it all.
async fn cross(deployment: &Deployment) -> Crossed {
    let mut nodes = vec![MASTER.to_owned()];
    nodes.extend(deployment.sentinel_urls());
    let java = Java::connect_to_deployment(Version::V4_7_0, "sentinel", &nodes, TTL).await;
    let builder = deployment.builder().ttl(TTL).restart_quarantine(Duration::ZERO);
    let rust = Rust::new(builder.connect().await.expect("the master accepts the client"));
    let (java, rust) = (Side::Java(java), Side::Rust(rust));
    let both = Both { java, rust, count_listeners: "NUMSUB", ttl: TTL };
    let names = ["held-by-java", "held-by-rust"].map(str::to_owned);
    let crossed = both.cross(names, deployment.master()).await;
    deployment.is_synced().await;
    crossed
}

async fn go_on_at_the_replica(deployment: &Deployment, mut crossed: Crossed) {
    let replica = &deployment.servers[1];
    deployment.is_led_by(replica).await;
    in_time(LIMIT * 2, "both go on", async {
        crossed.have_arrived_at(replica, "probe").await;
        crossed.are_kept_at(replica).await;
        crossed.wait_at(replica, &[replica]).await;
        crossed.hand_over(replica, true).await;
    })
    .await;
}

/// A failover is over well before the rest of a lease, which was renewed a third of this ago at most.
const TTL: Duration = Duration::from_secs(12);
