//! What a wait that was in vain says: who held the lock, in words that fit a log.

use std::time::Duration;

use leasehold::{Client, Error, Owner};

use crate::{
    checks::{LIMIT, nothing_left, setup, setup_with_proxy, told},
    support::eventually,
};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_ends_before_the_next_answer_names_the_last_holder() {
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).handoff_window(Duration::ZERO);
    let client = builder.connect().await.expect("connected");
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    let last = guard.holder();
    let waiting = tokio::spawn(lock.lock_with_timeout(300 * MS));
    let trying = tokio::spawn(lock.try_lock_for(300 * MS));
    eventually(LIMIT, "both wait", async || client.stats().waiters == 2).await;
    // The release goes out, and its answer and the next one are on their way for a while.
    proxy.hold_replies();
    drop(guard);
    let (waited, tried) = (waiting.await.expect("no panic"), trying.await.expect("no panic"));
    proxy.release_replies();
    let Err(Error::Timeout { holder, remaining, .. }) = waited else { panic!("{waited:?}") };
    assert_eq!((holder, remaining), (Some(last), Some(Duration::ZERO)));
    assert!(matches!(tried, Ok(None)), "{tried:?}");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_wait_too_short_for_an_answer_is_no_trouble_for_others() {
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).handoff_window(Duration::ZERO);
    let client = builder.connect().await.expect("connected");
    let lock = client.mutex("n");
    let guard = lock.lock().await.expect("free");
    proxy.hold_replies();
    drop(guard);
    // The first asks behind the release, and the second waits for that.
    let (short, longer) =
        tokio::join!(lock.lock_with_timeout(30 * MS), lock.lock_with_timeout(200 * MS));
    proxy.release_replies();
    assert!(matches!(short, Err(Error::Unavailable { .. })), "{short:?}");
    assert!(matches!(longer, Err(Error::Timeout { .. })), "{longer:?}");
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_timeout_names_the_owner_of_this_process_and_rounds_its_times() {
    let (_server, [client, other]) = setup().await;
    let guard = client.mutex("n").owned_by(&Owner::named("req-17")).lock().await.expect("free");
    let here = client.mutex("n").lock_with_timeout(300 * MS).await.expect_err("it is held");
    let elsewhere = other.mutex("n").lock_with_timeout(300 * MS).await.expect_err("it is held");
    for (error, here) in [(&here, true), (&elsewhere, false)] {
        let text = error.to_string();
        assert_eq!(text.contains("req-17"), here, "{text}");
        let longest = text.split(|c: char| !c.is_ascii_digit()).map(str::len).max();
        // The start of the holder's id has eight digits at most.
        let times = text.replace(&guard.holder().to_string(), "");
        let digits = |word: &str| word.chars().filter(char::is_ascii_digit).count();
        let after = times.split(" after ").nth(1).expect("a time").split(' ').next().expect("it");
        let still =
            times.split(" expires in ").nth(1).expect("a time").split(' ').next().expect("it");
        for time in [after, still] {
            assert!((1..=3).contains(&digits(time)), "{time} in {text} ({longest:?})");
        }
    }
    guard.unlock().await.expect("held");
}

#[tokio::test]
async fn what_others_wrote_is_shown_without_control_characters() {
    let (server, [client]) = setup().await;
    let evil = "a\n\u{1b}[31mb\u{202e}c\\n";
    server.command(&["HSET", "n", evil, "1"]).await;
    server.command(&["PEXPIRE", "n", "60000"]).await;
    let lock = client.mutex("n").owned_by(&Owner::named(evil));
    let error = lock.lock_with_timeout(300 * MS).await.expect_err("it is held");
    let Error::Timeout { holder: Some(holder), .. } = &error else { panic!("{error:?}") };
    assert_eq!(holder.as_str(), evil, "the text itself stays as it is");
    let status = lock.status().await.expect("an answer");
    let named = client.mutex(evil).lock().await.expect("free");
    for shown in [
        told(&error),
        format!("{holder} {holder:?} {status:?} {lock:?}"),
        format!("{:?} {:?} {}", client.holds(), named, Owner::named(evil)),
    ] {
        let control = shown.chars().find(|c| c.is_control() || *c == '\u{202e}');
        assert_eq!(control, None, "{shown:?}");
        assert!(shown.contains(r"a\n\u{1b}[31mb\u{202e}c\\n"), "{shown}");
    }
    named.unlock().await.expect("held");
}
