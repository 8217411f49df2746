//! What must not be there after a lock's last use.

use std::time::{Duration, Instant};

use redis::Value;

use super::{Face, Server, subscribers, waiting};

/// Tasks of a client that does nothing: the watchdog, the supervisor of the node, its hub.
const IDLE_TASKS: usize = 3;

/// Waits until nothing of the lock `name` is left: on the server no field, no subscriber and nobody in the queue, in the client no
/// gate, waiter, subscription, task or owed release.
pub(crate) async fn nothing_is_left(server: &Server, client: &impl Face, name: &str) {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    let began_at = Instant::now();
    loop {
        let stats = client.stats();
        let key = server.command(&["HGETALL", name]).await;
        let listeners = subscribers(server, &channel).await;
        let busy = stats.locks + stats.waiters + stats.subscriptions + stats.releases_pending;
        let waiting = waiting(server, name).await;
        let clean = busy == 0 && stats.tasks == IDLE_TASKS && listeners == 0 && waiting == 0;
        if clean && key == Value::Array(Vec::new()) {
            return;
        }
        assert!(
            began_at.elapsed() < SOON,
            "{name} is not left after {SOON:?}: {key:?}, {listeners} listeners, {waiting} waiting, {stats:?}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Far below the TTLs in use: what is gone by then was not left to expire.
const SOON: Duration = Duration::from_secs(15);
