//! What is written once works over several masters, too: nesting, hand-offs, owners, and the client for threads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use leasehold::{Client, ClosedReason, Error, NodeState, Owner, blocking};
use parking_lot::Mutex;

use super::deployment::{MS, Masters, connected};
use crate::{
    checks::{LIMIT, lock_keys, soon},
    support::{Face, Held, Spy, eventually},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_share_a_lock_while_nodes_are_away() {
    holders_share_a_lock::<Client>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_share_a_lock_while_nodes_are_away() {
    holders_share_a_lock::<blocking::Client>().await;
}

/// Two clients, four holders each, nested holds, one node of three killed and one stopped on the way.
async fn holders_share_a_lock<F: Face>() {
    let masters = Masters::start(3).await;
    let open = || F::open_nodes(masters.urls(), 3000 * MS);
    let clients = [open().await, open().await];
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let inside = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for client in &clients {
        for _ in 0..4 {
            let (client, tokens, inside) = (client.clone(), tokens.clone(), inside.clone());
            let me = Owner::new();
            tasks.push(tokio::spawn(async move {
                for _ in 0..30 {
                    let guard = client.lock("n", Some(&me)).await.expect("a majority");
                    assert!(!inside.swap(true, SeqCst), "two at once");
                    let nested = client.lock("n", Some(&me)).await.expect("nested");
                    assert_eq!((nested.token(), nested.hold_count()), (guard.token(), 2));
                    tokens.lock().push(guard.token());
                    tokio::time::sleep(MS).await;
                    assert!(guard.is_held());
                    drop(nested);
                    inside.store(false, SeqCst);
                    guard.unlock().await.expect("held");
                }
            }));
        }
    }
    let turns = async |count: usize| {
        eventually(LIMIT, "they go on", async || tokens.lock().len() >= count).await;
    };
    turns(40).await;
    masters.0[0].kill();
    turns(80).await;
    masters.0[0].restart().await;
    for client in &clients {
        let up = async || client.nodes().iter().all(|node| node.state == NodeState::Up);
        eventually(LIMIT, "all nodes are up", up).await;
    }
    // Holds that began before that are over.
    let so_far = tokens.lock().len();
    turns((so_far + 20).min(200)).await;
    masters.0[1].pause();
    turns(so_far.min(160) + 40).await;
    masters.0[1].resume();
    for task in tasks {
        task.await.expect("no panic");
    }
    let tokens = tokens.lock().clone();
    assert_eq!(tokens.len(), 240);
    for pair in tokens.windows(2) {
        assert!(pair[0] < pair[1], "{} after {}", pair[1], pair[0]);
    }
    for server in &masters.0 {
        eventually(LIMIT, "no lock is left", async || lock_keys(server).await.is_empty()).await;
    }
    for client in &clients {
        let idle = async || {
            let stats = client.stats();
            stats.locks + stats.waiters + stats.subscriptions + stats.releases_pending == 0
        };
        eventually(LIMIT, "the client is idle", idle).await;
    }
}

/// One request to each node serves several holders, one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_passes_from_task_to_task() {
    let masters = Masters::start(3).await;
    let client = masters.client().await;
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    let spies = [Spy::on(&masters.0[0]).await, Spy::on(&masters.0[2]).await];
    let last = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (lock, last) = (client.mutex("n"), last.clone());
            tokio::spawn(async move {
                for _ in 0..25 {
                    let guard = lock.lock().await.expect("free at times");
                    assert!(last.swap(guard.token(), SeqCst) < guard.token());
                    guard.unlock().await.expect("held");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    masters.nothing_left(&[&client]).await;
    for spy in &spies {
        let asks = spy.count("lock_acquire");
        println!("200 turns of 8 tasks: {asks} acquires on a node");
        assert!(asks < 100, "{asks} acquires for 200 turns");
    }
}

#[tokio::test]
async fn an_owner_enters_again_and_others_do_not() {
    let masters = Masters::start(3).await;
    let client = masters.client().await;
    let me = Owner::named("me");
    let lock = client.mutex("n");
    let guard = lock.owned_by(&me).lock().await.expect("free");
    assert!(lock.try_lock().await.expect("an answer").is_none());
    let spy = Spy::on(&masters.0[0]).await;
    let again = lock.owned_by(&me).try_lock().await.expect("an answer").expect("ours");
    let scoped = me.scope(async { lock.lock().await.expect("ours") }).await;
    assert_eq!(scoped.hold_count(), 3);
    assert_eq!((again.token(), scoped.token()), (guard.token(), guard.token()));
    assert_eq!(spy.count("lock_acquire"), 0, "nesting asks nobody");
    drop((guard, again));
    assert!(scoped.is_held());
    scoped.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_gives_the_lock_back_and_stops_when_it_is_lost() {
    let masters = Masters::start(3).await;
    let client = connected(masters.builder().ttl(600 * MS)).await;
    let lock = client.mutex("n");
    let answer = lock.run(async |guard| (guard.is_held(), masters.having("n").await >= 2)).await;
    assert_eq!(answer.expect("held"), (true, true));
    masters.nothing_left(&[&client]).await;

    let ran_on = Arc::new(AtomicBool::new(false));
    let told = ran_on.clone();
    let running = tokio::spawn(lock.run(async move |_| {
        tokio::time::sleep(Duration::from_secs(20)).await;
        told.store(true, SeqCst);
    }));
    masters.are_held("n", &[0, 1, 2]).await;
    masters.0[0].pause();
    masters.0[1].pause();
    let answer = soon("it is told", running).await.expect("no panic");
    assert!(matches!(answer, Err(Error::Lost { .. })), "{answer:?}");
    assert!(!ran_on.load(SeqCst));
    masters.0[0].resume();
    masters.0[1].resume();
    masters.nothing_left(&[&client]).await;
}

#[tokio::test]
async fn a_client_that_is_shut_down_leaves_nothing_on_any_node() {
    let masters = Masters::start(3).await;
    let (client, other) = (masters.client().await, masters.client().await);
    let guard = client.mutex("n").lock().await.expect("free");
    masters.are_held("n", &[0, 1, 2]).await;
    assert_eq!(client.holds().len(), 1);
    client.shutdown().await;
    assert!(!guard.is_held());
    assert!(matches!(client.mutex("n").lock().await, Err(Error::Closed { .. })));
    assert_eq!(masters.having("n").await, 0);
    drop((guard, client));
    other.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    drop(other);
    for server in &masters.0 {
        crate::checks::no_connection_left(server).await;
    }
}

/// Whoever goes on after an outage would try for ever.
#[test]
fn who_has_a_guard_of_a_client_whose_runtime_has_ended_is_told_that_and_not_of_an_outage() {
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime");
    let (servers, first) = (runtime(), runtime());
    let masters = servers.block_on(Masters::start(3));
    let (client, guard) = first.block_on(async {
        let client = masters.client().await;
        let guard = client.mutex("n").lock().await.expect("free");
        (client, guard)
    });
    drop(first);
    servers.block_on(async {
        for answer in [guard.extend(30_000 * MS).await, guard.unlock().await] {
            let error = answer.expect_err("nobody asks the servers any more");
            let is_told = matches!(error, Error::Closed { reason: ClosedReason::RuntimeEnded, .. });
            assert!(is_told && !error.is_retryable(), "{error:?}");
        }
        drop(client);
    });
}

#[test]
fn a_client_for_threads_says_the_same_of_its_nodes() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let masters = runtime.block_on(Masters::start(3));
    let client = masters.builder().response_timeout(300 * MS).connect_blocking();
    let client = client.expect("a majority accepts it");
    let lock = client.mutex("n");
    let guard = lock.lock().expect("free");
    let nested = lock.lock().expect("the same thread");
    assert_eq!((nested.hold_count(), nested.token()), (2, guard.token()));
    assert_eq!(lock.holder().expect("an answer"), Some(guard.holder()));
    assert!(lock.is_locked().expect("an answer") && lock.remaining_ttl().is_ok());
    guard.extend(60_000 * MS).expect("held");
    drop(nested);
    guard.unlock().expect("held");
    masters.0[0].kill();
    lock.run(|guard| assert!(guard.is_held())).expect("two of three");
    masters.0[1].kill();
    let answer = lock.try_lock();
    assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
    let down = client.nodes().iter().filter(|node| node.last_error.is_some()).count();
    assert_eq!(down, 2);
    assert!(matches!(lock.force_unlock(), Err(Error::Unavailable { .. })));
}
