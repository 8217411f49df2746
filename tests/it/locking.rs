//! Taking, nesting and giving back, on one server: what every user does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use leasehold::{Client, Error, Guard, Owner};

use crate::{
    checks::{LIMIT, client_is_idle, connect, exists, nothing_left, setup},
    support::{Server, Spy, eventually, nothing_is_left, waiting},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_costs_one_request_and_its_release_another() {
    let (server, [client]) = setup().await;
    client.mutex("warm").lock().await.expect("free").unlock().await.expect("held");
    let spy = Spy::on(&server).await;
    for n in 0..20 {
        let lock = match n % 2 {
            0 => client.mutex("n"),
            _ => client.mutex("n").with_lease(Duration::from_secs(10)),
        };
        let lock = lock.owned_by(&Owner::new());
        let guard = lock.lock().await.expect("free");
        let nested = guard.reenter().expect("held");
        assert!(nested.is_held() && guard.hold_count() == 2);
        drop(nested);
        guard.unlock().await.expect("held");
    }
    nothing_is_left(&server, &client, "n").await;
    assert_eq!(spy.count("lock_acquire"), 20);
    assert_eq!(spy.count("lock_release"), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_inside_the_process_asks_nobody() {
    let server = Server::start().await;
    let client = Client::builder()
        .nodes([server.url()])
        .handoff_window(Duration::from_secs(1))
        .connect()
        .await
        .expect("connected");
    let spy = Spy::on(&server).await;
    let lock = client.mutex("n");
    let first = lock.lock().await.expect("free");
    let turns = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let (lock, turns) = (lock.clone(), turns.clone());
            tokio::spawn(async move {
                let guard = lock.lock().await.expect("held");
                assert!(guard.is_held());
                turns.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    drop(first);
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(turns.load(Ordering::Relaxed), 50);
    nothing_is_left(&server, &client, "n").await;
    let acquires = spy.count("lock_acquire");
    assert!(acquires <= 6, "{acquires} acquires for 51 turns");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_re_enters_by_handle_by_scope_and_in_the_body_of_run() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");

    let me = client.owner();
    let outer = lock.owned_by(&me).lock().await.expect("free");
    let inner = lock.owned_by(&me).lock().await.expect("nested");
    assert_eq!((inner.hold_count(), inner.token()), (2, outer.token()));
    assert!(lock.try_lock().await.expect("asked").is_none(), "another owner gets in");
    drop((outer, inner));

    me.scope(async {
        let outer = lock.lock().await.expect("free");
        let inner = lock.lock().await.expect("nested");
        assert_eq!((inner.owner(), outer.owner()), (&me, &me));
        let elsewhere = tokio::spawn({
            let lock = lock.clone();
            async move { lock.try_lock().await.expect("asked").is_none() }
        });
        assert!(elsewhere.await.expect("no panic"), "a spawned task is outside");
    })
    .await;

    // Spawned, so that the future of `run` is Send when its body is.
    let body = lock.clone();
    let nested = tokio::spawn(async move {
        body.run(async |guard| {
            let nested = body.lock().await.expect("nested");
            (nested.token() == guard.token(), nested.hold_count())
        })
        .await
    });
    assert_eq!(nested.await.expect("no panic").expect("held"), (true, 2));
    nothing_is_left(&server, &client, "n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_names_the_holder() {
    let server = Server::start().await;
    let holder = Client::builder().nodes([server.url()]).name("holder-7").connect().await;
    let holder = holder.expect("connected");
    let waiter = Client::connect(&server.url()).await.expect("connected");
    let guard = holder.mutex("n").lock().await.expect("free");
    let error = waiter.mutex("n").lock_with_timeout(Duration::from_millis(300)).await;
    let Err(Error::Timeout { lock, holder: Some(holder), remaining, .. }) = error else {
        panic!("not a timeout: {error:?}");
    };
    assert_eq!((&*lock, holder.client()), ("n", Some("holder-7")));
    assert_eq!(holder, guard.holder());
    assert!(remaining > Some(Duration::from_secs(20)));
    let waited = waiter.mutex("n").try_lock_for(Duration::from_millis(300)).await;
    assert!(waited.expect("it was answered").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_one_process_are_served_in_their_order() {
    let (_server, [client]) = setup().await;
    let lock = client.mutex("n");
    let first = lock.lock().await.expect("free");
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for n in 0..30 {
        let (lock, order) = (lock.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            let guard = lock.lock().await.expect("held");
            order.lock().push(n);
            guard.unlock().await.expect("held");
        }));
        while client.stats().waiters <= n {
            tokio::task::yield_now().await;
        }
    }
    first.unlock().await.expect("held");
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(*order.lock(), (0..30).collect::<Vec<_>>());
}

/// Two wait, so that the lease of the first has a token for the other, too; and it keeps it for longer than the
/// window, or for less.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_older_than_the_window_is_not_handed_on() {
    let server = Server::start().await;
    for (window, handed_on) in [(20, false), (1000, true)] {
        let client = Client::builder()
            .nodes([server.url()])
            .handoff_window(Duration::from_millis(window))
            .connect()
            .await
            .expect("connected");
        let lock = client.mutex("n");
        let guard = lock.lock().await.expect("free");
        let turns: Vec<_> = (0..2)
            .map(|_| {
                let lock = lock.clone();
                tokio::spawn(async move {
                    let guard = lock.lock().await.expect("held");
                    tokio::time::sleep(Duration::from_millis(25)).await;
                    let holder = guard.holder();
                    guard.unlock().await.expect("held");
                    holder
                })
            })
            .collect();
        eventually(SOON, "both wait", async || client.stats().waiters == 2).await;
        guard.unlock().await.expect("held");
        let mut leases = Vec::new();
        for turn in turns {
            leases.push(turn.await.expect("no panic"));
        }
        assert_eq!(leases[0] == leases[1], handed_on, "with a window of {window} ms");
        nothing_is_left(&server, &client, "n").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_to_an_owner_is_a_grant_to_all_its_waiters() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    for by_hand_off in [true, false] {
        let first = lock.lock().await.expect("free");
        let me = client.owner();
        let mut waiting = Vec::new();
        for n in 0..4 {
            // The last is another owner.
            let lock = if n < 3 { lock.owned_by(&me) } else { lock.clone() };
            waiting.push(tokio::spawn(lock.lock()));
            eventually(SOON, "it waits", async || client.stats().waiters == n + 1).await;
        }
        if !by_hand_off {
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        drop(first);
        let mut guards = Vec::new();
        for task in waiting {
            // The last gets the lock when the three have gone.
            if guards.len() == 3 {
                assert_eq!(guards.iter().map(Guard::hold_count).max(), Some(3));
                guards.clear();
            }
            guards.push(task.await.expect("no panic").expect("held"));
        }
        assert_eq!(guards[0].hold_count(), 1);
        drop(guards);
        nothing_is_left(&server, &client, "n").await;
    }
}

const SOON: Duration = Duration::from_secs(15);

/// Both have one channel, as in Redisson, and one counter; they are two locks all the same.
#[tokio::test]
async fn a_name_in_braces_is_another_lock() {
    let (server, [client]) = setup().await;
    let (bare, braced) = (client.mutex("n"), client.mutex("{n}"));
    let first = bare.lock().await.expect("free");
    let second = braced.try_lock().await.expect("an answer").expect("another lock");
    assert!(exists(&server, "n").await && exists(&server, "{n}").await);
    // Waiters of both listen on the channel, and each hears of its own release.
    let other = connect(&server).await;
    let waits = [other.mutex("n").lock(), other.mutex("{n}").lock()].map(tokio::spawn);
    let both = async || waiting(&server, "n").await == 1 && waiting(&server, "{n}").await == 1;
    eventually(LIMIT, "both wait", both).await;
    for (guard, wait) in [first, second].into_iter().zip(waits) {
        guard.unlock().await.expect("held");
        let within = tokio::time::timeout(Duration::from_secs(2), wait).await;
        let taken = within.expect("it is woken").expect("no panic").expect("free");
        taken.unlock().await.expect("held");
    }
    nothing_left(&server, &client).await;
    client_is_idle(&other).await;
}
