//! A node of a cluster that is down refuses every call. Then one call at a time asks it whether it still does; the others
//! are refused here, so that thousands of holders do not flood the servers that are left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::{Clock, Timestamp};
use crate::error::Fault;

/// Whether a node refuses all calls.
pub(super) struct Refusal {
    /// Looked at with every call.
    is_on: AtomicBool,
    refused: Mutex<Option<Refused>>,
    /// Counts the refusals that are over.
    over: watch::Sender<u64>,
}

struct Refused {
    fault: Fault,
    /// When a call may ask again.
    ask_at: Timestamp,
}

impl Refusal {
    pub(super) fn new() -> Self {
        let (is_on, refused) = (AtomicBool::new(false), Mutex::new(None));
        Self { is_on, refused, over: watch::Sender::new(0) }
    }

    /// The node refused a call, and refuses all others.
    pub(super) fn begin(&self, fault: &Fault, now: Timestamp) {
        let mut refused = self.refused.lock();
        refused.get_or_insert_with(|| Refused { fault: fault.clone(), ask_at: now.plus(EVERY) });
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// The node answers again, or is to be asked anew.
    pub(super) fn end(&self) {
        // Every answer comes here.
        if self.is_on.load(Ordering::Relaxed) {
            let mut refused = self.refused.lock();
            self.is_on.store(false, Ordering::Relaxed);
            let was_on = refused.take().is_some();
            drop(refused);
            if was_on {
                self.over.send_modify(|count| *count += 1);
            }
        }
    }

    /// Returns why a call is not sent now. If it returns `None` the caller sends it: it may be the one that asks.
    pub(super) fn holds_back(&self, clock: &Clock) -> Option<Fault> {
        // Every call comes here, and reads no clock for it.
        if self.is_on.load(Ordering::Relaxed) { self.holds_back_at(clock.now()) } else { None }
    }

    fn holds_back_at(&self, now: Timestamp) -> Option<Fault> {
        let mut refused = self.refused.lock();
        let refused = refused.as_mut()?;
        if now < refused.ask_at {
            return Some(refused.fault.clone());
        }
        refused.ask_at = now.plus(EVERY);
        None
    }

    /// Returns why no call is sent at `now`, and until when.
    pub(super) fn until(&self, now: Timestamp) -> Option<(Fault, Timestamp)> {
        if !self.is_on.load(Ordering::Relaxed) {
            return None;
        }
        let refused = self.refused.lock();
        let refused = refused.as_ref().filter(|refused| now < refused.ask_at)?;
        Some((refused.fault.clone(), refused.ask_at))
    }

    /// Returns what changes when a refusal is over.
    pub(super) fn over(&self) -> watch::Receiver<u64> {
        self.over.subscribe()
    }
}

/// How often a call asks a node that refuses. Whoever looks after the map of the slots asks it more often.
const EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Cause, State};

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(ms))
    }

    fn down() -> Fault {
        let text = "CLUSTERDOWN The cluster is down";
        Fault::Refused(Cause::new(text, State::of(Some("CLUSTERDOWN"), text)))
    }

    #[test]
    fn of_many_calls_one_a_second_asks_a_node_that_refuses_all() {
        let refusal = Refusal::new();
        assert!(refusal.holds_back_at(at(0)).is_none() && refusal.until(at(0)).is_none());
        refusal.begin(&down(), at(0));
        let passed = (0..3000).filter(|ms| refusal.holds_back_at(at(*ms)).is_none());
        assert_eq!(passed.collect::<Vec<_>>(), [1000, 2000]);
        refusal.begin(&down(), at(2005));
        assert_eq!(refusal.until(at(2005)).map(|(_, at)| at), Some(at(3000)), "it goes on");
        assert!(refusal.until(at(3000)).is_none(), "somebody may ask");
    }

    #[test]
    fn a_refusal_that_is_over_is_forgotten_and_told() {
        let refusal = Refusal::new();
        let over = refusal.over();
        refusal.end();
        assert!(!over.has_changed().expect("it lives"));
        for round in 1..3 {
            refusal.begin(&down(), at(0));
            assert!(refusal.holds_back_at(at(1)).is_some_and(|fault| fault.is_cluster_down()));
            refusal.end();
            assert!(refusal.holds_back_at(at(1)).is_none());
            assert_eq!(*over.borrow(), round);
        }
    }
}
