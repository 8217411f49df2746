//! A read-write lock over several masters: a writer that waits keeps new readers out.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold::{Client, Error};

use super::deployment::{MS, Masters, connected, states_become};
use crate::{
    checks::{LIMIT, exists, soon},
    support::eventually,
};
use leasehold::NodeState::{Down, Up};

const NEXT: &str = "leasehold_next:{n}";

async fn reserved_on(masters: &Masters, servers: &[usize]) {
    let what = format!("it is reserved on {servers:?}");
    eventually(LIMIT, &what, async || masters.which_have(NEXT).await == servers).await;
}

async fn without_window(masters: &Masters) -> Client {
    connected(masters.builder().handoff_window(Duration::ZERO)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_writer_lets_no_new_readers_in() {
    let masters = Masters::start(3).await;
    let [a, b, c] =
        [without_window(&masters).await, masters.client().await, masters.client().await];
    let lock = a.rw_lock("n");
    let reading = lock.read().await.expect("free");
    masters.are_held("n", &[0, 1, 2]).await;
    let writer = tokio::spawn(b.rw_lock("n").write());
    reserved_on(&masters, &[0, 1, 2]).await;
    let error = c.rw_lock("n").read_with_timeout(300 * MS).await.expect_err("a writer waits");
    let Error::Timeout { holder: Some(holder), .. } = &error else { panic!("{error}") };
    assert_eq!(holder.client(), Some(b.name()), "the writer is named");
    assert!(c.rw_lock("n").try_read().await.expect("refused").is_none());
    // Not the readers of the process that reads, either.
    assert!(lock.try_read().await.expect("refused").is_none());
    let late = [&a, &c].map(|client| tokio::spawn(client.rw_lock("n").read()));
    for client in [&a, &c] {
        eventually(LIMIT, "a reader waits", async || client.stats().waiters == 1).await;
    }
    assert!(reading.is_held() && late.iter().all(|reader| !reader.is_finished()));

    reading.unlock().await.expect("held");
    let writing = soon("the writer", writer).await.expect("no panic").expect("its turn");
    assert!(late.iter().all(|reader| !reader.is_finished()));
    reserved_on(&masters, &[]).await;
    writing.unlock().await.expect("held");
    let mut readers = Vec::new();
    for reader in late {
        readers.push(soon("a reader", reader).await.expect("no panic").expect("its turn"));
    }
    assert!(readers.iter().all(|guard| guard.is_held()));
    drop(readers);
    masters.nothing_left(&[&a, &b, &c]).await;
}

/// Its reservation would last for some seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_gives_up_lets_readers_in_at_once() {
    let masters = Masters::start(3).await;
    let [a, b, c] =
        [without_window(&masters).await, masters.client().await, masters.client().await];
    let reading = a.rw_lock("n").read().await.expect("free");
    masters.are_held("n", &[0, 1, 2]).await;
    // Of another process, and of the one that reads.
    for of in [&b, &a] {
        let writer = tokio::spawn({
            let lock = of.rw_lock("n");
            async move { lock.write().await.map(drop) }
        });
        reserved_on(&masters, &[0, 1, 2]).await;
        let late = tokio::spawn(c.rw_lock("n").read());
        eventually(LIMIT, "the reader waits", async || c.stats().waiters == 1).await;
        writer.abort();
        let gave_up_at = Instant::now();
        reserved_on(&masters, &[]).await;
        let guard = soon("the reader", late).await.expect("no panic").expect("nobody is before it");
        let took = gave_up_at.elapsed();
        assert!(took < masters.widened(2000 * MS), "{took:?}");
        assert!(reading.is_held() && guard.token() == reading.token());
        guard.unlock().await.expect("held");
    }
    let writer = b.rw_lock("n").write_with_timeout(300 * MS).await;
    assert!(writer.is_err_and(|error| error.is_timeout()));
    reserved_on(&masters, &[]).await;
    assert!(b.rw_lock("n").try_write().await.expect("refused").is_none());
    assert_eq!(masters.which_have(NEXT).await, [0; 0], "one attempt reserves nothing");
    drop(reading);
    masters.nothing_left(&[&a, &b, &c]).await;
}

/// A reader of its own process waits behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_first_gives_up_the_next_of_the_process_asks_at_once() {
    let masters = Masters::start(3).await;
    let [a, b] = [masters.client().await, masters.client().await];
    let reading = a.rw_lock("n").read().await.expect("free");
    masters.are_held("n", &[0, 1, 2]).await;
    let writer = tokio::spawn({
        let lock = b.rw_lock("n");
        async move { lock.write().await.map(drop) }
    });
    reserved_on(&masters, &[0, 1, 2]).await;
    let reader = tokio::spawn(b.rw_lock("n").read());
    eventually(LIMIT, "it waits", async || b.stats().waiters == 2).await;
    writer.abort();
    let guard = soon("the reader", reader).await.expect("no panic").expect("nobody is before it");
    assert!(reading.is_held() && guard.is_held());
    drop((guard, reading));
    masters.nothing_left(&[&a, &b]).await;
}

/// Readers of several processes overlap, so that there is always one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_is_not_starved_by_readers_that_come_and_go() {
    for nodes in [3, 5] {
        let masters = Masters::start(nodes).await;
        let clients = join_all((0..3).map(|_| masters.client())).await;
        let writer = masters.client().await;
        let stop = tokio_util::sync::CancellationToken::new();
        let mut readers = Vec::new();
        for client in clients.iter().cycle().take(9) {
            let (lock, stop) = (client.rw_lock("n"), stop.clone());
            readers.push(tokio::spawn(async move {
                let mut reads = 0;
                while !stop.is_cancelled() {
                    let guard = lock.read().await.expect("its turn comes");
                    tokio::time::sleep(5 * MS).await;
                    guard.unlock().await.expect("held");
                    reads += 1;
                }
                reads
            }));
        }
        for _ in 0..5 {
            let guard = soon("the writer", writer.rw_lock("n").write()).await.expect("its turn");
            tokio::time::sleep(MS).await;
            guard.unlock().await.expect("held");
        }
        stop.cancel();
        let reads: Vec<u32> =
            join_all(readers).await.into_iter().map(|reads| reads.expect("no panic")).collect();
        assert!(reads.iter().all(|reads| *reads > 0), "{reads:?}");
        let all: Vec<&Client> = clients.iter().chain([&writer]).collect();
        masters.nothing_left(&all).await;
    }
}

/// What the writer's request got on one master, which nobody holds, is given back while it waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_writer_keeps_no_votes() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let (holder, writer) = (connected(ways.builder()).await, masters.client().await);
    ways.close(&[2], true);
    states_become(&holder, &[Up, Up, Down]).await;
    let reading = holder.rw_lock("n").read().await.expect("two of three");
    let waiting = tokio::spawn(writer.rw_lock("n").write());
    reserved_on(&masters, &[0, 1]).await;
    // It has got its vote by then, and asks again after two seconds at the earliest.
    tokio::time::sleep(500 * MS).await;
    let is_back = async || !exists(&masters.0[2], "n").await;
    eventually(1000 * MS, "the vote is given back", is_back).await;
    assert!(!waiting.is_finished());
    reading.unlock().await.expect("held");
    let writing = soon("the writer", waiting).await.expect("no panic").expect("its turn");
    writing.unlock().await.expect("held");
    masters.nothing_left(&[&holder, &writer]).await;
}

/// Its reservation ends by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_is_gone_keeps_readers_out_for_seconds_only() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let (gone, other) = (connected(ways.builder()).await, masters.client().await);
    let reading = other.rw_lock("n").read().await.expect("free");
    masters.are_held("n", &[0, 1, 2]).await;
    let waiting = tokio::spawn(gone.rw_lock("n").write());
    reserved_on(&masters, &[0, 1, 2]).await;
    ways.0.iter().for_each(|way| way.black_hole(true));
    let late = masters.client().await;
    let guard = soon("a reader", late.rw_lock("n").read()).await.expect("nobody is before it");
    assert!(reading.is_held() && guard.is_held());
    waiting.abort();
    drop((guard, reading));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_that_take_turns_let_a_reader_in() {
    let masters = Masters::start(3).await;
    let [a, b, c] = [masters.client().await, masters.client().await, masters.client().await];
    let writers = [&a, &b].map(|client| {
        let lock = client.rw_lock("n");
        tokio::spawn(async move {
            loop {
                let writing = lock.write().await.expect("its turn");
                tokio::time::sleep(20 * MS).await;
                writing.unlock().await.expect("held");
            }
        })
    });
    eventually(LIMIT, "one writes and one waits", async || {
        a.stats().waiters + b.stats().waiters == 1
    })
    .await;
    let reading = c.rw_lock("n").read_with_timeout(8000 * MS).await.expect("its turn");
    reading.unlock().await.expect("held");
    writers.iter().for_each(tokio::task::JoinHandle::abort);
    masters.nothing_left(&[&a, &b, &c]).await;
}
