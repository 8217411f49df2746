//! The guard of a writer, for threads.

use std::fmt;
use std::ops::Deref;

use super::{Guard, ThisThread};
use crate::error::Error;
use crate::guard::ReadVersion;
use crate::primitives::rw_guards::Downgrade;

/// Holds a read-write lock for writing; see [`leasehold::WriteGuard`](crate::WriteGuard). It is a [`Guard`] with all its
/// methods.
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard<O = ThisThread> {
    guard: Guard<O>,
    downgrade: Downgrade,
}

impl<O> WriteGuard<O> {
    pub(super) fn new(guard: Guard<O>, downgrade: Downgrade) -> Self {
        Self { guard, downgrade }
    }

    /// Turns the hold into a read hold; no writer can get in between; see
    /// [`leasehold::WriteGuard::downgrade`](crate::WriteGuard::downgrade).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`]. The lock is not held any more in any case.
    pub fn downgrade(self) -> Result<Guard<O>, Error> {
        let Self { guard, downgrade } = self;
        guard.replace(async |guard| Ok(downgrade.of(guard).await?.into()))
    }

    /// Returns true if nobody has written since a reader of the [version](Guard::version) `seen`; see
    /// [`leasehold::WriteGuard::unchanged_since`](crate::WriteGuard::unchanged_since).
    pub fn unchanged_since(&self, seen: impl Into<Option<ReadVersion>>) -> bool {
        self.guard.inner().follows(seen.into())
    }

    /// Releases the lock; see [`Guard::unlock`].
    ///
    /// # Errors
    ///
    /// The same as [`Guard::unlock`].
    pub fn unlock(self) -> Result<(), Error> {
        self.guard.unlock()
    }
}

impl<O> Deref for WriteGuard<O> {
    type Target = Guard<O>;

    fn deref(&self) -> &Guard<O> {
        &self.guard
    }
}

impl<O> From<WriteGuard<O>> for Guard<O> {
    fn from(writer: WriteGuard<O>) -> Self {
        writer.guard
    }
}

impl<O> fmt::Debug for WriteGuard<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
