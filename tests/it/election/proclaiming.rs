//! What a leader says of itself.

use std::time::Duration;

use leasehold::{Client, ElectionState, Error, NodeState};

use super::{LIMIT, MS, leader, leading};
use crate::checks::{connect, nothing_left, pttl, setup, setup_with_proxy, soon};
use crate::support::{Proxy, Server, eventually};

#[tokio::test]
async fn the_last_word_of_the_leader_counts() {
    let (server, [client, other]) = setup().await;
    let election = other.election("scheduler");
    let leadership = leading(&client.election("scheduler")).await;
    assert_eq!(&*leader(&election).await.expect("it leads").value, "");
    let longest = "x".repeat(65_536);
    for value in ["one", "two words and a space ", "", "ä\n", &longest] {
        leadership.proclaim(value).await.expect("it leads");
        let known = leader(&election).await.expect("it leads");
        assert_eq!((&*known.value, known.term), (value, leadership.term()));
    }
    let error = leadership.proclaim(format!("{longest}x")).await.expect_err("too long");
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    leadership.resign().await.expect("held");
    eventually(LIMIT, "it is taken back", async || leader(&election).await.is_none()).await;
    nothing_left(&server, &client).await;
}

/// By that number a later word replaces an earlier one, whichever of them a server hears first. And a leader may have nothing new
/// to say for long.
#[tokio::test]
async fn each_word_of_a_leader_has_the_next_number_and_is_kept_for_a_year() {
    const SAID: &str = "leasehold_leader:{scheduler}";
    let (server, [client]) = setup().await;
    let leadership = leading(&client.election("scheduler").with_value("one")).await;
    let start = format!("{} {}", leadership.holder().as_str(), leadership.term());
    for (number, value) in [(1, "one"), (2, "two"), (3, "three")] {
        if number > 1 {
            leadership.proclaim(value).await.expect("it leads");
        }
        let said = server.command(&["GET", SAID]).await;
        let said: String = redis::from_redis_value(said).expect("a text");
        assert_eq!(said, format!("{start} {number} {value}"));
        let left = pttl(&server, SAID).await;
        assert!(left > 365 * 24 * 60 * 60 * 1000, "{left} ms");
    }
    leadership.resign().await.expect("held");
    nothing_left(&server, &client).await;
}

/// Its server is replaced by one that knows nothing of it. What it says comes there before its lease is put back: it is sent as
/// soon as there is a connection, and so is the question that shows that the lease is missing. The scripts are known there, so
/// that neither is sent twice.
#[tokio::test]
async fn one_that_leads_still_speaks_again_when_its_lease_is_put_back() {
    const TTL: Duration = Duration::from_secs(4);
    let (before, server) = (Server::start().await, Server::start().await);
    let other = connect(&server).await;
    let guard = other.mutex("other").lock().await.expect("free");
    guard.extend(TTL).await.expect("held");
    guard.unlock().await.expect("held");
    leading(&other.election("other")).await.resign().await.expect("held");

    let proxy = Proxy::start(before.port()).await;
    let builder = Client::builder().nodes([proxy.url()]).ttl(TTL).restart_quarantine(TTL);
    let client = builder.response_timeout(LIMIT).connect().await.expect("connected");
    eventually(LIMIT, "its grants count", async || client.is_ready()).await;
    let leadership = leading(&client.election("scheduler")).await;
    proxy.refuse(true);
    proxy.lead_to(server.port());
    let is_down = async || client.nodes()[0].state == NodeState::Down;
    eventually(LIMIT, "it has no connection", is_down).await;
    proxy.refuse(false);
    soon("it is heard", leadership.proclaim("still here")).await.expect("it leads");
    let known = leader(&other.election("scheduler")).await.expect("it leads");
    assert_eq!((known.term, &*known.value), (leadership.term(), "still here"));
    leadership.resign().await.expect("held");
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_leads_no_more_says_nothing() {
    let (server, [client, other]) = setup().await;
    let election = other.election("scheduler").with_value("second");
    let first = leading(&client.election("scheduler").with_value("first")).await;
    assert!(other.mutex("scheduler").force_unlock().await.expect("an answer"));
    let second = leading(&election).await;
    // Its own clock still lets it: nobody has told it anything.
    let error = soon("an answer", first.proclaim("late")).await.expect_err("it leads no more");
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    assert!(!first.is_held(), "it knows now");
    let known = leader(&election).await.expect("the second leads");
    assert_eq!((known.term, &*known.value), (second.term(), "second"));
    drop(first);
    // What the first takes back is not what the second has said.
    super::super::checks::client_is_idle(&client).await;
    assert_eq!(leader(&election).await.map(|leader| leader.term), Some(second.term()));
    second.resign().await.expect("held");
    nothing_left(&server, &other).await;
}

#[tokio::test]
async fn what_an_earlier_leader_said_is_not_shown_of_the_next_holder() {
    let (server, [client, other]) = setup().await;
    let election = other.election("scheduler");
    let first = leading(&client.election("scheduler").with_value("first")).await;
    server.command(&["DEL", "scheduler"]).await;
    assert_eq!(leader(&election).await, None, "nobody holds the lock");
    assert_eq!(election.state().await.expect("an answer"), ElectionState::Vacant);
    let plain = other.mutex("scheduler").lock().await.expect("free");
    assert_eq!(leader(&election).await, None, "the holder of the lock is no leader");
    let state = election.state().await.expect("an answer");
    assert!(
        matches!(&state, ElectionState::Silent { holder, .. } if *holder == plain.holder()),
        "{state:?}"
    );
    plain.unlock().await.expect("held");
    drop(first);
    nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_servers_do_not_confirm_is_told_and_leaves_nothing() {
    let (server, proxy) = setup_with_proxy().await;
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let election = client.election("scheduler");
    leading(&election).await.resign().await.expect("held");
    let leadership = leading(&election).await;
    proxy.drop_replies(true);
    let error = soon("it ends", leadership.proclaim("x")).await.expect_err("no answer");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    // It is not forgotten: it ends as soon as the server can be told.
    let error = soon("it ends", leadership.resign()).await.expect_err("no answer");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let error = soon("it ends", election.campaign_with_timeout(300 * MS)).await;
    assert!(matches!(error.expect_err("no answer"), Error::Unavailable { .. }));
    proxy.drop_replies(false);
    proxy.cut();
    leading(&election).await.resign().await.expect("held");
    nothing_left(&server, &client).await;
}
