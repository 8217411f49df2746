//! Circles through the permits of a semaphore: one is told if no permits come back before somebody in it gives way, and only then.

use std::{
    sync::{Arc, mpsc},
    thread,
};

use leasehold::{Client, Deadlocks, Error, Permit, Semaphore, blocking};
use tokio::{sync::Notify, task::JoinHandle};

use super::{MS, circle, connect_with, parts, waits};
use crate::{
    checks::{LIMIT, client_is_idle, soon},
    support::{Server, eventually},
};

/// A task that takes one thing, and then waits for another.
fn holds_and_waits<A, B>(
    take: impl Future<Output = Result<A, Error>> + Send + 'static,
    then: impl Future<Output = Result<B, Error>> + Send + 'static,
) -> Task
where
    A: Send,
    B: Send,
{
    tokio::spawn(async move {
        let _taken = take.await?;
        then.await.map(drop)
    })
}

/// Begins when it is told to.
fn later<F: Future>(go: &Arc<Notify>, then: F) -> impl Future<Output = F::Output> + use<F> {
    let go = go.clone();
    async move {
        go.notified().await;
        then.await
    }
}

/// A task that has the lock `m`, and waits for a permit when it is told to.
async fn has_the_lock(client: &Client, semaphore: &Semaphore, go: &Arc<Notify>) -> Task {
    let before = client.holds().len();
    let task = holds_and_waits(client.mutex("m").lock(), later(go, semaphore.acquire()));
    eventually(LIMIT, "it has it", async || client.holds().len() > before).await;
    task
}

/// A task that has a permit, and is the `how_many`th to wait: for the lock `m`.
async fn has_a_permit(client: &Client, semaphore: &Semaphore, how_many: usize) -> Task {
    let task = holds_and_waits(semaphore.acquire(), client.mutex("m").lock());
    waits(client, how_many).await;
    task
}

type Task = JoinHandle<Result<(), Error>>;

/// A task that takes something, and has it until it is aborted.
async fn holds<A: Send>(
    client: &Client,
    take: impl Future<Output = Result<A, Error>> + Send + 'static,
) -> JoinHandle<()> {
    let before = client.holds().len();
    let task = tokio::spawn(async move {
        let _taken = take.await.expect("free");
        std::future::pending().await
    });
    eventually(LIMIT, "it has it", async || client.holds().len() > before).await;
    task
}

/// Nobody is told anything for a while.
async fn all_wait(client: &Client, how_many: usize) {
    waits(client, how_many).await;
    tokio::time::sleep(200 * MS).await;
    assert_eq!(client.stats().waiters, how_many, "somebody was told of a deadlock that is none");
}

async fn ends_well(task: Task) {
    soon("it goes on", task).await.expect("no panic").expect("it gets what it waits for");
}

#[tokio::test]
async fn two_tasks_that_each_wait_for_the_others_permit() {
    let server = Server::start().await;
    let client = connect_with(&server, Deadlocks::Fail).await;
    let (a, b) = (client.semaphore("a").with_permits(1), client.semaphore("b").with_permits(1));
    let held = a.acquire().await.expect("free");
    let other = holds_and_waits(b.acquire(), a.acquire());
    waits(&client, 1).await;
    let error = b.acquire().await.expect_err("it would last forever");
    assert_eq!(circle(&error), parts(&[("a", "b"), ("b", "a")]));
    assert!(!other.is_finished(), "only the last one is told");
    held.release().await.expect("held");
    ends_well(other).await;
    client_is_idle(&client).await;
}

/// Over two clients of the process.
#[tokio::test]
async fn a_permit_and_a_lock_are_parts_of_a_circle_whichever_wait_is_the_last() {
    let server = Server::start().await;
    let one = connect_with(&server, Deadlocks::Fail).await;
    for other in [one.clone(), connect_with(&server, Deadlocks::Fail).await] {
        let permit = one.semaphore("s").with_permits(1).acquire().await.expect("free");
        let task = holds_and_waits(
            other.mutex("m").lock(),
            other.semaphore("s").with_permits(1).acquire(),
        );
        waits(&other, 1).await;
        let error = one.mutex("m").lock().await.expect_err("it would last forever");
        assert_eq!(circle(&error), parts(&[("s", "m"), ("m", "s")]));
        permit.release().await.expect("held");
        ends_well(task).await;

        let lock = one.mutex("m").lock().await.expect("free");
        let task = holds_and_waits(
            other.semaphore("s").with_permits(1).acquire(),
            other.mutex("m").lock(),
        );
        waits(&other, 1).await;
        let semaphore = one.semaphore("s").with_permits(1);
        let error = semaphore.acquire().await.expect_err("it would last forever");
        assert_eq!(circle(&error), parts(&[("m", "s"), ("s", "m")]));
        lock.unlock().await.expect("held");
        ends_well(task).await;
        client_is_idle(&one).await;
    }
}

#[tokio::test]
async fn all_who_have_permits_must_be_blocked() {
    let server = Server::start().await;
    let client = connect_with(&server, Deadlocks::Fail).await;
    let (semaphore, go) = (client.semaphore("s").with_permits(2), Arc::new(Notify::new()));
    let last = has_the_lock(&client, &semaphore, &go).await;
    let one = has_a_permit(&client, &semaphore, 1).await;
    let at_work = holds(&client, semaphore.acquire()).await;
    go.notify_one();
    all_wait(&client, 2).await;
    at_work.abort();
    ends_well(last).await;
    ends_well(one).await;
    client_is_idle(&client).await;
}

/// The second one is blocked behind somebody who waits for a permit, too.
#[tokio::test]
async fn all_who_have_permits_are_blocked() {
    let server = Server::start().await;
    let client = connect_with(&server, Deadlocks::Fail).await;
    let (semaphore, go) = (client.semaphore("s").with_permits(2), Arc::new(Notify::new()));
    let lock = client.mutex("m").lock().await.expect("free");
    let one = has_a_permit(&client, &semaphore, 1).await;
    let third = holds_and_waits(client.mutex("n").lock(), later(&go, semaphore.acquire()));
    eventually(LIMIT, "it has its lock", async || client.holds().len() == 3).await;
    let two = holds_and_waits(semaphore.acquire(), client.mutex("n").lock());
    waits(&client, 2).await;
    go.notify_one();
    all_wait(&client, 3).await;
    let error = semaphore.acquire().await.expect_err("it would last forever");
    assert_eq!(circle(&error), parts(&[("m", "s"), ("s", "m")]));
    lock.unlock().await.expect("held");
    for task in [one, two, third] {
        ends_well(task).await;
    }
    client_is_idle(&client).await;
}

/// Of four permits two are with one who is blocked: three cannot be had, however many the others give back.
#[tokio::test]
async fn those_who_want_more_permits_than_the_others_have_are_blocked_by_fewer() {
    let server = Server::start().await;
    let client = connect_with(&server, Deadlocks::Fail).await;
    for (wanted, is_blocked) in [(2, false), (3, true)] {
        let (semaphore, go) = (client.semaphore("s").with_permits(4), Arc::new(Notify::new()));
        let lock = client.mutex("m").lock();
        let last = holds_and_waits(lock, later(&go, semaphore.acquire_many(wanted)));
        eventually(LIMIT, "it has it", async || client.holds().len() == 1).await;
        let one = holds_and_waits(semaphore.acquire_many(2), client.mutex("m").lock());
        waits(&client, 1).await;
        let at_work = holds(&client, semaphore.acquire()).await;
        go.notify_one();
        if is_blocked {
            let last = soon("it is told", last).await.expect("no panic");
            let error = last.expect_err("it would last forever");
            assert_eq!(circle(&error), parts(&[("m", "s"), ("s", "m")]));
            at_work.abort();
        } else {
            all_wait(&client, 2).await;
            at_work.abort();
            ends_well(last).await;
        }
        ends_well(one).await;
        client_is_idle(&client).await;
    }
}

/// By how many there are on the server, and by who has them there.
#[tokio::test]
async fn permits_that_may_come_from_elsewhere_are_waited_for() {
    let server = Server::start().await;
    let client = connect_with(&server, Deadlocks::Fail).await;
    let unseen = connect_with(&server, Deadlocks::Off).await;
    let (semaphore, go) = (client.semaphore("s").with_permits(2), Arc::new(Notify::new()));
    let last = has_the_lock(&client, &semaphore, &go).await;
    let one = has_a_permit(&client, &semaphore, 1).await;
    let elsewhere = unseen.semaphore("s").acquire().await.expect("free");
    go.notify_one();
    all_wait(&client, 2).await;
    elsewhere.release().await.expect("held");
    ends_well(last).await;
    ends_well(one).await;

    // There is one more than the handle says.
    unseen.semaphore("s").set_permits(3).await.expect("set");
    let last = has_the_lock(&client, &semaphore, &go).await;
    let one = has_a_permit(&client, &semaphore, 1).await;
    let two = has_a_permit(&client, &semaphore, 2).await;
    let elsewhere = unseen.semaphore("s").acquire().await.expect("free");
    go.notify_one();
    all_wait(&client, 3).await;
    elsewhere.release().await.expect("held");
    for task in [last, one, two] {
        ends_well(task).await;
    }

    // One is spent.
    unseen.semaphore("s").set_permits(2).await.expect("set");
    let last = has_the_lock(&client, &semaphore, &go).await;
    let one = has_a_permit(&client, &semaphore, 1).await;
    semaphore.with_lease(500 * MS).acquire().await.expect("free").spend();
    go.notify_one();
    all_wait(&client, 2).await;
    ends_well(last).await;
    ends_well(one).await;
    client_is_idle(&client).await;
}

/// It takes permits for others, which work with them.
#[tokio::test]
async fn a_permit_that_was_given_to_another_task_is_not_with_the_one_who_took_it() {
    let server = Server::start().await;
    let client = connect_with(&server, Deadlocks::Fail).await;
    let semaphore = client.semaphore("s").with_permits(2);
    let take = || semaphore.acquire();
    let worker = |permit: Permit| {
        tokio::spawn(async move {
            tokio::time::sleep(300 * MS).await;
            permit.release().await
        })
    };
    // The one after the other.
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(worker(take().await.expect("a worker ends")));
    }
    for worker in workers {
        ends_well(worker).await;
    }
    // A single one, by a line of code that is known by now.
    let semaphore = semaphore.clone();
    semaphore.set_permits(1).await.expect("set");
    let one = client.semaphore("s").with_permits(1);
    let worker = worker(take().await.expect("free"));
    let other = holds_and_waits(client.mutex("m").lock(), one.acquire());
    waits(&client, 1).await;
    let lock = soon("it was no deadlock", client.mutex("m").lock()).await.expect("the worker ends");
    ends_well(worker).await;
    ends_well(other).await;
    lock.unlock().await.expect("held");
    client_is_idle(&client).await;
}

/// A single one, which nobody knows of. Who took it waits for the next one.
#[tokio::test]
async fn who_waits_for_another_permit_is_not_blocked_by_the_one_it_took() {
    let server = Server::start().await;
    let client = connect_with(&server, Deadlocks::Fail).await;
    let semaphore = client.semaphore("s").with_permits(1);
    let permit = semaphore.acquire().await.expect("free");
    let worker = tokio::spawn(async move {
        tokio::time::sleep(200 * MS).await;
        permit.release().await
    });
    let next = soon("it was no deadlock", semaphore.acquire()).await.expect("the worker ends");
    ends_well(worker).await;
    next.release().await.expect("held");
    client_is_idle(&client).await;
}

/// The server does not answer when it is asked who has the permits.
#[tokio::test]
async fn a_circle_is_told_once_the_server_answers() {
    let server = Server::start().await;
    let client = connect_with(&server, Deadlocks::Fail).await;
    let semaphore = client.semaphore("s").with_permits(1);
    let go = Arc::new(Notify::new());
    let last = holds_and_waits(semaphore.acquire(), later(&go, client.mutex("m").lock()));
    eventually(LIMIT, "it has it", async || client.holds().len() == 1).await;
    let other = holds_and_waits(client.mutex("m").lock(), semaphore.acquire());
    waits(&client, 1).await;
    server.pause();
    go.notify_one();
    tokio::time::sleep(1500 * MS).await;
    server.resume();
    let error =
        soon("it is told", last).await.expect("no panic").expect_err("it would last forever");
    assert!(matches!(error, Error::Deadlock { .. }), "{error:?}");
    ends_well(other).await;
}

#[test]
fn threads_that_each_wait_for_what_the_other_has() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let builder = blocking::Client::builder().nodes([server.url()]).deadlocks(Deadlocks::Fail);
    let client = builder.connect_blocking().expect("connected");
    let permit = client.semaphore("s").with_permits(1).acquire().expect("free");
    let (taken, told) = mpsc::channel();
    let other = thread::spawn({
        let client = client.clone();
        move || {
            let _lock = client.mutex("m").lock().expect("free");
            taken.send(()).expect("the test listens");
            client.semaphore("s").with_permits(1).acquire().map(drop)
        }
    });
    told.recv().expect("it has it");
    runtime.block_on(eventually(LIMIT, "it waits", async || client.stats().waiters == 1));
    let here = client.mutex("m").lock().map(drop);
    drop(permit);
    let there = other.join().expect("no panic");
    let (error, circle_of_it) = match (here, there) {
        (Err(error), Ok(())) => (error, [("s", "m"), ("m", "s")]),
        (Ok(()), Err(error)) => (error, [("m", "s"), ("s", "m")]),
        both => panic!("one of them fails, and the other goes on: {both:?}"),
    };
    assert_eq!(circle(&error), parts(&circle_of_it));
}
