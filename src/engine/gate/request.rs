//! What a caller asks for: a lock, on its terms, for as long as it waits.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::engine::kind::Wanted;
use crate::owner::Owner;

/// Who asks for a lock, and how.
pub(crate) struct Request {
    pub(crate) owner: Owner,
    pub(crate) wanted: Wanted,
    pub(crate) until: Until,
    pub(crate) began_at: Timestamp,
    /// A hold of the same owner is made to last as the terms ask.
    pub(crate) widens: bool,
    /// The line of code that asks.
    pub(crate) caller: &'static Location<'static>,
    /// It is in order if it waits for long: nobody is told of it.
    pub(crate) patient: bool,
    /// It is a part of what began before, and goes on in a drain.
    pub(crate) goes_on: bool,
}

impl Request {
    /// Makes a request that changes no hold, and is told of if it waits for long.
    pub(crate) fn new(
        owner: Owner,
        wanted: Wanted,
        until: Until,
        began_at: Timestamp,
        caller: &'static Location<'static>,
    ) -> Self {
        let [widens, patient, goes_on] = [false; 3];
        Self { owner, wanted, until, began_at, widens, caller, patient, goes_on }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        self.wanted.side.name()
    }
}

/// How long somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// One attempt.
    Once,
    At(Timestamp),
    Ever,
}

impl Until {
    /// Zero means one attempt, and [`Duration::MAX`] no limit.
    pub(crate) fn within(timeout: Duration, began_at: Timestamp) -> Self {
        match timeout {
            Duration::ZERO => Self::Once,
            Duration::MAX => Self::Ever,
            timeout => Self::At(began_at.plus(timeout)),
        }
    }
}
