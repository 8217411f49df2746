//! What a master that misses a lease is not told: nothing is put back there that a majority might not have.

use std::time::Duration;

use leasehold::{
    LossReason,
    NodeState::{Down, Up},
};

use super::deployment::{MS, Masters, all_up, connected, states_become, trusting};
use crate::{
    checks::{LIMIT, exists, soon},
    support::{LateNetwork, Proxy, Spy, eventually},
};

const HOUR: Duration = Duration::from_secs(3600);

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
    let lost = soon("it is not renewed", guard.lost()).await;
    assert_eq!(lost, LossReason::NotRenewed);
    assert!(spy.count("lock_renew") > 0, "it was asked: {:?}", spy.runs());
    assert_eq!(spy.count("lock_acquire"), 0, "{:?}", spy.runs());
    drop(guard);
    ways.close(&[0], false);
    let nothing = async || masters.having("n").await == 0;
    eventually(LIMIT, "it is given back", nothing).await;
}

/// A majority did not answer a renewal, and answers the next: then the third, which misses the lease, gets it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_renewal_that_failed_the_next_one_puts_the_lease_back() {
    const TTL: Duration = Duration::from_secs(6);
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder().response_timeout(300 * MS).ttl(TTL)).await;
    ways.close(&[2], true);
    states_become(&client, &[Up, Up, Down]).await;
    let guard = client.mutex("n").lock().await.expect("two of three");
    let spies = [Spy::on(&masters.0[0]).await, Spy::on(&masters.0[1]).await];
    ways.0[..2].iter().for_each(|way| way.drop_replies(true));
    let asked = async || spies.iter().all(|spy| spy.count("lock_renew") > 0);
    eventually(LIMIT, "it is renewed", asked).await;
    // Longer than its answers are waited for.
    tokio::time::sleep(500 * MS).await;
    ways.0[..2].iter().for_each(|way| way.drop_replies(false));
    ways.close(&[2], false);
    masters.are_held("n", &[0, 1, 2]).await;
    guard.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
}

/// The answer to its acquire came late, and nobody had read it when the extension said that the lease is gone there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_was_cleared_behind_a_late_acquire_is_left_alone() {
    let masters = Masters::start(3).await;
    let ways = masters.ways().await;
    let client = connected(ways.builder().response_timeout(LIMIT)).await;
    let lock = client.mutex("n").with_lease(HOUR);
    // The scripts are known from here on.
    let before = client.mutex("before").lock().await.expect("free");
    before.extend(HOUR).await.expect("held");
    before.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
    ways.0[2].hold_replies();
    let guard = lock.lock().await.expect("two of three");
    masters.are_held("n", &[0, 1, 2]).await;
    ways.0[2].release_replies();
    // Its answers come behind those that were held.
    client.check().await.expect("all answer");
    masters.0[2].command(&["DEL", "n"]).await;
    let spy = Spy::on(&masters.0[2]).await;
    ways.0[..2].iter().for_each(Proxy::hold_replies);
    let answers = async {
        eventually(LIMIT, "it is asked", async || spy.count("lock_renew") > 0).await;
        // Its answer comes in before the others'.
        tokio::time::sleep(200 * MS).await;
        ways.0[..2].iter().for_each(Proxy::release_replies);
    };
    let (extended, ()) = tokio::join!(guard.extend(HOUR), answers);
    extended.expect("two of three");
    client.check().await.expect("all answer");
    assert_eq!(spy.count("lock_acquire"), 0, "{:?}", spy.runs());
    assert_eq!(masters.which_have("n").await, [0, 1]);
    guard.unlock().await.expect("held");
    masters.nothing_left(&[&client]).await;
    all_up(&client).await;
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
    let put_back = async || spy.count("lock_acquire") == 1;
    eventually(LIMIT, "the spy sees it put back", put_back).await;
    assert!(network.connections() >= 2);
    guard.unlock().await.expect("held");
    masters.are_held("n", &[]).await;
    network.deliver();
    let came = async || spy.count("lock_acquire") == 2;
    eventually(LIMIT, "the acquire comes after that", came).await;
    // Far below its TTL.
    let gone = async || !exists(server, "n").await;
    eventually(ttl / 2, "it is released again", gone).await;
    let by_release = async || spy.runs().last().is_some_and(|run| run.script == "lock_release");
    eventually(LIMIT, "a release is what it did last", by_release).await;
}
