//! Processes that are killed and stopped in the middle of everything: each item is counted.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{MS, all_are_done, jobs, places};
use crate::checks::{LIMIT, connect, setup_with_proxy, soon};
use crate::support::{Proxy, Server, Worker, eventually, heard};

const ITEMS: usize = 400;
const TTL_MS: u64 = 400;
const WORKERS: u64 = 4;

/// What workers have said of an item.
#[derive(Default)]
struct Told {
    /// Times between which a delivery was held.
    kept: Vec<(u64, u64)>,
    asked_to_acknowledge: usize,
    done_at: Vec<u64>,
}

#[derive(Default)]
struct Ledger(BTreeMap<String, Told>);

impl Ledger {
    fn write(&mut self, lines: Vec<Vec<String>>) {
        let number = |word: &str| word.parse::<u64>().expect("a number");
        for line in lines {
            match line.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["kept", item, from, until] => {
                    self.of(item).kept.push((number(from), number(until)));
                }
                ["acks", item] => self.of(item).asked_to_acknowledge += 1,
                ["done", item, at] => self.of(item).done_at.push(number(at)),
                // Whoever was killed in the middle of a line.
                _ => {}
            }
        }
    }

    fn of(&mut self, item: &str) -> &mut Told {
        self.0.entry(item.to_owned()).or_default()
    }

    /// Returns how many deliveries were seen to be held.
    fn check(&mut self) -> usize {
        for number in 0..ITEMS {
            let item = number.to_string();
            let told = self.of(&item);
            assert!(told.asked_to_acknowledge > 0, "item {item} was lost");
            assert!(told.done_at.len() <= 1, "item {item} was done twice: {:?}", told.done_at);
            told.kept.sort();
            for pair in told.kept.windows(2) {
                assert!(pair[0].1 < pair[1].0, "item {item} was in two live deliveries: {pair:?}");
            }
            let (last, done) = (told.kept.last(), told.done_at.first());
            if let (Some((_, until)), Some(done)) = (last, done) {
                assert!(until <= done, "item {item} was held at {until}, and done at {done}");
            }
        }
        assert_eq!(self.0.len(), ITEMS, "items that nobody has pushed");
        self.0.values().map(|told| told.kept.len()).sum()
    }
}

fn worker(server: &Server, proxy: &Proxy, seed: u64) -> Worker {
    let url = if seed.is_multiple_of(2) { server.url() } else { proxy.url() };
    let mut worker = Worker::start();
    worker.tell(&format!("pop {url} jobs {TTL_MS} 6 {seed}"));
    worker
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_item_is_lost_or_lent_twice_while_workers_are_killed_and_stopped() {
    let (server, proxy) = setup_with_proxy().await;
    let client = connect(&server).await;
    let queue = jobs(&client);
    let mut ledger = Ledger::default();
    let mut workers: Vec<Worker> = (0..WORKERS).map(|seed| worker(&server, &proxy, seed)).collect();
    let mut pushed = 0;
    for round in 0..40 {
        while pushed < ITEMS * (round + 1) / 40 {
            queue.push(pushed.to_string()).await.expect("pushed");
            pushed += 1;
        }
        tokio::time::sleep(60 * MS).await;
        let one = round % WORKERS as usize;
        match round % 5 {
            0 | 1 => {
                let new = worker(&server, &proxy, WORKERS + round as u64);
                ledger.write(std::mem::replace(&mut workers[one], new).last_words());
            }
            // Some for longer than their deliveries live.
            2 | 3 => {
                workers[one].pause();
                tokio::time::sleep(Duration::from_millis(TTL_MS / 4 * (1 + round as u64 % 7)))
                    .await;
                workers[one].resume();
            }
            _ => proxy.cut(),
        }
    }
    eventually(LIMIT, "all items are done", async || places(&queue).await == [0; 4]).await;
    for worker in workers {
        ledger.write(worker.last_words());
    }
    let deliveries = ledger.check();
    println!("{ITEMS} items, {deliveries} deliveries that were seen to be held");
    // Those that were killed while they waited are passed over, once the server has noticed.
    eventually(LIMIT, "nobody listens any more", async || heard(&server).await == 0).await;
    queue.push("last").await.expect("pushed");
    let last = soon("nobody else gets it", queue.pop()).await.expect("an item");
    assert_eq!((last.payload(), last.deliveries()), (&b"last"[..], 1));
    last.ack().await.expect("held");
    all_are_done(&server, &client).await;
}
