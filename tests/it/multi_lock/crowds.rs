//! Many who want several of a few locks, each in an order of its own: all have their turns, and none overlap.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use super::LIMIT;
use crate::checks::{connect, nothing_left, setup, soon};
use crate::support::{Server, Worker, in_time};

const NAMES: usize = 8;
const WANTED: usize = 3;

/// Numbers that look random, and are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }

    /// Several different names, in any order.
    fn names(&mut self) -> Vec<usize> {
        let mut left: Vec<usize> = (0..NAMES).collect();
        (0..WANTED).map(|_| left.remove(self.below(left.len()))).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_tasks_of_four_clients_have_their_turns() {
    let (server, clients) = setup::<4>().await;
    let inside: Arc<Vec<AtomicUsize>> = Arc::new((0..NAMES).map(|_| 0.into()).collect());
    let turns = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let client = clients[task % 4].clone();
            let (inside, turns) = (inside.clone(), turns.clone());
            let mut dice = Dice(task as u64 + 1);
            tokio::spawn(async move {
                for turn in 0..12 {
                    let wanted = dice.names();
                    let names = wanted.iter().map(|name| format!("n{name}"));
                    // Some take one of them only, and one way to wait is as good as the other.
                    let guard = match turn % 4 {
                        3 => client.multi_lock(names.take(1)).lock().await,
                        _ => client.multi_lock(names).lock_with_timeout(LIMIT * 4).await,
                    };
                    let guard = guard.expect("its turn comes");
                    let held = &wanted[..guard.tokens().count()];
                    for name in held {
                        assert_eq!(inside[*name].fetch_add(1, SeqCst), 0, "two hold n{name}");
                    }
                    tokio::task::yield_now().await;
                    for name in held {
                        inside[*name].fetch_sub(1, SeqCst);
                    }
                    guard.unlock().await.expect("held");
                    turns.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    for task in tasks {
        in_time(LIMIT * 4, "all have their turns", task).await.expect("no panic");
    }
    assert_eq!(turns.load(SeqCst), 16 * 12);
    for client in &clients {
        nothing_left(&server, client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_take_them_in_any_order_have_their_turns() {
    const PROCESSES: usize = 4;
    let server = Server::start().await;
    let workers: Vec<_> = (0..PROCESSES)
        .map(|process| {
            let mut worker = Worker::start();
            worker.tell(&format!("together {} {NAMES} {WANTED} 4 6 {process}", server.url()));
            tokio::task::spawn_blocking(move || worker.answers())
        })
        .collect();
    let mut turns: Vec<(String, u64, u64)> = Vec::new();
    for worker in workers {
        for line in in_time(LIMIT * 4, "it ends", worker).await.expect("no panic") {
            let [name, from, to] = &line[..] else { panic!("{line:?}") };
            turns.push((name.clone(), from.parse().expect("a time"), to.parse().expect("a time")));
        }
    }
    assert_eq!(turns.len(), PROCESSES * 4 * 6 * WANTED);
    turns.sort();
    for pair in turns.windows(2) {
        let overlap = pair[0].0 == pair[1].0 && pair[1].1 < pair[0].2;
        assert!(!overlap, "{:?} and {:?}", pair[0], pair[1]);
    }
    nothing_left(&server, &connect(&server).await).await;
}

/// A process that ends in the middle keeps nobody out for longer than its TTL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_locks_of_a_killed_process_are_free_after_its_ttl() {
    const TTL: Duration = Duration::from_millis(900);
    let (server, [client]) = setup().await;
    let mut worker = Worker::start();
    worker.tell(&format!("hold-together {} {} a b c", server.url(), TTL.as_millis()));
    assert_eq!(worker.answer(), ["held"]);
    assert!(client.multi_lock(["d", "c"]).try_lock().await.expect("an answer").is_none());
    let waits = tokio::spawn(client.multi_lock(["c", "b", "a"]).lock());
    worker.kill();
    let guard = soon("they are free", waits).await.expect("no panic").expect("free");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}
