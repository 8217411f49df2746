//! Servers that hang.

use std::time::{Duration, Instant};

use leasehold::LossReason;

use super::{MS, builder, impatient, unavailable};
use crate::{
    checks::{LIMIT, nothing_left, soon},
    support::{Outage, Server, eventually},
};

#[tokio::test]
async fn a_pause_shorter_than_the_ttl_is_not_noticed_by_the_holder() {
    let server = Server::start().await;
    let client = builder(&server).response_timeout(100 * MS).connect().await.expect("connected");
    let test = async |outage: &Outage<'_>| {
        let guard =
            client.mutex("n").with_ttl(5 * Duration::from_secs(1)).lock().await.expect("free");
        let mut lost = guard.lost();
        outage.begins();
        // Past the first renewal and its retries.
        let lost_meanwhile = tokio::time::timeout(Duration::from_millis(2500), &mut lost).await;
        assert!(lost_meanwhile.is_err(), "{lost_meanwhile:?}");
        outage.ends().await;
        eventually(LIMIT, "it is renewed", async || {
            guard.remaining() > Duration::from_millis(4500)
        })
        .await;
        guard.unlock().await.expect("held all the time");
        nothing_left(&server, &client).await;
    };
    Outage::stopped([&server]).twice(test).await;
}

#[tokio::test]
async fn waits_and_locks_of_a_hanging_server_end_in_their_time_and_leave_nothing() {
    let server = Server::start().await;
    let client = impatient(&server).await;
    let lock = client.mutex("n").with_ttl(900 * MS);
    let test = async |outage: &Outage<'_>| {
        let guard = lock.lock().await.expect("free");
        let remaining_at_most = Instant::now() + 900 * MS;
        outage.begins();
        let started_at = Instant::now();
        let answer = client.mutex("other").lock_with_timeout(250 * MS).await;
        unavailable(answer);
        let took = started_at.elapsed();
        assert!((250 * MS..server.widened(300 * MS)).contains(&took), "{took:?}");
        let started_at = Instant::now();
        unavailable(client.mutex("another").lock().await);
        let took = started_at.elapsed();
        assert!((400 * MS..server.widened(1500 * MS)).contains(&took), "{took:?}");

        let reason = soon("it is told", guard.lost()).await;
        assert_eq!(reason, LossReason::NotRenewed);
        let late = remaining_at_most.elapsed();
        assert!(late < server.widened(1200 * MS), "{late:?}");
        drop(guard);
        outage.ends().await;
        nothing_left(&server, &client).await;
        lock.lock_with_timeout(LIMIT).await.expect("free").unlock().await.expect("held");
        nothing_left(&server, &client).await;
    };
    Outage::stopped([&server]).twice(test).await;
}

#[tokio::test]
async fn an_unlock_that_a_hanging_server_does_not_answer_stays_owed() {
    let server = Server::start().await;
    let client = impatient(&server).await;
    let test = async |outage: &Outage<'_>| {
        let guard = client.mutex("n").lock().await.expect("free");
        outage.begins();
        let started_at = Instant::now();
        unavailable(guard.unlock().await);
        let took = started_at.elapsed();
        assert!((200 * MS..server.widened(500 * MS)).contains(&took), "{took:?}");
        assert_eq!(client.stats().releases_pending, 1);
        outage.ends().await;
        nothing_left(&server, &client).await;
    };
    Outage::stopped([&server]).twice(test).await;
}
