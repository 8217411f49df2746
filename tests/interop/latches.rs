//! Latches: Redisson's RCountDownLatch and our latch of the same name.

use std::time::Duration;

use leasehold::{Error, Latch};
use leasehold_testkit::{
    Watch, in_time,
    java::{Java, Version},
};
use redis::Value;

use crate::{side::Table, with_each_redisson};

with_each_redisson!(
    each_counts_for_the_others_and_opens_for_all_who_wait,
    each_deletes_the_latch_of_the_others,
    what_java_leaves_behind_is_understood,
);

async fn number(java: &Java, command: &str) -> i64 {
    java.number("b", &format!("{command} 6e")).await
}

async fn set(java: &Java, count: u32) -> bool {
    java.number("b", &format!("latch-set 6e {count}")).await == 1
}

/// Ours and Java's wait for it: it is shut.
async fn both_wait(
    table: &Table,
    latch: &Latch,
) -> (tokio::task::JoinHandle<Result<(), Error>>, impl Future<Output = ()> + use<>) {
    let java = table.java().ask("a", "latch-await 6e");
    let ours = tokio::spawn(latch.wait());
    table.listen(CHANNEL, 2).await;
    let opened = async {
        java.await.outcome.expect("Java goes on");
    };
    (ours, opened)
}

async fn each_counts_for_the_others_and_opens_for_all_who_wait(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    let (java, latch) = (table.java(), table.rust().client.latch("n"));
    for (java_sets, java_ends) in [(false, false), (false, true), (true, false), (true, true)] {
        if java_sets {
            assert!(set(java, 3).await && !set(java, 3).await);
        } else {
            assert!(latch.try_set_count(3, TTL).await.expect("an answer"));
        }
        assert!(!set(java, 5).await, "it is shut");
        assert!(!latch.try_set_count(5, TTL).await.expect("an answer"), "it is shut");
        let (ours, javas) = both_wait(&table, &latch).await;
        number(java, "latch-down").await;
        assert_eq!(latch.count().await.expect("an answer"), 2);
        assert_eq!(latch.count_down().await.expect("an answer"), 1);
        assert_eq!(number(java, "latch-count").await, 1);
        assert!(!ours.is_finished());
        if java_ends {
            number(java, "latch-down").await;
        } else {
            assert_eq!(latch.count_down().await.expect("an answer"), 0);
        }
        // Sooner than ours would look by itself; Java never does.
        let ours = in_time(watch.widened(WOKEN), "ours goes on", ours).await;
        ours.expect("no panic").expect("it is open");
        in_time(watch.widened(WOKEN), "Java goes on", javas).await;
        assert_eq!(table.server.command(&["EXISTS", "n"]).await, Value::Int(0));
    }
}

async fn each_deletes_the_latch_of_the_others(version: Version) {
    let watch = Watch::begin();
    let table = Table::lay(version, TTL).await;
    let (java, latch) = (table.java(), table.rust().client.latch("n"));
    assert!(set(java, 3).await);
    let (ours, javas) = both_wait(&table, &latch).await;
    assert!(latch.delete().await.expect("an answer"));
    let ours = in_time(watch.widened(WOKEN), "ours goes on", ours).await;
    ours.expect("no panic").expect("it is open");
    in_time(watch.widened(WOKEN), "Java hears of our deletion", javas).await;

    assert!(latch.try_set_count(3, TTL).await.expect("an answer"));
    let ours = tokio::spawn(latch.wait());
    table.listen(CHANNEL, 1).await;
    assert_eq!(number(java, "latch-delete").await, 1);
    let ours = in_time(watch.widened(WOKEN), "ours goes on", ours).await;
    ours.expect("no panic").expect("it is open");
}

async fn what_java_leaves_behind_is_understood(version: Version) {
    let table = Table::lay(version, TTL).await;
    let (java, latch) = (table.java(), table.rust().client.latch("n"));
    // A latch of zero keeps nobody, and Java cannot set it again.
    assert!(set(java, 0).await && !set(java, 2).await);
    latch.wait().await.expect("it is open");
    assert!(latch.try_set_count(2, TTL).await.expect("an answer"));
    assert_eq!(number(java, "latch-count").await, 2);
    // A latch of ours that ends is open for Java, and lost for ours.
    latch.delete().await.expect("an answer");
    assert!(latch.try_set_count(2, SHORT).await.expect("an answer"));
    number(java, "latch-down").await;
    let error = latch.wait().await.expect_err("nobody counted");
    assert!(error.is_lost(), "{error:?}");
    assert_eq!(number(java, "latch-count").await, 0);
    number(java, "latch-await").await;
}

const CHANNEL: &str = "redisson_countdownlatch__channel__{n}";
const TTL: Duration = Duration::from_secs(300);
const SHORT: Duration = Duration::from_millis(1200);
const WOKEN: Duration = Duration::from_millis(1500);
