//! What has gone wrong in other Redis locks. `docs/known-failures.md` says which, and names the tests elsewhere.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use leasehold::{Client, ClientBuilder, Error, Guard, LossReason};

use crate::{
    checks::{
        AT_ONCE, LIMIT, connect, exists, lock_keys, nothing_left, setup, setup_with_proxy, soon,
    },
    support::{Server, Spy, eventually, subscribers, waiting},
};

const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_millis(1500);
const CHANNEL: &str = "redisson_lock__channel:{n}";

fn builder(url: String) -> ClientBuilder {
    Client::builder().nodes([url]).ttl(TTL)
}

async fn short_lived(url: String) -> Client {
    let client = builder(url).connect().await.expect("connected");
    // The server gets to know the scripts: what comes later runs at its first sending.
    let guard = client.mutex("before").lock().await.expect("free");
    guard.extend(TTL).await.expect("held");
    guard.unlock().await.expect("held");
    client
}

/// Fields and hold counts of the lock at the server.
async fn holds(server: &Server) -> Vec<String> {
    let fields = server.command(&["HGETALL", "n"]).await;
    redis::from_redis_value::<Vec<String>>(fields).expect("a list")
}

async fn is_counted_once(server: &Server, guard: &Guard) {
    assert_eq!(guard.hold_count(), 1);
    assert_eq!(holds(server).await, [guard.holder().as_str(), "1"]);
}

/// It is held for longer than any lease that nobody renews.
async fn is_renewed(guard: &Guard) {
    let lost = tokio::time::timeout(3 * TTL, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(guard.is_held());
}

/// For longer than a lease, nothing is there and nothing is renewed whose release has run.
async fn nothing_is_renewed(server: &Server, spy: &Spy) {
    let until = Instant::now() + TTL;
    while Instant::now() < until {
        assert!(lock_keys(server).await.is_empty());
        tokio::time::sleep(20 * MS).await;
    }
    let mut released = HashSet::new();
    for run in spy.runs() {
        match run.script {
            "lock_release" => drop(released.insert(run.id().to_owned())),
            "lock_renew" => assert!(!released.contains(run.id()), "renewed after its release"),
            _ => {}
        }
    }
    assert!(!released.is_empty(), "nothing was released");
}

// Renewals without end.

/// Redisson 7272: given back before the watchdog has heard of it, and given up when the grant is on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_given_back_at_once_is_not_renewed_after_it() {
    let server = Server::start().await;
    let client = short_lived(server.url()).await;
    let spy = Spy::on(&server).await;
    for n in 0..200_u32 {
        let lock = client.mutex(format!("n{n}"));
        if n % 2 == 0 {
            drop(lock.lock().await.expect("free"));
        } else {
            let patience = n * Duration::from_micros(5);
            drop(tokio::time::timeout(patience, lock.lock()).await);
        }
    }
    nothing_left(&server, &client).await;
    nothing_is_renewed(&server, &spy).await;
}

/// Redisson 1626: nobody stops the watchdog when the unlock fails, and the lock is held for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlock_that_is_refused_ends_the_renewals() {
    let server = Server::start().await;
    server.command(&["ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all"]).await;
    let client = short_lived(server.url_as("u", "pw")).await;
    let spy = Spy::on(&server).await;
    let guard = client.mutex("n").lock().await.expect("free");
    // A renewal deletes nothing.
    server.command(&["ACL", "SETUSER", "u", "-hdel"]).await;
    let before = spy.count("lock_renew");
    let renewed = async || spy.count("lock_renew") > before && guard.remaining() > TTL * 4 / 5;
    eventually(LIMIT, "renewals are allowed", renewed).await;
    let answer = guard.unlock().await;
    assert!(matches!(answer, Err(Error::Denied { .. })), "{answer:?}");
    assert!(exists(&server, "n").await, "the release was refused");
    let refused_at = Instant::now();
    eventually(LIMIT, "its time is over", async || !exists(&server, "n").await).await;
    let took = refused_at.elapsed();
    assert!(took < server.widened(TTL + 200 * MS), "{took:?}");
    nothing_is_renewed(&server, &spy).await;
}

/// node-redlock 369: the body of `using` ended during a renewal, which set the next timer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_ends_during_a_renewal_leaves_no_timer() {
    let (server, proxy) = setup_with_proxy().await;
    let client = short_lived(proxy.url()).await;
    let spy = Spy::on(&server).await;
    proxy.delay_replies(100 * MS);
    let renewed = async || spy.count("lock_renew") == 1;
    let body = async |_: &Guard| eventually(LIMIT, "it is renewed", renewed).await;
    client.mutex("n").run(body).await.expect("free, and held to the end");
    proxy.delay_replies(Duration::ZERO);
    nothing_left(&server, &client).await;
    nothing_is_renewed(&server, &spy).await;
    assert_eq!(spy.count("lock_renew"), 1);
}

// Holds that are not renewed, because one of the same name and owner was lost before.

/// Redisson 3194: the network was down for longer than the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_renewed_whose_last_hold_was_cut_off() {
    let (server, proxy) = setup_with_proxy().await;
    let client = short_lived(proxy.url()).await;
    let me = client.owner();
    let lock = client.mutex("n").owned_by(&me);
    let guard = lock.lock().await.expect("free");
    proxy.black_hole(true);
    let reason = soon("it is told", guard.lost()).await;
    assert_eq!(reason, LossReason::NotRenewed);
    drop(guard);
    proxy.black_hole(false);
    let guard = lock.lock_with_timeout(LIMIT).await.expect("its time is over");
    is_renewed(&guard).await;
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// Redisson 2515: a renewal failed since the server was away, and so did the unlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_renewed_whose_last_renewal_failed() {
    let server = Server::start().await;
    let client = short_lived(server.url()).await;
    let me = client.owner();
    let lock = client.mutex("n").owned_by(&me);
    let guard = lock.lock().await.expect("free");
    server.kill();
    let due = async || guard.remaining() < TTL / 2;
    eventually(LIMIT, "a renewal has failed", due).await;
    assert!(guard.is_held(), "its time is not over");
    server.restart().await;
    let reason = soon("it is told", guard.lost()).await;
    assert!(matches!(reason, LossReason::Failover | LossReason::NotRenewed), "{reason:?}");
    let answer = guard.unlock().await;
    assert!(matches!(answer, Err(Error::Lost { .. })), "{answer:?}");
    let guard = lock.lock_with_timeout(LIMIT).await.expect("free");
    is_renewed(&guard).await;
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// Redisson 3712: the key was removed by hand, and the same owner took the lock again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_renewed_whose_last_key_was_removed() {
    let server = Server::start().await;
    let client = short_lived(server.url()).await;
    let me = client.owner();
    let lock = client.mutex("n").owned_by(&me);
    let guard = lock.lock().await.expect("free");
    server.command(&["DEL", "n"]).await;
    let answer = guard.unlock().await;
    assert!(matches!(answer, Err(Error::Lost { .. })), "{answer:?}");
    let guard = lock.lock().await.expect("free");
    is_renewed(&guard).await;
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

// What is counted twice, or for the wrong one.

/// Redisson 7367: one `tryLock`, whose answer was late, was sent again and counted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_with_a_late_answer_is_not_sent_again() {
    let (server, proxy) = setup_with_proxy().await;
    let client = short_lived(proxy.url()).await;
    let me = client.owner();
    let lock = client.mutex("n").owned_by(&me);
    let spy = Spy::on(&server).await;
    proxy.hold_replies();
    let answer = lock.try_lock().await;
    assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
    proxy.release_replies();
    let guard = lock.lock_with_timeout(LIMIT).await.expect("the late one is given back");
    is_counted_once(&server, &guard).await;
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
    let runs = spy.runs();
    let acquires = runs.iter().filter(|run| run.script == "lock_acquire");
    let ids: Vec<_> = acquires.map(|run| run.id()).collect();
    assert!(ids.len() >= 2);
    assert_eq!(ids.len(), ids.iter().collect::<HashSet<_>>().len(), "sent again: {ids:?}");
}

/// Redisson 4822: each of the 40 retries of one `tryLock` during a failover counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_through_a_failover_counts_once() {
    let (server, proxy) = setup_with_proxy().await;
    let client = short_lived(proxy.url()).await;
    let me = client.owner();
    let lock = client.mutex("n").owned_by(&me).with_ttl(10 * LIMIT);
    let spy = Spy::on(&server).await;
    // It is granted, and nobody is told; then the server takes no writes.
    proxy.drop_replies(true);
    let waiting = tokio::spawn(lock.lock());
    eventually(LIMIT, "it is granted", async || exists(&server, "n").await).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    proxy.drop_replies(false);
    eventually(LIMIT, "it is refused", async || spy.count("lock_acquire") >= 4).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    let guard = soon("it asks again", waiting).await;
    let guard = guard.expect("no panic").expect("nothing of its own is in its way");
    is_counted_once(&server, &guard).await;
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// Redisson 84: between the look at the lock and the write of the count the lease ended, and another had it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_re_entry_at_the_end_of_a_lease_takes_the_lock_from_nobody() {
    let server = Server::start().await;
    let (client, other) = (short_lived(server.url()).await, connect(&server).await);
    let me = client.owner();
    let lock = client.mutex("n").owned_by(&me).with_lease(TTL);
    let guard = lock.lock().await.expect("free");
    // The count is on its way to a server that runs it after the end.
    server.pause();
    let nested = guard.reenter().expect("held");
    eventually(LIMIT, "it ends", async || !guard.is_held()).await;
    // At the server it ends a little later, by the drift that was allowed for.
    tokio::time::sleep(TTL / 10).await;
    server.resume();
    let theirs = other.mutex("n").try_lock().await.expect("an answer").expect("its time is over");
    is_counted_once(&server, &theirs).await;

    assert!(matches!(guard.reenter(), Err(Error::Lost { .. })));
    assert!(matches!(lock.lock_with_timeout(AT_ONCE).await, Err(Error::Lost { .. })));
    drop((nested, guard));
    assert!(lock.try_lock().await.expect("an answer").is_none());
    is_counted_once(&server, &theirs).await;
    assert!(theirs.is_held());
    theirs.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

// Waits.

/// Redisson 3891: of two that come at the same time, the second had the lock when the TTL was over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_of_two_that_come_at_once_follows_at_once() {
    let (server, [client]) = setup().await;
    for _ in 0..20 {
        let turns: Vec<_> = (0..2)
            .map(|_| {
                let lock = client.mutex("n");
                tokio::spawn(async move {
                    let guard = lock.lock().await.expect("it is freed");
                    let granted_at = Instant::now();
                    // Past the hand-off window: it is given back to the server.
                    tokio::time::sleep(30 * MS).await;
                    let freed_at = Instant::now();
                    guard.unlock().await.expect("held");
                    (granted_at, freed_at)
                })
            })
            .collect();
        let mut times = Vec::new();
        for turn in turns {
            let turn = soon("it has its turn", turn).await;
            times.push(turn.expect("no panic"));
        }
        times.sort();
        let took = times[1].0.saturating_duration_since(times[0].1);
        // Without its wake-up it would come a second later at the earliest.
        assert!(took < server.widened(AT_ONCE), "{took:?} after the release");
    }
    nothing_left(&server, &client).await;
}

/// Redisson 763: a lock of 5 s was given back, and at times none of the many that waited for it got in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_behind_a_released_lock_gets_in_one_by_one() {
    const LEASE: Duration = Duration::from_secs(5);
    let (server, [other]) = setup().await;
    let theirs = other.mutex("n").with_lease(LEASE).lock().await.expect("free");
    let (mut clients, mut waits) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let client = connect(&server).await;
        for _ in 0..4 {
            let lock = client.mutex("n").with_lease(LEASE);
            waits.push(tokio::spawn(async move { lock.lock().await?.unlock().await }));
        }
        clients.push(client);
    }
    let all = async || waiting(&server, "n").await == 4;
    eventually(LIMIT, "all clients wait", all).await;
    let freed_at = Instant::now();
    theirs.unlock().await.expect("held");
    for wait in waits {
        let answer = soon("it gets in", wait).await;
        answer.expect("no panic").expect("held");
    }
    let took = freed_at.elapsed();
    // Whom no message reaches asks after two seconds at the earliest.
    assert!(took < server.widened(1500 * MS), "{took:?} for 16");
    for client in &clients {
        nothing_left(&server, client).await;
    }
}

/// Redisson 543: a `tryLock` without patience stood behind others for a subscription that did not come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_without_patience_needs_no_subscription() {
    let (server, proxy) = setup_with_proxy().await;
    let client = short_lived(proxy.url()).await;
    let theirs = connect(&server).await.mutex("n").lock().await.expect("free");
    // The connection for subscriptions is yet to be made.
    proxy.refuse(true);
    let waiting = tokio::spawn(client.mutex("n").lock());
    eventually(LIMIT, "another waits", async || client.stats().waiters == 1).await;
    for _ in 0..10 {
        let asked_at = Instant::now();
        let attempt = client.mutex("n").lock_with_timeout(Duration::ZERO);
        let answer = soon("it ends", attempt).await;
        assert!(matches!(answer, Err(Error::Timeout { .. })), "{answer:?}");
        assert!(client.mutex("n").try_lock().await.expect("an answer").is_none());
        let took = asked_at.elapsed();
        assert!(took < server.widened(AT_ONCE), "{took:?}");
    }
    assert_eq!(subscribers(&server, CHANNEL).await, 0);
    theirs.unlock().await.expect("held");
    proxy.refuse(false);
    let guard = soon("it gets in", waiting).await;
    guard.expect("no panic").expect("free").unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

/// node-redlock 296: the lease counted from the begin of the wait, and was over when it was given out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_won_after_a_long_wait_is_fresh() {
    let server = Server::start().await;
    let (client, other) = (short_lived(server.url()).await, connect(&server).await);
    let theirs = other.mutex("n").lock().await.expect("free");
    let waiting = tokio::spawn(async move {
        let guard = client.mutex("n").with_lease(TTL).lock().await.expect("it is freed");
        (guard.remaining(), guard)
    });
    // Longer than the lease that it waits for.
    tokio::time::sleep(2 * TTL).await;
    assert!(!waiting.is_finished());
    theirs.unlock().await.expect("held");
    let waited = soon("it gets in", waiting).await;
    let (left, guard) = waited.expect("no panic");
    assert!(left + server.widened(200 * MS) > TTL, "{left:?} of {TTL:?}");
    guard.unlock().await.expect("held");
}
