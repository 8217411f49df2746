//! Reentrant distributed locks on Redis or Valkey.

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
pub use owner::Owner;
pub use primitives::lock::{LockStatus, Mutex};

/// What the simulation replaces. Not part of the interface: it changes without notice.
#[cfg(leasehold_sim)]
#[doc(hidden)]
pub mod sim {
    pub use crate::clock::{Entropy, TimeSource, Timestamp};
    pub use crate::node::Connector;
}
