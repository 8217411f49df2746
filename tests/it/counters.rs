//! Fencing counters that somebody has set by hand, so high that no token is left.

use leasehold::{Client, Error};

use crate::{
    checks::{AT_ONCE, LIMIT, exists, nothing_left, setup, soon},
    support::{Server, eventually},
};

const COUNTER: &str = "leasehold_token:{n}";
/// From there on Lua's numbers have gaps.
const FULL: u64 = 1 << 53;

/// The script takes the lock before its answer turns out to be of no use: it must be given back at once, and not block
/// everybody for a TTL at each attempt.
async fn nothing_stays(servers: &[Server], client: &Client) {
    for server in servers {
        server.command(&["SET", COUNTER, &(FULL - 1).to_string(), "PX", "600000"]).await;
    }
    let lock = client.mutex("n");
    for _ in 0..3 {
        for answer in [lock.try_lock().await, lock.try_lock_for(AT_ONCE).await] {
            assert!(matches!(answer, Err(Error::Unavailable { .. })), "no token: {answer:?}");
        }
        for server in servers {
            let gone = async || !exists(server, "n").await;
            eventually(LIMIT, "what was taken is given back", gone).await;
        }
    }
    for server in servers {
        server.command(&["DEL", COUNTER]).await;
    }
    let guard = soon("no hang", lock.lock()).await.expect("free");
    assert!(guard.token() < FULL);
    guard.unlock().await.expect("held");
}

#[tokio::test]
async fn a_counter_without_tokens_left_gives_an_error_and_no_lock() {
    let (server, [client]) = setup().await;
    nothing_stays(std::slice::from_ref(&server), &client).await;
    nothing_left(&server, &client).await;
}

#[tokio::test]
async fn counters_without_tokens_left_on_several_nodes_give_an_error_and_no_lock() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::start().await);
    }
    let builder = Client::builder().nodes(servers.iter().map(Server::url));
    let builder = builder.restart_quarantine(std::time::Duration::ZERO);
    let client = builder.connect().await.expect("connected");
    nothing_stays(&servers, &client).await;
}
