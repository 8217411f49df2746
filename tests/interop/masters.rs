//! Three independent masters: our lock over their majority, and Redisson's red and multi locks over the same.

mod apart;
mod leases;
mod mixed;
mod together;

use std::time::{Duration, Instant};

use leasehold::{Client, ClientBuilder};
use leasehold_testkit::{
    Server, eventually,
    java::{Java, Version},
    subscribers,
};
use redis::Value;

use crate::side::{Rust, Side};

/// Three servers, and both libraries connected to all of them.
struct Masters {
    servers: Vec<Server>,
    java: Side,
    rust: Side,
}

impl Masters {
    /// With `ttl` for the watchdogs of both; Java's locks are `red` or `multi`.
    async fn lay(version: Version, kind: &'static str, ttl: Duration) -> Self {
        let servers = start_three().await;
        let java = Side::Java(Java::connect_to_all(version, &urls(&servers), ttl, kind).await);
        let client = builder(&servers).ttl(ttl).connect().await.expect("connected");
        Self { servers, java, rust: Side::Rust(Rust::new(client)) }
    }

    /// Who holds and who wants: Java and Rust, then Rust and Java.
    fn both_ways(&self) -> [(&Side, &Side); 2] {
        [(&self.java, &self.rust), (&self.rust, &self.java)]
    }

    fn java(&self) -> &Java {
        self.java.java()
    }

    fn rust(&self) -> &Rust {
        self.rust.rust()
    }

    /// Waits until `waiter`, and nobody else, waits for the lock `name`.
    async fn waits(&self, waiter: &Side, name: &str) {
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let listens = async || {
            let (mut listening, mut running) = (0, 0);
            for server in &self.servers {
                if server.try_command(&["PING"]).await.is_ok() {
                    running += 1;
                    listening += subscribers(server, &channel).await;
                }
            }
            // Java waits for one server after the other, we for all at once.
            match waiter {
                Side::Java(_) => listening >= 1,
                Side::Rust(_) => listening == running,
            }
        };
        eventually(Duration::from_secs(20), "somebody waits", listens).await;
    }

    /// Waits until the running servers say so; a release may still be on its way to one of them.
    async fn stand_at(&self, name: &str, counts: &[i64]) {
        let began_at = Instant::now();
        loop {
            let now = self.counts(name).await;
            if now == counts {
                return;
            }
            assert!(began_at.elapsed() < Duration::from_secs(5), "{now:?}, not {counts:?}");
            tokio::time::sleep(2 * MS).await;
        }
    }

    /// What each running server says of the lock: the hold count of each holder.
    async fn counts(&self, name: &str) -> Vec<i64> {
        let mut counts = Vec::new();
        for server in &self.servers {
            if let Ok(values) = server.try_command(&["HVALS", name]).await {
                let Value::Array(values) = values else { panic!("not a list: {values:?}") };
                counts.extend(values.into_iter().map(|value| match value {
                    Value::BulkString(text) => {
                        String::from_utf8(text).expect("text").parse::<i64>().expect("a number")
                    }
                    other => panic!("not a count: {other:?}"),
                }));
            }
        }
        counts
    }
}

async fn start_three() -> Vec<Server> {
    vec![Server::start().await, Server::start().await, Server::start().await]
}

fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
}

/// A client of ours to be, which trusts servers that have just started.
fn builder(servers: &[Server]) -> ClientBuilder {
    Client::builder().nodes(urls(servers)).restart_quarantine(Duration::ZERO)
}

/// For how long the lock is on a server still, in milliseconds; below zero where it is not.
async fn left_ms(server: &Server, name: &str) -> i64 {
    match server.command(&["PTTL", name]).await {
        Value::Int(ms) => ms,
        other => panic!("not a time: {other:?}"),
    }
}

const TTL: Duration = Duration::from_secs(30);
const NOW: Duration = Duration::ZERO;
/// The servers, and Java, count in milliseconds.
const MS: Duration = Duration::from_millis(1);
