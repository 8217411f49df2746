//! A guard tells whether anybody else wants what it holds.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use leasehold::{Client, Guard, Mutex, blocking};

use crate::{
    checks::{LIMIT, client_is_idle, connect, nothing_left, setup, soon},
    support::{Cluster, Connects, Deployment, Server, eventually},
};

/// What is told by a message is known long before anybody looks again, which is after 2 s at the earliest.
const TOLD: Duration = Duration::from_secs(1);
/// How long it takes at most to look again.
const LOOK: Duration = Duration::from_secs(4);
/// The same, of the first guard that is asked.
const FIRST_LOOK: Duration = Duration::from_millis(400);
const SLACK: Duration = Duration::from_millis(300);

/// Makes the client one that was asked before, so that who waits tells it.
async fn ask_once(client: &Client) {
    let guard = client.mutex("another").lock().await.expect("free");
    assert!(!guard.is_wanted());
    guard.unlock().await.expect("held");
}

/// Waits until the guard has looked for the first time: from then on only news tell it anything.
async fn looked(guard: &Guard) {
    assert!(!guard.is_wanted());
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(!guard.is_wanted());
}

/// Somebody who waits for the lock, and gives it back.
fn wants(lock: Mutex) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let guard = soon("the one who waits", lock.lock()).await.expect("free in the end");
        guard.unlock().await.expect("held");
    })
}

async fn until_wanted(guard: &Guard) -> Duration {
    let began_at = Instant::now();
    soon("it is wanted", guard.wanted()).await;
    assert!(guard.is_wanted());
    began_at.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_of_the_same_client_that_waits_is_known_at_once() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    let waits = wants(lock.clone());
    eventually(LIMIT, "it is wanted", async || guard.is_wanted()).await;
    soon("it is told", guard.wanted()).await;
    guard.unlock().await.expect("held");
    waits.await.expect("no panic");
    // A nested guard is no other who wants it.
    let guard = lock.lock().await.expect("free");
    let nested = lock.owned_by(guard.owner()).lock().await.expect("its own");
    looked(&guard).await;
    nested.unlock().await.expect("held");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// It stands in no server's queue, where it would be found by looking.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_of_the_same_client_that_begins_to_wait_is_told_and_remembered() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    looked(&guard).await;
    let mut wanted = Box::pin(guard.wanted());
    assert!(futures_util::poll!(&mut wanted).is_pending(), "nobody waits yet");
    let began_at = Instant::now();
    let waits = wants(lock.clone());
    soon("it is wanted", wanted).await;
    let took = began_at.elapsed();
    assert!(took < server.widened(TOLD), "known after {took:?}");
    waits.abort();
    eventually(LIMIT, "it has given up", async || client.stats().waiters == 0).await;
    assert!(guard.is_wanted(), "somebody wanted it");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// It may have given up before anything else looks.
#[tokio::test]
async fn a_task_of_the_same_client_that_was_seen_waiting_is_remembered_at_once() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    let mut waiting = Box::pin(lock.lock());
    assert!(futures_util::poll!(&mut waiting).is_pending(), "it is held");
    assert!(guard.is_wanted(), "it waits");
    drop(waiting);
    assert!(guard.is_wanted(), "somebody wanted it");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_client_that_waits_is_found_soon_and_then_tells_it() {
    let (server, [here, elsewhere]) = setup().await;
    let lock = here.mutex("n");
    for (round, limit) in [FIRST_LOOK, TOLD, TOLD].into_iter().enumerate() {
        let guard = lock.lock().await.expect("free in the end");
        looked(&guard).await;
        let waits = wants(elsewhere.mutex("n"));
        let took = until_wanted(&guard).await;
        assert!(took < server.widened(limit + SLACK), "known after {took:?} in round {round}");
        guard.unlock().await.expect("held");
        waits.await.expect("no panic");
    }
    nothing_left(&server, &here).await;
    client_is_idle(&here).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_asked_is_told_nothing() {
    let (server, [here, elsewhere]) = setup().await;
    let redis = redis::Client::open(server.url()).expect("a URL");
    let mut listener = redis.get_async_pubsub().await.expect("connected");
    listener.psubscribe("leasehold_mailbox:*").await.expect("allowed");
    // From its first wait on it has a mailbox.
    let held = elsewhere.mutex("n").lock().await.expect("free");
    here.mutex("n").lock_with_timeout(SLACK).await.expect_err("it is held");
    held.unlock().await.expect("held");
    for asks in [false, true] {
        if asks {
            ask_once(&here).await;
        }
        let guard = here.mutex("n").lock().await.expect("free");
        let refused = elsewhere.mutex("n").lock_with_timeout(SLACK).await;
        refused.expect_err("it is held");
        guard.unlock().await.expect("held");
        server.command(&["PUBLISH", "leasehold_mailbox:end", "end"]).await;
        let channels = server.command(&["PUBSUB", "CHANNELS", "leasehold_mailbox:*"]).await;
        let mailboxes: Vec<String> = redis::from_redis_value(channels).expect("names");
        let (mut heard, mut text) = (0, String::new());
        let mut messages = listener.on_message();
        while text != "end" {
            let message = soon("a message", messages.next()).await.expect("it listens");
            text = message.get_payload().expect("text");
            // That of a lease whose id ends at random has no other listener.
            let is_heard = mailboxes.iter().any(|mailbox| mailbox == message.get_channel_name());
            heard += u32::from(is_heard && text.starts_with("wanted "));
        }
        assert_eq!(heard > 0, asks, "{heard} heard");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waited_before_the_guard_was_asked_is_found() {
    let (server, [here, elsewhere]) = setup().await;
    ask_once(&here).await;
    let guard = here.mutex("n").lock().await.expect("free");
    let waits = wants(elsewhere.mutex("n"));
    eventually(LIMIT, "it waits", async || {
        here.mutex("n").status().await.is_ok_and(|status| status.waiting_clients == 1)
    })
    .await;
    let took = until_wanted(&guard).await;
    assert!(took < server.widened(TOLD), "known after {took:?}");
    guard.unlock().await.expect("held");
    waits.await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_nobody_wants_is_not_wanted_also_if_it_was_waited_for() {
    let (server, [here, elsewhere]) = setup().await;
    ask_once(&here).await;
    for foreign in [false, true] {
        let lock = here.mutex("n");
        let first = elsewhere.mutex("n").lock().await.expect("free");
        if foreign {
            // While another library's client holds a lock, the first who waits listens to its channel.
            server.command(&["DEL", "n"]).await;
            server.command(&["HSET", "n", "0f3a2c1e-1111-4222-8333-444455556666:7", "1"]).await;
            server.command(&["PEXPIRE", "n", "700"]).await;
        }
        let waits = tokio::spawn({
            let lock = lock.clone();
            async move { soon("it is free", lock.lock()).await.expect("free in the end") }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        match foreign {
            true => drop(first),
            false => first.unlock().await.expect("held"),
        }
        let guard = waits.await.expect("no panic");
        looked(&guard).await;
        // It has looked again by then, and the message of nobody has come.
        tokio::time::sleep(LOOK + SLACK).await;
        assert!(!guard.is_wanted());
        guard.unlock().await.expect("held");
    }
    nothing_left(&server, &here).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_missed_while_the_connection_was_down_is_found_when_it_is_up() {
    let (server, [here, elsewhere]) = setup().await;
    ask_once(&here).await;
    let guard = here.mutex("n").lock().await.expect("free");
    looked(&guard).await;
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    let waits = wants(elsewhere.mutex("n"));
    let took = until_wanted(&guard).await;
    assert!(took < server.widened(TOLD), "known after {took:?}");
    guard.unlock().await.expect("held");
    waits.await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_may_not_tell_and_one_of_another_library_are_found_by_looking() {
    let server = Server::start().await;
    let here = connect(&server).await;
    let rules =
        ["on", ">pw", "~*", "+@all", "&redisson_lock__channel:*", "&leasehold_mailbox:mute:*"];
    server.command(&[&["ACL", "SETUSER", "mute"][..], &rules[..]].concat()).await;
    let mute = Client::builder().nodes([server.url_as("mute", "pw")]).name("mute");
    let mute = mute.connect().await.expect("allowed");
    ask_once(&here).await;

    let guard = here.mutex("n").lock().await.expect("free");
    looked(&guard).await;
    let waits = wants(mute.mutex("n"));
    let took = until_wanted(&guard).await;
    assert!(took < server.widened(LOOK + SLACK), "known after {took:?}");
    guard.unlock().await.expect("held");
    waits.await.expect("no panic");

    let guard = here.mutex("n").lock().await.expect("free");
    looked(&guard).await;
    let redis = redis::Client::open(server.url()).expect("a URL");
    let mut listener = redis.get_async_pubsub().await.expect("connected");
    listener.subscribe("redisson_lock__channel:{n}").await.expect("allowed");
    let took = until_wanted(&guard).await;
    assert!(took < server.widened(LOOK + SLACK), "known after {took:?}");
    guard.unlock().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_hear_of_a_writer_and_writers_of_readers() {
    let (server, [here, elsewhere]) = setup().await;
    ask_once(&here).await;
    let lock = here.rw_lock("n");
    let (reads, writes) = (elsewhere.rw_lock("n"), elsewhere.rw_lock("n"));

    let reading = lock.read().await.expect("free");
    assert!(!reading.is_wanted());
    let beside = reads.read().await.expect("they share");
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(!reading.is_wanted(), "a reader that need not wait wants nothing");
    beside.unlock().await.expect("held");
    let began_at = Instant::now();
    let waits = tokio::spawn(async move { writes.write().await.expect("free in the end") });
    soon("the reader is wanted", reading.wanted()).await;
    let took = began_at.elapsed();
    assert!(took < server.widened(TOLD), "the reader knew after {took:?}");
    reading.unlock().await.expect("held");
    waits.await.expect("no panic").unlock().await.expect("held");

    let writing = soon("the writer", lock.write()).await.expect("free");
    assert!(!writing.is_wanted());
    tokio::time::sleep(Duration::from_millis(150)).await;
    let began_at = Instant::now();
    let waits = tokio::spawn(async move { reads.read().await.expect("free in the end") });
    soon("the writer is wanted", writing.wanted()).await;
    let took = began_at.elapsed();
    assert!(took < server.widened(TOLD), "the writer knew after {took:?}");
    writing.unlock().await.expect("held");
    waits.await.expect("no panic").unlock().await.expect("held");
    nothing_left(&server, &here).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_looks_ends_with_the_hold_and_with_the_client() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    assert!(!guard.is_wanted());
    drop(guard);
    client_is_idle(&client).await;
    let guard = lock.lock().await.expect("free");
    assert!(tokio::time::timeout(SLACK, guard.wanted()).await.is_err(), "nobody wants it");
    soon("the end", client.shutdown()).await;
    assert!(!guard.is_held() && !guard.is_wanted());
    drop(guard);
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_on_every_shard_of_a_cluster_are_told() {
    let cluster = Cluster::start().await;
    let builder = || Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let here = builder().connect().await.expect("the cluster accepts the client");
    let elsewhere = builder().connect().await.expect("the cluster accepts the client");
    ask_once(&here).await;
    for shard in 0..3 {
        let name = cluster.name_on(shard, "n");
        let guard = here.mutex(&name).lock().await.expect("free");
        looked(&guard).await;
        let waits = wants(elsewhere.mutex(&name));
        let took = until_wanted(&guard).await;
        let limit = cluster.master(shard).widened(TOLD);
        assert!(took < limit, "known after {took:?} on shard {shard}");
        guard.unlock().await.expect("held");
        waits.await.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_learns_of_who_waits_at_the_next_master() {
    let deployment = Deployment::start().await;
    let connect = async || {
        let builder = deployment.builder().ttl(Duration::from_secs(20));
        builder.restart_quarantine(Duration::ZERO).connect().await.expect("connected")
    };
    let (here, elsewhere) = (connect().await, connect().await);
    ask_once(&here).await;
    let guard = here.mutex("n").lock().await.expect("free");
    looked(&guard).await;
    deployment.is_synced().await;
    deployment.master().kill();
    let waits = wants(elsewhere.mutex("n"));
    until_wanted(&guard).await;
    guard.unlock().await.expect("held");
    waits.await.expect("no panic");
}

#[test]
fn threads_wait_until_somebody_wants_it() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let [here, elsewhere] =
        [(); 2].map(|()| blocking::Client::connect(&server.url()).expect("connected"));
    let (mutex, rw_lock) = (here.mutex("n"), here.rw_lock("m"));
    let guard = mutex.lock().expect("free");
    let writing = rw_lock.write().expect("free");
    assert!(!guard.is_wanted() && !writing.is_wanted());
    assert!(!guard.wait_wanted(SLACK).expect("no runtime here"));
    assert!(!writing.wait_wanted(SLACK).expect("no runtime here"));
    std::thread::scope(|scope| {
        scope.spawn(|| elsewhere.mutex("n").lock().expect("free in the end").unlock());
        scope.spawn(|| elsewhere.rw_lock("m").read().expect("free in the end").unlock());
        assert!(guard.wait_wanted(LIMIT).expect("no runtime here") && guard.is_wanted());
        assert!(writing.wait_wanted(LIMIT).expect("no runtime here") && writing.is_wanted());
        guard.unlock().expect("held");
        writing.unlock().expect("held");
    });
}
