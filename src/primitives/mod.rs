//! The kinds of lock: their handles, and what they ask of the servers.

mod handle;

mod lock;

mod together;

pub(crate) mod multi_lock;

pub(crate) mod multi_guard;

pub(crate) mod mutex;

pub(crate) mod run;

pub(crate) mod status;
