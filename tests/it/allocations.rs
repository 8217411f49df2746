//! What the client allocates, and how large its futures are: figures that no busy machine changes.

use allocation_counter::measure;
use leasehold::Owner;
use tokio::runtime::{Builder, Runtime};

use crate::checks::setup;

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

#[test]
fn the_future_of_an_acquisition_is_small() {
    let runtime = this_thread();
    let (_server, [client]) = runtime.block_on(setup());
    let lock = client.mutex("n");
    let sizes = [size_of_val(&lock.lock()), size_of_val(&lock.try_lock())];
    assert!(sizes.iter().all(|size| *size < 900), "{sizes:?} bytes");
}
