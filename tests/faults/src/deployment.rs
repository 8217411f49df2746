//! The servers of a run, each behind one proxy per contender.

use std::time::{Duration, Instant};

use redis::{RedisResult, Value};

use crate::support::{Proxy, Server};

/// One server or several, as a client is told of them.
pub(crate) struct Deployment {
    pub(crate) nodes: Vec<Node>,
}

pub(crate) struct Node {
    pub(crate) index: usize,
    pub(crate) server: Server,
    /// One for each contender.
    pub(crate) proxies: Vec<Proxy>,
    /// Every write is on its disk before it is answered.
    pub(crate) keeps_data: bool,
}

impl Deployment {
    /// One server keeps its data, and of several a majority: the others may lose it.
    pub(crate) async fn start(count: usize, contenders: usize) -> Self {
        let mut nodes = Vec::new();
        for index in 0..count {
            nodes.push(Node::start(index, index >= (count - 1) / 2, contenders).await);
        }
        Self { nodes }
    }

    /// Where contender number `slot` connects.
    pub(crate) fn urls(&self, slot: usize) -> Vec<String> {
        let port = |node: &Node| node.proxies[slot].port();
        let urls =
            self.nodes.iter().map(|node| format!("redis://{USER}:{USER}@127.0.0.1:{}", port(node)));
        urls.collect()
    }
}

impl Node {
    async fn start(index: usize, keeps_data: bool, contenders: usize) -> Self {
        let rules = ["--user", USER, "on", &format!(">{USER}"), "~*", "&*", "+@all"];
        let written_through = ["--appendonly", "yes", "--appendfsync", "always"];
        let mut args = rules.to_vec();
        if keeps_data {
            args.extend(written_through);
        }
        let server = Server::with(&args).await;
        let mut proxies = Vec::new();
        for _ in 0..contenders {
            proxies.push(Proxy::start(server.port()).await);
        }
        Self { index, server, proxies, keeps_data }
    }

    /// Forgets everything. The server must be down.
    pub(crate) fn wipe(&self) {
        for entry in std::fs::read_dir(self.server.dir()).expect("the server's directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                std::fs::remove_dir_all(path).expect("removed");
            } else if path.extension().is_some_and(|kind| kind == "rdb" || kind == "aof") {
                std::fs::remove_file(path).expect("removed");
            }
        }
    }

    /// Runs a command until it is done: the server may be refusing or hanging for another fault.
    ///
    /// # Panics
    ///
    /// When it is not done in time, or refused for what is no fault.
    pub(crate) async fn insist(&self, words: &[&str]) -> Value {
        let asked_at = Instant::now();
        loop {
            match self.server.try_command(words).await {
                Ok(value) => return value,
                Err(error) if is_of_a_fault(&error) && asked_at.elapsed() < LIMIT => {
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => panic!("{words:?}: {error}"),
            }
        }
    }

    /// Runs a command as well as may be.
    pub(crate) async fn attempt(&self, words: &[&str]) -> RedisResult<Value> {
        self.server.try_command(words).await
    }
}

fn is_of_a_fault(error: &redis::RedisError) -> bool {
    let text = error.to_string();
    error.is_io_error()
        || error.is_timeout()
        || error.is_unrecoverable_error()
        || ["LOADING", "OOM", "READONLY", "BusyLoading", "rewriting"]
            .iter()
            .any(|code| text.contains(code))
}

/// Contenders log in as this user, whose rights come and go.
pub(crate) const USER: &str = "contender";
const LIMIT: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_millis(20);
