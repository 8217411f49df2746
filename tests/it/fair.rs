//! Fair handles: all waiters of all processes get the lock in the order of their arrival at the server.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, Error, Mutex};
use parking_lot::Mutex as Shared;
use tokio::task::JoinHandle;

use crate::{
    checks::{LIMIT, nothing_left, setup, soon},
    support::{Server, eventually},
};

/// Who got the lock, in order.
type Order = Arc<Shared<Vec<usize>>>;

/// Clients of one server whose names are their places in the result.
async fn named<const N: usize>(server: &Server) -> [Client; N] {
    let mut clients = Vec::new();
    for place in 0..N {
        let builder = Client::builder().nodes([server.url()]).name(format!("client-{place}"));
        clients.push(builder.connect().await.expect("connected"));
    }
    clients.try_into().expect("that many")
}

/// Starts a task that takes the lock as number `number`, and returns when it is in the server's queue.
async fn queue_up(lock: &Mutex, number: usize, order: &Order) -> JoinHandle<()> {
    let (waiting, order) = (lock.lock(), order.clone());
    let task = tokio::spawn(async move {
        let guard = waiting.await.expect("its turn comes");
        order.lock().push(number);
        guard.unlock().await.expect("held");
    });
    eventually(LIMIT, "it is in the queue", async || {
        lock.status().await.is_ok_and(|status| status.waiting.len() == number + 1)
    })
    .await;
    task
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tasks_of_several_clients_get_a_fair_lock_in_order_of_arrival() {
    let server = Server::start().await;
    let [one, two, three] = named(&server).await;
    let locks = [&one, &two, &three].map(|client| client.fair_mutex("n"));
    let held = locks[0].lock().await.expect("free");
    let order = Order::default();
    let mut tasks = Vec::new();
    // Each client has several tasks in the queue, and never two in a row.
    for number in 0..12 {
        tasks.push(queue_up(&locks[number * 2 % 3], number, &order).await);
    }
    let waiting = locks[1].status().await.expect("asked").waiting;
    let clients: Vec<&str> = waiting.iter().map(|waiter| &*waiter.client).collect();
    assert_eq!(clients, ["client-0", "client-2", "client-1"].repeat(4));
    assert!(waiting.is_sorted_by(|before, after| before.since < after.since), "{waiting:?}");
    held.unlock().await.expect("held");
    for task in tasks {
        soon("all have their turns", task).await.expect("no panic");
    }
    assert_eq!(*order.lock(), (0..12).collect::<Vec<_>>());
    for client in [&one, &two, &three] {
        nothing_left(&server, client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_leaves_the_queue_and_the_others_keep_their_order() {
    let (server, [one, two]) = setup().await;
    let (here, there) = (one.fair_mutex("n"), two.fair_mutex("n"));
    let held = here.lock().await.expect("free");
    let order = Order::default();
    let first = queue_up(&there, 0, &order).await;
    let second = queue_up(&here, 1, &order).await;
    let third = queue_up(&there, 2, &order).await;
    second.abort();
    assert!(second.await.expect_err("it was ended").is_cancelled());
    eventually(LIMIT, "it has left the queue", async || {
        here.status().await.is_ok_and(|status| status.waiting.len() == 2)
    })
    .await;
    assert!(here.try_lock().await.expect("an answer").is_none(), "it is held");
    held.unlock().await.expect("held");
    for task in [first, third] {
        soon("both have their turns", task).await.expect("no panic");
    }
    assert_eq!(*order.lock(), [0, 2]);
    nothing_left(&server, &one).await;
    nothing_left(&server, &two).await;
}

#[tokio::test]
async fn a_timeout_tells_who_waits_in_order() {
    let server = Server::start().await;
    let [one, two, third] = named(&server).await;
    let (here, there) = (one.fair_mutex("n"), two.fair_mutex("n"));
    let held = here.lock().await.expect("free");
    let order = Order::default();
    let task = queue_up(&there, 0, &order).await;
    let error = third
        .fair_mutex("n")
        .lock_with_timeout(Duration::from_millis(300))
        .await
        .expect_err("it is held");
    let text = error.to_string();
    let Error::Timeout { waiting, .. } = error else { panic!("{error:?}") };
    assert_eq!(waiting.first().map(|waiter| &*waiter.client), Some("client-1"), "{waiting:?}");
    assert!(text.contains("; waiting: client-1 for "), "{text}");
    held.unlock().await.expect("held");
    soon("its turn comes", task).await.expect("no panic");
}

#[tokio::test]
async fn the_same_owner_nests_and_a_plain_handle_is_excluded() {
    let (server, [client]) = setup().await;
    let owner = client.owner();
    let fair = client.fair_mutex("n").owned_by(&owner);
    let outer = fair.lock().await.expect("free");
    let inner = fair.lock().await.expect("nested");
    assert_eq!((inner.hold_count(), inner.token()), (2, outer.token()));
    assert!(client.mutex("n").try_lock().await.expect("an answer").is_none(), "the same lock");
    drop(inner);
    outer.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[test]
fn threads_get_a_fair_lock_in_order_of_arrival() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let client = leasehold::blocking::Client::connect(&server.url()).expect("connected");
    let lock = client.fair_mutex("n");
    let held = lock.lock().expect("free");
    let order = Order::default();
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let (mine, order) = (lock.clone(), order.clone());
            let thread = std::thread::spawn(move || {
                let guard = mine.lock().expect("its turn comes");
                order.lock().push(number);
                guard.unlock().expect("held");
            });
            runtime.block_on(eventually(LIMIT, "it is in the queue", async || {
                let status = tokio::task::block_in_place(|| lock.status());
                status.is_ok_and(|status| status.waiting.len() == number + 1)
            }));
            thread
        })
        .collect();
    held.unlock().expect("held");
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(*order.lock(), [0, 1, 2, 3]);
}

#[tokio::test]
async fn over_several_servers_a_fair_lock_is_refused_at_once() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let builder = Client::builder().nodes(servers.iter().map(Server::url));
    let client = builder.restart_quarantine(Duration::ZERO).connect().await.expect("connected");
    let lock = client.fair_mutex("n");
    for answer in [lock.lock().await.map(drop), lock.try_lock().await.map(drop)] {
        let error = answer.expect_err("refused");
        assert!(matches!(error, Error::SingleServerOnly { .. }), "{error:?}");
        assert!(!error.is_retryable());
        let text = error.to_string();
        assert!(text.contains("a fair mutex works on one server only"), "{text}");
    }
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fair_and_ordinary_handles_stand_in_one_queue() {
    let (server, [holder, one, two]) = setup().await;
    let held = holder.mutex("n").lock().await.expect("free");
    let order = Order::default();
    let locks = [one.fair_mutex("n"), two.mutex("n"), one.mutex("n"), two.fair_mutex("n")];
    let mut tasks = Vec::new();
    for (number, lock) in locks.iter().enumerate() {
        tasks.push(queue_up(lock, number, &order).await);
    }
    held.unlock().await.expect("held");
    for task in tasks {
        soon("all have their turns", task).await.expect("no panic");
    }
    assert_eq!(*order.lock(), [0, 1, 2, 3]);
    nothing_left(&server, &one).await;
    nothing_left(&server, &two).await;
}

/// A client that holds the lock has fair waiters of its own. They queue while it holds, and behind those who came before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_handed_on_inside_the_process() {
    let (server, [one, two]) = setup().await;
    let held = one.mutex("n").lock().await.expect("free");
    let order = Order::default();
    let locks = [two.fair_mutex("n"), one.fair_mutex("n"), two.mutex("n"), one.fair_mutex("n")];
    let mut tasks = Vec::new();
    for (number, lock) in locks.iter().enumerate() {
        tasks.push(queue_up(lock, number, &order).await);
    }
    held.unlock().await.expect("held");
    for task in tasks {
        soon("all have their turns", task).await.expect("no panic");
    }
    assert_eq!(*order.lock(), [0, 1, 2, 3]);
    nothing_left(&server, &one).await;
}

/// The waiters of one owner share its hold, though each of them has a place of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_waiters_of_one_owner_get_in_together() {
    let (server, [holder, client]) = setup().await;
    let held = holder.mutex("n").lock().await.expect("free");
    let lock = client.fair_mutex("n").owned_by(&client.owner());
    let waits = [tokio::spawn(lock.lock()), tokio::spawn(lock.lock())];
    eventually(LIMIT, "both are in the queue", async || {
        lock.status().await.is_ok_and(|status| status.waiting.len() == 2)
    })
    .await;
    held.unlock().await.expect("held");
    let mut guards = Vec::new();
    for wait in waits {
        guards.push(soon("it gets in", wait).await.expect("no panic").expect("held"));
    }
    assert_eq!(guards[0].token(), guards[1].token());
    drop(guards);
    nothing_left(&server, &client).await;
}
