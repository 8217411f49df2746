//! The handle to an election, for threads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::runtime::{PATIENCE, Runtime};
use super::watch::{End, LossWatch};
use crate::error::{Error, LossReason};
use crate::key::Holder;
use crate::primitives::leader::{ElectionState, Leader};
use crate::primitives::run::Outcome;

/// A handle to an election, for threads; see [`leasehold::Election`](crate::Election).
///
/// ```no_run
/// # fn example(client: leasehold::blocking::Client) -> Result<(), leasehold::Error> {
/// let leadership = client.election("scheduler").with_value("http://10.0.0.7:8080").campaign()?;
/// println!("leading in term {}", leadership.term());
/// leadership.resign()
/// # }
/// ```
#[derive(Clone)]
pub struct Election {
    election: crate::Election,
    runtime: Runtime,
}

impl Election {
    pub(super) fn new(election: crate::Election, runtime: &Runtime) -> Self {
        Self { election, runtime: runtime.clone() }
    }

    /// Returns the election's name, which is the name of its lock.
    pub fn name(&self) -> &str {
        self.election.name()
    }

    /// Returns a handle with another TTL; see [`leasehold::Election::with_ttl`](crate::Election::with_ttl).
    #[must_use = "it returns another handle"]
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        Self::new(self.election.with_ttl(ttl), &self.runtime)
    }

    /// Returns a handle whose leaders are renewed for a limited time; see
    /// [`leasehold::Election::with_max_hold`](crate::Election::with_max_hold).
    #[must_use = "it returns another handle"]
    pub fn with_max_hold(&self, max_hold: Duration) -> Self {
        Self::new(self.election.with_max_hold(max_hold), &self.runtime)
    }

    /// Returns a handle whose candidates wait for at most `wait`; see
    /// [`leasehold::Election::with_wait`](crate::Election::with_wait).
    #[must_use = "it returns another handle"]
    pub fn with_wait(&self, wait: Duration) -> Self {
        Self::new(self.election.with_wait(wait), &self.runtime)
    }

    /// Returns a handle whose leaders say `value` when they begin; see
    /// [`leasehold::Election::with_value`](crate::Election::with_value).
    #[must_use = "it returns another handle"]
    pub fn with_value(&self, value: impl Into<Arc<str>>) -> Self {
        Self::new(self.election.with_value(value), &self.runtime)
    }

    /// Becomes a candidate, and waits until it leads; see [`leasehold::Election::campaign`](crate::Election::campaign).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn campaign(&self) -> Result<Leadership, Error> {
        let leadership = self.runtime.wait(self.election.campaign())??;
        Ok(Leadership::new(leadership, &self.runtime))
    }

    /// Becomes a candidate, and waits until it leads, for at most `timeout`; see
    /// [`leasehold::Election::campaign_with_timeout`](crate::Election::campaign_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn campaign_with_timeout(&self, timeout: Duration) -> Result<Leadership, Error> {
        let leadership = self.runtime.wait(self.election.campaign_with_timeout(timeout))??;
        Ok(Leadership::new(leadership, &self.runtime))
    }

    /// Becomes leader if nobody leads now, and no candidate waits; see
    /// [`leasehold::Election::try_campaign`](crate::Election::try_campaign).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_campaign(&self) -> Result<Option<Leadership>, Error> {
        let leadership = self.runtime.wait(self.election.try_campaign())??;
        Ok(leadership.map(|leadership| Leadership::new(leadership, &self.runtime)))
    }

    /// Becomes a candidate, and waits until it leads, for at most `timeout`. Returns `None` if others led; see
    /// [`leasehold::Election::try_campaign_for`](crate::Election::try_campaign_for).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn try_campaign_for(&self, timeout: Duration) -> Result<Option<Leadership>, Error> {
        let leadership = self.runtime.wait(self.election.try_campaign_for(timeout))??;
        Ok(leadership.map(|leadership| Leadership::new(leadership, &self.runtime)))
    }

    /// Waits to become leader, runs `body` once, and resigns when it ends.
    ///
    /// A thread cannot be stopped: if the leadership is lost in the meantime, `body` goes on. It can learn of the loss from
    /// [`Leadership::is_held`] or [`Leadership::wait_lost`]. [`run_each_term`](Self::run_each_term) begins again then.
    ///
    /// # Errors
    ///
    /// The same as [`campaign`](Self::campaign); [`Error::Lost`] if the leadership was lost before it ended: the result of
    /// `body` is dropped.
    ///
    /// # Panics
    ///
    /// It panics if `body` does; the leadership ends.
    #[track_caller]
    pub fn run<T>(&self, body: impl FnOnce(&Leadership) -> T) -> Result<T, Error> {
        self.run_with_outcome(body)?.into_result()
    }

    /// Works like [`run`](Self::run), but keeps the result of `body` even if the leadership was lost.
    ///
    /// # Errors
    ///
    /// The same as [`campaign`](Self::campaign). The [`Outcome`] reports a loss.
    ///
    /// # Panics
    ///
    /// It panics if `body` does; the leadership ends.
    #[track_caller]
    pub fn run_with_outcome<T>(
        &self,
        body: impl FnOnce(&Leadership) -> T,
    ) -> Result<Outcome<T>, Error> {
        let leadership = self.campaign()?;
        let output = body(&leadership);
        Ok(Outcome::new(output, leadership.release()))
    }

    /// Waits to become leader, and runs `body` in each term of this process, until it ends in the term in which it began; then
    /// resigns. Servers that do not answer are waited for.
    ///
    /// A thread cannot be stopped: if the leadership is lost in the meantime, `body` goes on, and what it returns is dropped;
    /// it begins again in the next term. So it should look at [`Leadership::is_held`], and return soon when that is false.
    ///
    /// # Errors
    ///
    /// The same as [`campaign`](Self::campaign), except for [`Error::Unavailable`] and [`Error::Lost`].
    ///
    /// # Panics
    ///
    /// It panics if `body` does; the leadership ends.
    #[track_caller]
    pub fn run_each_term<T>(&self, mut body: impl FnMut(&Leadership) -> T) -> Result<T, Error> {
        let mut failures = 0;
        loop {
            match self.campaign() {
                Ok(leadership) => {
                    failures = 0;
                    let output = body(&leadership);
                    if leadership.is_held() {
                        // The body has ended; if the leadership is lost now, others have their turn anyway.
                        let _ = leadership.release();
                        return Ok(output);
                    }
                }
                Err(error) => {
                    self.runtime.wait(self.election.pause_after(error, failures))??;
                    failures += 1;
                }
            }
        }
    }

    /// Asks the servers who leads; see [`leasehold::Election::leader`](crate::Election::leader).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn leader(&self) -> Result<Option<Leader>, Error> {
        self.runtime.wait(self.election.leader())?
    }

    /// Asks the servers who leads, or why nobody can be named; see [`leasehold::Election::state`](crate::Election::state).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn state(&self) -> Result<ElectionState, Error> {
        self.runtime.wait(self.election.state())?
    }

    /// Returns an observer of who leads and of each change; see
    /// [`leasehold::Election::observe`](crate::Election::observe).
    pub fn observe(&self) -> Observer {
        Observer { observer: self.election.observe(), runtime: self.runtime.clone() }
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.election.fmt(f)
    }
}

/// A term of leadership; see [`leasehold::Leadership`](crate::Leadership). It may move to another thread.
///
/// Dropping it ends the leadership, even in a panic, and waits for at most 250 ms for the server's answer. In async code, the
/// drop ends it in the background.
#[must_use = "the leadership ends when this is dropped"]
pub struct Leadership {
    // This is dropped before the runtime, which completes its release.
    leadership: crate::Leadership,
    runtime: Runtime,
    end: End,
}

impl Leadership {
    fn new(leadership: crate::Leadership, runtime: &Runtime) -> Self {
        runtime.answered(true);
        Self { leadership, runtime: runtime.clone(), end: End::default() }
    }

    /// Returns the election's name.
    pub fn name(&self) -> &str {
        self.leadership.name()
    }

    /// Returns the term; see [`leasehold::Leadership::term`](crate::Leadership::term).
    pub fn term(&self) -> u64 {
        self.leadership.term()
    }

    /// Returns true if this process certainly leads at this moment. It costs no I/O.
    #[doc(alias = "is_leader")]
    pub fn is_held(&self) -> bool {
        self.leadership.is_held()
    }

    /// Returns how long this process certainly leads if nothing renews the leadership; zero if it is lost.
    pub fn remaining(&self) -> Duration {
        self.leadership.remaining()
    }

    /// Returns the holder: the text that names this leader on the servers.
    pub fn holder(&self) -> Holder {
        self.leadership.holder()
    }

    /// Waits until the leadership is lost, for at most `timeout`. Returns `None` if it was not lost.
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncContext`]; [`Error::Closed`] in a fork of the process, or in the destructor of a thread-local.
    pub fn wait_lost(&self, timeout: Duration) -> Result<Option<LossReason>, Error> {
        self.runtime.wait(self.leadership.lost_within(timeout))
    }

    /// Returns a watcher of the loss, which can be sent to other threads; see [`Guard::watch`](super::Guard::watch).
    pub fn watch(&self) -> LossWatch {
        self.end.watch(self.leadership.lost(), &self.runtime)
    }

    /// Publishes `value` to `leader()` and to observers; see
    /// [`leasehold::Leadership::proclaim`](crate::Leadership::proclaim).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn proclaim(&self, value: impl AsRef<str>) -> Result<(), Error> {
        self.runtime.wait(self.leadership.proclaim(value))?
    }

    /// Ends the leadership, and waits until the servers have confirmed it; see
    /// [`leasehold::Leadership::release`](crate::Leadership::release).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`]; the leadership then ends in the background.
    pub fn release(mut self) -> Result<(), Error> {
        self.runtime.wait(self.leadership.give_back())?
    }

    /// Ends the leadership: another name for [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// The same as [`release`](Self::release).
    pub fn resign(self) -> Result<(), Error> {
        self.release()
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        // In async code, the drop of the field does it in the background.
        if !self.leadership.is_given_back()
            && self.runtime.answers()
            && let Ok(answered) = self.runtime.wait(self.leadership.give_back_within(PATIENCE))
        {
            self.runtime.answered(answered);
        }
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.leadership.fmt(f)
    }
}

/// Reports the leader, and then each change of it; see [`leasehold::Observer`](crate::Observer).
pub struct Observer {
    observer: crate::Observer,
    runtime: Runtime,
}

impl Observer {
    /// Waits until the leader changes, or says something else, and returns the leader; see
    /// [`leasehold::Observer::changed`](crate::Observer::changed). The first call returns at once.
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn changed(&mut self) -> Result<Option<Leader>, Error> {
        self.runtime.wait(self.observer.changed())?
    }

    /// Waits for a change, for at most `timeout`; see
    /// [`leasehold::Observer::changed_with_timeout`](crate::Observer::changed_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn changed_with_timeout(&mut self, timeout: Duration) -> Result<Option<Leader>, Error> {
        self.runtime.wait(self.observer.changed_with_timeout(timeout))?
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.observer.fmt(f)
    }
}
