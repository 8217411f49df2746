//! What the server knows about a semaphore.

use std::sync::Arc;
use std::time::Duration;

use crate::key::Holder;
use crate::waiter::Waiter;

/// The state of a semaphore on its server at one moment; see [`Semaphore::status`](crate::Semaphore::status).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SemaphoreStatus {
    /// The semaphore's name.
    pub name: Arc<str>,
    /// The number of permits that nobody has. It is negative if [`set_permits`](crate::Semaphore::set_permits) lowered the
    /// semaphore below what is held. If the semaphore does not exist, it is what the handle's
    /// [`with_permits`](crate::Semaphore::with_permits) would make of it, or zero.
    pub available: i64,
    /// The number of permits that are held, those of Redisson's `RPermitExpirableSemaphore` included. Those of its
    /// `RSemaphore` are not: the server knows only that they are not available.
    pub held: u32,
    /// The holders, in the order in which their permits end: 1000 holders at most, of the first 20,000 permits.
    pub holders: Vec<PermitHolder>,
    /// The number of clients that wait for permits, those of Redisson included.
    pub waiting_clients: u32,
    /// The acquisitions of this library that wait, in the order in which they get permits.
    pub waiting: Vec<Waiter>,
}

impl SemaphoreStatus {
    /// Returns the number of permits that there are, as far as the server knows: those available and those held.
    pub fn permits(&self) -> i64 {
        self.available + i64::from(self.held)
    }
}

/// A holder of permits; see [`SemaphoreStatus::holders`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PermitHolder {
    /// The holder's name on the server. For Redisson, the permit's id in hexadecimal.
    pub holder: Holder,
    /// The number of permits that it has.
    pub permits: u32,
    /// The time until they end unless they are renewed; `None` if they never end.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::maybe_seconds"))]
    pub remaining: Option<Duration>,
}
