//! The guards of a read-write lock.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::rw::Side;
use crate::config::Terms;
use crate::engine::gate::Gate;
use crate::engine::kind::Wanted;
use crate::error::Error;
use crate::guard::{Guard, Lost, ReadVersion};
use crate::key::Holder;
use crate::owner::Owner;

/// Holds a read-write lock for reading. You may drop it anywhere, like a [`Guard`].
#[doc(alias = "RwLockReadGuard")]
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct ReadGuard {
    guard: Guard,
}

/// Holds a read-write lock for writing. You may drop it anywhere, like a [`Guard`].
#[doc(alias = "RwLockWriteGuard")]
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard {
    guard: Guard,
    downgrade: Downgrade,
}

/// How the guard of a writer becomes that of a reader.
#[derive(Clone)]
pub(crate) struct Downgrade {
    side: Arc<Side>,
    terms: Terms,
}

impl ReadGuard {
    pub(super) fn new(guard: Guard) -> Self {
        Self { guard }
    }

    /// Returns the token of the version that is read: it is at least the token of every earlier writer, and less than that
    /// of every later one.
    ///
    /// Readers between two writers have the same; over several masters it may differ, if a writer did not get a majority in
    /// between. After a failover or a restart, in which a server may have forgotten a writer, it is a later one. (Without a
    /// grace it is an earlier one then: see [`restart_quarantine`](crate::ClientBuilder::restart_quarantine).)
    pub fn token(&self) -> u64 {
        self.guard.token()
    }

    /// Returns the version that is read: what the last writer left. Keep it with what was read, for
    /// [`WriteGuard::unchanged_since`].
    ///
    /// `None` in a hold that is a writer's: its owner may write while it reads.
    pub fn version(&self) -> Option<ReadVersion> {
        self.guard.version()
    }

    /// Returns a nested guard of the same hold, without I/O.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost.
    pub fn reenter(&self) -> Result<Self, Error> {
        Ok(Self::new(self.guard.reenter()?))
    }

    pub(crate) fn into_inner(self) -> Guard {
        self.guard
    }
}

impl WriteGuard {
    pub(super) fn new(guard: Guard, side: Arc<Side>, terms: Terms) -> Self {
        Self { guard, downgrade: Downgrade { side, terms } }
    }

    /// Returns the fencing token, which is higher than that of every earlier writer; see [`Guard::token`].
    pub fn token(&self) -> u64 {
        self.guard.token()
    }

    /// Returns a nested guard of the same hold, without I/O. The lock stays locked for writing until both are gone.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost.
    pub fn reenter(&self) -> Result<Self, Error> {
        Ok(Self { guard: self.guard.reenter()?, downgrade: self.downgrade.clone() })
    }

    /// Turns the hold into a read hold; no writer can get in between. Readers that wait before the next writer come in at
    /// once.
    ///
    /// While the owner has other guards of this hold, for reading or for writing, **the lock stays locked for writing**: the
    /// reader is another guard of that hold, it has no [version](ReadGuard::version), and a line of the log says so. So downgrade
    /// the only guard, and take others for reading afterwards. Redisson's way, to read within the write and then to end the
    /// write, does not let readers in here until the last guard of the hold is gone.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost; [`Error::Unavailable`] if the servers did not answer; [`Error::Closed`] if the
    /// client was shut down meanwhile. The lock is not held any more in any case.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released in the background.
    pub async fn downgrade(self) -> Result<ReadGuard, Error> {
        let (guard, downgrade) = self.into_parts();
        downgrade.of(guard).await
    }

    /// Returns true if nobody has written since a reader of the [version](ReadGuard::version) `seen`. So what a reader has read can
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
        let terms = terms.outlasting_min_hold();
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

/// What the guards of readers and writers have in common with each other, and with those of other locks.
macro_rules! lock_guard {
    ($guard:ident) => {
        impl $guard {
            /// Returns the lock's name.
            pub fn name(&self) -> &str {
                self.guard.name()
            }

            /// Returns true if the lock is certainly held at this moment; see [`Guard::is_held`]. It costs no I/O.
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

            /// Returns the owner of the hold. Pass it to [`RwLock::owned_by`](crate::RwLock::owned_by) to nest.
            pub fn owner(&self) -> &Owner {
                self.guard.owner()
            }

            /// Returns the holder: the text that names this hold on the servers.
            pub fn holder(&self) -> Holder {
                self.guard.holder()
            }

            /// Returns a future that resolves when the lock is lost; see [`Guard::lost`].
            ///
            /// # Cancel safety
            ///
            /// Dropping the future has no effect.
            pub fn lost(&self) -> Lost {
                self.guard.lost()
            }

            /// Returns true if somebody else is known to want the lock, and has to wait; see [`Guard::is_wanted`].
            pub fn is_wanted(&self) -> bool {
                self.guard.is_wanted()
            }

            /// Waits until somebody else wants the lock; see [`Guard::wanted`].
            ///
            /// # Cancel safety
            ///
            /// Dropping the future has no effect.
            pub async fn wanted(&self) {
                self.guard.wanted().await;
            }

            /// Runs a future, and cancels it if the lock is lost before the future ends.
            ///
            /// # Errors
            ///
            /// [`Error::Lost`] if the lock was lost; `future` was dropped at its current await.
            ///
            /// # Cancel safety
            ///
            /// Dropping it drops `future`; the guard still holds the lock.
            pub async fn run_until_lost<F: Future>(&self, future: F) -> Result<F::Output, Error> {
                self.guard.run_until_lost(future).await
            }

            /// Extends the lock so that it lasts for at least `lease` from now (10 ms to 30 days, and no longer than the
            /// `restart_quarantine` if there is one); see [`Guard::extend`].
            ///
            /// # Errors
            ///
            /// The same as [`Guard::extend`].
            ///
            /// # Cancel safety
            ///
            /// The same as [`Guard::extend`].
            pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
                self.guard.extend(lease).await
            }

            /// Releases the lock, and waits until the servers have confirmed it; see [`Guard::release`].
            ///
            /// # Errors
            ///
            /// The same as [`Guard::release`].
            ///
            /// # Cancel safety
            ///
            /// If the future is dropped, the release goes on in the background.
            pub async fn release(self) -> Result<(), Error> {
                self.guard.release().await
            }

            /// Releases the lock: another name for [`release`](Self::release).
            ///
            /// # Errors
            ///
            /// The same as [`Guard::release`].
            ///
            /// # Cancel safety
            ///
            /// The same as [`release`](Self::release).
            pub async fn unlock(self) -> Result<(), Error> {
                self.release().await
            }

            pub(crate) fn inner(&self) -> &Guard {
                &self.guard
            }
        }
    };
}

lock_guard!(ReadGuard);
lock_guard!(WriteGuard);
