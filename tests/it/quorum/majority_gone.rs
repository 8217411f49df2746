//! Three of five masters are away: everybody is told in time, by what and whom, and goes on when they are back.

use std::time::{Duration, Instant};

use leasehold::{
    Client, Error, LossReason,
    NodeState::{Down, Up},
};

use super::deployment::{
    MS, Masters, all_up, connected, failures, names_just, states_become, trusting,
};
use crate::{
    checks::{LIMIT, soon},
    support::{Outage, Spy, Watch, eventually, in_time},
};

const TTL: Duration = Duration::from_millis(1500);
const RESPONSE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_millis(1200);
/// What a limit allows for on top.
const SLACK: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_of_five_killed() {
    let masters = Masters::start(5).await;
    let outage = Outage::killed(&masters.0[..3]);
    everybody_is_told(&masters.urls(), outage, &["not connected", "broke"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_of_five_stopped() {
    let masters = Masters::start(5).await;
    let outage = Outage::stopped(&masters.0[..3]);
    everybody_is_told(&masters.urls(), outage, &["no answer", "not connected"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_of_five_partitioned_away() {
    let masters = Masters::start(5).await;
    let ways = masters.ways().await;
    let outage = Outage::silent(&ways.0[..3]);
    everybody_is_told(&ways.urls(), outage, &["no answer", "not connected"]).await;
}

/// `causes`: one of them is said of each node.
async fn everybody_is_told(urls: &[String], outage: Outage<'_>, causes: &[&str]) {
    let watch = Watch::begin();
    // Several threads must run, one after the other, and each may be kept waiting.
    let most = |limit: Duration| limit + SLACK + 3 * watch.longest_stall();
    let builder = || trusting(urls).ttl(TTL).response_timeout(RESPONSE).unavailable_after(PATIENCE);
    let (holder, other) = (connected(builder()).await, connected(builder()).await);
    let gone = &urls[..3];
    let test = async |outage: &Outage<'_>| {
        let lock = holder.mutex("held").lock();
        let guard = soon("the lock is free", lock).await.expect("free");
        outage.begins();

        // Whoever asks.
        let tells = |answer: Result<(), Error>| {
            for (node, said) in failures(answer.clone()) {
                let cause = causes.iter().any(|cause| said.contains(cause));
                assert!(cause && said.contains(&node), "{said}");
            }
            names_just(answer, gone);
        };
        for name in ["free", "held"] {
            let lock = other.mutex(name);
            let (answer, took) = timed(lock.try_lock()).await;
            tells(answer.map(drop));
            assert!(took <= most(RESPONSE), "try_lock took {took:?}");
        }
        let (short, long, ever) = tokio::join!(
            timed(other.mutex("short").lock_with_timeout(100 * MS)),
            timed(other.mutex("long").lock_with_timeout(700 * MS)),
            timed(other.mutex("ever").lock()),
        );
        for ((answer, took), limit) in [(short, 100 * MS), (long, 700 * MS)] {
            tells(answer.map(drop));
            assert!(took >= limit, "{took:?} of {limit:?}");
            assert!(took <= most(limit), "{took:?} of {limit:?}");
        }
        // Found out when an ask fails.
        let (answer, took) = ever;
        tells(answer.map(drop));
        assert!(took >= PATIENCE, "{took:?} of {PATIENCE:?}");
        assert!(took <= most(PATIENCE + RESPONSE), "{took:?} of {PATIENCE:?}");
        tells(timed(other.mutex("held").status()).await.0.map(drop));
        tells(timed(other.mutex("held").force_unlock()).await.0.map(drop));

        // The holder. By now nothing that was sent before is still unanswered.
        let deadline = Instant::now() + guard.remaining();
        soon("the holder is told", guard.lost()).await;
        assert!(Instant::now() <= deadline + most(Duration::ZERO), "told late");
        assert!(Instant::now() >= deadline && !guard.is_held());
        let (lost, _) = timed(guard.unlock()).await;
        assert!(
            matches!(lost, Err(Error::Lost { reason: LossReason::NotRenewed, .. })),
            "{lost:?}"
        );

        // Those who wait are served when the servers are back; so is everybody else.
        let waiting = tokio::spawn(other.mutex("held").lock_with_timeout(LIMIT));
        outage.ends().await;
        let guard = in_time(2 * LIMIT, "the waiter is served", waiting).await;
        let guard = guard.expect("no panic").expect("the servers are back");
        timed(guard.unlock()).await.0.expect("held");
        for client in [&holder, &other] {
            all_up(client).await;
            take_and_give_back(client).await;
        }
    };
    outage.twice(test).await;
}

async fn take_and_give_back(client: &Client) {
    for name in ["free", "held", "short", "long", "ever"] {
        let guard = client.mutex(name).lock_with_timeout(LIMIT).await.expect("nobody holds it");
        timed(guard.unlock()).await.0.expect("held");
    }
}

async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let began_at = Instant::now();
    let output = soon("a call ends", future).await;
    (output, began_at.elapsed())
}

/// It would grant what no majority can have, and take it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_is_not_asked_for_a_lock() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder()).await;
    let spy = Spy::on(&masters.0[0]).await;
    ways.close(&[1, 2], true);
    states_become(&client, &[Up, Down, Down]).await;
    names_just(client.mutex("n").try_lock().await, &ways.urls()[1..]);
    ways.close(&[1, 2], false);
    all_up(&client).await;
    // Comes behind whatever was sent for the other.
    let last = client.mutex("last").lock().await.expect("free");
    masters.are_held("last", &[0, 1, 2]).await;
    let came = async || spy.count("lock_acquire") > 0;
    eventually(LIMIT, "it is asked for the last", came).await;
    assert_eq!(spy.runs()[0].words[0], "last", "{:?}", spy.runs());
    last.unlock().await.expect("held");
}
