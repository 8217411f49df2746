//! Turns on a busy lock: Redisson's threads take it whenever it is free, our clients wait in its queue.

use std::{sync::Arc, time::Duration};

use leasehold::{Client, Mutex};
use leasehold_testkit::{
    Server, eventually, in_time,
    java::{Java, Version, hex},
    subscribers,
};
use parking_lot::Mutex as Shared;
use tokio::task::JoinHandle;

use crate::{
    stampede::{Made, Record},
    with_each_redisson,
};

with_each_redisson!(
    fair_handles_keep_their_order_beside_redisson,
    redisson_has_its_turns_beside_clients_that_never_stop,
    a_client_has_its_turns_beside_threads_that_never_stop,
);

/// Redisson's threads are in no queue. Among ours the order of arrival holds.
async fn fair_handles_keep_their_order_beside_redisson(version: Version) {
    const TURNS_OF_JAVA: u64 = 300;
    let server = Server::start().await;
    let record = Record::in_folder(server.dir(), TURNS_OF_JAVA);
    let java = Java::connect(version, &server.url(), TTL).await;
    let clients = clients::<3>(&server).await;
    let locks = clients.each_ref().map(|client| client.fair_mutex(NAME));
    let held = locks[0].lock().await.expect("free");
    let asked = java.ask("a", &record.command("plain", THREADS, 1));
    threads_wait(&server).await;
    let order = Arc::new(Shared::new(Vec::new()));
    let mut tasks = Vec::new();
    // Each client has several tasks in the queue, and never two in a row.
    for number in 0..12 {
        tasks.push(queue_up(&locks[number * 2 % 3], number, &order).await);
    }
    held.unlock().await.expect("held");
    for task in tasks {
        in_time(LIMIT, "all have their turns", task).await.expect("no panic");
    }
    assert_eq!(*order.lock(), (0..12).collect::<Vec<_>>());
    record.check(&[Made::parse(&asked.await.value())]);
}

/// Starts a task that takes the lock as number `number`, and returns when it is in the queue.
async fn queue_up(lock: &Mutex, number: usize, order: &Arc<Shared<Vec<usize>>>) -> JoinHandle<()> {
    let (waiting, order) = (lock.lock(), Arc::clone(order));
    let task = tokio::spawn(async move {
        let guard = waiting.await.expect("its turn comes");
        order.lock().push(number);
        guard.unlock().await.expect("held");
    });
    let queued =
        async || lock.status().await.is_ok_and(|status| status.waiting.len() == number + 1);
    eventually(LIMIT, "it is in the queue", queued).await;
    task
}

/// Eight clients always stand in the queue, until the thread has had its turns.
async fn redisson_has_its_turns_beside_clients_that_never_stop(version: Version) {
    const TURNS: usize = 40;
    let server = Server::start().await;
    let java = Java::connect(version, &server.url(), TTL).await;
    let clients = clients::<8>(&server).await;
    let busy: Vec<_> = clients
        .iter()
        .map(|client| {
            let lock = client.mutex(NAME);
            tokio::spawn(async move {
                loop {
                    lock.lock().await.expect("its turn comes").unlock().await.expect("held");
                }
            })
        })
        .collect();
    let name = hex(NAME);
    let take_turns = async {
        for _ in 0..TURNS {
            assert_eq!(java.number("a", &format!("lock plain {name}")).await, 1);
            assert_eq!(java.number("a", &format!("unlock plain {name}")).await, 1);
        }
    };
    in_time(LIMIT, "the thread has all its turns", take_turns).await;
    for task in busy {
        assert!(!task.is_finished(), "a client did not go on to the end");
        task.abort();
    }
}

/// The other way round: the threads go on until the client has had its turns.
async fn a_client_has_its_turns_beside_threads_that_never_stop(version: Version) {
    const TURNS: usize = 40;
    const MANY: u64 = 1_000_000;
    let server = Server::start().await;
    let record = Record::in_folder(server.dir(), MANY);
    let java = Java::connect(version, &server.url(), TTL).await;
    let [client] = clients(&server).await;
    let held = client.mutex(NAME).lock().await.expect("free");
    let asked = tokio::spawn(java.ask("a", &record.command("plain", THREADS, 1)));
    threads_wait(&server).await;
    held.unlock().await.expect("held");
    let take_turns = async {
        for _ in 0..TURNS {
            let guard = client.mutex(NAME).lock().await.expect("its turn comes");
            guard.unlock().await.expect("held");
        }
    };
    in_time(LIMIT, "the client has all its turns", take_turns).await;
    assert!(!asked.is_finished(), "the threads did not go on to the end");
    asked.abort();
}

async fn clients<const N: usize>(server: &Server) -> [Client; N] {
    let mut clients = Vec::new();
    for _ in 0..N {
        clients.push(Client::connect(&server.url()).await.expect("connected"));
    }
    clients.try_into().expect("that many")
}

/// Waits until Redisson's threads wait for the lock.
async fn threads_wait(server: &Server) {
    let listen =
        async || subscribers(server, &format!("redisson_lock__channel:{{{NAME}}}")).await > 0;
    eventually(LIMIT, "the threads wait", listen).await;
}

const NAME: &str = crate::stampede::NAME;
const THREADS: usize = 4;
const TTL: Duration = Duration::from_secs(30);
const LIMIT: Duration = Duration::from_secs(60);
