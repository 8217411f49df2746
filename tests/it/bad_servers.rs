//! Servers that refuse, die, hang, forget or are full: the documented error in its time, and nothing left behind.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use leasehold::{Client, ClientBuilder, Error, FindingKind, LossReason, Mutex};

use crate::{
    checks::{
        AT_ONCE, LIMIT, client_is_idle, connect, exists, lock_keys, no_connection_left,
        nothing_left, told,
    },
    support::{Proxy, Server, Stalls, eventually, within},
};

const MS: Duration = Duration::from_millis(1);

fn builder(server: &Server) -> ClientBuilder {
    Client::builder().nodes([server.url()])
}

/// A client that does not wait long for a server that is away.
async fn impatient(server: &Server) -> Client {
    let builder = builder(server).response_timeout(200 * MS).unavailable_after(400 * MS);
    builder.connect().await.expect("the server accepts the client")
}

/// Makes a user with these rules, and returns the URL with which to be that user.
async fn user(server: &Server, name: &str, rules: &[&str]) -> String {
    let mut command = vec!["ACL", "SETUSER", name, "reset", "on", ">pw"];
    command.extend(rules);
    server.command(&command).await;
    server.url_as(name, "pw")
}

async fn set(server: &Server, setting: &str, value: &str) {
    server.command(&["CONFIG", "SET", setting, value]).await;
}

#[track_caller]
fn unavailable<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Err(error @ Error::Unavailable { .. }) => told(&error),
        other => panic!("the server is not there: {other:?}"),
    }
}

/// Waits until a client of the server listens for releases of the lock.
async fn somebody_waits(lock: &Mutex) {
    eventually(LIMIT, "somebody waits", async || {
        lock.status().await.is_ok_and(|status| status.waiting_clients > 0)
    })
    .await;
}

// Rights.

#[tokio::test]
async fn each_missing_right_is_named_at_connect() {
    let server = Server::start().await;
    let commands = [
        "pttl",
        "hexists",
        "hrandfield",
        "hget",
        "hlen",
        "hset",
        "pexpire",
        "del",
        "get",
        "set",
        "time",
        "publish",
        "pubsub",
        "subscribe",
        "evalsha",
    ];
    for command in commands {
        let url = user(&server, "u", &["~*", "&*", "+@all", &format!("-{command}")]).await;
        let started_at = Instant::now();
        let error = Client::connect(&url).await.expect_err(command);
        assert!(started_at.elapsed() < AT_ONCE, "{command}");
        let Error::Denied { what, .. } = &error else { panic!("{command}: {error:?}") };
        assert_eq!(what.split('|').next(), Some(command), "{error:?}");
        assert!(error.to_string().contains(command), "{error}");
    }
    let url = user(&server, "u", &["~*", "&*", "+@all", "-hset", "-pexpire"]).await;
    let error = Client::connect(&url).await.expect_err("two rights are missing").to_string();
    assert!(error.contains("hset") && error.contains("pexpire"), "{error}");
    no_connection_left(&server).await;
    assert!(server.command(&["DBSIZE"]).await == redis::Value::Int(0), "a probe left something");
}

#[tokio::test]
async fn a_missing_right_to_load_scripts_is_named_at_connect() {
    let server = Server::start().await;
    let url = user(&server, "u", &["~*", "&*", "+@all", "-eval"]).await;
    let error = Client::connect(&url).await.expect_err("nothing is loaded yet");
    assert!(matches!(&error, Error::Denied { what, .. } if &**what == "eval"), "{error:?}");
}

#[tokio::test]
async fn a_missing_right_to_load_scripts_is_named_also_where_another_has_loaded_them() {
    let server = Server::start().await;
    connect(&server).await.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    let url = user(&server, "u", &["~*", "&*", "+@all", "-eval"]).await;
    let error = Client::connect(&url).await.expect_err("after SCRIPT FLUSH it could do nothing");
    assert!(matches!(&error, Error::Denied { what, .. } if &**what == "eval"), "{error:?}");
}

#[tokio::test]
async fn rights_that_only_inform_are_not_needed() {
    let server = Server::start().await;
    let rules = [
        "~*",
        "&*",
        "-@all",
        "+eval",
        "+evalsha",
        "+pttl",
        "+hexists",
        "+hrandfield",
        "+hget",
        "+hlen",
        "+hset",
        "+pexpire",
        "+del",
        "+get",
        "+set",
        "+time",
        "+publish",
        "+pubsub|numsub",
        "+subscribe",
        "+unsubscribe",
        "+ping",
    ];
    let url = user(&server, "least", &rules).await;
    let client = Client::connect(&url).await.expect("all that is needed");
    let holder = connect(&server).await;
    let held = holder.mutex("n").lock().await.expect("free");
    let lock = client.mutex("n").with_ttl(150 * MS);
    let waiter = tokio::spawn(lock.lock());
    somebody_waits(&holder.mutex("n")).await;
    let unlocked_at = Instant::now();
    held.unlock().await.expect("held");
    let guard = waiter.await.expect("no panic").expect("it may");
    assert!(unlocked_at.elapsed() < Duration::from_millis(1500), "it was not woken");
    let inner = guard.reenter().expect("held");
    // Longer than two TTLs: what is tested is that it stays held.
    tokio::time::sleep(400 * MS).await;
    assert!(inner.is_held());
    drop(inner);
    guard.unlock().await.expect("held");
    let findings = client.check().await.expect("an answer");
    assert!(
        findings.iter().any(|finding| matches!(finding.kind, FindingKind::Unknown(_))),
        "{findings:?}"
    );
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_right_taken_away_later_is_named_by_the_call_that_needs_it() {
    let server = Server::start().await;
    let url = user(&server, "u", &["~*", "&*", "+@all"]).await;
    let client = Client::connect(&url).await.expect("all rights");
    let lock = client.mutex("n");
    lock.lock().await.expect("free").unlock().await.expect("held");
    for command in ["hset", "pexpire", "time"] {
        server.command(&["ACL", "SETUSER", "u", "+@all", &format!("-{command}")]).await;
        for answer in [lock.lock().await.map(Some), lock.try_lock().await] {
            // Older servers do not say which command a script may not run.
            assert!(matches!(answer, Err(Error::Denied { .. })), "{command}: {answer:?}");
        }
        assert!(!exists(&server, "n").await, "half a lock without {command}");
    }
    server.command(&["ACL", "SETUSER", "u", "+@all"]).await;
    lock.lock().await.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_key_out_of_bounds_is_denied_when_it_is_asked_for() {
    let server = Server::start().await;
    let rules =
        ["~mine:*", "~leasehold_token:{mine:*", "~redisson_lock__channel:{mine:*", "&*", "+@all"];
    let client = Client::connect(&user(&server, "u", &rules).await).await.expect("all commands");
    let lock = client.mutex("theirs");
    let started_at = Instant::now();
    let errors = [
        lock.lock().await.expect_err("denied"),
        lock.try_lock().await.expect_err("denied"),
        lock.lock_with_timeout(LIMIT).await.expect_err("denied"),
        lock.status().await.expect_err("denied"),
        lock.force_unlock().await.expect_err("denied"),
    ];
    assert!(started_at.elapsed() < AT_ONCE);
    for error in errors {
        assert!(matches!(&error, Error::Denied { what, .. } if &**what == "the key"), "{error:?}");
    }
    client.mutex("mine:1").lock().await.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;

    // A lock's key without its counter's is not enough, and must not end in half a lock.
    let client = Client::connect(&user(&server, "v", &["~mine:*", "&*", "+@all"]).await).await;
    let client = client.expect("all commands");
    let error = client.mutex("mine:1").lock().await.expect_err("the counter is denied");
    assert!(matches!(&error, Error::Denied { what, .. } if &**what == "the key"), "{error:?}");
    nothing_left(&server, &client).await;
}

/// Without a right to the channel nobody is woken, and nobody waits for ever either.
#[tokio::test]
async fn without_the_channel_a_release_is_found_by_polling() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let url = user(&server, "u", &["~*", "resetchannels", "+@all"]).await;
    let (holder, client) = (connect(&server).await, Client::connect(&url).await.expect("rights"));
    let held = holder.mutex("n").lock().await.expect("free");
    let waiter = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "it waits", async || client.stats().subscriptions == 1).await;
    held.unlock().await.expect("held");
    let unlocked_at = Instant::now();
    let guard = tokio::time::timeout(LIMIT, waiter).await.expect("no hang").expect("no panic");
    let waited = unlocked_at.elapsed();
    assert!(waited < within(Duration::from_millis(4100), &stalls), "{waited:?}");
    // Its own release cannot be told, and is a release all the same.
    guard.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

// Servers that are not there.

#[tokio::test]
async fn no_server_at_the_start_is_an_error_after_the_connect_timeout() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    server.kill();
    for (url, named) in
        [(server.url(), server.port().to_string()), ("unix:///no/such".into(), "/no/such".into())]
    {
        let builder = Client::builder().nodes([url]).connect_timeout(400 * MS);
        let started_at = Instant::now();
        let error = unavailable(builder.connect().await);
        let took = started_at.elapsed();
        // It gives up when the next attempt would come too late.
        assert!((100 * MS..within(500 * MS, &stalls)).contains(&took), "{took:?}");
        assert!(error.contains(&named) && error.contains("os error"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_hangs_at_the_start_is_an_error_after_the_connect_timeout() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    server.pause();
    let started_at = Instant::now();
    unavailable(builder(&server).connect_timeout(300 * MS).connect().await);
    let took = started_at.elapsed();
    assert!((300 * MS..within(600 * MS, &stalls)).contains(&took), "{took:?}");
    server.resume();
    no_connection_left(&server).await;
}

#[tokio::test]
async fn a_server_that_dies_and_comes_back_empty_costs_the_holder_the_lock() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let client = impatient(&server).await;
    let lock = client.mutex("n").with_ttl(900 * MS);
    let guard = lock.lock().await.expect("free");
    server.kill();
    server.restart().await;
    let back_at = Instant::now();
    let reason = tokio::time::timeout(LIMIT, guard.lost()).await.expect("it is told");
    assert!(matches!(reason, LossReason::Gone | LossReason::NotRenewed), "{reason:?}");
    assert!(back_at.elapsed() < within(950 * MS, &stalls), "{:?}", back_at.elapsed());
    let error = guard.unlock().await.expect_err("lost");
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    lock.lock().await.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_server_that_dies_for_good_is_unavailable_to_each_call_in_its_time() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let client = impatient(&server).await;
    let lock = client.mutex("n").with_ttl(900 * MS);
    let guard = lock.lock().await.expect("free");
    let sent_at = Instant::now();
    let waiter = tokio::spawn(client.mutex("n").lock());
    server.kill();

    let reason = tokio::time::timeout(LIMIT, guard.lost()).await.expect("it is told");
    assert_eq!(reason, LossReason::NotRenewed);
    // The last renewal can have been confirmed a moment before the end.
    assert!(sent_at.elapsed() < within(1300 * MS, &stalls), "{:?}", sent_at.elapsed());
    let started_at = Instant::now();
    let error = guard.unlock().await.expect_err("lost");
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    assert!(started_at.elapsed() < within(300 * MS, &stalls));

    let answer = tokio::time::timeout(LIMIT, waiter).await.expect("no hang").expect("no panic");
    unavailable(answer);
    let started_at = Instant::now();
    unavailable(lock.lock().await);
    let took = started_at.elapsed();
    assert!((400 * MS..within(1500 * MS, &stalls)).contains(&took), "{took:?}");
    let started_at = Instant::now();
    unavailable(lock.try_lock().await);
    assert!(started_at.elapsed() < within(300 * MS, &stalls), "{:?}", started_at.elapsed());
    let started_at = Instant::now();
    unavailable(lock.lock_with_timeout(300 * MS).await);
    let took = started_at.elapsed();
    assert!((300 * MS..within(350 * MS, &stalls)).contains(&took), "{took:?}");
    unavailable(lock.status().await);
    unavailable(lock.force_unlock().await);
    unavailable(client.check().await);

    server.restart().await;
    let guard = lock.lock_with_timeout(LIMIT).await.expect("the server is back");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_waiter_gets_in_when_a_dead_server_comes_back_empty() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let (holder, client) = (connect(&server).await, connect(&server).await);
    let held = holder.mutex("n").lock().await.expect("free");
    let waiter = tokio::spawn(client.mutex("n").lock());
    somebody_waits(&holder.mutex("n")).await;
    server.kill();
    server.restart().await;
    let back_at = Instant::now();
    let guard = tokio::time::timeout(LIMIT, waiter).await.expect("no hang").expect("no panic");
    // Connecting again backs off to a second at most, twice: for commands and for subscriptions.
    assert!(back_at.elapsed() < within(4100 * MS, &stalls), "{:?}", back_at.elapsed());
    let guard = guard.expect("nobody holds it there");
    assert!(guard.token() > held.token(), "tokens grow past lost data");
    guard.unlock().await.expect("held");
    drop(held);
    nothing_left(&server, &client).await;
    nothing_left(&server, &holder).await;
}

#[tokio::test]
async fn a_restart_between_two_uses_is_not_noticed_or_told_clearly() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let lock = client.mutex("n");
    let mut token = 0;
    for _ in 0..3 {
        let guard = lock.lock_with_timeout(LIMIT).await.expect("no error in spite of the restart");
        assert!(guard.token() > token);
        token = guard.token();
        guard.unlock().await.expect("held");
        server.kill();
        server.restart().await;
    }
    // One attempt does not wait longer than for one answer, and says what is missing.
    match lock.try_lock().await {
        Ok(guard) => guard.expect("free").unlock().await.expect("held"),
        other => assert!(!unavailable(other).is_empty()),
    }
    nothing_left(&server, &client).await;
}

// Servers that hang.

#[tokio::test]
async fn a_pause_shorter_than_the_ttl_is_not_noticed_by_the_holder() {
    let server = Server::start().await;
    let client = builder(&server).response_timeout(100 * MS).connect().await.expect("connected");
    let guard = client.mutex("n").with_ttl(5 * Duration::from_secs(1)).lock().await.expect("free");
    let mut lost = guard.lost();
    server.pause();
    // Past the first renewal and its retries.
    let lost_meanwhile = tokio::time::timeout(Duration::from_millis(2500), &mut lost).await;
    assert!(lost_meanwhile.is_err(), "{lost_meanwhile:?}");
    server.resume();
    eventually(LIMIT, "it is renewed", async || guard.remaining() > Duration::from_millis(4500))
        .await;
    guard.unlock().await.expect("held all the time");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn waits_and_locks_of_a_hanging_server_end_in_their_time_and_leave_nothing() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let client = impatient(&server).await;
    let lock = client.mutex("n").with_ttl(900 * MS);
    let guard = lock.lock().await.expect("free");
    let remaining_at_most = Instant::now() + 900 * MS;
    server.pause();
    let started_at = Instant::now();
    let answer = client.mutex("other").lock_with_timeout(250 * MS).await;
    unavailable(answer);
    let took = started_at.elapsed();
    assert!((250 * MS..within(300 * MS, &stalls)).contains(&took), "{took:?}");
    let started_at = Instant::now();
    unavailable(client.mutex("another").lock().await);
    let took = started_at.elapsed();
    assert!((400 * MS..within(1500 * MS, &stalls)).contains(&took), "{took:?}");

    let reason = tokio::time::timeout(LIMIT, guard.lost()).await.expect("it is told");
    assert_eq!(reason, LossReason::NotRenewed);
    let late = remaining_at_most.elapsed();
    assert!(late < within(1200 * MS, &stalls), "{late:?}");
    drop(guard);
    server.resume();
    nothing_left(&server, &client).await;
    lock.lock_with_timeout(LIMIT).await.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn an_unlock_that_a_hanging_server_does_not_answer_stays_owed() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let client = impatient(&server).await;
    let guard = client.mutex("n").lock().await.expect("free");
    server.pause();
    let started_at = Instant::now();
    unavailable(guard.unlock().await);
    let took = started_at.elapsed();
    assert!((200 * MS..within(500 * MS, &stalls)).contains(&took), "{took:?}");
    assert_eq!(client.stats().owed_releases, 1);
    server.resume();
    nothing_left(&server, &client).await;
}

// Servers that forget.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_flushed_under_load_are_not_noticed() {
    let server = Server::start().await;
    let clients = [connect(&server).await, connect(&server).await];
    let done = Arc::new(AtomicBool::new(false));
    let flushes = tokio::spawn({
        let done = done.clone();
        let mut raw = server.raw().await;
        async move {
            let mut flushes = 0;
            while !done.load(Ordering::Relaxed) {
                let flushed = redis::cmd("SCRIPT").arg("FLUSH").query_async::<()>(&mut raw).await;
                flushed.expect("it may");
                flushes += 1;
            }
            flushes
        }
    });
    let inside: Arc<[AtomicU64; 3]> = Arc::default();
    let tasks: Vec<_> = (0..12)
        .map(|n| {
            let client = clients[n % 2].clone();
            let inside = inside.clone();
            tokio::spawn(async move {
                let place = n % 3;
                let lock = client.mutex(format!("n{place}")).with_ttl(300 * MS);
                for turn in 0..40 {
                    let guard = lock.lock().await?;
                    assert_eq!(inside[place].fetch_add(1, Ordering::SeqCst), 0, "not alone");
                    if turn == 0 {
                        // Two renewals and more.
                        tokio::time::sleep(250 * MS).await;
                    }
                    assert!(guard.is_held());
                    inside[place].fetch_sub(1, Ordering::SeqCst);
                    guard.unlock().await?;
                }
                Ok::<(), Error>(())
            })
        })
        .collect();
    for task in tasks {
        let done = tokio::time::timeout(2 * LIMIT, task).await.expect("no hang");
        done.expect("no panic").expect("no error");
    }
    done.store(true, Ordering::Relaxed);
    let flushes = flushes.await.expect("no panic");
    assert!(flushes > 100, "{flushes} are no load");
    for client in &clients {
        nothing_left(&server, client).await;
    }
}

#[tokio::test]
async fn flushed_data_is_told_to_the_holder_and_lets_the_waiter_in() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let (holder, client) = (connect(&server).await, connect(&server).await);
    let guard = holder.mutex("n").with_ttl(900 * MS).lock().await.expect("free");
    let waiter = tokio::spawn(client.mutex("n").lock());
    somebody_waits(&client.mutex("n")).await;
    server.command(&["FLUSHALL"]).await;
    let flushed_at = Instant::now();
    let reason = tokio::time::timeout(LIMIT, guard.lost()).await.expect("it is told");
    assert_eq!(reason, LossReason::Gone);
    assert!(flushed_at.elapsed() < within(350 * MS, &stalls), "{:?}", flushed_at.elapsed());
    let got = tokio::time::timeout(LIMIT, waiter).await.expect("no hang").expect("no panic");
    let got = got.expect("nobody holds it any more");
    assert!(flushed_at.elapsed() < within(1000 * MS, &stalls), "{:?}", flushed_at.elapsed());
    assert!(got.token() > guard.token(), "tokens grow past lost data");
    let error = guard.unlock().await.expect_err("lost");
    assert!(matches!(error, Error::Lost { reason: LossReason::Gone, .. }), "{error:?}");
    assert!(
        got.is_held() && exists(&server, "n").await,
        "the loser's release freed the winner's lock"
    );
    got.unlock().await.expect("held");
    nothing_left(&server, &client).await;
    nothing_left(&server, &holder).await;
}

// Servers that refuse for a while.

#[tokio::test]
async fn a_server_short_of_memory_refuses_locks_but_not_their_renewal_and_release() {
    let server = Server::with(&["--maxmemory-policy", "noeviction"]).await;
    let client = impatient(&server).await;
    let lock = client.mutex("n").with_ttl(300 * MS);
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
    assert!(tokio::time::timeout(900 * MS, &mut lost).await.is_err());
    drop(inner);
    assert!(guard.is_held() && exists(&server, "n").await);
    guard.unlock().await.expect("held");
    assert!(!exists(&server, "n").await);

    let waiter =
        tokio::spawn(builder(&server).connect().await.expect("connected").mutex("other").lock());
    set(&server, "maxmemory", "0").await;
    let guard = tokio::time::timeout(LIMIT, waiter).await.expect("no hang").expect("no panic");
    guard.expect("there is memory again").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_server_turned_into_a_replica_refuses_until_it_is_a_master_again() {
    let stalls = Stalls::watch();
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
    let reason = tokio::time::timeout(LIMIT, guard.lost()).await.expect("it is told");
    assert_eq!(reason, LossReason::NotRenewed);
    assert!(turned_at.elapsed() < within(2500 * MS, &stalls), "{:?}", turned_at.elapsed());
    drop(guard);
    set(&server, "replica-serve-stale-data", "no").await;
    let error = unavailable(client.mutex("other").try_lock().await);
    assert!(error.contains("it is a replica of 127.0.0.1:1"), "{error}");

    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    let guard = lock.lock_with_timeout(LIMIT).await.expect("it takes writes again");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
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
    let reason = tokio::time::timeout(LIMIT, guard.lost()).await.expect("it is told");
    assert_eq!(reason, LossReason::NotRenewed);
    drop(guard);

    let waiter =
        tokio::spawn(builder(&server).connect().await.expect("connected").mutex("other").lock());
    fs::remove_dir_all(server.dir().join("dump.rdb")).expect("it can be removed again");
    server.command(&["BGSAVE"]).await;
    eventually(LIMIT, "saving works", async || status().await).await;
    let guard = tokio::time::timeout(LIMIT, waiter).await.expect("no hang").expect("no panic");
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

// Connections that break.

#[tokio::test]
async fn killed_connections_cost_neither_the_holder_nor_the_waiter_the_lock() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let (holder, client) = (connect(&server).await, connect(&server).await);
    let guard = holder.mutex("n").with_ttl(2 * Duration::from_secs(1)).lock().await.expect("free");
    let waiter = tokio::spawn(client.mutex("n").lock());
    somebody_waits(&holder.mutex("n")).await;
    for round in 0..4 {
        let before = (holder.stats().connections_made, client.stats().connections_made);
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
        eventually(LIMIT, "both connect again", async || {
            holder.stats().connections_made > before.0 && client.stats().connections_made > before.1
        })
        .await;
        assert!(guard.is_held(), "round {round}");
        assert!(!waiter.is_finished(), "round {round}");
    }
    // Longer than the TTL: the renewals went on.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert!(guard.is_held());
    guard.unlock().await.expect("held");
    let unlocked_at = Instant::now();
    let guard = tokio::time::timeout(LIMIT, waiter).await.expect("no hang").expect("no panic");
    assert!(unlocked_at.elapsed() < within(100 * MS, &stalls), "{:?}", unlocked_at.elapsed());
    guard.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
    nothing_left(&server, &holder).await;
}

#[tokio::test]
async fn a_network_that_swallows_answers_leaves_no_lock_behind() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let client = Client::builder()
        .nodes([proxy.url()])
        .response_timeout(100 * MS)
        .unavailable_after(300 * MS)
        .connect()
        .await
        .expect("connected");
    proxy.drop_replies(true);
    unavailable(client.mutex("a").try_lock().await);
    unavailable(client.mutex("b").lock_with_timeout(150 * MS).await);
    unavailable(client.mutex("c").lock().await);
    proxy.drop_replies(false);
    proxy.cut();
    nothing_left(&server, &client).await;
    for name in ["a", "b", "c"] {
        let guard = client.mutex(name).lock_with_timeout(LIMIT).await.expect("free");
        guard.unlock().await.expect("held");
    }
    assert!(lock_keys(&server).await.is_empty());
}

#[tokio::test]
async fn a_refused_login_is_denied_at_connect_without_showing_the_password() {
    let server = Server::with(&["--requirepass", "right"]).await;
    let urls = [
        format!("redis://127.0.0.1:{}", server.port()),
        format!("redis://:canary@127.0.0.1:{}", server.port()),
        server.url_as("nobody", "canary"),
        server.url_as("default", "canary"),
    ];
    for url in urls {
        let started_at = Instant::now();
        let error = Client::connect(&url).await.expect_err("not the password");
        assert!(matches!(error, Error::Denied { .. }), "{url}: {error:?}");
        assert!(!told(&error).contains("canary"), "{}", told(&error));
        assert!(started_at.elapsed() < AT_ONCE);
    }
    let client = connect(&server).await;
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_password_changed_while_connected_is_told_once_the_connection_is_made_again() {
    let server = Server::start().await;
    let url = user(&server, "u", &["~*", "&*", "+@all"]).await;
    let client = Client::connect(&url).await.expect("the password is right");
    server.command(&["ACL", "SETUSER", "u", "resetpass", ">other"]).await;
    server.command(&["CLIENT", "KILL", "USER", "u"]).await;
    let lock = client.mutex("n");
    eventually(LIMIT, "the login is denied", async || {
        matches!(lock.try_lock().await, Err(Error::Denied { .. }))
    })
    .await;
    let error = lock.lock().await.expect_err("denied");
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    server.command(&["ACL", "SETUSER", "u", "resetpass", ">pw"]).await;
    eventually(LIMIT, "it is let in again", async || lock.try_lock().await.is_ok()).await;
    nothing_left(&server, &client).await;
}
