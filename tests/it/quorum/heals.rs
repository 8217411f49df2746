//! What a master that misses a lease is not told: nothing is put back there that a majority might not have.

use std::time::Duration;

use leasehold::LossReason;

use super::deployment::{MS, Masters, connected, trusting};
use crate::{
    checks::{LIMIT, exists},
    support::{LateNetwork, Spy, eventually},
};

/// Of three, one is away and one has forgotten the lease: the third alone does not say that it is ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_put_back_where_no_majority_has_the_lease() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder().ttl(Duration::from_secs(3))).await;
    let guard = client.mutex("n").lock().await.expect("free");
    masters.are_held("n", &[0, 1, 2]).await;
    ways.close(&[0, 2], true);
    masters.0[2].kill();
    masters.0[2].restart().await;
    let spy = Spy::on(&masters.0[2]).await;
    ways.close(&[2], false);
    let lost = tokio::time::timeout(LIMIT, guard.lost()).await.expect("it is not renewed");
    assert_eq!(lost, LossReason::NotRenewed);
    assert!(spy.count("lock_renew") > 0, "it was asked: {:?}", spy.runs());
    assert_eq!(spy.count("lock_acquire"), 0, "{:?}", spy.runs());
    drop(guard);
    ways.close(&[0], false);
    let nothing = async || masters.having("n").await == 0;
    eventually(LIMIT, "it is given back", nothing).await;
}

/// The acquire is late on the first connection to one node, and the lease is put back there on the second. Whoever may
/// not kill the first must go on releasing until that one cannot run any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_asked_for_on_two_connections_is_released_on_both() {
    let masters = Masters::start(3).await;
    let server = &masters.0[2];
    let rules = ["on", ">pw", "~*", "&*", "+@all", "-client|kill", "-client|id"];
    server.command(&[&["ACL", "SETUSER", "u"], &rules[..]].concat()).await;
    let network = LateNetwork::before(server).await;
    let urls = [masters.0[0].url(), masters.0[1].url(), network.url_as("u", "pw")];
    let ttl = Duration::from_secs(12);
    let client = connected(trusting(&urls).response_timeout(300 * MS).ttl(ttl)).await;
    client.mutex("before").lock().await.expect("free").unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
    let spy = Spy::on(server).await;
    network.be_late();
    let guard = client.mutex("n").lock().await.expect("two of three");
    masters.are_held("n", &[0, 1]).await;
    // The first renewal finds it missing there, a third of the TTL later.
    masters.are_held("n", &[0, 1, 2]).await;
    assert!(spy.count("lock_acquire") == 1 && network.connections() >= 2, "{:?}", spy.runs());
    guard.unlock().await.expect("held");
    masters.are_held("n", &[]).await;
    network.deliver();
    let came = async || spy.count("lock_acquire") == 2;
    eventually(LIMIT, "the acquire comes after that", came).await;
    // Far below its TTL.
    let gone = async || !exists(server, "n").await;
    eventually(ttl / 2, "it is released again", gone).await;
    let last = spy.runs().last().map(|run| run.script);
    assert_eq!(last, Some("lock_release"), "{:?}", spy.runs());
}
