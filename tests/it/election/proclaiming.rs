//! What a leader says of itself.

use leasehold::{Client, ElectionState, Error};

use super::{LIMIT, MS, leader, leading};
use crate::checks::{nothing_left, setup, setup_with_proxy, soon};
use crate::support::eventually;

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
