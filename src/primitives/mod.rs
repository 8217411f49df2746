//! One file per kind of lock: its handle, and what it asks of the servers.

pub(crate) mod lock;

pub(crate) mod run;
