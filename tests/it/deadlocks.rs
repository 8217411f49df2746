//! Owners of one process that wait for each other: the wait that closes the circle is told, and no other.

mod permits;
mod processes;

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use leasehold::{Client, Deadlocks, Error, Owner, blocking};
use tokio::sync::Barrier;

use crate::{
    checks::{LIMIT, client_is_idle, connect, nothing_left, setup, soon},
    fair::make_heard,
    logging::Log,
    support::{Run, Server, Spy, eventually, in_time, waiting},
};

const MS: Duration = Duration::from_millis(1);

async fn connect_with(server: &Server, reaction: Deadlocks) -> Client {
    let builder = Client::builder().nodes([server.url()]).deadlocks(reaction);
    builder.connect().await.expect("connected")
}

/// What each part of a circle holds and waits for.
fn circle(error: &Error) -> Vec<(String, String)> {
    let Error::Deadlock { cycle, .. } = error else { panic!("{error:?}") };
    cycle.iter().map(|part| (part.holds.to_string(), part.waits_for.to_string())).collect()
}

fn parts(parts: &[(&str, &str)]) -> Vec<(String, String)> {
    parts.iter().map(|(holds, waits)| ((*holds).to_owned(), (*waits).to_owned())).collect()
}

async fn waits(client: &Client, how_many: usize) {
    eventually(LIMIT, "they wait", async || client.stats().waiters == how_many).await;
}

/// A candidate may wait for as long as it likes: two services that each lead one election are candidates in the other's.
#[tokio::test]
async fn candidates_that_lead_crosswise_are_no_deadlock() {
    let server = Server::start().await;
    let clients = [
        connect_with(&server, Deadlocks::Fail).await,
        connect_with(&server, Deadlocks::Fail).await,
    ];
    let both_lead = Arc::new(Barrier::new(2));
    let lead = |client: &Client, names: [&'static str; 2]| {
        let (client, both_lead) = (client.clone(), both_lead.clone());
        tokio::spawn(async move {
            let [own, other] = names.map(|name| client.election(name));
            let _leads = own.campaign().await?;
            both_lead.wait().await;
            match tokio::time::timeout(1500 * MS, other.campaign()).await {
                Ok(led) => led.map(|_| panic!("it is led")),
                Err(_) => Ok::<_, Error>(()),
            }
        })
    };
    for candidate in [lead(&clients[0], ["a", "b"]), lead(&clients[1], ["b", "a"])] {
        soon("it gives up", candidate).await.expect("no panic").expect("it waits");
    }
    nothing_left(&server, &clients[0]).await;
}

/// In one client, and over two of one process.
#[tokio::test]
async fn the_task_that_closes_a_circle_fails_and_the_other_goes_on() {
    let server = Server::start().await;
    let one = connect_with(&server, Deadlocks::Fail).await;
    for other in [one.clone(), connect_with(&server, Deadlocks::Fail).await] {
        let (a, b) = (other.mutex("a"), one.mutex("b"));
        let held = one.mutex("a").owned_by(&Owner::named("x")).lock().await.expect("free");
        let first = tokio::spawn({
            let (own, wanted) = (other.mutex("b"), other.mutex("a"));
            Owner::named("y").scope(async move {
                let _b = own.lock().await?;
                wanted.lock().await.map(drop)
            })
        });
        waits(&other, 1).await;
        let error = b.owned_by(held.owner()).lock().await.expect_err("it would last for ever");
        assert_eq!(circle(&error), parts(&[("a", "b"), ("b", "a")]));
        assert!(!first.is_finished(), "only the last one is told");
        held.unlock().await.expect("held");
        soon("the other goes on", first).await.expect("no panic").expect("it gets the lock");
        drop(a);
        nothing_left(&server, &one).await;
        client_is_idle(&other).await;
    }
}

#[tokio::test]
async fn a_wait_with_a_limit_is_no_deadlock_for_any_other() {
    let server = Server::start().await;
    let client = connect_with(&server, Deadlocks::Fail).await;
    let (x, y) = (Owner::named("x"), Owner::named("y"));
    let held = client.mutex("a").owned_by(&x).lock().await.expect("free");
    let other = client.mutex("b").owned_by(&y).lock().await.expect("free");
    let first = tokio::spawn(client.mutex("a").owned_by(&y).lock_with_timeout(LIMIT));
    waits(&client, 1).await;
    let limited = client.mutex("b").owned_by(&x).lock_with_timeout(50 * MS).await;
    assert!(matches!(limited, Err(Error::Timeout { .. })), "{limited:?}");
    let second = tokio::spawn(client.mutex("b").owned_by(&x).lock());
    waits(&client, 2).await;
    assert!(!first.is_finished() && !second.is_finished());
    other.unlock().await.expect("held");
    drop(soon("it was no deadlock", second).await.expect("no panic").expect("freed"));
    held.unlock().await.expect("held");
    drop(soon("freed, too", first).await.expect("no panic").expect("freed"));
    nothing_left(&server, &client).await;
}

/// The hold's lease is not renewed, so the circle ends with it: it is told, and nobody fails.
#[tokio::test]
async fn a_hold_that_ends_by_itself_is_no_deadlock_for_any_other() {
    let (log, _listening) = Log::listen();
    let server = Server::start().await;
    let client = connect_with(&server, Deadlocks::Fail).await;
    let (x, y) = (Owner::named("x"), Owner::named("y"));
    let most = server.slowness().await * 1500 * MS;
    let lock = client.mutex("a").owned_by(&x);
    let passing = [lock.with_lease(most), lock.with_ttl(most).with_max_hold(most)];
    for (before, lock) in passing.into_iter().enumerate() {
        let held = lock.lock().await.expect("free");
        let first = tokio::spawn({
            let (own, wanted) = (client.mutex("b"), client.mutex("a"));
            y.scope(async move {
                let own = own.lock().await?;
                wanted.lock().await?.unlock().await?;
                own.unlock().await
            })
        });
        waits(&client, 1).await;
        let last = client.mutex("b").owned_by(&x).lock();
        let last = in_time(LIMIT + 3 * most, "the hold ends", last).await.expect("no deadlock");
        first.await.expect("no panic").expect("it gets the lock");
        let told = "owners of this process wait for each other until a wait or a lease ends";
        assert!(log.has(&["INFO", told, "lock=\"b\""]), "{}", log.text());
        assert_eq!(log.text().matches(told).count(), before + 1, "{}", log.text());
        last.unlock().await.expect("held");
        drop(held);
        nothing_left(&server, &client).await;
    }
}

/// Another branch or another task may give the guard back: see `SelfWait`.
#[tokio::test]
async fn a_task_that_waits_for_a_lock_that_it_took_itself_is_no_deadlock() {
    let server = Server::start().await;
    let client = connect_with(&server, Deadlocks::Fail).await;
    let held = client.mutex("a").lock().await.expect("free");
    let again = async { soon("its turn", client.mutex("a").lock()).await.expect("no deadlock") };
    let gives_back = async {
        waits(&client, 1).await;
        held.unlock().await.expect("held");
    };
    let (guard, ()) = tokio::join!(again, gives_back);
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// Two clients have one name, and each server a lock `n`. The one that is waited for is held by another process of that name.
#[tokio::test]
async fn a_lock_of_the_same_name_on_another_server_is_in_nobodys_way() {
    let servers = [Server::start().await, Server::start().await];
    let named = async |server: &Server| {
        let builder = Client::builder().nodes([server.url()]).name("app");
        builder.deadlocks(Deadlocks::Fail).connect().await.expect("connected")
    };
    let [here, there] = [named(&servers[0]).await, named(&servers[1]).await];
    let holder = "app:0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f01";
    servers[0].command(&["HSET", "n", holder, "1"]).await;
    servers[0].command(&["PEXPIRE", "n", "2000"]).await;
    let (x, y) = (Owner::named("x"), Owner::named("y"));
    let held = there.mutex("m").owned_by(&x).lock().await.expect("free");
    let other = there.mutex("n").owned_by(&y).lock().await.expect("free");
    let first = tokio::spawn(there.mutex("m").owned_by(&y).lock());
    waits(&there, 1).await;
    let last = tokio::spawn(here.mutex("n").owned_by(&x).lock());
    drop(soon("the lease ends", last).await.expect("no panic").expect("it was no deadlock"));
    held.unlock().await.expect("held");
    drop(soon("freed", first).await.expect("no panic").expect("freed"));
    other.unlock().await.expect("held");
    nothing_left(&servers[0], &here).await;
    nothing_left(&servers[1], &there).await;
}

/// Over two clients a wait is looked at again each time that the server refuses it.
#[tokio::test]
async fn a_circle_is_warned_of_once_however_often_its_waits_are_refused() {
    let (log, _listening) = Log::listen();
    let (server, [one, two]) = setup().await;
    let (x, y) = (Owner::named("x"), Owner::named("y"));
    let held = one.mutex("a").owned_by(&x).lock().await.expect("free");
    let other = two.mutex("b").owned_by(&y).lock().await.expect("free");
    let first = tokio::spawn(two.mutex("a").owned_by(&y).lock());
    waits(&two, 1).await;
    let last = tokio::spawn(one.mutex("b").owned_by(&x).lock());
    waits(&one, 1).await;
    let spy = Spy::on(&server).await;
    let asks = |name| {
        let is_ask = |run: &Run| run.script == "lock_acquire" && run.words[0] == name;
        spy.runs().into_iter().filter(is_ask).count()
    };
    for _ in 0..2 {
        // A message may have been missed meanwhile.
        let before = ["a", "b"].map(asks);
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        let again = async || asks("a") > before[0] && asks("b") > before[1];
        eventually(LIMIT, "both ask again", again).await;
        one.mutex("b").is_locked().await.expect("an answer behind that to its ask");
        two.mutex("a").is_locked().await.expect("an answer behind that to its ask");
    }
    let text = log.text();
    let told =
        text.lines().filter(|line| line.contains("owners of this process wait for each other"));
    assert_eq!(told.count(), 1, "{text}");
    other.unlock().await.expect("held");
    drop(soon("freed", last).await.expect("no panic").expect("freed"));
    held.unlock().await.expect("held");
    drop(soon("freed, too", first).await.expect("no panic").expect("freed"));
    nothing_left(&server, &one).await;
    client_is_idle(&two).await;
}

/// The server tells only the first in its queue who has the lock now. The others learn of it when they ask again.
#[tokio::test]
async fn a_circle_over_two_clients_is_found_when_the_one_behind_learns_who_has_the_lock() {
    let (server, [before, between]) = setup().await;
    let one = connect_with(&server, Deadlocks::Fail).await;
    let two = connect_with(&server, Deadlocks::Fail).await;
    make_heard(&server, &[&one, &between, &two]).await;
    let (x, y) = (Owner::named("x"), Owner::named("y"));
    let held = before.mutex("a").lock().await.expect("free");
    let other = two.mutex("b").owned_by(&y).lock().await.expect("free");
    let mut queue = Vec::new();
    for lock in [one.mutex("a").owned_by(&x), between.mutex("a"), two.mutex("a").owned_by(&y)] {
        queue.push(tokio::spawn(lock.lock()));
        let queued = async || waiting(&server, "a").await == queue.len() as i64;
        eventually(LIMIT, "it is in the queue", queued).await;
    }
    waits(&two, 1).await;
    let [third, second, first] = [(); 3].map(|()| queue.pop().expect("three wait"));
    held.unlock().await.expect("held");
    let held = soon("its turn", first).await.expect("no panic").expect("freed");
    let last = tokio::spawn(one.mutex("b").owned_by(&x).lock());
    waits(&one, 1).await;
    assert!(!third.is_finished(), "it does not know that");
    // Who tries has the one that waits ask.
    assert!(two.mutex("a").try_lock().await.expect("an answer").is_none());
    let error = soon("it is told", third).await.expect("no panic").expect_err("it is a circle");
    assert_eq!(circle(&error), parts(&[("b", "a"), ("a", "b")]));
    other.unlock().await.expect("held");
    drop(soon("freed", last).await.expect("no panic").expect("freed"));
    held.unlock().await.expect("held");
    drop(soon("freed, too", second).await.expect("no panic").expect("freed"));
    nothing_left(&server, &one).await;
    client_is_idle(&two).await;
}

/// As is the default: what tasks do is told, and they go on waiting.
#[tokio::test]
async fn by_default_tasks_wait_on_and_a_wait_that_was_dropped_closes_nothing() {
    let (log, _listening) = Log::listen();
    let server = Server::start().await;
    let client = connect(&server).await;
    let (x, y) = (Owner::named("x"), Owner::named("y"));
    let held = client.mutex("a").owned_by(&x).lock().await.expect("free");
    let other = client.mutex("b").owned_by(&y).lock().await.expect("free");
    let first = tokio::spawn(client.mutex("a").owned_by(&y).lock());
    waits(&client, 1).await;
    let second = tokio::spawn(client.mutex("b").owned_by(&x).lock());
    waits(&client, 2).await;
    let told = "owners of this process wait for each other: they may wait forever";
    assert!(log.has(&["WARN", told, "lock=\"b\""]), "{}", log.text());
    first.abort();
    waits(&client, 1).await;
    other.unlock().await.expect("held");
    drop(soon("freed", second).await.expect("no panic").expect("freed"));
    held.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// By default: threads cannot release anything while they wait.
#[test]
fn the_thread_that_closes_a_circle_fails_and_the_other_goes_on() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let client = blocking::Client::connect(&server.url()).expect("connected");
    let guard = client.mutex("a").lock().expect("free");
    let (taken, told) = mpsc::channel();
    let other = thread::spawn({
        let client = client.clone();
        move || {
            let _b = client.mutex("b").lock().expect("free");
            taken.send(()).expect("the test listens");
            client.mutex("a").lock().map(drop)
        }
    });
    told.recv().expect("it has it");
    runtime.block_on(eventually(LIMIT, "it waits", async || client.stats().waiters == 1));
    // It counts as a waiter a moment before its wait can be part of a circle, so either thread may be the last.
    let here = client.mutex("b").lock().map(drop);
    drop(guard);
    let there = other.join().expect("no panic");
    let (error, circle_of_it) = match (here, there) {
        (Err(error), Ok(())) => (error, [("a", "b"), ("b", "a")]),
        (Ok(()), Err(error)) => (error, [("b", "a"), ("a", "b")]),
        both => panic!("one of them fails, and the other goes on: {both:?}"),
    };
    assert_eq!(circle(&error), parts(&circle_of_it));
}

/// A task that takes a lock, and then waits for what this test holds.
async fn task_waits_with(client: &Client, name: &'static str, wanted: &'static str) {
    let (own, wanted) = (client.mutex(name), client.mutex(wanted));
    tokio::spawn(async move {
        let _own = own.lock().await.expect("free");
        wanted.lock().await.map(drop).expect("the other one gives way");
    });
    waits(client, 1).await;
}

#[tokio::test]
async fn the_locks_of_a_multi_lock_and_of_a_body_of_run_are_parts_of_a_circle() {
    let server = Server::start().await;
    let client = connect_with(&server, Deadlocks::Fail).await;
    let several = client.multi_lock(["a", "b"]).lock().await.expect("free");
    task_waits_with(&client, "c", "b").await;
    let error = client.mutex("c").lock().await.expect_err("it would last for ever");
    assert_eq!(circle(&error), parts(&[("b", "c"), ("c", "b")]));
    several.unlock().await.expect("held");
    waits(&client, 0).await;
    let body = client.mutex("a").run(async |_| {
        task_waits_with(&client, "c", "a").await;
        client.mutex("c").lock().await.expect_err("it would last for ever")
    });
    let error = body.await.expect("held");
    assert_eq!(circle(&error), parts(&[("a", "c"), ("c", "a")]));
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn any_reader_that_waits_for_the_writer_closes_the_circle() {
    let server = Server::start().await;
    let client = connect_with(&server, Deadlocks::Fail).await;
    let _elsewhere =
        tokio::spawn(client.rw_lock("r").read()).await.expect("no panic").expect("free");
    let held = client.mutex("a").lock().await.expect("free");
    let (lock, wanted) = (client.rw_lock("r"), client.mutex("a"));
    let reader = tokio::spawn(async move {
        let _read = lock.read().await.expect("free for readers");
        wanted.lock().await.map(drop)
    });
    // If it came late, it waits for the first one, too, until the server has let it in.
    eventually(LIMIT, "it reads and waits for the other lock", async || {
        client.holds().len() == 3 && client.stats().waiters == 1
    })
    .await;
    let error = client.rw_lock("r").write().await.expect_err("it would last for ever");
    assert_eq!(circle(&error), parts(&[("a", "r"), ("r", "a")]));
    held.unlock().await.expect("held");
    soon("the reader goes on", reader).await.expect("no panic").expect("it gets the lock");
}

/// Takes `a`, and reads `r` under it.
fn reads_under_a(client: &Client) -> impl Future<Output = Result<(), Error>> + Send + use<> {
    let (own, lock) = (client.mutex("a"), client.rw_lock("r"));
    async move {
        let _own = own.lock().await?;
        lock.read().await.map(drop)
    }
}

/// The writer before it waits for those who read.
#[tokio::test]
async fn a_reader_behind_a_writer_waits_for_those_who_read() {
    let server = Server::start().await;
    let client = connect_with(&server, Deadlocks::Fail).await;
    let read = client.rw_lock("r").read().await.expect("free");
    let writer = tokio::spawn(client.rw_lock("r").write());
    waits(&client, 1).await;
    let reader = tokio::spawn(reads_under_a(&client));
    waits(&client, 2).await;
    let error = soon("it is told", client.mutex("a").lock()).await;
    let error = error.expect_err("it would last forever");
    assert_eq!(circle(&error), parts(&[("r", "a"), ("a", "r")]));
    read.unlock().await.expect("held");
    drop(soon("the writer goes on", writer).await.expect("no panic").expect("freed"));
    soon("the reader, too", reader).await.expect("no panic").expect("freed");
    nothing_left(&server, &client).await;
}

/// The writer before it will give up.
#[tokio::test]
async fn a_reader_behind_a_writer_with_a_limit_waits_for_nobody_who_reads() {
    let server = Server::start().await;
    let client = connect_with(&server, Deadlocks::Fail).await;
    let x = Owner::named("x");
    let read = client.rw_lock("r").owned_by(&x).read().await.expect("free");
    let writer = tokio::spawn(client.rw_lock("r").write_with_timeout(LIMIT));
    waits(&client, 1).await;
    let reader = tokio::spawn(reads_under_a(&client));
    waits(&client, 2).await;
    let last = tokio::spawn(client.mutex("a").owned_by(&x).lock());
    let waits_or_fails = async || client.stats().waiters == 3 || last.is_finished();
    eventually(LIMIT, "it waits", waits_or_fails).await;
    writer.abort();
    drop(soon("it goes on", last).await.expect("no panic").expect("it was no deadlock"));
    soon("the reader, too", reader).await.expect("no panic").expect("nobody writes");
    read.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}
