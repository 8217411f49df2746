//! A shutdown takes as long as the releases, and no longer.

use std::{
    pin::Pin,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use leasehold::{Client, ClosedReason, Error, Guard, NodeState, blocking};
use tokio::runtime::Builder;

use crate::{
    checks::{LIMIT, lock_keys, setup_with_proxy, soon},
    support::{Server, eventually},
};

/// A client that would wait for an answer for far longer than a shutdown may take.
const RESPONSE: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(3);

fn builder(server: &Server) -> leasehold::ClientBuilder {
    Client::builder().nodes([server.url()]).response_timeout(RESPONSE)
}

type Call = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Somebody who hears of releases and never asks: what is left to do after them takes a hand-off window.
async fn listener(server: &Server) -> redis::aio::PubSub {
    let other = redis::Client::open(server.url()).expect("a valid URL");
    let mut listener = other.get_async_pubsub().await.expect("connected");
    for number in 0..3 {
        let channel = format!("redisson_lock__channel:{{n{number}}}");
        listener.subscribe(channel).await.expect("subscribed");
    }
    listener
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_after_dropped_guards_ends_when_they_are_released() {
    let server = Server::start().await;
    let listening = listener(&server).await;
    for dropped_before in [true, false] {
        let client = builder(&server).handoff_window(Duration::from_millis(300));
        let client = client.connect().await.expect("connected");
        let mut guards: Vec<Guard> = Vec::new();
        for number in 0..3 {
            guards.push(client.mutex(format!("n{number}")).lock().await.expect("free"));
        }
        let kept = if dropped_before { Vec::new() } else { std::mem::take(&mut guards) };
        drop(guards);
        let released = async || lock_keys(&server).await.len() == kept.len();
        eventually(LIMIT, "what was dropped is released", released).await;
        let began_at = Instant::now();
        client.shutdown().await;
        let took = began_at.elapsed();
        assert!(took < server.widened(SOON), "{took:?}");
        assert!(lock_keys(&server).await.is_empty());
        drop(kept);
    }
    drop(listening);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_right_after_connecting_ends_at_once() {
    let server = Server::start().await;
    for _ in 0..20 {
        let client = builder(&server).connect().await.expect("connected");
        let began_at = Instant::now();
        client.shutdown().await;
        let took = began_at.elapsed();
        assert!(took < server.widened(SOON), "{took:?}");
    }
}

/// A program that exits behind it would leave the lock for a TTL.
#[tokio::test]
async fn a_shutdown_without_a_connection_waits_for_the_next_one() {
    let (server, proxy) = setup_with_proxy().await;
    let client = builder(&server).nodes([proxy.url()]).connect().await.expect("connected");
    let guard = client.mutex("n").lock().await.expect("free");
    proxy.refuse(true);
    proxy.cut();
    let is_down = async || client.nodes()[0].state == NodeState::Down;
    eventually(LIMIT, "the connection is gone", is_down).await;
    drop(guard);
    let mut shutdown = std::pin::pin!(client.shutdown());
    let early = tokio::time::timeout(Duration::from_millis(300), &mut shutdown).await;
    assert!(early.is_err(), "nothing was released");
    proxy.refuse(false);
    soon("the release", shutdown).await;
    assert_eq!(client.stats().releases_pending, 0);
    assert!(lock_keys(&server).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_after_dropped_guards_ends_when_they_are_released() {
    let server = Server::start().await;
    let listening = listener(&server).await;
    let client = builder(&server).connect().await.expect("connected");
    let guard = client.mutex("n0").lock().await.expect("free");
    let began_at = Instant::now();
    drop(guard);
    assert!(client.drain(RESPONSE).await, "nothing is held");
    let took = began_at.elapsed();
    assert!(took < server.widened(SOON), "{took:?}");
    assert!(lock_keys(&server).await.is_empty());
    drop(listening);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_of_threads_after_dropped_guards_ends_when_they_are_released() {
    let server = Server::start().await;
    let listening = listener(&server).await;
    let builder = builder(&server).handoff_window(Duration::from_millis(300));
    let took = tokio::task::spawn_blocking(move || {
        let client: blocking::Client = builder.connect_blocking().expect("connected");
        drop(client.mutex("n0").lock().expect("free"));
        let began_at = Instant::now();
        client.shutdown().expect("a plain thread");
        began_at.elapsed()
    });
    let took = took.await.expect("no panic");
    assert!(took < server.widened(SOON), "{took:?}");
    assert!(lock_keys(&server).await.is_empty());
    drop(listening);
}

/// Who goes on after errors has nothing to wait for any more.
#[tokio::test]
async fn tasks_that_ask_again_after_each_error_let_their_runtime_end() {
    let server = Server::start().await;
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let runtime = runtime.expect("threads");
    let connecting = builder(&server).runtime(runtime.handle().clone());
    let client = connecting.connect().await.expect("connected");
    client.shutdown().await;
    let (asked, have_asked) = mpsc::channel();
    let calls: [fn(Client) -> Call; 4] = [
        |client| Box::pin(async move { client.mutex("n").lock().await.map(drop) }),
        |client| Box::pin(async move { client.queue("q").pop().await.map(drop) }),
        |client| Box::pin(async move { client.election("e").observe().changed().await.map(drop) }),
        |client| Box::pin(async move { client.signal("s").changed(0).await.map(drop) }),
    ];
    for call in calls {
        let (client, asked) = (client.clone(), asked.clone());
        runtime.spawn(async move {
            loop {
                let answer = call(client.clone()).await;
                let _ = asked.send(matches!(answer, Err(Error::Closed { .. })));
            }
        });
    }
    for _ in calls {
        assert_eq!(have_asked.recv(), Ok(true));
    }
    drop(have_asked);
    let (ended, has_ended) = mpsc::channel();
    thread::spawn(move || {
        drop(runtime);
        ended.send(())
    });
    assert_eq!(has_ended.recv_timeout(SOON), Ok(()));
}

#[tokio::test]
async fn behind_a_shutdown_no_call_goes_to_a_server() {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.expect("connected");
    let (mutex, rw) = (client.mutex("m"), client.rw_lock("rw"));
    let (semaphore, election) = (client.semaphore("s"), client.election("e"));
    let (queue, latch) = (client.queue("q"), client.latch("l"));
    let (signal, group) = (client.signal("g"), client.signal_group("gg"));
    let held = mutex.lock().await.expect("free");
    let permits = semaphore.with_permits(1);
    let permit = permits.acquire().await.expect("free");
    let [holder, of_permit] = [held.holder(), permit.holder()];
    let who = permits.status().await.expect("an answer").holders.remove(0);
    client.shutdown().await;
    let before = server.requests(&["client", "hello", "info", "ping"]).await;
    let mut answers: Vec<(&str, Option<Error>)> = Vec::new();
    macro_rules! call {
        ($($call:expr),* $(,)?) => {
            $(answers.push((stringify!($call), $call.await.err()));)*
        };
    }
    call![
        mutex.lock(),
        mutex.is_locked(),
        mutex.holder(),
        mutex.remaining_ttl(),
        mutex.status(),
        mutex.force_unlock(),
        mutex.force_unlock_if(&holder),
        rw.read(),
        rw.status(),
        rw.is_locked(),
        rw.force_unlock(),
        rw.force_unlock_if(&of_permit),
        semaphore.set_permits(2),
        semaphore.add_permits(2),
        semaphore.available_permits(),
        semaphore.status(),
        semaphore.returned(),
        semaphore.force_release(&who),
        election.leader(),
        election.state(),
        election.campaign(),
        queue.push("x"),
        queue.push_many(["x"]),
        queue.pop(),
        queue.len(),
        queue.status(),
        queue.dead(1),
        queue.redrive(1),
        latch.try_set_count(1, SOON),
        latch.count_down(),
        latch.count(),
        latch.wait(),
        latch.delete(),
        signal.seen(),
        signal.notify_all(b""),
        signal.changed(0),
        group.seen(),
        group.notify(["a"]),
        group.changed(0),
        client.check(),
        client.blocked(["m"]),
    ];
    for (call, error) in answers {
        assert!(matches!(error, Some(Error::Closed { .. })), "{call}: {error:?}");
    }
    assert_eq!(server.requests(&["client", "hello", "info", "ping"]).await, before);
    drop((held, permit));
}

/// What they wait for may never come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_the_waits_of_workers_and_candidates() {
    let server = Server::start().await;
    let [client, other] = [&server, &server].map(|server| server.url());
    let client = Client::connect(&client).await.expect("connected");
    let other = Client::connect(&other).await.expect("connected");
    let leads = other.election("e").campaign().await.expect("it leads");
    let held = other.mutex("n").lock().await.expect("free");
    let worker = tokio::spawn(client.queue("q").pop());
    let candidate = tokio::spawn(client.election("e").campaign());
    let waiter = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "all wait", async || client.stats().waiters == 3).await;
    let draining = tokio::spawn({
        let client = client.clone();
        async move { client.drain(LIMIT).await }
    });
    let is_drained =
        |error: Error| matches!(error, Error::Closed { reason: ClosedReason::Drained, .. });
    let error = soon("the worker's", worker).await.expect("no panic").expect_err("none");
    assert!(is_drained(error));
    let error = soon("the candidate's", candidate).await.expect("no panic").expect_err("none");
    assert!(is_drained(error));
    assert!(!waiter.is_finished() && !draining.is_finished(), "who waits for a lock goes on");
    client.queue("q").push("x").await.expect("the last thing to do");
    held.unlock().await.expect("held");
    let guard = soon("its turn", waiter).await.expect("no panic").expect("it waited before");
    guard.unlock().await.expect("held");
    assert!(soon("nothing is left", draining).await.expect("no panic"), "nothing is held");
    let late = client.queue("q").pop_with_timeout(SOON).await.expect_err("it is drained");
    assert!(is_drained(late));
    drop(leads);
}
