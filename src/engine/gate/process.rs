//! What the clients of one process have in common: who holds something, and who waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::holding::Holdings;
use super::ordering::Orders;
use super::permits_out::PermitsOut;
use super::{Engine, Gate};
use crate::clock::{Clock, Timestamp};
use crate::engine::circles::Waits;

/// All processes, by their numbers: one, but for simulations.
static PROCESSES: Mutex<Vec<(usize, Weak<Process>)>> = Mutex::new(Vec::new());

#[derive(Default)]
pub(crate) struct Process {
    pub(super) holdings: Holdings,
    pub(super) orders: Orders,
    pub(super) permits_out: PermitsOut,
    pub(super) waits: Mutex<WaitGraph>,
    /// What all its notes begin with.
    id: OnceLock<Arc<str>>,
    /// How many notes it has made.
    notes: AtomicU64,
}

/// The clients of a process, and all waits of those who may hold something.
#[derive(Default)]
pub(super) struct WaitGraph {
    pub(super) engines: Vec<Weak<Engine>>,
    pub(super) waits: Waits<Wait>,
}

/// A place among the waiters of a gate.
pub(super) struct Wait {
    pub(super) gate: Weak<Gate>,
    pub(super) arrival: u64,
    pub(super) began_at: Timestamp,
    /// It ends by itself.
    pub(super) limited: bool,
    /// It waits to read.
    pub(super) reads: bool,
    /// Notes of it are on the servers, or were.
    pub(super) is_on_servers: bool,
    /// A circle inside this process was told that it is part of. It is not told again.
    pub(super) told: bool,
}

impl Process {
    /// Returns the process that a clock is of.
    pub(super) fn of(clock: &Clock) -> Arc<Self> {
        let number = clock.process();
        let mut processes = PROCESSES.lock();
        processes.retain(|(_, process)| process.strong_count() > 0);
        let known = processes.iter().find(|(other, _)| *other == number);
        if let Some(process) = known.and_then(|(_, process)| process.upgrade()) {
            return process;
        }
        let process = Arc::default();
        processes.push((number, Arc::downgrade(&process)));
        process
    }

    /// Returns what tells its notes from those of all other processes.
    pub(super) fn id(&self, clock: &Clock) -> &Arc<str> {
        self.id.get_or_init(|| format!("{:016x}.", clock.nonce()).into())
    }

    /// Returns the id of a new note.
    pub(super) fn note_id(&self, clock: &Clock) -> Arc<str> {
        let number = self.notes.fetch_add(1, Ordering::Relaxed);
        format!("{}{number}", self.id(clock)).into()
    }
}

impl WaitGraph {
    /// Takes note of a client.
    pub(super) fn note_client(&mut self, engine: &Arc<Engine>) {
        self.engines.retain(|known| known.strong_count() > 0);
        self.engines.push(Arc::downgrade(engine));
    }
}

/// A wait that is noted. Dropping it forgets the wait.
pub(super) struct Noted {
    process: Arc<Process>,
    number: u64,
}

impl Noted {
    pub(super) fn of(process: &Arc<Process>, number: u64) -> Self {
        Self { process: process.clone(), number }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let ended = self.process.waits.lock().waits.end(self.number);
        // Outside the mutex.
        if let Some(wait) = ended
            && wait.is_on_servers
            && let Some(gate) = wait.gate.upgrade()
        {
            gate.engine.noting.wake();
        }
    }
}
