//! The queue of one server, as a client sees it: what becomes of a grant that arrives by message, and who leaves.

use std::time::{Duration, Instant};

use leasehold::{Client, ClientBuilder, Error, Guard, LossReason, Mutex, NodeState};
use redis::FromRedisValue;
use tokio::task::JoinHandle;

use crate::{
    checks::{LIMIT, connect, nothing_left, setup_with_proxy, soon},
    support::{Proxy, Server, eventually, heard, waiting},
};

const MS: Duration = Duration::from_millis(1);

/// Two clients of a server: one of them reaches it through a proxy, and its mailbox is open.
struct Scene {
    server: Server,
    proxy: Proxy,
    client: Client,
    other: Client,
}

impl Scene {
    async fn set() -> Self {
        Self::set_with(|builder| builder).await
    }

    async fn set_with(settings: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        let (server, proxy) = setup_with_proxy().await;
        let client =
            settings(Client::builder().nodes([proxy.url()])).connect().await.expect("connected");
        let other = connect(&server).await;
        // A client opens its mailbox when it first has to wait, and keeps it open.
        let theirs = other.mutex("n").lock().await.expect("free");
        let turn = tokio::spawn(client.mutex("n").lock());
        let open = async || heard(&server).await == 1 && waiting(&server, "n").await == 1;
        eventually(LIMIT, "it waits, and its mailbox is open", open).await;
        theirs.unlock().await.expect("held");
        got(turn).await.unlock().await.expect("held");
        nothing_left(&server, &client).await;
        Self { server, proxy, client, other }
    }

    /// The client waits in the queue behind the other one, and knows it.
    async fn queue(&self, lock: &Mutex) -> (Guard, JoinHandle<Result<Guard, Error>>) {
        let theirs = self.other.mutex("n").lock().await.expect("free");
        let turn = tokio::spawn(lock.lock());
        self.is_queued().await;
        let waits = async || self.client.stats().waiters == 1;
        eventually(LIMIT, "it has its answer, and waits", waits).await;
        (theirs, turn)
    }

    async fn is_queued(&self) {
        let queued = async || waiting(&self.server, "n").await == 1;
        eventually(LIMIT, "it is in the queue", queued).await;
    }

    /// The lease id of the one that waits.
    async fn waiting_id(&self) -> String {
        let entries: Vec<String> =
            ask(&self.server, &["ZRANGE", "leasehold_queue:{n}", "0", "-1"]).await;
        entries[0].split(' ').nth(3).expect("ttl, block, nonce and id").to_owned()
    }

    /// Writes to the mailbox of the client that has one.
    async fn write(&self, letter: &str) {
        let mailboxes: Vec<String> =
            ask(&self.server, &["PUBSUB", "CHANNELS", "leasehold_mailbox:*"]).await;
        self.server.command(&["PUBLISH", &mailboxes[0], letter]).await;
    }

    /// How many milliseconds are left of the lock at the server.
    async fn pttl(&self) -> i64 {
        ask(&self.server, &["PTTL", "n"]).await
    }

    async fn end(self, guard: Guard) {
        guard.unlock().await.expect("held");
        nothing_left(&self.server, &self.client).await;
    }
}

async fn ask<T: FromRedisValue>(server: &Server, words: &[&str]) -> T {
    redis::from_redis_value(server.command(words).await).expect("an answer of that type")
}

async fn got(turn: JoinHandle<Result<Guard, Error>>) -> Guard {
    soon("it has its turn", turn).await.expect("no panic").expect("free")
}

/// The message is late by a quarter of the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_a_late_message_grants_ends_before_its_key() {
    let scene = Scene::set().await;
    let (theirs, turn) = scene.queue(&scene.client.mutex("n").with_lease(2000 * MS)).await;
    scene.proxy.hold_replies();
    theirs.unlock().await.expect("held");
    tokio::time::sleep(500 * MS).await;
    scene.proxy.release_replies();
    let guard = got(turn).await;
    let (read_at, left) = (Instant::now(), guard.remaining());
    let key = Duration::from_millis(scene.pttl().await.try_into().expect("it is held"));
    let most = key + read_at.elapsed();
    assert!(left <= most, "{left:?} of the guard, {most:?} of the key");
    scene.end(guard).await;
}

/// The server grants two seconds at most, and the watchdog makes it the whole lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_was_granted_by_message_is_renewed_before_its_short_time_is_over() {
    let scene = Scene::set().await;
    let (theirs, turn) = scene.queue(&scene.client.mutex("n")).await;
    theirs.unlock().await.expect("held");
    let guard = got(turn).await;
    let renewed = async || scene.pttl().await > 2000;
    eventually(LIMIT, "it is renewed", renewed).await;
    assert!(guard.is_held());
    scene.end(guard).await;
}

/// The request of the one before it is of no use to it, and those of other clients come before it until it has its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_on_other_terms_than_the_one_before_is_queued_at_once() {
    let scene = Scene::set().await;
    let lock = scene.client.mutex("n");
    let (theirs, first) = scene.queue(&lock).await;
    let mut turns = vec![first];
    for (number, seconds) in [60, 90, 120].into_iter().enumerate() {
        turns.push(tokio::spawn(lock.with_ttl(Duration::from_secs(seconds)).lock()));
        let waits = async || scene.client.stats().waiters == 2;
        eventually(LIMIT, "the next one waits, too", waits).await;
        turns[number].abort();
        let began_at = Instant::now();
        let entry = format!("{seconds}000 ");
        let is_queued = async || {
            let entries: Vec<String> =
                ask(&scene.server, &["ZRANGE", "leasehold_queue:{n}", "0", "-1"]).await;
            entries.len() == 1 && entries[0].starts_with(&entry)
        };
        eventually(LIMIT, "its own request is queued", is_queued).await;
        let took = began_at.elapsed();
        assert!(took < scene.server.widened(Duration::from_secs(1)), "only after {took:?}");
    }
    theirs.unlock().await.expect("held");
    let guard = got(turns.pop().expect("the last")).await;
    scene.end(guard).await;
}

/// The server that granted it lacks it, and no other one: somebody has removed it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_granted_by_message_and_is_removed_at_once_was_lost_in_no_failover() {
    let scene = Scene::set().await;
    let lock = scene.client.mutex("n").with_ttl(6_000 * MS);
    let taken_up = || {
        let stats = scene.client.stats();
        stats.grants_by_message - stats.grants_confirmed
    };
    let before = taken_up();
    for unlocks in [true, false, true, false] {
        let (theirs, turn) = scene.queue(&lock).await;
        theirs.unlock().await.expect("held");
        let guard = got(turn).await;
        // Most often, no renewal has been answered yet.
        scene.server.command(&["DEL", "n"]).await;
        let reason = if unlocks {
            match guard.unlock().await {
                Err(Error::Lost { reason, .. }) => reason,
                answer => panic!("it was removed: {answer:?}"),
            }
        } else {
            soon("it is told", guard.lost()).await
        };
        assert_eq!(reason, LossReason::Gone);
    }
    assert!(taken_up() > before, "{:?}", scene.client.stats());
    assert_eq!(scene.client.stats().lost_in_failovers, 0);
    nothing_left(&scene.server, &scene.client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_lease_that_was_granted_by_message_has_its_whole_time() {
    let scene = Scene::set().await;
    let (theirs, turn) = scene.queue(&scene.client.mutex("n").with_lease(20_000 * MS)).await;
    theirs.unlock().await.expect("held");
    let guard = got(turn).await;
    assert!(guard.remaining() > 10_000 * MS, "{:?} left", guard.remaining());
    scene.end(guard).await;
}

/// What the client knows of the server's clock is from a connection that is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_arrives_after_a_new_connection_is_confirmed_first() {
    let scene = Scene::set().await;
    let (theirs, turn) = scene.queue(&scene.client.mutex("n")).await;
    let before = scene.client.stats();
    scene.server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    let again = async || {
        scene.client.stats().connections_made > before.connections_made
            && scene.client.nodes()[0].state == NodeState::Up
    };
    eventually(LIMIT, "it is connected again", again).await;
    theirs.unlock().await.expect("held");
    let guard = got(turn).await;
    let confirmed = scene.client.stats().grants_confirmed - before.grants_confirmed;
    assert_eq!(confirmed, 1, "{:?}", scene.client.stats());
    scene.end(guard).await;
}

/// A second and more of a lease of two seconds is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_with_little_of_its_time_left_is_confirmed_first() {
    let scene = Scene::set().await;
    let (theirs, turn) = scene.queue(&scene.client.mutex("n").with_lease(2000 * MS)).await;
    let before = scene.client.stats().grants_confirmed;
    scene.proxy.hold_replies();
    theirs.unlock().await.expect("held");
    tokio::time::sleep(1300 * MS).await;
    scene.proxy.release_replies();
    let guard = got(turn).await;
    assert_eq!(scene.client.stats().grants_confirmed, before + 1);
    assert!(guard.remaining() > 1000 * MS, "{:?} left", guard.remaining());
    scene.end(guard).await;
}

/// As after a step of the server's clock. The test plays the server's part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_of_a_later_time_than_now_does_not_lengthen_the_lease() {
    let scene = Scene::set().await;
    let (theirs, turn) = scene.queue(&scene.client.mutex("n").with_lease(2000 * MS)).await;
    let Scene { server, .. } = &scene;
    let id = scene.waiting_id().await;
    let (seconds, _): (u64, String) = ask(server, &["TIME"]).await;
    let token = ask::<String>(server, &["GET", "leasehold_token:{n}"]).await;
    server.command(&["DEL", "n", "leasehold_queue:{n}"]).await;
    server.command(&["HSET", "n", &id, "1"]).await;
    server.command(&["PEXPIRE", "n", "2000"]).await;
    scene.write(&format!("grant {id} {}000000 2000 {token}", seconds + 60)).await;
    let guard = got(turn).await;
    assert!(guard.remaining() <= 2000 * MS, "{:?} left", guard.remaining());
    assert!(theirs.unlock().await.is_err(), "it was taken away");
    scene.end(guard).await;
}

/// Since that grant somebody has ended it, and the server said that the request waits. The test plays the server's part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_of_before_the_last_answer_does_not_count() {
    let scene = Scene::set().await;
    let Scene { server, client, .. } = &scene;
    let (seconds, micros): (String, String) = ask(server, &["TIME"]).await;
    let (theirs, turn) = scene.queue(&client.mutex("n")).await;
    let (id, token) = (scene.waiting_id().await, theirs.token());
    let before = client.stats().grants_by_message;
    scene.write(&format!("grant {id} {seconds}{micros:0>6} 30000 {token}")).await;
    let read = async || client.stats().grants_by_message > before;
    eventually(LIMIT, "it has read the message", read).await;
    theirs.unlock().await.expect("nobody took it away");
    let guard = got(turn).await;
    assert!(guard.token() > token, "it held the lock beside another");
    scene.end(guard).await;
}

/// The last ask has had no answer: it may have run behind the end of that grant, and been granted the lock anew. The test plays the
/// server's part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_does_not_count_alone_while_the_last_ask_has_no_answer() {
    // An answer that is too late for a short lease breaks no connection.
    let scene = Scene::set_with(|builder| builder.response_timeout(9000 * MS)).await;
    let Scene { server, client, proxy, .. } = &scene;
    let (theirs, turn) = scene.queue(&client.mutex("n").with_lease(2000 * MS)).await;
    let (id, token) = (scene.waiting_id().await, theirs.token());
    let (asks, before) = (server.scripts_run().await, client.stats().grants_by_message);
    proxy.hold_answers();
    scene.write(&format!("free {id}")).await;
    let asked = async || server.scripts_run().await > asks;
    eventually(LIMIT, "it asks", asked).await;
    let (seconds, micros): (String, String) = ask(server, &["TIME"]).await;
    scene.write(&format!("grant {id} {seconds}{micros:0>6} 2000 {token}")).await;
    // Read behind the end of the ask.
    let read = async || client.stats().grants_by_message > before;
    eventually(LIMIT, "it has read the message", read).await;
    proxy.release_replies();
    theirs.unlock().await.expect("nobody took it away");
    let guard = got(turn).await;
    assert!(guard.token() > token, "it held the lock beside another");
    scene.end(guard).await;
}

/// The server grants the lock while its answer to the request is on the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_overtakes_the_answer_to_its_request_is_not_lost() {
    let scene = Scene::set().await;
    for time in 0..3 {
        let theirs = scene.other.mutex("n").lock().await.expect("free");
        scene.proxy.hold_answers();
        let turn = tokio::spawn(scene.client.mutex("n").lock());
        scene.is_queued().await;
        let before = scene.proxy.messages();
        theirs.unlock().await.expect("held");
        let granted = async || scene.proxy.messages() > before;
        eventually(LIMIT, "the grant has arrived", granted).await;
        scene.proxy.release_replies();
        let arrived_at = Instant::now();
        let guard = got(turn).await;
        let took = arrived_at.elapsed();
        // By its timer it would ask after two seconds at the earliest.
        assert!(took < scene.server.widened(500 * MS), "{took:?}, the {time}th time");
        guard.unlock().await.expect("held");
    }
    nothing_left(&scene.server, &scene.client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_dropped_leaves_the_queue() {
    let scene = Scene::set().await;
    let (theirs, turn) = scene.queue(&scene.client.mutex("n")).await;
    turn.abort();
    assert!(turn.await.is_err_and(|error| error.is_cancelled()));
    let left = async || waiting(&scene.server, "n").await == 0;
    eventually(LIMIT, "nobody is in the queue", left).await;
    assert!(theirs.is_held());
    scene.end(theirs).await;
}
