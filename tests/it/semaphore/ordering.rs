//! Who waits gets permits in the order of arrival at the server.

use std::sync::Arc;

use leasehold::{Client, Semaphore};
use parking_lot::Mutex as Shared;
use tokio::task::JoinHandle;

use super::{MS, all_are_back, api, are_waiting};
use crate::checks::{LIMIT, setup, soon};
use crate::support::{self, Server, eventually};

/// Who got permits, in order.
type Order = Arc<Shared<Vec<usize>>>;

/// Has all clients wait once, so that the server can reach them by message from here on.
async fn make_heard(server: &Server, clients: &[&Client]) {
    let held = api(clients[0], 4).acquire_many(4).await.expect("nobody has any");
    for client in clients {
        let waits = client.semaphore("api").acquire_with_timeout(100 * MS);
        assert!(waits.await.expect_err("there is none").is_timeout());
    }
    held.release().await.expect("held");
    let heard = async || support::heard(server).await == clients.len();
    eventually(LIMIT, "all mailboxes are subscribed", heard).await;
}

/// Starts a task that acquires so many permits as number `number`, and returns when it is in the queue.
async fn queue_up(
    semaphore: &Semaphore,
    weight: u32,
    number: usize,
    order: &Order,
) -> JoinHandle<()> {
    let (waiting, order) = (semaphore.acquire_many(weight), order.clone());
    let task = tokio::spawn(async move {
        let permit = waiting.await.expect("its turn comes");
        order.lock().push(number);
        permit.release().await.expect("held");
    });
    are_waiting(semaphore, number + 1).await;
    task
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_several_clients_get_permits_in_the_order_of_their_arrival() {
    let (server, [one, two, three]) = setup().await;
    let semaphores = [api(&one, 4), api(&two, 4), api(&three, 4)];
    make_heard(&server, &[&one, &two, &three]).await;
    let held = semaphores[0].acquire_many(4).await.expect("nobody has any");
    let order = Order::default();
    let mut tasks = Vec::new();
    for number in 0..12 {
        // All permits: no two hold some at once, so the order shows.
        tasks.push(queue_up(&semaphores[number * 2 % 3], 4, number, &order).await);
    }
    held.release().await.expect("held");
    for task in tasks {
        soon("all have their turns", task).await.expect("no panic");
    }
    assert_eq!(*order.lock(), (0..12).collect::<Vec<_>>());
    for client in [&one, &two, &three] {
        all_are_back(&server, client, 4).await;
    }
    assert!(one.stats().grants_by_message + two.stats().grants_by_message > 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_passes_one_who_waits_for_several_and_when_it_gives_up_the_next_is_served() {
    let (server, [one, two]) = setup().await;
    make_heard(&server, &[&one, &two]).await;
    let (here, there) = (api(&one, 4), api(&two, 4));
    let held = here.acquire_many(2).await.expect("there are four");
    let waits_for_four = tokio::spawn(there.acquire_many(4));
    are_waiting(&here, 1).await;
    assert!(here.try_acquire().await.expect("an answer").is_none(), "two are left, but not for it");
    let order = Order::default();
    let single = queue_up(&there, 1, 1, &order).await;
    assert!(!single.is_finished());
    waits_for_four.abort();
    soon("its turn", single).await.expect("no panic");
    held.release().await.expect("held");
    all_are_back(&server, &one, 4).await;
    all_are_back(&server, &two, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_than_all_permits_are_ever_held_by_tasks_of_several_clients() {
    let (server, [one, two, three]) = setup().await;
    let held = Arc::new(Shared::new((0_u32, 0_u32)));
    let mut tasks = Vec::new();
    for number in 0..12_u32 {
        let client = [&one, &two, &three][number as usize % 3];
        let (semaphore, held) = (api(client, 4), held.clone());
        tasks.push(tokio::spawn(async move {
            for round in 0..12_u32 {
                let weight = 1 + (number + round) % 3;
                let permit = semaphore.acquire_many(weight).await.expect("its turn comes");
                {
                    let mut held = held.lock();
                    held.0 += weight;
                    held.1 = held.1.max(held.0);
                }
                tokio::task::yield_now().await;
                assert!(permit.is_held());
                held.lock().0 -= weight;
                permit.release().await.expect("held");
            }
        }));
    }
    for task in tasks {
        soon("all have their turns", task).await.expect("no panic");
    }
    let most = held.lock().1;
    assert!((2..=4).contains(&most), "{most} of 4 at once");
    for client in [&one, &two, &three] {
        all_are_back(&server, client, 4).await;
    }
}
