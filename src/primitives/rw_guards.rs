//! The guards of a read-write lock.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::rw::Side;
use crate::config::Terms;
use crate::engine::gate::Gate;
use crate::engine::kind::Wanted;
use crate::error::Error;
use crate::guard::{Guard, ReadVersion};

/// Holds a read-write lock for reading. It is a [`Guard`] with all its methods.
///
/// Its [`token`](Guard::token) names the version that is read: it is at least the token of every earlier writer, and less than
/// that of every later one. Readers between two writers have the same; over several servers it may differ, if a writer did not
/// get a majority in between. After a failover or a restart, in which a server may have forgotten a writer, it is a later one.
/// (Without a grace it is an earlier one then: see [`restart_quarantine`](crate::ClientBuilder::restart_quarantine).)
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct ReadGuard {
    guard: Guard,
}

/// Holds a read-write lock for writing. It is a [`Guard`] with all its methods.
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard {
    guard: Guard,
    downgrade: Downgrade,
}

/// How the guard of a writer becomes that of a reader.
pub(crate) struct Downgrade {
    side: Arc<Side>,
    terms: Terms,
}

impl ReadGuard {
    pub(super) fn new(guard: Guard) -> Self {
        Self { guard }
    }

    /// Releases the lock; see [`Guard::unlock`].
    ///
    /// # Errors
    ///
    /// The same as [`Guard::unlock`].
    pub async fn unlock(self) -> Result<(), Error> {
        self.guard.unlock().await
    }
}

impl WriteGuard {
    pub(super) fn new(guard: Guard, side: Arc<Side>, terms: Terms) -> Self {
        Self { guard, downgrade: Downgrade { side, terms } }
    }

    /// Releases the lock; see [`Guard::unlock`].
    ///
    /// # Errors
    ///
    /// The same as [`Guard::unlock`].
    pub async fn unlock(self) -> Result<(), Error> {
        self.guard.unlock().await
    }

    /// Turns the hold into a read hold; no writer can get in between. Readers that wait before the next writer come in at
    /// once.
    ///
    /// While the owner has other guards of this hold, for reading or for writing, **the lock stays locked for writing**: the
    /// reader is another guard of that hold, it has no [version](Guard::version), and a line of the log says so. So downgrade
    /// the only guard, and take others for reading afterwards. Redisson's way, to read within the write and then to end the
    /// write, does not let readers in here until the last guard of the hold is gone.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost; [`Error::Unavailable`] if the servers did not answer. The lock is not held any
    /// more in either case.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released in the background.
    pub async fn downgrade(self) -> Result<ReadGuard, Error> {
        let (guard, downgrade) = self.into_parts();
        downgrade.of(guard).await
    }

    /// Returns true if nobody has written since a reader of the [version](Guard::version) `seen`. So what a reader has read can
    /// be worked on without the lock, and is read again only if it has changed:
    ///
    /// ```no_run
    /// # async fn load() -> String { String::new() }
    /// # async fn edited(text: &str) -> String { text.to_owned() }
    /// # async fn store(_: String) {}
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let lock = client.rw_lock("config");
    /// loop {
    ///     let (seen, old) = lock.run_read(async |reading| (reading.version(), load().await)).await?;
    ///     let new = edited(&old).await; // takes long, and nobody waits
    ///     let writing = lock.write().await?;
    ///     if writing.unchanged_since(seen) {
    ///         store(new).await;
    ///         return writing.unlock().await;
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// It costs no I/O. What this hold itself has written does not count. It is false for `None`, which is the version of a
    /// reader whose owner was writing: that owner may have written after it had read.
    ///
    /// It may be false although nobody has written: if the answer to this writer's request was lost and had to be asked for
    /// again, if a server has lost its counter, if the counters of several servers differ, and after a failover or a restart.
    ///
    /// It does not know of the writers of Redisson, which take no tokens; nor, without a grace
    /// ([`restart_quarantine`](crate::ClientBuilder::restart_quarantine) zero, or no right to write its mark), of those that
    /// a server forgot.
    pub fn unchanged_since(&self, seen: impl Into<Option<ReadVersion>>) -> bool {
        self.guard.follows(seen.into())
    }

    pub(crate) fn into_parts(self) -> (Guard, Downgrade) {
        (self.guard, self.downgrade)
    }
}

impl Downgrade {
    /// `guard`: that of the writer.
    pub(crate) async fn of(self, guard: Guard) -> Result<ReadGuard, Error> {
        let Self { side, terms } = self;
        let asks = Arc::new(side.instead_of(guard.lease_id()));
        let wanted = Wanted { side: Arc::new(side.for_reading()), terms };
        let entry = Gate::replace(guard.into_entry(), asks, wanted).await?;
        Ok(ReadGuard::new(Guard::new(entry)))
    }
}

impl fmt::Debug for WriteGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteGuard").field("guard", &self.guard).finish_non_exhaustive()
    }
}

macro_rules! is_a_guard {
    ($guard:ty) => {
        impl Deref for $guard {
            type Target = Guard;

            fn deref(&self) -> &Guard {
                &self.guard
            }
        }

        impl Borrow<Guard> for $guard {
            fn borrow(&self) -> &Guard {
                &self.guard
            }
        }

        impl From<$guard> for Guard {
            fn from(of_kind: $guard) -> Self {
                of_kind.guard
            }
        }
    };
}

is_a_guard!(ReadGuard);
is_a_guard!(WriteGuard);
