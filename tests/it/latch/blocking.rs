//! Latches for threads.

use std::time::Duration;

use leasehold::{Error, blocking::Client};

use super::{HOUR, MS};
use crate::support::Server;

#[test]
fn threads_wait_for_the_last_count_and_every_call_does_what_its_async_twin_does() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let server = runtime.block_on(Server::start());
    let client = Client::connect(&server.url()).expect("connected");
    let latch = client.latch("ready");
    assert_eq!(latch.name(), "ready");
    assert!(latch.try_set_count(2, HOUR).expect("an answer"));
    assert!(!latch.try_set_count(2, HOUR).expect("an answer"));
    let there = std::thread::spawn({
        let latch = latch.clone();
        move || latch.wait()
    });
    assert_eq!(latch.count_down().expect("an answer"), 1);
    assert_eq!(latch.count().expect("an answer"), 1);
    assert!(latch.wait_with_timeout(20 * MS).expect_err("one is left").is_timeout());
    assert_eq!(latch.count_down().expect("an answer"), 0);
    there.join().expect("no panic").expect("it is open");
    latch.wait_with_timeout(Duration::ZERO).expect("it is open");
    assert!(latch.try_set_count(1, HOUR).expect("an answer"));
    assert!(latch.delete().expect("an answer"));
    let error = runtime.block_on(async { latch.wait() }).expect_err("it would block");
    assert!(matches!(error, Error::InAsyncContext { .. }), "{error:?}");
}
