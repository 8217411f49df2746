//! How long this machine kept threads waiting: what a limit in time must allow besides.

use std::{
    collections::HashMap,
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::{
    clock::{nanos, now},
    event::What,
    journal::Journal,
};

/// Writes down the stalls of this process, and of the processes that `others` names, until `over`.
///
/// A thread that sleeps too long has been stopped or kept waiting for a processor; where Linux tells how long
/// each thread waited for one (`schedstat`), that is looked at, too.
pub(crate) fn watch(journal: &Journal, over: &AtomicBool, others: impl Fn() -> Vec<u32>) {
    let mut waits = HashMap::new();
    while !over.load(Ordering::Relaxed) {
        let looked_at = now();
        for _ in 0..TICKS {
            let from = now();
            thread::sleep(TICK);
            told_late(journal, from);
        }
        let pids = others().into_iter().chain([std::process::id()]);
        let longest = pids.map(|pid| longest_wait(pid, &mut waits)).max().unwrap_or(0);
        if longest > NOTABLE {
            // It was over when the thread ran again, which was after the last look.
            journal.write(What::Stalled { from: looked_at.saturating_sub(longest) });
        }
    }
}

/// A sleep of one tick began at `from` and is over.
pub(crate) fn told_late(journal: &Journal, from: u64) {
    if now() - from > nanos(TICK) + NOTABLE {
        journal.write(What::Stalled { from });
    }
}

/// For how long the threads of a process waited for a processor since the last look, at most, in nanoseconds.
fn longest_wait(pid: u32, waits: &mut HashMap<(u32, String), u64>) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let mut longest = 0;
    for thread in threads.flatten() {
        // It may end meanwhile.
        let Ok(stat) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
        let Some(waited) = stat.split(' ').nth(1).and_then(|waited| waited.parse().ok()) else {
            continue;
        };
        let name = thread.file_name().to_string_lossy().into_owned();
        let before = waits.insert((pid, name), waited).unwrap_or(waited);
        longest = longest.max(waited.saturating_sub(before));
    }
    longest
}

pub(crate) const TICK: Duration = Duration::from_millis(5);
/// So many ticks between two looks.
const TICKS: u32 = 4;
/// Shorter waits are what the slack is for, in nanoseconds.
const NOTABLE: u64 = 7_000_000;
