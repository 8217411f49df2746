//! Where connections come from: the one seam between this crate and the network.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub, SendError};
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    AsyncConnectionConfig, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult,
};
use tokio::sync::Notify;

use crate::config::Address;

/// A future of a connector.
pub type Connecting<T> = Pin<Box<dyn Future<Output = RedisResult<T>> + Send>>;

/// Where servers are found. The simulation has another one.
pub trait Network: Send + Sync + 'static {
    /// What connects to the server at `address`, as the client shows it: without credentials.
    fn connector(&self, address: &str) -> Arc<dyn Connector>;
}

/// Makes connections to one server.
pub trait Connector: Send + Sync + 'static {
    /// A new connection for commands, set up by [`command_config`]. Where it can, it notifies `lost` once it
    /// is closed from the other side.
    fn commands(&self, lost: Arc<Notify>) -> Connecting<MultiplexedConnection>;

    /// A new connection for subscriptions.
    fn subscriptions(&self) -> Connecting<PubSub>;

    /// A new connection that needs no runtime, made while the caller waits: for what is owed when the
    /// runtime is gone. Without one that is not sent.
    fn farewell(&self, within: Duration) -> RedisResult<redis::Connection> {
        let _ = within;
        Err(RedisError::from((ErrorKind::Io, "there are no connections without a runtime")))
    }
}

/// How many commands a connection takes without making the caller wait. What is decided and queued
/// under a lock must never wait there, and the order of the queue is the order on the wire.
const QUEUE: usize = 1 << 24;

/// How a connection for commands is set up, wherever its bytes go.
pub fn command_config(lost: Arc<Notify>) -> AsyncConnectionConfig {
    let tell = move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            lost.notify_one();
        }
        Ok::<(), SendError>(())
    };
    // Calls have deadlines of their own, which the connection's timers would only double.
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE)
        .set_push_sender(tell)
}

/// Connections over TCP, TLS or a Unix socket.
pub(super) struct Sockets {
    /// RESP3, which tells of a closed connection before anybody uses it again.
    commands: redis::Client,
    /// RESP2, which every server and proxy offers subscriptions in.
    subscriptions: redis::Client,
    /// RESP2, too; what is queued on it when it is dropped must still be sent.
    farewell: redis::Client,
}

impl Sockets {
    /// `patience`: after how long without an acknowledgement the kernel gives a connection up.
    pub(super) fn new(address: &Address, patience: Duration) -> RedisResult<Self> {
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(patience)
            .with_interval((patience / 3).max(Duration::from_secs(1)));
        let settings = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keepalive)
            // What is still queued on a connection that is given up must not be sent after it.
            .set_linger_time(Duration::ZERO);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let settings = settings.set_user_timeout(patience);
        let subscriptions = address.info.clone().set_tcp_settings(settings);
        let farewell =
            address.info.clone().set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let login = subscriptions.redis_settings().clone();
        let commands =
            subscriptions.clone().set_redis_settings(login.set_protocol(ProtocolVersion::RESP3));
        Ok(Self {
            commands: redis::Client::open(commands)?,
            subscriptions: redis::Client::open(subscriptions)?,
            farewell: redis::Client::open(farewell)?,
        })
    }
}

impl Connector for Sockets {
    fn commands(&self, lost: Arc<Notify>) -> Connecting<MultiplexedConnection> {
        let client = self.commands.clone();
        let config = command_config(lost);
        Box::pin(async move { client.get_multiplexed_async_connection_with_config(&config).await })
    }

    fn subscriptions(&self) -> Connecting<PubSub> {
        let client = self.subscriptions.clone();
        Box::pin(async move { client.get_async_pubsub().await })
    }

    fn farewell(&self, within: Duration) -> RedisResult<redis::Connection> {
        self.farewell.get_connection_with_timeout(within)
    }
}

/// No connection to it ever comes about.
#[cfg(test)]
pub(super) struct Nowhere;

#[cfg(test)]
impl Network for Nowhere {
    fn connector(&self, _: &str) -> Arc<dyn Connector> {
        Arc::new(Self)
    }
}

#[cfg(test)]
impl Connector for Nowhere {
    fn commands(&self, _: Arc<Notify>) -> Connecting<MultiplexedConnection> {
        Box::pin(std::future::pending())
    }

    fn subscriptions(&self) -> Connecting<PubSub> {
        Box::pin(std::future::pending())
    }
}
