//! What a master that misses a lease is not told: nothing is put back there that a majority might not have.

use std::time::Duration;

use leasehold::LossReason;

use super::deployment::{Masters, connected};
use crate::{
    checks::LIMIT,
    support::{Spy, eventually},
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
