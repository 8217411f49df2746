//! Renewals that are answered after the release or the loss.

use leasehold::{Error, LossReason};

use super::{MS, connect_through};
use crate::{
    checks::{LIMIT, nothing_left, setup_with_proxy},
    support::{Spy, eventually},
};

/// A renewal is on its way to a server that has forgotten its script; the answer that says so comes after the
/// release was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_of_a_forgotten_script_is_not_sent_again_behind_the_release() {
    let (server, proxy) = setup_with_proxy().await;
    let client = connect_through(&proxy).await;
    let spy = Spy::on(&server).await;
    let guard = client.mutex("n").with_ttl(1500 * MS).lock().await.expect("free");
    server.command(&["SCRIPT", "FLUSH"]).await;
    proxy.hold_replies();
    eventually(LIMIT, "it is renewed", async || spy.count("lock_renew") == 1).await;
    drop(guard);
    eventually(LIMIT, "it is released", async || spy.count("lock_release") == 1).await;
    proxy.release_replies();
    nothing_left(&server, &client).await;
    eventually(LIMIT, "it is released whole", async || spy.count("lock_release") == 2).await;
    assert_eq!(spy.count("lock_renew"), 1, "{:?}", spy.runs());
}

/// The renewal was sent before the deadline, and is confirmed after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_hold_stays_lost_although_a_renewal_is_confirmed_then() {
    let (server, proxy) = setup_with_proxy().await;
    let client = connect_through(&proxy).await;
    let guard = client.mutex("n").with_ttl(1200 * MS).lock().await.expect("free");
    let lost = guard.lost();
    proxy.hold_replies();
    eventually(LIMIT, "it is lost", async || !guard.is_held()).await;
    proxy.release_replies();
    assert_eq!(lost.await, LossReason::NotRenewed);
    // Behind the answers that were held back.
    client.mutex("n").is_locked().await.expect("an answer");
    assert!(!guard.is_held() && guard.remaining().is_zero());
    let answer = guard.unlock().await;
    assert!(matches!(answer, Err(Error::Lost { .. })), "{answer:?}");
    nothing_left(&server, &client).await;
}
