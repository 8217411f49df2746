//! The kinds of lock: their handles, and what they ask of the servers.

mod handle;

mod lock;

mod together;

pub(crate) mod election;

pub(crate) mod leader;

pub(crate) mod leadership;

pub(crate) mod observer;

pub(crate) mod multi_lock;

pub(crate) mod multi_guard;

pub(crate) mod mutex;

pub(crate) mod permit;

mod permit_handle;

mod permits;

mod pool;

pub(crate) mod run;

mod rw;

pub(crate) mod rw_guards;

pub(crate) mod rw_lock;

pub(crate) mod semaphore;

pub(crate) mod semaphore_status;

pub(crate) mod status;
