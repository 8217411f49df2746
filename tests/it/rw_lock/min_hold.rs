//! Readers and writers that keep their part for a minimum of time, also if they give it back before.

use std::time::{Duration, Instant};

use leasehold::{Client, blocking};

use super::MS;
use crate::{
    checks::{LIMIT, connect, exists, nothing_left, pttl, setup, setup_with_proxy, soon},
    support::{Server, eventually},
};

const MIN_HOLD: Duration = Duration::from_millis(600);
const LONG: Duration = Duration::from_secs(20);

/// How long the part of a reader lasts that the server has: that of the only key with an end of its own.
async fn reads_for(server: &Server, name: &str) -> i64 {
    let keys = server.command(&["KEYS", &format!("{{{name}}}:*:rwlock_timeout:1")]).await;
    let keys: Vec<String> = redis::from_redis_value(keys).expect("keys");
    let [key] = &keys[..] else { panic!("not one reader: {keys:?}") };
    pttl(server, key).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_gives_back_early_keeps_everybody_out_until_its_min_hold_is_over() {
    let (server, [here, elsewhere]) = setup().await;
    let job = here.rw_lock("job").with_min_hold(MIN_HOLD);
    for dropped in [false, true] {
        let began_at = Instant::now();
        let guard = soon("the writer", job.write()).await.expect("free in the end");
        let waits = tokio::spawn({
            let next = elsewhere.rw_lock("job");
            async move { next.read_with_timeout(LIMIT).await.expect("free in the end") }
        });
        super::queued(&job, 1).await;
        match dropped {
            true => drop(guard),
            false => guard.unlock().await.expect("held"),
        }
        assert!(
            here.rw_lock("job").try_read().await.expect("asked").is_none()
                || began_at.elapsed() >= MIN_HOLD
        );
        let next = waits.await.expect("no panic");
        let after = began_at.elapsed();
        assert!(after >= MIN_HOLD, "let in after {after:?}");
        assert!(after < server.widened(MIN_HOLD + 700 * MS), "nobody told who waits: {after:?}");
        next.unlock().await.expect("held");
    }
    nothing_left(&server, &here).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_gives_back_early_keeps_writers_out_and_no_readers() {
    let (server, [here, elsewhere]) = setup().await;
    let job = here.rw_lock("job").with_min_hold(MIN_HOLD);
    let began_at = Instant::now();
    // The two share a lease, which stays for the longest of them.
    let plain = here.rw_lock("job").read().await.expect("free");
    let kept = job.read().await.expect("shared");
    kept.unlock().await.expect("held");
    plain.unlock().await.expect("held");
    let beside = elsewhere.rw_lock("job").try_read().await.expect("asked").expect("they share");
    beside.unlock().await.expect("held");
    let writer = soon("the writer", elsewhere.rw_lock("job").write()).await.expect("in the end");
    let after = began_at.elapsed();
    assert!(after >= MIN_HOLD, "a writer came in after {after:?}");
    assert!(after < server.widened(MIN_HOLD + 700 * MS), "nobody told who waits: {after:?}");
    writer.unlock().await.expect("held");
    nothing_left(&server, &here).await;
}

/// The lease that it joins was renewed a while ago, and would end too soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_keeps_a_lease_that_it_joins_for_long_enough() {
    const TTL: Duration = Duration::from_secs(3);
    const NEARLY: Duration = Duration::from_millis(2700);
    let server = Server::start().await;
    let here = Client::builder().nodes([server.url()]).ttl(TTL).connect().await.expect("connected");
    let elsewhere = connect(&server).await;
    let plain = here.rw_lock("job").read().await.expect("free");
    let left = async || reads_for(&server, "job").await < (NEARLY - 400 * MS).as_millis() as i64;
    eventually(LIMIT, "a part of it is over", left).await;
    let began_at = Instant::now();
    let kept = here.rw_lock("job").with_min_hold(NEARLY).read().await.expect("shared");
    kept.unlock().await.expect("held");
    plain.unlock().await.expect("held");
    let writer = soon("the writer", elsewhere.rw_lock("job").write()).await.expect("in the end");
    let after = began_at.elapsed();
    assert!(after >= NEARLY, "a writer came in after {after:?}");
    writer.unlock().await.expect("held");
    nothing_left(&server, &here).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_lasted_for_longer_than_its_min_hold_is_free_at_once() {
    let (server, [client]) = setup().await;
    let job = client.rw_lock("job").with_min_hold(20 * MS);
    for writes in [false, true] {
        if writes {
            let writer = job.write().await.expect("free");
            tokio::time::sleep(21 * MS).await;
            writer.unlock().await.expect("held");
        } else {
            let reader = job.read().await.expect("free");
            tokio::time::sleep(21 * MS).await;
            reader.unlock().await.expect("held");
        }
        assert!(!exists(&server, "job").await, "writes: {writes}");
    }
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_frees_no_part_before_its_min_hold_is_over() {
    let server = Server::start().await;
    let client = Client::builder().nodes([server.url()]).ttl(900 * MS).connect().await;
    let client = client.expect("connected");
    let written = client.rw_lock("written").with_min_hold(LONG);
    let _writer = written.write().await.expect("free");
    let left = pttl(&server, "written").await;
    assert!((19_000..=20_000).contains(&left), "the server keeps the writer for {left} ms");
    // A reader that joins the lease of another one counts, too.
    let _plain = client.rw_lock("read").read().await.expect("free");
    let _reader = client.rw_lock("read").with_min_hold(LONG).read().await.expect("shared");
    let left = reads_for(&server, "read").await;
    assert!((19_000..=20_000).contains(&left), "the server keeps the reader for {left} ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgraded_writer_keeps_writers_out_for_the_rest_of_its_min_hold() {
    let server = Server::start().await;
    let client = Client::builder().nodes([server.url()]).ttl(900 * MS).connect().await;
    let client = client.expect("connected");
    let job = client.rw_lock("job").with_min_hold(LONG);
    let reading = job.write().await.expect("free").downgrade().await.expect("held");
    let left = reads_for(&server, "job").await;
    assert!((19_000..=20_000).contains(&left), "the server keeps the reader for {left} ms");
    reading.unlock().await.expect("held");
    let left = reads_for(&server, "job").await;
    assert!((15_000..=20_000).contains(&left), "the server keeps the reader for {left} ms");
    let other = connect(&server).await;
    assert!(other.rw_lock("job").try_write().await.expect("asked").is_none());
    assert!(other.rw_lock("job").force_unlock().await.expect("asked"));
    let writer = other.rw_lock("job").try_write().await.expect("asked");
    writer.expect("a forced unlock ends it").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// The server may have made it a reader by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_that_is_dropped_keeps_writers_out_for_the_rest_of_its_min_hold() {
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).response_timeout(LIMIT);
    let client = builder.connect().await.expect("connected");
    let writing = client.rw_lock("job").with_min_hold(LONG).write().await.expect("free");
    proxy.hold_replies();
    let mut downgrading = Box::pin(writing.downgrade());
    let reads = async || {
        assert!(futures_util::poll!(&mut downgrading).is_pending(), "no answer can be there yet");
        let mode = server.command(&["HGET", "job", "mode"]).await;
        redis::from_redis_value::<Option<String>>(mode).expect("a text").as_deref() == Some("read")
    };
    eventually(LIMIT, "it reads", reads).await;
    drop(downgrading);
    proxy.release_replies();
    eventually(LIMIT, "both are released", async || client.stats().releases_pending == 0).await;
    let other = connect(&server).await;
    let tried = other.rw_lock("job").try_write().await.expect("asked");
    assert!(tried.is_none(), "its min hold is not over");
    let left = reads_for(&server, "job").await;
    assert!((1..=20_000).contains(&left), "the server keeps the reader for {left} ms");
    assert!(other.rw_lock("job").force_unlock().await.expect("asked"));
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_that_is_dropped_keeps_nobody_out() {
    let (server, [client]) = setup().await;
    let job = client.rw_lock("job").with_min_hold(LONG);
    for polls in 1..=2 {
        let (mut reading, mut writing) = (Box::pin(job.read()), Box::pin(job.write()));
        server.pause();
        for _ in 0..polls {
            assert!(futures_util::poll!(&mut writing).is_pending(), "no answer can be there yet");
        }
        drop(writing);
        server.resume();
        nothing_left(&server, &client).await;
        server.pause();
        for _ in 0..polls {
            assert!(futures_util::poll!(&mut reading).is_pending(), "no answer can be there yet");
        }
        drop(reading);
        server.resume();
        nothing_left(&server, &client).await;
    }
}

#[tokio::test]
async fn threads_have_min_holds_too() {
    let server = Server::start().await;
    let url = server.url();
    let early = tokio::task::spawn_blocking(move || {
        let client = blocking::Client::connect(&url).expect("connected");
        let job = client.rw_lock("job").with_min_hold(LONG);
        job.read().expect("free").unlock().expect("held");
        client.rw_lock("job").try_write().expect("asked").is_some()
    });
    assert!(!early.await.expect("no panic"), "it is free before its time");
    assert!((1..=20_000).contains(&reads_for(&server, "job").await));
}
