//! The scripts of the read-write lock in random order, with clients that end, requests that run twice or late, and leases
//! that nobody renews: no writer is beside anybody, tokens keep their order, and nothing stays.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{
    bench::{Bench, OURS, Subscriber, TOKEN, renew},
    rw::{READ, WRITE, ask_as, downgrade_as, entry, leave_as, listen, renew_reader},
};
use crate::{checks::LIMIT, support::eventually};

const TTL_MS: u64 = 100;

/// A lease as its client knows it.
#[derive(Clone, Copy)]
struct Held {
    side: &'static str,
    until: Instant,
    token: i64,
}

struct Client {
    name: String,
    mailbox: Subscriber,
    held: BTreeMap<String, Held>,
    waiting: BTreeMap<String, &'static str>,
}

struct World {
    bench: Bench,
    clients: Vec<Client>,
    made: u64,
    random: u64,
    last_write: i64,
    /// How many leases readers and writers had, and how many became readers.
    granted: [u32; 3],
}

impl World {
    async fn begin(seed: u64) -> Self {
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let bench = Bench::start().await;
        let mut world =
            Self { bench, clients: Vec::new(), made: 0, random, last_write: 0, granted: [0; 3] };
        for _ in 0..3 {
            world.add_client().await;
        }
        world
    }

    async fn add_client(&mut self) {
        self.made += 1;
        let name = format!("c{}", self.made);
        let mailbox = listen(&self.bench, &name).await;
        let (held, waiting) = (BTreeMap::new(), BTreeMap::new());
        self.clients.push(Client { name, mailbox, held, waiting });
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % end
    }

    /// One of the keys, if there are any.
    fn one_of<T>(
        &mut self,
        client: usize,
        of: impl Fn(&Client) -> &BTreeMap<String, T>,
    ) -> Option<String> {
        let count = of(&self.clients[client]).len() as u64;
        if count == 0 {
            return None;
        }
        let at = self.below(count) as usize;
        of(&self.clients[client]).keys().nth(at).cloned()
    }

    async fn step(&mut self) {
        let client = self.below(self.clients.len() as u64) as usize;
        match self.below(20) {
            0..7 => self.ask_anew(client).await,
            7 | 8 => self.ask_again(client).await,
            9 => self.give_up(client).await,
            10..15 => self.release(client).await,
            15 | 16 => self.renew(client).await,
            17 => self.downgrade(client).await,
            18 if self.below(4) == 0 => {
                // Its leases stay until their ends, and its entries until they are passed over.
                self.clients.swap_remove(client);
                self.add_client().await;
            }
            _ => {
                let pause = self.below(12);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        }
        self.read_letters().await;
        self.check();
    }

    async fn ask_anew(&mut self, client: usize) {
        self.made += 1;
        let id = format!("{}:{}", self.clients[client].name, self.made);
        let side = if self.below(5) < 3 { READ } else { WRITE };
        let queues = self.below(5) > 0;
        if queues {
            self.clients[client].waiting.insert(id.clone(), side);
        }
        self.ask(client, &id, side, queues).await;
        if self.below(8) == 0 {
            self.ask(client, &id, side, queues).await;
        }
    }

    async fn ask(&mut self, client: usize, id: &str, side: &'static str, queues: bool) {
        let began_at = Instant::now();
        let entry = if queues { entry(id, side) } else { String::new() };
        let reply = self.bench.run(&ask_as(id, side, &entry, &TTL_MS.to_string())).await;
        self.take_in(client, id, side, began_at, &reply.expect("the script runs")).await;
    }

    async fn take_in(
        &mut self,
        client: usize,
        id: &str,
        side: &'static str,
        began_at: Instant,
        reply: &redis::Value,
    ) {
        let redis::Value::Array(items) = reply else { panic!("{reply:?}") };
        if let [redis::Value::Int(1), redis::Value::Int(token), ref before @ ..] = items[..] {
            self.read_letters().await;
            if let [redis::Value::Int(before)] = *before {
                self.follows(before, side, token);
            }
            let until = began_at + Duration::from_millis(TTL_MS * 98 / 100 - 1);
            self.granted(client, id, Held { side, until, token });
        }
    }

    async fn ask_again(&mut self, client: usize) {
        let Some(id) = self.one_of(client, |client| &client.waiting) else { return };
        let side = self.clients[client].waiting[&id];
        self.ask(client, &id, side, true).await;
    }

    async fn give_up(&mut self, client: usize) {
        let Some(id) = self.one_of(client, |client| &client.waiting) else { return };
        let side = self.clients[client].waiting.remove(&id).expect("it waits");
        self.bench.run(&leave_as(&id, side, "0")).await.expect("the script runs");
    }

    async fn release(&mut self, client: usize) {
        let Some(id) = self.one_of(client, |client| &client.held) else { return };
        let side = self.clients[client].held.remove(&id).expect("held").side;
        let granted = if self.below(2) == 0 { "0" } else { "1" };
        for _ in 0..=self.below(2) {
            self.bench.run(&leave_as(&id, side, granted)).await.expect("the script runs");
        }
    }

    async fn renew(&mut self, client: usize) {
        let Some(id) = self.one_of(client, |client| &client.held) else { return };
        let held = self.clients[client].held[&id];
        let began_at = Instant::now();
        let call = match held.side {
            READ => renew_reader(&id, TTL_MS as u32),
            _ => renew(&format!("{id}{OURS}:write"), 1, TTL_MS),
        };
        if self.bench.run(&call).await.expect("the script runs") == redis::Value::Int(1) {
            let until = began_at + Duration::from_millis(TTL_MS * 98 / 100 - 1);
            let held = Held { until: held.until.max(until), ..held };
            self.clients[client].held.insert(id, held);
        } else {
            assert!(held.until < Instant::now(), "{id} was lost early");
            self.clients[client].held.remove(&id);
        }
    }

    async fn downgrade(&mut self, client: usize) {
        let held = &self.clients[client].held;
        let writer = held.iter().find(|(_, held)| held.side == WRITE);
        let Some(from) = writer.map(|(id, _)| id.clone()) else { return };
        self.made += 1;
        let id = format!("{}:{}", self.clients[client].name, self.made);
        self.clients[client].held.remove(&from);
        let began_at = Instant::now();
        let reply = self.bench.run(&downgrade_as(&id, &from, &TTL_MS.to_string())).await;
        self.take_in(client, &id, READ, began_at, &reply.expect("the script runs")).await;
        self.granted[2] += u32::from(self.clients[client].held.contains_key(&id));
        self.bench.run(&leave_as(&from, WRITE, "0")).await.expect("the script runs");
    }

    /// Takes in what the mailboxes say, in the order in which it happened: grants to those who wait. Others are given back.
    async fn read_letters(&mut self) {
        let mut grants = Vec::new();
        for (client, state) in self.clients.iter_mut().enumerate() {
            for letter in self.bench.messages(&mut state.mailbox).await {
                let letter = letter.replace(OURS, "");
                let words: Vec<&str> = letter.split(' ').collect();
                if let ["grant", id, server_us, ms, token, ref before @ ..] = words[..] {
                    let number = |word: &str| word.parse::<i64>().expect("a number");
                    assert!(number(ms) <= 2_000, "{letter}");
                    let before = before.first().map(|word| number(word));
                    grants.push((number(server_us), client, id.to_owned(), number(token), before));
                }
            }
        }
        grants.sort_unstable();
        for (_, client, id, token, before) in grants {
            let Some(side) = self.clients[client].waiting.remove(&id) else {
                for side in [READ, WRITE] {
                    let release = leave_as(&id, side, "1");
                    self.bench.run(&release).await.expect("the script runs");
                }
                continue;
            };
            if let Some(before) = before {
                self.follows(before, side, token);
            }
            // When it began is known to the server only: nobody uses it before it is confirmed.
            self.granted(client, &id, Held { side, until: Instant::now(), token });
        }
    }

    /// What a writer is told of the tokens before its own leaves no other writer out.
    fn follows(&self, before: i64, side: &str, token: i64) {
        assert_eq!(side, WRITE);
        assert!((self.last_write..token).contains(&before), "{before} is before {token}");
    }

    fn granted(&mut self, client: usize, id: &str, held: Held) {
        let client = &mut self.clients[client];
        client.waiting.remove(id);
        if let Some(before) = client.held.get_mut(id) {
            assert_eq!(before.token, held.token, "{id} is confirmed with its token");
            before.until = before.until.max(held.until);
            return;
        }
        if held.side == READ {
            assert!(held.token >= self.last_write, "a reader sees the last writer");
        } else {
            assert!(held.token > self.last_write, "writers' tokens increase");
            self.last_write = held.token;
        }
        self.granted[usize::from(held.side == WRITE)] += 1;
        client.held.insert(id.to_owned(), held);
    }

    fn check(&self) {
        let now = Instant::now();
        let all = self.clients.iter().flat_map(|client| &client.held);
        let live: Vec<_> = all.filter(|(_, held)| now < held.until).collect();
        let writes = live.iter().filter(|(_, held)| held.side == WRITE).count();
        let ids: Vec<_> = live.iter().map(|(id, held)| (id, held.side)).collect();
        assert!(writes == 0 || live.len() == 1, "at once: {ids:?}");
    }

    /// All clients end. A writer gets the lock when the last lease has ended, and leaves nothing.
    async fn end(mut self) {
        self.clients.clear();
        eventually(LIMIT, "the lock is free", async || {
            let call = ask_as("last:1", WRITE, "", "30000");
            let reply = self.bench.run(&call).await.expect("the script runs");
            matches!(reply, redis::Value::Array(items) if items[0] == redis::Value::Int(1))
        })
        .await;
        self.bench.run(&leave_as("last:1", WRITE, "0")).await.expect("the script runs");
        assert_eq!(self.bench.ask("KEYS *").await, format!("[{TOKEN}]"), "nothing else is left");
    }
}

#[tokio::test]
async fn no_order_of_requests_breaks_a_read_write_lock() {
    let mut granted = [0; 3];
    for seed in 1..=3 {
        let mut world = World::begin(seed).await;
        for _ in 0..500 {
            world.step().await;
        }
        for (sum, one) in granted.iter_mut().zip(world.granted) {
            *sum += one;
        }
        world.end().await;
    }
    let [readers, writers, downgrades] = granted;
    assert!(readers > 10 && writers > 5 && downgrades > 0, "{granted:?}");
}
