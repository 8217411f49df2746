//! On a Redis Cluster: both go to the owner of a lock's slot, and tell releases on its sharded channels.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use leasehold::Client;
use leasehold_testkit::{
    Cluster, Server, eventually, in_time,
    java::{Java, Version, hex},
    slot_of,
};

use super::{Both, Crossed, LIMIT};
use crate::side::{Rust, Side};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_stay_with_their_holders_when_a_master_is_replaced_and_when_their_slots_move() {
    let cluster = start().await;
    let newest = connect(&cluster, Version::V4_7_0).await;
    let oldest = connect(&cluster, Version::V3_28_0).await;
    in_time(LIMIT * 3, "all go on", async {
        let crossed = cross(&cluster, "replaced", cluster.master(0), newest, oldest).await;
        let (newest, oldest) = go_on_after_a_failover(&cluster, crossed).await;
        let crossed = cross(&cluster, "moved", cluster.replica(0), newest, oldest).await;
        go_on_after_a_move(&cluster, crossed).await;
    })
    .await;
}

/// Only the operator replaces a master: on a busy machine the servers would soon take each other for dead.
pub(super) async fn start() -> Cluster {
    let cluster = Cluster::start().await;
    for server in cluster.servers() {
        server.command(&["CONFIG", "SET", "cluster-node-timeout", "15000"]).await;
    }
    cluster
}

pub(super) async fn connect(cluster: &Cluster, version: Version) -> Both {
    let java = Java::connect_to_deployment(version, "cluster", &cluster.urls(), TTL).await;
    let builder = Client::builder().cluster(cluster.urls()).ttl(TTL);
    let client = builder.restart_quarantine(Duration::ZERO).connect().await;
    let rust = Rust::new(client.expect("the cluster accepts the client"));
    let (java, rust) = (Side::Java(java), Side::Rust(rust));
    Both { java, rust, count_listeners: "SHARDNUMSUB", ttl: TTL }
}

/// With locks on the first shard, whose master `server` is.
async fn cross(
    cluster: &Cluster,
    stem: &str,
    server: &Server,
    newest: Both,
    oldest: Both,
) -> [Crossed; 2] {
    let names = |version| {
        ["java", "rust"].map(|by| cluster.name_on(0, &format!("{stem}-{version}-by-{by}")))
    };
    let newest = newest.cross(names("newest"), server).await;
    [newest, oldest.cross(names("oldest"), server).await]
}

async fn go_on_after_a_failover(cluster: &Cluster, mut both: [Crossed; 2]) -> (Both, Both) {
    let (old, new) = (cluster.master(0), cluster.replica(0));
    cluster.fail_over(0).await;
    for (crossed, probe) in both.iter_mut().zip(["probe-newest", "probe-oldest"]) {
        crossed.both.have_arrived_at(new, &cluster.name_on(0, probe)).await;
        crossed.are_kept_at(new).await;
        // Who listens at a replica hears what its master publishes.
        crossed.wait_at(new, &[old, new]).await;
    }
    let [newest, oldest] = both;
    tokio::join!(newest.hand_over(new, true), oldest.hand_over(new, true))
}

async fn go_on_after_a_move(cluster: &Cluster, mut both: [Crossed; 2]) {
    let (old, new) = (cluster.replica(0), cluster.master(1));
    for name in both.iter().flat_map(|crossed| &crossed.names) {
        cluster.move_slot(slot_of(name), old, new).await;
    }
    for crossed in &mut both {
        crossed.are_kept_at(new).await;
        crossed.wait_for_ours_at(new).await;
    }
    let [newest, oldest] = both;
    // The server ends the subscriptions of channels that move, and Redisson does not begin them again.
    tokio::join!(newest.hand_over(new, false), oldest.hand_over(new, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_never_overlap_while_a_master_is_replaced_and_a_slot_moves() {
    let cluster = start().await;
    let both = connect(&cluster, Version::V4_7_0).await;
    let name = &cluster.name_on(0, "turns");
    let by_java = Turns::new(&both.java, name);
    let by_rust = Turns::new(&both.rust, name);
    let both_go_on = async || tokio::join!(by_java.goes_on(), by_rust.goes_on());
    let operator = async {
        both_go_on().await;
        cluster.fail_over(0).await;
        both_go_on().await;
        let (source, target) = (cluster.replica(0), cluster.master(1));
        cluster.move_slot(slot_of(name), source, target).await;
        by_rust.goes_on().await;
        // Java hears of no release any more. It looks again when the lease is over of which it was told last, and gets the
        // lock if that is free at this moment.
        by_rust.rests.store(true, Relaxed);
        by_java.goes_on().await;
        by_rust.rests.store(false, Relaxed);
        by_rust.goes_on().await;
        by_java.stop.store(true, Relaxed);
        by_rust.stop.store(true, Relaxed);
    };
    let all = async { tokio::join!(by_java.take(), by_rust.take(), operator) };
    let (of_java, of_rust, ()) = in_time(LIMIT * 3, "all turns", all).await;
    let failed = by_java.failed.load(Relaxed);
    println!("{} turns by Java, {failed} failed, {} by Rust", of_java.len(), of_rust.len());
    assert_eq!(by_rust.failed.load(Relaxed), 0, "ours sees no error");

    let mut all = [of_java, of_rust].concat();
    all.sort();
    let overlap = all.windows(2).find(|pair| pair[0].1 > pair[1].0);
    assert_eq!(overlap, None, "two held the lock at once");
}

/// One side takes and frees a lock again and again.
struct Turns<'a> {
    side: &'a Side,
    name: &'a str,
    made: AtomicUsize,
    failed: AtomicUsize,
    /// It leaves the lock to the other for now.
    rests: AtomicBool,
    stop: AtomicBool,
}

impl<'a> Turns<'a> {
    fn new(side: &'a Side, name: &'a str) -> Self {
        let (made, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (rests, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { side, name, made, failed, rests, stop }
    }

    /// Until told to stop. Returns when the lock was certainly held.
    async fn take(&self) -> Vec<(u64, u64)> {
        let mut turns = Vec::new();
        while !self.stop.load(Relaxed) {
            if self.rests.load(Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            let taken = self.side.lock("a", self.name).done().await;
            if taken.outcome.is_ok() {
                let freed = self.side.unlock("a", self.name).done().await;
                turns.push((taken.ended_us, freed.began_us));
                self.made.fetch_add(1, Relaxed);
                self.failed.fetch_add(freed.outcome.is_err().into(), Relaxed);
            } else {
                self.failed.fetch_add(1, Relaxed);
            }
            self.give_back_the_rest().await;
        }
        turns
    }

    /// Java may have the lock still: a `lock()` that threw may have run all the same, and each that was sent again counts as
    /// one more level. Its next turns would be nested in that, and nobody else would ever get the lock.
    async fn give_back_the_rest(&self) {
        let Side::Java(java) = self.side else { return };
        let is_held = format!("is-held-by-current-thread plain {}", hex(self.name));
        while java.call("a", &is_held).done().await.outcome != Ok(0) {
            let _ = self.side.unlock("a", self.name).done().await;
        }
    }

    /// Waits until it has made some turns more.
    async fn goes_on(&self) {
        let enough = self.made.load(Relaxed) + 10;
        let what = format!("{} takes turns", self.side.name());
        eventually(LIMIT, &what, async || self.made.load(Relaxed) >= enough).await;
    }
}

/// Short, since nothing is away for long.
const TTL: Duration = Duration::from_secs(6);
