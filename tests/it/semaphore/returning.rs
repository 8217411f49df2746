//! Waiting until all permits are back: a wait group whose participants may crash.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, LossReason, Semaphore};

use super::{MS, api};
use crate::checks::{LIMIT, connect, setup, soon};
use crate::support::{Proxy, Server, Worker, eventually};

/// What an error of the wait says.
fn said(result: Result<(), Error>) -> String {
    result.expect_err("permits are held").to_string()
}

/// Waits until one listens.
async fn listens(semaphore: &Semaphore) {
    eventually(LIMIT, "it listens", async || {
        semaphore.status().await.expect("an answer").waiting_clients == 1
    })
    .await;
}

#[tokio::test]
async fn who_waits_hears_of_the_last_permit_by_a_message() {
    let (_server, [client, other]) = setup().await;
    let semaphore = api(&client, 3);
    semaphore.returned().await.expect("nobody has any");
    let many = api(&other, 3).acquire_many(2).await.expect("free");
    let one = semaphore.acquire().await.expect("free");
    assert!(
        said(semaphore.returned_with_timeout(Duration::ZERO).await).ends_with("3 permits are held")
    );
    let waiting = tokio::spawn(semaphore.returned());
    many.release().await.expect("held");
    assert!(said(semaphore.returned_with_timeout(20 * MS).await).ends_with("1 permit is held"));
    assert!(!waiting.is_finished());
    listens(&semaphore).await;
    one.release().await.expect("held");
    // Sooner than it would look by itself.
    let returned = tokio::time::timeout(1500 * MS, waiting).await.expect("in time");
    returned.expect("no panic").expect("all are back");
    eventually(LIMIT, "it listens no more", async || {
        semaphore.status().await.expect("an answer").waiting_clients == 0
    })
    .await;
}

#[tokio::test]
async fn who_waits_hears_of_the_last_permit_where_there_are_none_any_more() {
    let (_server, [client, other]) = setup().await;
    let semaphore = api(&client, 3);
    let many = api(&other, 3).acquire_many(3).await.expect("free");
    semaphore.set_permits(0).await.expect("an answer");
    let waiting = tokio::spawn(semaphore.returned());
    listens(&semaphore).await;
    many.release().await.expect("held");
    // Sooner than it would look by itself.
    let returned = tokio::time::timeout(1500 * MS, waiting).await.expect("in time");
    returned.expect("no panic").expect("all are back");
}

#[tokio::test]
async fn what_is_forgotten_is_not_held() {
    let (_server, [client]) = setup().await;
    let semaphore = api(&client, 1);
    let permit = semaphore.acquire().await.expect("free");
    let waiting = tokio::spawn(semaphore.returned());
    permit.forget().await.expect("held");
    let waited = soon("it is seen without a message", waiting).await;
    waited.expect("no panic").expect("nobody has any");
    assert_eq!(semaphore.status().await.expect("an answer").permits(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_permit_of_a_process_that_was_killed_comes_back() {
    let (server, [client]) = setup().await;
    let semaphore = api(&client, 2);
    semaphore.set_permits(2).await.expect("an answer");
    let mut participants = [Worker::start(), Worker::start()];
    for participant in &mut participants {
        participant.tell(&format!("hold-permit {} api 1000", server.url()));
        assert_eq!(participant.answer(), ["held"]);
    }
    let waiting = tokio::spawn(semaphore.returned());
    for participant in &mut participants {
        assert!(!waiting.is_finished());
        participant.kill();
    }
    let waited = soon("both are back", waiting).await;
    waited.expect("no panic").expect("nobody has any");
    assert_eq!(semaphore.available_permits().await.expect("an answer"), 2);
}

/// Nobody tells of it, and by itself it would look after 2 s at least.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_looks_again_when_a_permit_ends() {
    let (server, [client, other]) = setup().await;
    api(&other, 1).with_lease(1200 * MS).acquire().await.expect("free").spend();
    let began_at = Instant::now();
    soon("it is seen", api(&client, 1).returned()).await.expect("nobody has any");
    let took = began_at.elapsed();
    assert!(took < server.widened_by(4, 1700 * MS), "{took:?}");
}

/// One puts its permit back, another one cannot yet: when the first is released, the other one is still at work.
#[tokio::test]
async fn a_permit_that_a_server_has_forgotten_is_not_back_while_it_may_be_in_use() {
    const GRACE: Duration = Duration::from_secs(7);
    let server = Server::start().await;
    let (away, behind) = (Proxy::start(server.port()).await, Proxy::start(server.port()).await);
    let connect = async |url: String| {
        let builder = Client::builder().nodes([url]).restart_quarantine(GRACE).ttl(GRACE);
        builder.connect().await.expect("connected")
    };
    let (one, other, waiter) =
        tokio::join!(connect(server.url()), connect(away.url()), connect(behind.url()));
    api(&one, 2).set_permits(2).await.expect("an answer");
    let first = api(&one, 2).acquire().await.expect("there is one");
    let second = api(&other, 2).acquire().await.expect("there is one");
    let mut waiting = tokio::spawn(api(&waiter, 2).returned());
    eventually(LIMIT, "it listens", async || waiter.stats().subscriptions == 1).await;
    for proxy in [&away, &behind] {
        proxy.black_hole(true);
        proxy.cut();
    }
    server.kill();
    server.restart().await;
    let is_back =
        async |client: &Client| api(client, 2).status().await.is_ok_and(|status| status.held == 1);
    eventually(LIMIT, "the first one is back", async || is_back(&one).await).await;
    behind.black_hole(false);
    behind.cut();
    eventually(LIMIT, "who waits can look again", async || is_back(&waiter).await).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.release().await.expect("held");
    let waited = tokio::select! {
        waited = &mut waiting => waited,
        _ = second.lost() => soon("it is over", waiting).await,
    };
    assert!(!second.is_held(), "it is in use");
    waited.expect("no panic").expect("nobody has any");
}

/// Who asks in the grace has heard of nobody who may still put a permit back.
#[tokio::test]
async fn nobody_is_told_in_a_grace_that_all_are_back() {
    const GRACE: Duration = Duration::from_secs(3);
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]).restart_quarantine(GRACE).ttl(GRACE);
    let client = builder.connect().await.expect("connected");
    let semaphore = api(&client, 2);
    assert!(!client.is_ready(), "the server is young");
    for timeout in [Duration::ZERO, 100 * MS] {
        let told = said(semaphore.returned_with_timeout(timeout).await);
        assert!(told.ends_with("permits may be in use that a new server has lost"), "{told}");
    }
    semaphore.returned().await.expect("nobody has put any back");
    assert!(client.is_ready(), "before, others might have");
}

#[tokio::test]
async fn a_server_that_forgets_who_had_permits_does_not_say_that_they_are_back() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let semaphore = api(&client, 2);
    semaphore.set_permits(2).await.expect("an answer");
    let mut participant = Worker::start();
    participant.tell(&format!("hold-permit {} api 30000", server.url()));
    assert_eq!(participant.answer(), ["held"]);
    let waiting = tokio::spawn(semaphore.returned());
    eventually(LIMIT, "it listens", async || client.stats().subscriptions == 1).await;
    server.kill();
    // Nobody puts the permit back.
    participant.kill();
    server.restart().await;
    let waited = soon("it looks again", waiting).await.expect("no panic");
    let error = waited.expect_err("the server has forgotten it");
    assert!(matches!(error, Error::Lost { reason: LossReason::Failover, .. }), "{error:?}");
    semaphore.returned().await.expect("who comes later knows of none");
}
