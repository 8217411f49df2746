//! Many waiters of one client, and the ends of those who wait: in order, at the pace of the server, and nothing stays.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use leasehold::{Client, Error, Guard, Mutex, Owner, ReadGuard, RwLock};
use parking_lot::Mutex as Shared;
use tokio::runtime::Builder;

use crate::{
    checks::{LIMIT, exists, nothing_left, setup, setup_with_proxy, soon},
    fair::make_heard,
    support::{Proxy, Server, eventually, in_time, waiting},
};

const TTL: Duration = Duration::from_secs(1);

async fn with_ttl(server: &Server, ttl: Duration) -> Client {
    let builder = Client::builder().nodes([server.url()]).ttl(ttl);
    builder.connect().await.expect("the server accepts the client")
}

/// Polls a future once, as one who then has other things to do. Returns true if it has ended.
fn poll_once<T>(future: &mut Pin<Box<dyn Future<Output = T> + Send>>) -> bool {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn acquisition(lock: &Mutex) -> Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>> {
    let lock = lock.clone();
    Box::pin(async move { lock.lock().await })
}

fn reading(lock: &RwLock) -> Pin<Box<dyn Future<Output = Result<ReadGuard, Error>> + Send>> {
    Box::pin(lock.read())
}

/// Polls a call once: its request is sent, and its answer comes later.
fn begin<T>(server: &Server, call: &mut Pin<Box<dyn Future<Output = T> + Send>>) {
    // Otherwise another thread may have the answer before this one has asked for it.
    server.pause();
    let is_over = poll_once(call);
    server.resume();
    assert!(!is_over, "it waits for the answer");
}

/// Queues up so many tasks of one client for a fair lock, and returns when all of them had it, in order.
async fn fair_turns(server: &Server, lock: &Mutex, waiters: usize) {
    let held = lock.lock().await.expect("free");
    let order = Arc::new(Shared::new(Vec::new()));
    let tasks: Vec<_> = (0..waiters)
        .map(|number| {
            let (lock, order) = (lock.clone(), order.clone());
            tokio::spawn(async move {
                let guard = lock.lock().await.expect("its turn comes");
                order.lock().push(number);
                guard.unlock().await.expect("held");
            })
        })
        .collect();
    let queued = async || waiting(server, "n").await == waiters as i64;
    eventually(LIMIT, "all are in the queue", queued).await;
    held.unlock().await.expect("held");
    for task in tasks {
        soon("its turn", task).await.expect("no panic");
    }
    assert!(order.lock().is_sorted(), "in the order of their arrival");
}

#[tokio::test]
async fn thousands_of_fair_waiters_of_one_client_are_served_in_order_of_arrival() {
    let server = Server::start().await;
    // A busy machine takes longer than a second for what two thousand have asked for at once.
    let patient = Client::builder().nodes([server.url()]).response_timeout(LIMIT);
    let client = patient.connect().await.expect("the server accepts the client");
    fair_turns(&server, &client.fair_mutex("n"), 2000).await;
    assert_eq!(client.stats().grants_given_back, 0);
    nothing_left(&server, &client).await;
}

/// Their asks take a round trip together, and not one after the other: else the grants would be read too late.
#[tokio::test]
async fn fair_waiters_are_served_over_a_slow_network_too() {
    const WAITERS: usize = 300;
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    proxy.delay_replies(Duration::from_millis(10));
    let began_at = Instant::now();
    fair_turns(&server, &client.fair_mutex("n"), WAITERS).await;
    let took = began_at.elapsed();
    println!("{took:?}");
    proxy.delay_replies(Duration::ZERO);
    nothing_left(&server, &client).await;
}

/// An ask whose answer is late keeps nobody from a turn that is granted by message.
#[tokio::test]
async fn fair_waiters_have_their_turns_while_others_of_their_client_ask() {
    let (server, [other]) = setup().await;
    let proxy = Proxy::start(server.port()).await;
    let builder = Client::builder().nodes([proxy.url()]).ttl(LIMIT * 6);
    let slow = builder.response_timeout(LIMIT * 2).connect().await.expect("connected");
    make_heard(&server, &[&slow]).await;
    let held = other.mutex("n").lock().await.expect("free");
    let lock = slow.fair_mutex("n");
    let first = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    });
    eventually(LIMIT, "it waits", async || waiting(&server, "n").await == 1).await;
    // Behind this answer it has its own.
    lock.status().await.expect("an answer");
    proxy.hold_answers();
    let second = tokio::spawn(async move { lock.lock().await });
    eventually(LIMIT, "it asks", async || waiting(&server, "n").await == 2).await;
    held.unlock().await.expect("held");
    let first = soon("its turn", first).await.expect("no panic").expect("its turn comes");
    proxy.release_replies();
    first.unlock().await.expect("held");
    let second = soon("its turn", second).await.expect("no panic").expect("its turn comes");
    second.unlock().await.expect("held");
    nothing_left(&server, &slow).await;
}

/// A fair one that holds the lock passes it on to nobody of its client.
#[tokio::test]
async fn an_ordinary_waiter_behind_a_fair_holder_of_its_client_stands_in_the_queue() {
    let (server, [client]) = setup().await;
    let held = client.fair_mutex("n").lock().await.expect("free");
    let waiter = tokio::spawn(acquisition(&client.mutex("n")));
    eventually(LIMIT, "it is in the queue", async || waiting(&server, "n").await == 1).await;
    held.unlock().await.expect("held");
    let guard = soon("its turn", waiter).await.expect("no panic").expect("its turn comes");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// One waits for the turn of an ordinary handle while two others take turns by a fair one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordinary_waiter_has_its_turn_beside_fair_ones_of_its_client() {
    const TURNS: usize = 20;
    let (server, [client]) = setup().await;
    let over = Arc::new(AtomicBool::new(false));
    let fair_turns = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let (lock, over, turns) = (client.fair_mutex("n"), over.clone(), fair_turns.clone());
        tasks.push(tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let guard = lock.lock().await.expect("its turn comes");
                turns.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(1)).await;
                guard.unlock().await.expect("held");
            }
        }));
    }
    let lock = client.mutex("n");
    let mut most = 0;
    for _ in 0..TURNS {
        let before = fair_turns.load(Ordering::Relaxed);
        let guard = soon("its turn", lock.lock()).await.expect("its turn comes");
        most = most.max(fair_turns.load(Ordering::Relaxed) - before);
        guard.unlock().await.expect("held");
    }
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        soon("it ends", task).await.expect("no panic");
    }
    println!("{most} others at most");
    // The one who holds it, and the two who queue up while its request is on the way.
    assert!(most <= 6, "{most} others came before it");
    nothing_left(&server, &client).await;
}

/// The client's tasks belong to a runtime that ends, while a guard of it lives on elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_ends_at_once_although_its_tasks_wait_behind_a_guard_that_lives_elsewhere() {
    let server = Server::start().await;
    for round in 0..20 {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("threads");
        let url = server.url();
        let connecting = runtime.spawn(async move { Client::connect(&url).await });
        let client = connecting.await.expect("no panic").expect("connected");
        let name = format!("n{round}");
        let (lock, fair) = (client.mutex(&name), client.fair_mutex(&name));
        let guard = lock.lock().await.expect("free");
        for number in 0..4 {
            let lock = if number < 3 { lock.clone() } else { fair.clone() };
            runtime.spawn(async move { lock.lock().await.map(drop) });
        }
        eventually(LIMIT, "they wait", async || client.stats().waiters == 4).await;
        // Others come and go from elsewhere all the time, so that the client is at work when the end comes.
        let over = Arc::new(AtomicBool::new(false));
        let others = std::thread::spawn({
            let over = over.clone();
            move || {
                while !over.load(Ordering::Relaxed) {
                    poll_once(&mut acquisition(&fair));
                }
            }
        });
        let began_at = Instant::now();
        tokio::task::spawn_blocking(move || drop(runtime)).await.expect("no panic");
        let took = began_at.elapsed();
        over.store(true, Ordering::Relaxed);
        others.join().expect("no panic");
        assert!(took < server.widened(Duration::from_millis(500)), "{took:?}");
        drop(guard);
    }
}

/// What waits in a queue when the client is shut down has left it when the call returns, and what is granted just then is free.
#[tokio::test]
async fn nothing_is_left_on_the_server_when_a_shutdown_returns() {
    let (server, [other]) = setup().await;
    // It asks without letting any task run, so that what is not done yet is seen.
    let raw = redis::Client::open(server.url()).expect("a valid URL");
    let mut raw = raw.get_connection().expect("connected");
    let mut left = move || {
        let queued = redis::cmd("ZCARD").arg("leasehold_queue:{n}").query::<u64>(&mut raw);
        let held = redis::cmd("EXISTS").arg("n").query::<u64>(&mut raw);
        (queued.expect("a queue"), held.expect("a number"))
    };
    for round in 0..40 {
        let client = Client::connect(&server.url()).await.expect("connected");
        let held = other.mutex("n").lock().await.expect("free");
        let fair = round % 2 == 0;
        for _ in 0..4 {
            let lock = if fair { client.fair_mutex("n") } else { client.mutex("n") };
            tokio::spawn(async move { lock.lock().await.map(std::mem::forget) });
        }
        let requests = if fair { 4 } else { 1 };
        let queued = async || waiting(&server, "n").await == requests;
        eventually(LIMIT, "they are in the queue", queued).await;
        match round % 4 {
            // Granted just as it shuts down.
            0 | 1 => drop(tokio::join!(held.unlock(), client.shutdown())),
            _ => {
                client.shutdown().await;
                assert_eq!(left(), (0, 1), "in round {round}");
                held.unlock().await.expect("held");
            }
        }
        assert_eq!(left(), (0, 0), "in round {round}");
    }
}

/// A loop of attempts that never lets others run for long.
#[tokio::test]
async fn an_attempt_overtakes_no_waiter_of_its_own_process() {
    for fair in [false, true] {
        let (server, [client]) = setup().await;
        let lock = client.mutex("n");
        let mut mine = Some(lock.lock().await.expect("free"));
        let waiter = if fair { client.fair_mutex("n") } else { lock.clone() };
        let waiter = tokio::spawn(async move { waiter.lock().await });
        eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
        let mut turns = 0;
        while !waiter.is_finished() {
            if let Some(guard) = mine.take() {
                turns += 1;
                std::thread::sleep(Duration::from_millis(25));
                drop(guard);
            }
            mine = lock.try_lock().await.expect("the server answers");
            assert!(turns < 3, "fair: {fair}: it passes the waiter again and again");
        }
        drop(mine);
        waiter.await.expect("no panic").expect("its turn").unlock().await.expect("held");
        nothing_left(&server, &client).await;
    }
}

/// A call that was begun, and is not polled again, has asked already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_nobody_polls_blocks_nobody() {
    let server = Server::start().await;
    let ttl = TTL * server.slowness().await;
    let client = with_ttl(&server, ttl).await;
    let lock = client.mutex("n");
    let mut kept = acquisition(&lock);
    begin(&server, &mut kept);
    let began_at = Instant::now();
    let guard = soon("its turn", lock.lock()).await.expect("what nobody takes up ends");
    let took = began_at.elapsed();
    assert!(took < server.widened(ttl + Duration::from_secs(1)), "{took:?}");
    assert!(lock.try_lock().await.expect("the server answers").is_none());
    guard.unlock().await.expect("held");
    let guard = soon("it goes on where it was", kept).await.expect("free by now");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// Who does not wait is not told that the servers are away, either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_behind_a_call_that_nobody_polls_asks_by_itself() {
    let server = Server::start().await;
    let client = with_ttl(&server, TTL * server.slowness().await).await;
    let lock = client.mutex("n");
    // The server knows the scripts from here on: nobody would send one again.
    lock.lock().await.expect("free").unlock().await.expect("held");
    let mut kept = acquisition(&lock);
    begin(&server, &mut kept);
    eventually(LIMIT, "it is granted", async || exists(&server, "n").await).await;
    assert!(lock.try_lock().await.expect("the server answers").is_none());
    eventually(LIMIT, "nobody renews it", async || !exists(&server, "n").await).await;
    let guard = lock.try_lock().await.expect("the server answers").expect("it is free");
    guard.unlock().await.expect("held");
    let guard = soon("it goes on where it was", kept).await.expect("free by now");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// It took over from a caller whose answer was slow, and came: that one has the lock, and the servers are not away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_took_over_is_told_who_has_it() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("the proxy passes on");
    let lock = client.mutex("n");
    lock.lock().await.expect("free").unlock().await.expect("held");
    // More than half of what an answer may take.
    proxy.delay_replies(Duration::from_millis(750));
    let asking = tokio::spawn(lock.lock());
    eventually(LIMIT, "it is granted", async || exists(&server, "n").await).await;
    let attempt = lock.try_lock().await;
    assert!(matches!(attempt, Ok(None)), "{attempt:?}");
    let guard = asking.await.expect("no panic").expect("it is free");
    proxy.delay_replies(Duration::ZERO);
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// That it stood still for longer than servers may be away says nothing of the servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_polled_late_asks_again_before_it_calls_a_server_unavailable() {
    let server = Server::start().await;
    let most = Duration::from_secs(2);
    let builder = Client::builder().nodes([server.url()]).ttl(TTL).unavailable_after(most);
    let client = builder.connect().await.expect("the server accepts the client");
    let mut kept = acquisition(&client.mutex("n"));
    begin(&server, &mut kept);
    tokio::time::sleep(most + TTL).await;
    let guard = soon("it goes on where it was", kept).await.expect("the server is well");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// A call that nobody polls for a while, and its gate, which others have used and left meanwhile, know each other still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_polled_late_gets_a_lock_that_its_owner_can_enter_again() {
    let server = Server::start().await;
    let ttl = TTL * server.slowness().await;
    let client = with_ttl(&server, ttl).await;
    let lock = client.mutex("n").owned_by(&Owner::new());
    let mut kept = acquisition(&lock);
    begin(&server, &mut kept);
    let other =
        soon("its turn", client.mutex("n").lock()).await.expect("what nobody takes up ends");
    other.unlock().await.expect("held");
    eventually(LIMIT, "it is free", async || !exists(&server, "n").await).await;
    tokio::time::sleep(ttl).await;
    let guard = soon("it goes on where it was", kept).await.expect("free by now");
    let inner = soon("its owner has it", lock.lock()).await.expect("its own");
    assert_eq!((inner.hold_count(), inner.token()), (2, guard.token()));
    inner.unlock().await.expect("held");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// A waiter whose turn came is not polled: what it was given is another's after a while, and it waits on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_nobody_takes_up_is_over_after_a_lease() {
    let server = Server::start().await;
    let ttl = TTL * server.slowness().await;
    let [here, there] = [with_ttl(&server, ttl).await, with_ttl(&server, ttl).await];
    for (handed_on, lock) in [(true, here.mutex("n")), (false, here.fair_mutex("n"))] {
        let held = here.mutex("n").lock().await.expect("free");
        let mut kept = acquisition(&lock);
        assert!(!poll_once(&mut kept), "it waits");
        let queued = async || handed_on || waiting(&server, "n").await == 1;
        eventually(LIMIT, "it waits", queued).await;
        held.unlock().await.expect("held");
        eventually(LIMIT, "it was granted", async || exists(&server, "n").await).await;
        let began_at = Instant::now();
        let other = there.mutex("n");
        let guard = soon("its turn", other.lock()).await.expect("its turn comes");
        let took = began_at.elapsed();
        println!("{took:?}");
        assert!(took < server.widened(ttl * 2), "{took:?}");
        let mut kept = pin!(kept);
        let early = tokio::time::timeout(Duration::from_millis(100), &mut kept).await;
        assert!(early.is_err(), "another has it");
        guard.unlock().await.expect("held by one only");
        let guard = soon("it has its turn", kept).await.expect("its turn comes");
        guard.unlock().await.expect("held");
        nothing_left(&server, &here).await;
    }
}

/// The second reader is let in beside the first, without the servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_turns_of_readers_that_nobody_takes_up_are_over_after_a_lease() {
    let server = Server::start().await;
    let ttl = TTL * server.slowness().await;
    let [here, there] = [with_ttl(&server, ttl).await, with_ttl(&server, ttl).await];
    let lock = here.rw_lock("n");
    let held = lock.write().await.expect("free");
    let mut kept = [reading(&lock), reading(&lock)];
    assert!(kept.iter_mut().all(|reader| !poll_once(reader)), "they wait");
    held.unlock().await.expect("held");
    eventually(LIMIT, "both have their turn", async || here.stats().waiters == 0).await;
    let began_at = Instant::now();
    let writing = there.rw_lock("n").write();
    let guard = in_time(LIMIT + ttl * 2, "its turn", writing).await.expect("its turn comes");
    let took = began_at.elapsed();
    assert!(took < server.widened(ttl * 2), "{took:?}");
    guard.unlock().await.expect("held by one only");
    for reader in kept {
        let guard = soon("it has its turn", reader).await.expect("its turn comes");
        guard.unlock().await.expect("held");
    }
    nothing_left(&server, &here).await;
}

/// Its owner never had a guard of what it was given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_turns_of_one_owner_that_nobody_takes_up_are_no_loss() {
    let server = Server::start().await;
    let ttl = TTL * server.slowness().await;
    let [here, there] = [with_ttl(&server, ttl).await, with_ttl(&server, ttl).await];
    let owner = Owner::new();
    let lock = here.mutex("n").owned_by(&owner);
    let held = here.mutex("n").lock().await.expect("free");
    let mut kept = [acquisition(&lock), acquisition(&lock)];
    assert!(kept.iter_mut().all(|waiter| !poll_once(waiter)), "they wait");
    held.unlock().await.expect("held");
    eventually(LIMIT, "both have their turn", async || here.stats().waiters == 0).await;
    let other = in_time(LIMIT + ttl * 2, "its turn", there.mutex("n").lock()).await;
    other.expect("its turn comes").unlock().await.expect("held");
    let mut guards = Vec::new();
    for waiter in kept {
        guards.push(soon("it has its turn", waiter).await.expect("its turn comes"));
    }
    drop(guards);
    nothing_left(&server, &here).await;
}
