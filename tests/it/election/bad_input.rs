//! What cannot be an election is refused.

use leasehold::Error;

use super::{MS, leader};
use crate::checks::{client_is_idle, nothing_left, setup};

#[tokio::test]
async fn bad_names_and_terms_are_refused_by_every_call() {
    let (_server, [client]) = setup().await;
    let too_long = "x".repeat(4097);
    for bad in ["", &too_long, "leasehold_leader:{n}"] {
        let election = client.election(bad);
        for error in [
            election.campaign().await.map(drop).expect_err("a bad name"),
            election.leader().await.map(drop).expect_err("a bad name"),
            election.observe().changed().await.map(drop).expect_err("a bad name"),
            election.run(async |_| ()).await.expect_err("a bad name"),
        ] {
            assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
        }
    }
    let short = client.election("scheduler").with_ttl(MS).campaign().await;
    assert!(matches!(short, Err(Error::InvalidConfig { .. })), "{short:?}");
    let long = client.election("scheduler").with_value("x".repeat(65_537)).campaign().await;
    assert!(matches!(long, Err(Error::InvalidConfig { .. })), "{long:?}");
    client_is_idle(&client).await;
}

#[tokio::test]
async fn keys_of_another_type_are_told() {
    let (server, [client]) = setup().await;
    let election = client.election("scheduler");
    server.command(&["LPUSH", "leasehold_leader:{scheduler}", "x"]).await;
    for error in [
        election.leader().await.map(drop).expect_err("not what a leader says"),
        election.campaign().await.map(drop).expect_err("it cannot say anything"),
    ] {
        assert!(matches!(error, Error::WrongType { .. }), "{error:?}");
    }
    client_is_idle(&client).await;
    server.command(&["DEL", "leasehold_leader:{scheduler}"]).await;
    assert_eq!(leader(&election).await, None);
    server.command(&["SET", "leasehold_leader:{scheduler}", "odd", "PX", "600000"]).await;
    let error = election.leader().await.expect_err("nobody of ours says that");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    // The next leader replaces it.
    let leadership = super::leading(&election).await;
    assert_eq!(leader(&election).await.map(|leader| leader.term), Some(leadership.term()));
    leadership.resign().await.expect("held");
}

#[tokio::test]
async fn a_lock_of_another_kind_is_told_and_nobody_leads_by_it() {
    let (server, [client]) = setup().await;
    let reading = client.rw_lock("n").read().await.expect("free");
    let election = client.election("n");
    for error in [
        election.state().await.map(drop).expect_err("a reader does not lead"),
        election.leader().await.map(drop).expect_err("a reader does not lead"),
        election.observe().changed().await.map(drop).expect_err("a reader does not lead"),
        election.campaign().await.map(drop).expect_err("it cannot be led"),
    ] {
        assert!(matches!(error, Error::WrongType { .. }), "{error:?}");
    }
    reading.unlock().await.expect("held");
    nothing_left(&server, &client).await;
}
