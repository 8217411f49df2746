//! The same for threads.

use std::time::{Duration, Instant};

use leasehold::{
    Error,
    blocking::{self, MultiGuard, MultiLock, NamedOwner},
};
use tokio::runtime::Runtime;

use super::{LIMIT, MS};
use crate::checks::exists;
use crate::support::{Proxy, Server, eventually, waiting};

/// A server, and the runtime that the test uses to look at it.
fn server() -> (Runtime, Server) {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    (runtime, server)
}

fn connect(server: &Server) -> blocking::Client {
    blocking::Client::connect(&server.url()).expect("connected")
}

#[test]
fn a_thread_takes_all_or_none_and_nests() {
    let (runtime, server) = server();
    let (client, other) = (connect(&server), connect(&server));
    let locks = client.multi_lock(["b", "a", "b"]);
    assert_eq!(locks.names().collect::<Vec<_>>(), ["b", "a"]);
    let guard = locks.lock().expect("free");
    assert!(guard.is_held() && guard.remaining() > Duration::from_secs(20));
    let nested = locks.try_lock().expect("an answer").expect("the same thread");
    assert!(nested.tokens().eq(guard.tokens()));
    assert_eq!(client.mutex("a").lock().expect("nested").hold_count(), 3);
    drop(nested);
    assert!(other.multi_lock(["c", "a"]).try_lock().expect("an answer").is_none());
    let error = other.multi_lock(["c", "a"]).lock_with_timeout(300 * MS).expect_err("held");
    assert!(matches!(&error, Error::Timeout { lock, .. } if &**lock == "a"), "{error:?}");
    assert!(other.multi_lock(["a", "c"]).try_lock_for(300 * MS).expect("an answer").is_none());
    assert!(locks.status().expect("an answer").iter().all(|lock| lock.hold_count > 0));
    guard.unlock().expect("held");
    drop(other.multi_lock(["a", "b", "c"]).lock().expect("free"));
    // The drop waited for the answer.
    for name in ["a", "b", "c"] {
        assert!(!runtime.block_on(exists(&server, name)), "{name} is held");
    }
    let error = client.multi_lock([""; 0]).lock().expect_err("there are none");
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
}

#[test]
fn threads_wait_for_each_other_whatever_the_order_of_the_names() {
    let (runtime, server) = server();
    let client = connect(&server);
    let other = connect(&server);
    let held = other.mutex("b").lock().expect("free");
    let threads: Vec<_> = [["a", "b"], ["b", "a"]]
        .into_iter()
        .map(|names| {
            let locks = client.multi_lock(names);
            std::thread::spawn(move || locks.run(|guard| guard.is_held()).expect("held"))
        })
        .collect();
    let waits = async || waiting(&server, "b").await == 1;
    runtime.block_on(eventually(LIMIT, "one of them waits", waits));
    held.unlock().expect("held");
    assert!(threads.into_iter().all(|thread| thread.join().expect("no panic")));
}

#[test]
fn a_loss_is_told_and_a_named_owner_may_move() {
    let (_runtime, server) = server();
    let client = connect(&server);
    let me = client.owner();
    let locks: MultiLock<NamedOwner> =
        client.multi_lock(["a", "b"]).with_ttl(900 * MS).with_max_hold(LIMIT).owned_by(&me);
    let guard: MultiGuard<NamedOwner> = locks.clone().lock().expect("free");
    let elsewhere = std::thread::spawn(move || {
        assert!(guard.wait_lost(20 * MS).expect("it may wait").is_none());
        connect(&server).mutex("b").force_unlock().expect("an answer");
        let lost = guard.wait_lost(LIMIT).expect("it may wait").expect("it is lost");
        assert!(matches!(&lost, Error::Lost { lock, .. } if &**lock == "b"), "{lost:?}");
        let error = guard.unlock().expect_err("it was lost");
        assert!(matches!(&error, Error::Lost { lock, .. } if &**lock == "b"), "{error:?}");
    });
    elsewhere.join().expect("no panic");
}

#[test]
fn locks_of_two_clients_outlive_their_clients() {
    let ((runtime, here), (_, there)) = (server(), server());
    let both = MultiLock::of([connect(&here).mutex("a"), connect(&there).mutex("b")]);
    let guard = both.lock().expect("free");
    drop(both);
    assert!(runtime.block_on(exists(&here, "a")) && runtime.block_on(exists(&there, "b")));
    guard.unlock().expect("held");
    assert!(!runtime.block_on(exists(&here, "a")) && !runtime.block_on(exists(&there, "b")));
}

/// The server of one of them is silent: the drop of another guard of the other client still waits for its release.
#[test]
fn a_silent_server_says_nothing_about_the_client_of_another_one() {
    const ROUND_TRIP: Duration = Duration::from_millis(120);
    let ((runtime, near), (_, far)) = (server(), server());
    let [here, there] = [near.port(), far.port()].map(|port| runtime.block_on(Proxy::start(port)));
    let connect = |proxy: &Proxy| blocking::Client::connect(&proxy.url()).expect("connected");
    let [one, two] = [connect(&here), connect(&there)];
    let waits_for_its_release = || {
        let alone = one.mutex("c").lock().expect("free");
        let both = MultiLock::of([one.mutex("a"), two.mutex("b")]).lock().expect("free");
        there.hold_replies();
        drop(both);
        here.delay_replies(ROUND_TRIP);
        let began_at = Instant::now();
        drop(alone);
        let took = began_at.elapsed();
        here.delay_replies(Duration::ZERO);
        there.release_replies();
        took >= ROUND_TRIP
    };
    // On a busy machine the other server may be late, too.
    assert!((0..10).any(|_| waits_for_its_release()), "it never does");
}

#[test]
fn async_code_is_refused() {
    let (runtime, server) = server();
    let client = connect(&server);
    let locks = client.multi_lock(["a", "b"]);
    let guard = locks.lock().expect("free");
    runtime.block_on(async {
        assert!(matches!(locks.lock(), Err(Error::InAsyncContext { .. })));
        assert!(matches!(guard.unlock(), Err(Error::InAsyncContext { .. })));
        eventually(LIMIT, "it is released in the background", async || {
            !exists(&server, "a").await && !exists(&server, "b").await
        })
        .await;
    });
}
