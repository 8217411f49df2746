//! Turns on a busy lock: Redisson's threads take it whenever it is free, our clients wait in its queue.

use std::time::Duration;

use leasehold::Client;

use crate::{
    java::{Java, Version, hex},
    stampede::Record,
    support::{Server, eventually, in_time, subscribers},
    with_each_redisson,
};

with_each_redisson!(
    redisson_has_its_turns_beside_clients_that_never_stop,
    a_client_has_its_turns_beside_threads_that_never_stop,
);

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
