//! Behind Sentinels: these tell Redisson and us where the master is.

use std::time::{Duration, SystemTime};

use leasehold::{Client, ClientBuilder, LossReason};
use leasehold_testkit::{
    Deployment, MASTER, Proxy, Server, eventually, in_time,
    java::{Failure, Java, Version},
};

use super::{Both, Crossed, LIMIT, NOW, TOLD_WITHIN, left_ms};
use crate::side::{Rust, Side};

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
    let java = connect_java(deployment).await;
    let builder = builder(deployment).restart_quarantine(Duration::ZERO);
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
        crossed.both.have_arrived_at(replica, "probe").await;
        crossed.are_kept_at(replica).await;
        crossed.wait_at(replica, &[replica]).await;
        crossed.hand_over(replica, true).await;
    })
    .await;
}

/// A failover is over well before the rest of a lease, which was renewed a third of this ago at most.
const TTL: Duration = Duration::from_secs(12);

/// With the grace, which Redisson does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_our_grace_java_takes_what_is_free_and_what_the_new_master_lacks() {
    let deployment = Deployment::start().await;
    let replica = &deployment.servers[1];
    let way_to_it = Proxy::start(replica.port()).await;
    let java = Side::Java(connect_java(&deployment).await);
    let rust = connect_with_grace(&deployment, &way_to_it).await;
    in_time(LIMIT * 3, "all go on", async {
        for name in ["kept", "lacking", "taken"] {
            assert_eq!(rust.lock("a", name).value().await, 1);
        }
        deployment.is_synced().await;
        forget(replica, &["lacking", "taken"]).await;
        // Ours comes later than Java.
        way_to_it.refuse(true);
        deployment.master().kill();
        deployment.is_led_by(replica).await;
        eventually(LIMIT, "Java takes what nobody holds there", async || {
            java.try_lock("j", "taken", NOW).done().await.outcome == Ok(1)
        })
        .await;
        assert!(rust.rust().look("a", "taken", |guard| guard.is_held()), "it cannot know yet");
        way_to_it.refuse(false);
        let told = in_time(LIMIT, "it is told", rust.rust().lost("a", "taken")).await;
        assert_eq!(told, LossReason::Failover, "before the end of its lease");
        for name in ["kept", "lacking"] {
            assert!(rust.rust().look("a", name, |guard| guard.is_held()), "{name}");
            eventually(LIMIT, "it is there", async || left_ms(replica, name).await > 0).await;
            assert_eq!(java.try_lock("j", name, NOW).value().await, 0, "{name}");
        }
        java_goes_on_in_our_grace(&java, &rust).await;
    })
    .await;
}

/// Java takes turns at a lock all the time. Ours is refused, and what waits gets its turn after the grace.
async fn java_goes_on_in_our_grace(java: &Side, rust: &Side) {
    let ends_at = rust.rust().client.nodes()[0].quarantined_until.expect("the grace has begun");
    let waiting = rust.lock("b", "free");
    let mut turns = 0;
    while SystemTime::now() + TOLD_WITHIN < ends_at {
        assert_eq!(java.lock("j", "free").value().await, 1);
        let refused = rust.try_lock("c", "free", NOW).done().await.outcome;
        let is_grace = matches!(&refused, Err(Failure::Other(why)) if why.contains("do not count"));
        assert!(is_grace || SystemTime::now() >= ends_at, "{refused:?}");
        assert_eq!(java.unlock("j", "free").value().await, 1);
        turns += 1;
    }
    assert!(turns > 0, "Java had no time for a turn");
    assert_eq!(waiting.value().await, 1);
    assert!(SystemTime::now() >= ends_at, "ours came before the end");
    println!("{turns} turns by Java in our grace");
}

async fn connect_java(deployment: &Deployment) -> Java {
    let mut nodes = vec![MASTER.to_owned()];
    nodes.extend(deployment.sentinel_urls());
    Java::connect_to_deployment(Version::V4_7_0, "sentinel", &nodes, TTL).await
}

fn builder(deployment: &Deployment) -> ClientBuilder {
    Client::builder().sentinel(MASTER, deployment.sentinel_urls()).ttl(TTL)
}

/// Ours, which reaches the replica only on this way.
async fn connect_with_grace(deployment: &Deployment, way: &Proxy) -> Side {
    let (inside, outside) = (deployment.servers[1].port(), way.port());
    let builder = builder(deployment).restart_quarantine(GRACE);
    let builder = builder.address_map(move |host, port| {
        (host.to_owned(), if port == inside { outside } else { port })
    });
    Side::Rust(Rust::new(builder.connect().await.expect("the master accepts the client")))
}

/// The replica has not got the last grants.
async fn forget(replica: &Server, names: &[&str]) {
    replica.command(&["CONFIG", "SET", "replica-read-only", "no"]).await;
    for name in names {
        replica.command(&["DEL", name, &format!("leasehold_token:{{{name}}}")]).await;
    }
}

/// No TTL is longer.
const GRACE: Duration = Duration::from_secs(15);
