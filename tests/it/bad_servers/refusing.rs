//! Servers that refuse for a while.

use std::{fs, time::Instant};

use leasehold::{Error, LossReason};
use redis::RedisResult;
use tokio::task::JoinSet;

use super::{MS, builder, impatient, set, unavailable};
use crate::{
    checks::{AT_ONCE, LIMIT, client_is_idle, exists, nothing_left, soon, told},
    support::{Server, eventually},
};

#[tokio::test]
async fn a_server_short_of_memory_refuses_locks_but_not_their_renewal_and_release() {
    let server = Server::with(&["--maxmemory-policy", "noeviction"]).await;
    let client = impatient(&server).await;
    let lock = client.mutex("n").with_ttl(900 * MS);
    let guard = lock.lock().await.expect("free");
    set(&server, "maxmemory", "1").await;

    let other = client.mutex("other");
    let started_at = Instant::now();
    let error = unavailable(other.try_lock().await);
    assert!(error.contains("OOM"), "{error}");
    assert!(started_at.elapsed() < AT_ONCE);
    let error = unavailable(other.lock().await);
    assert!(error.contains("OOM"), "{error}");
    assert!(!exists(&server, "other").await);

    let mut lost = guard.lost();
    let inner = guard.reenter().expect("held");
    // Several TTLs: what is tested is that it stays held.
    assert!(tokio::time::timeout(2_500 * MS, &mut lost).await.is_err());
    drop(inner);
    assert!(guard.is_held() && exists(&server, "n").await);
    guard.unlock().await.expect("held");
    assert!(!exists(&server, "n").await);

    let waiter =
        tokio::spawn(builder(&server).connect().await.expect("connected").mutex("other").lock());
    set(&server, "maxmemory", "0").await;
    let guard = soon("no hang", waiter).await.expect("no panic");
    guard.expect("there is memory again").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_server_turned_into_a_replica_refuses_until_it_is_a_master_again() {
    let server = Server::start().await;
    let client = impatient(&server).await;
    let lock = client.mutex("n").with_ttl(600 * MS);
    let guard = lock.lock().await.expect("free");
    let released = client.mutex("m").lock().await.expect("free");
    server.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let turned_at = Instant::now();

    let error = unavailable(client.mutex("other").try_lock().await);
    assert!(error.contains("read only replica"), "{error}");
    let error = unavailable(client.mutex("other").lock().await);
    assert!(error.contains("it is a replica of 127.0.0.1:1: name the master"), "{error}");
    let error = unavailable(released.unlock().await);
    assert!(error.contains("it is a replica of 127.0.0.1:1"), "{error}");
    let reason = soon("it is told", guard.lost()).await;
    assert_eq!(reason, LossReason::NotRenewed);
    assert!(turned_at.elapsed() < server.widened(2500 * MS), "{:?}", turned_at.elapsed());
    drop(guard);
    set(&server, "replica-serve-stale-data", "no").await;
    let error = unavailable(client.mutex("other").try_lock().await);
    assert!(error.contains("it is a replica of 127.0.0.1:1"), "{error}");

    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    let guard = lock.lock_with_timeout(LIMIT).await.expect("it takes writes again");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// A server grants locks, and then refuses what it is asked, by that `code`, from what `begin` does until what `end` does.
async fn renewed_and_released_behind_it<T>(
    server: &Server,
    code: &str,
    begin: impl AsyncFnOnce() -> T,
    end: impl AsyncFnOnce(T),
) {
    let client = impatient(server).await;
    let short = client.mutex("n").with_ttl(600 * MS).lock().await.expect("free");
    let long = client.mutex("long").with_ttl(LIMIT).lock().await.expect("free");
    let released = client.mutex("m").with_ttl(LIMIT).lock().await.expect("free");
    let begun = begin().await;

    let error = unavailable(client.mutex("other").try_lock().await);
    assert!(error.contains(code), "{error}");
    let error = unavailable(released.unlock().await);
    assert!(error.contains(code), "{error}");
    let reason = soon("it is told", short.lost()).await;
    assert_eq!(reason, LossReason::NotRenewed);
    drop(short);
    assert!(long.is_held());

    let waiter = tokio::spawn(client.mutex("m").lock_with_timeout(LIMIT));
    end(begun).await;
    let guard = soon("no hang", waiter).await.expect("no panic");
    guard.expect("it was given back").unlock().await.expect("held");
    eventually(LIMIT, "it is renewed", async || long.remaining() > LIMIT * 9 / 10).await;
    long.unlock().await.expect("held all the time");
    nothing_left(server, &client).await;
}

#[tokio::test]
async fn a_server_that_lacks_replicas_behind_its_yes_renews_and_releases_when_it_has_them() {
    let server = Server::start().await;
    let begin = async || set(&server, "min-replicas-to-write", "1").await;
    let end = async |()| {
        assert!(exists(&server, "m").await);
        set(&server, "min-replicas-to-write", "0").await;
    };
    renewed_and_released_behind_it(&server, "NOREPLICAS", begin, end).await;
}

/// A refused release frees nothing. The one that is sent again finds that somebody else did.
#[tokio::test]
async fn an_unlock_that_is_refused_when_it_is_sent_first_still_tells_of_a_loss() {
    let server = Server::start().await;
    let client = builder(&server).response_timeout(LIMIT).connect().await.expect("connected");
    let guard = client.mutex("n").with_ttl(3 * LIMIT).lock().await.expect("free");
    set(&server, "min-replicas-to-write", "1").await;
    let unlocking = tokio::spawn(guard.unlock());
    eventually(LIMIT, "it is owed", async || client.stats().releases_pending == 1).await;
    // As a forced unlock does, before the server takes any other request again.
    let mut both = redis::pipe();
    both.cmd("CONFIG").arg("SET").arg("min-replicas-to-write").arg("0").ignore();
    both.cmd("DEL").arg("n");
    let (deleted,): (u32,) =
        both.query_async(&mut server.raw().await).await.expect("it is not refused");
    assert_eq!(deleted, 1, "it was released all the same");
    let unlocked = soon("unlocking", unlocking).await.expect("no panic");
    assert!(matches!(unlocked, Err(Error::Lost { .. })), "{unlocked:?}");
    nothing_left(&server, &client).await;
}

/// Somebody else's script runs for long.
#[tokio::test]
async fn a_server_that_is_busy_behind_its_yes_renews_and_releases_when_it_is_not() {
    let server = Server::with(&["--lua-time-limit", "20"]).await;
    let mut theirs = server.raw().await;
    let script = async move {
        redis::cmd("EVAL").arg("while true do end").arg(0).query_async::<()>(&mut theirs).await
    };
    let busy = async || match server.try_command(&["EXISTS", "n"]).await {
        Err(error) => error.to_string().contains("BUSY"),
        Ok(_) => false,
    };
    let begin = async || {
        let mut scripts = JoinSet::new();
        scripts.spawn(script);
        eventually(LIMIT, "it is busy", busy).await;
        scripts
    };
    let end = async |mut scripts: JoinSet<RedisResult<()>>| {
        server.command(&["SCRIPT", "KILL"]).await;
        let script = scripts.join_next().await.expect("it was begun").expect("no panic");
        script.expect_err("it was killed");
    };
    renewed_and_released_behind_it(&server, "BUSY", begin, end).await;
}

#[tokio::test]
async fn a_server_that_cannot_save_refuses_until_it_can() {
    let server = Server::start().await;
    let client = impatient(&server).await;
    let lock = client.mutex("n").with_ttl(600 * MS);
    let guard = lock.lock().await.expect("free");
    let released = client.mutex("m").lock().await.expect("free");
    let status = async || {
        let info = server.command(&["INFO", "persistence"]).await;
        let info: String = redis::from_redis_value(info).expect("a text");
        info.contains("rdb_last_bgsave_status:ok")
    };
    // Where its file should go there is a directory.
    fs::create_dir_all(server.dir().join("dump.rdb/x")).expect("a directory can be made");
    set(&server, "save", "3600 1").await;
    server.command(&["BGSAVE"]).await;
    eventually(LIMIT, "saving fails", async || !status().await).await;

    let error = unavailable(client.mutex("other").try_lock().await);
    assert!(error.contains("MISCONF"), "{error}");
    let error = unavailable(released.unlock().await);
    assert!(error.contains("MISCONF"), "{error}");
    let reason = soon("it is told", guard.lost()).await;
    assert_eq!(reason, LossReason::NotRenewed);
    drop(guard);

    let waiter =
        tokio::spawn(builder(&server).connect().await.expect("connected").mutex("other").lock());
    fs::remove_dir_all(server.dir().join("dump.rdb")).expect("it can be removed again");
    server.command(&["BGSAVE"]).await;
    eventually(LIMIT, "saving works", async || status().await).await;
    let guard = soon("no hang", waiter).await.expect("no panic");
    guard.expect("it takes writes again").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_server_that_loads_its_data_is_waited_for() {
    let server = Server::with(&["--rdbcompression", "no", "--key-load-delay", "30000"]).await;
    let client = impatient(&server).await;
    // A server looks at its connections every two megabytes that it loads: here every fourth key.
    for n in 0..40 {
        server.command(&["SETRANGE", &format!("x{n}"), "524287", "x"]).await;
    }
    server.command(&["SAVE"]).await;
    server.kill();
    let lock = client.mutex("n");
    let loading = async || {
        let told = match lock.try_lock().await {
            Err(error) => told(&error),
            Ok(_) => String::new(),
        };
        told.contains("loading")
    };
    let ((), (), new_client) = tokio::join!(
        server.restart(),
        eventually(LIMIT, "one attempt says that the server loads", loading),
        builder(&server).connect_timeout(LIMIT).connect(),
    );
    client_is_idle(&new_client.expect("it waits until the server has loaded")).await;
    let guard = lock.lock_with_timeout(LIMIT).await.expect("it has loaded");
    guard.unlock().await.expect("held");
    client_is_idle(&client).await;
    assert!(!exists(&server, "n").await);
}
