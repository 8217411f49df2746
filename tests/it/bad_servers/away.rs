//! Servers that are not there, at the start or later.

use std::time::Instant;

use leasehold::{Client, Error, LossReason};

use super::{MS, builder, impatient, somebody_waits, unavailable};
use crate::{
    checks::{LIMIT, no_connection_left, nothing_left, setup, soon},
    support::{Outage, Server},
};

#[tokio::test]
async fn no_server_at_the_start_is_an_error_after_the_connect_timeout() {
    let server = Server::start().await;
    server.kill();
    for (url, named) in
        [(server.url(), server.port().to_string()), ("unix:///no/such".into(), "/no/such".into())]
    {
        let builder = Client::builder().nodes([url]).connect_timeout(400 * MS);
        let started_at = Instant::now();
        let error = unavailable(builder.connect().await);
        let took = started_at.elapsed();
        // It gives up when the next attempt would come too late.
        assert!((100 * MS..server.widened(500 * MS)).contains(&took), "{took:?}");
        assert!(error.contains(&named) && error.contains("os error"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_hangs_at_the_start_is_an_error_after_the_connect_timeout() {
    let server = Server::start().await;
    server.pause();
    let started_at = Instant::now();
    unavailable(builder(&server).connect_timeout(300 * MS).connect().await);
    let took = started_at.elapsed();
    assert!((300 * MS..server.widened(600 * MS)).contains(&took), "{took:?}");
    server.resume();
    no_connection_left(&server).await;
}

#[tokio::test]
async fn a_server_that_dies_and_comes_back_empty_costs_the_holder_the_lock() {
    let server = Server::start().await;
    let client = impatient(&server).await;
    let lock = client.mutex("n").with_ttl(900 * MS);
    let test = async |outage: &Outage<'_>| {
        let guard = lock.lock().await.expect("free");
        outage.begins();
        outage.ends().await;
        let back_at = Instant::now();
        let reason = soon("it is told", guard.lost()).await;
        assert!(matches!(reason, LossReason::Failover | LossReason::NotRenewed), "{reason:?}");
        assert!(back_at.elapsed() < server.widened(950 * MS), "{:?}", back_at.elapsed());
        let error = guard.unlock().await.expect_err("lost");
        assert!(matches!(error, Error::Lost { .. }), "{error:?}");
        lock.lock().await.expect("free").unlock().await.expect("held");
        nothing_left(&server, &client).await;
    };
    Outage::killed([&server]).twice(test).await;
}

#[tokio::test]
async fn a_server_that_dies_for_good_is_unavailable_to_each_call_in_its_time() {
    let server = Server::start().await;
    let client = impatient(&server).await;
    let lock = client.mutex("n").with_ttl(900 * MS);
    let test = async |outage: &Outage<'_>| {
        let guard = lock.lock().await.expect("free");
        let sent_at = Instant::now();
        let waiter = tokio::spawn(client.mutex("n").lock());
        outage.begins();

        let reason = soon("it is told", guard.lost()).await;
        assert_eq!(reason, LossReason::NotRenewed);
        // The last renewal can have been confirmed a moment before the end.
        assert!(sent_at.elapsed() < server.widened(1300 * MS), "{:?}", sent_at.elapsed());
        let started_at = Instant::now();
        let error = guard.unlock().await.expect_err("lost");
        assert!(matches!(error, Error::Lost { .. }), "{error:?}");
        assert!(started_at.elapsed() < server.widened(300 * MS));

        let answer = soon("no hang", waiter).await.expect("no panic");
        unavailable(answer);
        let started_at = Instant::now();
        unavailable(lock.lock().await);
        let took = started_at.elapsed();
        assert!((400 * MS..server.widened(1500 * MS)).contains(&took), "{took:?}");
        let started_at = Instant::now();
        unavailable(lock.try_lock().await);
        assert!(started_at.elapsed() < server.widened(300 * MS), "{:?}", started_at.elapsed());
        let started_at = Instant::now();
        unavailable(lock.lock_with_timeout(300 * MS).await);
        let took = started_at.elapsed();
        assert!((300 * MS..server.widened(350 * MS)).contains(&took), "{took:?}");
        unavailable(lock.status().await);
        unavailable(lock.force_unlock().await);
        unavailable(client.check().await);

        outage.ends().await;
        let guard = lock.lock_with_timeout(LIMIT).await.expect("the server is back");
        guard.unlock().await.expect("held");
        nothing_left(&server, &client).await;
    };
    Outage::killed([&server]).twice(test).await;
}

#[tokio::test]
async fn a_waiter_gets_in_when_a_dead_server_comes_back_empty() {
    let (server, [holder, client]) = setup().await;
    let test = async |outage: &Outage<'_>| {
        let held = holder.mutex("n").lock().await.expect("free");
        let waiter = tokio::spawn(client.mutex("n").lock());
        somebody_waits(&holder.mutex("n")).await;
        outage.begins();
        outage.ends().await;
        let back_at = Instant::now();
        let guard = soon("no hang", waiter).await.expect("no panic");
        // Connecting again backs off to a second at most, twice: for commands and for subscriptions.
        assert!(back_at.elapsed() < server.widened(4100 * MS), "{:?}", back_at.elapsed());
        let guard = guard.expect("nobody holds it there");
        assert!(guard.token() > held.token(), "tokens grow past lost data");
        guard.unlock().await.expect("held");
        drop(held);
        nothing_left(&server, &client).await;
        nothing_left(&server, &holder).await;
    };
    Outage::killed([&server]).twice(test).await;
}

#[tokio::test]
async fn a_restart_between_two_uses_is_not_noticed_or_told_clearly() {
    let (server, [client]) = setup().await;
    let lock = client.mutex("n");
    let mut token = 0;
    for _ in 0..3 {
        let guard = lock.lock_with_timeout(LIMIT).await.expect("no error in spite of the restart");
        assert!(guard.token() > token);
        token = guard.token();
        guard.unlock().await.expect("held");
        server.kill();
        server.restart().await;
    }
    // One attempt does not wait longer than for one answer, and says what is missing.
    match lock.try_lock().await {
        Ok(guard) => guard.expect("free").unlock().await.expect("held"),
        other => assert!(!unavailable(other).is_empty()),
    }
    nothing_left(&server, &client).await;
}
