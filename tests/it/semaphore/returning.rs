//! Waiting until all permits are back: a wait group whose participants may crash.

use std::time::Duration;

use leasehold::{Error, LossReason, Semaphore};

use super::{MS, api};
use crate::checks::{LIMIT, connect, setup, soon};
use crate::support::{Server, Worker, eventually};

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
