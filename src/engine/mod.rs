//! What is written once for every kind of lock.

pub(crate) mod kind;

pub(crate) mod tally;

pub(crate) mod round;

pub(crate) mod backoff;

pub(crate) mod quorum;

pub(crate) mod lease;

mod inbox;

pub(crate) mod watchdog;

pub(crate) mod place;

pub(crate) mod watch;

pub(crate) mod circles;

pub(crate) mod order;

pub(crate) mod notes;

pub(crate) mod gate;

pub(crate) mod acquire;
