//! The same locks for threads: every call blocks its thread.
//!
//! The calling **thread** is the owner, as in Java: a nested `lock()` on the same thread re-enters, and another thread
//! waits. A guard therefore stays on its thread. With [`Mutex::owned_by`], a named owner replaces the thread, and the
//! guard may move to other threads.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use leasehold::blocking::Client;
//!
//! fn main() -> Result<(), leasehold::Error> {
//!     let client = Client::connect("redis://127.0.0.1:6379")?;
//!     client.shutdown_after(|| bill(&client))? // releases all locks, even after an error
//! }
//!
//! fn bill(client: &Client) -> Result<(), leasehold::Error> {
//!     let orders = client.mutex("orders:42");
//!     let guard = orders.lock_with_timeout(Duration::from_secs(5))?;
//!     let nested = orders.lock()?; // the same thread: no round trip
//!     assert_eq!(nested.token(), guard.token());
//!     drop(nested);
//!     guard.unlock()
//! }
//! ```
//!
//! A thread of the client renews locks while yours computes or sleeps. You may call from plain threads, in
//! `spawn_blocking` and `block_in_place`, and under a runtime's `enter()`. In async code, calls fail with
//! [`Error::InAsyncContext`](crate::Error::InAsyncContext). Under tokio's `unconstrained`, async code cannot be detected:
//! there, calls block the executor. In the destructor of a thread-local, they may fail with
//! [`Error::Closed`](crate::Error::Closed).

mod caller;
mod client;
mod delivery;
mod election;
mod guard;
#[cfg(feature = "json")]
mod json;
mod latch;
mod listing;
mod multi_guard;
mod multi_lock;
mod mutex;
mod permit;
mod queue;
mod runtime;
mod rw_guards;
mod rw_lock;
mod semaphore;
mod signal;
mod watch;

pub use caller::{NamedOwner, ThisThread};
pub use client::Client;
pub use delivery::Delivery;
pub use election::{Election, Leadership, Observer};
pub use guard::Guard;
pub use latch::Latch;
pub use listing::Listing;
pub use multi_guard::MultiGuard;
pub use multi_lock::MultiLock;
pub use mutex::Mutex;
pub use permit::Permit;
pub use queue::Queue;
pub use rw_guards::{ReadGuard, WriteGuard};
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;
pub use signal::{Signal, SignalGroup};
pub use watch::LossWatch;
