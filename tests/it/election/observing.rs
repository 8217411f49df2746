//! Whoever observes learns who leads, and that nobody does, and never goes back.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, NodeState};

use super::{LIMIT, MS, is_said, leading};
use crate::checks::{client_is_idle, connect, nothing_left, setup, setup_with_proxy, soon};
use crate::support::{Outage, Server, eventually, subscribers};

const CHANNEL: &str = "leasehold_leader__channel:{scheduler}";

async fn is_heard(server: &Server, observers: i64) {
    let heard = async || subscribers(server, CHANNEL).await == observers;
    eventually(LIMIT, "who observes is heard", heard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_is_shown_by_a_message() {
    let (server, [client, other]) = setup().await;
    let election = client.election("scheduler");
    let mut observer = other.election("scheduler").observe();
    let first = soon("the first is what is so now", observer.changed()).await;
    assert_eq!(first.expect("an answer"), None);
    let mut observed = tokio::spawn(async move {
        let change = observer.changed().await;
        (change, observer)
    });
    is_heard(&server, 1).await;
    let leadership = leading(&election.with_value("one")).await;
    // Sooner than a poll: each by its message.
    for value in ["one", "two", "three"] {
        let said_at = Instant::now();
        if value != "one" {
            leadership.proclaim(value).await.expect("it leads");
        }
        let (change, mut observer) = soon("it is shown", observed).await.expect("no panic");
        let seen = change.expect("an answer").expect("it leads");
        assert_eq!((seen.term, &*seen.value), (leadership.term(), value));
        let took = said_at.elapsed();
        assert!(took < server.widened(1500 * MS), "{value} after {took:?}");
        observed = tokio::spawn(async move {
            let change = observer.changed().await;
            (change, observer)
        });
    }
    let resigned_at = Instant::now();
    leadership.resign().await.expect("held");
    let (change, observer) = soon("it is shown", observed).await.expect("no panic");
    assert_eq!(change.expect("an answer"), None, "nobody leads");
    assert!(resigned_at.elapsed() < server.widened(1500 * MS));
    drop(observer);
    is_heard(&server, 0).await;
    client_is_idle(&other).await;
    nothing_left(&server, &client).await;
}

/// Each way in which a leader ends but that its process is killed. It would be missed at the next poll, 2 s later at least.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_ending_is_shown_by_a_message_and_leaves_nothing_said() {
    let (server, [observes, forces]) = setup().await;
    let mut observer = observes.election("scheduler").observe();
    assert_eq!(observer.changed().await.expect("an answer"), None);
    let endings = ["resigned", "dropped", "shut down", "forced", "forced if held", "runtime"];
    for ending in endings {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().expect("a runtime");
        let url = server.url();
        let leads = runtime.spawn(async move {
            let client = Client::connect(&url).await.expect("connected");
            let leadership = leading(&client.election("scheduler").with_value("here")).await;
            (client, leadership)
        });
        let (client, leadership) = leads.await.expect("no panic");
        let seen = soon("it is shown", observer.changed()).await.expect("an answer");
        assert_eq!(seen.map(|seen| seen.term), Some(leadership.term()), "{ending}");
        let observed = tokio::spawn(async move {
            let change = observer.changed().await;
            (change, Instant::now(), observer)
        });
        is_heard(&server, 1).await;
        let lock = forces.mutex("scheduler");
        let mut leadership = Some(leadership);
        let ended_at = Instant::now();
        match ending {
            "resigned" => leadership.take().expect("one").resign().await.expect("held"),
            "dropped" => drop(leadership.take()),
            "shut down" => client.shutdown().await,
            "forced" => assert!(lock.force_unlock().await.expect("an answer")),
            "forced if held" => {
                let holder = leadership.as_ref().expect("one").holder();
                // As old as no hand-off can be.
                tokio::time::sleep(Duration::from_millis(1100)).await;
                assert!(lock.force_unlock_if(&holder).await.expect("an answer"));
            }
            _ => {
                let own = leadership.take();
                runtime.spawn(async move {
                    let _own = own;
                    std::future::pending::<()>().await;
                });
            }
        }
        let ended_at = if ending == "forced if held" { Instant::now() } else { ended_at };
        tokio::task::spawn_blocking(move || drop(runtime)).await.expect("no panic");
        let (change, shown_at, next) = soon("it is shown", observed).await.expect("no panic");
        observer = next;
        assert_eq!(change.expect("an answer"), None, "{ending}: nobody leads");
        let took = shown_at.saturating_duration_since(ended_at);
        println!("{ending}: {took:?}");
        assert!(took < server.widened(1500 * MS), "{ending}: {took:?}");
        assert!(!is_said(&server).await, "{ending}");
        drop((leadership, client));
    }
}

#[tokio::test]
async fn nothing_new_is_shown_twice() {
    let (_server, [client, other]) = setup().await;
    let leadership = leading(&client.election("scheduler")).await;
    let mut observer = other.election("scheduler").observe();
    let seen = observer.changed().await.expect("an answer").expect("it leads");
    assert_eq!(seen.term, leadership.term());
    // Several polls, and a waiter who comes and goes.
    let waits = other.election("scheduler").campaign_with_timeout(100 * MS).await;
    assert!(waits.expect_err("another leads").is_timeout());
    let again = tokio::time::timeout(Duration::from_secs(5), observer.changed()).await;
    assert!(again.is_err(), "{again:?}");
    // A change that comes while nobody waits is not lost.
    leadership.proclaim("new").await.expect("it leads");
    let seen = soon("it is shown", observer.changed()).await.expect("an answer");
    assert_eq!(&*seen.expect("it leads").value, "new");
    leadership.resign().await.expect("held");
}

/// A server that is behind shows what was so before: it is not shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_term_is_never_shown_again() {
    let (server, [client]) = setup().await;
    let election = client.election("scheduler");
    let first = leading(&election.with_value("first")).await;
    let said_by_first = server.command(&["GET", "leasehold_leader:{scheduler}"]).await;
    let said_by_first: String = redis::from_redis_value(said_by_first).expect("text");
    let holder_of_first = first.holder();
    first.resign().await.expect("held");
    let second = leading(&election.with_value("second")).await;
    let mut observer = election.observe();
    let seen = observer.changed().await.expect("an answer").expect("it leads");
    assert_eq!(seen.term, second.term());
    // As a replica that missed the last writes would have it.
    let went_back = async || {
        server.command(&["DEL", "scheduler"]).await;
        server.command(&["HSET", "scheduler", holder_of_first.as_str(), "1"]).await;
        server
            .command(&["SET", "leasehold_leader:{scheduler}", &said_by_first, "PX", "600000"])
            .await;
        server.command(&["PUBLISH", CHANNEL, "1"]).await;
    };
    went_back().await;
    let shown = tokio::time::timeout(Duration::from_secs(5), observer.changed()).await;
    assert!(shown.is_err(), "{shown:?}");
    server.command(&["DEL", "scheduler"]).await;
    drop(second);
    let third = leading(&election.with_value("third")).await;
    loop {
        let seen = soon("it is shown", observer.changed()).await.expect("an answer");
        if let Some(seen) = seen {
            assert_eq!((seen.term, &*seen.value), (third.term(), "third"));
            break;
        }
    }
    third.resign().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_killed_leader_is_shown_without_a_message() {
    let (server, [client]) = setup().await;
    server.command(&["HSET", "scheduler", "a:1", "1"]).await;
    server.command(&["PEXPIRE", "scheduler", "1200"]).await;
    server.command(&["SET", "leasehold_leader:{scheduler}", "a:1 7 1 x", "PX", "600000"]).await;
    let mut observer = client.election("scheduler").observe();
    let seen = observer.changed().await.expect("an answer").expect("it leads");
    assert_eq!((seen.term, &*seen.value, seen.holder.as_str()), (7, "x", "a:1"));
    let began_at = Instant::now();
    assert_eq!(soon("it is shown", observer.changed()).await.expect("an answer"), None);
    // By the end of the lock, and not only by the next poll.
    let took = began_at.elapsed();
    assert!(took < server.widened(1900 * MS), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_hides_nothing() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let leaders = connect(&server).await;
    let mut observer = client.election("scheduler").observe();
    assert_eq!(observer.changed().await.expect("an answer"), None);
    for round in 0..3 {
        let shown = tokio::spawn(async move {
            let seen = observer.changed().await;
            (seen, observer)
        });
        proxy.refuse(true);
        proxy.cut();
        let election = leaders.election("scheduler").with_value(round.to_string());
        let leadership = leading(&election).await;
        proxy.refuse(false);
        let (seen, mut next) = soon("it is shown", shown).await.expect("no panic");
        let mut seen = seen.expect("an answer");
        while seen.as_ref().is_none_or(|seen| seen.term != leadership.term()) {
            seen = soon("it is shown", next.changed()).await.expect("an answer");
        }
        leadership.resign().await.expect("held");
        observer = next;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_stay_away_are_told_after_a_while() {
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).unavailable_after(800 * MS);
    let client = builder.response_timeout(200 * MS).connect().await.expect("connected");
    let mut observer = client.election("scheduler").observe();
    assert_eq!(observer.changed().await.expect("an answer"), None);
    let leaders = connect(&server).await;
    let test = async |outage: &Outage<'_>| {
        outage.begins();
        let began_at = Instant::now();
        let error = soon("it is told", observer.changed()).await.expect_err("no answer");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(began_at.elapsed() >= 800 * MS, "{:?}", began_at.elapsed());
        outage.ends().await;
        proxy.cut();
        let leadership = leading(&leaders.election("scheduler")).await;
        let seen = loop {
            match soon("it goes on", observer.changed()).await {
                // The way to the server may take a while to be found again.
                Err(Error::Unavailable { .. }) => {}
                other => break other.expect("an answer"),
            }
        };
        assert_eq!(seen.map(|seen| seen.term), Some(leadership.term()));
        leadership.resign().await.expect("held");
        assert_eq!(soon("it is shown", observer.changed()).await.expect("an answer"), None);
    };
    Outage::silent([&proxy]).twice(test).await;
    let observing = tokio::spawn(async move { (observer.changed().await, observer) });
    is_heard(&server, 1).await;
    client.shutdown().await;
    let (error, mut observer) = soon("it ends", observing).await.expect("no panic");
    assert!(matches!(error, Err(Error::Closed { .. })), "{error:?}");
    let error = soon("it ends", observer.changed()).await.expect_err("closed");
    assert!(matches!(error, Error::Closed { .. }), "{error:?}");
}

/// What they said before is no answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_away_at_the_timeout_do_not_say_that_nothing_has_changed() {
    let (server, proxy) = setup_with_proxy().await;
    let slowness = server.slowness().await;
    let builder = Client::builder().nodes([proxy.url()]).response_timeout(slowness * 200 * MS);
    let client = builder.connect().await.expect("connected");
    let mut observer = client.election("scheduler").observe();
    assert_eq!(observer.changed().await.expect("an answer"), None);
    let observing = tokio::spawn(async move {
        let change = observer.changed_with_timeout(slowness * 2000 * MS).await;
        (change, observer)
    });
    // It listens once it was answered, asks again by the message, and is not answered any more.
    is_heard(&server, 1).await;
    proxy.hold_answers();
    server.command(&["PUBLISH", CHANNEL, "1"]).await;
    let (change, mut observer) = soon("it is told", observing).await.expect("no panic");
    assert!(matches!(change, Err(Error::Unavailable { .. })), "{change:?}");
    // One look has the time of one answer.
    let began_at = Instant::now();
    let change = soon("it is told", observer.changed_with_timeout(Duration::ZERO)).await;
    assert!(matches!(change, Err(Error::Unavailable { .. })), "{change:?}");
    let took = began_at.elapsed();
    assert!(took < server.widened(slowness * 2000 * MS), "{took:?}");
}

/// What a call met that ended by its timeout is no part of the outage that a later one meets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_has_its_own_patience() {
    const PATIENCE: Duration = Duration::from_secs(3);
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).unavailable_after(PATIENCE);
    let client = builder.response_timeout(200 * MS).connect().await.expect("connected");
    let mut observer = client.election("scheduler").observe();
    assert_eq!(observer.changed().await.expect("an answer"), None);
    proxy.refuse(true);
    proxy.cut();
    let change = soon("it is told", observer.changed_with_timeout(400 * MS)).await;
    assert!(matches!(change, Err(Error::Unavailable { .. })), "{change:?}");
    tokio::time::sleep(PATIENCE).await;
    let began_at = Instant::now();
    let change = soon("it is told", observer.changed()).await;
    assert!(matches!(change, Err(Error::Unavailable { .. })), "{change:?}");
    assert!(began_at.elapsed() >= PATIENCE, "{:?}", began_at.elapsed());
    drop(server);
}

/// Each outage has its own time, however long ago the one before was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_outages_do_not_add_up() {
    const PATIENCE: Duration = Duration::from_secs(5);
    const RESPONSE: Duration = Duration::from_millis(200);
    let (server, proxy) = setup_with_proxy().await;
    let builder = Client::builder().nodes([proxy.url()]).unavailable_after(PATIENCE);
    let client = builder.response_timeout(RESPONSE).connect().await.expect("connected");
    let leaders = connect(&server).await;
    let mut observer = client.election("scheduler").observe();
    assert_eq!(observer.changed().await.expect("an answer"), None);
    let began_at = Instant::now();
    let mut observer = Some(observer);
    let test = async |outage: &Outage<'_>| {
        let mut observes = observer.take().expect("it was put back");
        outage.begins();
        let is_down = async || client.nodes()[0].state != NodeState::Up;
        eventually(LIMIT, "the client has noticed", is_down).await;
        let shown = tokio::spawn(async move { (observes.changed().await, observes) });
        // It asks in vain meanwhile.
        tokio::time::sleep(4 * RESPONSE).await;
        let leadership = leading(&leaders.election("scheduler")).await;
        outage.ends().await;
        let (seen, mut observes) = soon("it is shown", shown).await.expect("no panic");
        let seen = seen.unwrap_or_else(|error| panic!("it was short: {error}"));
        assert_eq!(seen.map(|seen| seen.term), Some(leadership.term()));
        leadership.resign().await.expect("held");
        assert_eq!(soon("it is shown", observes.changed()).await.expect("an answer"), None);
        tokio::time::sleep((PATIENCE + 500 * MS).saturating_sub(began_at.elapsed())).await;
        observer = Some(observes);
    };
    Outage::cut_off([&proxy]).twice(test).await;
    // Nor do those that one call meets.
    let mut observes = observer.take().expect("it was put back");
    let shown = tokio::spawn(async move { observes.changed().await });
    let test = async |outage: &Outage<'_>| {
        outage.begins();
        // It asks in vain meanwhile: unasked after 4 s at most.
        tokio::time::sleep(PATIENCE - 1500 * MS).await;
        outage.ends().await;
        eventually(LIMIT, "the server answers", async || client.is_ready()).await;
        tokio::time::sleep(1000 * MS).await;
    };
    Outage::cut_off([&proxy]).twice(test).await;
    let leadership = leading(&leaders.election("scheduler")).await;
    let seen = soon("it is shown", shown).await.expect("no panic").expect("they were short");
    assert_eq!(seen.map(|seen| seen.term), Some(leadership.term()));
}

/// Who observes is no candidate: those who wait do not stand back for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_observe_do_not_count_as_waiting() {
    let (server, [client, other]) = setup().await;
    let election = client.election("scheduler");
    let leadership = leading(&election).await;
    let mut observer = other.election("scheduler").observe();
    assert!(observer.changed().await.expect("an answer").is_some());
    let observing = tokio::spawn(async move { observer.changed().await });
    is_heard(&server, 1).await;
    let status = client.mutex("scheduler").status().await.expect("an answer");
    assert_eq!((status.waiting_clients, status.waiting.len()), (0, 0));
    leadership.resign().await.expect("held");
    soon("it is shown", observing).await.expect("no panic").expect("an answer");
}
