//! Giving signals, and waiting for one, for any and for all.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use leasehold::{Error, LockKind, Notice, Signal};
use redis::Value;

use super::{CHANNEL, KEY, MS, somebody_listens};
use crate::cancellation::drop_after;
use crate::checks::{LIMIT, client_is_idle, connect, setup, setup_with_proxy, soon};
use crate::support::eventually;

#[tokio::test]
async fn all_who_wait_hear_of_a_signal_by_a_message_with_its_data() {
    let (server, [one, other]) = setup().await;
    let signal = one.signal("prices");
    assert_eq!((signal.name(), signal.seen().await.expect("an answer")), ("prices", 0));
    let waits =
        [&one, &other, &other].map(|client| tokio::spawn(client.signal("prices").changed(0)));
    somebody_listens(&server, CHANNEL, 2).await;
    let given_at = Instant::now();
    let data = [0, 0xff, b'\r', b'\n', 0x80];
    assert_eq!(other.signal("prices").notify_all(&data).await.expect("an answer"), 2, "clients");
    let mut number = 0;
    for wait in waits {
        let notice = soon("it comes", wait).await.expect("no panic").expect("a signal");
        assert_eq!(*notice.data, data);
        number = notice.number;
    }
    // The timer is at 2 s.
    assert!(given_at.elapsed() < server.widened(1500 * MS), "{:?}", given_at.elapsed());
    assert_eq!(signal.seen().await.expect("an answer"), number);
    let ends = server.command(&["PTTL", KEY]).await;
    let Value::Int(ends) = ends else { panic!("{ends:?}") };
    assert!((86_000_000..=86_400_000).contains(&ends), "{ends}");
    for client in [&one, &other] {
        client_is_idle(client).await;
    }
    assert_eq!(signal.notify_all(b"").await.expect("an answer"), 0, "nobody listens");
}

/// With one look at each, a signal that has not changed may be answered first.
#[tokio::test]
async fn one_look_at_several_signals_finds_the_one_that_has_changed() {
    let (_server, [client, other]) = setup().await;
    let mut signals = Vec::new();
    for (number, client) in [&client, &other, &client, &other].into_iter().enumerate() {
        let signal = client.signal(format!("s{number}"));
        signals.push((signal.clone(), signal.seen().await.expect("an answer")));
    }
    let looks = || Signal::any_changed_with_timeout(&signals, Duration::ZERO);
    let error = soon("an answer", looks()).await.expect_err("nothing is new");
    assert!(matches!(error, Error::StillWaiting { .. }), "{error:?}");
    for (changed, before) in [(3, 0), (1, 3)] {
        signals[before].1 = signals[before].0.seen().await.expect("an answer");
        signals[changed].0.notify_all(b"x").await.expect("an answer");
        let looks = || Signal::any_changed_with_timeout(&signals, Duration::ZERO);
        for _ in 0..20 {
            let (which, notice) = soon("an answer", looks()).await.expect("one has changed");
            assert_eq!((which, &*notice.data), (changed, &b"x"[..]));
        }
    }
    // Who hears nothing of a server does not know that nothing is new.
    let (away, _client) = setup::<1>().await;
    let [far] = &_client;
    signals[1].1 = signals[1].0.seen().await.expect("an answer");
    signals.push((far.signal("far"), 0));
    away.pause();
    for timeout in [Duration::ZERO, 300 * MS] {
        let waits = Signal::any_changed_with_timeout(&signals, timeout);
        let error = soon("an answer", waits).await.expect_err("nothing is known to be new");
        assert!(matches!(error, Error::Unavailable { .. }), "{timeout:?}: {error:?}");
    }
    away.resume();
}

#[tokio::test]
async fn what_is_signalled_before_the_wait_ends_it_at_once_with_the_last_data() {
    let (_server, [client]) = setup().await;
    let signal = client.signal("prices");
    let seen = signal.seen().await.expect("an answer");
    for data in ["a", "b", ""] {
        signal.notify_all(data.as_bytes()).await.expect("an answer");
    }
    let largest = vec![b'x'; 64 * 1024];
    signal.notify_all(&largest).await.expect("an answer");
    let notice = soon("it was before", signal.changed(seen)).await.expect("a signal");
    assert_eq!(*notice.data, largest);
    let again = soon("what was not seen", signal.changed(seen)).await.expect("a signal");
    assert_eq!(again, notice);
    let error = signal.changed_with_timeout(notice.number, Duration::ZERO).await;
    let error = error.expect_err("nothing is new");
    assert!(matches!(error, Error::StillWaiting { kind: LockKind::Signal, .. }), "{error:?}");
    signal.notify_all(b"").await.expect("an answer");
    let next = soon("it was before", signal.changed(notice.number)).await.expect("a signal");
    assert!(next.number > notice.number && next.data.is_empty(), "{next:?}");
}

#[tokio::test]
async fn a_wait_ends_with_its_time() {
    let (server, [client]) = setup().await;
    let began_at = Instant::now();
    let error = client.signal("prices").changed_with_timeout(0, 200 * MS).await;
    let error = error.expect_err("nobody gives it");
    let took = began_at.elapsed();
    assert!((200 * MS..server.widened(500 * MS)).contains(&took), "{took:?}");
    assert!(error.is_timeout() && error.to_string().contains("signal \"prices\""), "{error}");
}

#[tokio::test]
async fn signals_of_any_names_are_told_apart() {
    let (_server, [client]) = setup().await;
    for (one, other) in [("n", "{n}"), ("a", "b"), ("a b", "a  b")] {
        client.signal(one).notify_all(b"x").await.expect("an answer");
        assert_eq!(client.signal(other).seen().await.expect("an answer"), 0, "{other}");
    }
}

#[tokio::test]
async fn any_or_all_of_several_can_be_waited_for() {
    let (server, [client]) = setup().await;
    let signals = ["prices", "taxes", "rates"].map(|name| (client.signal(name), 0));
    let any = tokio::spawn(Signal::any_changed_with_timeout(&signals, Duration::MAX));
    let all = tokio::spawn(Signal::all_changed_with_timeout(&signals, Duration::MAX));
    somebody_listens(&server, CHANNEL, 1).await;
    signals[1].0.notify_all(b"new").await.expect("an answer");
    let (which, notice) = soon("one of them", any).await.expect("no panic").expect("a signal");
    assert_eq!((which, &*notice.data), (1, &b"new"[..]));
    assert!(!all.is_finished());
    let error =
        Signal::all_changed_with_timeout(&signals, 50 * MS).await.expect_err("two are missing");
    assert!(error.is_timeout(), "{error:?}");
    for number in [0, 2] {
        signals[number].0.notify_all(&[number as u8]).await.expect("an answer");
    }
    let notices = soon("all of them", all).await.expect("no panic").expect("signals");
    let data = |notice: &Notice| notice.data.to_vec();
    assert_eq!(notices.iter().map(data).collect::<Vec<_>>(), [&[0][..], b"new", &[2]]);
    let none =
        Signal::any_changed_with_timeout(&[], Duration::MAX).await.expect_err("none of none");
    assert!(matches!(none, Error::InvalidArgument { .. }), "{none:?}");
    assert!(
        Signal::all_changed_with_timeout(&[], Duration::MAX).await.expect("all of none").is_empty()
    );
    client_is_idle(&client).await;
}

/// As the documentation shows it: the condition is about data that a lock protects.
#[tokio::test]
async fn with_a_lock_no_signal_falls_between_the_look_and_the_wait() {
    let (_server, [worker, boss]) = setup().await;
    let work = Arc::new(AtomicU32::new(0));
    let working = tokio::spawn({
        let (lock, signal, work) = (worker.mutex("orders"), worker.signal("orders"), work.clone());
        async move {
            for _ in 0..30 {
                let mut guard = lock.lock().await.expect("its turn");
                while work.load(SeqCst) == 0 {
                    let seen = signal.seen().await.expect("an answer");
                    guard.unlock().await.expect("held");
                    signal.changed(seen).await.expect("a signal");
                    guard = lock.lock().await.expect("its turn");
                }
                work.fetch_sub(1, SeqCst);
                guard.unlock().await.expect("held");
            }
        }
    });
    let (lock, signal) = (boss.mutex("orders"), boss.signal("orders"));
    let giving = async {
        for _ in 0..30 {
            // Each piece of work is waited for.
            while work.load(SeqCst) > 0 {
                tokio::task::yield_now().await;
            }
            let guard = lock.lock().await.expect("its turn");
            work.fetch_add(1, SeqCst);
            guard.unlock().await.expect("held");
            signal.notify_all(b"").await.expect("an answer");
        }
    };
    // Far sooner than 30 timers of 2 s.
    soon("all work is given", giving).await;
    soon("all work is done", working).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_dropped_at_any_await_leaves_nothing_and_loses_nothing() {
    let (server, proxy) = setup_with_proxy().await;
    let client = leasehold::Client::connect(&proxy.url()).await.expect("connected");
    let other = connect(&server).await.signal("prices");
    proxy.delay_replies(MS);
    let mut seen = 0;
    for steps in 0..100 {
        let giving = async {
            tokio::time::sleep(12 * MS).await;
            other.notify_all(b"").await.expect("an answer");
        };
        let wait = client.signal("prices").changed(seen);
        let (end, ()) = tokio::join!(drop_after(wait, steps), giving);
        client_is_idle(&client).await;
        let known = client.signal("prices").changed_with_timeout(seen, Duration::ZERO).await;
        let known = known.expect("the signal is there").number;
        assert!(known > seen);
        seen = known;
        if let Some(end) = end {
            end.expect("it was given");
            assert!(steps >= 4, "it was never dropped half-way");
            return;
        }
    }
    panic!("it does not end");
}

/// It waits for the end of its client, too, which is not what every change of a lock is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_signal_is_not_woken_by_locks_of_its_client() {
    let (server, [client]) = setup().await;
    let polls = Arc::new(AtomicU32::new(0));
    let mut waiting = Box::pin(client.signal("prices").changed(0));
    let wait = tokio::spawn({
        let polls = polls.clone();
        std::future::poll_fn(move |cx| {
            polls.fetch_add(1, SeqCst);
            waiting.as_mut().poll(cx)
        })
    });
    somebody_listens(&server, CHANNEL, 1).await;
    let (before, began_at) = (polls.load(SeqCst), Instant::now());
    for _ in 0..100 {
        client.mutex("other").lock().await.expect("free").unlock().await.expect("held");
    }
    // It asks every few seconds, which is a handful of polls.
    let most = 10 + 10 * u32::try_from(began_at.elapsed().as_secs()).expect("a short test");
    let polled = polls.load(SeqCst) - before;
    assert!(polled <= most, "{polled} polls");
    client.shutdown().await;
    let error = soon("its end", wait).await.expect("no panic").expect_err("the client is closed");
    assert!(matches!(error, Error::Closed { .. }), "{error:?}");
}

/// Each that comes asks twice, and wakes nobody of those who wait already.
#[tokio::test]
async fn who_comes_to_a_crowd_that_waits_has_nobody_ask_again() {
    const CROWD: u64 = 100;
    let (server, [client]) = setup().await;
    let before = server.scripts_run().await;
    let mut crowd = Vec::new();
    for waiting in 1..=CROWD {
        crowd.push(tokio::spawn(client.signal("prices").changed(0)));
        let asked = async || server.scripts_run().await >= before + 2 * waiting;
        eventually(LIMIT, "it listens and has asked", asked).await;
    }
    let asked = server.scripts_run().await - before;
    // Some may have looked again after 2 s.
    assert!(asked < 10 * CROWD, "{asked} requests of {CROWD} waiters");
    client.signal("prices").notify_all(b"").await.expect("an answer");
    for wait in crowd {
        soon("it comes", wait).await.expect("no panic").expect("a signal");
    }
}
