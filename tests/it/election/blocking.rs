//! The same for threads.

use std::time::Duration;

use leasehold::{Error, blocking};
use tokio::runtime::Runtime;

use super::{LIMIT, MS};
use crate::support::{Server, eventually, waiting};

fn setup() -> (Runtime, Server, [blocking::Client; 2]) {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let connect = |_| blocking::Client::connect(&server.url()).expect("connected");
    let clients = [(); 2].map(connect);
    (runtime, server, clients)
}

#[test]
fn threads_lead_one_after_the_other() {
    let (runtime, server, [one, two]) = setup();
    let election = one.election("scheduler").with_value("one").with_ttl(Duration::from_secs(20));
    assert_eq!(election.name(), "scheduler");
    assert_eq!(election.leader().expect("an answer"), None);
    let leadership = election.campaign().expect("nobody leads");
    assert!(leadership.is_held() && leadership.remaining() > Duration::from_secs(10));
    let known = two.election("scheduler").leader().expect("an answer").expect("it leads");
    assert_eq!((known.term, &*known.value), (leadership.term(), "one"));
    assert_eq!(known.holder, leadership.holder());
    let refused = two.election("scheduler").campaign_with_timeout(300 * MS);
    assert!(refused.expect_err("another leads").is_timeout());
    leadership.proclaim("more").expect("it leads");
    let next = {
        let election = two.election("scheduler");
        std::thread::spawn(move || election.run(|leadership| leadership.term()).expect("its turn"))
    };
    let waits = async || waiting(&server, "scheduler").await == 1;
    runtime.block_on(eventually(LIMIT, "it waits", waits));
    let term = leadership.term();
    assert!(leadership.wait_lost(10 * MS).expect("it may wait").is_none());
    // It may move to another thread, and its drop ends it.
    std::thread::spawn(move || drop(leadership)).join().expect("no panic");
    assert!(next.join().expect("no panic") > term);
}

#[test]
fn a_thread_observes() {
    let (_runtime, _server, [one, two]) = setup();
    let mut observer = two.election("scheduler").observe();
    assert_eq!(observer.changed().expect("an answer"), None);
    let still = observer.changed_with_timeout(20 * MS).expect_err("nothing has changed");
    assert!(matches!(still, Error::StillWaiting { .. }), "{still:?}");
    assert!(still.to_string().ends_with("election \"scheduler\": nobody leads"), "{still}");
    let leadership = one.election("scheduler").with_value("one").campaign().expect("nobody leads");
    let seen = observer.changed().expect("an answer").expect("it leads");
    assert_eq!((seen.term, &*seen.value), (leadership.term(), "one"));
    for timeout in [20 * MS, Duration::ZERO] {
        let still = observer.changed_with_timeout(timeout).expect_err("nothing has changed");
        assert!(still.is_timeout(), "{still:?}");
        let state = format!("{} leads in term {}", seen.holder, seen.term);
        assert!(still.to_string().ends_with(&state), "{still}");
    }
    leadership.resign().expect("held");
    assert_eq!(observer.changed_with_timeout(LIMIT).expect("an answer"), None);
    two.shutdown().expect("it may wait");
    assert!(matches!(observer.changed(), Err(Error::Closed { .. })));
}

#[test]
fn async_code_is_refused() {
    let (runtime, server, [one, two]) = setup();
    let election = one.election("scheduler");
    let leadership = election.campaign().expect("nobody leads");
    runtime.block_on(async {
        assert!(matches!(election.campaign(), Err(Error::InAsyncContext { .. })));
        assert!(matches!(leadership.resign(), Err(Error::InAsyncContext { .. })));
        let free = async || !crate::checks::exists(&server, "scheduler").await;
        eventually(LIMIT, "it ends in the background", free).await;
    });
    two.election("scheduler").campaign().expect("nobody leads").resign().expect("held");
}
