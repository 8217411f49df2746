//! A term of leadership: proof that this process leads.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::leader::Pulpit;
use crate::error::Error;
use crate::guard::{Guard, Lost};
use crate::key::Holder;

/// A term of leadership, which lasts until it is dropped, resigned or lost; see [`Election`](crate::Election).
///
/// [`resign`](Self::resign) ends it and waits until the servers have confirmed that. Dropping it does the same in the
/// background. In either case, the next candidate is told by the server at once, and those who observe are told, too.
#[doc(alias = "Guard")]
#[must_use = "the leadership ends when this is dropped"]
pub struct Leadership {
    guard: Guard,
    pulpit: Pulpit,
    /// How many times it has spoken.
    spoken: AtomicU64,
}

impl Leadership {
    /// Begins a term. Nobody has been told of it yet.
    pub(super) fn new(guard: Guard, pulpit: Pulpit) -> Self {
        Self { guard, pulpit, spoken: AtomicU64::new(0) }
    }

    /// Returns the election's name.
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// Returns the term: a number that is higher than that of every leader before, in all processes. It is the fencing token
    /// of the election's lock.
    ///
    /// Send it along with everything that only the leader may do, and let the receiver refuse a term lower than the highest
    /// that it has seen. Only that stops a former leader that was paused and does not know yet that another one leads.
    #[doc(alias = "token")]
    pub fn term(&self) -> u64 {
        self.guard.token()
    }

    /// Returns true if this process certainly leads at this moment. It costs no I/O; see [`Guard::is_held`].
    #[doc(alias = "is_leader")]
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Returns how long it certainly leads if nothing renews that; zero if it is lost.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Returns the holder: the text that names this leader on the servers.
    pub fn holder(&self) -> Holder {
        self.guard.holder()
    }

    /// Returns a future that resolves when the leadership is lost; see [`Guard::lost`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub fn lost(&self) -> Lost {
        self.guard.lost()
    }

    /// Runs a future, and cancels it if the leadership is lost before the future ends.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if it was lost; `future` was dropped at its current await.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops `future`; the leadership goes on.
    pub async fn run_until_lost<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.guard.run_until_lost(future).await
    }

    /// Publishes `value` to [`Election::leader`](crate::Election::leader) and to observers, in place of the leader's value
    /// before: for example its address. At most 64 KiB.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if this process does not lead any more; nothing was said then. [`Error::Unavailable`] if the servers, or
    /// a majority of them, did not confirm it: it may have been said. [`Error::InvalidArgument`] if the value is too long;
    /// [`Error::Denied`], [`Error::WrongType`], [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, `value` may have been said, or be said a moment later. It never replaces what is said by a
    /// later call.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let leadership = client.election("scheduler").campaign().await?;
    /// leadership.proclaim("http://10.0.0.7:8080").await?;
    /// # Ok(()) }
    /// ```
    pub async fn proclaim(&self, value: impl AsRef<str>) -> Result<(), Error> {
        let value = value.as_ref();
        check_value(value).map_err(Error::of_argument)?;
        // A later call has a higher number, whichever of them reaches a server first.
        let number = self.spoken.fetch_add(1, Ordering::Relaxed) + 1;
        for _ in 0..ATTEMPTS {
            self.guard.check()?;
            if self.pulpit.say(self.pulpit.call(&self.guard, number, value)).await? {
                return Ok(());
            }
            // The lock is missing somewhere. This finds out whether it is lost; if it can be put back, it is.
            self.guard.extend(self.pulpit.handle.ttl()).await?;
        }
        Err(self.pulpit.unheard())
    }

    /// Ends the leadership, and waits until the servers have confirmed it. The next candidate is told at once.
    ///
    /// # Errors
    ///
    /// The same as [`Guard::release`]: [`Error::Lost`] if it had been lost before, so that another may have led meanwhile;
    /// [`Error::Unavailable`] if no server confirmed it in time: the client goes on telling them, in the background.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the leadership ends in the background.
    #[doc(alias = "unlock")]
    pub async fn release(mut self) -> Result<(), Error> {
        self.give_back().await
    }

    /// Ends the leadership: another name for [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// The same as [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// The same as [`release`](Self::release).
    pub async fn resign(self) -> Result<(), Error> {
        self.release().await
    }

    /// Resigns like [`release`](Self::release). The leadership must not be used afterwards.
    pub(crate) async fn give_back(&mut self) -> Result<(), Error> {
        self.guard.give_back().await
    }

    /// Waits for the loss, for at most `timeout`, and returns its reason.
    pub(crate) async fn lost_within(&self, timeout: Duration) -> Option<crate::LossReason> {
        self.guard.lost_within(timeout).await
    }

    /// Resigns, and waits for the confirmation, for at most `limit`. Returns true if it came in time.
    pub(crate) async fn give_back_within(&mut self, limit: Duration) -> bool {
        self.guard.give_back_within(limit).await
    }

    pub(crate) fn is_given_back(&self) -> bool {
        self.guard.is_given_back()
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("election", &self.name())
            .field("term", &self.term())
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// Fails if a leader cannot say `value`.
pub(super) fn check_value(value: &str) -> Result<(), Error> {
    if value.len() > LONGEST_VALUE {
        let length = value.len();
        return Err(Error::config(format!("a leader's value has {length} bytes, more than 65536")));
    }
    Ok(())
}

const LONGEST_VALUE: usize = 65_536;
/// Once more after the lock was put back.
const ATTEMPTS: u32 = 2;
