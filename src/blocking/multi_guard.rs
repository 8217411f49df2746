//! The guard of several locks, for threads.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::runtime::{PATIENCE, Runtime};
use super::watch::{End, LossWatch};
use super::{Guard, ThisThread};
use crate::error::Error;

/// A guard holds several locks, which were taken together; see [`leasehold::MultiGuard`](crate::MultiGuard). Dropping it
/// releases them, even in a panic, and waits for at most 250 ms for the servers' answers. In async code, the drop releases the
/// locks in the background.
///
/// `MultiGuard<ThisThread>` stays on its thread, and `MultiGuard<NamedOwner>` may move, like a [`Guard`](super::Guard).
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard<O = ThisThread> {
    // This is dropped before the runtimes, which complete its releases.
    guard: crate::MultiGuard,
    /// One for each lock.
    runtimes: Vec<Runtime>,
    end: End,
    ownership: PhantomData<O>,
}

impl<O> MultiGuard<O> {
    pub(super) fn new(guard: crate::MultiGuard, runtimes: Vec<Runtime>) -> Self {
        runtimes.iter().for_each(|runtime| runtime.answered(true));
        Self { guard, runtimes, end: End::default(), ownership: PhantomData }
    }

    /// Returns the name and the fencing token of each lock; see
    /// [`leasehold::MultiGuard::tokens`](crate::MultiGuard::tokens).
    pub fn tokens(&self) -> impl Iterator<Item = (&str, u64)> {
        self.guard.tokens()
    }

    /// Returns the guard of each lock, in the same order; see
    /// [`leasehold::MultiGuard::into_guards`](crate::MultiGuard::into_guards). What [`watch`](Self::watch) returned before ends, as
    /// if the guard had been dropped: watch each of the guards.
    pub fn into_guards(mut self) -> Vec<Guard<O>> {
        let guards = self.guard.take_all().into_iter();
        guards.zip(&self.runtimes).map(|(guard, runtime)| Guard::new(guard, runtime)).collect()
    }

    /// Returns true if all locks are certainly held at this moment. It costs no I/O.
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Returns how long all locks are certainly held if nothing renews them; zero if one is lost.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Waits until one of the locks is lost, for at most `timeout`, and returns the loss as [`Error::Lost`]. Returns `None`
    /// if none was lost.
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncContext`]; [`Error::Closed`] in a fork of the process, or in the destructor of a thread-local.
    pub fn wait_lost(&self, timeout: Duration) -> Result<Option<Error>, Error> {
        self.runtimes[0].wait(self.guard.lost_within(timeout))
    }

    /// Returns a watcher of the loss of any of the locks, which can be sent to other threads; see
    /// [`Guard::watch`](super::Guard::watch).
    pub fn watch(&self) -> LossWatch {
        self.end.watch_all(self.guard.lost(), &self.runtimes[0])
    }

    /// Releases all locks at once, and waits until the servers have confirmed it; see
    /// [`leasehold::MultiGuard::release`](crate::MultiGuard::release).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`]; the locks are then released in the background.
    pub fn release(mut self) -> Result<(), Error> {
        self.runtimes[0].wait(self.guard.give_back())?
    }

    /// Releases all locks: another name for [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// The same as [`release`](Self::release).
    pub fn unlock(self) -> Result<(), Error> {
        self.release()
    }
}

impl<O> Drop for MultiGuard<O> {
    fn drop(&mut self) {
        // In async code, the drop of the field releases the locks in the background.
        if !self.guard.is_given_back()
            && self.runtimes.iter().all(Runtime::answers)
            && let Ok(answered) = self.runtimes[0].wait(self.guard.give_back_within(PATIENCE))
        {
            // Several may be of one client, so only a silence is noted.
            let each = self.runtimes.iter().zip(answered);
            each.filter(|(_, in_time)| !in_time).for_each(|(runtime, _)| runtime.answered(false));
        }
    }
}

impl<O> fmt::Debug for MultiGuard<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
