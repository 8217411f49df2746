//! The holds that have lasted for long, which the watchdog reports if that is wanted.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Engine, Hold};
use crate::clock::Timestamp;
use crate::engine::watchdog::LookAtHolds;

/// Returns what looks for holds that have lasted for `after`, and reports them.
pub(super) fn reports(engine: &Weak<Engine>, after: Duration) -> LookAtHolds {
    let engine = engine.clone();
    Box::new(move |now| match engine.upgrade() {
        Some(engine) => engine.report_long_holds(after, now),
        // It is being made, or it is gone.
        None => now.plus(after),
    })
}

impl Engine {
    /// Reports the holds that have lasted for `after`, twice that, and so on. Returns when to look again: a hold that begins
    /// from now on is not due before that.
    fn report_long_holds(&self, after: Duration, now: Timestamp) -> Timestamp {
        let mut next = now.plus(after);
        for hold in self.gates().iter().flat_map(|gate| gate.current_holds()) {
            if hold.due_at(after) <= now && !hold.lease.remaining(now).is_zero() {
                hold.report_long(now);
                while hold.due_at(after) <= now {
                    hold.told.fetch_add(1, Ordering::Relaxed);
                }
            }
            next = next.min(hold.due_at(after));
        }
        next.max(now.plus(after / LOOKS))
    }
}

impl Hold {
    /// When it is to be reported next.
    fn due_at(&self, after: Duration) -> Timestamp {
        let doublings = self.told.load(Ordering::Relaxed);
        // The shortest length, doubled more often, is longer than anybody waits for a line.
        let times = 1_u32.checked_shl(doublings);
        times.map_or(Timestamp::NEVER, |times| self.since.plus(after.saturating_mul(times)))
    }

    fn report_long(&self, now: Timestamp) {
        let waiters = self.gate.waiters();
        self.gate.engine.events.still_held(
            self.as_use(),
            self.taken_at,
            now.since(self.since),
            waiters,
            now,
        );
    }
}

/// Holds that are due one after the other are looked for so many times in the length of a long hold at most.
const LOOKS: u32 = 16;
