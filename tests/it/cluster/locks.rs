//! Locks on a cluster that is in order.

use std::time::Duration;

use leasehold::{Error, NodeState};

use super::{builder, connect, is_idle};
use crate::checks::soon;
use crate::support::Cluster;

#[tokio::test]
async fn one_client_has_locks_over_all_slots() {
    let cluster = Cluster::start().await;
    let [one, two] = [connect(&cluster).await, connect(&cluster).await];
    assert_eq!(one.nodes().len(), 3, "{:?}", one.nodes());
    let unused = one.nodes().iter().filter(|node| node.state == NodeState::Unused).count();
    assert_eq!(unused, 2, "only one was needed: {:?}", one.nodes());
    let names: Vec<String> = (0..60).map(|number| format!("lock:{number}")).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(soon(name, one.mutex(name).lock()).await.expect("free"));
    }
    assert!(one.nodes().iter().all(|node| node.state == NodeState::Up), "{:?}", one.nodes());
    for (name, guard) in names.iter().zip(&guards) {
        let error = two.mutex(name).try_lock().await.expect("an answer");
        assert!(error.is_none(), "{name} is held");
        let status = two.mutex(name).status().await.expect("an answer");
        assert_eq!(status.last_token, Some(guard.token()), "{name}");
    }
    assert!(two.mutex("lock:0").force_unlock().await.expect("an answer"));
    let freed = guards.remove(0);
    let error = soon("unlocking", freed.unlock()).await.expect_err("it was freed");
    assert!(error.is_lost(), "{error}");
    for guard in guards {
        soon("unlocking", guard.unlock()).await.expect("held");
    }
    let findings = one.check().await.expect("an answer");
    assert!(findings.iter().all(|finding| !format!("{finding:?}").contains("OneShard")));
    for client in [&one, &two] {
        is_idle(client).await;
    }
    for name in ["a{b", "{}a", "a}b"] {
        let error = one.mutex(name).try_lock().await.expect_err("its keys have several slots");
        assert!(matches!(error, Error::InvalidName { .. }), "{name}: {error:?}");
    }
    for name in ["a{b}c", "{a}{b}", "ä b"] {
        soon(name, one.mutex(name).lock()).await.expect("free").unlock().await.expect("held");
    }
    let again = builder(&cluster).ttl(Duration::from_secs(1)).connect().await.expect("a cluster");
    for name in &names {
        soon(name, again.mutex(name).lock()).await.expect("free").unlock().await.expect("held");
    }
}
