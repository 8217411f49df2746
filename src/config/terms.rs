//! The terms on which a lock is taken.

use std::time::Duration;

/// The terms of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) lease: LeaseTerms,
    /// The watchdog stops renewing that long after the hold began.
    pub(crate) max_hold: Option<Duration>,
    /// The lock stays taken for at least this time, even if it is released earlier.
    pub(crate) min_hold: Duration,
    /// Each acquisition has a place of its own in the server's queue, and nothing is handed over inside the process.
    pub(crate) fair: bool,
}

/// For how long a lease lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseTerms {
    /// Renewed by the watchdog for as long as it is held.
    Watched(Duration),
    /// Ends when its time is over.
    Fixed(Duration),
}

impl Terms {
    pub(crate) fn of(lease: LeaseTerms) -> Self {
        Self { lease, max_hold: None, min_hold: Duration::ZERO, fair: false }
    }

    /// Returns the same terms with a lease of at least `min_hold`, so that it lasts even if its holder crashes at once.
    pub(crate) fn outlasting_min_hold(self) -> Self {
        match self.lease {
            LeaseTerms::Watched(ttl) => {
                Self { lease: LeaseTerms::Watched(ttl.max(self.min_hold)), ..self }
            }
            LeaseTerms::Fixed(_) => self,
        }
    }

    pub(crate) fn ttl(&self) -> Duration {
        match self.lease {
            LeaseTerms::Watched(ttl) | LeaseTerms::Fixed(ttl) => ttl,
        }
    }
}

/// The part of a lease of `ttl` that is given up for clocks that run at different rates.
pub(crate) fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}
