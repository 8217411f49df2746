use super::*;
use crate::clock::Clock;
use crate::fleet::slots::Location;
use crate::script::LOCK_RELEASE;

impl Slot {
    /// Returns a slot of a cluster that is never found.
    pub(crate) fn unconnected(clock: &Clock) -> Self {
        Self::of(&Cluster::unconnected(clock), 1)
    }
}

#[tokio::test]
async fn a_node_that_has_left_the_cluster_does_not_end_the_client() {
    let clock = Clock::of_this_runtime();
    let slot = Slot::unconnected(&clock);
    let fault = slot.of_node(Fault::Closed);
    assert!(fault.may_pass() && fault.to_string().contains("left the cluster"), "{fault}");
    assert!(matches!(slot.of_node(Fault::WrongType), Fault::WrongType));
    clock.stop();
    assert!(matches!(slot.of_node(Fault::Closed), Fault::Closed));
}

/// It was the owner when the call began, and left the cluster before it was sent.
#[tokio::test]
async fn whoever_calls_a_node_that_leaves_the_cluster_may_call_again() {
    let clock = Clock::of_this_runtime();
    let slot = Slot::unconnected(&clock);
    let location = Location { host: "left".into(), port: 1 };
    slot.cluster.members.lock().map.learn(slot.slot, &location);
    let node = slot.node().expect("it is made");
    node.close();
    while !matches!(node.check_connected(), Err(Fault::Closed)) {
        clock.sleep(Duration::from_millis(1)).await;
    }
    let call = Call { script: &LOCK_RELEASE, keys: vec!["n".into()], args: Vec::new() };
    let soon = clock.now().plus(Duration::from_millis(20));
    let faults = [
        ("send", slot.send(&call, Form::PLAIN, None).err()),
        ("bar", slot.bar(clock.now())),
        ("standing", slot.standing(&node).err()),
        ("up", slot.up(soon).await.err()),
    ];
    for (what, fault) in faults {
        assert!(fault.as_ref().is_some_and(Fault::may_pass), "{what}: {fault:?}");
    }
}
