//! Beside a client of another library: its holders are taken note of, so that both sides get their turns.

use std::time::{Duration, Instant};

use futures_util::poll;
use leasehold::{Client, Error, Guard, Mutex};
use tokio::task::JoinHandle;

use crate::{
    checks::{LIMIT, nothing_left, setup, soon},
    support::{Server, eventually, subscribers, waiting},
};

/// Who stands behind others asks again after 2 to 4 s.
const POLL: Duration = Duration::from_secs(2);

/// Begins to wait, as the one in that place of the queue.
async fn behind(client: &Client, lock: &Mutex, place: usize) -> JoinHandle<Result<Guard, Error>> {
    let waiting = tokio::spawn(lock.lock());
    eventually(LIMIT, "it waits", async || client.stats().waiters == place).await;
    waiting
}

async fn got(waiting: JoinHandle<Result<Guard, Error>>) -> Guard {
    let answer = soon("it ends", waiting).await;
    answer.expect("no panic").expect("its turn comes")
}

/// For a second after a foreign holder was met each turn goes through the server; after that the lock is handed on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_foreign_holder_the_lock_is_not_handed_on_inside_the_process() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).handoff_window(Duration::from_secs(1));
    let client = builder.connect().await.expect("connected");
    client.mutex("before").lock().await.expect("free").unlock().await.expect("held");
    let lock = client.mutex("n");
    // As Redisson names its holders.
    server.command(&["HSET", "n", "0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f01:42", "1"]).await;
    server.command(&["PEXPIRE", "n", "25000"]).await;
    let first = behind(&client, &lock, 1).await;
    let second = behind(&client, &lock, 2).await;
    // The first in the queue listens on the channel of a lock that another library holds.
    let listens = async || subscribers(&server, "redisson_lock__channel:{n}").await == 1;
    eventually(LIMIT, "it listens", listens).await;
    server.command(&["DEL", "n"]).await;
    server.command(&["PUBLISH", "redisson_lock__channel:{n}", "0"]).await;
    let first = got(first).await;
    let lease = first.holder();
    first.unlock().await.expect("held");
    let second = got(second).await;
    assert_ne!(second.holder(), lease, "the foreign ones had their chance in between");

    // A second later they are forgotten.
    let third = behind(&client, &lock, 1).await;
    let last = behind(&client, &lock, 2).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    second.unlock().await.expect("held");
    let third = got(third).await;
    let lease = third.holder();
    third.unlock().await.expect("held");
    let last = got(last).await;
    assert_eq!(last.holder(), lease, "it was handed on");
    last.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// It stands first in the server's queue, and nobody polled it until others of this process were refused behind it. Its place is
/// that of its own answer, so it hears of the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_in_the_queue_hears_of_a_foreign_release_although_others_asked_since() {
    let (server, [other]) = setup().await;
    // If its subscriptions were silent for longer, it would lose the place that nobody asks for again.
    let builder = Client::builder().nodes([server.url()]).response_timeout(LIMIT).ttl(6 * LIMIT);
    let client = builder.connect().await.expect("connected");
    // The first contention opens the mailbox.
    let held = other.mutex("before").lock().await.expect("free");
    let waits = behind(&client, &client.mutex("before"), 1).await;
    eventually(LIMIT, "it is open", async || waiting(&server, "before").await == 1).await;
    held.unlock().await.expect("held");
    got(waits).await.unlock().await.expect("held");
    let lock = client.mutex("n");
    server.command(&["HSET", "n", "0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f01:42", "1"]).await;
    server.command(&["PEXPIRE", "n", "25000"]).await;
    let mut first = Box::pin(lock.lock());
    assert!(poll!(first.as_mut()).is_pending(), "it asks");
    eventually(LIMIT, "it stands in the queue", async || waiting(&server, "n").await == 1).await;
    // Others may ask then.
    tokio::time::sleep(Duration::from_millis(400)).await;
    let second = behind(&client, &lock, 1).await;
    eventually(LIMIT, "it stands behind", async || waiting(&server, "n").await == 2).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let since = Instant::now();
    let first = tokio::spawn(first);
    let listens = async || subscribers(&server, "redisson_lock__channel:{n}").await == 1;
    eventually(LIMIT, "it listens", listens).await;
    assert!(
        since.elapsed() < server.widened(POLL),
        "not before it asked again: {:?}",
        since.elapsed()
    );
    server.command(&["DEL", "n"]).await;
    server.command(&["PUBLISH", "redisson_lock__channel:{n}", "0"]).await;
    for waiting in [first, second] {
        got(waiting).await.unlock().await.expect("held");
    }
    nothing_left(&server, &client).await;
}

/// Others receive the message of each release, and never ask. Whoever comes next lets them go first, for a moment only. It comes
/// often, since on a busy machine the moment may be over before it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_behind_a_release_that_others_received_waits_a_moment() {
    let (server, [client]) = setup().await;
    let listener = redis::Client::open(server.url()).expect("a valid URL");
    let mut listener = listener.get_async_pubsub().await.expect("connected");
    listener.subscribe("redisson_lock__channel:{n}").await.expect("subscribed");
    for lock in [client.mutex("n"), client.fair_mutex("n")] {
        for _ in 0..100 {
            let guard = soon("its turn comes", lock.lock()).await.expect("free");
            guard.unlock().await.expect("held");
        }
    }
    drop(listener);
    nothing_left(&server, &client).await;
}
