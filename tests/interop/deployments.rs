//! Deployments whose masters change: both libraries follow, and each lock stays with the one who has it.

mod cluster;
mod kinds;
mod sentinel;

use std::time::Duration;

use leasehold_testkit::{
    Server, eventually,
    java::{Call, Java, hex},
    shared_clock_us, waiting,
};
use redis::Value;

use crate::side::{Rust, Side};

/// Both libraries on one deployment.
struct Both {
    java: Side,
    rust: Side,
    /// What tells how many listen on a channel.
    count_listeners: &'static str,
    /// Of the watchdogs of both.
    ttl: Duration,
}

/// Each of both holds a lock, and the other waits for it.
struct Crossed {
    both: Both,
    /// Held by Java, held by Rust.
    names: [String; 2],
    waits: [Call; 2],
}

impl Both {
    /// Who holds and who waits: Java and Rust, then Rust and Java.
    fn both_ways(&self) -> [(&Side, &Side); 2] {
        [(&self.java, &self.rust), (&self.rust, &self.java)]
    }

    fn java(&self) -> &Java {
        self.java.java()
    }

    fn rust(&self) -> &Rust {
        self.rust.rust()
    }

    /// How many listen there for the release of a lock.
    async fn listeners(&self, server: &Server, name: &str) -> i64 {
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let counts = server.command(&["PUBSUB", self.count_listeners, &channel]).await;
        let (_, count): (String, i64) = redis::from_redis_value(counts).expect("a count");
        count
    }

    /// Waits until each uses `server` for the lock `probe`, which nobody else uses.
    async fn have_arrived_at(&self, server: &Server, probe: &str) {
        for side in [&self.java, &self.rust] {
            eventually(LIMIT, "it has arrived", async || {
                // In the middle of a switch this may fail, or be done on the old master.
                if side.try_lock("probe", probe, NOW).done().await.outcome != Ok(1) {
                    return false;
                }
                let is_there = left_ms(server, probe).await > 0;
                let freed = side.unlock("probe", probe).done().await.outcome;
                is_there && freed == Ok(1)
            })
            .await;
        }
    }

    /// Takes the locks, which are on `server`, and waits for them.
    async fn cross(self, names: [String; 2], server: &Server) -> Crossed {
        for ((holder, other), name) in self.both_ways().into_iter().zip(&names) {
            assert_eq!(holder.lock("a", name).value().await, 1);
            assert_eq!(other.try_lock("b", name, NOW).value().await, 0);
        }
        let all = ["slowlog-log-slower-than", "0", "slowlog-max-len", "100000"];
        server.command(&[&["CONFIG", "SET"], &all[..]].concat()).await;
        server.command(&["SLOWLOG", "RESET"]).await;
        let java = self.java().text("b", "id").await;
        let waits = [self.rust.lock("b", &names[0]), self.java.lock("b", &names[1])];
        let crossed = Crossed { both: self, names, waits };
        crossed.wait_at(server, &[server]).await;
        // It asks once more when it has subscribed, and fails if the master becomes a replica meanwhile.
        eventually(LIMIT, "Java sleeps", async || has_asked_twice(server, &java).await).await;
        crossed
    }
}

impl Crossed {
    /// Waits until ours waits at `server`, and Java at one of the others.
    async fn wait_at(&self, server: &Server, heard_at: &[&Server]) {
        self.wait_for_ours_at(server).await;
        eventually(LIMIT, "Java listens", async || {
            let mut listening = 0;
            for server in heard_at {
                listening += self.both.listeners(server, &self.names[1]).await;
            }
            listening == 1
        })
        .await;
    }

    async fn wait_for_ours_at(&self, server: &Server) {
        let by_java = &self.names[0];
        eventually(LIMIT, "ours waits", async || waiting(server, by_java).await == 1).await;
        let listens = async || self.both.listeners(server, by_java).await == 1;
        eventually(LIMIT, "ours listens", listens).await;
    }

    /// Each still has its lock, on `server`: it is renewed there, and nobody else gets it.
    async fn are_kept_at(&mut self, server: &Server) {
        let [by_java, by_rust] = &self.names;
        for name in &self.names {
            for side in [&self.both.java, &self.both.rust] {
                assert_eq!(side.try_lock("c", name, NOW).value().await, 0);
            }
            is_renewed(server, name, self.both.ttl).await;
        }
        let asked = format!("is-held-by-current-thread plain {}", hex(by_java));
        assert_eq!(self.both.java().call("a", &asked).value().await, 1);
        assert!(self.both.rust().look("a", by_rust, |guard| guard.is_held()));
        for wait in &mut self.waits {
            let ended = wait.ended().await;
            assert!(ended.is_none(), "nothing was freed: {ended:?}");
        }
    }

    /// Each gives back what it holds, and the other, which waits for it, has it soon: at once if it is told.
    async fn hand_over(self, server: &Server, is_java_told: bool) -> Both {
        let Self { both, names, waits } = self;
        for (((holder, waiter), name), wait) in both.both_ways().into_iter().zip(&names).zip(waits)
        {
            let freed = holder.unlock("a", name).done().await;
            let woken = wait.done().await;
            let latency = Duration::from_micros(woken.ended_us.saturating_sub(freed.began_us));
            println!("{} has {name} after {latency:?}", waiter.name());
            assert_eq!((freed.value(), woken.value()), (1, 1));
            let limit = match waiter {
                // The rest of the lease, after which it looks.
                Side::Java(_) if !is_java_told => both.ttl + TOLD_WITHIN,
                _ => TOLD_WITHIN,
            };
            assert!(latency < server.widened(limit), "{} has it after {latency:?}", waiter.name());
            assert!(left_ms(server, name).await > 0, "{name} is not there");
            assert_eq!(holder.try_lock("a", name, NOW).value().await, 0);
            assert_eq!(waiter.unlock("b", name).value().await, 1);
            assert_eq!(holder.try_lock("a", name, NOW).value().await, 1);
            assert_eq!(holder.unlock("a", name).value().await, 1);
        }
        both
    }
}

/// Returns true if this owner of Java's has asked twice, and waits for no replica to know of it.
async fn has_asked_twice(server: &Server, owner: &str) -> bool {
    let log = server.command(&["SLOWLOG", "GET", "100000"]).await;
    let log: Vec<Value> = redis::from_redis_value(log).expect("a list");
    let is_asked = |command: &String| command.contains("EVAL") && command.contains(owner);
    let asked = log.iter().map(|command| format!("{command:?}")).filter(is_asked).count();
    let clients = server.command(&["INFO", "clients"]).await;
    let clients: String = redis::from_redis_value(clients).expect("a text");
    asked >= 2 && clients.contains("blocked_clients:0")
}

/// Waits until the lock, which is on a server, lasts for longer than it does now.
async fn is_renewed(server: &Server, name: &str, limit: Duration) {
    let now_ms = || i64::try_from(shared_clock_us() / 1000).expect("a time");
    let left = left_ms(server, name).await;
    assert!(left > 0, "{name} is not there");
    // The latest end that it can have, and then the earliest. A renewal makes a difference of seconds.
    let end = now_ms() + left + 10;
    let is_longer = async || {
        let now = now_ms();
        now + left_ms(server, name).await > end
    };
    eventually(limit, &format!("{name} is renewed"), is_longer).await;
}

/// For how long the lock is on a server still, in milliseconds; below zero where it is not.
async fn left_ms(server: &Server, name: &str) -> i64 {
    match server.try_command(&["PTTL", name]).await {
        Ok(Value::Int(ms)) => ms,
        Ok(other) => panic!("not a time: {other:?}"),
        // Its slot is elsewhere.
        Err(error) if error.kind() == redis::ServerErrorKind::Moved.into() => -2,
        Err(error) => panic!("no answer: {error}"),
    }
}

const NOW: Duration = Duration::ZERO;
const LIMIT: Duration = Duration::from_secs(30);
/// Far below all timers: ours looks after 2 s at the earliest, Java when the lease is over.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
