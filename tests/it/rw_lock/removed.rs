//! Readers whose lease somebody removed, and those of the same client who come after that.

use std::time::{Duration, Instant};

use futures_util::poll;
use leasehold::{Client, ReadGuard, RwLock};
use redis::Value;

use super::{MS, queued, without_window};
use crate::{
    checks::{LIMIT, connect, nothing_left, setup_with_proxy, soon},
    fair::make_heard,
    support::{Server, eventually, lua::READ_RENEW},
};

/// The ways in which a lock goes away behind its holder's back.
const WAYS: [&str; 2] = ["a forced unlock", "a deletion"];

async fn remove(servers: &[Server], by: &RwLock, way: &str) {
    match way {
        "a deletion" => {
            for server in servers {
                server.command(&["DEL", "n"]).await;
            }
        }
        _ => assert!(by.force_unlock().await.expect("answered")),
    }
}

/// One reads, the lock is removed, and the next one reads.
async fn read_after(servers: &[Server], a: &Client, b: &Client, way: &str, waits: bool) {
    let (lock, other) = (a.rw_lock("n"), b.rw_lock("n"));
    let removed = lock.read().await.expect("free");
    remove(servers, &other, way).await;
    let written = soon("a writer", other.write()).await.expect("free");
    written.unlock().await.expect("held");
    let reading = match waits {
        true => soon("the reader", lock.read()).await.expect("free"),
        false => lock.try_read().await.expect("answered").expect("free"),
    };
    assert!(!removed.is_held(), "{way}: it is known by now");
    assert_ne!(reading.holder(), removed.holder(), "{way}: it has a lease of its own");
    assert!(reading.token() > removed.token(), "{way}: one wrote in between");
    assert_eq!(other.status().await.expect("answered").readers, [reading.holder()]);
    assert!(other.try_write().await.expect("answered").is_none(), "{way}: one reads");
    assert!(reading.is_held());
    reading.unlock().await.expect("held");
    assert!(removed.unlock().await.is_err_and(|error| error.is_lost()));
}

#[tokio::test]
async fn a_reader_that_comes_after_a_removal_has_a_lease_of_its_own() {
    let servers = [Server::start().await];
    let (a, b) = (without_window(&servers[0]).await, connect(&servers[0]).await);
    for way in WAYS {
        for waits in [false, true] {
            read_after(&servers, &a, &b, way, waits).await;
        }
    }
    nothing_left(&servers[0], &a).await;
    nothing_left(&servers[0], &b).await;
}

#[tokio::test]
async fn over_several_servers_it_has_one_too() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let open = async || {
        let builder = Client::builder().nodes(servers.iter().map(Server::url));
        let builder = builder.handoff_window(Duration::ZERO).restart_quarantine(Duration::ZERO);
        builder.connect().await.expect("connected")
    };
    let (a, b) = (open().await, open().await);
    for way in WAYS {
        for waits in [false, true] {
            read_after(&servers, &a, &b, way, waits).await;
        }
    }
}

/// The writer before it got the lock by the forced unlock, and the reader gets it by the writer's release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_has_a_reader_that_is_granted_by_message() {
    let server = Server::start().await;
    let (a, b, c) = (without_window(&server).await, connect(&server).await, connect(&server).await);
    make_heard(&server, &[&a, &b]).await;
    let lock = a.rw_lock("n");
    let removed = lock.read().await.expect("free");
    let writer = tokio::spawn(b.rw_lock("n").write());
    queued(&lock, 1).await;
    let reader = tokio::spawn(lock.read());
    queued(&lock, 2).await;
    assert!(c.rw_lock("n").force_unlock().await.expect("answered"));
    let writing = soon("the writer", writer).await.expect("no panic").expect("its turn");
    let token = writing.token();
    writing.unlock().await.expect("held");
    let reading = soon("the reader", reader).await.expect("no panic").expect("its turn");
    assert_ne!(reading.holder(), removed.holder(), "it has a lease of its own");
    assert!(!removed.is_held() && reading.is_held() && reading.token() >= token);
    assert!(c.rw_lock("n").try_write().await.expect("answered").is_none(), "one reads");
    drop((reading, removed));
    nothing_left(&server, &a).await;
    nothing_left(&server, &b).await;
}

/// Whether the lease is there is answered before the lock is unlocked by force, and the ask runs after that: its script was not
/// known.
#[tokio::test]
async fn so_has_a_reader_whose_ask_has_to_be_sent_again() {
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).handoff_window(Duration::ZERO);
    let (a, b) = (builder.connect().await.expect("connected"), connect(&server).await);
    let lock = a.rw_lock("n");
    let removed = lock.read().await.expect("free");
    let own_end = format!("{{n}}:{}:rwlock_timeout:1", removed.holder().as_str());
    server.command(&["SCRIPT", "FLUSH"]).await;
    server.command(&["SCRIPT", "LOAD", READ_RENEW]).await;
    server.command(&["PEXPIRE", &own_end, "10000"]).await;
    proxy.hold_replies();
    let reader = tokio::spawn(lock.read());
    let renewed = async || matches!(server.command(&["PTTL", &own_end]).await, Value::Int(10001..));
    eventually(LIMIT, "it was asked about", renewed).await;
    assert!(b.rw_lock("n").force_unlock().await.expect("answered"));
    proxy.release_replies();
    let reading = soon("the reader", reader).await.expect("no panic").expect("free");
    assert_ne!(reading.holder(), removed.holder(), "it has a lease of its own");
    assert!(b.rw_lock("n").try_write().await.expect("answered").is_none(), "one reads");
    drop((reading, removed));
    nothing_left(&server, &a).await;
}

/// The answer to the first was there for a while before anybody looked at it, and the next one asked meanwhile, after a `pause`:
/// nothing was in use then that could be asked about.
async fn asks_before_the_lease_is_in_use<F>(pause: Duration, ask: impl FnOnce(RwLock) -> F)
where
    F: Future<Output = ReadGuard> + Send + 'static,
{
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).handoff_window(Duration::ZERO);
    let client = builder.response_timeout(LIMIT).connect().await;
    let (a, b) = (client.expect("connected"), connect(&server).await);
    let (lock, other) = (a.rw_lock("n"), b.rw_lock("n"));
    // The server knows the script then, so one request is enough.
    lock.read().await.expect("free").unlock().await.expect("held");
    let mut first = Box::pin(lock.read());
    assert!(poll!(first.as_mut()).is_pending(), "it asks");
    let reads = async || !other.status().await.expect("answered").readers.is_empty();
    eventually(LIMIT, "it is granted", reads).await;
    lock.status().await.expect("the answer before this one is there, too");
    assert!(other.force_unlock().await.expect("answered"));
    other.write().await.expect("free").unlock().await.expect("held");
    tokio::time::sleep(pause).await;
    proxy.hold_replies();
    let next = tokio::spawn(ask(lock.clone()));
    eventually(LIMIT, "the next one is granted", reads).await;
    let removed = soon("the first", first).await.expect("it was free");
    proxy.release_replies();
    let reading = soon("the next one", next).await.expect("no panic");
    assert_ne!(reading.holder(), removed.holder(), "it has a lease of its own");
    assert!(reading.token() > removed.token(), "one wrote in between");
    assert!(!removed.is_held(), "it is known by now");
    assert!(other.try_write().await.expect("answered").is_none(), "one reads");
    drop((reading, removed));
    nothing_left(&server, &a).await;
}

/// The driver asks for it.
#[tokio::test]
async fn so_has_a_reader_that_asked_before_the_lease_was_in_use() {
    let read = async |lock: RwLock| lock.read().await.expect("free");
    asks_before_the_lease_is_in_use(Duration::ZERO, read).await;
}

/// It asks by itself, since nobody has polled the first for so long.
#[tokio::test]
async fn so_has_a_reader_that_tries_before_the_lease_was_in_use() {
    let try_read = async |lock: RwLock| lock.try_read().await.expect("answered").expect("free");
    asks_before_the_lease_is_in_use(400 * MS, try_read).await;
}

/// What is asked about a lease in use makes it neither shorter nor longer, if nothing renews it.
#[tokio::test]
async fn a_fixed_lease_that_others_join_by_asking_is_as_long_as_before() {
    let server = Server::start().await;
    let client = without_window(&server).await;
    let lock = client.rw_lock("n");
    let first = lock.with_lease(LIMIT).read().await.expect("free");
    let until = Instant::now() + first.remaining();
    for _ in 0..5 {
        let next = lock.with_lease(1000 * MS).try_read().await.expect("answered").expect("shared");
        assert_eq!(next.holder(), first.holder(), "they use one lease");
        let left = first.remaining();
        assert!(Instant::now() + left <= until + MS, "it is longer by now");
        drop(next);
    }
    first.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}
