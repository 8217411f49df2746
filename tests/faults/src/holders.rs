//! Who holds a lock, as a server says: the victims who have most to lose.

use std::time::Duration;

use tokio::time::sleep;

use crate::scene::{LOCKS, Scene};

/// The place of the contender that holds the lock which most want.
pub(crate) async fn holder(scene: &Scene) -> Option<usize> {
    place(scene, &lease(scene, LOCKS[0]).await?)
}

/// The place of a contender whose lease has lasted for a while: most are over before a signal arrives.
pub(crate) async fn lasting_holder(scene: &Scene) -> Option<usize> {
    let mut before = LOCKS.map(|_| None);
    loop {
        for (lock, before) in LOCKS.iter().zip(&mut before) {
            let now = lease(scene, lock).await;
            if let Some(lease) = now.as_deref().filter(|_| now == *before) {
                return place(scene, lease);
            }
            *before = now;
        }
        sleep(TICK * 3).await;
    }
}

/// The lease that has a lock, as one server says.
pub(crate) async fn lease(scene: &Scene, lock: &str) -> Option<String> {
    for node in scene.deployment.nodes.iter().rev() {
        // In a cluster, one of them knows. (Before 6.2, no server has this command.)
        let Ok(lease) = node.attempt(&["HRANDFIELD", lock]).await else { continue };
        if let Ok(lease) = redis::from_redis_value(lease) {
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
