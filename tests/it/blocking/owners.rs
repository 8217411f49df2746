//! Who owns a lock: the thread, or an owner that goes from thread to thread.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use leasehold::{Error, Owner, SelfWait, blocking::Client};

use super::{LIMIT, MS, connect, eventually, exists, server};

#[test]
fn a_nested_lock_re_enters_and_another_thread_waits() {
    let server = server();
    let client = connect(&server);
    let lock = client.mutex("n");
    let outer = lock.lock().expect("free");
    // By the handle, by another handle, by a clone of the client, and in every way to take it.
    let nested = [
        lock.lock().expect("re-entered"),
        client.clone().mutex("n").lock_with_timeout(Duration::ZERO).expect("re-entered"),
        lock.try_lock().expect("an answer").expect("re-entered"),
        lock.try_lock_for(MS).expect("an answer").expect("re-entered"),
        outer.reenter().expect("held"),
    ];
    assert!(nested.iter().all(|guard| guard.token() == outer.token()));
    assert_eq!(outer.hold_count(), 6);

    let (taken, told) = mpsc::channel();
    let other = thread::spawn({
        let lock = lock.clone();
        move || {
            assert!(lock.try_lock().expect("an answer").is_none());
            assert!(lock.try_lock_for(20 * MS).expect("an answer").is_none());
            taken.send(None).expect("the test listens");
            let guard = lock.lock().expect("freed");
            taken.send(Some((Instant::now(), guard.token()))).expect("the test listens");
            assert_eq!(guard.hold_count(), 1);
        }
    });
    assert_eq!(told.recv(), Ok(None));
    eventually("the other thread waits", || client.stats().waiters == 1);
    // The outer guard goes first: the order is of no importance, the last one counts.
    let token = outer.token();
    drop(outer);
    let mut nested = Vec::from(nested);
    let last = nested.pop().expect("five");
    drop(nested);
    assert!(last.is_held() && last.hold_count() == 1);
    assert!(told.try_recv().is_err(), "two threads hold one lock");
    let freed_at = Instant::now();
    last.unlock().expect("held");
    let (taken_at, next_token) = told.recv().expect("taken").expect("taken");
    assert!(taken_at >= freed_at && next_token > token);
    other.join().expect("no panic");
}

#[test]
fn two_threads_of_one_name_are_two_owners() {
    let server = server();
    let client = connect(&server);
    let named = |body: Box<dyn FnOnce() -> Owner + Send>| {
        let thread = thread::Builder::new().name("worker".to_owned()).spawn(body);
        thread.expect("a thread").join().expect("no panic")
    };
    let lock = client.mutex("n");
    let first = named(Box::new(move || {
        let guard = lock.lock().expect("free");
        let inner = thread::Builder::new().name("worker".to_owned());
        let inner = inner.spawn({
            let lock = lock.clone();
            move || assert!(lock.try_lock().expect("an answer").is_none())
        });
        inner.expect("a thread").join().expect("it does not re-enter");
        assert_eq!(lock.lock().expect("re-entered").owner(), guard.owner());
        guard.owner().clone()
    }));
    let lock = client.mutex("n");
    let second = named(Box::new(move || lock.lock().expect("free").owner().clone()));
    assert_ne!(first, second);
    for owner in [first, second] {
        assert!(owner.to_string().starts_with("worker"), "{owner}");
    }
}

#[test]
fn the_guard_of_an_owner_moves_over_threads() {
    let server = server();
    let client = connect(&server);
    let me = Owner::named("batch");
    let mine = client.mutex("n").owned_by(&me);
    let guard = mine.lock().expect("free");
    assert_eq!(guard.owner(), &me);
    let token = guard.token();
    // The owner holds it, not this thread.
    assert!(client.mutex("n").try_lock().expect("an answer").is_none());
    let nested = thread::spawn(move || {
        let nested = mine.lock().expect("re-entered on another thread");
        assert_eq!((nested.token(), nested.hold_count()), (token, 2));
        guard.unlock().expect("held");
        nested
    });
    let nested = nested.join().expect("no panic");
    assert_eq!((nested.token(), nested.hold_count()), (token, 1));
    assert!(exists(&server, "n"));
    thread::spawn(move || nested.unlock().expect("held")).join().expect("no panic");
    assert!(!exists(&server, "n"));
}

#[test]
fn a_thread_that_waits_for_itself_is_told() {
    let server = server();
    let builder = Client::builder().nodes([server.url()]).self_wait(SelfWait::Fail);
    let client = builder.connect_blocking().expect("connected");
    let lock = client.mutex("n");
    let guard = lock.lock().expect("free");
    let error = lock.owned_by(&client.owner()).lock().expect_err("held by this thread");
    assert!(matches!(error, Error::SelfWait { .. }), "{error}");
    guard.unlock().expect("held");
}

/// Two clients, so that the lock goes from thread to thread inside them and through the server between them.
#[test]
fn an_unprotected_counter_stays_exact() {
    const THREADS: usize = 32;
    const TURNS: u64 = 2000;
    const NAMES: usize = 4;
    let server = server();
    let clients = [connect(&server), connect(&server)];
    let counters = Arc::new([const { AtomicU64::new(0) }; NAMES]);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let client = &clients[thread % clients.len()];
            let locks: Vec<_> = (0..NAMES).map(|name| client.mutex(format!("n{name}"))).collect();
            let counters = counters.clone();
            let work = move || {
                for turn in 0..TURNS as usize {
                    let name = (thread + turn) % NAMES;
                    let guard = locks[name].lock().expect("held");
                    let nested = (turn % 8 == 0).then(|| locks[name].lock().expect("re-entered"));
                    let before = counters[name].load(SeqCst);
                    // Whoever else were in here would get the time to be.
                    thread::yield_now();
                    counters[name].store(before + 1, SeqCst);
                    drop(guard);
                    drop(nested);
                }
            };
            thread::spawn(work)
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    let counted = counters.each_ref().map(|counter| counter.load(SeqCst));
    assert_eq!(counted, [THREADS as u64 * TURNS / NAMES as u64; NAMES]);
    for client in &clients {
        eventually("nothing is held or owed", || {
            let stats = client.stats();
            (stats.locks, stats.waiters, stats.releases_pending) == (0, 0, 0)
        });
    }
    assert!((0..NAMES).all(|name| !exists(&server, &format!("n{name}"))));
}

/// Also of a thread that holds several levels, and in the body of `run`.
#[test]
fn a_thread_that_panics_gives_the_lock_back() {
    let server = server();
    let client = connect(&server);
    for in_run in [false, true] {
        let lock = client.mutex("n");
        let panics = thread::spawn(move || {
            if in_run {
                lock.run(|_| std::panic::panic_any("as planned")).expect("it does not come here")
            }
            let _outer = lock.lock().expect("free");
            let _inner = lock.lock().expect("re-entered");
            std::panic::panic_any("as planned");
        });
        assert!(panics.join().is_err());
        let next = client.mutex("n").lock_with_timeout(LIMIT).expect("given back before its TTL");
        next.unlock().expect("held");
    }
}
