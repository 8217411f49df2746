//! Reentrant distributed locks on Redis or Valkey.
//!
//! The model and the data are Redisson's: a lock is a hash with a time to live, its waiters listen on a channel,
//! and Rust and Java programs keep each other out of it.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use leasehold::{Client, Error};
//!
//! # async fn bill(_: u64) {}
//! #[tokio::main]
//! async fn main() -> Result<(), Error> {
//!     let client = Client::connect("redis://127.0.0.1:6379").await?;
//!     let orders = client.mutex("orders:42");
//!
//!     // Waits for five seconds at most; the error of a timeout names the holder.
//!     let guard = orders.lock_with_timeout(Duration::from_secs(5)).await?;
//!     // Cancelled if the lock is lost. The resource should refuse a token lower than it has seen.
//!     guard.run_until_lost(bill(guard.token())).await?;
//!     guard.unlock().await
//! }
//! ```
//!
//! # The types
//!
//! * [`Client`]: the connections to the server or servers, one client per process. [`ClientBuilder`] has the settings.
//! * [`Mutex`]: a handle on a lock. It holds nothing and costs nothing; clone it and keep it.
//! * [`Guard`]: the proof of a hold, renewed in the background until it is dropped. It knows its
//!   [token](Guard::token) and [whether it is held](Guard::is_held), and [tells](Guard::lost) when it is lost.
//! * [`Owner`]: who holds. Acquisitions by the same owner re-enter. Each acquisition is its own owner unless you
//!   name one with [`Mutex::owned_by`] or [`Owner::scope`], or run inside [`Mutex::run`].
//! * [`Error`]: a variant for each thing that you can do about it.
//! * [`blocking`]: the same for threads.
//!
//! # Limits
//!
//! * A lock keeps others out for as long as the server, or a majority of several, keeps its key. A failover to a replica that missed the
//!   write, a restart without the data, eviction, `FLUSHALL` or a step of the server's clock can give it to a
//!   second holder; the first is told at its next renewal. [`Client::check`] warns of what can be seen beforehand.
//! * No lock protects a process that is stopped between [`Guard::is_held`] and its write. A [token](Guard::token)
//!   that the resource checks does.
//! * Waiters of one process are served in order. Processes are not starved, in no promised order.
//! * One server, or several independent masters (Redlock, [`ClientBuilder::nodes`]): Redis 6.2 or later, or Valkey
//!   7.2 or later. No Sentinel or Cluster.
//!
//! Inside one process use [`tokio::sync::Mutex`]; for writes to one database its own transactions and
//! constraints; where the loss of a server must not matter, a consensus store.
//!
//! # Features
//!
//! * `tls`: `rediss://` URLs, by rustls with the operating system's certificates. Off by default.

// The modules in the order of their layers: each uses only itself and those above it.
mod key;

mod error;

mod config;

mod owner;

mod script;

mod clock;

mod node;

mod engine;

mod guard;

mod primitives;

mod client;

pub mod blocking;

pub use client::{Client, ClientBuilder, Finding, FindingKind, HeldLock, Stats};
pub use config::SelfWait;
pub use error::{Error, LossReason, NodeFailure};
pub use guard::{Guard, Lost};
pub use key::Holder;
pub use node::{NodeState, NodeStatus};
pub use owner::Owner;
pub use primitives::lock::{LockStatus, Mutex};

/// Runs the README's example through the compiler.
#[cfg(doctest)]
#[doc(hidden)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// What the simulation replaces. Not part of the interface: it changes without notice.
#[cfg(leasehold_sim)]
#[doc(hidden)]
pub mod sim {
    pub use crate::clock::{Entropy, TimeSource, Timestamp};
    pub use crate::node::{Connecting, Connector, Network, command_config};
}
