//! How a hold ends: by a shutdown, after an extension, handed on, after a suspend of the host, with its runtime.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use leasehold::{Client, Mutex, blocking};
use tokio::runtime::Runtime;

use crate::{
    checks::{LIMIT, lock_keys},
    support::{Server, eventually},
};

const MS: Duration = Duration::from_millis(1);

// A shutdown.

/// Takes and gives back a lock until the client is closed. Once `ending` is set it gives back only what it was told
/// is lost.
async fn contend(lock: Mutex, ending: Arc<AtomicBool>) {
    while let Ok(guard) = lock.lock().await {
        if ending.load(SeqCst) {
            let told = tokio::time::timeout(LIMIT, guard.lost()).await;
            told.expect("who holds at a shutdown is told");
        }
        drop(guard);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_held_after_a_shutdown_under_contention() {
    let server = Server::start().await;
    for round in 0..ROUNDS {
        // Asks are on their way in the one, leases are handed on in the other.
        let window = if round % 2 == 0 { Duration::ZERO } else { 20 * MS };
        let builder = Client::builder().nodes([server.url()]).handoff_window(window);
        let client = builder.connect().await.expect("connected");
        let ending = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..LOCKS * TASKS)
            .map(|task| {
                let lock = client.mutex(format!("n{}", task % LOCKS));
                tokio::spawn(contend(lock, ending.clone()))
            })
            .collect();
        tokio::time::sleep(Duration::from_micros(2000 + 137 * (round % 16))).await;
        ending.store(true, SeqCst);
        client.shutdown().await;
        let left = client.holds();
        assert!(left.is_empty(), "round {round}: held after the shutdown: {left:?}");
        for task in tasks {
            let ended = tokio::time::timeout(LIMIT, task).await.expect("every wait ends");
            ended.expect("no panic");
        }
    }
    eventually(LIMIT, "no lock is left", async || lock_keys(&server).await.is_empty()).await;
}

#[test]
fn nothing_is_held_after_a_shutdown_among_threads() {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    for round in 0..ROUNDS / 8 {
        let client = blocking::Client::connect(&server.url()).expect("connected");
        let ending = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let lock = client.mutex(format!("n{}", thread % 2));
                let ending = ending.clone();
                std::thread::spawn(move || {
                    while let Ok(guard) = lock.lock() {
                        if ending.load(SeqCst) {
                            let told = guard.wait_lost(LIMIT).expect("a thread may wait");
                            assert!(told.is_some(), "who holds at a shutdown is told");
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_micros(2000 + 137 * (round % 16)));
        ending.store(true, SeqCst);
        client.shutdown().expect("a thread may wait");
        let left = client.holds();
        assert!(left.is_empty(), "round {round}: held after the shutdown: {left:?}");
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
    let none_left = async || lock_keys(&server).await.is_empty();
    runtime.block_on(eventually(LIMIT, "no lock is left", none_left));
}

const ROUNDS: u64 = 320;
const LOCKS: usize = 24;
const TASKS: usize = 3;
