//! The guard of several locks: proof that all of them are held.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::join_all;

use crate::error::Error;
use crate::guard::{Guard, Lost};

/// A guard holds several locks, which were taken together. Dropping it releases them in the background;
/// [`unlock`](Self::unlock) waits for the releases, and reports whether all locks were held until then.
///
/// If one of the locks is lost, the guard is lost: it protects nothing any more. The other locks are renewed until the guard
/// goes, so that you can bring to an end what you do under them.
///
/// You may drop it anywhere, like a [`Guard`].
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard {
    /// In the order in which the locks were given.
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// Makes one of guards and their places.
    pub(super) fn new(guards: impl Iterator<Item = (usize, Guard)>) -> Self {
        let mut placed: Vec<(usize, Guard)> = guards.collect();
        placed.sort_by_key(|(place, _)| *place);
        Self { guards: placed.into_iter().map(|(_, guard)| guard).collect() }
    }

    pub(super) fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Returns the name and the fencing token of each lock, in the order in which the locks were given to the handle. A name
    /// that was given twice comes once.
    ///
    /// A write needs the token of the lock that protects what it changes; see [`Guard::token`].
    pub fn tokens(&self) -> impl Iterator<Item = (&str, u64)> {
        self.guards.iter().map(|guard| (guard.name(), guard.token()))
    }

    /// Returns the guard of each lock, in the same order: to release one of them before the others, for example.
    pub fn into_guards(self) -> Vec<Guard> {
        self.guards
    }

    /// Returns true if all locks are certainly held at this moment. It costs no I/O; see [`Guard::is_held`].
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// Returns how long all locks are certainly held if nothing renews them; zero if one is lost.
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// Returns a future that resolves when the first of the locks is lost, to [`Error::Lost`] with its name and the reason;
    /// see [`Guard::lost`].
    ///
    /// The future never resolves after a release: await it together with the work that the locks protect.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: leasehold::MultiGuard, work: impl Future<Output = ()>) {
    /// tokio::select! {
    ///     () = work => println!("done"),
    ///     lost = guard.lost() => println!("stopped: {lost}"),
    /// }
    /// # }
    /// ```
    pub fn lost(&self) -> MultiLost {
        MultiLost { each: self.guards.iter().map(Guard::lost).collect() }
    }

    /// Runs a future, and cancels it if one of the locks is lost before the future ends.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if a lock was lost; `future` was dropped at its current await.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops `future`; the guard still holds the locks.
    pub async fn run_until_lost<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        tokio::select! {
            biased;
            lost = self.lost() => Err(lost),
            output = future => Ok(output),
        }
    }

    /// Releases all locks at once, and waits until the servers have confirmed it; see [`Guard::release`].
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] for the first of the locks that was no longer held; otherwise [`Error::Unavailable`] if no
    /// server confirmed one of the releases within the response timeout. All locks are released in any case.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the releases go on in the background.
    pub async fn release(mut self) -> Result<(), Error> {
        self.give_back().await
    }

    /// Releases all locks: another name for [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// The same as [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// The same as [`release`](Self::release).
    pub async fn unlock(self) -> Result<(), Error> {
        self.release().await
    }

    /// Takes the guards out. The rest holds nothing.
    pub(crate) fn take_all(&mut self) -> Vec<Guard> {
        std::mem::take(&mut self.guards)
    }

    /// Releases like [`release`](Self::release). The guard must not be used afterwards.
    pub(crate) async fn give_back(&mut self) -> Result<(), Error> {
        let released = join_all(self.guards.iter_mut().map(Guard::give_back)).await;
        let mut failures: Vec<Error> = released.into_iter().filter_map(Result::err).collect();
        failures.sort_by_key(|failure| !failure.is_lost());
        failures.into_iter().next().map_or(Ok(()), Err)
    }

    /// Releases all locks, and waits for the confirmations, for at most `limit`. Returns for each lock whether
    /// that came in time, in their order.
    pub(crate) async fn give_back_within(&mut self, limit: Duration) -> Vec<bool> {
        join_all(self.guards.iter_mut().map(|guard| guard.give_back_within(limit))).await
    }

    /// Returns true if the guard has been released already.
    pub(crate) fn is_given_back(&self) -> bool {
        self.guards.iter().all(Guard::is_given_back)
    }

    /// Waits for the loss of a lock, for at most `timeout`, and returns it.
    pub(crate) async fn lost_within(&self, timeout: Duration) -> Option<Error> {
        self.lost().within(timeout, std::future::pending()).await
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiGuard").field(&self.guards).finish()
    }
}

/// A future that resolves when one of several locks is lost; see [`MultiGuard::lost`]. It does not borrow the guard, and is
/// `Send + Unpin + 'static`. Each clone resolves.
#[derive(Clone)]
#[must_use = "futures do nothing unless polled"]
pub struct MultiLost {
    each: Vec<Lost>,
}

impl MultiLost {
    /// The loss of a single lock.
    pub(crate) fn one(lost: Lost) -> Self {
        Self { each: vec![lost] }
    }

    /// Returns true if all locks are certainly held.
    pub(crate) fn is_held(&self) -> bool {
        self.each.iter().all(Lost::is_held)
    }

    /// Waits for the loss of one of the locks, for at most `timeout`, or until `over` ends. Returns the loss.
    pub(crate) async fn within(
        self,
        timeout: Duration,
        over: impl Future<Output = ()>,
    ) -> Option<Error> {
        let clock = self.each[0].clock().clone();
        let lost = async {
            tokio::select! {
                biased;
                lost = self => Some(lost),
                () = over => None,
            }
        };
        clock.until(clock.now().plus(timeout), lost).await.flatten()
    }
}

impl Future for MultiLost {
    type Output = Error;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Error> {
        for lost in &mut self.each {
            if let Poll::Ready(reason) = Pin::new(&mut *lost).poll(cx) {
                return Poll::Ready(Error::lost(lost.lock(), reason));
            }
        }
        Poll::Pending
    }
}

impl fmt::Debug for MultiLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.each).finish()
    }
}

#[cfg(test)]
mod tests;
