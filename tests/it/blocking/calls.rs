//! Every call does what its async counterpart does.

use std::{
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::{Error, FindingKind, blocking::Client};
use parking_lot::Mutex;
use tracing_subscriber::fmt::format::FmtSpan;

use super::{LIMIT, MS, connect, connect_with_ttl, eventually, exists, server, wait_for, widened};
use crate::support::{Face, Proxy};

#[test]
fn a_wait_ends_within_50_ms_of_its_timeout_and_names_the_holder() {
    let server = server();
    let (holder, waiter) = (connect(&server), connect(&server));
    let guard = holder.mutex("n").lock().expect("free");
    let lock = waiter.mutex("n");
    let timed = |timeout: Duration, wait: &dyn Fn()| {
        let began_at = Instant::now();
        wait();
        let took = began_at.elapsed();
        // The caller, the runtime and the server run one after the other.
        let limit = timeout + 50 * MS + 4 * Client::HOPS * server.longest_stall();
        assert!(took >= timeout && took <= limit, "{took:?} instead of {timeout:?}");
    };
    for timeout in [5 * MS, 50 * MS, 400 * MS] {
        // A busy machine may keep the answer for longer than that.
        let is_unheard = |error: &Error| {
            let slow = MS + 4 * server.longest_stall() >= timeout;
            slow && matches!(error, Error::Unavailable { .. })
        };
        timed(timeout, &|| match lock.lock_with_timeout(timeout).expect_err("held") {
            Error::Timeout { holder, remaining, waited, .. } => {
                assert_eq!(holder, Some(guard.holder()));
                assert!(remaining.is_some() && waited >= timeout);
            }
            error => assert!(is_unheard(&error), "{error}"),
        });
        timed(timeout, &|| match lock.try_lock_for(timeout) {
            Ok(refused) => assert!(refused.is_none()),
            Err(error) => assert!(is_unheard(&error), "{error}"),
        });
    }
    timed(Duration::ZERO, &|| assert!(lock.try_lock().expect("an answer").is_none()));
    let error = lock.lock_with_timeout(Duration::ZERO).expect_err("held");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    guard.unlock().expect("held");
    assert!(lock.try_lock().expect("an answer").is_some());
    assert!(lock.try_lock_for(MS).is_ok());
}

#[test]
fn run_holds_the_lock_for_its_body_and_gives_it_back() {
    let server = server();
    let (client, other) = (connect(&server), connect(&server));
    let lock = client.mutex("n");
    let answer = lock.run(|guard| {
        assert!(other.mutex("n").try_lock().expect("an answer").is_none());
        // The body's thread has it: no owner must be named.
        lock.run(|nested| (nested.hold_count(), nested.token() == guard.token()))
    });
    assert_eq!(answer.expect("held").expect("held"), (2, true));
    assert!(!exists(&server, "n"));
}

#[test]
fn leases_ttls_and_extensions_are_what_was_asked_for() {
    let server = server();
    let client = connect(&server);
    let lock = client.mutex("n");
    let on_server = || lock.remaining_ttl().expect("an answer").expect("held");

    let guard = lock.with_ttl(2000 * MS).lock().expect("free");
    assert!(guard.remaining() < 2000 * MS && on_server() <= 2000 * MS && on_server() > 1000 * MS);
    guard.unlock().expect("held");

    let guard = lock.with_lease(1000 * MS).lock().expect("free");
    assert!(guard.remaining() < 1000 * MS && on_server() <= 1000 * MS);
    guard.extend(5000 * MS).expect("held");
    assert!(guard.remaining() > 4000 * MS && on_server() > 4000 * MS);
    guard.extend(10 * MS).expect("it never shortens");
    assert!(guard.remaining() > 3000 * MS);
    assert!(matches!(guard.extend(Duration::ZERO), Err(Error::InvalidArgument { .. })));
    guard.unlock().expect("held");

    for bad in [lock.with_lease(MS), lock.with_ttl(Duration::ZERO), client.mutex("")] {
        let error = bad.lock().expect_err("it cannot be");
        let said = matches!(error, Error::InvalidConfig { .. } | Error::InvalidName { .. });
        assert!(said, "{error}");
    }
    assert!(matches!(lock.with_max_hold(Duration::ZERO).lock(), Err(Error::InvalidConfig { .. })));
}

#[test]
fn a_lock_can_be_looked_at_and_freed_by_force() {
    let server = server();
    let client =
        Client::builder().nodes([server.url()]).name("ours").connect_blocking().expect("connected");
    let other = connect(&server);
    let (lock, seen) = (client.mutex("n"), other.mutex("n"));
    assert_eq!((client.name(), lock.name()), ("ours", "n"));
    assert!(!seen.is_locked().expect("an answer"));
    assert_eq!(seen.holder().expect("an answer"), None);
    assert_eq!(seen.remaining_ttl().expect("an answer"), None);

    let guard = lock.lock().expect("free");
    let nested = lock.lock().expect("re-entered");
    eventually("the count is on the server", || {
        seen.status().is_ok_and(|status| status.hold_count == 2)
    });
    let status = seen.status().expect("an answer");
    assert_eq!(status.holder, Some(guard.holder()));
    assert!(status.last_token >= Some(guard.token()) && status.remaining > Some(LIMIT));
    assert!(seen.is_locked().expect("an answer"));
    assert_eq!(seen.holder().expect("an answer"), Some(guard.holder()));
    assert!(guard.holder().to_string().starts_with("ours:"));
    let [held] = &client.holds()[..] else { panic!("{:?}", client.holds()) };
    assert_eq!((&*held.name, held.hold_count, &held.owner), ("n", 2, guard.owner()));
    assert!(other.holds().is_empty());
    let shown = format!("{client:?} {lock:?} {guard:?}");
    assert!(shown.contains("ours") && shown.contains(&guard.token().to_string()), "{shown}");

    drop((guard, nested));
    eventually("given back", || !exists(&server, "n"));
    let stranger = lock.run(|guard| guard.holder()).expect("held");
    let guard = lock.lock().expect("free");
    assert!(!seen.force_unlock_if(&stranger).expect("an answer"));
    assert!(seen.is_locked().expect("an answer"));
    assert!(seen.force_unlock_if(&guard.holder()).expect("an answer"));
    assert!(!seen.is_locked().expect("an answer"));
    assert!(!seen.force_unlock().expect("an answer"));
    let findings = client.check().expect("an answer");
    assert!(findings.iter().any(|found| found.kind == FindingKind::NotPersistent), "{findings:?}");
}

#[test]
fn a_server_that_is_away_is_told_in_time() {
    let server = server();
    let client = Client::builder()
        .nodes([server.url()])
        .response_timeout(200 * MS)
        .unavailable_after(400 * MS)
        .connect_blocking()
        .expect("connected");
    server.pause();
    let timed = |limit: Duration, call: &dyn Fn() -> Result<(), Error>| {
        let began_at = Instant::now();
        let error = call().expect_err("nobody answers");
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        let took = began_at.elapsed();
        // Once the limit, not twice.
        let most = widened(limit + 150 * MS, &server);
        assert!(took < most, "{took:?}, limit {limit:?}, stalls {:?}", server.longest_stall());
    };
    let lock = client.mutex("n");
    timed(200 * MS, &|| lock.try_lock().map(drop));
    timed(200 * MS, &|| lock.status().map(drop));
    timed(100 * MS, &|| lock.lock_with_timeout(100 * MS).map(drop));
    timed(400 * MS, &|| lock.lock().map(drop));
    server.resume();
    eventually("it answers again", || lock.try_lock().is_ok_and(|guard| guard.is_some()));
}

#[test]
fn a_server_that_is_dead_at_connect_is_told_in_time() {
    let server = server();
    let url = server.url();
    let silent = wait_for(async {
        let proxy = Proxy::start(server.port()).await;
        proxy.drop_replies(true);
        // It runs on this runtime only: nothing is answered once that has ended, which is as good.
        proxy.url()
    });
    server.kill();
    for url in [url, silent] {
        let began_at = Instant::now();
        let builder = Client::builder().nodes([url]).connect_timeout(200 * MS);
        let error = builder.connect_blocking().expect_err("nobody is there");
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        let took = began_at.elapsed();
        assert!(took < widened(350 * MS, &server), "told after {took:?}");
    }
    for builder in [
        Client::builder(),
        Client::builder().nodes(["no url"]),
        Client::builder().nodes([server.url()]).ttl(Duration::ZERO),
    ] {
        assert!(matches!(builder.connect_blocking(), Err(Error::InvalidConfig { .. })));
    }
}

/// The trace of an acquisition names the line of the program, not one of the library.
#[test]
fn a_trace_names_the_calling_line() {
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);
    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let server = server();
    let client = connect_with_ttl(&server, LIMIT);
    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    // While there is only one subscriber, tracing asks the current thread's, once for all threads: another test
    // that is the first to pass here, and has none, would switch the span off.
    let _another = tracing::Dispatch::new(tracing_subscriber::registry());
    let lock = client.mutex("n");
    let lines = tracing::subscriber::with_default(subscriber, || {
        let first = line!() + 1;
        drop(lock.lock());
        drop(lock.lock_with_timeout(LIMIT));
        drop(lock.try_lock());
        drop(lock.try_lock_for(LIMIT));
        drop(lock.run(|_| ()));
        first..first + 5
    });
    let text = String::from_utf8(written.0.lock().clone()).expect("text");
    for line in lines {
        assert!(text.contains(&format!("{}:{line}:", file!())), "line {line} is not in {text}");
    }
}
