//! How long this machine kept threads waiting: what a limit in time must allow besides.

use std::{
    collections::HashMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{
    clock::{nanos, now},
    event::What,
    journal::Journal,
};

/// Writes down the stalls of this process, and of the processes that `others` names, until `over`.
///
/// A thread that sleeps too long has been stopped or kept waiting for a processor; where Linux tells how long
/// each thread waited for one (`schedstat`), that is looked at, too.
pub fn watch(journal: &Journal, over: &AtomicBool, others: impl Fn() -> Vec<u32>) {
    let (mut waits, mut from) = (HashMap::new(), now());
    while !over.load(Ordering::Relaxed) {
        let looked_at = now();
        for _ in 0..TICKS {
            thread::sleep(TICK);
            // From the end of one tick to that of the next: no moment is between two of them.
            from = told_late(journal, from);
        }
        let pids = others().into_iter().chain([std::process::id()]);
        let longest = pids.map(|pid| longest_wait(pid, &mut waits)).max().unwrap_or(0);
        if longest > NOTABLE {
            // It was over when the thread ran again, which was after the last look.
            journal.write(What::Stalled { from: looked_at.saturating_sub(longest) });
        }
    }
}

/// Writes down when a processor keeps a thread waiting, until `over`.
///
/// Linux shares a processor among sessions first, where it groups them (`sched_autogroup_enabled`), and what another session
/// computes can keep a server there for seconds, while threads on other processors see nothing of it.
pub(crate) fn watch_processors(journal: &Journal, over: &Arc<AtomicBool>) {
    let allowed = sched_getaffinity(None).expect("which processors there are");
    for processor in (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)) {
        let (journal, over) = (journal.clone(), over.clone());
        thread::spawn(move || {
            let mut only = CpuSet::new();
            only.set(processor);
            sched_setaffinity(None, &only).expect("one of those processors");
            let mut from = now();
            while !over.load(Ordering::Relaxed) {
                thread::sleep(TICK);
                from = told_late(&journal, from);
            }
        });
    }
}

/// A sleep of one tick began at `from` and is over. Returns the time.
pub(crate) fn told_late(journal: &Journal, from: u64) -> u64 {
    let at = now();
    if at - from > nanos(TICK) + NOTABLE {
        journal.write_at(at, What::Stalled { from });
    }
    at
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
