//! Waiting: what is held meanwhile, and when and how it ends.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, MultiLock, SelfWait};

use super::{LIMIT, MS, are_held, names, taken, token};
use crate::checks::{client_is_idle, connect, nothing_left, setup, setup_with_proxy, soon};
use crate::support::{Server, eventually, subscribers, waiting};

/// Waits until a client waits for the lock in the server's queue.
async fn is_waited_for(server: &Server, name: &str) {
    let waits = async || waiting(server, name).await == 1;
    eventually(LIMIT, &format!("somebody waits for {name}"), waits).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_those_before_the_one_that_is_waited_for_are_held() {
    let (server, [client, other]) = setup().await;
    let held = other.mutex("c").lock().await.expect("free");
    let waits = tokio::spawn(client.multi_lock(["d", "a", "c", "b", "e"]).lock());
    is_waited_for(&server, "c").await;
    are_held(&other, &["a", "b"], true).await;
    are_held(&other, &["d", "e"], false).await;
    // Who takes one of those that are free now is waited for later.
    let also_held = other.mutex("e").lock().await.expect("free");
    held.unlock().await.expect("held");
    is_waited_for(&server, "e").await;
    are_held(&other, &["a", "b", "c", "d"], true).await;
    also_held.unlock().await.expect("held");
    let guard = soon("all are taken", waits).await.expect("no panic").expect("free");
    assert_eq!(names(&guard), ["d", "a", "c", "b", "e"]);
    assert!(guard.is_held());
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// It has no limit, so it was not too short for an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_without_a_limit_never_ends_as_too_short() {
    let (server, [other, _]) = setup().await;
    let builder = Client::builder().nodes([server.url()]).response_timeout(9000 * MS);
    let client = builder.unavailable_after(1000 * MS).connect().await.expect("connected");
    let held = other.mutex("b").lock().await.expect("free");
    let waits = tokio::spawn(client.multi_lock(["a", "b"]).lock());
    is_waited_for(&server, "b").await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let error = soon("it ends", waits).await.expect("no panic").expect_err("no writes");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    held.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// Another library shares no order with us: its client may wait for what comes before the lock that it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_client_of_another_library_nothing_is_held() {
    let (server, [client, other]) = setup().await;
    server.command(&["HSET", "b", "0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f01:42", "1"]).await;
    server.command(&["PEXPIRE", "b", "60000"]).await;
    let waits = tokio::spawn(client.multi_lock(["b", "a", "c"]).lock());
    is_waited_for(&server, "b").await;
    are_held(&other, &["a", "c"], false).await;
    // It takes what it waits for, and then is done with both.
    let held = other.mutex("a").lock().await.expect("free");
    server.command(&["DEL", "b"]).await;
    server.command(&["PUBLISH", "redisson_lock__channel:{b}", "0"]).await;
    // Now one of ours has the lock that is missing, and that one shares the order.
    is_waited_for(&server, "a").await;
    held.unlock().await.expect("held");
    let guard = soon("all are taken", waits).await.expect("no panic").expect("free");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_names_the_lock_that_was_waited_for_and_its_holder() {
    const WAIT: Duration = Duration::from_millis(300);
    let (server, [client, other]) = setup().await;
    let held = other.mutex("b").lock().await.expect("free");
    let locks = client.multi_lock(["c", "b", "a"]);
    let began_at = Instant::now();
    let error = locks.lock_with_timeout(WAIT).await.expect_err("it is held");
    let took = began_at.elapsed();
    let Error::Timeout { lock, holder, waited, .. } = &error else { panic!("{error:?}") };
    assert_eq!((&**lock, holder.as_ref()), ("b", Some(&held.holder())));
    assert!(*waited >= WAIT && took >= WAIT && *waited <= took, "{waited:?} of {took:?}");
    assert!(took < server.widened(2 * WAIT), "{took:?}");
    are_held(&other, &["a", "c"], false).await;
    assert!(locks.try_lock_for(20 * MS).await.expect("an answer").is_none());
    let error = locks.lock_with_timeout(Duration::ZERO).await.expect_err("it is held");
    assert!(matches!(&error, Error::Timeout { lock, .. } if &**lock == "b"), "{error:?}");
    held.unlock().await.expect("held");
    taken(&locks).await.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_one_process_wait_for_each_other() {
    let (server, [client]) = setup().await;
    let guard = taken(&client.multi_lock(["a", "b"])).await;
    let tokens: Vec<u64> = guard.tokens().map(|(_, token)| token).collect();
    assert!(client.multi_lock(["b", "c"]).try_lock().await.expect("an answer").is_none());
    let waits = tokio::spawn(client.multi_lock(["b", "a"]).lock());
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
    guard.unlock().await.expect("held");
    let next = soon("its turn comes", waits).await.expect("no panic").expect("free");
    assert!(token(&next, "a") > tokens[0] && token(&next, "b") > tokens[1]);
    next.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fair_locks_are_had_in_the_order_of_arrival() {
    let (server, [client, other]) = setup().await;
    let held = other.mutex("b").lock().await.expect("free");
    let both = MultiLock::of([client.fair_mutex("a"), client.fair_mutex("b")]);
    let first = tokio::spawn(both.lock());
    is_waited_for(&server, "b").await;
    let second = tokio::spawn(client.fair_mutex("b").lock());
    let queued = async || waiting(&server, "b").await == 2;
    eventually(LIMIT, "both wait for b", queued).await;
    held.unlock().await.expect("held");
    let first = soon("the first comes", first).await.expect("no panic").expect("its turn");
    assert!(!second.is_finished());
    first.unlock().await.expect("held");
    drop(soon("then the second", second).await.expect("no panic").expect("its turn"));
    nothing_left(&server, &client).await;
}

/// It is released, and the waiter of another client gets it by a message, also while others are still waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_back_for_the_order_wakes_those_who_wait_for_it() {
    let (server, [client, other, third]) = setup().await;
    let guard = taken(&client.multi_lock(["b", "c"])).await;
    let waits = tokio::spawn(third.mutex("c").lock());
    is_waited_for(&server, "c").await;
    let held = other.mutex("a").lock().await.expect("free");
    guard.unlock().await.expect("held");
    let at_c = soon("c is passed on", waits).await.expect("no panic").expect("its turn");
    let all = tokio::spawn(client.multi_lock(["c", "b", "a"]).lock());
    is_waited_for(&server, "a").await;
    at_c.unlock().await.expect("held");
    are_held(&other, &["b", "c"], false).await;
    held.unlock().await.expect("held");
    drop(soon("all are taken", all).await.expect("no panic").expect("free"));
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_server_that_is_silent_ends_when_it_should() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let locks = client.multi_lock(["a", "b"]);
    proxy.black_hole(true);
    // Less than an answer may take, and more.
    for wait in [200 * MS, 1500 * MS] {
        let began_at = Instant::now();
        let error = soon("it ends", locks.lock_with_timeout(wait)).await.expect_err("silence");
        let took = began_at.elapsed();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(took >= wait && took < server.widened(wait + 500 * MS), "{took:?} of {wait:?}");
    }
    let error = soon("it ends", locks.try_lock()).await.expect_err("silence");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    proxy.black_hole(false);
    proxy.cut();
    taken(&locks).await.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// What it said is the reason, whatever the others would have said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_beside_one_that_is_silent_is_heard() {
    let (server, [other]) = setup().await;
    let silent = Server::start().await;
    let patient = async |server: &Server| {
        let builder = Client::builder().nodes([server.url()]).response_timeout(LIMIT);
        builder.connect().await.expect("connected")
    };
    let (near, far) = (patient(&server).await, patient(&silent).await);
    let held = other.mutex("b").lock().await.expect("free");
    silent.pause();
    let locks = MultiLock::of([far.mutex("a"), near.mutex("b")]);
    // Less than an answer may take.
    let error = soon("it ends", locks.lock_with_timeout(3000 * MS)).await.expect_err("held");
    assert!(matches!(&error, Error::Timeout { lock, .. } if &**lock == "b"), "{error:?}");
    silent.resume();
    held.unlock().await.expect("held");
    nothing_left(&silent, &far).await;
    nothing_left(&server, &near).await;
}

/// As for one lock, a server may be silent for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_silent_when_all_are_held_is_waited_for() {
    let (_server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).response_timeout(200 * MS);
    let far = builder.connect().await.expect("connected");
    let (other_server, [near, other]) = setup().await;
    let held = other.mutex("b").lock().await.expect("free");
    // Its shortest hold begins when all are held, so its server is asked once more then.
    let job = far.mutex("a").with_ttl(900 * MS).with_min_hold(LIMIT);
    let locks = MultiLock::of([job, near.mutex("b")]);
    let waits = tokio::spawn(locks.lock());
    is_waited_for(&other_server, "b").await;
    proxy.black_hole(true);
    held.unlock().await.expect("held");
    eventually(LIMIT, "its server has not answered", async || !far.is_ready()).await;
    proxy.black_hole(false);
    let both = soon("all are held", waits).await.expect("no panic").expect("held");
    assert!(both.is_held());
    drop(both);
    client_is_idle(&far).await;
    nothing_left(&other_server, &near).await;
}

/// What it waits for comes after what it has, and a drain waits for both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_began_before_a_drain_goes_on_to_the_last_lock() {
    let (server, [client, other]) = setup().await;
    let [first, second] = [other.mutex("a"), other.mutex("b")];
    let held = [first.lock().await.expect("free"), second.lock().await.expect("free")];
    let waits = tokio::spawn(client.multi_lock(["a", "b", "c"]).lock());
    is_waited_for(&server, "a").await;
    let draining = tokio::spawn({
        let client = client.clone();
        async move { client.drain(LIMIT).await }
    });
    let refused = async || matches!(client.mutex("m").try_lock().await, Err(Error::Closed { .. }));
    eventually(LIMIT, "it drains", refused).await;
    let [first, second] = held;
    first.unlock().await.expect("held");
    is_waited_for(&server, "b").await;
    second.unlock().await.expect("held");
    let guard = soon("all are taken", waits).await.expect("no panic").expect("it went on");
    assert!(!draining.is_finished(), "they are held");
    guard.unlock().await.expect("held");
    assert!(soon("nothing is held", draining).await.expect("no panic"));
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_ends_the_wait_and_leaves_nothing() {
    let (server, [client, other]) = setup().await;
    let held = other.mutex("b").lock().await.expect("free");
    let waits = tokio::spawn(client.multi_lock(["a", "b"]).lock());
    is_waited_for(&server, "b").await;
    client.shutdown().await;
    let error = soon("it ends", waits).await.expect("no panic").expect_err("closed");
    assert!(matches!(error, Error::Closed { .. }), "{error:?}");
    are_held(&other, &["a"], false).await;
    held.unlock().await.expect("held");
    let error = client.multi_lock(["a", "b"]).try_lock().await.expect_err("closed");
    assert!(matches!(error, Error::Closed { .. }), "{error:?}");
}

#[tokio::test]
async fn a_task_that_waits_for_itself_is_found() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).self_wait(SelfWait::Fail);
    let client = builder.connect().await.expect("connected");
    let guard = client.mutex("b").lock().await.expect("free");
    let error = soon("it is refused", client.multi_lock(["a", "b"]).lock()).await;
    let error = error.expect_err("it is held");
    assert!(matches!(&error, Error::SelfWait { lock, .. } if &**lock == "b"), "{error:?}");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// A client of another library waits so: it is told on the channel of the lock that was given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_listens_after_a_wait() {
    let (server, [client, other]) = setup().await;
    let held = other.mutex("b").lock().await.expect("free");
    let waits = tokio::spawn(client.multi_lock(["a", "b", "c"]).lock());
    is_waited_for(&server, "b").await;
    waits.abort();
    assert!(waits.await.is_err_and(|error| error.is_cancelled()));
    eventually(LIMIT, "nobody waits", async || waiting(&server, "b").await == 0).await;
    for name in ["a", "b", "c"] {
        let unheard = async || {
            let channel = format!("redisson_lock__channel:{{{name}}}");
            subscribers(&server, &channel).await == 0
        };
        eventually(LIMIT, "nobody listens", unheard).await;
    }
    are_held(&connect(&server).await, &["a", "c"], false).await;
    held.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}
