//! Fair handles: all waiters of all processes get the lock in the order of their arrival at the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use leasehold::{Client, Error, LossReason, Mutex, SelfWait};
use parking_lot::Mutex as Shared;
use tokio::task::JoinHandle;

use crate::{
    checks::{LIMIT, connect, nothing_left, setup, soon},
    support::{self, Server, eventually},
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

/// Has all clients wait once, so that the server can reach them by message from here on.
pub(crate) async fn make_heard(server: &Server, clients: &[&Client]) {
    let other = connect(server).await;
    let held = other.mutex("before").lock().await.expect("free");
    let mut waiting = Vec::new();
    for client in clients {
        let lock = client.mutex("before").lock();
        waiting.push(tokio::spawn(async {
            let guard = lock.await.expect("its turn comes");
            guard.unlock().await.expect("held");
        }));
    }
    let heard = async || support::heard(server).await == clients.len();
    eventually(LIMIT, "all mailboxes are subscribed", heard).await;
    held.unlock().await.expect("held");
    for turn in waiting {
        soon("its turn", turn).await.expect("no panic");
    }
}

/// Queues twelve tasks up, several of each client and never two of one in a row.
async fn queue_up_all(locks: &[Mutex; 3], order: &Order) -> Vec<JoinHandle<()>> {
    let mut tasks = Vec::new();
    for number in 0..12 {
        tasks.push(queue_up(&locks[number * 2 % 3], number, order).await);
    }
    tasks
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
    make_heard(&server, &[&one, &two, &three]).await;
    let locks = [&one, &two, &three].map(|client| client.fair_mutex("n"));
    let held = locks[0].lock().await.expect("free");
    let order = Order::default();
    let tasks = queue_up_all(&locks, &order).await;
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

/// Redisson's waiters listen so. Each turn that follows a grant by message is open to them, and the answer to a release
/// says that they heard of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_keeps_its_place_if_others_listen_on_the_locks_channel() {
    let server = Server::start().await;
    let [one, two, three] = named(&server).await;
    make_heard(&server, &[&one, &two, &three]).await;
    let url = redis::Client::open(server.url()).expect("a valid address");
    let mut listener = url.get_async_pubsub().await.expect("connected");
    listener.subscribe("redisson_lock__channel:{n}").await.expect("allowed");
    let locks = [&one, &two, &three].map(|client| client.fair_mutex("n"));
    let held = locks[0].lock().await.expect("free");
    let order = Order::default();
    let tasks = queue_up_all(&locks, &order).await;
    held.unlock().await.expect("held");
    for task in tasks {
        soon("all have their turns", task).await.expect("no panic");
    }
    assert_eq!(*order.lock(), (0..12).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_leaves_the_queue_and_the_others_keep_their_order() {
    let server = Server::start().await;
    let [one, two] = named(&server).await;
    make_heard(&server, &[&one, &two]).await;
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
    let clients: Vec<&str> = waiting.iter().map(|waiter| &*waiter.client).collect();
    assert_eq!(clients, ["client-1"], "and not the one that was told so");
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

#[tokio::test]
async fn an_owner_nests_across_fair_and_plain_handles() {
    let (server, [client]) = setup().await;
    let (plain, fair) = (client.mutex("n"), client.fair_mutex("n"));
    for (outer, inner) in [(&plain, &fair), (&fair, &plain)] {
        let counts = outer.run(async |guard| {
            let nested = soon("it nests", inner.lock()).await.expect("nested");
            let tried = inner.try_lock().await.expect("an answer").expect("nested");
            assert_eq!(nested.token(), guard.token());
            (nested.hold_count(), tried.hold_count())
        });
        assert_eq!(counts.await.expect("held"), (3, 3));
    }
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_task_that_waits_for_itself_by_another_handle_is_found() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).self_wait(SelfWait::Fail);
    let client = builder.connect().await.expect("connected");
    let (plain, fair) = (client.mutex("n"), client.fair_mutex("n"));
    for (first, second) in [(&plain, &fair), (&fair, &plain), (&fair, &fair)] {
        let guard = first.lock().await.expect("free");
        let error = soon("it is refused", second.lock()).await.expect_err("it is held");
        assert!(matches!(error, Error::SelfWait { .. }), "{error:?}");
        guard.unlock().await.expect("held");
    }
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_forced_unlock_takes_the_lock_from_its_holder_by_a_fair_handle() {
    let (server, [client]) = setup().await;
    let guard = client.fair_mutex("n").lock().await.expect("free");
    assert!(client.mutex("n").force_unlock_if(&guard.holder()).await.expect("an answer"));
    assert!(!guard.is_held());
    assert_eq!(soon("it is lost", guard.lost()).await, LossReason::Gone);
    drop(guard);
    nothing_left(&server, &client).await;
}

/// Somebody else frees the lock, and so the server gives it to the first in its queue: a waiter of the process that held it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_ends_before_another_task_of_its_process_is_granted_the_lock() {
    let (server, [one, other]) = setup().await;
    make_heard(&server, &[&one]).await;
    let lock = other.mutex("n");
    for first in [one.mutex("n"), one.fair_mutex("n")] {
        let held = first.lock().await.expect("free");
        let waiting = tokio::spawn(one.fair_mutex("n").lock());
        eventually(LIMIT, "it is in the queue", async || {
            lock.status().await.is_ok_and(|status| status.waiting.len() == 1)
        })
        .await;
        assert!(lock.force_unlock().await.expect("an answer"));
        let next = soon("it is granted", waiting).await.expect("no panic").expect("its turn");
        assert!(!held.is_held() && next.is_held(), "held twice");
        assert_eq!(soon("it is told", held.lost()).await, LossReason::Gone);
        assert!(next.token() > held.token());
        drop(held);
        next.unlock().await.expect("held");
    }
    nothing_left(&server, &one).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_exclude_each_other_by_fair_and_plain_handles() {
    let server = Server::start().await;
    let clients: [Client; 3] = named(&server).await;
    let (inside, total) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..24)
        .map(|task| {
            let client = &clients[task % 3];
            let lock = if task % 4 == 0 { client.mutex("n") } else { client.fair_mutex("n") };
            let (inside, total) = (inside.clone(), total.clone());
            tokio::spawn(async move {
                for _ in 0..10 {
                    let guard = lock.lock().await.expect("its turn comes");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    total.fetch_add(1, Ordering::SeqCst);
                    guard.unlock().await.expect("held");
                }
            })
        })
        .collect();
    for task in tasks {
        soon("all have their turns", task).await.expect("no panic");
    }
    assert_eq!(total.load(Ordering::SeqCst), 240);
    for client in &clients {
        nothing_left(&server, client).await;
    }
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
    let heard = async || support::heard(&server).await == 1;
    runtime.block_on(eventually(LIMIT, "the mailbox is subscribed", heard));
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
        assert!(
            text.contains("a fair mutex does not work over several independent masters"),
            "{text}"
        );
    }
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fair_and_ordinary_handles_wait_in_one_queue() {
    let (server, [holder, one, two]) = setup().await;
    make_heard(&server, &[&one, &two]).await;
    let held = holder.mutex("n").lock().await.expect("free");
    let order = Order::default();
    let locks = [one.fair_mutex("n"), two.mutex("n"), one.mutex("n"), two.fair_mutex("n")];
    let began_at = Instant::now();
    let mut tasks = Vec::new();
    for (number, lock) in locks.iter().enumerate() {
        tasks.push(queue_up(lock, number, &order).await);
    }
    // Each of them queues when it comes, and not when its client asks again for another.
    let took = began_at.elapsed();
    assert!(took < server.widened(Duration::from_millis(1500)), "{took:?}");
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
    make_heard(&server, &[&one, &two]).await;
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
    make_heard(&server, &[&client]).await;
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

/// A grant by message is that also for whom an ask confirms it: longer leases, and wherever the server's state has to be known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirmed_grant_by_message_leaves_the_next_turn_to_those_on_the_channel() {
    let server = Server::start().await;
    let [one, two] = named(&server).await;
    make_heard(&server, &[&one, &two]).await;
    let url = redis::Client::open(server.url()).expect("a valid address");
    let mut listener = url.get_async_pubsub().await.expect("connected");
    listener.subscribe("redisson_lock__channel:{n}").await.expect("allowed");
    let mut heard = listener.into_on_message();
    let held = one.mutex("n").lock().await.expect("free");
    let confirmed = tokio::spawn(two.mutex("n").with_lease(Duration::from_secs(6)).lock());
    let in_queue =
        async || one.mutex("n").status().await.is_ok_and(|status| status.waiting.len() == 1);
    eventually(LIMIT, "it is in the queue", in_queue).await;
    held.unlock().await.expect("held");
    let confirmed = soon("its turn", confirmed).await.expect("no panic").expect("its turn");
    assert_eq!(two.stats().grants_confirmed, 1);
    let next = tokio::spawn(one.mutex("n").lock());
    eventually(LIMIT, "it is in the queue", in_queue).await;
    confirmed.unlock().await.expect("held");
    let message = soon("those who listen have a turn", heard.next()).await.expect("connected");
    assert_eq!(message.get_payload::<String>().expect("text"), "0");
    let next = soon("nobody took it", next).await.expect("no panic").expect("its turn");
    next.unlock().await.expect("held");
}
