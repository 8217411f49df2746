//! The kinds of lock: their handles, and what they ask of the servers.

mod asking;

mod handle;

mod subject;

mod lock;

mod replies;

mod together;

pub(crate) mod delivery;

pub(crate) mod election;

mod items;

#[cfg(feature = "json")]
mod json;

pub(crate) mod leader;

pub(crate) mod leadership;

pub(crate) mod observer;

pub(crate) mod latch;

pub(crate) mod listed;

pub(crate) mod listing;

pub(crate) mod multi_lock;

pub(crate) mod multi_guard;

pub(crate) mod mutex;

mod page;

pub(crate) mod permit;

mod permit_handle;

mod permits;

mod pool;

mod pop;

pub(crate) mod queue;

pub(crate) mod queue_status;

pub(crate) mod run;

mod rw;

pub(crate) mod rw_guards;

pub(crate) mod rw_lock;

pub(crate) mod semaphore;

pub(crate) mod semaphore_status;

pub(crate) mod signal;

pub(crate) mod signal_group;

pub(crate) mod status;

mod walk;
