//! How a thread learns that its lock is lost, and that it is not while the thread does other things.

use std::{
    hint::black_box,
    thread,
    time::{Duration, Instant},
};

use leasehold::{Error, LossReason, blocking::Client};

use super::{LIMIT, MS, connect, connect_with_ttl, server, wait_for, widened};

/// While the thread sleeps, and while it keeps a processor busy.
#[test]
fn a_lock_is_renewed_for_three_ttls_while_its_thread_is_away() {
    let server = server();
    let ttl = wait_for(server.slowness()) * 400 * MS;
    let client = connect_with_ttl(&server, ttl);
    let other = connect_with_ttl(&server, ttl);
    let work: [&dyn Fn(); 2] = [&|| thread::sleep(3 * ttl), &|| {
        let until = Instant::now() + 3 * ttl;
        while Instant::now() < until {
            black_box(0);
        }
    }];
    for work in work {
        let guard = client.mutex("n").lock().expect("free");
        work();
        assert!(guard.is_held());
        assert!(guard.remaining() > Duration::ZERO && guard.remaining() < ttl);
        assert!(other.mutex("n").try_lock().expect("an answer").is_none());
        guard.unlock().expect("held all the time");
    }
}

/// Some 100 ns in a debug build; the limit only tells it from anything that asks a server or another thread.
#[test]
fn is_held_is_asked_in_a_loop_until_the_lock_is_lost() {
    const TTL: Duration = Duration::from_millis(600);
    let server = server();
    let client = connect_with_ttl(&server, TTL);
    let guard = client.mutex("n").lock().expect("free");
    // The quickest of many rounds, since the machine may do something else in some of them.
    let rounds = (0..100).map(|_| {
        let began_at = Instant::now();
        assert!((0..100).all(|_| guard.is_held()));
        began_at.elapsed() / 100
    });
    let each = rounds.min().expect("some rounds");
    assert!(each < 10 * Duration::from_micros(1), "{each:?} for each look");
    let other = connect(&server);
    assert!(other.mutex("n").force_unlock().expect("an answer"));
    let freed_at = Instant::now();
    while guard.is_held() {
        assert!(freed_at.elapsed() < LIMIT, "it is not told");
    }
    // Told at the next renewal.
    let told_after = freed_at.elapsed();
    assert!(told_after < widened(TTL / 3 + 100 * MS, &server), "told after {told_after:?}");
    assert!(matches!(guard.unlock(), Err(Error::Lost { reason: LossReason::Gone, .. })));
}

#[test]
fn wait_lost_tells_why_or_ends_in_its_time() {
    const TTL: Duration = Duration::from_millis(900);
    let server = server();
    let client = connect_with_ttl(&server, TTL);
    let lock = client.mutex("n");

    let guard = lock.lock().expect("free");
    for timeout in [Duration::ZERO, 1 * MS, 1_200 * MS] {
        let began_at = Instant::now();
        assert_eq!(guard.wait_lost(timeout).expect("it may wait"), None);
        let took = began_at.elapsed();
        let limit = widened(timeout + 50 * MS, &server);
        assert!(took >= timeout && took <= limit, "{took:?} instead of {timeout:?}");
    }
    assert!(connect(&server).mutex("n").force_unlock().expect("an answer"));
    assert_eq!(guard.wait_lost(LIMIT).expect("it may wait"), Some(LossReason::Gone));
    assert!(!guard.is_held() && guard.remaining() == Duration::ZERO);
    // A loss that has been is told at once, as often as it is asked for.
    assert_eq!(guard.wait_lost(Duration::ZERO).expect("it may wait"), Some(LossReason::Gone));
    assert!(matches!(guard.unlock(), Err(Error::Lost { reason: LossReason::Gone, .. })));

    let guard = lock.with_lease(100 * MS).lock().expect("free");
    assert_eq!(guard.wait_lost(Duration::MAX).expect("it may wait"), Some(LossReason::Ended));
    assert!(matches!(guard.unlock(), Err(Error::Lost { reason: LossReason::Ended, .. })));

    let began_at = Instant::now();
    let guard = lock.with_max_hold(2 * TTL).lock().expect("free");
    assert_eq!(guard.wait_lost(LIMIT).expect("it may wait"), Some(LossReason::Ended));
    let held_for = began_at.elapsed();
    assert!(held_for > TTL && held_for < widened(3 * TTL + 50 * MS, &server), "{held_for:?}");
    drop(guard);

    let guard = lock.lock().expect("free");
    server.kill();
    let gone_at = Instant::now();
    assert_eq!(guard.wait_lost(LIMIT).expect("it may wait"), Some(LossReason::NotRenewed));
    let told_after = gone_at.elapsed();
    assert!(told_after < widened(TTL + 50 * MS, &server), "told after {told_after:?}");
}

/// A guard of a lost hold stands for work that goes on without the lock: its thread does not get it anew.
#[test]
fn a_thread_with_a_dead_guard_does_not_re_enter() {
    let server = server();
    let client = connect(&server);
    let lock = client.mutex("n");
    let dead = lock.lock().expect("free");
    assert!(lock.force_unlock().expect("an answer"));
    assert!(matches!(lock.lock(), Err(Error::Lost { .. })));
    assert!(matches!(dead.reenter(), Err(Error::Lost { .. })));
    // Another thread is not concerned.
    thread::scope(|scope| {
        let other = scope.spawn(|| lock.lock_with_timeout(LIMIT).expect("free").unlock());
        other.join().expect("no panic").expect("held");
    });
    drop(dead);
    lock.lock_with_timeout(LIMIT).expect("free").unlock().expect("held");
}

#[test]
fn the_body_of_run_learns_of_a_loss_and_its_result_is_not_taken_for_good() {
    let server = server();
    let client = connect_with_ttl(&server, 900 * MS);
    let other = connect(&server);
    let answer = client.mutex("n").run(|guard| {
        assert!(other.mutex("n").force_unlock().expect("an answer"));
        guard.wait_lost(LIMIT).expect("it may wait").expect("lost")
    });
    assert!(matches!(answer, Err(Error::Lost { reason: LossReason::Gone, .. })), "{answer:?}");
}

/// What waits gets `Closed`, what is held is lost and given back before `shutdown` returns.
#[test]
fn shutdown_tells_those_who_hold_and_those_who_wait() {
    let server = server();
    let client = connect(&server);
    let guard = client.mutex("n").lock().expect("free");
    thread::scope(|scope| {
        let waits = scope.spawn(|| client.mutex("n").lock().map(drop));
        super::eventually("a thread waits", || client.stats().waiters == 1);
        client.shutdown().expect("it may wait");
        let ended = waits.join().expect("no panic");
        assert!(matches!(ended, Err(Error::Closed { .. })), "{ended:?}");
    });
    assert!(!super::exists(&server, "n"));
    assert_eq!(guard.wait_lost(Duration::ZERO).expect("it may wait"), Some(LossReason::Shutdown));
    let error = guard.unlock().expect_err("lost");
    assert!(matches!(error, Error::Lost { reason: LossReason::Shutdown, .. }), "{error}");
    assert!(matches!(client.mutex("n").try_lock(), Err(Error::Closed { .. })));
    client.shutdown().expect("once more does no harm");
}

#[test]
fn drain_waits_for_the_holder_and_lets_nobody_new_in() {
    let server = server();
    let client: Client = connect(&server);
    let lock = client.mutex("n");
    let guard = lock.lock().expect("free");
    assert!(!client.drain(10 * MS).expect("it may wait"), "it is held still");
    assert!(matches!(client.mutex("other").lock(), Err(Error::Closed { .. })));
    drop(lock.lock().expect("the holder goes on nesting"));
    thread::scope(|scope| {
        let drained = scope.spawn(|| client.drain(LIMIT));
        guard.unlock().expect("held");
        assert!(drained.join().expect("no panic").expect("it may wait"));
    });
}
