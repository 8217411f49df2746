//! A real Redis Cluster, owned by the test that started it.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use redis::{Value, from_redis_value};

use crate::{Server, eventually};

/// Three masters, each with a replica.
pub struct Cluster {
    /// The masters at first, and then the replica of each.
    servers: Vec<Arc<Server>>,
}

/// As many as the masters at first.
const SHARDS: usize = 3;
const LIMIT: Duration = Duration::from_secs(30);

impl Cluster {
    /// Starts three masters with a replica each, and waits until all of them know it.
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    /// Starts a cluster with options besides the usual ones.
    pub async fn with(args: &[&str]) -> Self {
        let usual = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
        let args = [&usual[..], args].concat();
        let servers = join_all((0..SHARDS * 2).map(|_| Server::with(&args))).await;
        Self::of(servers.into_iter().map(Arc::new).collect()).await
    }

    /// Makes a cluster of servers that run already: three masters, and then the replica of each.
    pub async fn of(servers: Vec<Arc<Server>>) -> Self {
        let cluster = Self { servers };
        cluster.join().await;
        cluster
    }

    async fn join(&self) {
        let [first, others @ ..] = &*self.servers else { unreachable!() };
        for (shard, master) in self.servers[..SHARDS].iter().enumerate() {
            let (from, to) = (shard * 16384 / SHARDS, (shard + 1) * 16384 / SHARDS - 1);
            // Servers before 7.0 have no command for a range.
            let slots: Vec<String> = (from..=to).map(|slot| slot.to_string()).collect();
            let slots: Vec<&str> = slots.iter().map(String::as_str).collect();
            master.command(&[&["CLUSTER", "ADDSLOTS"], &slots[..]].concat()).await;
            let epoch = (shard + 1).to_string();
            master.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
        }
        for other in others {
            let port = other.cluster_port().to_string();
            first.command(&["CLUSTER", "MEET", "127.0.0.1", &port]).await;
        }
        self.agree("every node knows all others", |info| {
            info.contains("cluster_known_nodes:6") && info.contains("cluster_state:ok")
        })
        .await;
        for (master, replica) in self.servers.iter().zip(&self.servers[SHARDS..]) {
            let id = id_of(master).await;
            eventually(LIMIT, "the replica knows its master", async || {
                replica.try_command(&["CLUSTER", "REPLICATE", &id]).await.is_ok()
            })
            .await;
        }
        // Without this, a failover may not find the replica.
        for server in &self.servers {
            eventually(LIMIT, "every node knows the replicas", async || {
                let slots = server.command(&["CLUSTER", "SLOTS"]).await;
                let shards = slots.as_sequence().expect("a list of ranges");
                shards.iter().all(|shard| shard.as_sequence().is_some_and(|it| it.len() == 4))
            })
            .await;
        }
        for replica in &self.servers[SHARDS..] {
            eventually(LIMIT, "the replicas follow", async || {
                info(replica, "replication").await.contains("master_link_status:up")
            })
            .await;
        }
    }

    async fn agree(&self, what: &str, meets: impl Fn(&str) -> bool) {
        for server in &self.servers {
            eventually(LIMIT, what, async || {
                let info = server.command(&["CLUSTER", "INFO"]).await;
                meets(&from_redis_value::<String>(info).expect("a text"))
            })
            .await;
        }
    }

    /// The URLs of all nodes.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.url()).collect()
    }

    /// The master of a shard at first.
    pub fn master(&self, shard: usize) -> &Server {
        &self.servers[shard]
    }

    /// The replica of a shard at first.
    pub fn replica(&self, shard: usize) -> &Server {
        &self.servers[SHARDS + shard]
    }

    /// All servers: the masters at first, the replica of each, and those that were added.
    pub fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// A name of a lock that is on this shard at first.
    pub fn name_on(&self, shard: usize, stem: &str) -> String {
        let names = (0..).map(|number| format!("{stem}:{number}"));
        let shard_of = |name: &str| {
            let slot = usize::from(slot_of(name));
            (0..SHARDS).find(|shard| slot < (shard + 1) * 16384 / SHARDS).expect("a shard")
        };
        names.into_iter().find(|name| shard_of(name) == shard).expect("there are many names")
    }

    /// Asks every node to add a new master, which has no slots at first. Returns its place among [`servers`](Self::servers).
    pub async fn add(&mut self) -> usize {
        // It stays a master when it has lost its last slot.
        let stays = ["--cluster-allow-replica-migration", "no"];
        let args = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
        let new = Server::with(&[&args[..], &stays].concat()).await;
        let first = &self.servers[0];
        first.command(&["CLUSTER", "MEET", "127.0.0.1", &new.port().to_string()]).await;
        self.servers.push(Arc::new(new));
        let all = format!("cluster_known_nodes:{}", self.servers.len());
        self.agree("every node knows the new one", |info| {
            info.contains(&all) && info.contains("cluster_state:ok")
        })
        .await;
        self.servers.len() - 1
    }

    /// Has all others forget a node that owns no slot any more.
    pub async fn forget(&self, node: usize) {
        let id = id_of(&self.servers[node]).await;
        for (index, server) in self.servers.iter().enumerate() {
            if index != node {
                server.command(&["CLUSTER", "FORGET", &id]).await;
            }
        }
    }

    /// Begins to move a slot: the target imports it, the source migrates it.
    pub async fn open(&self, slot: u16, source: &Server, target: &Server) {
        let slot = slot.to_string();
        let (source_id, target_id) = (id_of(source).await, id_of(target).await);
        target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).await;
        source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).await;
    }

    /// Moves some keys of an open slot; those that are not there are passed over.
    pub async fn migrate(&self, keys: &[&str], source: &Server, target: &Server) {
        let port = target.cluster_port().to_string();
        let words = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        source.command(&[&words, keys].concat()).await;
    }

    /// Moves all keys of an open slot.
    pub async fn migrate_all(&self, slot: u16, source: &Server, target: &Server) {
        let number = slot.to_string();
        loop {
            let keys = source.command(&["CLUSTER", "GETKEYSINSLOT", &number, "100"]).await;
            let keys: Vec<String> = from_redis_value(keys).expect("a list of keys");
            if keys.is_empty() {
                return;
            }
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            self.migrate(&keys, source, target).await;
        }
    }

    /// Ends the move of a slot: it is the target's from now on.
    pub async fn close(&self, slot: u16, source: &Server, target: &Server) {
        let (slot, id) = (slot.to_string(), id_of(target).await);
        for server in [target, source] {
            server.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]).await;
        }
    }

    /// Waits until these nodes know of each other's last change. Without this, the next one may look older than this one.
    pub async fn settled(&self, nodes: &[&Server]) {
        let epoch = async |server: &Server| {
            let info = server.command(&["CLUSTER", "INFO"]).await;
            let info: String = from_redis_value(info).expect("a text");
            let line = info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
            line.expect("it has one").to_owned()
        };
        let ids = join_all(nodes.iter().map(|node| id_of(node))).await;
        let known = async |server: &Server| {
            let nodes = server.command(&["CLUSTER", "NODES"]).await;
            let nodes: String = from_redis_value(nodes).expect("a text");
            // The words of a line: id, address, flags, master, ping, pong, epoch, link, slots.
            let known = nodes.lines().filter(|line| ids.iter().any(|id| line.starts_with(id)));
            let mut known: Vec<String> = known
                .map(|line| {
                    let words: Vec<&str> = line.split(' ').collect();
                    let slots = words[8..].iter().filter(|word| !word.starts_with('['));
                    format!("{} {} {:?}", words[0], words[6], slots.collect::<Vec<_>>())
                })
                .collect();
            known.sort();
            known
        };
        let (first, others) = nodes.split_first().expect("some nodes");
        eventually(LIMIT, "the nodes agree", async || {
            let view = (epoch(first).await, known(first).await);
            for other in others {
                if (epoch(other).await, known(other).await) != view {
                    return false;
                }
            }
            true
        })
        .await;
    }

    /// Moves a slot with all its keys.
    pub async fn move_slot(&self, slot: u16, source: &Server, target: &Server) {
        self.open(slot, source, target).await;
        self.migrate_all(slot, source, target).await;
        self.close(slot, source, target).await;
    }

    /// Makes a replica the master of its shard, as an operator does, and waits until it is.
    pub async fn fail_over(&self, shard: usize) {
        self.promote(self.replica(shard)).await;
    }

    /// The same with any server that is a replica now and has everything.
    pub async fn promote(&self, replica: &Server) {
        eventually(LIMIT, "it follows its master", async || {
            info(replica, "replication").await.contains("master_link_status:up")
        })
        .await;
        // Masters that have not heard of the last change do not vote.
        self.settled(&self.servers.iter().map(|server| &**server).collect::<Vec<_>>()).await;
        replica.command(&["CLUSTER", "FAILOVER"]).await;
        eventually(LIMIT, "the replica is the master", async || {
            info(replica, "replication").await.contains("role:master")
        })
        .await;
    }
}

/// The slot of a key, which has no hash tag.
pub fn slot_of(key: &str) -> u16 {
    let crc = key.bytes().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16384
}

async fn id_of(server: &Server) -> String {
    from_redis_value(server.command(&["CLUSTER", "MYID"]).await).expect("a text")
}

async fn info(server: &Server, section: &str) -> String {
    match server.command(&["INFO", section]).await {
        Value::Nil => String::new(),
        info => from_redis_value(info).expect("a text"),
    }
}
