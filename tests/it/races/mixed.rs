//! All calls at once, over several clients.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use leasehold::Error;
use parking_lot::Mutex;

use super::{MS, know_scripts};
use crate::{
    checks::{LIMIT, client_is_idle, connect, nothing_left, setup},
    support::{Server, Spy, eventually},
};

/// Waits, attempts, timeouts, dropped futures and both ways to give back, over several clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_uses_of_several_clients_never_overlap() {
    let server = Server::start().await;
    let inside = Arc::new(AtomicU32::new(0));
    let last_token = Arc::new(AtomicU64::new(0));
    let ends_at = Instant::now() + Duration::from_secs(2);
    let (mut clients, mut tasks) = (Vec::new(), Vec::new());
    for client_number in 0..4_u64 {
        let client = connect(&server).await;
        for task_number in 0..3_u64 {
            let lock = client.mutex("n");
            let (inside, last_token) = (inside.clone(), last_token.clone());
            let mut random = client_number * 7 + task_number;
            tasks.push(tokio::spawn(async move {
                let mut turns = 0;
                while Instant::now() < ends_at {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let patience = (random >> 40) as u32 % 5 * MS;
                    let guard = match (random >> 33) % 5 {
                        0 => tokio::time::timeout(patience, lock.lock()).await.ok(),
                        1 => lock.try_lock().await.transpose(),
                        2 => lock.try_lock_for(30 * MS).await.transpose(),
                        _ => Some(lock.lock().await),
                    };
                    let guard = match guard {
                        Some(Ok(guard)) => guard,
                        // A busy machine may keep an answer for longer than 30 ms.
                        None | Some(Err(Error::Unavailable { .. })) => continue,
                        Some(Err(error)) => panic!("{error:?}"),
                    };
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two are inside");
                    let before = last_token.swap(guard.token(), SeqCst);
                    assert!(before < guard.token(), "token {} after {before}", guard.token());
                    turns += 1;
                    if random % 3 == 0 {
                        tokio::time::sleep(MS).await;
                    }
                    inside.fetch_sub(1, SeqCst);
                    match random % 2 {
                        0 => drop(guard),
                        _ => guard.unlock().await.expect("held"),
                    }
                }
                turns
            }));
        }
        clients.push(client);
    }
    let mut turns = 0;
    for task in tasks {
        turns += task.await.expect("no panic");
    }
    assert!(turns > 50, "only {turns} turns");
    for client in &clients {
        nothing_left(&server, client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_is_starved_by_the_others() {
    const CLIENTS: usize = 4;
    const TASKS: usize = 3;
    let server = Server::start().await;
    let turns = Arc::new(Mutex::new([0_u32; CLIENTS]));
    let ends_at = Instant::now() + Duration::from_millis(2500);
    let (mut clients, mut tasks) = (Vec::new(), Vec::new());
    for number in 0..CLIENTS {
        let client = connect(&server).await;
        for _ in 0..TASKS {
            let (lock, turns) = (client.mutex("n"), turns.clone());
            tasks.push(tokio::spawn(async move {
                while Instant::now() < ends_at {
                    let guard = lock.lock().await.expect("held in the end");
                    turns.lock()[number] += 1;
                    tokio::time::sleep(MS).await;
                    guard.unlock().await.expect("held");
                }
            }));
        }
        clients.push(client);
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    let turns = *turns.lock();
    let (fewest, most) = (turns.iter().min(), turns.iter().max());
    let (fewest, most) = (*fewest.expect("some"), *most.expect("some"));
    println!("turns {turns:?}");
    assert!(most > 20 && fewest * 10 >= most, "{turns:?}");
    for client in &clients {
        nothing_left(&server, client).await;
    }
}

/// Nothing but an acquire and a release each, of whatever kind the lease is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_costs_one_script_to_take_and_one_to_give_back() {
    let (server, [client]) = setup().await;
    know_scripts(&client).await;
    let spy = Spy::on(&server).await;
    for lock in [client.mutex("watched"), client.mutex("fixed").with_lease(LIMIT)] {
        for _ in 0..10 {
            lock.lock().await.expect("free").unlock().await.expect("held");
        }
    }
    eventually(LIMIT, "all is told", async || spy.count("lock_release") >= 20).await;
    client_is_idle(&client).await;
    assert_eq!((spy.count("lock_acquire"), spy.count("lock_release")), (20, 20));
    assert_eq!(spy.count("lock_renew"), 0);
}
