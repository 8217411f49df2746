//! A server's address, and how connections to it are made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::RedisResult;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use tokio::sync::Notify;

use super::connector::Connector;
use super::greeting::Greeting;
use super::witness::Synced;
use crate::clock::{Clock, Timestamp};
use crate::error::Fault;

/// One server, as its URL names it.
pub(super) struct Endpoint {
    /// Without credentials.
    pub(super) address: Arc<str>,
    pub(super) connector: Arc<dyn Connector>,
    pub(super) greeting: Greeting,
    pub(super) clock: Clock,
    pub(super) response_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) connections_made: AtomicU64,
    /// Grants count only once so many replicas have them.
    pub(super) synced: Option<Synced>,
}

impl Endpoint {
    /// Makes a connection for commands by `until`. It notifies `lost` when the server closes it.
    pub(super) async fn connect(
        &self,
        lost: &Arc<Notify>,
        until: Timestamp,
    ) -> Result<MultiplexedConnection, Fault> {
        let made = self.clock.until(until, self.connector.commands(lost.clone())).await;
        self.made(made)
    }

    /// Makes a connection for subscriptions by `until`.
    pub(super) async fn connect_for_subscriptions(
        &self,
        until: Timestamp,
    ) -> Result<(PubSubSink, PubSubStream), Fault> {
        let made = self.clock.until(until, self.connector.subscriptions()).await;
        self.made(made).map(redis::aio::PubSub::split)
    }

    /// `None`: the time limit was over.
    fn made<C>(&self, made: Option<RedisResult<C>>) -> Result<C, Fault> {
        match made {
            Some(Ok(connection)) => {
                self.connections_made.fetch_add(1, Ordering::Relaxed);
                Ok(connection)
            }
            Some(Err(error)) => Err(self.greeting.fault(&error)),
            None => Err(self.greeting.silence(self.connect_timeout)),
        }
    }
}
