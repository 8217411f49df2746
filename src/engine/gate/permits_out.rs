//! The permits of all semaphores that the clients of one process have.

use std::collections::{BTreeMap, HashSet};
use std::panic::Location;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::hold::Hold;

/// The permits that this process has, and where they were taken that ended elsewhere.
#[derive(Default)]
pub(super) struct PermitsOut(Mutex<Out>);

#[derive(Default)]
struct Out {
    /// By the semaphore's name, and the hold's address.
    holds: BTreeMap<(Arc<str>, usize), Weak<Hold>>,
    passed_on: HashSet<&'static Location<'static>>,
}

impl PermitsOut {
    pub(super) fn put(&self, hold: &Arc<Hold>) {
        let key = (hold.gate.name.clone(), hold.address());
        self.0.lock().holds.insert(key, Arc::downgrade(hold));
    }

    pub(super) fn take_out(&self, hold: &Hold) {
        let key = (hold.gate.name.clone(), hold.address());
        let _weak = self.0.lock().holds.remove(&key);
    }

    pub(super) fn pass_on(&self, taken_at: &'static Location<'static>) {
        self.0.lock().passed_on.insert(taken_at);
    }

    pub(super) fn are_passed_on(&self, taken_at: &'static Location<'static>) -> bool {
        self.0.lock().passed_on.contains(taken_at)
    }

    /// Returns the permits of the semaphores of that name. Somebody else must not be the last to have one of them.
    pub(super) fn of(&self, name: &Arc<str>) -> Vec<Arc<Hold>> {
        let out = self.0.lock();
        let all = out.holds.range((name.clone(), 0)..=(name.clone(), usize::MAX));
        all.filter_map(|(_, hold)| hold.upgrade()).collect()
    }
}
