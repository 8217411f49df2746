//! A master with three replicas and three Sentinels, or a Redis Cluster, for the demos of failovers. They end with this
//! process.

use std::env;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use leasehold_testkit::tied;
use redis::{FromRedisValue, Value};
use tokio::process::{Child, Command};

use crate::Outcome;

/// The name by which the Sentinels know the master.
const MASTER: &str = "mymaster";
const SENTINELS: usize = 3;
const REPLICAS: usize = 3;
const SHARDS: usize = 3;
const SLOTS: usize = 16384;

pub(crate) struct Deployment {
    dir: PathBuf,
    sentinels: Vec<Server>,
    pub(crate) servers: Vec<Server>,
}

pub(crate) struct Server {
    pub(crate) port: u16,
    process: Child,
}

impl Deployment {
    /// Starts all of them, and waits until the Sentinels know each other and the replicas.
    pub(crate) async fn start() -> Outcome<Self> {
        let dir = env::temp_dir().join(format!("leasehold-demo-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let mut this = Self { dir, sentinels: Vec::new(), servers: Vec::new() };
        let master = this.server(&[]).await?;
        let of = ["--replicaof", "127.0.0.1", &master.port.to_string()];
        let port = master.port;
        this.servers.push(master);
        for _ in 0..REPLICAS {
            let replica = this.server(&of).await?;
            this.servers.push(replica);
        }
        for _ in 0..SENTINELS {
            let sentinel = this.sentinel(port).await?;
            this.sentinels.push(sentinel);
        }
        while !this.is_settled().await {
            tokio::time::sleep(POLL).await;
        }
        Ok(this)
    }

    /// Starts three masters of a cluster with a replica each, and waits until all of them know that.
    pub(crate) async fn cluster() -> Outcome<Self> {
        let dir = env::temp_dir().join(format!("leasehold-demo-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let mut this = Self { dir, sentinels: Vec::new(), servers: Vec::new() };
        for index in 0..SHARDS * 2 {
            let conf = format!("nodes-{index}.conf");
            let timeout = DOWN_AFTER.as_millis().to_string();
            let cluster = ["--cluster-enabled", "yes", "--cluster-config-file", &conf];
            let timeout = ["--cluster-node-timeout", &timeout];
            let server = ["--save", "", "--appendonly", "no"];
            let server = this.launch(&[&server, &cluster, &timeout[..]].concat()).await?;
            this.servers.push(server);
        }
        for (shard, master) in this.servers[..SHARDS].iter().enumerate() {
            let [from, to] = [shard, shard + 1].map(|shard| shard * SLOTS / SHARDS);
            let [from, to] = [from.to_string(), (to - 1).to_string()];
            master.ask::<Value>(&["CLUSTER", "ADDSLOTSRANGE", &from, &to]).await?;
            let epoch = (shard + 1).to_string();
            master.ask::<Value>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await?;
        }
        for other in &this.servers[1..] {
            let port = other.port.to_string();
            this.servers[0].ask::<Value>(&["CLUSTER", "MEET", "127.0.0.1", &port]).await?;
        }
        for (master, replica) in this.servers.iter().zip(&this.servers[SHARDS..]) {
            let id: String = master.ask(&["CLUSTER", "MYID"]).await?;
            while replica.ask::<Value>(&["CLUSTER", "REPLICATE", &id]).await.is_err() {
                tokio::time::sleep(POLL).await;
            }
        }
        while !this.is_complete().await {
            tokio::time::sleep(POLL).await;
        }
        Ok(this)
    }

    /// Whether every node finds the cluster in order and knows a replica of each master.
    async fn is_complete(&self) -> bool {
        for server in &self.servers {
            let info = server.ask::<String>(&["CLUSTER", "INFO"]).await.unwrap_or_default();
            let Ok(slots) = server.ask::<Value>(&["CLUSTER", "SLOTS"]).await else { return false };
            let shards = slots.as_sequence().unwrap_or_default();
            let has_replica = |shard: &Value| shard.as_sequence().is_some_and(|it| it.len() == 4);
            if !info.contains("cluster_state:ok")
                || shards.len() != SHARDS
                || !shards.iter().all(has_replica)
            {
                return false;
            }
        }
        true
    }

    /// Returns the number of the master that has this key at first, and the key's slot.
    pub(crate) async fn owner_of(&self, key: &str) -> Outcome<(usize, usize)> {
        let slot: usize = self.servers[0].ask(&["CLUSTER", "KEYSLOT", key]).await?;
        Ok(((0..SHARDS).find(|shard| slot < (shard + 1) * SLOTS / SHARDS).unwrap_or(0), slot))
    }

    /// Moves a slot with all its keys from one master to another, as `redis-cli --cluster reshard` does.
    pub(crate) async fn move_slot(&self, slot: usize, from: usize, to: usize) -> Outcome<()> {
        let (source, target) = (&self.servers[from], &self.servers[to]);
        let (slot, port) = (slot.to_string(), target.port.to_string());
        let source_id: String = source.ask(&["CLUSTER", "MYID"]).await?;
        let target_id: String = target.ask(&["CLUSTER", "MYID"]).await?;
        target.ask::<Value>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).await?;
        source.ask::<Value>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).await?;
        loop {
            let keys: Vec<String> = source.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await?;
            if keys.is_empty() {
                break;
            }
            let start = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            source.ask::<Value>(&[&start[..], &keys].concat()).await?;
        }
        for server in [target, source] {
            server.ask::<Value>(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]).await?;
        }
        Ok(())
    }

    /// Waits until the replica of a master has taken over.
    pub(crate) async fn replaced(&self, master: usize) -> Outcome<()> {
        let replica = &self.servers[SHARDS + master];
        while !replica.ask::<String>(&["INFO", "replication"]).await?.contains("role:master") {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Returns the URL with which clients find the cluster.
    pub(crate) fn cluster_url(&self) -> String {
        let hosts: Vec<String> =
            self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    async fn server(&self, more: &[&str]) -> Outcome<Server> {
        let fenced = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"];
        let soon = ["--repl-diskless-sync-delay", "0"];
        self.launch(&[&["--save", "", "--appendonly", "no"], &fenced, &soon[..], more].concat())
            .await
    }

    async fn sentinel(&self, master: u16) -> Outcome<Server> {
        let conf = self.dir.join(format!("sentinel-{}.conf", self.sentinels.len()));
        let lines = format!(
            "sentinel monitor {MASTER} 127.0.0.1 {master} {}\n\
             sentinel down-after-milliseconds {MASTER} {}\n",
            SENTINELS / 2 + 1,
            DOWN_AFTER.as_millis()
        );
        std::fs::write(&conf, lines)?;
        self.launch(&[conf.to_str().ok_or("an odd path")?, "--sentinel"]).await
    }

    async fn launch(&self, args: &[&str]) -> Outcome<Server> {
        let program = env::var("LEASEHOLD_TEST_SERVER").unwrap_or_else(|_| "redis-server".into());
        for _ in 0..20 {
            let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let mut process = Command::from(tied(&program))
                .args(args)
                .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
                .current_dir(&self.dir)
                .stdout(Stdio::null())
                .kill_on_drop(true)
                .spawn()?;
            while process.try_wait()?.is_none() {
                if ask::<Value>(port, &["PING"]).await.is_ok() {
                    return Ok(Server { port, process });
                }
                tokio::time::sleep(POLL).await;
            }
        }
        Err(format!("{program} does not start").into())
    }

    async fn is_settled(&self) -> bool {
        for sentinel in &self.sentinels {
            let Ok(about) =
                ask::<Vec<String>>(sentinel.port, &["SENTINEL", "MASTER", MASTER]).await
            else {
                return false;
            };
            let is = |name: &str, count: usize| {
                about.chunks_exact(2).any(|pair| pair[0] == name && pair[1] == count.to_string())
            };
            if !is("num-other-sentinels", SENTINELS - 1) || !is("num-slaves", REPLICAS) {
                return false;
            }
        }
        true
    }

    /// Returns the URL with which clients find it.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis+sentinel://{}/{MASTER}", hosts.join(","))
    }

    /// Returns what each Sentinel reports about failovers, as it does.
    pub(crate) async fn reports(&self) -> Outcome<Vec<redis::aio::PubSub>> {
        let mut all = Vec::new();
        for sentinel in &self.sentinels {
            let url = format!("redis://127.0.0.1:{}", sentinel.port);
            let mut reports = redis::Client::open(url)?.get_async_pubsub().await?;
            reports.subscribe(&["+odown", "+switch-master"]).await?;
            all.push(reports);
        }
        Ok(all)
    }

    /// Asks the Sentinels to replace the master although it is well.
    pub(crate) async fn replace_master(&self) -> Outcome<()> {
        let ask = || ask::<Value>(self.sentinels[0].port, &["SENTINEL", "FAILOVER", MASTER]);
        while ask().await.is_err() {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Server {
    async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        ask(self.port, words).await
    }

    pub(crate) async fn kill(&mut self) -> Outcome<()> {
        Ok(self.process.kill().await?)
    }
}

async fn ask<T: FromRedisValue>(port: u16, words: &[&str]) -> redis::RedisResult<T> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await
}

/// How long the master must be silent before it counts as down.
pub(crate) const DOWN_AFTER: Duration = Duration::from_millis(1500);
const POLL: Duration = Duration::from_millis(20);
