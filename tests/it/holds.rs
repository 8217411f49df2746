//! How a hold ends: by a shutdown, after an extension, handed on, after a suspend of the host, with its runtime.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use leasehold::{Client, Error, LossReason, Mutex, blocking};
use redis::Value;
use tokio::runtime::Runtime;

use crate::{
    checks::{LIMIT, connect, lock_keys, nothing_left, pttl, setup_with_proxy, soon},
    support::{Proxy, Server, eventually},
};

const MS: Duration = Duration::from_millis(1);

// A shutdown.

/// Takes and gives back a lock until the client is closed. Once `ending` is set it gives back only what it was told
/// is lost.
async fn contend(lock: Mutex, ending: Arc<AtomicBool>) {
    while let Ok(guard) = lock.lock().await {
        if ending.load(SeqCst) {
            let told = tokio::time::timeout(LIMIT, guard.lost()).await;
            told.expect("who holds at a shutdown is told");
        }
        drop(guard);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_held_after_a_shutdown_under_contention() {
    let server = Server::start().await;
    for round in 0..ROUNDS {
        // Asks are on their way in the one, leases are handed on in the other.
        let window = if round % 2 == 0 { Duration::ZERO } else { 20 * MS };
        let builder = Client::builder().nodes([server.url()]).handoff_window(window);
        let client = builder.connect().await.expect("connected");
        let ending = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..LOCKS * TASKS)
            .map(|task| {
                let lock = client.mutex(format!("n{}", task % LOCKS));
                tokio::spawn(contend(lock, ending.clone()))
            })
            .collect();
        tokio::time::sleep(Duration::from_micros(2000 + 137 * (round % 16))).await;
        ending.store(true, SeqCst);
        client.shutdown().await;
        let left = client.holds();
        assert!(left.is_empty(), "round {round}: held after the shutdown: {left:?}");
        for task in tasks {
            let ended = soon("every wait ends", task).await;
            ended.expect("no panic");
        }
    }
    eventually(LIMIT, "no lock is left", async || lock_keys(&server).await.is_empty()).await;
}

#[test]
fn nothing_is_held_after_a_shutdown_among_threads() {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    for round in 0..ROUNDS / 8 {
        let client = blocking::Client::connect(&server.url()).expect("connected");
        let ending = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let lock = client.mutex(format!("n{}", thread % 2));
                let ending = ending.clone();
                std::thread::spawn(move || {
                    while let Ok(guard) = lock.lock() {
                        if ending.load(SeqCst) {
                            let told = guard.wait_lost(LIMIT).expect("a thread may wait");
                            assert!(told.is_some(), "who holds at a shutdown is told");
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_micros(2000 + 137 * (round % 16)));
        ending.store(true, SeqCst);
        client.shutdown().expect("a thread may wait");
        let left = client.holds();
        assert!(left.is_empty(), "round {round}: held after the shutdown: {left:?}");
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
    let none_left = async || lock_keys(&server).await.is_empty();
    runtime.block_on(eventually(LIMIT, "no lock is left", none_left));
}

// A hand-off.

/// Who holds by a lease that passes on is known by it, and so is the next: what is to free the one leaves the other
/// alone, whoever asks and however its holder was seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_unlock_of_a_holder_spares_the_one_behind_it() {
    let server = Server::start().await;
    let builder = || Client::builder().nodes([server.url()]).response_timeout(300 * MS);
    let client = builder().handoff_window(1000 * MS).connect().await.expect("connected");
    let other = builder().connect().await.expect("connected");
    let (lock, theirs) = (client.mutex("n"), other.mutex("n"));
    let held = theirs.lock().await.expect("free");
    let first = tokio::spawn(lock.lock());
    eventually(LIMIT, "one waits", async || client.stats().waiters == 1).await;
    let next = tokio::spawn(lock.lock());
    eventually(LIMIT, "both wait", async || client.stats().waiters == 2).await;
    held.unlock().await.expect("held");
    let guard = first.await.expect("no panic").expect("free");
    let seen = theirs.status().await.expect("an answer").holder.expect("somebody holds it");
    let error = theirs.lock_with_timeout(300 * MS).await.expect_err("it is held");
    let Error::Timeout { holder: Some(holder), .. } = error else { panic!("{error:?}") };
    let seen = [guard.holder(), client.holds()[0].holder.clone(), seen, holder];
    guard.unlock().await.expect("held");
    let next = next.await.expect("no panic").expect("handed on");
    assert_eq!(next.holder(), seen[0], "it is handed on");
    let mut tries = 0;
    // Once it is too old to be passed on any more, who sees its holder knows whom that is.
    eventually(LIMIT, "the last hold can be freed", async || {
        for seen in &seen {
            for tool in [&lock, &theirs] {
                assert!(!tool.force_unlock_if(seen).await.expect("an answer"), "try {tries}");
            }
        }
        assert!(next.is_held());
        tries += 1;
        let now = theirs.status().await.expect("an answer").holder.expect("it is held");
        theirs.force_unlock_if(&now).await.expect("an answer")
    })
    .await;
    assert!(tries > 1, "at first nobody can be sure");
    let answer = next.unlock().await;
    assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Gone, .. })), "{answer:?}");
    nothing_left(&server, &client).await;
}

// An extension.

/// Who stands behind a hold whose lease was made longer gets a lease of its own, as long as it asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longer_lease_is_not_handed_on() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).handoff_window(1000 * MS);
    let client = builder.connect().await.expect("connected");
    let ttl = 900 * MS;
    for way in ["extended", "nested in a longer one", "longer nested in it"] {
        let lock = client.mutex("n").with_ttl(ttl);
        let first = if way.starts_with("nested") { lock.with_lease(HOUR) } else { lock.clone() };
        let theirs = connect(&server).await.mutex("n").lock().await.expect("free");
        let first = tokio::spawn(first.lock());
        eventually(LIMIT, "one waits", async || client.stats().waiters == 1).await;
        let next = tokio::spawn(lock.with_max_hold(100 * MS).lock());
        eventually(LIMIT, "both wait", async || client.stats().waiters == 2).await;
        theirs.unlock().await.expect("held");
        let guard = first.await.expect("no panic").expect("free");
        let owned = lock.owned_by(guard.owner());
        let inner = match way {
            "extended" => {
                guard.extend(HOUR).await.expect("held");
                None
            }
            "nested in a longer one" => Some(owned.lock().await.expect("its own")),
            _ => Some(owned.with_lease(HOUR).with_max_hold(HOUR).lock().await.expect("its own")),
        };
        drop(inner);
        drop(guard);
        let began_at = Instant::now();
        let next = soon("its turn comes", next).await;
        let next = next.expect("no panic").expect("free");
        assert!(next.remaining() <= ttl, "{way}: {:?}", next.remaining());
        let left = pttl(&server, "n").await;
        assert!(left <= ttl.as_millis() as i64, "{way}: {left} ms at the server");
        // Its own longest hold counts, too.
        soon("it ends", next.lost()).await;
        let took = began_at.elapsed();
        assert!(took < server.widened(1100 * MS), "{way}: {took:?}");
        drop(next);
        nothing_left(&server, &client).await;
    }
}

/// The server is away for longer than the first lease, and the client is dropped meanwhile: the lock that was made to
/// last longer is given back all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_release_of_a_longer_lease_is_owed_for_as_long_as_that() {
    let server = Server::start().await;
    for way in ["extended", "extended without an answer", "nested"] {
        let proxy = Proxy::start(server.port()).await;
        let client = Client::connect(&proxy.url()).await.expect("connected");
        let lock = client.mutex("n").with_lease(400 * MS);
        let guard = lock.lock().await.expect("free");
        match way {
            "nested" => {
                drop(lock.owned_by(guard.owner()).with_lease(HOUR).lock().await.expect("its own"));
            }
            "extended" => guard.extend(HOUR).await.expect("held"),
            _ => {
                proxy.drop_replies(true);
                guard.extend(HOUR).await.expect_err("no answer comes");
            }
        }
        assert!(pttl(&server, "n").await > 1_000_000, "{way}");
        proxy.refuse(true);
        proxy.cut();
        proxy.drop_replies(false);
        drop((guard, lock, client));
        // What is tested is that the client goes on for longer than the first lease.
        tokio::time::sleep(1200 * MS).await;
        assert!(pttl(&server, "n").await > 1_000_000, "{way}");
        proxy.refuse(false);
        eventually(LIMIT, way, async || lock_keys(&server).await.is_empty()).await;
    }
}

/// A lease that was made longer leaves more time for the answer to its release, and so does the longer one for the
/// answer to its extension.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_about_a_longer_lease_are_waited_for_longer() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let lease = Duration::from_secs(3);
    for name in ["n", "m"] {
        // The first time the server learns the scripts.
        let guard = client.mutex(name).with_lease(lease).lock().await.expect("free");
        guard.extend(lease).await.expect("held");
        guard.unlock().await.expect("held");
    }
    let guard = client.mutex("n").with_lease(900 * MS).lock().await.expect("free");
    // More than a third of the first lease.
    proxy.delay_replies(400 * MS);
    guard.extend(HOUR).await.expect("held, and answered in time");
    guard.unlock().await.expect("held, and answered in time");
    proxy.delay_replies(Duration::ZERO);
    nothing_left(&server, &client).await;
}

// The end of its runtime.

/// Asked for before the runtime of the client's tasks ended or after it: who holds is told, since nobody renews any
/// more.
#[test]
fn a_loss_first_asked_for_after_the_runtime_ended_is_told_at_once() {
    let (servers, first) = (Runtime::new().expect("a runtime"), Runtime::new().expect("a runtime"));
    let server = servers.block_on(Server::start());
    let guards = first.block_on(async {
        let client = Client::connect(&server.url()).await.expect("connected");
        let watched = client.mutex("n").with_ttl(HOUR).lock().await.expect("free");
        let fixed = client.mutex("m").with_lease(HOUR).lock().await.expect("free");
        [watched, fixed]
    });
    drop(first);
    servers.block_on(async {
        for guard in &guards {
            let told = soon("it is told", guard.lost()).await;
            assert_eq!(told, LossReason::Shutdown);
            assert!(!guard.is_held(), "it was told of the loss");
            let work = std::future::pending::<()>();
            let run = tokio::time::timeout(LIMIT, guard.run_until_lost(work)).await;
            let answer = run.expect("it is told");
            assert!(matches!(answer, Err(Error::Lost { .. })), "{answer:?}");
        }
    });
}

// A drain.

/// Where a lock is lost before its end, a drain does not wait for that end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_with_a_loss_before_its_time() {
    let server = Server::start().await;
    for way in ["forced open", "found gone", "found gone by an extension"] {
        let client = connect(&server).await;
        let lock = client.mutex("n");
        let lock =
            if way == "found gone" { lock.with_ttl(900 * MS) } else { lock.with_lease(HOUR) };
        let guard = lock.lock().await.expect("free");
        if way != "found gone by an extension" {
            guard.extend(HOUR).await.expect("held");
        }
        let drained = client.clone();
        let drain = tokio::spawn(async move { drained.drain(LIMIT).await });
        eventually(LIMIT, "it drains", async || {
            matches!(client.mutex("m").try_lock().await, Err(Error::Closed { .. }))
        })
        .await;
        let began_at = Instant::now();
        match way {
            "forced open" => assert!(lock.force_unlock().await.expect("an answer")),
            _ => assert_eq!(server.command(&["DEL", "n"]).await, Value::Int(1)),
        }
        if way == "found gone by an extension" {
            guard.extend(HOUR).await.expect_err("it is gone");
        }
        let ended = soon("it ends", drain).await;
        assert!(ended.expect("no panic"), "{way}: nothing is held");
        let took = began_at.elapsed();
        assert!(took < server.widened(500 * MS), "{way}: {took:?}");
        drop(guard);
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const ROUNDS: u64 = 320;
const LOCKS: usize = 24;
const TASKS: usize = 3;
