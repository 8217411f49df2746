//! The kinds of lock: their handles, and what they ask of the servers.

mod handle;

mod lock;

pub(crate) mod mutex;

pub(crate) mod run;

pub(crate) mod status;
