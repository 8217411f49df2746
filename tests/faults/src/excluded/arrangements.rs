//! What happens to servers, keys and holders.

use std::time::Duration;

use leasehold::{FindingKind, LossReason};
use leasehold_testkit::{Proxy, Server};
use redis::Value;
use tokio::time::sleep;

use super::{
    Actor, LIMIT, LOCK, TTL, ensure, history, is_told, second_holder, second_holder_before,
};
use crate::register::Register;

pub(super) async fn emptied_at_once() -> Result<(), String> {
    let server = Server::start().await;
    let way = Proxy::start(server.port()).await;
    let first = Actor::enter("a", &[way.url()]).await?;
    first.finds("NotPersistent", |kind| *kind == FindingKind::NotPersistent).await?;
    let held = first.take(&first.lock()).await?;
    way.refuse(true);
    server.kill();
    server.restart().await;
    let second = Actor::enter("b", &[server.url()]).await?;
    second_holder_before(&first, held, &second, LossReason::Failover, || way.refuse(false)).await
}

pub(super) async fn majority_emptied() -> Result<(), String> {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let urls = servers.each_ref().map(Server::url);
    let ways = [Proxy::start(servers[1].port()).await, Proxy::start(servers[2].port()).await];
    let first = [servers[0].url(), ways[0].url(), ways[1].url()];
    let first = Actor::enter("a", &first).await?;
    first.finds("NotPersistent", |kind| *kind == FindingKind::NotPersistent).await?;
    let held = first.take(&first.lock()).await?;
    ways.iter().for_each(|way| way.refuse(true));
    servers[1..].iter().for_each(Server::kill);
    tokio::join!(servers[1].restart(), servers[2].restart());
    let second = Actor::enter("b", &urls).await?;
    // Its connection to the one that kept the lock may be there first.
    while second.client.nodes().iter().any(|node| node.state != leasehold::NodeState::Up) {
        sleep(TICK).await;
    }
    let reach = || ways.iter().for_each(|way| way.refuse(false));
    second_holder_before(&first, held, &second, LossReason::Gone, reach).await
}

/// The replica is promoted before the write, so that it misses it for certain.
pub(super) async fn failover() -> Result<(), String> {
    let (master, replica) = (Server::start().await, Server::start().await);
    let way = Proxy::start(master.port()).await;
    let port = master.port().to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", &port]).await;
    until("the replica follows", async || {
        says(&replica, "replication", "master_link_status:up").await
            && says(&master, "replication", "state=online").await
    })
    .await?;
    let first = Actor::enter("a", &[way.url()]).await?;
    first
        .finds("Replicas", |kind| matches!(kind, FindingKind::Replicas { replicas: 1, .. }))
        .await?;
    replica.command(&["REPLICAOF", "NO", "ONE"]).await;
    let held = first.take(&first.lock()).await?;
    way.refuse(true);
    master.kill();
    way.lead_to(replica.port());
    let second = Actor::enter("b", &[replica.url()]).await?;
    second_holder_before(&first, held, &second, LossReason::Failover, || way.refuse(false)).await
}

/// The lock is among the few keys that have an end, and those go first.
pub(super) async fn eviction() -> Result<(), String> {
    let server = Server::with(&["--maxmemory-policy", "volatile-lru"]).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1gb"]).await;
    let first = Actor::enter("a", &[server.url()]).await?;
    let evicts = |kind: &FindingKind| matches!(kind, FindingKind::Eviction { policy, .. } if policy == "volatile-lru");
    first.finds("Eviction", evicts).await?;
    let held = first.take(&first.lock()).await?;
    // As good as full.
    server.command(&["CONFIG", "SET", "maxmemory", "100kb"]).await;
    let filler = "x".repeat(1000);
    until("the lock is evicted", async || {
        let _ = server.try_command(&["SET", "filler", &filler]).await;
        server.command(&["EXISTS", LOCK]).await == Value::Int(0)
    })
    .await?;
    server.command(&["CONFIG", "SET", "maxmemory", "1gb"]).await;
    let second = Actor::enter("b", &[server.url()]).await?;
    second_holder(&first, held, &second, LossReason::Gone).await
}

pub(super) async fn flushed() -> Result<(), String> {
    let server = Server::start().await;
    let first = Actor::enter("a", &[server.url()]).await?;
    let second = Actor::enter("b", &[server.url()]).await?;
    let held = first.take(&first.lock()).await?;
    server.command(&["FLUSHALL"]).await;
    second_holder(&first, held, &second, LossReason::Gone).await
}

/// A lease that nobody renews learns nothing before its end.
pub(super) async fn deleted() -> Result<(), String> {
    let server = Server::start().await;
    let first = Actor::enter("a", &[server.url()]).await?;
    let second = Actor::enter("b", &[server.url()]).await?;
    let held = first.take(&first.lock().with_lease(TTL)).await?;
    server.command(&["DEL", LOCK]).await;
    second_holder(&first, held, &second, LossReason::Ended).await
}

pub(super) async fn forced() -> Result<(), String> {
    let server = Server::start().await;
    let first = Actor::enter("a", &[server.url()]).await?;
    let second = Actor::enter("b", &[server.url()]).await?;
    let held = first.take(&first.lock()).await?;
    let freed = second.lock().force_unlock().await.map_err(|error| error.to_string())?;
    ensure(freed, || "there was nothing to free".into())?;
    second_holder(&first, held, &second, LossReason::Gone).await
}

/// A holder looks at its guard, is paused past its end, and writes. The lock is not held twice; the resource is
/// protected by the token alone.
pub(super) async fn paused() -> Result<(), String> {
    let server = Server::start().await;
    let register = Register::new(server.dir());
    let write = |token| register.write(LOCK, token).map_err(|error| error.to_string());
    let first = Actor::enter("a", &[server.url()]).await?;
    let second = Actor::enter("b", &[server.url()]).await?;
    let lease = Duration::from_millis(300);
    let (guard, watched) = first.take(&first.lock().with_lease(lease)).await?;
    ensure(guard.is_held(), || "it is not held".into())?;
    // The pause begins here.
    let (other, other_watched) = second.take(&second.lock()).await?;
    ensure(write(other.token())?.accepted, || "the holder was refused".into())?;
    let late = write(guard.token())?;
    ensure(!late.accepted, || "the late write was taken".into())?;
    is_told(&guard, LossReason::Ended).await?;
    drop(watched);
    second.gives_back(other, other_watched).await;
    let report = history(&[&first, &second]);
    ensure(report.violations.is_empty(), || format!("the checker says {:?}", report.violations))
}

async fn says(server: &Server, section: &str, words: &str) -> bool {
    let info = server.command(&["INFO", section]).await;
    redis::from_redis_value::<String>(info).is_ok_and(|info| info.contains(words))
}

/// Waits until something is so.
pub(super) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Result<(), String> {
    let asked_at = std::time::Instant::now();
    while !is_so().await {
        ensure(asked_at.elapsed() < LIMIT, || format!("not so in time: {what}"))?;
        sleep(TICK).await;
    }
    Ok(())
}

const TICK: Duration = Duration::from_millis(10);
