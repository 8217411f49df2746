//! On a cluster. Over several masters: `quorum/rw_lock.rs`.

use std::time::Duration;

use leasehold::Client;

use crate::{checks::soon, support::Cluster};

#[tokio::test]
async fn on_a_cluster_a_writer_is_alone() {
    let cluster = Cluster::start().await;
    let open =
        || Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO).connect();
    let (a, b) = (open().await.expect("connected"), open().await.expect("connected"));
    share(&a, &b).await;
}

async fn share(a: &Client, b: &Client) {
    let (one, other) = (a.rw_lock("n"), b.rw_lock("n"));
    let first = one.write().await.expect("free");
    let token = first.token();
    assert!(other.try_read().await.expect("refused").is_none());
    let reading = first.downgrade().await.expect("held");
    assert!(reading.token() >= token);
    let beside = soon("the reader", other.read()).await.expect("shared");
    assert!(beside.token() == reading.token() && reading.is_held(), "{beside:?}");
    let token = reading.token();
    assert!(other.try_write().await.expect("refused").is_none());
    reading.unlock().await.expect("held");
    let waits = tokio::spawn({
        let one = one.clone();
        async move { one.write().await }
    });
    beside.unlock().await.expect("held");
    let second = soon("the writer", waits).await.expect("no panic").expect("its turn");
    assert!(second.token() > token && second.is_held());
    second.unlock().await.expect("held");
    soon("the last reader", other.read()).await.expect("free").unlock().await.expect("held");
}
