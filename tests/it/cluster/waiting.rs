//! Waiting for locks on a cluster: each shard has its own queues.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::{connect, is_idle};
use crate::checks::{LIMIT, soon};
use crate::support::{Cluster, eventually};

#[tokio::test]
async fn a_release_passes_the_lock_on_by_message_on_every_shard() {
    let cluster = Cluster::start().await;
    let [one, two] = [connect(&cluster).await, connect(&cluster).await];
    for shard in 0..3 {
        let name = cluster.name_on(shard, "turns");
        let mut turns = Vec::new();
        // The first wait opens the mailbox at this shard.
        for _ in 0..3 {
            let guard = soon("the lock", one.mutex(&name).lock()).await.expect("free");
            let lock = two.mutex(&name);
            let turn = tokio::spawn(async move { lock.lock().await });
            eventually(Duration::from_secs(5), "it waits", async || {
                one.mutex(&name).status().await.is_ok_and(|status| status.waiting.len() == 1)
            })
            .await;
            let token = guard.token();
            soon("unlocking", guard.unlock()).await.expect("held");
            let guard = soon("its turn", turn).await.expect("no panic").expect("the lock");
            assert!(guard.token() > token);
            turns.push(guard.token());
            soon("unlocking", guard.unlock()).await.expect("held");
        }
        assert!(turns.is_sorted());
    }
    let stats = two.stats();
    assert!(stats.grants_by_message >= 6, "two of three turns on each shard: {stats:?}");
    for client in [&one, &two] {
        is_idle(client).await;
    }
    fair_waiters_have_their_turns_in_order(&cluster).await;
    threads_take_turns(&cluster).await;
}

/// Twice a second while somebody waits, and every five seconds otherwise.
#[tokio::test]
async fn after_a_wait_the_map_of_the_slots_is_looked_at_less_often_again() {
    const MEASURED: Duration = Duration::from_secs(6);
    let cluster = Cluster::start().await;
    let [holder, client] = [connect(&cluster).await, connect(&cluster).await];
    let name = cluster.name_on(0, "n");
    let guard = soon("the lock", holder.mutex(&name).lock()).await.expect("free");
    let lock = client.mutex(&name);
    let turn = tokio::spawn(async move { lock.lock().await });
    eventually(LIMIT, "it waits", async || {
        holder.mutex(&name).status().await.is_ok_and(|status| status.waiting.len() == 1)
    })
    .await;
    soon("unlocking", guard.unlock()).await.expect("held");
    let guard = soon("its turn", turn).await.expect("no panic").expect("the lock");
    soon("unlocking", guard.unlock()).await.expect("held");
    holder.shutdown().await;
    let asked = async || {
        let calls = cluster.servers().iter().map(|server| server.calls("cluster|slots"));
        join_all(calls).await.iter().sum::<u64>()
    };
    let (before, began_at) = (asked().await, Instant::now());
    tokio::time::sleep(MEASURED).await;
    let (more, seconds) = (asked().await - before, began_at.elapsed().as_secs());
    assert!(more <= seconds, "asked {more} times in {seconds} s");
}

async fn fair_waiters_have_their_turns_in_order(cluster: &Cluster) {
    let name = cluster.name_on(1, "fair");
    let clients = [connect(cluster).await, connect(cluster).await];
    let guard = soon("the lock", clients[0].fair_mutex(&name).lock()).await.expect("free");
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..6 {
        let lock = clients[number % 2].fair_mutex(&name);
        let order = order.clone();
        tasks.push(tokio::spawn(async move {
            let guard = lock.lock().await.expect("its turn");
            order.lock().expect("no panic").push(number);
            guard.unlock().await.expect("held");
        }));
        eventually(Duration::from_secs(5), "it waits", async || {
            let status = clients[0].mutex(&name).status().await.expect("an answer");
            status.waiting.len() == number + 1
        })
        .await;
    }
    soon("unlocking", guard.unlock()).await.expect("held");
    for task in tasks {
        soon("a turn", task).await.expect("no panic");
    }
    assert_eq!(*order.lock().expect("no panic"), [0, 1, 2, 3, 4, 5]);
}

async fn threads_take_turns(cluster: &Cluster) {
    let urls = cluster.urls();
    let names: Vec<String> = (0..3).map(|shard| cluster.name_on(shard, "threads")).collect();
    let threads = tokio::task::spawn_blocking(move || {
        let builder = leasehold::blocking::Client::builder().cluster(urls);
        let client = builder.restart_quarantine(Duration::ZERO).connect_blocking();
        let client = client.expect("the cluster accepts the client");
        let mut counts = vec![0; names.len()];
        for (count, name) in counts.iter_mut().zip(&names) {
            for _ in 0..10 {
                let guard = client.mutex(name).lock().expect("free");
                *count += 1;
                guard.unlock().expect("held");
            }
        }
        counts
    });
    assert_eq!(soon("the threads", threads).await.expect("no panic"), [10, 10, 10]);
}
