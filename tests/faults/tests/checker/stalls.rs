//! What this machine kept waiting is written down.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread::sleep,
    time::Duration,
};

use leasehold_faults::{
    clock::{nanos, now},
    event::What,
    journal::Journal,
    stalls::watch,
};

#[test]
fn who_is_stopped_while_it_looks_at_others_says_so() {
    let (journal, over) = (Journal::in_memory(), AtomicBool::new(false));
    let (looked_at, looks) = (now(), AtomicU32::new(0));
    watch(&journal, &over, || {
        match looks.fetch_add(1, Ordering::Relaxed) {
            0 => sleep(Duration::from_millis(100)),
            _ => over.store(true, Ordering::Relaxed),
        }
        Vec::new()
    });
    let stood_still = nanos(Duration::from_millis(100));
    let covers = |from: u64, at: u64| from >= looked_at && at - from >= stood_still;
    let is_told = journal
        .events()
        .iter()
        .any(|event| matches!(event.what, What::Stalled { from } if covers(from, event.at)));
    assert!(is_told, "{:?}", journal.events());
}
