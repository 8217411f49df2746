//! Locks whose owners wait for more: meanwhile only the client can say how long they are still held.

use std::{
    collections::HashMap,
    sync::Arc,
    thread::{self, sleep},
};

use leasehold::HeldLock;
use parking_lot::Mutex;

use super::Shared;
use crate::{
    clock::{nanos, now},
    event::What,
    journal::Journal,
    proof::Proof,
    recorder::{NOTABLE, Watched},
    stalls::TICK,
};

/// Those holds of a process, by lock and token.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    holds: Arc<Mutex<HashMap<(String, u64), Entry>>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    op: u64,
    /// The end that was written down last.
    until: u64,
}

impl Kept {
    /// From now on its end is written down when it moves, and when it has come.
    pub(super) fn add(&self, guard: &impl Proof, watched: &Watched) {
        for key in guard.tokens() {
            self.holds.lock().insert(key, Entry { op: watched.op, until: 0 });
        }
    }

    /// Its owner looks at it by itself again.
    pub(super) fn remove(&self, guard: &impl Proof) {
        for key in guard.tokens() {
            self.holds.lock().remove(&key);
        }
    }

    fn look(&self, journal: &Journal, holds: impl Fn() -> Vec<HeldLock>) {
        // What is kept from then on may not be among those that the client names.
        let known: Vec<_> = self.holds.lock().keys().cloned().collect();
        let before = now();
        let named = holds();
        let after = now();
        for key in known {
            let mut kept = self.holds.lock();
            let Some(Entry { op, until }) = kept.get_mut(&key) else { continue };
            let op = *op;
            let is_it = |named: &&HeldLock| (&*named.name, named.token) == (&*key.0, Some(key.1));
            let Some(named) = named.iter().find(is_it) else {
                let reason = "the client holds it no more".to_owned();
                journal.write_at(after, What::Lost { op, reason, held: false });
                kept.remove(&key);
                continue;
            };
            let left = nanos(named.remaining);
            if before + left > *until + NOTABLE {
                *until = before + left;
                journal.write(What::Renewed { op, until: *until, latest: after + left });
            }
        }
    }
}

impl Shared {
    /// Looks at what is kept, as long as this process runs.
    pub(super) fn watch_kept(&self, holds: impl Fn() -> Vec<HeldLock> + Send + 'static) {
        if self.orders.tanglers == 0 {
            return;
        }
        let (kept, journal) = (self.kept.clone(), self.recorder.journal.clone());
        thread::spawn(move || {
            loop {
                kept.look(&journal, &holds);
                sleep(TICK * 2);
            }
        });
    }
}
