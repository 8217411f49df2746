//! Permits that are spent: a rate limit.

use std::time::{Duration, Instant};

use super::{MS, all_are_back, api, are_waiting};
use crate::checks::{LIMIT, setup, soon};
use crate::support::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_n_spent_permits_are_given_out_in_any_window() {
    const N: usize = 3;
    const WINDOW: Duration = Duration::from_millis(250);
    let (server, [client]) = setup().await;
    let rate = api(&client, N as u32).with_lease(WINDOW);
    // Each permit was given out between the two.
    let mut times: Vec<(Instant, Instant)> = Vec::new();
    for _ in 0..12 {
        let before = Instant::now();
        rate.acquire().await.expect("its turn comes").spend();
        times.push((before, Instant::now()));
    }
    for (first, next) in times.iter().zip(&times[N..]) {
        let between = next.1 - first.0;
        assert!(between >= WINDOW, "{N} and one more within {between:?}");
    }
    let all = api(&client, N as u32).acquire_many(N as u32).await.expect("they come back");
    all.release().await.expect("held");
    all_are_back(&server, &client, N as u32).await;
}

#[tokio::test]
async fn a_spent_permit_is_out_for_all_until_its_lease_ends() {
    let (server, [one, two]) = setup().await;
    let spent_at = Instant::now();
    api(&one, 1).with_lease(400 * MS).acquire().await.expect("there is one").spend();
    assert!(one.holds().is_empty(), "nobody here has it");
    assert!(one.drain(Duration::from_secs(5)).await, "there is nothing to wait for");
    let permit = api(&two, 1).acquire().await.expect("it comes back");
    assert!(spent_at.elapsed() >= 400 * MS, "{:?}", spent_at.elapsed());
    permit.release().await.expect("held");
    all_are_back(&server, &two, 1).await;
}

/// A lease that came by message is short until its first renewal. Whoever spends it before spends as much as others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spent_permit_without_a_fixed_lease_is_out_for_a_ttl_however_it_came() {
    const TTL: Duration = Duration::from_secs(60);
    let (server, [one, two]) = setup().await;
    let first = api(&one, 1).acquire().await.expect("there is one");
    let waiting = tokio::spawn(api(&two, 1).with_ttl(TTL).acquire());
    are_waiting(&api(&one, 1), 1).await;
    // Else it gets the permit by an answer.
    let heard = async || {
        let heard = server.command(&["PUBSUB", "CHANNELS", "leasehold_mailbox:*"]).await;
        heard.as_sequence().is_some_and(|heard| heard.len() == 1)
    };
    eventually(LIMIT, "its mailbox is heard", heard).await;
    first.release().await.expect("held");
    soon("its turn", waiting).await.expect("no panic").expect("by message").spend();
    assert!(two.drain(LIMIT).await, "the server has confirmed it");
    let holders = api(&one, 1).status().await.expect("an answer").holders;
    let left = holders[0].remaining.expect("it ends");
    assert!(left + server.widened(LIMIT) > TTL && left <= TTL, "{left:?}");
    api(&one, 1).force_release(&holders[0]).await.expect("an answer");
    all_are_back(&server, &two, 1).await;
}
