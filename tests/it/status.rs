//! What a lock and a client report about themselves, and the forced unlock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold::{Client, Deadlocks, Error, FindingKind, LossReason, Owner};

use crate::{
    checks::{LIMIT, client_is_idle, connect, exists, nothing_left, setup, soon},
    support::{Server, Twisted, Twister, eventually},
};

const MS: Duration = Duration::from_millis(1);

#[tokio::test]
async fn a_lock_tells_who_holds_it_how_often_since_when_and_for_how_long() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).name("billing-7");
    let (client, other) = (builder.connect().await.expect("connected"), connect(&server).await);
    let lock = other.mutex("n");
    let status = lock.status().await.expect("an answer");
    assert_eq!((&*status.name, status.holder, status.hold_count), ("n", None, 0));
    assert_eq!((status.remaining, status.since, status.last_token), (None, None, None));
    assert_eq!(status.waiting_clients, 0);
    assert_eq!(
        (lock.holder().await.expect("an answer"), lock.is_locked().await.expect("an answer")),
        (None, false)
    );
    assert_eq!(lock.remaining_ttl().await.expect("an answer"), None);

    let guard = client.mutex("n").lock().await.expect("free");
    let inner = guard.reenter().expect("held");
    eventually(LIMIT, "the count reaches the server", async || {
        lock.status().await.is_ok_and(|status| status.hold_count == 2)
    })
    .await;
    let waiter = tokio::spawn(lock.lock());
    eventually(LIMIT, "the waiter is seen", async || {
        lock.status().await.is_ok_and(|status| status.waiting_clients == 1)
    })
    .await;
    let status = lock.status().await.expect("an answer");
    let holder = status.holder.expect("it is held");
    assert_eq!(holder, guard.holder());
    assert_eq!(holder.client(), Some("billing-7"));
    assert_eq!(status.last_token, Some(guard.token()));
    let ago = SystemTime::now().duration_since(status.since.expect("ours")).unwrap_or_default();
    assert!(ago < LIMIT, "{ago:?}");
    let remaining = status.remaining.expect("it has an end");
    assert!(remaining > Duration::from_secs(15) && remaining <= Duration::from_secs(30));
    let remaining = lock.remaining_ttl().await.expect("an answer").expect("it is held");
    assert!(remaining > Duration::from_secs(15) && remaining <= Duration::from_secs(30));
    assert!(lock.is_locked().await.expect("an answer"));
    assert_eq!(lock.holder().await.expect("an answer"), Some(guard.holder()));

    drop(inner);
    guard.unlock().await.expect("held");
    let next = waiter.await.expect("no panic").expect("free");
    assert_eq!(lock.holder().await.expect("an answer"), Some(next.holder()));
    next.unlock().await.expect("held");
    nothing_left(&server, &client).await;
    nothing_left(&server, &other).await;
}

#[tokio::test]
async fn waiters_that_are_gone_are_counted_when_they_are_passed_over() {
    let (server, [client]) = setup().await;
    let guard = client.mutex("n").lock().await.expect("free");
    for (score, id) in [("1", "a:1"), ("2", "b:1")] {
        let entry = format!("30000 1 0123456789abcdef {id}");
        server.command(&["ZADD", "leasehold_queue:{n}", score, &entry]).await;
    }
    assert_eq!(client.mutex("n").status().await.expect("an answer").waiting_clients, 2);
    guard.unlock().await.expect("held");
    assert_eq!(client.stats().dead_waiters_passed, 2);
    assert_eq!(client.mutex("n").status().await.expect("an answer").waiting_clients, 0);
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn clients_of_one_name_that_wait_are_counted_each() {
    let (server, [holder, one, two]) = setup().await;
    assert_eq!(one.name(), two.name(), "both have the name of this process");
    let guard = holder.mutex("n").lock().await.expect("free");
    let waiting = [&one, &one, &two].map(|client| {
        let turn = client.mutex("n").lock();
        tokio::spawn(async move { turn.await?.unlock().await })
    });
    eventually(LIMIT, "both clients wait", async || {
        let status = holder.mutex("n").status().await;
        status.is_ok_and(|status| (status.waiting_clients, status.waiting.len()) == (2, 2))
    })
    .await;
    guard.unlock().await.expect("held");
    for waiting in waiting {
        soon("its turn comes", waiting).await.expect("no panic").expect("held");
    }
    nothing_left(&server, &one).await;
}

#[tokio::test]
async fn a_client_tells_what_it_holds_oldest_first() {
    let (server, [client]) = setup().await;
    assert!(client.holds().is_empty());
    let me = Owner::named("req-17");
    let first = client.mutex("first").owned_by(&me).lock().await.expect("free");
    let second = client.mutex("second").with_lease(300 * MS).lock().await.expect("free");
    let nested = first.reenter().expect("held");
    let holds = client.holds();
    let names: Vec<&str> = holds.iter().map(|hold| &*hold.name).collect();
    assert_eq!(names, ["first", "second"]);
    let [oldest, newest] = &holds[..] else { panic!("two") };
    assert_eq!((&oldest.owner, oldest.hold_count, oldest.token), (&me, 2, Some(first.token())));
    assert_eq!((&oldest.holder, &newest.holder), (&first.holder(), &second.holder()));
    assert!(oldest.held_for >= newest.held_for && oldest.held_for < LIMIT);
    assert!(oldest.since <= SystemTime::now());
    assert!(oldest.remaining > Duration::from_secs(15) && newest.remaining <= 300 * MS);
    assert_eq!((first.hold_count(), first.owner(), first.name()), (2, &me, "first"));

    eventually(LIMIT, "what is lost is not held", async || client.holds().len() == 1).await;
    drop((first, nested, second));
    assert!(client.holds().is_empty());
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_check_finds_what_can_break_the_promises() {
    let (server, [client]) = setup().await;
    let kinds = async || -> Vec<FindingKind> {
        let findings = client.check().await.expect("an answer");
        findings.into_iter().map(|finding| finding.kind).collect()
    };
    assert_eq!(kinds().await, [FindingKind::NotPersistent]);
    server.command(&["CONFIG", "SET", "appendonly", "yes"]).await;
    let found = kinds().await;
    assert!(matches!(found[..], [FindingKind::NotWrittenThrough { .. }]), "{found:?}");
    server.command(&["CONFIG", "SET", "appendfsync", "always"]).await;
    assert!(kinds().await.is_empty());
    // Without a limit of memory nothing is ever evicted.
    server.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]).await;
    assert!(kinds().await.is_empty());
    server.command(&["CONFIG", "SET", "maxmemory", "1gb"]).await;
    let found = kinds().await;
    assert!(
        matches!(&found[..], [FindingKind::Eviction { policy, .. }] if policy == "volatile-ttl"),
        "{found:?}"
    );
    let finding = client.check().await.expect("an answer").remove(0);
    assert!(finding.to_string().contains("volatile-ttl"), "{finding}");
    assert!(finding.node.contains(&server.port().to_string()), "{finding}");
}

#[tokio::test]
async fn a_check_tells_whether_a_servers_clock_is_ahead_or_behind() {
    let server = Server::start().await;
    for (off, said) in [(5, "ahead of"), (-5, "behind")] {
        let twister = Twister::start(server.port(), move |words| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
            let time = format!("{{'{}', '0'}}", now as i64 + off);
            (words[0] == "TIME").then_some(Twisted::Value(time))
        })
        .await;
        let client = Client::connect(&twister.url()).await.expect("connected");
        let findings = client.check().await.expect("an answer");
        let clock = findings.iter().find_map(|it| match it.kind {
            FindingKind::ClockAhead { ahead_ms, .. } => Some((ahead_ms, it.to_string())),
            _ => None,
        });
        let (ahead_ms, text) = clock.unwrap_or_else(|| panic!("it is far off: {findings:?}"));
        assert_eq!(ahead_ms.signum(), off.signum(), "{text}");
        assert!(text.contains(said), "{text}");
    }
}

#[tokio::test]
async fn statistics_tell_what_a_client_is_busy_with() {
    let (server, [other]) = setup().await;
    // Whoever may hold something has its waits noted by a task of its own, and "may" goes by a hash.
    let builder = Client::builder().nodes([server.url()]).deadlocks(Deadlocks::Off);
    let client = builder.connect().await.expect("the server accepts the client");
    client_is_idle(&client).await;
    let idle = client.stats();
    let held = other.mutex("theirs").lock().await.expect("free");
    let guard = client.mutex("ours").lock().await.expect("free");
    let waits = [
        tokio::spawn(client.mutex("theirs").lock()),
        tokio::spawn(client.mutex("theirs").lock()),
        tokio::spawn(client.mutex("ours").lock()),
    ];
    eventually(LIMIT, "all wait", async || client.stats().waiters == 3).await;
    let stats = client.stats();
    assert_eq!((stats.locks, stats.subscriptions, stats.releases_pending), (2, 0, 0), "{stats:?}");
    assert_eq!(stats.tasks, idle.tasks + 2, "one for each lock that is waited for: {stats:?}");
    for wait in &waits {
        wait.abort();
    }
    guard.unlock().await.expect("held");
    held.unlock().await.expect("held");
    nothing_left(&server, &client).await;
    assert_eq!(client.stats().tasks, idle.tasks);
    nothing_left(&server, &other).await;
}

#[tokio::test]
async fn a_forced_unlock_of_a_certain_holder_frees_no_other() {
    let (server, [client, other]) = setup().await;
    let lock = other.mutex("n");
    let guard = client.mutex("n").lock().await.expect("free");
    let before = guard.holder();
    guard.unlock().await.expect("held");
    assert!(!lock.force_unlock_if(&before).await.expect("an answer"), "it is free");
    assert!(!lock.force_unlock().await.expect("an answer"), "it is free");

    let guard = client.mutex("n").lock().await.expect("free");
    for tool in [&lock, &client.mutex("n")] {
        assert!(!tool.force_unlock_if(&before).await.expect("an answer"), "another holds it");
        assert!(guard.is_held() && exists(&server, "n").await);
    }
    let error = lock.lock_with_timeout(300 * MS).await.expect_err("it is held");
    let Error::Timeout { holder: Some(holder), .. } = error else { panic!("{error:?}") };
    assert!(lock.force_unlock_if(&holder).await.expect("an answer"));
    assert!(!exists(&server, "n").await);
    let answer = guard.unlock().await;
    assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Gone, .. })), "{answer:?}");
    nothing_left(&server, &client).await;
    nothing_left(&server, &other).await;
}

#[tokio::test]
async fn a_forced_unlock_wakes_who_waits() {
    let (server, [client, other]) = setup().await;
    // The waiter in the holder's own client, and one in another, each on a lock of its own.
    for waiting in [&client, &other] {
        let guard = client.mutex("n").lock().await.expect("free");
        let waiter = tokio::spawn(waiting.mutex("n").lock());
        eventually(LIMIT, "it waits", async || waiting.stats().waiters == 1).await;
        if std::ptr::eq(waiting, &other) {
            eventually(LIMIT, "it listens", async || {
                client.mutex("n").status().await.is_ok_and(|status| status.waiting_clients == 1)
            })
            .await;
        }
        assert!(client.mutex("n").force_unlock().await.expect("an answer"));
        let freed_at = Instant::now();
        let next = soon("no hang", waiter).await.expect("no panic");
        let took = freed_at.elapsed();
        assert!(took < server.widened(100 * MS), "{took:?}");
        assert!(!guard.is_held());
        drop(guard);
        next.expect("free").unlock().await.expect("held");
    }
    nothing_left(&server, &client).await;
    nothing_left(&server, &other).await;
}
