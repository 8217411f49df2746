//! Who holds a lock, as a server says: the victims who have most to lose.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use crate::{
    clock::Chance,
    locks::{self, ALL, QUEUE, SEMAPHORE},
    scene::Scene,
};

/// The place of a contender that holds something.
pub(crate) async fn holder(scene: &Scene, chance: &mut Chance) -> Option<usize> {
    let mut names = ALL;
    chance.shuffle(&mut names);
    for lock in names {
        if let Some(lease) = lease(scene, lock).await {
            return place(scene, &lease);
        }
    }
    None
}

/// The place of a contender whose lease has lasted for a while: most are over before a signal arrives. The lock at place
/// `first` is looked at before the others.
pub(crate) async fn lasting_holder(scene: &Scene, first: usize) -> Option<usize> {
    let mut names = ALL;
    names.rotate_left(first % ALL.len());
    let mut before = ALL.map(|_| None);
    loop {
        for (lock, before) in names.iter().zip(&mut before) {
            let now = lease(scene, lock).await;
            if let Some(lease) = now.as_deref().filter(|_| now == *before) {
                return place(scene, lease);
            }
            *before = now;
        }
        sleep(TICK * 3).await;
    }
}

/// Waits until the lease that has a lock has lasted for a while.
pub(crate) async fn lasting_lease(scene: &Scene, lock: &str) {
    let mut before = None;
    loop {
        let now = lease(scene, lock).await;
        if now.is_some() && now == before {
            return;
        }
        before = now;
        sleep(TICK * 3).await;
    }
}

/// A lease that has a lock, or some of the permits, as one server says.
pub(crate) async fn lease(scene: &Scene, lock: &str) -> Option<String> {
    let ends = locks::ends_of_permits(SEMAPHORE);
    let [lent, ..] = locks::keys_of_queue();
    let words = match lock {
        SEMAPHORE => vec!["ZRANGE", &ends, "-1", "-1"],
        QUEUE => vec!["ZRANGE", &lent, "-1", "-1"],
        _ => vec!["HKEYS", lock],
    };
    // In a cluster, one of them knows; others may be stopped.
    let asked = scene.deployment.nodes.iter().map(|node| timeout(SOON, node.attempt(&words)));
    for answer in join_all(asked).await.into_iter().rev() {
        let Ok(Ok(leases)) = answer else { continue };
        let leases = redis::from_redis_value::<Vec<String>>(leases).unwrap_or_default();
        // A read-write lock has a field that is none.
        if let Some(lease) = leases.into_iter().find(|field| field.contains(':')) {
            return Some(lease);
        }
    }
    None
}

/// The place of the contender that took a lease.
fn place(scene: &Scene, lease: &str) -> Option<usize> {
    let (name, _) = lease.split_once(':')?;
    (0..scene.contenders()).find(|number| scene.contender(*number) == name)
}

const TICK: Duration = Duration::from_millis(10);
const SOON: Duration = Duration::from_millis(500);
