use super::slots::Location;
use super::*;
use crate::clock::Clock;
use crate::config::Address;
use crate::node::Common;

impl Cluster {
    /// Returns a cluster that is never found.
    pub(super) fn unconnected(clock: &Clock) -> Arc<Self> {
        let seed = Address::parse("redis://nowhere:6379").expect("a valid URL");
        let start = |common: &Common<'_>| Self::start(vec![seed], None, common);
        Common::of_nowhere(clock, start).expect("there is a seed").0
    }
}

/// It is still known for some seconds, in which a replica has all of its slots already.
#[tokio::test]
async fn a_dead_server_that_is_no_master_any_more_leaves_a_client_ready() {
    let clock = Clock::of_this_runtime();
    let cluster = Cluster::unconnected(&clock);
    let fleet = Fleet::Cluster(cluster.clone());
    let is_ready = || fleet.is_ready(clock.now());
    let all_slots_are_at = |host: &str| {
        let location = Location { host: host.into(), port: 6379 };
        let mut members = cluster.members.lock();
        for slot in 0..16384 {
            members.map.learn(slot, &location);
        }
    };
    assert!(!is_ready(), "nobody has a slot");
    all_slots_are_at("dead");
    assert!(is_ready(), "no lock was on it yet");
    cluster.owner(0).expect("it is made");
    assert!(!is_ready(), "it has no connection");
    all_slots_are_at("replica");
    assert!(is_ready() && cluster.nodes().len() == 1, "it has no slot any more");
    cluster.owner(0).expect("it is made");
    assert!(!is_ready(), "this one has no connection either");
}
