//! The scripts of a semaphore: `permits.lua` and those that it stands before.
//!
//! The clients are `a`, `b`, `c`, each with one lease. A state is written as what is left and what is out: `3+2`.

mod conserving;
mod queueing;
mod resizing;
mod taking;
mod troubles;

use std::fmt;

use redis::Value;

use super::bench::{Bench, Call, Subscriber, answer};
use crate::support::lua;

const NAME: &str = "api";
const HOLDERS: &str = "{api}:timeout";
const QUEUE: &str = "leasehold_permit_queue:{api}";
const CHANNEL: &str = "redisson_sc:{api}";
const NONCE: &str = "0123456789abcdef";
/// A permit of Redisson, and its digits.
const JAVA: &[u8; 16] = b"\x00\xff:0123456789abc";
const JAVA_DIGITS: &str = "00ff3a30313233343536373839616263";

/// A request for permits, and what a script needs to know of it.
#[derive(Clone, PartialEq, Eq)]
struct Lease {
    client: String,
    id: String,
    weight: u32,
    ttl_ms: u64,
    initial: String,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.weight, self.client)
    }
}

/// The lease of a client, of so many permits for 30 s, of a semaphore that exists.
fn lease(client: &str, weight: u32) -> Lease {
    Lease {
        client: client.to_owned(),
        id: format!("{client}:01234567-89ab-4def-8123-456789abcdef"),
        weight,
        ttl_ms: 30_000,
        initial: String::new(),
    }
}

impl Lease {
    /// The semaphore is made with so many permits.
    fn of(self, initial: u32) -> Self {
        Self { initial: initial.to_string(), ..self }
    }

    fn entry(&self) -> String {
        format!("{} {} {NONCE} {}", self.ttl_ms, self.weight, self.id)
    }

    fn acquire(&self, entry: &str) -> Call {
        let (weight, ttl) = (self.weight.to_string(), self.ttl_ms.to_string());
        let args =
            [&self.id, &weight, &ttl, "PUBLISH", CHANNEL, &self.initial, entry, "0", "NUMSUB"];
        Call::new(lua::PERMIT_ACQUIRE, &[NAME, HOLDERS, QUEUE], &args)
    }

    /// An acquire that queues.
    fn ask(&self) -> Call {
        self.acquire(&self.entry())
    }

    /// An acquire that does not queue.
    fn try_once(&self) -> Call {
        self.acquire("")
    }

    fn renew(&self, ttl_ms: u64) -> Call {
        let args = [&self.id, &*self.weight.to_string(), &ttl_ms.to_string()];
        Call::new(lua::PERMIT_RENEW, &[HOLDERS], &args)
    }

    fn release_with(&self, keep_ms: u64, forget: &str, granted: &str) -> Call {
        let (weight, keep) = (self.weight.to_string(), keep_ms.to_string());
        let entry = self.entry();
        let (id, initial) = (&self.id, &self.initial);
        let args = [id, &weight, &keep, "PUBLISH", CHANNEL, forget, &entry, granted, initial];
        Call::new(lua::PERMIT_RELEASE, &[NAME, HOLDERS, QUEUE], &args)
    }

    /// A release of a lease that came by an answer, or waits.
    fn release(&self) -> Call {
        self.release_with(0, "", "")
    }

    /// A release of a lease that came by message.
    fn release_granted(&self) -> Call {
        self.release_with(0, "", "1")
    }

    fn reclaim(&self) -> Call {
        let (weight, ttl) = (self.weight.to_string(), self.ttl_ms.to_string());
        let entry = self.entry();
        let args = [&*self.id, &weight, &ttl, &self.initial, &entry];
        Call::new(lua::PERMIT_RECLAIM, &[NAME, HOLDERS, QUEUE], &args)
    }
}

fn resize(what: &str, number: u32) -> Call {
    resize_with(what, number, "")
}

/// By a handle that makes the semaphore with so many permits.
fn resize_of(what: &str, number: u32, initial: u32) -> Call {
    resize_with(what, number, &initial.to_string())
}

fn resize_with(what: &str, number: u32, initial: &str) -> Call {
    let args = [what, &number.to_string(), initial, "PUBLISH", CHANNEL];
    Call::new(lua::PERMIT_RESIZE, &[NAME, HOLDERS, QUEUE], &args)
}

fn status() -> Call {
    Call::new(lua::PERMIT_STATUS, &[NAME, HOLDERS, QUEUE], &[CHANNEL, "10", "NUMSUB"])
}

/// A semaphore, and those who use it.
struct Pool {
    bench: Bench,
}

impl Pool {
    /// One with so many permits.
    async fn of(permits: u32) -> Self {
        let mut pool = Self::unmade().await;
        pool.run(&resize("set", permits)).await;
        pool
    }

    async fn unmade() -> Self {
        Self { bench: Bench::start().await }
    }

    /// Runs a script, and returns its answer as text, with short names for the leases.
    async fn run(&mut self, call: &Call) -> String {
        let reply = answer(self.bench.run(call).await);
        reply.replace(":01234567-89ab-4def-8123-456789abcdef", "")
    }

    /// Runs a script, and compares what it answers, and what is left and out.
    async fn expect(&mut self, call: &Call, reply: &str, state: &str) {
        assert_eq!(self.run(call).await, reply, "the reply of {call:?}");
        assert_eq!(self.state().await, state, "the state after {call:?}");
    }

    /// Runs a script twice, which must be as if it ran once.
    async fn expect_twice(&mut self, call: &Call, replies: [&str; 2], state: &str) {
        for reply in replies {
            self.expect(call, reply, state).await;
        }
    }

    async fn state(&mut self) -> String {
        let left = self.bench.ask(&format!("GET {NAME}")).await;
        format!("{left}+{}", self.bench.ask(&format!("ZCARD {HOLDERS}")).await)
    }

    /// The clients in the queue, the first one first.
    async fn queued(&mut self) -> String {
        let entries = self.bench.command(&format!("ZRANGE {QUEUE} 0 -1")).await;
        let entries: Vec<String> = redis::from_redis_value(entries).expect("a list of entries");
        let id = |entry: &String| entry.rsplit(' ').next().expect("an id").to_owned();
        let client = |entry| id(entry).split(':').next().expect("a client").to_owned();
        entries.iter().map(client).collect::<Vec<_>>().join(" ")
    }

    /// When the permits of a lease end, in milliseconds of the server's clock.
    async fn ends(&mut self, lease: &Lease) -> Vec<u64> {
        let mut ends = Vec::new();
        for number in 1..=lease.weight {
            let end = self.bench.command(&format!("ZSCORE {HOLDERS} {}:{number}", lease.id)).await;
            let end: Option<f64> = redis::from_redis_value(end).expect("a time");
            ends.extend(end.map(|end| end as u64));
        }
        ends
    }

    /// Has the permits of a lease end in the past.
    async fn end(&mut self, lease: &Lease) {
        for number in 1..=lease.weight {
            let line = format!("ZADD {HOLDERS} XX {number} {}:{number}", lease.id);
            self.bench.command(&line).await;
        }
    }

    /// A permit of Redisson that ends at that millisecond of the server's clock.
    async fn java_holds(&mut self, ends_ms: &str) {
        let mut connection = self.bench.server.raw().await;
        let mut add = redis::cmd("ZADD");
        let add = add.arg(HOLDERS).arg(ends_ms).arg(JAVA.as_slice());
        let _: Value = add.query_async(&mut connection).await.expect("it is added");
        self.bench.command(&format!("DECR {NAME}")).await;
    }

    async fn fill(&mut self) {
        self.bench.command("CONFIG SET maxmemory-policy noeviction").await;
        self.bench.command("CONFIG SET maxmemory 1").await;
    }

    /// The mailbox of a client that lives.
    async fn listen(&self, client: &str) -> Subscriber {
        self.bench.subscriber_of(&format!("leasehold_mailbox:{client}:{NONCE}")).await
    }

    /// The process of this mailbox ends.
    async fn ends_with(&mut self, mailbox: Subscriber, client: &str) {
        drop(mailbox);
        let count = format!("PUBSUB NUMSUB leasehold_mailbox:{client}:{NONCE}");
        let limit = std::time::Duration::from_secs(10);
        crate::support::eventually(limit, "the mailbox is gone", async || {
            self.bench.ask(&count).await.ends_with(", 0]")
        })
        .await;
    }

    /// What was told since it was asked last, in words: numbers that vary are left out.
    async fn told(&mut self, subscriber: &mut Subscriber) -> Vec<String> {
        let messages = self.bench.messages(subscriber).await;
        let short = |message: &String| {
            let words = message.split(' ').filter(|word| word.parse().is_ok_and(|n: u64| n > 999));
            let mut text = message.replace(":01234567-89ab-4def-8123-456789abcdef", "");
            for number in words {
                text = text.replacen(number, "..", 1);
            }
            text
        };
        messages.iter().map(short).collect()
    }

    /// `a` holds `held` permits, which are all there are, and the others wait in this order for so many.
    async fn line<const N: usize>(
        held: u32,
        waiting: [(&str, u32); N],
    ) -> (Self, [(Lease, Subscriber); N]) {
        let mut pool = Self::of(held).await;
        assert_eq!(pool.run(&lease("a", held).ask()).await, format!("[1, {held}]"));
        let mut all = Vec::new();
        for (client, weight) in waiting {
            let mailbox = pool.listen(client).await;
            let lease = lease(client, weight);
            let reply = pool.run(&lease.ask()).await;
            assert!(reply.starts_with("[0, 30s, a, 0, "), "{reply}");
            all.push((lease, mailbox));
        }
        (pool, all.try_into().unwrap_or_else(|_| unreachable!("one for each")))
    }
}
