//! Clients and guards that outlive the runtime, the task, the process or each other, and those that end in order.

use std::{
    process::{Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use leasehold::{Client, Error, Guard, LossReason};
use redis::Value;
use tokio::runtime::{Builder, Runtime};

use crate::{
    checks::{
        AT_ONCE, LIMIT, client_is_idle, connect, exists, lock_keys, no_connection_left,
        nothing_left,
    },
    support::{Server, Stalls, eventually, within},
};

const MS: Duration = Duration::from_millis(1);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// Fails after a while instead of hanging.
async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    let started_at = Instant::now();
    let output = tokio::time::timeout(LIMIT, future).await;
    let output = output.unwrap_or_else(|_| panic!("{what} hangs"));
    assert!(started_at.elapsed() < AT_ONCE, "{what} took {:?}", started_at.elapsed());
    output
}

fn is_closed<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Closed))
}

async fn gone_in_the_end(server: &Server, name: &str) {
    eventually(LIMIT, "the lock is gone", async || !exists(server, name).await).await;
}

// The runtime ends.

/// The classic trap: two tests, each with a runtime of its own, and one client in a `static`.
#[test]
fn a_client_in_a_static_is_closed_at_once_on_the_second_runtime() {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    let servers = runtime();
    let server = servers.block_on(Server::start());

    let first = runtime();
    let (guard, lost) = first.block_on(async {
        let client = connect(&server).await;
        let client = CLIENT.get_or_init(|| client);
        let guard = client.mutex("n").with_ttl(700 * MS).lock().await.expect("free");
        let lost = guard.lost();
        (guard, lost)
    });
    drop(first);

    runtime().block_on(async {
        let client = CLIENT.get().expect("it was made");
        let lock = client.mutex("m");
        assert!(is_closed(&soon("lock", lock.lock()).await));
        assert!(is_closed(&soon("try_lock", lock.try_lock()).await));
        assert!(is_closed(&soon("try_lock_for", lock.try_lock_for(LIMIT)).await));
        assert!(is_closed(&soon("lock_with_timeout", lock.lock_with_timeout(LIMIT)).await));
        assert!(is_closed(&soon("run", lock.run(async |_| ())).await));
        assert!(is_closed(&soon("status", lock.status()).await));
        assert!(is_closed(&soon("force_unlock", lock.force_unlock()).await));
        assert!(is_closed(&soon("check", client.check()).await));
        assert!(is_closed(&soon("the held lock", client.mutex("n").lock()).await));

        soon("lost", lost).await;
        assert!(soon("extend", guard.extend(LIMIT)).await.is_err());
        let inner = guard.reenter();
        drop(inner);
        eventually(LIMIT, "the hold ends at its deadline", async || !guard.is_held()).await;
        assert!(guard.reenter().is_err());
        let left = soon("unlock", guard.unlock()).await;
        assert!(matches!(left, Err(Error::Lost { .. } | Error::Closed)), "{left:?}");
        let _ = (client.stats(), client.holds(), format!("{client:?}"));
        soon("shutdown", client.shutdown()).await;
    });
    servers.block_on(gone_in_the_end(&server, "n"));
    servers.block_on(no_connection_left(&server));
}

#[test]
fn waiters_get_closed_and_holders_are_told_when_the_clients_runtime_is_dropped() {
    let servers = runtime();
    let (server, other) = servers.block_on(async {
        let server = Server::start().await;
        let other = connect(&server).await;
        (server, other)
    });
    let held = servers.block_on(other.mutex("theirs").lock()).expect("free");

    let first = runtime();
    let client = first.block_on(connect(&server));
    let second = runtime();
    let (guard, lost, waits) = second.block_on(async {
        let guard = client.mutex("ours").lock().await.expect("free");
        let lost = tokio::spawn(guard.lost());
        let waits = [
            tokio::spawn(client.mutex("theirs").lock()),
            tokio::spawn(client.mutex("theirs").lock_with_timeout(2 * LIMIT)),
            tokio::spawn(client.mutex("ours").lock()),
        ];
        eventually(LIMIT, "all wait", async || client.stats().waiters == 3).await;
        (guard, lost, waits)
    });
    drop(first);
    second.block_on(async {
        for wait in waits {
            let answer = soon("a wait", wait).await.expect("no panic");
            assert!(is_closed(&answer), "{answer:?}");
        }
        soon("lost", lost).await.expect("no panic");
        // Without its runtime nothing can be sent: the lock lasts until its TTL.
        drop(guard);
    });
    servers.block_on(async {
        held.unlock().await.expect("held");
        other.mutex("ours").force_unlock().await.expect("an answer");
        nothing_left(&server, &other).await;
    });
}

#[test]
fn a_client_on_a_named_runtime_outlives_the_one_that_connected() {
    let tasks = runtime();
    let (server, client) = runtime().block_on(async {
        let server = Server::start().await;
        let builder = Client::builder().nodes([server.url()]).runtime(tasks.handle().clone());
        let client = builder.connect().await.expect("connected");
        (server, client)
    });
    runtime().block_on(async {
        let guard = client.mutex("n").with_ttl(300 * MS).lock().await.expect("free");
        let held = tokio::time::timeout(700 * MS, guard.lost()).await;
        assert!(held.is_err(), "it is renewed there: {held:?}");
        guard.unlock().await.expect("held");
        nothing_left(&server, &client).await;
        drop(client);
        eventually(LIMIT, "its tasks end", async || tasks.metrics().num_alive_tasks() == 0).await;
    });
}

// Guards end where nobody expects it.

#[tokio::test]
async fn a_guard_keeps_being_renewed_after_its_client_is_dropped() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let guard = client.mutex("n").with_ttl(300 * MS).lock().await.expect("free");
    let inner = guard.reenter().expect("held");
    drop(client);
    // Several TTLs: what is tested is that it stays held.
    let lost = tokio::time::timeout(1000 * MS, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(guard.is_held() && exists(&server, "n").await);
    drop(guard);
    assert!(inner.is_held() && exists(&server, "n").await);
    drop(inner);
    gone_in_the_end(&server, "n").await;
    no_connection_left(&server).await;
}

#[tokio::test]
async fn an_unlock_after_the_client_is_dropped_is_confirmed() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let guard = client.mutex("n").lock().await.expect("free");
    drop(client);
    guard.unlock().await.expect("held");
    assert!(!exists(&server, "n").await);
    no_connection_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_dropped_outside_of_any_runtime_releases() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let guard = client.mutex("n").lock().await.expect("free");
    std::thread::spawn(move || {
        assert!(tokio::runtime::Handle::try_current().is_err());
        assert!(guard.is_held());
        drop(guard);
    })
    .join()
    .expect("no panic");
    nothing_left(&server, &client).await;
}

#[test]
fn a_guard_dropped_on_another_runtime_that_ends_at_once_releases() {
    let tasks = runtime();
    let (server, client, guard) = tasks.block_on(async {
        let server = Server::start().await;
        let client = connect(&server).await;
        let guard = client.mutex("n").lock().await.expect("free");
        (server, client, guard)
    });
    Builder::new_current_thread().build().expect("a runtime").block_on(async move { drop(guard) });
    tasks.block_on(nothing_left(&server, &client));
}

#[tokio::test]
async fn a_panic_releases_what_it_unwinds_through() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let task = tokio::spawn({
        let lock = client.mutex("n");
        async move {
            let _guard = lock.lock().await.expect("free");
            std::panic::resume_unwind(Box::new("a panic without a message"));
        }
    });
    let end: Result<(), _> = task.await;
    assert!(end.expect_err("it panicked").is_panic());
    nothing_left(&server, &client).await;

    let task = tokio::spawn(client.mutex("n").run(async |_guard: &Guard| {
        tokio::task::yield_now().await;
        std::panic::resume_unwind(Box::new("a panic without a message"));
    }));
    let end: Result<Result<(), _>, _> = task.await;
    assert!(end.expect_err("it panicked").is_panic());
    nothing_left(&server, &client).await;
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
}

#[tokio::test]
async fn a_guard_in_an_aborted_task_is_released() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let task = tokio::spawn({
        let lock = client.mutex("n");
        async move {
            let _guard = lock.lock().await.expect("free");
            std::future::pending::<()>().await;
        }
    });
    eventually(LIMIT, "it holds", async || exists(&server, "n").await).await;
    task.abort();
    nothing_left(&server, &client).await;
}

// The process ends.

const CHILD: &str = "LEASEHOLD_TEST_CHILD";

/// What a child process does: takes a lock, and exits while the guard is there, or right after its drop.
///
/// Without the variable this is a test like others: of a process that nobody told to be a child.
#[test]
fn a_process_that_exits_with_a_lock() {
    let Ok(url) = std::env::var(CHILD) else {
        assert!(std::env::var_os("LEASEHOLD_TEST_CHILD_DROPS").is_none());
        return;
    };
    runtime().block_on(async {
        let client = Client::connect(&url).await.expect("connected");
        let guard = client.mutex("n").with_ttl(600 * MS).lock().await.expect("free");
        if std::env::var_os("LEASEHOLD_TEST_CHILD_DROPS").is_some() {
            drop(guard);
        }
        std::process::exit(7)
    })
}

fn child(server: &Server) -> Command {
    let mut child = Command::new(std::env::current_exe().expect("this very program"));
    child
        .args(["--exact", "lifetimes::a_process_that_exits_with_a_lock"])
        .env(CHILD, server.url())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    child
}

#[tokio::test]
async fn the_lock_of_a_process_that_exits_is_gone_by_its_ttl() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    for drops in [false, true] {
        let mut child = child(&server);
        if drops {
            child.env("LEASEHOLD_TEST_CHILD_DROPS", "1");
        }
        let status = tokio::task::spawn_blocking(move || child.status()).await.expect("no panic");
        let exited_at = Instant::now();
        assert_eq!(status.expect("it runs").code(), Some(7), "it ends without a panic or a hang");
        let Value::Int(token) = server.command(&["EXISTS", "leasehold_token:{n}"]).await else {
            panic!("a number")
        };
        assert_eq!(token, 1, "it held the lock");
        if !drops {
            let pttl = server.command(&["PTTL", "n"]).await;
            assert!(matches!(pttl, Value::Int(-2..=600)) && pttl != Value::Int(-1), "{pttl:?}");
        }
        gone_in_the_end(&server, "n").await;
        let took = exited_at.elapsed();
        assert!(took < within(650 * MS, &stalls), "{took:?}");
        no_connection_left(&server).await;
    }
}

// Clients that end in order.

#[tokio::test]
async fn draining_lets_holders_and_those_who_wait_finish_and_nobody_new_in() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    let waiter = tokio::spawn(lock.lock());
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;

    assert!(!client.drain(50 * MS).await, "something is held");
    for name in ["n", "free"] {
        let lock = client.mutex(name);
        assert!(is_closed(&soon("lock", lock.lock()).await));
        assert!(is_closed(&soon("try_lock", lock.try_lock()).await));
        assert!(is_closed(&soon("lock_with_timeout", lock.lock_with_timeout(LIMIT)).await));
    }
    let inner = guard.reenter().expect("a holder may nest");
    let nested = lock.owned_by(guard.owner()).lock().await.expect("a holder may nest");
    assert!(guard.is_held() && lock.is_locked().await.expect("it may still be asked about"));

    let draining = tokio::spawn({
        let client = client.clone();
        async move { client.drain(LIMIT).await }
    });
    drop((inner, nested));
    assert!(guard.is_held() && !draining.is_finished());
    guard.unlock().await.expect("held");
    let next = soon("the waiter", waiter).await.expect("no panic").expect("it waited before");
    assert!(!draining.is_finished());
    next.unlock().await.expect("held");
    assert!(soon("drain", draining).await.expect("no panic"), "nothing is held");
    assert!(soon("draining again", client.drain(Duration::MAX)).await);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_drain_ends_when_the_held_lock_is_lost() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let guard = client.mutex("n").with_lease(200 * MS).lock().await.expect("free");
    assert!(tokio::time::timeout(LIMIT, client.drain(Duration::MAX)).await.expect("no hang"));
    assert!(!guard.is_held());
    drop(guard);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn shutting_down_tells_holders_and_waiters_and_releases_before_it_returns() {
    let server = Server::start().await;
    let (client, other) = (connect(&server).await, connect(&server).await);
    let theirs = other.mutex("theirs").lock().await.expect("free");
    let guards = [
        client.mutex("watched").lock().await.expect("free"),
        client.mutex("fixed").with_lease(LIMIT).lock().await.expect("free"),
    ];
    let inner = guards[0].reenter().expect("held");
    let lost: Vec<_> = guards.iter().map(|guard| tokio::spawn(guard.lost())).collect();
    let body = tokio::spawn(client.mutex("body").run(async |_: &Guard| {
        std::future::pending::<()>().await;
    }));
    let waits = [
        tokio::spawn(client.mutex("watched").lock()),
        tokio::spawn(client.mutex("theirs").lock()),
        tokio::spawn(client.mutex("theirs").lock_with_timeout(LIMIT)),
    ];
    eventually(LIMIT, "all wait", async || {
        client.stats().waiters == 3 && client.holds().len() == 3
    })
    .await;

    soon("shutdown", client.shutdown()).await;
    assert_eq!(lock_keys(&server).await, ["theirs"], "all of its locks are released");
    assert!(client.holds().is_empty());
    for wait in waits {
        let answer = soon("a wait", wait).await.expect("no panic");
        assert!(is_closed(&answer), "{answer:?}");
    }
    for lost in lost {
        assert_eq!(soon("lost", lost).await.expect("no panic"), LossReason::Shutdown);
    }
    let answer = soon("run", body).await.expect("no panic");
    assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Shutdown, .. })), "{answer:?}");
    assert!(is_closed(&soon("lock", client.mutex("free").lock()).await));
    assert!(guards.iter().chain([&inner]).all(|guard| !guard.is_held()));
    assert!(inner.reenter().is_err());
    for guard in guards.into_iter().chain([inner]) {
        let answer = soon("unlock", guard.unlock()).await;
        assert!(
            matches!(answer, Err(Error::Lost { reason: LossReason::Shutdown, .. })),
            "{answer:?}"
        );
    }
    client_is_idle(&client).await;
    soon("shutting down again", client.shutdown()).await;
    drop(client);

    assert!(theirs.is_held());
    theirs.unlock().await.expect("held");
    nothing_left(&server, &other).await;
    drop(other);
    no_connection_left(&server).await;
}

/// Guards that are never dropped show that it is the shutdown which gives them back.
#[tokio::test]
async fn a_client_is_shut_down_after_its_work_whatever_becomes_of_that() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let failing = client.shutdown_after(async {
        std::mem::forget(client.mutex("n").lock().await.expect("free"));
        Err::<(), _>("an error of the work")
    });
    assert_eq!(soon("the work", failing).await, Err("an error of the work"));
    assert!(!exists(&server, "n").await);
    assert!(is_closed(&client.mutex("n").lock().await));

    let client = connect(&server).await;
    let panicking = tokio::spawn(async move {
        let work = async {
            std::mem::forget(client.mutex("n").lock().await.expect("free"));
            std::panic::resume_unwind(Box::new("a panic without a message"));
        };
        client.shutdown_after(work).await
    });
    let end: Result<(), _> = soon("the work", panicking).await;
    assert!(end.expect_err("it panicked").is_panic());
    assert!(!exists(&server, "n").await);
}

#[tokio::test]
async fn shutting_down_without_a_server_ends_in_its_time() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).response_timeout(300 * MS);
    let client = builder.connect().await.expect("connected");
    let guard = client.mutex("n").lock().await.expect("free");
    server.pause();
    let started_at = Instant::now();
    client.shutdown().await;
    let took = started_at.elapsed();
    assert!(took < within(350 * MS, &stalls), "{took:?}");
    assert!(!guard.is_held());
    server.resume();
    drop((guard, client));
    gone_in_the_end(&server, "n").await;
    no_connection_left(&server).await;
}

// Everything is dropped.

#[test]
fn all_tasks_and_connections_end_after_everything_is_dropped() {
    let (tasks, servers) = (runtime(), runtime());
    let (server, client) = servers.block_on(async {
        let server = Server::start().await;
        let builder = Client::builder().nodes([server.url()]).runtime(tasks.handle().clone());
        let client = builder.connect().await.expect("connected");
        (server, client)
    });
    servers.block_on(async {
        let other = connect(&server).await;
        let held = other.mutex("theirs").lock().await.expect("free");
        // A holder, a nested one, waiters of both kinds and a subscription.
        let lock = client.mutex("ours");
        let guard = lock.lock().await.expect("free");
        let inner = guard.reenter().expect("held");
        let waits = [tokio::spawn(lock.lock()), tokio::spawn(client.mutex("theirs").lock())];
        eventually(LIMIT, "all wait", async || {
            let status = other.mutex("theirs").status().await.expect("an answer");
            client.stats().waiters == 2 && status.waiting_clients == 1
        })
        .await;
        drop((client, lock, guard));
        for wait in waits {
            wait.abort();
            assert!(wait.await.expect_err("aborted").is_cancelled());
        }
        assert!(inner.is_held());
        drop(inner);
        eventually(LIMIT, "all tasks end", async || tasks.metrics().num_alive_tasks() == 0).await;
        assert_eq!(lock_keys(&server).await, ["theirs"]);
        held.unlock().await.expect("held");
        drop(other);
        no_connection_left(&server).await;
        assert!(lock_keys(&server).await.is_empty());
    });
}

#[test]
fn all_tasks_end_after_everything_is_dropped_though_the_server_is_gone() {
    let (tasks, servers) = (runtime(), runtime());
    servers.block_on(async {
        let server = Server::start().await;
        let builder = Client::builder().nodes([server.url()]).runtime(tasks.handle().clone());
        let client = builder.response_timeout(100 * MS).connect().await.expect("connected");
        let guard = client.mutex("n").with_ttl(500 * MS).lock().await.expect("free");
        let waiter = tokio::spawn(client.mutex("n").lock());
        eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
        server.kill();
        waiter.abort();
        drop((guard, client));
        let ended = async || tasks.metrics().num_alive_tasks() == 0;
        eventually(LIMIT, "all tasks end, once the lease is over in any case", ended).await;
    });
}

#[test]
fn all_tasks_end_after_everything_is_dropped_though_the_server_refuses_releases() {
    let (tasks, servers) = (runtime(), runtime());
    servers.block_on(async {
        let server = Server::start().await;
        let url = {
            server.command(&["ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all"]).await;
            server.url_as("u", "pw")
        };
        let builder = Client::builder().nodes([url]).runtime(tasks.handle().clone());
        let client = builder.connect().await.expect("connected");
        let guard = client.mutex("n").with_ttl(500 * MS).lock().await.expect("free");
        server.command(&["ACL", "SETUSER", "u", "-del"]).await;
        drop((guard, client));
        let ended = async || tasks.metrics().num_alive_tasks() == 0;
        eventually(LIMIT, "all tasks end", ended).await;
        gone_in_the_end(&server, "n").await;
    });
}

#[tokio::test]
async fn a_connect_that_is_dropped_half_way_leaves_no_connection() {
    let server = Server::start().await;
    server.pause();
    for _ in 0..3 {
        let url = server.url();
        assert!(tokio::time::timeout(50 * MS, Client::connect(&url)).await.is_err());
    }
    server.resume();
    no_connection_left(&server).await;
}

#[test]
fn a_client_whose_runtime_is_gone_drains_in_its_time_after_a_shutdown() {
    let (servers, first) = (runtime(), runtime());
    let server = servers.block_on(Server::start());
    let (client, guard) = first.block_on(async {
        let client = connect(&server).await;
        let guard = client.mutex("n").with_ttl(300 * MS).lock().await.expect("free");
        (client, guard)
    });
    drop(first);
    servers.block_on(async {
        // It marks the hold lost; the guard is still there.
        client.shutdown().await;
        // It spins inside of one poll: a timeout around it would never be asked.
        let drain = tokio::time::timeout(LIMIT, client.drain(Duration::from_secs(1))).await;
        assert!(drain.is_ok(), "drain hangs");
    });
    drop(guard);
}
