//! Where connections come from. This is the only place where the crate meets the network.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub, SendError};
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    AsyncConnectionConfig, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult,
};
use tokio::sync::{Notify, mpsc};

use crate::config::Address;

/// A future of a [`Connector`].
pub type Connecting<T> = Pin<Box<dyn Future<Output = RedisResult<T>> + Send>>;

/// Finds servers. The simulation replaces it.
pub trait Network: Send + Sync + 'static {
    /// Returns what connects to the server at `address`, which has no credentials.
    fn connector(&self, address: &str) -> Arc<dyn Connector>;
}

/// Makes connections to one server.
pub trait Connector: Send + Sync + 'static {
    /// Makes a connection for commands, set up by [`command_config`]. If it can, it notifies `lost` when the other side
    /// closes it.
    fn commands(&self, lost: Arc<Notify>) -> Connecting<MultiplexedConnection>;

    /// Makes a connection for subscriptions.
    fn subscriptions(&self) -> Connecting<PubSub>;

    /// Makes a connection for subscriptions of sharded channels, which puts what the server sends unasked into `pushes`.
    fn sharded(
        &self,
        pushes: mpsc::UnboundedSender<PushInfo>,
    ) -> Connecting<MultiplexedConnection> {
        let _ = pushes;
        let error = RedisError::from((ErrorKind::Io, "there are no sharded channels here"));
        Box::pin(std::future::ready(Err(error)))
    }

    /// Makes a connection that needs no runtime, and blocks until it is made. It is for releases that are pending when
    /// the runtime is gone; without it they are not sent.
    fn farewell(&self, within: Duration) -> RedisResult<redis::Connection> {
        let _ = within;
        Err(RedisError::from((ErrorKind::Io, "there are no connections without a runtime")))
    }
}

/// How many commands a connection queues before a caller has to wait. A command that is decided on and queued under a
/// mutex must never wait there, and the order of the queue is the order on the wire.
const QUEUE: usize = 1 << 24;

/// Returns the settings of a connection for commands, whatever carries its bytes.
pub fn command_config(lost: Arc<Notify>) -> AsyncConnectionConfig {
    let notify = move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            lost.notify_one();
        }
        Ok::<(), SendError>(())
    };
    // Calls have their own deadlines, so the connection needs no timers.
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE)
        .set_push_sender(notify)
}

/// Connections over TCP, TLS or a Unix socket.
pub(super) struct Sockets {
    /// RESP3, which reports a closed connection before anybody uses it again.
    commands: redis::Client,
    /// RESP2, in which every server and proxy offers subscriptions.
    subscriptions: redis::Client,
    /// RESP2 as well. What is queued on it must still be sent after it is dropped.
    farewell: redis::Client,
}

impl Sockets {
    /// `client`: its name. `patience`: how long the kernel waits for an acknowledgement before it gives a connection up.
    pub(super) fn new(address: &Address, client: &str, patience: Duration) -> RedisResult<Self> {
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(patience)
            .with_interval((patience / 3).max(Duration::from_secs(1)));
        let settings = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keepalive)
            // What is still queued on an abandoned connection must not be sent later.
            .set_linger_time(Duration::ZERO);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let settings = settings.set_user_timeout(patience);
        // This is all that can be said on a connection for subscriptions, so it has the client's name, too.
        let library = format!("leasehold({client})");
        let login = address.info.redis_settings().clone();
        let login = login.set_lib_name(library, env!("CARGO_PKG_VERSION"));
        let info = address.info.clone().set_redis_settings(login);
        let subscriptions = info.clone().set_tcp_settings(settings);
        let farewell = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
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

    fn sharded(
        &self,
        pushes: mpsc::UnboundedSender<PushInfo>,
    ) -> Connecting<MultiplexedConnection> {
        let client = self.commands.clone();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE)
            .set_push_sender(pushes);
        Box::pin(async move { client.get_multiplexed_async_connection_with_config(&config).await })
    }

    fn farewell(&self, within: Duration) -> RedisResult<redis::Connection> {
        self.farewell.get_connection_with_timeout(within)
    }
}

/// A server to which no connection is ever made.
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
