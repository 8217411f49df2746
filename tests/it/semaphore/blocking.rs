//! Semaphores for threads.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use leasehold::{
    Error,
    blocking::{Client, Semaphore},
};
use parking_lot::Mutex as Shared;

use crate::{checks::LIMIT, support::Server};

const MS: Duration = Duration::from_millis(1);

fn server() -> Server {
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime").block_on(Server::start())
}

#[test]
fn threads_share_permits_and_every_call_does_what_its_async_twin_does() {
    let server = server();
    let client = Client::connect(&server.url()).expect("connected");
    let semaphore = client.semaphore("api").with_permits(3);
    assert_eq!((semaphore.name(), semaphore.status().expect("an answer").available), ("api", 3));
    let one = semaphore.acquire().expect("there are three");
    let two = semaphore.acquire_many(2).expect("there are two");
    assert_eq!((one.weight(), two.weight(), two.name()), (1, 2, "api"));
    assert!(one.is_held() && one.remaining() > Duration::from_secs(20));
    assert!(semaphore.try_acquire().expect("an answer").is_none());
    assert!(semaphore.try_acquire_many(2).expect("an answer").is_none());
    assert!(semaphore.try_acquire_for(300 * MS).expect("an answer").is_none());
    let timeout = semaphore.acquire_with_timeout(300 * MS).expect_err("there is none");
    assert!(timeout.is_timeout(), "{timeout}");
    assert_eq!(two.wait_lost(5 * MS).expect("an answer"), None);
    let moved = std::thread::spawn(move || two.release());
    moved.join().expect("no panic").expect("it may move to another thread");
    drop(one);
    assert_eq!(semaphore.available_permits().expect("an answer"), 3, "a drop waits for it");

    let fixed = semaphore.with_lease(5_000 * MS).acquire().expect("there are three");
    fixed.extend(Duration::from_secs(20)).expect("held");
    let holders = semaphore.status().expect("an answer").holders;
    assert_eq!(holders[0].holder, fixed.holder());
    assert!(semaphore.force_release(&holders[0]).expect("an answer"));
    assert!(fixed.release().expect_err("it was taken back").is_lost());

    semaphore.with_ttl(5_000 * MS).acquire().expect("there are three").forget().expect("held");
    semaphore.with_max_hold(5_000 * MS).with_lease(300 * MS).acquire().expect("two").spend();
    assert_eq!(semaphore.available_permits().expect("an answer"), 1);
    semaphore.set_permits(3).expect("an answer");
    semaphore.add_permits(2).expect("an answer");
    let all = semaphore.acquire_many(3).expect("there are five");
    drop(all);
    assert_eq!(semaphore.run(|permit| permit.weight()).expect("there are five"), 1);
    let in_async = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let error = in_async.block_on(async { semaphore.acquire() }).expect_err("it would block");
    assert!(matches!(error, Error::InAsyncContext { .. }), "{error:?}");
}

#[test]
fn a_thread_waits_for_several_permits_and_for_those_of_others_for_as_long_as_it_says() {
    type Wait = fn(&Semaphore) -> Result<(), Error>;
    let waits: [(&str, Wait); 2] = [
        ("those of others", |it| it.returned_with_timeout(100 * MS)),
        ("several", |it| it.acquire_many_with_timeout(2, 100 * MS).map(drop)),
    ];
    let server = server();
    let client = Client::connect(&server.url()).expect("connected");
    let semaphore = client.semaphore("api").with_permits(2);
    let one = semaphore.acquire().expect("there are two");
    for (what, wait) in waits {
        let (tell, told) = mpsc::channel();
        let semaphore = semaphore.clone();
        thread::spawn(move || tell.send(wait(&semaphore)));
        let error = told.recv_timeout(LIMIT).expect(what).expect_err("one is held");
        // On a busy machine the time may be too short for an answer.
        let ended = error.is_timeout() || matches!(error, Error::Unavailable { .. });
        assert!(ended, "{what}: {error}");
    }
    one.release().expect("held");
}

#[test]
fn threads_of_two_clients_never_hold_more_than_all_permits() {
    let server = server();
    let held = Arc::new(Shared::new(0));
    let threads: Vec<_> = (0..6)
        .map(|number| {
            let client = Client::connect(&server.url()).expect("connected");
            let held = held.clone();
            std::thread::spawn(move || {
                let semaphore = client.semaphore("api").with_permits(2);
                for _ in 0..5 {
                    let permit = semaphore.acquire_many(1 + number % 2).expect("its turn comes");
                    *held.lock() += permit.weight();
                    assert!(*held.lock() <= 2);
                    *held.lock() -= permit.weight();
                    permit.release().expect("held");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    let client = Client::connect(&server.url()).expect("connected");
    assert_eq!(client.semaphore("api").available_permits().expect("an answer"), 2);
}
