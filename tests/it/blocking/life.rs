//! How long the client's thread lives, and what a process or a thread that ends leaves behind.

use std::{
    any::Any,
    cell::RefCell,
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    Error,
    blocking::{Client, Guard, Mutex},
};

use super::{LIMIT, MS, connect, connect_with_ttl, eventually, exists, server, wait_for, widened};
use tokio::task::block_in_place;

use crate::support::{Outage, Proxy, Server, Worker, shared_clock_us};

/// Counted in a process of its own, where no other test has a client.
#[cfg(target_os = "linux")]
#[test]
fn the_clients_thread_ends_after_its_last_guard() {
    let server = server();
    let mut worker = Worker::start();
    worker.tell(&format!("life {} n", server.url()));
    let mut counts = |what: &str| {
        let [said, threads, keys] = &worker.answer()[..] else { panic!("three words") };
        assert_eq!(said, what);
        (threads.parse::<u32>().expect("a number"), keys.parse::<u32>().expect("a number"))
    };
    assert_eq!(counts("before"), (0, 0));
    assert_eq!(counts("connected"), (1, 0), "one thread");
    assert_eq!(counts("cloned"), (1, 0), "clones share it");
    assert_eq!(counts("held"), (1, 1));
    assert_eq!(counts("handles-dropped"), (1, 1), "a guard keeps it");
    // No wait between the end of the thread and the look at the key: the thread saw the release through.
    assert_eq!(counts("guard-dropped"), (0, 0));
    assert_eq!(counts("handle-kept"), (1, 0), "a handle keeps it, too");
    assert_eq!(counts("many"), (0, 0), "each of many clients took its thread with it");
    assert_eq!(counts("unreachable"), (0, 0), "so did one that did not come to be");
}

/// With the server gone there is nothing to tell it: the thread gives up when the lease is over anyway.
#[cfg(target_os = "linux")]
#[test]
fn the_clients_thread_ends_although_its_server_is_gone() {
    let server = server();
    let mut worker = Worker::start();
    worker.tell(&format!("keep {} n 500", server.url()));
    assert_eq!(worker.answer()[0], "held");
    server.kill();
    worker.tell("let-go");
    assert_eq!(worker.answer(), ["threads", "0"]);
}

#[test]
fn a_process_that_exits_while_it_holds_leaves_the_lock_to_its_ttl() {
    const TTL: Duration = Duration::from_millis(1000);
    let server = server();
    let mut worker = Worker::start();
    worker.tell(&format!("keep {} n {}", server.url(), TTL.as_millis()));
    let held = worker.answer();
    let token: u64 = held[1].parse().expect("a token");
    worker.tell("exit");
    worker.wait();
    let exited_at_us = shared_clock_us();
    assert!(exists(&server, "n"), "nobody gave it back");
    let guard = connect(&server).mutex("n").lock_with_timeout(LIMIT).expect("it ends");
    let after = Duration::from_micros(shared_clock_us() - exited_at_us);
    assert!(after <= widened(TTL + 50 * MS, &server), "taken {after:?} after the exit");
    assert!(guard.token() > token);
}

#[test]
fn a_process_that_shuts_down_gives_the_lock_back() {
    let server = server();
    let mut worker = Worker::start();
    worker.tell(&format!("keep {} n 30000", server.url()));
    assert_eq!(worker.answer()[0], "held");
    assert!(exists(&server, "n"));
    worker.tell("shut-down");
    worker.wait();
    assert!(!exists(&server, "n"), "it was given back before the process ended");
}

thread_local! {
    static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

#[test]
fn a_guard_in_a_thread_local_is_given_back_with_its_thread() {
    let server = server();
    let client = connect(&server);
    let lock = client.mutex("n");
    let keeps = thread::spawn(move || KEPT.set(Some(lock.lock().expect("free"))));
    keeps.join().expect("no panic");
    eventually("given back", || !exists(&server, "n"));
    client.mutex("n").try_lock().expect("an answer").expect("free").unlock().expect("held");
}

/// The destructors of a thread run when tokio's own values for it may be gone: a call must not panic there,
/// which would end the process.
#[test]
fn a_call_in_the_destructor_of_a_thread_local_does_not_panic() {
    struct Last(Mutex, Option<Guard>, std::sync::mpsc::Sender<[Result<(), Error>; 2]>);
    impl Drop for Last {
        fn drop(&mut self) {
            let unlocked = self.1.take().map_or(Ok(()), Guard::unlock);
            let locked = self.0.lock_with_timeout(LIMIT).map(drop);
            self.2.send([unlocked, locked]).expect("the test listens");
        }
    }
    thread_local! {
        static EARLY: RefCell<Option<Last>> = const { RefCell::new(None) };
        static LATE: RefCell<Option<Last>> = const { RefCell::new(None) };
    }
    let server = server();
    let client = connect_with_ttl(&server, LIMIT);
    let (tell, told) = std::sync::mpsc::channel();
    for (name, early) in [("early", true), ("late", false)] {
        let (lock, tell) = (client.mutex(name), tell.clone());
        let ends = thread::spawn(move || {
            // What is used first is destroyed last.
            let kept = if early { &EARLY } else { &LATE };
            if early {
                kept.with_borrow(|_| ());
            }
            let guard = lock.lock().expect("free");
            kept.set(Some(Last(lock, Some(guard), tell)));
        });
        ends.join().expect("no panic");
        for answer in told.recv().expect("it was dropped") {
            assert!(matches!(answer, Ok(()) | Err(Error::Closed { .. })), "{name}: {answer:?}");
        }
        eventually("given back", || !exists(&server, name));
    }
}

/// The runtime on which a client was connected under `enter()` may end before it: it has its own.
#[test]
fn a_client_outlives_the_runtime_that_it_was_made_under() {
    let server = server();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let client: Client = {
        let _entered = runtime.enter();
        connect(&server)
    };
    let guard = client.mutex("n").lock().expect("free");
    runtime.shutdown_background();
    assert_eq!(guard.wait_lost(MS).expect("it may wait"), None);
    guard.unlock().expect("held");
}

/// In each outage the first drop waits in vain, and the others do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_each_outage_one_drop_waits_for_the_servers() {
    const PATIENCE: Duration = Duration::from_millis(250);
    let server = Server::start().await;
    let lock = |client: &Client, n: u32| client.mutex(format!("n{n}")).lock().expect("free");
    let client = block_in_place(|| connect(&server));
    let test = async |outage: &Outage<'_>| {
        let mut guards: Vec<Guard> = block_in_place(|| (0..5).map(|n| lock(&client, n)).collect());
        outage.begins();
        let took = block_in_place(|| {
            let timed = |guard| {
                let began_at = Instant::now();
                drop(guard);
                began_at.elapsed()
            };
            (timed(guards.pop()), guards.drain(..).map(|guard| timed(Some(guard))).sum())
        });
        let (first, others): (Duration, Duration) = took;
        assert!((PATIENCE..widened(2 * PATIENCE, &server)).contains(&first), "{first:?}");
        assert!(others < widened(PATIENCE, &server), "{others:?}");
        outage.ends().await;
        block_in_place(|| lock(&client, 0).unlock().expect("held"));
    };
    Outage::stopped([&server]).twice(test).await;
    block_in_place(|| drop(client));
}

/// A release that nobody answered in the time of the client's own answers is one without an answer, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_little_patience_one_drop_waits_in_an_outage_as_well() {
    let server = Server::start().await;
    let client = block_in_place(|| {
        let builder = Client::builder().nodes([server.url()]).response_timeout(100 * MS);
        builder.connect_blocking().expect("connected")
    });
    let lock = |n: u32| client.mutex(format!("n{n}")).lock().expect("free");
    let guards: Vec<Guard> = block_in_place(|| (0..21).map(lock).collect());
    server.pause();
    let mut took = block_in_place(|| {
        let timed = |guard: Guard| {
            let began_at = Instant::now();
            drop(guard);
            began_at.elapsed()
        };
        guards.into_iter().map(timed).collect::<Vec<_>>()
    });
    let first = took.remove(0);
    assert!(first >= 100 * MS, "{first:?}");
    // Each of them would wait for as long.
    let others: Duration = took.iter().sum();
    assert!(others < widened(20 * 100 * MS / 2, &server), "{others:?}");
    server.resume();
    block_in_place(|| drop(client));
}

/// A drop waits for its answer, unless the last one got none. Whoever got a lock since has had an answer, whatever kind it is of.
#[test]
fn a_drop_waits_again_once_something_was_acquired_again() {
    const ROUND_TRIP: Duration = Duration::from_millis(120);
    let server = server();
    let proxy = wait_for(Proxy::start(server.port()));
    let client = Client::connect(&proxy.url()).expect("connected");
    type Acquire = fn(&Client) -> Box<dyn Any>;
    let kinds: [(&str, Acquire); 7] = [
        ("mutex", |client| Box::new(client.mutex("n").lock().expect("free"))),
        ("multi lock", |client| Box::new(client.multi_lock(["a", "b"]).lock().expect("free"))),
        ("semaphore", |client| {
            Box::new(client.semaphore("s").with_permits(1).acquire().expect("there is one"))
        }),
        ("election", |client| Box::new(client.election("e").campaign().expect("nobody leads"))),
        ("reader", |client| Box::new(client.rw_lock("rw").read().expect("free"))),
        ("writer", |client| Box::new(client.rw_lock("rw").write().expect("free"))),
        ("queue", |client| {
            client.queue("q").push("item").expect("an answer");
            Box::new(client.queue("q").pop().expect("there is one"))
        }),
    ];
    for (kind, acquire) in kinds {
        let unanswered = client.mutex("unanswered").lock().expect("free");
        proxy.hold_replies();
        drop(unanswered);
        proxy.release_replies();
        let guard = acquire(&client);
        proxy.delay_replies(ROUND_TRIP);
        let began_at = Instant::now();
        drop(guard);
        let took = began_at.elapsed();
        proxy.delay_replies(Duration::ZERO);
        assert!(took >= ROUND_TRIP, "{kind}: {took:?}");
    }
}
