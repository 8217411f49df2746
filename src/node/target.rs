//! One server, and how connections to it are made.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{RedisError, RedisResult};
use tokio::sync::{Notify, mpsc};

use super::connector::{Connector, Network, Sockets};
use super::greeting::Greeting;
use super::halves::{Ear, Mouth};
use crate::clock::{Clock, Timestamp};
use crate::config::{Address, Config};
use crate::error::Fault;

/// A server, and how connections to it are made.
pub(super) struct Target {
    /// Its address, without credentials.
    pub(super) address: Arc<str>,
    pub(super) connector: Arc<dyn Connector>,
    pub(super) greeting: Greeting,
}

impl Target {
    /// Makes a connection for commands within `limit`, which ends at `until`. It notifies `lost` when the server closes
    /// it.
    pub(super) async fn commands(
        &self,
        clock: &Clock,
        lost: &Arc<Notify>,
        limit: Duration,
        until: Timestamp,
    ) -> Result<MultiplexedConnection, Fault> {
        let made = clock.until(until, self.connector.commands(lost.clone())).await;
        self.made(made, limit)
    }

    /// Makes a connection for subscriptions within `limit`, which ends at `until`.
    pub(super) async fn subscriptions(
        &self,
        clock: &Clock,
        limit: Duration,
        until: Timestamp,
    ) -> Result<(PubSubSink, PubSubStream), Fault> {
        let made = clock.until(until, self.connector.subscriptions()).await;
        self.made(made, limit).map(redis::aio::PubSub::split)
    }

    /// Makes a connection for sharded channels within `limit`, which ends at `until`.
    pub(super) async fn sharded(
        &self,
        clock: &Clock,
        limit: Duration,
        until: Timestamp,
    ) -> Result<(Mouth, Ear), Fault> {
        let (pushes, pushed) = mpsc::unbounded_channel();
        let made = clock.until(until, self.connector.sharded(pushes)).await;
        let made = self.made(made, limit)?;
        Ok((Mouth::Sharded(made), Ear::Sharded(pushed)))
    }

    /// `None`: the time limit was over.
    fn made<C>(&self, made: Option<RedisResult<C>>, limit: Duration) -> Result<C, Fault> {
        match made {
            Some(Ok(connection)) => Ok(connection),
            Some(Err(error)) => Err(self.greeting.fault(&error)),
            None => Err(self.greeting.silence(limit)),
        }
    }
}

/// Makes the connectors of a node.
#[derive(Clone)]
pub(super) struct Dial {
    pub(super) network: Option<Arc<dyn Network>>,
    /// The client's name.
    client: Arc<str>,
    /// How long the kernel waits for an acknowledgement before it gives a connection up.
    pub(super) patience: Duration,
}

impl Dial {
    pub(super) fn of(network: Option<&Arc<dyn Network>>, config: &Config) -> Self {
        let patience = (config.ttl / 3).clamp(Duration::from_secs(1), Duration::from_secs(5));
        Self { network: network.cloned(), client: config.name.clone(), patience }
    }

    pub(super) fn target(&self, address: &Address) -> Result<Target, Fault> {
        let connector = match &self.network {
            Some(network) => network.connector(&address.shown),
            None => {
                let sockets = Sockets::new(address, &self.client, self.patience);
                let fault = |error: RedisError| Fault::from_redis(&error, &address.secrets);
                Arc::new(sockets.map_err(fault)?)
            }
        };
        let greeting = Greeting::of(address, &self.client);
        Ok(Target { address: address.shown.clone(), connector, greeting })
    }
}
