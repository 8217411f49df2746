//! What locks do not survive is shown to break them, one by one, and so is what their users are told.

use std::time::Duration;

use leasehold_faults::excluded::{NAMES, show};

/// Far longer than any of them takes.
const LIMIT: Duration = Duration::from_secs(240);

macro_rules! shown {
    ($($test:ident = $name:literal;)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let shown = tokio::time::timeout(LIMIT, show($name)).await.expect("it ends");
            shown.expect("as documented");
        })*

        #[test]
        fn each_has_a_test() {
            assert_eq!(NAMES, [$($name),*]);
        }
    };
}

shown! {
    a_server_that_restarts_empty_gives_the_lock_away = "emptied-at-once";
    so_does_a_majority_without_quarantine = "majority-emptied";
    a_replica_that_missed_the_lock_gives_it_away = "failover";
    a_clock_that_is_set_ahead_ends_the_lock = "clock-ahead";
    a_clock_that_is_set_back_keeps_it = "clock-back";
    a_replica_whose_clock_is_ahead_gives_it_away = "clock-of-the-replica";
    a_server_short_of_memory_drops_it = "eviction";
    a_flushed_server_knows_no_lock = "flushed";
    a_stranger_may_delete_it = "deleted";
    an_operator_may_free_it = "forced";
    a_paused_holder_writes_late_and_is_refused_by_its_token = "paused";
}
