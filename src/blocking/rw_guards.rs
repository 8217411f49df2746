//! The guards of a read-write lock, for threads.

use std::fmt;
use std::time::Duration;

use super::runtime::Runtime;
use super::watch::LossWatch;
use super::{Guard, ThisThread};
use crate::error::{Error, LossReason};
use crate::guard::ReadVersion;
use crate::key::Holder;
use crate::owner::Owner;
use crate::primitives::rw_guards::Downgrade;

/// Holds a read-write lock for reading; see [`leasehold::ReadGuard`](crate::ReadGuard). It is dropped, and moves to other
/// threads, like a [`Guard`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadGuard<O = ThisThread> {
    guard: Guard<O>,
}

/// Holds a read-write lock for writing; see [`leasehold::WriteGuard`](crate::WriteGuard). It is dropped, and moves to other
/// threads, like a [`Guard`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard<O = ThisThread> {
    guard: Guard<O>,
    downgrade: Downgrade,
}

impl<O> ReadGuard<O> {
    pub(super) fn new(guard: crate::ReadGuard, runtime: &Runtime) -> Self {
        Self { guard: Guard::new(guard.into_inner(), runtime) }
    }

    /// Returns the token of the version that is read; see [`leasehold::ReadGuard::token`](crate::ReadGuard::token).
    pub fn token(&self) -> u64 {
        self.guard.token()
    }

    /// Returns the version that is read; see [`leasehold::ReadGuard::version`](crate::ReadGuard::version).
    pub fn version(&self) -> Option<ReadVersion> {
        self.guard.inner().version()
    }

    /// Returns a nested guard of the same hold; see [`leasehold::ReadGuard::reenter`](crate::ReadGuard::reenter).
    ///
    /// # Errors
    ///
    /// The same errors.
    pub fn reenter(&self) -> Result<Self, Error> {
        Ok(Self { guard: self.guard.reenter()? })
    }
}

impl<O> WriteGuard<O> {
    pub(super) fn new(guard: crate::WriteGuard, runtime: &Runtime) -> Self {
        let (guard, downgrade) = guard.into_parts();
        Self { guard: Guard::new(guard, runtime), downgrade }
    }

    /// Returns the fencing token; see [`leasehold::WriteGuard::token`](crate::WriteGuard::token).
    pub fn token(&self) -> u64 {
        self.guard.token()
    }

    /// Returns a nested guard of the same hold; see [`leasehold::WriteGuard::reenter`](crate::WriteGuard::reenter).
    ///
    /// # Errors
    ///
    /// The same errors.
    pub fn reenter(&self) -> Result<Self, Error> {
        Ok(Self { guard: self.guard.reenter()?, downgrade: self.downgrade.clone() })
    }

    /// Turns the hold into a read hold; no writer can get in between; see
    /// [`leasehold::WriteGuard::downgrade`](crate::WriteGuard::downgrade).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`]. This guard is gone in any case; the lock is released then, unless
    /// its owner has other guards. What [`watch`](Self::watch) returned before ends: watch the new guard.
    pub fn downgrade(self) -> Result<ReadGuard<O>, Error> {
        let Self { guard, downgrade } = self;
        let guard = guard.replace(async |guard| Ok(downgrade.of(guard).await?.into_inner()))?;
        Ok(ReadGuard { guard })
    }

    /// Returns true if nobody has written since a reader of the [version](ReadGuard::version) `seen`; see
    /// [`leasehold::WriteGuard::unchanged_since`](crate::WriteGuard::unchanged_since).
    pub fn unchanged_since(&self, seen: impl Into<Option<ReadVersion>>) -> bool {
        self.guard.inner().follows(seen.into())
    }
}

/// What the guards of readers and writers have in common with each other, and with those of other locks.
macro_rules! lock_guard {
    ($guard:ident) => {
        impl<O> $guard<O> {
            /// Returns the lock's name.
            pub fn name(&self) -> &str {
                self.guard.name()
            }

            /// Returns true if the lock is certainly held at this moment. It costs no I/O: call it as often as you like.
            pub fn is_held(&self) -> bool {
                self.guard.is_held()
            }

            /// Returns how long the lock is certainly held if nothing renews it; zero if it is lost.
            pub fn remaining(&self) -> Duration {
                self.guard.remaining()
            }

            /// Returns how many guards of its owner hold the lock now, for reading and for writing.
            pub fn hold_count(&self) -> u32 {
                self.guard.hold_count()
            }

            /// Returns the owner of the hold.
            pub fn owner(&self) -> &Owner {
                self.guard.owner()
            }

            /// Returns the holder: the text that names this hold on the servers.
            pub fn holder(&self) -> Holder {
                self.guard.holder()
            }

            /// Waits until the lock is lost, for at most `timeout`. Returns `None` if it was not lost.
            ///
            /// # Errors
            ///
            /// [`Error::InAsyncContext`]; [`Error::Closed`] in a fork of the process, or in the destructor of a thread-local.
            pub fn wait_lost(&self, timeout: Duration) -> Result<Option<LossReason>, Error> {
                self.guard.wait_lost(timeout)
            }

            /// Returns true if somebody else is known to want the lock; see
            /// [`leasehold::Guard::is_wanted`](crate::Guard::is_wanted).
            pub fn is_wanted(&self) -> bool {
                self.guard.is_wanted()
            }

            /// Waits until somebody else wants the lock, for at most `timeout`. Returns true if somebody does. A loss does not end
            /// the wait, so do not pass [`Duration::MAX`]; see [`leasehold::Guard::wanted`](crate::Guard::wanted).
            ///
            /// # Errors
            ///
            /// [`Error::InAsyncContext`]; [`Error::Closed`] in a fork of the process, or in the destructor of a thread-local.
            pub fn wait_wanted(&self, timeout: Duration) -> Result<bool, Error> {
                self.guard.wait_wanted(timeout)
            }

            /// Returns a watcher of the loss, which can be sent to other threads; see [`Guard::watch`].
            pub fn watch(&self) -> LossWatch {
                self.guard.watch()
            }

            /// Extends the lock so that it lasts for at least `lease` from now; see
            /// [`leasehold::Guard::extend`](crate::Guard::extend).
            ///
            /// # Errors
            ///
            /// The same errors, and [`Error::InAsyncContext`].
            pub fn extend(&self, lease: Duration) -> Result<(), Error> {
                self.guard.extend(lease)
            }

            /// Releases the lock, and waits until the servers have confirmed it; see [`Guard::release`].
            ///
            /// # Errors
            ///
            /// The same as [`Guard::release`].
            pub fn release(self) -> Result<(), Error> {
                self.guard.release()
            }

            /// Releases the lock: another name for [`release`](Self::release).
            ///
            /// # Errors
            ///
            /// The same as [`Guard::release`].
            pub fn unlock(self) -> Result<(), Error> {
                self.release()
            }
        }

        impl<O> fmt::Debug for $guard<O> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.guard.inner().fmt(f)
            }
        }
    };
}

lock_guard!(ReadGuard);
lock_guard!(WriteGuard);
