//! The order in which readers and writers get the lock.

use leasehold::Error;

use super::{MS, queued, without_window};
use crate::{
    checks::{connect, nothing_left, setup, soon},
    fair::make_heard,
    support::Server,
};

#[tokio::test]
async fn a_waiting_writer_lets_no_new_readers_in() {
    let server = Server::start().await;
    let [a, b, c] = [without_window(&server).await, connect(&server).await, connect(&server).await];
    make_heard(&server, &[&a, &b, &c]).await;
    let lock = a.rw_lock("n");
    let reading = lock.read().await.expect("free");
    let writer = tokio::spawn({
        let other = b.rw_lock("n");
        async move { other.write().await }
    });
    queued(&lock, 1).await;
    let error = c.rw_lock("n").read_with_timeout(300 * MS).await.expect_err("a writer waits");
    let Error::Timeout { holder: Some(holder), .. } = &error else { panic!("{error}") };
    assert_eq!(holder.client(), Some(b.name()), "the writer is named");
    assert!(c.rw_lock("n").try_read().await.expect("refused").is_none());
    // Not the readers of the process that reads, either.
    assert!(lock.try_read().await.expect("refused").is_none());
    let late: Vec<_> = [&a, &c]
        .map(|client| {
            let lock = client.rw_lock("n");
            tokio::spawn(async move { lock.read().await })
        })
        .into();
    queued(&lock, 3).await;
    assert!(reading.is_held() && late.iter().all(|reader| !reader.is_finished()));

    reading.unlock().await.expect("held");
    let writing = soon("the writer", writer).await.expect("no panic").expect("its turn");
    assert!(late.iter().all(|reader| !reader.is_finished()));
    writing.unlock().await.expect("held");
    // One release lets both in.
    let mut readers = Vec::new();
    for reader in late {
        readers.push(soon("a reader", reader).await.expect("no panic").expect("its turn"));
    }
    assert!(readers.iter().all(|guard| guard.is_held()));
    drop(readers);
    for client in [&a, &b, &c] {
        nothing_left(&server, client).await;
    }
}

#[tokio::test]
async fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    let server = Server::start().await;
    let [a, b, c] = [without_window(&server).await, connect(&server).await, connect(&server).await];
    make_heard(&server, &[&a, &b, &c]).await;
    let lock = a.rw_lock("n");
    let reading = lock.read().await.expect("free");
    let writer = tokio::spawn({
        let other = b.rw_lock("n");
        async move { other.write().await.map(drop) }
    });
    queued(&lock, 1).await;
    let late = [&a, &c].map(|client| {
        let lock = client.rw_lock("n");
        tokio::spawn(async move { lock.read().await })
    });
    queued(&lock, 3).await;
    writer.abort();
    for reader in late {
        let guard = soon("a reader", reader).await.expect("no panic").expect("nobody is before it");
        assert!(reading.is_held() && guard.token() == reading.token());
        drop(guard);
    }
    drop(reading);
    for client in [&a, &b, &c] {
        nothing_left(&server, client).await;
    }
}

#[tokio::test]
async fn a_writer_of_the_process_that_reads_gives_up_like_any_other() {
    let (server, [a, b]) = setup().await;
    make_heard(&server, &[&a, &b]).await;
    let lock = a.rw_lock("n");
    let reading = lock.read().await.expect("free");
    let writer = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().await.map(drop) }
    });
    queued(&lock, 1).await;
    assert!(b.rw_lock("n").try_read().await.expect("refused").is_none());
    writer.abort();
    let beside = soon("the reader", b.rw_lock("n").read()).await.expect("nobody is before it");
    assert!(reading.is_held() && beside.is_held());
    drop((reading, beside));
    nothing_left(&server, &a).await;
    nothing_left(&server, &b).await;
}

#[tokio::test]
async fn a_reader_behind_a_writer_of_its_process_shares_with_the_readers_of_others() {
    let server = Server::start().await;
    let builder = leasehold::Client::builder().nodes([server.url()]).handoff_window(1000 * MS);
    let [one, other] = [builder.connect().await.expect("connected"), connect(&server).await];
    let (lock, theirs) = (one.rw_lock("n"), other.rw_lock("n"));
    let held = theirs.write().await.expect("free");
    let waits = async |count| {
        let waiters = async || one.stats().waiters == count;
        crate::support::eventually(crate::checks::LIMIT, "it waits", waiters).await;
    };
    let writer = tokio::spawn(lock.write());
    waits(1).await;
    let reader = tokio::spawn(lock.read());
    waits(2).await;
    held.unlock().await.expect("held");
    let writing = soon("its turn", writer).await.expect("no panic").expect("granted");
    writing.unlock().await.expect("held");
    let reading = soon("its turn", reader).await.expect("no panic").expect("granted");
    let shared = theirs.try_read().await.expect("an answer").expect("it is shared");
    reading.unlock().await.expect("held");
    shared.unlock().await.expect("held");
    nothing_left(&server, &one).await;
}

#[tokio::test]
async fn tasks_of_a_client_come_in_the_order_of_their_arrival() {
    let (server, [client]) = setup().await;
    let lock = client.rw_lock("n");
    let writing = lock.write().await.expect("free");
    let order = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (place, writes) in [false, false, true, false, true].into_iter().enumerate() {
        let (lock, order) = (lock.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            if writes {
                let guard = lock.write().await.expect("its turn");
                order.lock().push(place);
                guard.unlock().await.expect("held");
            } else {
                let guard = lock.read().await.expect("its turn");
                order.lock().push(place);
                guard.unlock().await.expect("held");
            }
        }));
        crate::support::eventually(crate::checks::LIMIT, "it waits", async || {
            client.stats().waiters == place + 1
        })
        .await;
    }
    writing.unlock().await.expect("held");
    for task in tasks {
        soon("all turns", task).await.expect("no task fails");
    }
    let order = order.lock().clone();
    assert_eq!(order[2..], [2, 3, 4], "{order:?}");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_dropped_wait_leaves_nothing() {
    let (server, [a, b]) = setup().await;
    let held = a.rw_lock("n").write().await.expect("free");
    let other = b.rw_lock("n");
    for _ in 0..5 {
        assert!(tokio::time::timeout(10 * MS, other.read()).await.is_err());
        assert!(tokio::time::timeout(10 * MS, other.write()).await.is_err());
    }
    held.unlock().await.expect("held");
    nothing_left(&server, &a).await;
    nothing_left(&server, &b).await;
}
