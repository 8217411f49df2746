//! The floor: the same scripts with the same arguments, sent by hand on the same kind of connection.

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, Connection, IntoConnectionInfo, ProtocolVersion,
    RedisResult, Value,
};

use super::Outcome;

/// A connection, and the hashes of the scripts.
#[derive(Clone)]
pub struct ByHand {
    connection: MultiplexedConnection,
    acquire: String,
    renew: String,
    release: String,
    /// The lease's.
    id: String,
}

/// The keys of one lock.
#[derive(Clone)]
pub struct Keys {
    name: String,
    token: String,
    queue: String,
    channel: String,
}

impl Keys {
    /// The keys of the lock `name`.
    pub fn of(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            token: format!("leasehold_token:{{{name}}}"),
            queue: format!("leasehold_queue:{{{name}}}"),
            channel: channel(name),
        }
    }
}

/// The channel on which the releases of a lock are told.
pub fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

impl ByHand {
    /// Connects, and makes the server know the scripts.
    pub async fn connect(url: &str) -> Outcome<Self> {
        let mut connection = connection(url).await?;
        let mut hashes = Vec::new();
        for body in [
            concat!(
                include_str!("../../../../lua/take.lua"),
                include_str!("../../../../lua/lock_acquire.lua"),
                include_str!("../../../../lua/queue.lua"),
                include_str!("../../../../lua/lock_ask.lua")
            ),
            include_str!("../../../../lua/lock_renew.lua"),
            concat!(
                include_str!("../../../../lua/lock_release.lua"),
                include_str!("../../../../lua/take.lua"),
                include_str!("../../../../lua/queue.lua"),
                include_str!("../../../../lua/lock_pass.lua")
            ),
        ] {
            hashes.push(load(&mut connection, body).await?);
        }
        let [acquire, renew, release] =
            <[String; 3]>::try_from(hashes).expect("BUG: three scripts, three hashes");
        Ok(Self { connection, acquire, renew, release, id: id() })
    }

    /// Whether the lock was free.
    pub async fn acquire(&self, keys: &Keys, ttl_ms: u64) -> Outcome<bool> {
        was_free(self.send(&self.acquire_command(keys, ttl_ms)).await?)
    }

    fn acquire_command(&self, keys: &Keys, ttl_ms: u64) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(&self.acquire)
            .arg(3)
            .arg(&keys.name)
            .arg(&keys.token)
            .arg(&keys.queue)
            .arg(&self.id)
            .arg(ttl_ms);
        command
    }

    /// Renews the lock, which must be held.
    pub async fn renew(&self, keys: &Keys, ttl_ms: u64) -> Outcome<()> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.renew).arg(1).arg(&keys.name).arg(&self.id).arg(1).arg(ttl_ms);
        match self.send(&command).await? {
            Value::Int(1) => Ok(()),
            other => Err(format!("a renewal was answered {other:?}").into()),
        }
    }

    /// Gives the lock back, which must be held.
    pub async fn release(&self, keys: &Keys) -> Outcome<()> {
        was_held(self.send(&self.release_command(keys)).await?)
    }

    fn release_command(&self, keys: &Keys) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(&self.release)
            .arg(3)
            .arg(&keys.name)
            .arg(&keys.token)
            .arg(&keys.queue)
            .arg(&self.id)
            .arg(&keys.channel);
        command
    }

    /// Takes and gives back a free lock.
    pub async fn pair(&self, keys: &Keys) -> Outcome<()> {
        if !self.acquire(keys, TTL_MS).await? {
            return Err(NOT_FREE.into());
        }
        self.release(keys).await
    }

    /// The same on this thread, over a connection for threads.
    pub fn blocking_pair(&self, connection: &mut Connection, keys: &Keys) -> Outcome<()> {
        if !was_free(self.acquire_command(keys, TTL_MS).query(connection)?)? {
            return Err(NOT_FREE.into());
        }
        was_held(self.release_command(keys).query(connection)?)
    }

    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        self.connection.clone().send_packed_command(command).await
    }
}

/// A connection on the terms of the library.
pub async fn connection(url: &str) -> Outcome<MultiplexedConnection> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    Ok(open(url)?.get_multiplexed_async_connection_with_config(&config).await?)
}

/// Makes the server know a script. Returns the hash by which it does.
pub async fn load(connection: &mut MultiplexedConnection, body: &str) -> Outcome<String> {
    let mut load = redis::cmd("SCRIPT");
    Ok(load.arg("LOAD").arg(body).query_async(connection).await?)
}

/// The id of this process' lease, as long as the library's own.
pub fn id() -> String {
    format!("by-hand-{:08}:f81d4fae-7dec-41d0-a765-00a0c91e6bf6", std::process::id())
}

/// Where to connect, on the terms of the library.
pub fn open(url: &str) -> RedisResult<Client> {
    let info = url.into_connection_info()?;
    let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = TcpSettings::default().set_nodelay(true);
    Client::open(info.set_redis_settings(redis).set_tcp_settings(tcp))
}

/// Whether an acquire was granted, by its reply.
pub fn was_free(reply: Value) -> Outcome<bool> {
    match reply {
        Value::Int(block_end) => Ok(block_end > 0),
        Value::Array(items) => Ok(items.first() == Some(&Value::Int(1))),
        other => Err(format!("an acquire was answered {other:?}").into()),
    }
}

/// The reply to a release of a lock that was held.
pub fn was_held(reply: Value) -> Outcome<()> {
    match reply {
        Value::Int(1..) => Ok(()),
        Value::Array(items) if items.first() == Some(&Value::Int(1)) => Ok(()),
        other => Err(format!("a release was answered {other:?}").into()),
    }
}

/// What is wrong if an acquire is refused.
pub const NOT_FREE: &str = "a lock that nobody else uses was not free";
/// How long a token is kept after the last use of its lock.
pub const RETENTION_MS: u64 = 86_400_000;
/// The TTL of a lock: the library's own.
pub const TTL_MS: u64 = 30_000;
