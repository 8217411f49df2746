//! The guard, for threads.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::ThisThread;
use super::runtime::{PATIENCE, Runtime};
use super::watch::{End, LossWatch};
use crate::error::{Error, LossReason};
use crate::key::Holder;
use crate::owner::Owner;

/// A guard holds a lock; see [`leasehold::Guard`](crate::Guard). Dropping it releases the lock, even in a panic, and waits
/// for at most 250 ms for the server's answer. In async code, the drop releases the lock in the background.
///
/// `Guard<ThisThread>` stays on its thread:
///
/// ```compile_fail
/// fn elsewhere(guard: leasehold::blocking::Guard) {
///     std::thread::spawn(move || drop(guard));
/// }
/// ```
///
/// `Guard<NamedOwner>` may move:
///
/// ```
/// # use leasehold::blocking::{Guard, NamedOwner};
/// fn elsewhere(guard: Guard<NamedOwner>) {
///     std::thread::spawn(move || drop(guard));
/// }
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard<O = ThisThread> {
    // This is dropped before the runtime, which completes its release. It is there until another takes it over.
    guard: Option<crate::Guard>,
    runtime: Runtime,
    end: End,
    ownership: PhantomData<O>,
}

impl<O> Guard<O> {
    pub(super) fn new(guard: crate::Guard, runtime: &Runtime) -> Self {
        runtime.answered(true);
        let (runtime, end) = (runtime.clone(), End::default());
        Self { guard: Some(guard), runtime, end, ownership: PhantomData }
    }

    /// Takes the guard over for a call, which also ends this one.
    pub(super) fn replace(
        mut self,
        call: impl AsyncFnOnce(crate::Guard) -> Result<crate::Guard, Error>,
    ) -> Result<Self, Error> {
        let guard = self.guard.take().expect("BUG: it is taken over once");
        let guard = self.runtime.wait(call(guard))??;
        Ok(Self::new(guard, &self.runtime))
    }

    pub(super) fn inner(&self) -> &crate::Guard {
        self.guard.as_ref().expect("BUG: it is used after it was taken over")
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &str {
        self.inner().name()
    }

    /// Returns the fencing token; see [`leasehold::Guard::token`](crate::Guard::token).
    pub fn token(&self) -> u64 {
        self.inner().token()
    }

    /// Returns true if the lock is certainly held at this moment. It costs no I/O: call it as often as you like.
    pub fn is_held(&self) -> bool {
        self.inner().is_held()
    }

    /// Returns how long the lock is certainly held if nothing renews it; zero if it is lost.
    pub fn remaining(&self) -> Duration {
        self.inner().remaining()
    }

    /// Returns how many guards of its owner hold the lock now.
    pub fn hold_count(&self) -> u32 {
        self.inner().hold_count()
    }

    /// Returns the owner of the hold.
    pub fn owner(&self) -> &Owner {
        self.inner().owner()
    }

    /// Returns the holder: the text that names this hold on the servers.
    pub fn holder(&self) -> Holder {
        self.inner().holder()
    }

    /// Waits until the lock is lost, for at most `timeout`. Returns `None` if it was not lost.
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncContext`]; [`Error::Closed`] in a fork of the process, or in the destructor of a thread-local.
    pub fn wait_lost(&self, timeout: Duration) -> Result<Option<LossReason>, Error> {
        self.runtime.wait(self.inner().lost_within(timeout))
    }

    /// Returns true if somebody else is known to want the lock; see [`leasehold::Guard::is_wanted`](crate::Guard::is_wanted).
    pub fn is_wanted(&self) -> bool {
        self.inner().is_wanted()
    }

    /// Waits until somebody else wants the lock, for at most `timeout`. Returns true if somebody does. A loss does not end the
    /// wait, so do not pass [`Duration::MAX`]; see [`leasehold::Guard::wanted`](crate::Guard::wanted).
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncContext`]; [`Error::Closed`] in a fork of the process, or in the destructor of a thread-local.
    pub fn wait_wanted(&self, timeout: Duration) -> Result<bool, Error> {
        self.runtime.wait(self.inner().wanted_within(timeout))
    }

    /// Returns a watcher of the loss, which can be sent to other threads, and which they can wait with.
    ///
    /// It watches this guard: when the guard is released, or dropped, the watcher's wait ends.
    ///
    /// ```no_run
    /// # fn next_part() -> Option<u32> { None }
    /// # fn example(client: leasehold::blocking::Client) -> Result<(), leasehold::Error> {
    /// use std::thread;
    /// use std::time::Duration;
    ///
    /// let guard = client.mutex("report").lock()?;
    /// let watch = guard.watch();
    /// let watching = thread::spawn(move || {
    ///     if let Ok(Some(lost)) = watch.wait_lost(Duration::MAX) {
    ///         eprintln!("stop the work: {lost}");
    ///     }
    /// });
    /// while let Some(part) = next_part() {
    ///     println!("{part}");
    /// }
    /// guard.unlock()?;
    /// watching.join().expect("it ends with the guard");
    /// # Ok(()) }
    /// ```
    pub fn watch(&self) -> LossWatch {
        self.end.watch(self.inner().lost(), &self.runtime)
    }

    /// Returns a nested guard of the same hold; see [`leasehold::Guard::reenter`](crate::Guard::reenter).
    ///
    /// # Errors
    ///
    /// The same errors.
    pub fn reenter(&self) -> Result<Self, Error> {
        Ok(Self::new(self.inner().reenter()?, &self.runtime))
    }

    /// Extends the lock so that it lasts for at least `lease` from now; see
    /// [`leasehold::Guard::extend`](crate::Guard::extend).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.runtime.wait(self.inner().extend(lease))?
    }

    /// Releases the lock, and waits until the servers have confirmed it; see
    /// [`leasehold::Guard::release`](crate::Guard::release).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`]; the lock is then released in the background.
    pub fn release(mut self) -> Result<(), Error> {
        let Some(guard) = &mut self.guard else { return Ok(()) };
        self.runtime.wait(guard.give_back())?
    }

    /// Releases the lock: another name for [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// The same as [`release`](Self::release).
    pub fn unlock(self) -> Result<(), Error> {
        self.release()
    }
}

impl<O> Drop for Guard<O> {
    fn drop(&mut self) {
        // In async code, the drop of the field releases the lock in the background.
        if let Some(guard) = &mut self.guard
            && !guard.is_given_back()
            && self.runtime.answers()
            && let Ok(answered) = self.runtime.wait(guard.give_back_within(PATIENCE))
        {
            self.runtime.answered(answered);
        }
    }
}

impl<O> fmt::Debug for Guard<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner().fmt(f)
    }
}
