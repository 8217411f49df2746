//! Names, durations, addresses and keys that cannot work, and those that look as if they could not.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use leasehold::{Client, ClientBuilder, Error, Guard, Mutex};

use crate::{
    checks::{AT_ONCE, LIMIT, client_is_idle, connect, exists, lock_keys, nothing_left, told},
    support::{Proxy, Server, Spy, Stalls, eventually, within},
};

const MS: Duration = Duration::from_millis(1);

/// The error of each call that can acquire the lock.
async fn acquiring_errors(lock: &Mutex) -> Vec<Error> {
    async fn error<T>(call: impl Future<Output = Result<T, Error>>) -> Error {
        let answer = tokio::time::timeout(LIMIT, call).await.expect("an answer, and no hang");
        answer.err().expect("an error")
    }
    vec![
        error(lock.lock()).await,
        error(lock.try_lock()).await,
        error(lock.try_lock_for(Duration::from_secs(5))).await,
        error(lock.lock_with_timeout(Duration::from_secs(5))).await,
        error(lock.lock_with_timeout(Duration::MAX)).await,
        error(lock.run(async |_| ())).await,
    ]
}

/// The error of each call that asks about the lock.
async fn asking_errors(lock: &Mutex) -> Vec<Error> {
    vec![
        lock.status().await.expect_err("no status"),
        lock.is_locked().await.expect_err("no status"),
        lock.holder().await.expect_err("no status"),
        lock.remaining_ttl().await.expect_err("no status"),
        lock.force_unlock().await.expect_err("nothing to force"),
    ]
}

fn builder(server: &Server) -> ClientBuilder {
    Client::builder().nodes([server.url()])
}

async fn problem(builder: ClientBuilder) -> String {
    match builder.connect().await {
        Err(Error::InvalidConfig { problem, .. }) => problem.to_string(),
        other => panic!("not a bad setting: {other:?}"),
    }
}

/// How often the server was asked to run a script.
async fn scripts_run(server: &Server) -> u64 {
    let info = server.command(&["INFO", "commandstats"]).await;
    let info: String = redis::from_redis_value(info).expect("a text");
    let calls = info.lines().filter(|line| line.starts_with("cmdstat_eval"));
    calls
        .filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok())
        .sum()
}

#[tokio::test]
async fn a_name_that_cannot_be_a_lock_is_told_by_every_call() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let long = "x".repeat(4097);
    // 4097 bytes of 4096 characters: it is the bytes that count.
    let wide = format!("{}ä", "x".repeat(4095));
    for name in ["", &long, &wide, "leasehold_token:{n}", "redisson_lock_token:{n}"] {
        let lock = client.mutex(name);
        for error in acquiring_errors(&lock).await.into_iter().chain(asking_errors(&lock).await) {
            assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
            assert!(told(&error).len() < 500, "the name is shown whole: {error}");
        }
    }
    assert!(lock_keys(&server).await.is_empty());
    client_is_idle(&client).await;
}

#[tokio::test]
async fn odd_names_lock_and_unlock() {
    let server = Server::start().await;
    let (client, other) = (connect(&server).await, connect(&server).await);
    let long = "x".repeat(4096);
    let names = [
        "a b",
        "{",
        "}",
        "{}",
        "a{b}c",
        "}{",
        "{{}}",
        "\0",
        "a\0b",
        "\r\n",
        "a\r\n*1\r\n",
        "ä",
        "锁",
        "🔒",
        "*",
        "?[a-z]",
        "%s%n",
        "'; return 1 --",
        "\u{202e}x",
        &long,
    ];
    for name in names {
        let guard = client.mutex(name).lock().await.expect(name);
        assert_eq!(guard.name(), name);
        let lock = other.mutex(name);
        assert_eq!(lock.holder().await.expect(name), Some(guard.holder()), "{name:?}");
        assert!(lock.try_lock().await.expect(name).is_none(), "{name:?}");

        // Waked by the message on its channel: the timers would take two seconds at least.
        let waiter = tokio::spawn(lock.lock());
        eventually(LIMIT, "the other one waits", async || {
            lock.status().await.is_ok_and(|status| status.waiting_clients == 1)
        })
        .await;
        let unlocked_at = Instant::now();
        guard.unlock().await.expect(name);
        let guard = waiter.await.expect("no panic").expect(name);
        assert!(unlocked_at.elapsed() < Duration::from_millis(1500), "{name:?} was not woken");
        guard.unlock().await.expect(name);
        assert!(!exists(&server, name).await, "{name:?}");
    }
    nothing_left(&server, &client).await;
    nothing_left(&server, &other).await;
}

#[tokio::test]
async fn a_bad_client_name_is_told_by_connect() {
    let server = Server::start().await;
    let long = "x".repeat(65);
    for name in ["", &long, "a:b", "a b", "ä", "a\n", "a/b", "{a}"] {
        let error = builder(&server).name(name).connect().await.expect_err("not a client's name");
        assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
    }
    let longest = "x".repeat(64);
    for name in ["a", "A-Z.9_", &longest] {
        let client = builder(&server).name(name).connect().await.expect("a client's name");
        let guard = client.mutex("n").lock().await.expect("free");
        assert_eq!((client.name(), guard.holder().client()), (name, Some(name)));
        guard.unlock().await.expect("held");
    }
}

#[tokio::test]
async fn a_duration_out_of_range_is_told_by_connect() {
    let server = Server::start().await;
    let day = Duration::from_secs(24 * 60 * 60);
    let absurd = [Duration::from_secs(u64::MAX), Duration::MAX];
    let never = [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999)];

    for ttl in never.into_iter().chain([9 * MS, 30 * day + MS]).chain(absurd) {
        let problem = problem(builder(&server).ttl(ttl)).await;
        assert!(problem.contains("ttl"), "{problem}");
    }
    for timeout in never.into_iter().chain(absurd) {
        let problems = [
            ("response_timeout", problem(builder(&server).response_timeout(timeout)).await),
            ("connect_timeout", problem(builder(&server).connect_timeout(timeout)).await),
            ("unavailable_after", problem(builder(&server).unavailable_after(timeout)).await),
        ];
        for (setting, problem) in problems {
            assert!(problem.contains(setting), "{problem}");
        }
    }
    for retention in [Duration::ZERO, Duration::from_secs(59), 366 * day, Duration::MAX] {
        let problem = problem(builder(&server).token_retention(retention)).await;
        assert!(problem.contains("token_retention"), "{problem}");
    }
    for window in [1001 * MS, Duration::MAX] {
        let problem = problem(builder(&server).handoff_window(window)).await;
        assert!(problem.contains("handoff_window"), "{problem}");
    }
    let problem = problem(builder(&server).ttl(100 * MS).handoff_window(51 * MS)).await;
    assert!(problem.contains("handoff_window") && problem.contains("ttl"), "{problem}");

    // The ends of the ranges are inside.
    let client = builder(&server)
        .ttl(30 * day)
        .response_timeout(day)
        .unavailable_after(30 * day)
        .handoff_window(Duration::ZERO)
        .connect()
        .await
        .expect("settings in range");
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_duration_out_of_range_is_told_by_the_acquiring_call() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let lock = client.mutex("n");
    let month = Duration::from_secs(30 * 24 * 60 * 60);
    let mut handles = vec![lock.with_max_hold(Duration::ZERO)];
    let bad = [Duration::ZERO, Duration::from_nanos(1), 9 * MS, month + MS, Duration::MAX];
    for term in bad {
        handles.push(lock.with_lease(term));
        handles.push(lock.with_ttl(term));
    }
    for handle in handles {
        for error in acquiring_errors(&handle).await {
            assert!(matches!(error, Error::InvalidConfig { .. }), "{handle:?}: {error:?}");
        }
    }
    let guard = lock.with_lease(month).lock().await.expect("free");
    for term in bad {
        let error = guard.extend(term).await.expect_err("out of range");
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
    }
    assert!(guard.is_held() && guard.remaining() <= month);
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_lease_with_a_fraction_of_a_millisecond_is_rounded_up() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let spy = Spy::on(&server).await;
    let lease = Duration::from_secs(20) + Duration::from_nanos(1);
    let guard = client.mutex("n").with_lease(lease).lock().await.expect("free");
    assert!(guard.remaining() < lease, "here it ends before it does at the server");
    let asked = async || spy.count("lock_acquire") > 0;
    eventually(LIMIT, "the server was asked", asked).await;
    assert_eq!(spy.runs()[0].ttl_ms(), 20_001);
    guard.unlock().await.expect("held");
}

#[tokio::test]
async fn the_longest_hold_may_be_tiny_or_endless() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let lock = client.mutex("n");
    let tiny = lock.with_ttl(100 * MS).with_max_hold(Duration::from_nanos(1));
    let guard = tiny.lock().await.expect("free");
    tokio::time::timeout(LIMIT, guard.lost()).await.expect("never renewed, so it ends");
    drop(guard);
    let guard = lock.with_max_hold(Duration::MAX).lock().await.expect("free");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_wait_of_zero_is_one_attempt() {
    let server = Server::start().await;
    let (holder, client) = (connect(&server).await, connect(&server).await);
    let lock = client.mutex("n");
    let guard = lock.lock_with_timeout(Duration::ZERO).await.expect("free");
    guard.unlock().await.expect("held");
    let guard = lock.try_lock_for(Duration::ZERO).await.expect("an answer").expect("free");
    guard.unlock().await.expect("held");

    let held = holder.mutex("n").lock().await.expect("free");
    let before = scripts_run(&server).await;
    let error = lock.lock_with_timeout(Duration::ZERO).await.expect_err("another holds it");
    assert!(
        matches!(&error, Error::Timeout { holder, .. } if *holder == held.holder()),
        "{error:?}"
    );
    assert!(lock.try_lock_for(Duration::ZERO).await.expect("an answer").is_none());
    assert!(lock.try_lock().await.expect("an answer").is_none());
    assert_eq!(scripts_run(&server).await - before, 3, "each of the three asked once");
    // It never stood in line: one connection for commands, one that tried subscriptions at the start.
    assert_eq!(client.stats().connections_made, connect(&server).await.stats().connections_made);
    client_is_idle(&client).await;
    held.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn an_endless_wait_ends_with_the_lock_and_not_before() {
    let server = Server::start().await;
    let holder = connect(&server).await;
    // The servers answer "held" all the time: that is no trouble, however short the patience with trouble.
    let client = builder(&server).unavailable_after(20 * MS).connect().await.expect("connected");
    let held = holder.mutex("n").lock().await.expect("free");
    let waits: Vec<_> =
        [Duration::MAX, Duration::MAX - Duration::from_nanos(1), Duration::from_secs(1 << 40)]
            .into_iter()
            .map(|timeout| {
                let lock = client.mutex("n");
                tokio::spawn(async move { lock.lock_with_timeout(timeout).await?.unlock().await })
            })
            .chain([tokio::spawn({
                let lock = client.mutex("n");
                async move { lock.lock().await?.unlock().await }
            })])
            .collect();
    eventually(LIMIT, "all wait", async || client.stats().waiters == 4).await;
    // Longer than the patience: what is tested is that nothing ends meanwhile.
    tokio::time::sleep(200 * MS).await;
    assert_eq!(client.stats().waiters, 4);
    held.unlock().await.expect("held");
    for wait in waits {
        let got = tokio::time::timeout(LIMIT, wait).await.expect("no hang").expect("no panic");
        got.expect("the lock, in the end");
    }
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn an_address_that_cannot_work_is_refused_at_once_and_never_shown() {
    let server = Server::start().await;
    let mut bad: Vec<Vec<String>> = vec![Vec::new(), vec![server.url(), server.url()]];
    for url in [
        "",
        "canary",
        "user:canary@localhost",
        "redis://",
        "redis://user:canary@",
        "redis://user:canary@:no port/",
        "redis://user:canary@localhost:99999",
        "redis://user:canary@localhost:6379/no-number",
        "redis://user:canary@[::1",
        "redis://user:canary@local host",
        "redis://user:canary%zz@localhost/x",
        "http://user:canary@localhost",
        "redis+sentinel://user:canary@localhost",
        "postgres://user:canary@localhost/0",
    ] {
        bad.push(vec![url.to_owned()]);
    }
    if cfg!(not(feature = "tls")) {
        bad.push(vec!["rediss://user:canary@localhost:6379".to_owned()]);
    }
    for urls in bad {
        let builder = Client::builder().nodes(urls.clone());
        assert!(!format!("{builder:?}").contains("canary"), "{builder:?}");
        let started_at = Instant::now();
        let error =
            builder.connect().await.err().unwrap_or_else(|| panic!("{urls:?} was accepted"));
        assert!(matches!(error, Error::InvalidConfig { .. }), "{urls:?}: {error:?}");
        assert!(!told(&error).contains("canary"), "{}", told(&error));
        assert!(started_at.elapsed() < AT_ONCE, "{urls:?}");
    }
}

#[tokio::test]
async fn a_database_that_the_server_has_not_is_an_error_at_connect() {
    let server = Server::start().await;
    for database in ["9999", "-1"] {
        let started_at = Instant::now();
        let url = format!("{}/{database}", server.url());
        let error = Client::connect(&url).await.expect_err("there are 16 databases");
        assert!(told(&error).contains("DB index"), "{}", told(&error));
        assert!(started_at.elapsed() < AT_ONCE);
    }

    let client = Client::connect(&format!("{}/3", server.url())).await.expect("it has that one");
    let guard = client.mutex("n").lock().await.expect("free");
    assert!(!exists(&server, "n").await, "it is in another database");
    guard.unlock().await.expect("held");
}

#[test]
fn connecting_outside_of_any_runtime_is_refused() {
    let mut connecting = pin!(Client::connect("redis://127.0.0.1:1"));
    let Poll::Ready(answer) = connecting.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("there is nothing to wait for");
    };
    assert!(matches!(answer, Err(Error::InvalidConfig { .. })), "{answer:?}");
}

#[tokio::test]
async fn a_key_of_another_type_is_told_by_every_call_and_left_alone() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let others: [&[&str]; 5] = [
        &["SET", "string", "1"],
        &["RPUSH", "list", "1"],
        &["SADD", "set", "1"],
        &["ZADD", "sorted", "1", "1"],
        &["XADD", "stream", "*", "f", "1"],
    ];
    for command in others {
        server.command(command).await;
        let name = command[1];
        let before = server.command(&["DUMP", name]).await;
        let lock = client.mutex(name);
        let started_at = Instant::now();
        let mut errors = acquiring_errors(&lock).await;
        errors.extend(asking_errors(&lock).await);
        assert!(started_at.elapsed() < 2 * AT_ONCE);
        for error in errors {
            assert!(
                matches!(&error, Error::WrongType { lock, .. } if &**lock == name),
                "{error:?}"
            );
        }
        assert_eq!(server.command(&["DUMP", name]).await, before, "{name} was changed");
    }
    let status = client.mutex("free").force_unlock().await.expect("nothing to free");
    assert!(!status);
    client_is_idle(&client).await;
}

#[tokio::test]
async fn a_waiter_learns_that_the_key_has_become_another_type() {
    let server = Server::start().await;
    let (holder, client) = (connect(&server).await, connect(&server).await);
    let held = holder.mutex("n").with_lease(400 * MS).lock().await.expect("free");
    let waiter = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "it waits", async || client.stats().subscriptions == 1).await;
    server.command(&["SET", "n", "1"]).await;
    let answer = tokio::time::timeout(LIMIT, waiter).await.expect("no hang").expect("no panic");
    assert!(matches!(answer, Err(Error::WrongType { .. })), "{answer:?}");
    let error = held.unlock().await.expect_err("it is not there any more");
    assert!(matches!(error, Error::Lost { .. } | Error::WrongType { .. }), "{error:?}");
    server.command(&["DEL", "n"]).await;
    client_is_idle(&client).await;
    nothing_left(&server, &holder).await;
}

#[tokio::test]
async fn a_counter_of_another_type_gives_an_error_and_no_lock() {
    let server = Server::start().await;
    let client = connect(&server).await;
    server.command(&["RPUSH", "leasehold_token:{n}", "1"]).await;
    let answer = tokio::time::timeout(LIMIT, client.mutex("n").lock()).await.expect("no hang");
    answer.expect_err("there is no token to be had");
    assert!(client.mutex("n").try_lock().await.is_err());
    assert!(!exists(&server, "n").await);
    server.command(&["DEL", "leasehold_token:{n}"]).await;
    client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_replaced() {
    let server = Server::start().await;
    let client = connect(&server).await;
    server.command(&["SET", "leasehold_token:{n}", "no number"]).await;
    let guard = client.mutex("n").lock_with_timeout(Duration::from_secs(5)).await.expect("free");
    assert!(guard.token() > 0);
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// The poll that is the last resort comes every 2 to 4 seconds.
#[tokio::test]
async fn a_hash_without_an_end_is_waited_for_and_taken_soon_after_it_goes_silently() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let client = connect(&server).await;
    server.command(&["HSET", "n", "by:hand", "1"]).await;
    let lock = client.mutex("n");
    let status = lock.status().await.expect("a status");
    assert_eq!(status.holder.map(|holder| holder.as_str().to_owned()), Some("by:hand".to_owned()));
    assert_eq!((status.remaining, status.since), (None, None));
    assert_eq!(lock.remaining_ttl().await.expect("a status"), Some(Duration::MAX));
    let error = lock.lock_with_timeout(50 * MS).await.expect_err("it is held");
    assert!(matches!(error, Error::Timeout { remaining: None, .. }), "{error:?}");

    let before = scripts_run(&server).await;
    let waiter = tokio::spawn(lock.lock());
    // It has asked, subscribed and asked again: now it waits, and nobody will tell it anything.
    eventually(LIMIT, "it waits", async || scripts_run(&server).await - before == 2).await;
    server.command(&["DEL", "n"]).await;
    let deleted_at = Instant::now();
    let guard = tokio::time::timeout(LIMIT, waiter).await.expect("no hang").expect("no panic");
    let waited = deleted_at.elapsed();
    assert!(waited < within(Duration::from_millis(4100), &stalls), "{waited:?}");
    guard.expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
    stalls.report("a_hash_without_an_end");
}

#[tokio::test]
async fn a_ttl_shorter_than_the_way_to_the_server_is_a_clear_error() {
    let stalls = Stalls::watch();
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let client = Client::builder()
        .nodes([proxy.url()])
        .unavailable_after(300 * MS)
        .connect()
        .await
        .expect("connected");
    proxy.delay_replies(200 * MS);
    let lock = client.mutex("n").with_ttl(100 * MS);
    let unavailable = |answer: Result<Option<Guard>, Error>| match answer {
        Err(error @ Error::Unavailable { .. }) => {
            assert!(told(&error).contains(&proxy.port().to_string()))
        }
        other => panic!("not what cannot be: {other:?}"),
    };

    let started_at = Instant::now();
    unavailable(lock.try_lock().await);
    // A third of the TTL, for want of a connection and then of an answer.
    assert!(started_at.elapsed() < within(200 * MS, &stalls), "{:?}", started_at.elapsed());
    let started_at = Instant::now();
    unavailable(lock.try_lock_for(250 * MS).await);
    let waited = started_at.elapsed();
    assert!((250 * MS..within(300 * MS, &stalls)).contains(&waited), "{waited:?}");
    let started_at = Instant::now();
    unavailable(lock.lock().await.map(Some));
    assert!(started_at.elapsed() < within(2000 * MS, &stalls), "{:?}", started_at.elapsed());
    nothing_left(&server, &client).await;

    proxy.delay_replies(Duration::ZERO);
    let guard = lock.lock_with_timeout(LIMIT).await.expect("the way is short again");
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_count_that_is_no_number_is_shown_as_zero() {
    let server = Server::start().await;
    let client = connect(&server).await;
    for count in ["many", "-1"] {
        server.command(&["HSET", "n", "by:hand", count]).await;
        let status = client.mutex("n").status().await.expect("an answer");
        assert_eq!((status.hold_count, status.holder.is_some()), (0, true), "{count}");
    }
}
