//! Steps of a server's wall clock, by which it counts the time to live of its keys.

use std::time::Duration;

use leasehold::{Error, FindingKind, LossReason};
use leasehold_testkit::{Proxy, Server};

use super::{Actor, LOCK, arrangements::until, ensure, second_holder, second_holder_before};
use crate::{deployment::info, wall_clock::WallClock};

pub(super) async fn ahead() -> Result<(), String> {
    let clocked = Clocked::start().await?;
    let first = Actor::enter("a", &[clocked.server.url()]).await?;
    let second = Actor::enter("b", &[clocked.server.url()]).await?;
    let held = first.take(&first.lock()).await?;
    clocked.step(STEP)?;
    let is_ahead = |ms: i64| ms > STEP * 900 && ms < STEP * 1100;
    let found = |kind: &FindingKind| matches!(kind, FindingKind::ClockAhead { ahead_ms, .. } if is_ahead(*ahead_ms));
    first.finds("ClockAhead", found).await?;
    second_holder(&first, held, &second, LossReason::Gone).await
}

/// The holder is cut off, as by a crash, and its lease would end before long.
pub(super) async fn back() -> Result<(), String> {
    let clocked = Clocked::start().await?;
    let way = Proxy::start(clocked.server.port()).await;
    let first = Actor::enter("a", &[way.url()]).await?;
    let second = Actor::enter("b", &[clocked.server.url()]).await?;
    let lease = Duration::from_millis(500);
    let (guard, _watched) = first.take(&first.lock().with_lease(lease)).await?;
    way.refuse(true);
    way.cut();
    clocked.step(-STEP)?;
    let found = |kind: &FindingKind| matches!(kind, FindingKind::ClockAhead { ahead_ms: ..0, .. });
    second.finds("ClockAhead", found).await?;
    let waited = second.client.mutex(LOCK).lock_with_timeout(lease * 3).await;
    ensure(!guard.is_held(), || "the first holds it still".into())?;
    let minute = Duration::from_secs(60);
    match waited {
        Err(Error::Timeout { remaining: Some(left), .. }) if left > minute => Ok(()),
        other => Err(format!("the second is told {other:?}")),
    }
}

/// A master tells its replica when a lock ends, by its own clock. By the replica's clock that is over.
pub(super) async fn of_the_replica() -> Result<(), String> {
    let master = Server::start().await;
    let Clocked { server: replica, .. } = &Clocked::start().await?.ahead_by(STEP)?;
    let way = Proxy::start(master.port()).await;
    let port = master.port().to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", &port]).await;
    let follows = async || {
        let info = info(replica, "replication").await;
        info.is_some_and(|info| info.get("master_link_status") == Some("up".to_owned()))
    };
    until("the replica follows", follows).await?;
    let first = Actor::enter("a", &[way.url()]).await?;
    let held = first.take(&first.lock()).await?;
    let has_it = async || replica.command(&["DBSIZE"]).await != redis::Value::Int(0);
    until("the replica has the lock", has_it).await?;
    way.refuse(true);
    master.kill();
    replica.command(&["REPLICAOF", "NO", "ONE"]).await;
    way.lead_to(replica.port());
    let second = Actor::enter("b", &[replica.url()]).await?;
    second_holder_before(&first, held, &second, LossReason::Failover, || way.refuse(false)).await
}

/// A server whose clock can be moved.
struct Clocked {
    server: Server,
    clock: WallClock,
}

impl Clocked {
    async fn start() -> Result<Self, String> {
        let clock = WallClock::make()?;
        let environment = clock.environment();
        let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
        let server = Server::in_environment(&environment, &[]).await;
        Ok(Self { server, clock })
    }

    fn ahead_by(self, seconds: i64) -> Result<Self, String> {
        self.step(seconds)?;
        Ok(self)
    }

    /// Moves the clock by so many seconds.
    fn step(&self, seconds: i64) -> Result<(), String> {
        self.clock.set_ahead(seconds)
    }
}

/// In seconds: far more than any lease.
const STEP: i64 = 120;
