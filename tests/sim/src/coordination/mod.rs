//! What the processes do with queues of items, latches and signals, and what is known of those: [`Books`].

pub mod latches;
pub mod ledger;
pub mod queues;
pub mod shelf;
pub mod signals;
mod subjects;

use std::collections::BTreeMap;

use self::latches::Latches;
use self::ledger::Ledger;
use self::signals::{Groups, Signals};
pub use self::subjects::Memory;
use crate::workload::Worker;

/// The number of an ask for an item of the queue. Each item is a lock of its own, numbered from [`ITEMS`].
pub const QUEUE: usize = 500;
pub const ITEMS: usize = 1_000_000;
pub const QUEUE_NAME: &str = "jobs";
pub const SIGNAL_NAMES: [&str; 2] = ["signal-0", "signal-1"];
pub const GROUP_NAME: &str = "group";
/// How often an item is delivered before it is dead.
pub const MOST_DELIVERIES: u32 = 3;

/// When a server last forgot what it had done: a replica took over that had not got everything.
#[derive(Clone, Copy, Default)]
pub struct Forgotten {
    last: Option<u64>,
}

impl Forgotten {
    pub fn at(&mut self, now: u64) {
        self.last = Some(now);
    }

    /// Whether that was since `asked_at`: what was asked then may have been done before, and be forgotten.
    pub fn since(self, asked_at: u64) -> bool {
        self.last.is_some_and(|last| asked_at <= last)
    }
}

/// What the processes and the servers have said.
#[derive(Default)]
pub struct Books {
    pub items: Ledger,
    pub latches: Latches,
    pub signals: [Signals; 2],
    pub group: Groups,
    /// Who waits for a change.
    pub waits: BTreeMap<u64, Wait>,
}

/// A wait for a latch or a signal.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub host: usize,
    pub since: u64,
    pub subject: Subject,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// That this latch opens.
    Latch(u64),
    /// That this signal has another number.
    Signal(usize, u64),
    /// That the group has another number.
    Group(u64),
}

impl Worker {
    pub(crate) async fn turn_of_coordination(&mut self) {
        match self.rng.below(10) {
            0..6 => self.use_queue().await,
            6 | 7 => self.use_latch().await,
            8 => self.use_signal().await,
            _ => self.use_group().await,
        }
    }
}

pub fn latch_name(latch: impl std::fmt::Display) -> String {
    format!("latch-{latch}")
}
