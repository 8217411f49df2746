//! Watching for a loss from another thread than the one that has the guard.

use std::{sync::mpsc, thread, time::Duration};

use leasehold::{Error, LossReason, blocking::LossWatch};

use super::{Client, LIMIT, MS, connect, connect_with_ttl, eventually, server, wait_for};
use crate::support::Proxy;

/// Waits on a thread of its own.
fn wait(watch: LossWatch) -> mpsc::Receiver<Option<Error>> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(watch.wait_lost(Duration::MAX).expect("it may wait")));
    told
}

#[test]
fn another_thread_is_told_of_a_loss() {
    let server = server();
    let (client, other) = (connect_with_ttl(&server, 900 * MS), connect(&server));
    let guard = client.mutex("n").lock().expect("free");
    let watch = guard.watch();
    assert!(watch.is_held() && watch.wait_lost(10 * MS).expect("it may wait").is_none());
    let told = wait(watch.clone());
    assert!(other.mutex("n").force_unlock().expect("an answer"));
    match told.recv_timeout(LIMIT).expect("it is told") {
        Some(Error::Lost { lock, reason, .. }) => {
            assert_eq!((&*lock, reason), ("n", LossReason::Gone));
        }
        other => panic!("{other:?}"),
    }
    assert!(!watch.is_held());
}

#[test]
fn a_watch_ends_with_its_guard() {
    let server = server();
    let client = connect(&server);
    let lock = client.mutex("n");
    let (outer, inner) = (lock.lock().expect("free"), lock.lock().expect("nested"));
    let watches = [outer.watch(), inner.watch()];
    let told = watches.clone().map(wait);
    inner.release().expect("held");
    assert!(told[1].recv_timeout(LIMIT).expect("it ends").is_none());
    assert!(!watches[1].is_held() && watches[0].is_held());
    drop(outer);
    assert!(told[0].recv_timeout(LIMIT).expect("it ends").is_none());
    assert!(!watches[0].is_held());
    assert!(watches[0].wait_lost(Duration::MAX).expect("it may wait").is_none(), "at once");
}

#[test]
fn what_each_kind_holds_is_watched() {
    let server = server();
    let (client, other) = (connect_with_ttl(&server, 900 * MS), connect(&server));
    let both = client.multi_lock(["a", "b"]).lock().expect("free");
    let leads = client.election("e").campaign().expect("nobody leads");
    let permit = client.semaphore("s").with_permits(1).acquire().expect("free");
    let (reads, writes) =
        (client.rw_lock("r").read().expect("free"), client.rw_lock("w").write().expect("free"));
    client.queue("q").push("1").expect("pushed");
    let item = client.queue("q").with_ttl(900 * MS).pop().expect("an item");
    let watches =
        [both.watch(), leads.watch(), permit.watch(), reads.watch(), writes.watch(), item.watch()];
    assert!(watches.iter().all(LossWatch::is_held));
    for name in ["b", "e"] {
        assert!(other.mutex(name).force_unlock().expect("an answer"));
    }
    for name in ["r", "w"] {
        assert!(other.rw_lock(name).force_unlock().expect("an answer"));
    }
    let semaphore = other.semaphore("s");
    let holders = semaphore.status().expect("an answer").holders;
    assert!(semaphore.force_release(&holders[0]).expect("an answer"));
    wait_for(server.command(&["DEL", "leasehold_lent:{q}", "leasehold_items:{q}"]));
    for watch in &watches {
        let lost = wait(watch.clone()).recv_timeout(LIMIT).expect("it is told");
        assert!(lost.is_some_and(|lost| lost.is_lost()), "{watch:?}");
    }
    eventually("they are lost", || watches.iter().all(|watch| !watch.is_held()));
}

/// As long as its guard, a writer's is a writer's: a reader that it becomes has a guard of its own.
#[test]
fn a_downgrade_ends_the_watch_of_the_writer() {
    let server = server();
    let client = connect(&server);
    let writes = client.rw_lock("n").write().expect("free");
    let watch = writes.watch();
    let reads = writes.downgrade().expect("held");
    assert!(watch.wait_lost(Duration::MAX).expect("it may wait").is_none());
    let watch = reads.watch();
    assert!(watch.is_held());
    assert_eq!(reads.reenter().expect("held").version(), reads.version());
    reads.release().expect("held");
    assert!(!watch.is_held());
}

/// A thread cannot be stopped, so a body that has lost its term returns by itself, and begins again.
#[test]
fn a_body_on_a_thread_begins_again_in_the_next_term() {
    let server = server();
    let (client, other) = (connect_with_ttl(&server, 900 * MS), connect(&server));
    let mut terms = Vec::new();
    let led = client.election("n").run_each_term(|leadership| {
        terms.push(leadership.term());
        if terms.len() < 3 {
            assert!(other.mutex("n").force_unlock().expect("an answer"));
            leadership.wait_lost(LIMIT).expect("it may wait").expect("it is lost");
        }
        terms.len()
    });
    assert_eq!(led.expect("it leads"), 3);
    assert!(terms.is_sorted_by(|before, after| before < after), "{terms:?}");
    other.shutdown().expect("it may wait");
    assert!(other.election("n").run_each_term(|_| ()).is_err(), "it is closed");
}

/// A campaign ends with an error by then.
#[test]
fn a_body_on_a_thread_waits_for_servers_that_are_away() {
    let server = server();
    let proxy = wait_for(Proxy::start(server.port()));
    let builder = Client::builder().nodes([proxy.url()]).unavailable_after(400 * MS);
    let client = builder.response_timeout(200 * MS).connect_blocking().expect("connected");
    let election = client.election("n");
    proxy.black_hole(true);
    let led = thread::spawn({
        let election = election.clone();
        move || election.run_each_term(|leadership| leadership.is_held())
    });
    eventually("it waits", || client.stats().waiters == 1);
    // Whoever began before the second of these has been told by the time that ends.
    for _ in 0..2 {
        let error = election.campaign().expect_err("no answer");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    }
    proxy.black_hole(false);
    assert!(led.join().expect("no panic").expect("it waits for the servers"));
}
