//! Who leads, and in which term.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Client, Error, LossReason, Owner};

use super::{LIMIT, MS, leader, leading};
use crate::checks::{nothing_left, setup, setup_with_proxy, soon};
use crate::support::{Outage, Worker, eventually, heard, waiting};

#[tokio::test]
async fn one_leads_and_its_term_is_known_to_all() {
    let (server, [client, other]) = setup().await;
    let election = client.election("scheduler").with_value("http://10.0.0.7");
    assert_eq!(election.name(), "scheduler");
    assert_eq!(leader(&election).await, None);
    let leadership = leading(&election).await;
    assert!(leadership.is_held() && leadership.remaining() > Duration::from_secs(20));
    let known = leader(&other.election("scheduler")).await.expect("it leads");
    assert_eq!((known.term, &*known.value), (leadership.term(), "http://10.0.0.7"));
    assert_eq!(known.holder, leadership.holder());
    let error = other.election("scheduler").campaign_with_timeout(300 * MS).await;
    let error = error.expect_err("another leads");
    assert_eq!(error.holder(), Some(&leadership.holder()), "{error:?}");
    let error = client.election("scheduler").campaign_with_timeout(Duration::ZERO).await;
    assert!(error.expect_err("another leads").is_timeout());
    // It is the lock of that name.
    assert!(other.mutex("scheduler").try_lock().await.expect("an answer").is_none());
    assert_eq!(client.holds().len(), 1);
    let first = leadership.term();
    leadership.resign().await.expect("held");
    let leadership = leading(&other.election("scheduler")).await;
    assert!(leadership.term() > first);
    leadership.resign().await.expect("held");
    nothing_left(&server, &client).await;
    assert_eq!(leader(&election).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terms_grow_from_leader_to_leader_and_no_two_lead() {
    let (server, clients) = setup::<3>().await;
    let (inside, last) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..9)
        .map(|task| {
            let election = clients[task % 3].election("scheduler");
            let (inside, last) = (inside.clone(), last.clone());
            tokio::spawn(async move {
                for turn in 0..6 {
                    let leadership = election.campaign().await.expect("its turn comes");
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two lead");
                    let before = last.swap(leadership.term(), SeqCst);
                    assert!(leadership.term() > before, "{} after {before}", leadership.term());
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, SeqCst);
                    match turn % 2 {
                        0 => leadership.resign().await.expect("held"),
                        _ => drop(leadership),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        soon("all have led", task).await.expect("no panic");
    }
    for client in &clients {
        nothing_left(&server, client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_resigns_and_comes_again_is_behind_those_who_wait() {
    let (server, [one, two]) = setup().await;
    let leadership = leading(&one.election("scheduler")).await;
    let waits = tokio::spawn(two.election("scheduler").campaign());
    // Unless its mailbox is heard, it would be passed over, and begin again behind the first.
    let is_heard = async || waiting(&server, "scheduler").await == 1 && heard(&server).await == 1;
    eventually(LIMIT, "it waits", is_heard).await;
    leadership.resign().await.expect("held");
    let again = tokio::spawn(one.election("scheduler").campaign());
    let next = soon("the next leads", waits).await.expect("no panic").expect("its turn");
    assert!(!again.is_finished());
    next.resign().await.expect("held");
    drop(soon("and then the first again", again).await.expect("no panic").expect("its turn"));
    nothing_left(&server, &one).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_followed_by_the_next() {
    const TTL: Duration = Duration::from_millis(900);
    let (server, [client]) = setup().await;
    let mut worker = Worker::start();
    worker.tell(&format!("lead {} scheduler {}", server.url(), TTL.as_millis()));
    let answer = worker.answer();
    let [word, term] = &answer[..] else { panic!("{answer:?}") };
    assert_eq!(word, "leads");
    let term: u64 = term.parse().expect("a number");
    let election = client.election("scheduler").with_value("next");
    assert_eq!(leader(&election).await.map(|leader| leader.term), Some(term));
    let mut observer = election.observe();
    assert!(observer.changed().await.expect("an answer").is_some());
    let waits = tokio::spawn(election.campaign());
    eventually(LIMIT, "it waits", async || waiting(&server, "scheduler").await == 1).await;
    worker.kill();
    let next = soon("the next leads", waits).await.expect("no panic").expect("its turn");
    assert!(next.term() > term);
    // It may have been seen that nobody led for a moment.
    loop {
        let seen = soon("it is known", observer.changed()).await.expect("an answer");
        if let Some(seen) = seen {
            assert_eq!((seen.term, &*seen.value), (next.term(), "next"));
            break;
        }
    }
    next.resign().await.expect("held");
}

/// It is well, and only does not resign.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_is_followed_by_the_next_after_its_longest_term() {
    let (server, [client, other]) = setup().await;
    let limited = client.election("scheduler").with_ttl(2000 * MS).with_max_hold(500 * MS);
    let first = leading(&limited).await;
    let next = soon("the next leads", other.election("scheduler").campaign()).await;
    let next = next.expect("its turn");
    assert!(next.term() > first.term());
    assert_eq!(soon("it is told", first.lost()).await, LossReason::Ended);
    drop(first);
    next.resign().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_learns_that_its_term_is_over() {
    let (server, [client, other]) = setup().await;
    let leadership = leading(&client.election("scheduler").with_ttl(900 * MS)).await;
    let holder = leadership.holder();
    assert!(other.mutex("scheduler").force_unlock_if(&holder).await.expect("an answer"));
    let lost = leadership.run_until_lost(std::future::pending::<()>());
    assert!(soon("it is told", lost).await.expect_err("it is lost").is_lost());
    assert_eq!(soon("it is told", leadership.lost()).await, LossReason::Gone);
    assert!(!leadership.is_held() && leadership.remaining().is_zero());
    let error = leadership.resign().await.expect_err("it was lost");
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_is_begun_again_in_the_next_term() {
    let (server, [client, other]) = setup().await;
    let election = client.election("scheduler").with_ttl(900 * MS);
    let terms = Mutex::new(Vec::new());
    let run = election.run_each_term(async |leadership| {
        let led = {
            let mut terms = terms.lock().expect("no panic");
            terms.push(leadership.term());
            terms.len()
        };
        if led < 3 {
            assert!(other.mutex("scheduler").force_unlock().await.expect("an answer"));
            std::future::pending::<()>().await;
        }
        assert!(leadership.is_held());
        "done"
    });
    assert_eq!(soon("it ends", run).await.expect("it led"), "done");
    let terms = terms.into_inner().expect("no panic");
    assert!(terms.len() == 3 && terms.is_sorted_by(|before, after| before < after), "{terms:?}");
    nothing_left(&server, &client).await;
    client.shutdown().await;
    let error = election.run_each_term(async |_| ()).await.expect_err("closed");
    assert!(matches!(error, Error::Closed { .. }), "{error:?}");
}

/// A campaign ends with an error by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_each_term_waits_for_servers_that_are_away() {
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).unavailable_after(400 * MS);
    let client = builder.response_timeout(200 * MS).connect().await.expect("connected");
    let election = client.election("scheduler");
    let test = async |outage: &Outage<'_>| {
        outage.begins();
        let run = election.run_each_term(async |leadership| leadership.is_held());
        let back = async {
            // Whoever began before the second of these has been told by the time that ends.
            for _ in 0..2 {
                let error = soon("it is told", election.campaign()).await.expect_err("no answer");
                assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
            }
            outage.ends().await;
        };
        let (led, ()) = soon("it leads", async { tokio::join!(run, back) }).await;
        assert!(led.expect("it waits for the servers"));
        nothing_left(&server, &client).await;
    };
    Outage::silent([&proxy]).twice(test).await;
}

/// Each campaign is a candidate of its own: a leader does not lead twice.
#[tokio::test]
async fn an_owner_does_not_lead_twice() {
    let (server, [client]) = setup().await;
    Owner::new()
        .scope(async {
            let leadership = leading(&client.election("scheduler")).await;
            let again = client.election("scheduler").campaign_with_timeout(Duration::ZERO).await;
            assert!(again.expect_err("it leads already").is_timeout());
            leadership.resign().await.expect("held");
        })
        .await;
    nothing_left(&server, &client).await;
}

/// It has to compile: a task is `Send`, also where the body borrows from it.
#[tokio::test]
async fn a_body_that_borrows_a_local_may_run_in_a_spawned_task() {
    let (server, [client]) = setup().await;
    let election = client.election("scheduler");
    let led = tokio::spawn(async move {
        let name = String::from("term");
        election.run_each_term(async |leadership| format!("{name} {}", leadership.term() > 0)).await
    });
    let led = soon("the body ends", led).await.expect("no panic");
    assert_eq!(led.expect("its turn"), "term true");
    nothing_left(&server, &client).await;
}
