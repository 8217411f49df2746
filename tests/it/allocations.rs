//! What the client allocates, and how large its futures are: figures that no busy machine changes.

use allocation_counter::measure;
use leasehold::Owner;
use tokio::runtime::{Builder, Runtime};

use crate::{
    checks::{LIMIT, nothing_left, setup, soon},
    support::eventually,
};

/// All tasks of a client on this runtime run on the thread of the test, which is the one that is counted.
fn this_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn a_free_lock_is_taken_and_given_back_with_few_allocations() {
    const PAIRS: u64 = 200;
    let runtime = this_thread();
    let (_server, [client]) = runtime.block_on(setup());
    let lock = client.mutex("n");
    let pairs = async |times: u64| {
        for _ in 0..times {
            lock.lock().await.expect("free").unlock().await.expect("held");
        }
    };
    // The first ones make what is kept.
    runtime.block_on(pairs(20));
    let counted = measure(|| runtime.block_on(pairs(PAIRS)));
    let each = counted.count_total / PAIRS;
    assert!(each <= 30, "{each} allocations a pair, {} bytes", counted.bytes_total / PAIRS);
}

#[test]
fn a_nested_acquisition_allocates_nothing() {
    const PAIRS: u64 = 1000;
    let runtime = this_thread();
    let (_server, [client]) = runtime.block_on(setup());
    let lock = client.mutex("n").owned_by(&Owner::new());
    let _outer = runtime.block_on(lock.lock()).expect("free");
    let counted = measure(|| {
        runtime.block_on(async {
            for _ in 0..PAIRS {
                drop(lock.lock().await.expect("held already"));
            }
        });
    });
    // The count is written to the server now and then, which allocates.
    let once = counted.count_total * 10;
    assert!(once < PAIRS, "{} allocations in {PAIRS} pairs", counted.count_total);
}

/// A driver lives for as long as somebody waits, and so for ever where somebody always does.
#[test]
fn nothing_is_kept_of_a_grant_by_message() {
    const GRANTS: u64 = 100;
    let runtime = this_thread();
    let (server, [client]) = runtime.block_on(setup());
    let so_many = async |more: u64| {
        let all = client.stats().grants_by_message + more;
        let granted = async || client.stats().grants_by_message >= all;
        eventually(LIMIT, "they have their turns", granted).await;
    };
    let tasks = [(); 3].map(|()| {
        let lock = client.fair_mutex("n");
        runtime.spawn(async move {
            while let Ok(guard) = lock.lock().await {
                guard.unlock().await.expect("held");
            }
        })
    });
    // The first ones make what is kept.
    runtime.block_on(so_many(GRANTS));
    let counted = measure(|| runtime.block_on(so_many(GRANTS)));
    for task in tasks {
        task.abort();
        assert!(runtime.block_on(soon("its end", task)).is_err_and(|end| end.is_cancelled()));
    }
    runtime.block_on(nothing_left(&server, &client));
    let kept = counted.count_current;
    assert!(kept < GRANTS as i64 / 2, "{kept} allocations are kept of {GRANTS} grants");
}

#[test]
fn the_future_of_an_acquisition_is_small() {
    let runtime = this_thread();
    let (_server, [client]) = runtime.block_on(setup());
    let lock = client.mutex("n");
    let sizes = [size_of_val(&lock.lock()), size_of_val(&lock.try_lock())];
    assert!(sizes.iter().all(|size| *size < 900), "{sizes:?} bytes");
}
