//! What is logged, and that nothing secret is ever shown.

use std::{
    io,
    sync::{Arc, Mutex as StdMutex},
    time::Duration,
};

use leasehold::{Client, Error, Owner, SelfWait};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::{MakeWriter, format::FmtSpan};

use crate::{
    checks::{LIMIT, connect, nothing_left, setup, soon, told},
    support::{Proxy, Server, eventually, traced_to},
};

const MS: Duration = Duration::from_millis(1);

/// All that is logged by this thread, which runs the client's tasks, too.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<StdMutex<Vec<u8>>>);

impl Log {
    pub(crate) fn listen() -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(log.clone())
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(FmtSpan::CLOSE)
            .with_ansi(false)
            .finish();
        (log, traced_to(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        let bytes = self.0.lock().expect("no panic").clone();
        String::from_utf8(bytes).expect("text")
    }

    /// The lines that end the span of an acquisition of this lock.
    fn spans(&self, lock: &str) -> Vec<String> {
        let text = self.text();
        let lock = format!("lock=\"{lock}\"");
        text.lines()
            .filter(|line| line.contains(" close ") && line.contains(&lock))
            .map(ToOwned::to_owned)
            .collect()
    }

    pub(crate) fn has(&self, parts: &[&str]) -> bool {
        self.text().lines().any(|line| parts.iter().all(|part| line.contains(part)))
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn each_acquisition_has_a_span_that_tells_how_it_went() {
    let (log, _listening) = Log::listen();
    let (_server, [client, other]) = setup().await;
    let me = Owner::named("req-17");
    let lock = client.mutex("n").owned_by(&me);

    let guard = lock.lock().await.expect("free");
    let [free] = &log.spans("n")[..] else { panic!("one span: {:?}", log.spans("n")) };
    for part in ["owner=req-17#", "outcome=\"held\"", "contended=false", "wait_us=", "logging.rs:"]
    {
        assert!(free.contains(part), "no {part} in {free}");
    }
    assert!(free.contains(&format!("token={}", guard.token())), "{free}");
    let nested = lock.lock().await.expect("ours");
    assert_eq!(log.spans("n").len(), 2);
    assert!(log.spans("n")[1].contains("outcome=\"held\""));
    drop(nested);

    let elsewhere = other.mutex("n");
    elsewhere.lock_with_timeout(300 * MS).await.expect_err("it is held");
    let late = log.spans("n").pop().expect("a span");
    assert!(late.contains("outcome=timed out") && late.contains("held by"), "{late}");
    assert!(late.contains("contended=true"), "{late}");

    let waiter = tokio::spawn(elsewhere.lock());
    eventually(LIMIT, "it waits", async || other.stats().waiters == 1).await;
    guard.unlock().await.expect("held");
    let guard = waiter.await.expect("no panic").expect("free");
    let waited = log.spans("n").pop().expect("a span");
    assert!(waited.contains("contended=true") && waited.contains("outcome=\"held\""), "{waited}");
    assert_eq!(log.spans("n").len(), 4);
    guard.unlock().await.expect("held");
}

#[tokio::test]
async fn an_acquisition_of_several_locks_has_a_span_around_theirs() {
    let (_server, [client, other]) = setup().await;
    let (log, _listening) = Log::listen();
    let held = other.mutex("b").lock().await.expect("free");
    let locks = client.multi_lock(["b", "a"]);
    locks.lock_with_timeout(20 * MS).await.expect_err("it is held");
    held.unlock().await.expect("held");
    locks.lock().await.expect("free").unlock().await.expect("held");
    let text = log.text();
    let spans =
        text.lines().filter(|line| line.contains("multi_lock{") && line.contains(" close "));
    let own: Vec<&str> = spans.filter(|line| !line.contains(":lock{")).collect();
    let [late, taken] = &own[..] else { panic!("two spans: {own:?}") };
    assert!(late.contains("outcome=timed out") && late.contains("for \"b\""), "{late}");
    for part in ["locks=[\"b\", \"a\"]", "outcome=\"held\"", "wait_us=", "logging.rs:"] {
        assert!(taken.contains(part), "no {part} in {taken}");
    }
    assert!(log.has(&["multi_lock{", ":lock{lock=\"a\"", " close "]), "{text}");
}

#[tokio::test]
async fn a_request_about_no_lease_has_a_span_and_is_counted() {
    let (log, _listening) = Log::listen();
    let (server, [client]) = setup().await;
    let before = client.stats();
    let (queue, latch, signal) = (client.queue("q"), client.latch("l"), client.signal("s"));
    queue.push("one").await.expect("an answer");
    latch.try_set_count(1, Duration::MAX).await.expect("an answer");
    latch.count_down().await.expect("an answer");
    signal.notify_all("").await.expect("an answer");
    let requests =
        [("q", "item_push"), ("l", "latch_set"), ("l", "latch_count_down"), ("s", "signal_notify")];
    for (name, script) in requests {
        let (name, script) = (format!("name=\"{name}\""), format!("script=\"{script}\""));
        let parts = [" close ", "request{", &name, &script, "took_us=", "outcome=\"answered\""];
        assert!(log.has(&parts), "no {parts:?} in {}", log.text());
    }
    let asked = client.stats();
    assert_eq!((asked.requests, asked.requests_failed), (before.requests + 4, 0));

    server.command(&["SET", "l", "text"]).await;
    let error = latch.count().await.expect_err("it is no latch");
    let outcome = format!("outcome={error}");
    assert!(log.has(&["request{", "script=\"latch_status\"", &outcome]), "{}", log.text());
    let failed = client.stats();
    assert_eq!((failed.requests, failed.requests_failed), (before.requests + 5, 1));
}

#[tokio::test]
async fn waits_for_a_latch_or_a_signal_are_counted_while_they_go_on() {
    let (_server, [client]) = setup().await;
    let latch = client.latch("l");
    latch.try_set_count(1, Duration::MAX).await.expect("an answer");
    let (opens, given_up) =
        (tokio::spawn(latch.wait()), tokio::spawn(client.signal("s").changed(0)));
    eventually(LIMIT, "both wait", async || client.stats().open_waits == 2).await;
    latch.count_down().await.expect("an answer");
    opens.await.expect("no panic").expect("it is open");
    given_up.abort();
    eventually(LIMIT, "nobody waits", async || client.stats().open_waits == 0).await;
}

#[tokio::test]
async fn an_acquisition_of_permits_has_a_span_that_tells_how_it_went() {
    let (_server, [client]) = setup().await;
    let semaphore = client.semaphore("api").with_permits(2);
    let (log, _listening) = Log::listen();
    let permit = semaphore.acquire_many(2).await.expect("there are two");
    semaphore.try_acquire().await.expect("an answer").ok_or(()).expect_err("there is none");
    permit.release().await.expect("held");
    let text = log.text();
    let spans: Vec<&str> =
        text.lines().filter(|line| line.contains("permits{") && line.contains(" close ")).collect();
    let [taken, late] = &spans[..] else { panic!("two spans: {text}") };
    for part in ["semaphore=\"api\"", "weight=2", "outcome=\"held\"", "wait_us=", "logging.rs:"] {
        assert!(taken.contains(part), "no {part} in {taken}");
    }
    assert!(late.contains("outcome=timed out") && late.contains("contended=true"), "{late}");
    assert!(log.has(&["lock released", "lock=\"api\""]), "{text}");
}

#[tokio::test]
async fn losses_failed_renewals_and_new_connections_are_logged() {
    let (log, _listening) = Log::listen();
    let (server, [client]) = setup().await;
    eventually(LIMIT, "the findings are logged", async || log.has(&["INFO", "appendonly is off"]))
        .await;
    let guard = client.mutex("n").with_ttl(300 * MS).lock().await.expect("free");
    server.pause();
    soon("it is told", guard.lost()).await;
    assert!(log.has(&["WARN", "renewal failed", "lock=\"n\""]), "{}", log.text());
    assert!(
        log.has(&["WARN", "lock lost", "lock=\"n\"", "renewal was confirmed"]),
        "{}",
        log.text()
    );
    drop(guard);
    server.resume();
    let made = client.stats().connections_made;
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    eventually(LIMIT, "it connects again", async || client.stats().connections_made > made).await;
    eventually(LIMIT, "that is logged", async || {
        log.has(&["WARN", "connection lost"]) && log.has(&["INFO", "connected again"])
    })
    .await;
    client.mutex("n").force_unlock().await.expect("an answer");
    assert!(log.has(&["WARN", "force-unlocked", "lock=\"n\""]), "{}", log.text());
}

#[tokio::test]
async fn a_task_that_waits_for_itself_is_warned_of() {
    let (log, _listening) = Log::listen();
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    // One attempt waits for nobody.
    assert!(lock.try_lock().await.expect("an answer").is_none());
    // Another task may wait.
    let waiter = tokio::spawn(lock.lock());
    eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
    waiter.abort();
    assert!(!log.has(&["owned_by"]), "{}", log.text());
    lock.lock_with_timeout(20 * MS).await.expect_err("it holds it itself");
    assert!(log.has(&["WARN", "lock=\"n\"", "owned_by", "scope"]), "{}", log.text());
    assert!(!log.has(&["wait forever"]), "the wait has a time limit: {}", log.text());
    tokio::time::timeout(20 * MS, lock.lock()).await.expect_err("it holds it itself");
    assert!(log.has(&["it may wait forever", "owned_by"]), "{}", log.text());
    guard.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_task_that_waits_for_itself_fails_where_that_is_wanted() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).self_wait(SelfWait::Fail);
    let client = builder.connect().await.expect("connected");
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    for answer in [lock.lock().await, lock.lock_with_timeout(LIMIT).await] {
        let Err(Error::SelfWait { lock, .. }) = &answer else { panic!("{answer:?}") };
        assert_eq!(&**lock, "n");
    }
    assert!(lock.try_lock().await.expect("an answer").is_none());
    let nested = lock.owned_by(guard.owner()).lock().await.expect("that is how to nest");
    drop(nested);
    let elsewhere = tokio::spawn(lock.lock_with_timeout(20 * MS)).await.expect("no panic");
    assert!(matches!(elsewhere, Err(Error::Timeout { .. })), "{elsewhere:?}");
    guard.unlock().await.expect("held");

    let answer = tokio::spawn({
        let lock = lock.clone();
        async move {
            let _guard = lock.lock().await?;
            lock.lock().await
        }
    })
    .await
    .expect("no panic");
    assert!(matches!(answer, Err(Error::SelfWait { .. })), "{answer:?}");
    nothing_left(&server, &client).await;
}

/// Whoever waits remembers its own task, not the one that gives it the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_had_to_wait_for_the_lock_learns_that_it_waits_for_itself() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).self_wait(SelfWait::Fail);
    let builder = builder.handoff_window(Duration::from_secs(1));
    let (client, other) = (builder.connect().await.expect("connected"), connect(&server).await);
    for is_here in [false, true] {
        for lock in [client.mutex("n"), client.fair_mutex("n")] {
            let held =
                if is_here { &client } else { &other }.mutex("n").lock().await.expect("free");
            let turn = tokio::spawn(async move {
                let guard = lock.lock().await?;
                let again = lock.lock_with_timeout(LIMIT).await;
                guard.unlock().await?;
                again
            });
            eventually(LIMIT, "it waits", async || client.stats().waiters == 1).await;
            held.unlock().await.expect("held");
            let answer = soon("its turn", turn).await.expect("no panic");
            assert!(matches!(answer, Err(Error::SelfWait { .. })), "here: {is_here}: {answer:?}");
        }
    }
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_downgrade_that_lets_nobody_in_is_told() {
    let (log, _listening) = Log::listen();
    let server = Server::start().await;
    let client = connect(&server).await;
    let lock = client.rw_lock("n").owned_by(&Owner::new());
    let writing = lock.write().await.expect("free");
    let alone = lock.write().await.expect("nested");
    drop(alone);
    let within = lock.read().await.expect("nested");
    let reading = writing.downgrade().await.expect("held");
    let told = ["WARN", "lock=\"n\"", "a downgrade beside other guards", "guards=2"];
    assert!(log.has(&told), "{}", log.text());
    drop((within, reading));
    nothing_left(&server, &client).await;
    let lines = log.text().matches("a downgrade beside").count();
    let writing = lock.write().await.expect("free");
    drop(writing.downgrade().await.expect("held"));
    assert_eq!(log.text().matches("a downgrade beside").count(), lines, "it is a reader now");
}

#[tokio::test]
async fn who_asks_for_permits_of_a_semaphore_that_nobody_made_is_told_once() {
    let (log, _listening) = Log::listen();
    let (server, [client]) = setup().await;
    let nobody_made = || log.text().lines().filter(|line| line.contains("does not exist")).count();
    let waits = client.semaphore("n").acquire();
    let waiting = tokio::spawn(waits);
    eventually(LIMIT, "it is told", async || nobody_made() == 1).await;
    assert!(log.has(&["WARN", "semaphore=\"n\"", "set_permits", "with_permits"]), "{}", log.text());
    client.semaphore("n").set_permits(1).await.expect("an answer");
    let permit = soon("a permit", waiting).await.expect("no panic").expect("there is one");
    assert_eq!(nobody_made(), 1, "{}", log.text());
    permit.release().await.expect("held");
    let made = client.semaphore("m").with_permits(1).acquire().await.expect("it is made");
    assert!(client.semaphore("m").try_acquire().await.expect("an answer").is_none());
    assert_eq!(nobody_made(), 1, "none is left, but it exists: {}", log.text());
    made.release().await.expect("held");
    drop(server);
}

#[tokio::test]
async fn nothing_secret_is_ever_shown() {
    let (log, _listening) = Log::listen();
    let server = Server::with(&["--requirepass", "canary-password"]).await;
    let proxy = Proxy::start(server.port()).await;
    let url = proxy.url().replace("redis://", "redis://:canary-password@");
    let builder = Client::builder().nodes([url.clone()]).name("billing-7");
    let builder = builder.response_timeout(200 * MS).unavailable_after(300 * MS);
    let mut shown = format!("{builder:?}");
    let mut show = |text: String| shown.push_str(&text);
    let client = builder.connect().await.expect("the password is right");
    let lock = client.mutex("n").with_ttl(500 * MS);
    let guard = lock.lock().await.expect("free");
    let uuid = guard.holder().as_str().rsplit_once(':').expect("client:uuid").1.to_owned();
    let secret_end = &uuid[9..];

    let nested = guard.reenter().expect("held");
    show(format!(
        "{client:?} {lock:?} {guard:?} {nested:?} {:?} {:?}",
        guard.lost(),
        guard.owner()
    ));
    show(format!("{:?} {}", guard.holder(), guard.holder()));
    show(format!("{:?} {:?}", client.holds(), client.stats()));
    show(format!("{:?} {:?}", lock.status().await, lock.holder().await));
    show(format!("{:?}", client.check().await));
    show(told(&lock.lock_with_timeout(20 * MS).await.expect_err("it is held")));
    show(told(&client.mutex("").lock().await.expect_err("no name")));
    server.command(&["SET", "other", "1"]).await;
    show(told(&client.mutex("other").lock().await.expect_err("no lock")));
    server.command(&["DEL", "other"]).await;

    // A failed renewal, a loss, a broken connection, a refused and a forced unlock.
    proxy.drop_replies(true);
    soon("it is told", guard.lost()).await;
    show(told(&client.mutex("m").lock().await.expect_err("no answer")));
    show(told(&guard.unlock().await.expect_err("lost")));
    drop(nested);
    proxy.drop_replies(false);
    proxy.cut();
    let guard = lock.lock_with_timeout(LIMIT).await.expect("free");
    lock.force_unlock_if(&guard.holder()).await.expect("an answer");
    let second = guard.holder().as_str().rsplit_once(':').expect("client:uuid").1.to_owned();
    show(format!("{guard:?}"));
    drop(guard);
    client.shutdown().await;
    show(format!("{client:?}"));

    let bad = url.replace("canary-password", "canary-wrong");
    show(told(&Client::connect(&bad).await.expect_err("not the password")));
    proxy.refuse(true);
    show(told(&Client::connect(&url).await.expect_err("nobody is there")));

    let log = log.text();
    assert!(
        log.contains("lock lost") && log.contains(&uuid[..8]),
        "the log tells what it may: {log}"
    );
    for (place, text) in [("the log", &log), ("what is shown", &shown)] {
        for secret in ["canary", &uuid, secret_end, &second[9..]] {
            let at = text.find(secret);
            let around = at.map(|at| &text[at.saturating_sub(200)..(at + 40).min(text.len())]);
            assert!(at.is_none(), "{place} tells {secret}: {around:?}");
        }
    }
}
