//! One owner on both sides: nested acquisitions, downgrades, and waiting for oneself.

use leasehold::{Client, Error, Owner, blocking};
use redis::Value;

use super::{MS, queued};
use crate::{
    checks::{LIMIT, lock_keys, nothing_left, setup, setup_with_proxy, soon},
    fair::make_heard,
    support::{Server, eventually},
};

#[tokio::test]
async fn a_writer_reads_and_writes_in_the_same_hold() {
    let (server, [a, b]) = setup().await;
    let lock = a.rw_lock("n").owned_by(&Owner::new());
    let writing = lock.write().await.expect("free");
    let reading = lock.read().await.expect("nested");
    let again = lock.write().await.expect("nested");
    assert_eq!((reading.token(), again.hold_count()), (writing.token(), 3));
    drop((writing, again));
    let other = b.rw_lock("n");
    assert!(other.try_read().await.expect("refused").is_none(), "it is still a writer's hold");
    drop(reading);
    soon("the reader", other.read()).await.expect("free").unlock().await.expect("held");
    nothing_left(&server, &a).await;
}

#[tokio::test]
async fn a_reader_nests_and_cannot_write() {
    let (server, [a, b]) = setup().await;
    make_heard(&server, &[&a, &b]).await;
    let lock = a.rw_lock("n").owned_by(&Owner::new());
    let reading = lock.read().await.expect("free");
    let writer = tokio::spawn({
        let other = b.rw_lock("n");
        async move { other.write().await }
    });
    queued(&lock, 1).await;
    // Not behind the writer, which waits for it.
    let nested = soon("the nested reader", lock.read()).await.expect("nested");
    assert_eq!((nested.token(), nested.hold_count()), (reading.token(), 2));
    for timeout in [50 * MS, std::time::Duration::MAX] {
        let error = soon("the answer", lock.write_with_timeout(timeout)).await;
        let Err(error @ Error::SelfWait { reads: true, .. }) = error else { panic!("{error:?}") };
        assert!(error.to_string().contains("held for reading by the owner"), "{error}");
    }
    assert!(lock.try_write().await.expect("refused").is_none());
    drop((reading, nested));
    let writing = soon("the writer", writer).await.expect("no panic").expect("its turn");
    writing.unlock().await.expect("held");
    nothing_left(&server, &a).await;
    nothing_left(&server, &b).await;
}

/// It waits in two tasks, and what one of them is granted is for both if it contains both sides.
#[tokio::test]
async fn an_owner_that_waits_for_both_sides_does_not_write_with_a_grant_to_read() {
    let (server, [a, b]) = setup().await;
    let (lock, other) = (a.rw_lock("n").owned_by(&Owner::new()), b.rw_lock("n"));
    let waits = async |count: usize| {
        eventually(LIMIT, "they wait", async || a.stats().waiters == count).await;
    };
    let theirs = other.write().await.expect("free");
    let reader = tokio::spawn(lock.read());
    waits(1).await;
    let writer = tokio::spawn(lock.write());
    waits(2).await;
    theirs.unlock().await.expect("held");
    let reading = soon("the reader", reader).await.expect("no panic").expect("its turn");
    assert_eq!(reading.hold_count(), 1, "nobody writes in its hold");
    queued(&lock, 1).await;
    drop(reading);
    let writing = soon("the writer", writer).await.expect("no panic").expect("its turn");
    assert!(other.try_read().await.expect("refused").is_none(), "it is a writer's hold");
    writing.unlock().await.expect("held");

    let theirs = soon("the other", other.write()).await.expect("free");
    let writer = tokio::spawn(lock.write());
    waits(1).await;
    let reader = tokio::spawn(lock.read());
    waits(2).await;
    theirs.unlock().await.expect("held");
    let writing = soon("the writer", writer).await.expect("no panic").expect("its turn");
    let reading = soon("the reader", reader).await.expect("no panic").expect("its turn");
    assert_eq!((reading.token(), reading.hold_count()), (writing.token(), 2));
    drop((writing, reading));
    nothing_left(&server, &a).await;
    nothing_left(&server, &b).await;
}

#[tokio::test]
async fn a_downgrade_lets_readers_in_and_no_writer() {
    let (server, [a, b, c]) = setup().await;
    make_heard(&server, &[&a, &b]).await;
    let lock = a.rw_lock("n");
    let writing = lock.write().await.expect("free");
    let token = writing.token();
    let reader = tokio::spawn({
        let other = b.rw_lock("n");
        async move { other.read().await }
    });
    queued(&lock, 1).await;
    let reading = writing.downgrade().await.expect("held");
    assert!(reading.token() >= token);
    let beside = soon("the reader", reader).await.expect("no panic").expect("its turn");
    assert_eq!(beside.token(), reading.token());
    assert!(c.rw_lock("n").try_write().await.expect("refused").is_none());
    assert!(reading.is_held() && beside.is_held());
    beside.unlock().await.expect("held");
    reading.unlock().await.expect("held");
    for client in [&a, &b, &c] {
        nothing_left(&server, client).await;
    }
}

/// A reader of the same client that waits does not take its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_whose_answer_is_looked_at_late_is_no_loss() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).response_timeout(LIMIT).ttl(6 * LIMIT);
    let client = builder.connect().await.expect("connected");
    let lock = client.rw_lock("n");
    let writing = lock.write().await.expect("free");
    let reader = tokio::spawn(lock.read());
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
    let mut downgrading = Box::pin(writing.downgrade());
    server.pause();
    assert!(futures_util::poll!(&mut downgrading).is_pending(), "no answer can be there yet");
    server.resume();
    // A caller that nobody polls keeps others from asking for 250 ms.
    tokio::time::sleep(500 * MS).await;
    let reading = soon("the answer", downgrading).await.expect("held all the time");
    let beside = soon("the reader", reader).await.expect("no panic").expect("its turn");
    assert!(reading.is_held() && beside.is_held());
    drop((reading, beside));
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_downgrade_beside_other_guards_changes_nothing() {
    let (server, [a, b]) = setup().await;
    let lock = a.rw_lock("n").owned_by(&Owner::new());
    let (one, other) = (lock.write().await.expect("free"), lock.write().await.expect("nested"));
    let reading = one.downgrade().await.expect("held");
    assert!(other.is_held() && reading.hold_count() == 2);
    assert!(b.rw_lock("n").try_read().await.expect("refused").is_none());
    drop((reading, other));
    nothing_left(&server, &a).await;
}

#[tokio::test]
async fn a_lost_writer_does_not_become_a_reader() {
    let (server, [a, b]) = setup().await;
    let writing = a.rw_lock("n").write().await.expect("free");
    server.command(&["DEL", "n"]).await;
    let theirs = b.rw_lock("n").write().await.expect("free");
    let error = writing.downgrade().await.expect_err("it was lost");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert!(theirs.is_held());
    theirs.unlock().await.expect("held");
    nothing_left(&server, &a).await;
}

#[tokio::test]
async fn a_dropped_downgrade_leaves_nothing() {
    let (server, [a]) = setup().await;
    let lock = a.rw_lock("n");
    for _ in 0..20 {
        let writing = soon("the writer", lock.write()).await.expect("free");
        let mut downgrade = Box::pin(writing.downgrade());
        tokio::select! {
            biased;
            reading = &mut downgrade => drop(reading),
            () = std::future::ready(()) => drop(downgrade),
        }
    }
    nothing_left(&server, &a).await;
}

#[tokio::test]
async fn a_body_under_a_writer_may_read() {
    let (server, [client]) = setup().await;
    let lock = client.rw_lock("n");
    let nested = lock.run_write(async |writing| {
        let reading = lock.read().await.expect("nested");
        reading.token() == writing.token()
    });
    assert!(nested.await.expect("held"));
    let refused = lock.run_read(async |_| lock.write().await.is_err()).await;
    assert!(refused.expect("held"), "it reads itself");
    nothing_left(&server, &client).await;
}

#[test]
fn threads_read_together_and_write_alone() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(crate::support::Server::start());
    let client = blocking::Client::connect(&server.url()).expect("connected");
    let lock = client.rw_lock("n");
    let reading = lock.read().expect("free");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let beside = lock.try_read().expect("answered").expect("shared");
            let written = lock.try_write().expect("answered").is_some();
            (beside.token(), written)
        });
        assert_eq!(other.join().expect("no panic"), (reading.token(), false));
    });
    assert!(matches!(lock.write(), Err(Error::SelfWait { .. })));
    reading.unlock().expect("held");
    let nested = lock.run_write(|writing| lock.read().expect("nested").token() == writing.token());
    assert!(nested.expect("held"));
    assert!(lock.run_read(|guard| guard.is_held()).expect("free"));
}

/// Each call belongs to the thread, or to the owner of the handle, whether it names a time or not.
#[test]
fn a_thread_that_writes_enters_its_lock_again_by_each_call() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(crate::support::Server::start());
    let client = blocking::Client::connect(&server.url()).expect("connected");
    let lock = client.rw_lock("n");
    let writing = lock.write_with_timeout(LIMIT).expect("free");
    let written = [
        lock.try_write().expect("answered").expect("nested"),
        lock.try_write_for(LIMIT).expect("answered").expect("nested"),
        lock.write_with_timeout(LIMIT).expect("nested"),
    ];
    let read = [
        lock.try_read().expect("answered").expect("nested"),
        lock.try_read_for(LIMIT).expect("answered").expect("nested"),
        lock.read_with_timeout(LIMIT).expect("nested"),
    ];
    assert!(written.iter().all(|nested| nested.token() == writing.token()));
    assert!(read.iter().all(|nested| nested.token() == writing.token()));
    assert_eq!(writing.hold_count(), 7);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let written = lock.write_with_timeout(50 * MS).map(drop);
            [written, lock.read_with_timeout(50 * MS).map(drop)]
        });
        for refused in other.join().expect("no panic") {
            assert!(refused.as_ref().is_err_and(Error::is_timeout), "{refused:?}");
        }
    });
    drop((writing, written, read));
    let reading = lock.read_with_timeout(LIMIT).expect("free");
    assert!(matches!(lock.write_with_timeout(LIMIT), Err(Error::SelfWait { .. })));
    drop(reading);
    let owner = Owner::new();
    let theirs = lock.owned_by(&owner).write_with_timeout(LIMIT).expect("free");
    let nested = lock.owned_by(&owner).read_with_timeout(LIMIT).expect("nested");
    assert_eq!((theirs.owner(), nested.token()), (&owner, theirs.token()));
}

/// What was asked for before the shutdown is granted behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_during_a_shutdown_leaves_nothing() {
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).response_timeout(LIMIT);
    let client = builder.connect().await.expect("connected");
    let writing = client.rw_lock("n").write().await.expect("free");
    proxy.hold_replies();
    let downgrading = tokio::spawn(writing.downgrade());
    let reads = async || {
        server.command(&["HGET", "n", "mode"]).await == Value::BulkString(b"read".to_vec())
    };
    eventually(LIMIT, "the server has granted it", reads).await;
    let closing = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown().await }
    });
    eventually(LIMIT, "the shutdown has begun", async || !client.is_ready()).await;
    proxy.release_replies();
    let error = soon("its end", downgrading).await.expect("no panic").expect_err("closed");
    assert!(matches!(error, Error::Closed { .. }), "{error:?}");
    soon("the shutdown", closing).await.expect("no panic");
    assert!(lock_keys(&server).await.is_empty());
    assert!(client.holds().is_empty());
}
