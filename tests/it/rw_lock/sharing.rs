//! Who holds the lock together, and who alone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use leasehold::{Client, Error, ReadGuard};
use redis::Value;

use super::{MS, queued, without_window};
use crate::{
    checks::{LIMIT, client_is_idle, connect, nothing_left, setup, setup_with_proxy, soon},
    support::{Proxy, Server, Spy, eventually, subscribers},
};

#[tokio::test]
async fn readers_hold_it_together_and_a_writer_alone() {
    let (server, [a, b, c]) = setup().await;
    let (one, other) = (a.rw_lock("n"), b.rw_lock("n"));
    let reading = [one.read().await.expect("free"), other.read().await.expect("shared")];
    assert!(reading.iter().all(|guard| guard.is_held()));
    let third = c.rw_lock("n");
    assert!(third.try_write().await.expect("refused").is_none());
    let error = third.write_with_timeout(300 * MS).await.expect_err("others read");
    let Error::Timeout { holder: Some(holder), .. } = &error else { panic!("{error}") };
    assert!(reading.iter().any(|guard| guard.holder() == *holder), "{error}");
    for guard in reading {
        guard.unlock().await.expect("held");
    }
    let writing = third.write().await.expect("free");
    assert!(one.try_read().await.expect("refused").is_none());
    assert!(other.try_write().await.expect("refused").is_none());
    writing.unlock().await.expect("held");
    for client in [&a, &b, &c] {
        nothing_left(&server, client).await;
    }
}

#[tokio::test]
async fn readers_of_a_client_join_without_a_request() {
    let server = Server::start().await;
    let window = Duration::from_secs(1);
    let builder = Client::builder().nodes([server.url()]).handoff_window(window);
    let client = builder.connect().await.expect("connected");
    let lock = client.rw_lock("n");
    let first = lock.read().await.expect("free");
    let (before, began_at) = (server.scripts_run().await, Instant::now());
    let mut guards = Vec::new();
    for _ in 0..50 {
        guards.push(lock.read().await.expect("shared"));
        guards.push(lock.try_read().await.expect("shared").expect("shared"));
    }
    // An ask and its release in each window that has passed, should the machine be that slow.
    let windows = began_at.elapsed().as_secs();
    let asked = server.scripts_run().await - before;
    assert!(asked <= 2 * windows, "{asked} scripts in {windows} windows");
    assert!(guards.iter().all(|guard| guard.is_held() && guard.token() == first.token()));
    assert_eq!(client.holds().len(), 101);
    drop((guards, first));
    nothing_left(&server, &client).await;
}

/// Somebody reads through a proxy. Others join without a request, but longer terms must be confirmed.
async fn joined_by_longer_terms(response_timeout: Duration) -> (Server, Proxy, Client, ReadGuard) {
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).handoff_window(Duration::from_secs(1));
    let client = builder.response_timeout(response_timeout).connect().await.expect("connected");
    let first = client.rw_lock("n").read().await.expect("free");
    (server, proxy, client, first)
}

#[tokio::test]
async fn a_reader_that_joins_on_longer_terms_waits_for_a_silent_server() {
    let (server, proxy, client, first) = joined_by_longer_terms(50 * MS).await;
    let lock = client.rw_lock("n").with_ttl(Duration::from_secs(90));
    proxy.black_hole(true);
    let mut second = Box::pin(lock.read_with_timeout(LIMIT));
    let ended = tokio::time::timeout(500 * MS, &mut second).await;
    assert!(ended.is_err(), "it has more time than one answer: {ended:?}");
    proxy.black_hole(false);
    let second = soon("the second", second).await.expect("the server answers again");
    assert_eq!(second.holder(), first.holder(), "they use one lease");
    assert!(second.remaining() > Duration::from_secs(60), "{second:?}");
    drop((first, second));
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_reader_that_joins_on_longer_terms_gives_up_in_time() {
    let (server, proxy, client, first) = joined_by_longer_terms(LIMIT).await;
    let lock = client.rw_lock("n").with_ttl(Duration::from_secs(90));
    proxy.black_hole(true);
    let began_at = Instant::now();
    let error = soon("it gives up", lock.read_with_timeout(100 * MS)).await.expect_err("no answer");
    let took = began_at.elapsed();
    assert!(took < server.widened(Duration::from_secs(5)), "{took:?}: {error}");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(first.is_held());
    proxy.black_hole(false);
    drop(first);
    nothing_left(&server, &client).await;
}

/// Only the server knows that yet. The newcomer has lost nothing.
#[tokio::test]
async fn a_reader_that_joins_a_lease_that_somebody_removed_gets_its_own() {
    for tries in [false, true] {
        let (server, _proxy, client, first) = joined_by_longer_terms(LIMIT).await;
        server.command(&["DEL", "n"]).await;
        let lock = client.rw_lock("n").with_ttl(Duration::from_secs(90));
        let second = match tries {
            true => soon("the second", lock.try_read()).await.expect("answered").expect("free"),
            false => soon("the second", lock.read()).await.expect("free"),
        };
        assert_ne!(second.holder(), first.holder(), "it has a lease of its own");
        assert!(second.is_held() && !first.is_held());
        drop((first, second));
        nothing_left(&server, &client).await;
    }
}

#[tokio::test]
async fn after_the_window_readers_join_by_asking() {
    let server = Server::start().await;
    let client = without_window(&server).await;
    let lock = client.rw_lock("n");
    let first = lock.read().await.expect("free");
    let second = soon("the second", lock.read()).await.expect("shared");
    let third = lock.try_read().await.expect("asked").expect("shared");
    assert_eq!((second.token(), third.token()), (first.token(), first.token()));
    assert_eq!(second.holder(), first.holder(), "they use one lease");
    first.unlock().await.expect("held");
    assert!(second.is_held() && third.is_held());
    assert!(connect(&server).await.rw_lock("n").try_write().await.expect("refused").is_none());
    drop((second, third));
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn readers_between_two_writers_have_one_token() {
    let (_server, [a, b]) = setup().await;
    let (one, other) = (a.rw_lock("n"), b.rw_lock("n"));
    let mut last = 0;
    for _ in 0..10 {
        let writing = one.write().await.expect("free");
        let token = writing.token();
        assert!(token > last, "{token} follows {last}");
        writing.unlock().await.expect("held");
        let reading = [one.read().await.expect("free"), other.read().await.expect("free")];
        last = reading[0].token();
        assert!(last >= token && reading[1].token() == last, "{token}: {reading:?}");
        drop(reading);
    }
}

#[tokio::test]
async fn a_lock_is_renewed_for_as_long_as_anybody_reads() {
    let (server, [a, b]) = setup().await;
    let ttl = server.slowness().await * 300 * MS;
    let lock = a.rw_lock("n").with_ttl(ttl);
    let (one, other) = (lock.read().await.expect("free"), lock.read().await.expect("shared"));
    let writer = b.rw_lock("n").with_ttl(ttl);
    let refused = writer.write_with_timeout(3 * ttl).await.expect_err("others read");
    assert!(refused.is_timeout() && one.is_held() && other.is_held(), "{refused}");
    one.unlock().await.expect("held");
    let refused = writer.write_with_timeout(2 * ttl).await.expect_err("another reads");
    assert!(refused.is_timeout() && other.is_held(), "{refused}");
    other.unlock().await.expect("held");
    let writing = soon("the writer", writer.write()).await.expect("free");
    assert!(a.rw_lock("n").read_with_timeout(3 * ttl).await.is_err_and(|e| e.is_timeout()));
    assert!(writing.is_held());
}

#[tokio::test]
async fn a_reader_that_died_keeps_writers_out_until_its_own_end() {
    let (server, [client]) = setup().await;
    let id = "gone:0b7c1f0a-4f0e-4f5d-9b57-0d7c6a1e2f30";
    server.command(&["HSET", "n", "mode", "read", id, "1"]).await;
    server.command(&["PEXPIRE", "n", "600000"]).await;
    let end = format!("{{n}}:{id}:rwlock_timeout:1");
    server.command(&["SET", &end, "1", "PX", "300"]).await;
    let lock = client.rw_lock("n");
    assert!(lock.try_write().await.expect("refused").is_none());
    let writing = soon("the writer", lock.write()).await.expect("its end has come");
    writing.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// It stands in the queue and listens to the channel: Java's release is told there.
#[tokio::test]
async fn a_writer_behind_a_reader_of_java_is_counted_once() {
    let (server, [client]) = setup().await;
    let java = "0b7c1f0a-4f0e-4f5d-9b57-0d7c6a1e2f30:17";
    let ours = "a:0b7c1f0a-4f0e-4f5d-9b57-0d7c6a1e2f30";
    server.command(&["HSET", "n", "mode", "read", java, "1", ours, "1"]).await;
    for id in [java, ours] {
        let end = format!("{{n}}:{id}:rwlock_timeout:1");
        server.command(&["SET", &end, "1", "PX", "60000"]).await;
    }
    let lock = client.rw_lock("n");
    let writer = tokio::spawn(lock.write());
    let channel = "redisson_rwlock:{n}";
    let waits = async || subscribers(&server, channel).await == 1;
    eventually(LIMIT, "it listens", waits).await;
    let status = lock.status().await.expect("answered");
    assert_eq!((status.waiting.len(), status.waiting_clients), (1, 1), "{status:?}");
    writer.abort();
    nothing_left_but(&server, &client).await;
}

async fn nothing_left_but(server: &Server, client: &Client) {
    client_is_idle(client).await;
    server.command(&["FLUSHALL"]).await;
}

#[tokio::test]
async fn what_others_ask_for_ends_with_them() {
    let (server, [client]) = setup().await;
    let ttl = Duration::from_secs(2);
    let lock = client.rw_lock("n").with_ttl(ttl);
    for limited in [lock.with_max_hold(100 * MS), lock.with_lease(ttl)] {
        let (first, other) = (limited.read().await.expect("free"), lock.read().await);
        let other = other.expect("shared");
        assert_eq!(first.holder(), other.holder(), "they use one lease");
        // More than one lease: while the other reads, it goes on.
        let lost = tokio::time::timeout(ttl * 3 / 2, first.lost()).await;
        assert!(lost.is_err(), "{lost:?}");
        drop(other);
        soon("the end of the first", first.lost()).await;
        drop(first);
        nothing_left(&server, &client).await;
    }
}

#[tokio::test]
async fn the_keys_are_those_of_redisson() {
    let (server, [client]) = setup().await;
    let lock = client.rw_lock("n");
    let fields = async || {
        let fields = server.command(&["HGETALL", "n"]).await;
        let fields: Vec<String> = redis::from_redis_value(fields).expect("a hash");
        fields
    };
    let reading = lock.read().await.expect("free");
    let holder = reading.holder();
    assert_eq!(fields().await, ["mode", "read", holder.as_str(), "1"]);
    let end = format!("{{n}}:{}:rwlock_timeout:1", holder.as_str());
    assert_eq!(server.command(&["GET", &end]).await, Value::BulkString(b"1".to_vec()));
    reading.unlock().await.expect("held");
    let writing = lock.write().await.expect("free");
    let field = format!("{}:write", writing.holder().as_str());
    assert_eq!(fields().await, ["mode", "write", &field, "1"]);
}

#[tokio::test]
async fn a_key_is_a_lock_of_one_kind() {
    let (server, [client]) = setup().await;
    let (mutex, lock) = (client.mutex("n"), client.rw_lock("n"));
    let wrong = |error: Error| matches!(error, Error::WrongType { .. });
    let locked = mutex.lock().await.expect("free");
    assert!(lock.read().await.is_err_and(wrong) && lock.write().await.is_err_and(wrong));
    assert!(lock.status().await.is_err_and(wrong) && lock.force_unlock().await.is_err_and(wrong));
    assert!(locked.is_held());
    locked.unlock().await.expect("held");
    let reading = lock.read().await.expect("free");
    assert!(mutex.lock().await.is_err_and(wrong) && mutex.try_lock().await.is_err_and(wrong));
    assert!(mutex.status().await.is_err_and(wrong) && mutex.force_unlock().await.is_err_and(wrong));
    reading.unlock().await.expect("held");
    server.command(&["SET", "n", "1"]).await;
    assert!(lock.read().await.is_err_and(wrong) && lock.write().await.is_err_and(wrong));
}

#[tokio::test]
async fn a_forced_unlock_ends_all_readers_or_one() {
    let (server, [a, b]) = setup().await;
    let (one, other) = (a.rw_lock("n"), b.rw_lock("n"));
    let (first, second) = (one.read().await.expect("free"), other.read().await.expect("shared"));
    let status = one.status().await.expect("answered");
    assert_eq!(status.readers.len(), 2, "{status:?}");
    assert!(status.readers.contains(&first.holder()) && status.readers.contains(&second.holder()));
    assert!(one.force_unlock_if(&first.holder()).await.expect("answered"));
    assert!(!first.is_held() && second.is_held());
    assert!(!one.force_unlock_if(&first.holder()).await.expect("answered"));
    assert_eq!(one.status().await.expect("answered").readers, [second.holder()]);
    assert!(other.force_unlock().await.expect("answered"));
    assert!(!second.is_held());
    assert!(one.status().await.expect("answered").holder.is_none());
    drop((first, second));
    nothing_left(&server, &a).await;
    nothing_left(&server, &b).await;
}

#[tokio::test]
async fn who_ends_another_reader_by_force_reads_on() {
    let (server, [a, b]) = setup().await;
    let lock = a.rw_lock("n");
    let own = lock.read().await.expect("free");
    let other = b.rw_lock("n").with_ttl(900 * MS).read().await.expect("shared");
    assert!(lock.force_unlock_if(&other.holder()).await.expect("answered"));
    assert!(own.is_held(), "it was not this one");
    soon("the other is told", other.lost()).await;
    own.unlock().await.expect("held");
    drop(other);
    nothing_left(&server, &a).await;
    nothing_left(&server, &b).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_beside_a_writer() {
    let (server, clients) = setup::<3>().await;
    let inside = Arc::new(AtomicI64::new(0));
    let version = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for (number, client) in clients.iter().cycle().take(12).enumerate() {
        let (lock, inside, version) = (client.rw_lock("n"), inside.clone(), version.clone());
        tasks.push(tokio::spawn(async move {
            for turn in 0..40 {
                if (number + turn) % 4 == 0 {
                    let guard = lock.write().await.expect("its turn comes");
                    assert_eq!(inside.swap(-1000, SeqCst), 0, "a writer is alone");
                    assert!(version.swap(guard.token(), SeqCst) < guard.token());
                    tokio::task::yield_now().await;
                    assert!(guard.is_held());
                    assert_eq!(inside.swap(0, SeqCst), -1000, "a writer is alone");
                    match turn % 3 {
                        0 => {
                            let guard = guard.downgrade().await.expect("held");
                            assert!(version.fetch_max(guard.token(), SeqCst) <= guard.token());
                        }
                        1 => guard.unlock().await.expect("held"),
                        _ => drop(guard),
                    }
                } else {
                    let guard = lock.read().await.expect("its turn comes");
                    assert!(inside.fetch_add(1, SeqCst) >= 0, "no writer is beside a reader");
                    assert!(version.fetch_max(guard.token(), SeqCst) <= guard.token());
                    tokio::task::yield_now().await;
                    assert!(guard.is_held());
                    assert!(inside.fetch_sub(1, SeqCst) > 0, "no writer is beside a reader");
                }
            }
        }));
    }
    for task in tasks {
        soon("all turns", task).await.expect("no task fails");
    }
    for client in &clients {
        nothing_left(&server, client).await;
    }
}

/// A reader that does not wait has its answer from the ask of the writer that is before it, although others of its process
/// read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_to_read_behind_a_writer_of_its_process_is_refused_at_once() {
    let server = Server::start().await;
    let client = without_window(&server).await;
    let lock = client.rw_lock("n");
    let reading = lock.read().await.expect("free");
    let writer = tokio::spawn({
        let lock = client.rw_lock("n");
        async move { lock.write().await }
    });
    queued(&lock, 1).await;
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
    let spy = Spy::on(&server).await;
    let began_at = Instant::now();
    let tried = soon("the answer", lock.try_read()).await.expect("an answer");
    let took = began_at.elapsed();
    assert!(tried.is_none(), "the writer comes first");
    assert!(took < server.widened(200 * MS), "{took:?}");
    let asked = spy.count("rw_acquire");
    assert!((1..=3).contains(&asked), "{asked} asks");
    drop(reading);
    let writing = soon("the writer", writer).await.expect("no panic").expect("its turn");
    writing.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}
