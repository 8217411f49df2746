//! The handles to signals, for threads.

use std::fmt;
use std::time::Duration;

use super::runtime::Runtime;
use crate::error::Error;
use crate::primitives::signal::Notice;
use crate::primitives::signal_group::Changes;

/// A handle to a signal, for threads; see [`leasehold::Signal`](crate::Signal).
///
/// ```no_run
/// # fn load_prices() {}
/// # fn example(client: leasehold::blocking::Client) -> Result<(), leasehold::Error> {
/// let changed = client.signal("prices");
/// let mut seen = changed.seen()?;
/// loop {
///     load_prices(); // at least as new as `seen`
///     seen = changed.changed(seen)?.number;
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Signal {
    signal: crate::Signal,
    runtime: Runtime,
}

impl Signal {
    pub(super) fn new(signal: crate::Signal, runtime: &Runtime) -> Self {
        Self { signal, runtime: runtime.clone() }
    }

    /// Returns the signal's name.
    pub fn name(&self) -> &str {
        self.signal.name()
    }

    /// Asks the server for the number of the last signal; see [`leasehold::Signal::seen`](crate::Signal::seen).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn seen(&self) -> Result<u64, Error> {
        self.runtime.wait(self.signal.seen())?
    }

    /// Gives the signal to all; see [`leasehold::Signal::notify_all`](crate::Signal::notify_all).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn notify_all(&self, data: impl AsRef<[u8]>) -> Result<u64, Error> {
        self.runtime.wait(self.signal.notify_all(data))?
    }

    /// Waits until the number is not `seen` any more; see [`leasehold::Signal::changed`](crate::Signal::changed).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn changed(&self, seen: u64) -> Result<Notice, Error> {
        self.runtime.wait(self.signal.changed(seen))?
    }

    /// Waits for a change, for at most `timeout`; see
    /// [`leasehold::Signal::changed_with_timeout`](crate::Signal::changed_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn changed_with_timeout(&self, seen: u64, timeout: Duration) -> Result<Notice, Error> {
        self.runtime.wait(self.signal.changed_with_timeout(seen, timeout))?
    }

    /// Waits until one of several signals has changed, for at most `timeout`; see
    /// [`leasehold::Signal::any_changed_with_timeout`](crate::Signal::any_changed_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn any_changed_with_timeout(
        signals: &[(Signal, u64)],
        timeout: Duration,
    ) -> Result<(usize, Notice), Error> {
        let Some((first, _)) = signals.first() else {
            return Err(crate::Signal::none_of_none());
        };
        first.runtime.wait(crate::Signal::any_changed_with_timeout(&inner(signals), timeout))?
    }

    /// Waits until each of several signals has changed, for at most `timeout`; see
    /// [`leasehold::Signal::all_changed_with_timeout`](crate::Signal::all_changed_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn all_changed_with_timeout(
        signals: &[(Signal, u64)],
        timeout: Duration,
    ) -> Result<Vec<Notice>, Error> {
        let Some((first, _)) = signals.first() else { return Ok(Vec::new()) };
        first.runtime.wait(crate::Signal::all_changed_with_timeout(&inner(signals), timeout))?
    }
}

fn inner(signals: &[(Signal, u64)]) -> Vec<(crate::Signal, u64)> {
    signals.iter().map(|(signal, seen)| (signal.signal.clone(), *seen)).collect()
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.signal.fmt(f)
    }
}

/// A handle to a group of signals, for threads; see [`leasehold::SignalGroup`](crate::SignalGroup).
#[derive(Clone)]
pub struct SignalGroup {
    group: crate::SignalGroup,
    runtime: Runtime,
}

impl SignalGroup {
    pub(super) fn new(group: crate::SignalGroup, runtime: &Runtime) -> Self {
        Self { group, runtime: runtime.clone() }
    }

    /// Returns the group's name.
    pub fn name(&self) -> &str {
        self.group.name()
    }

    /// Asks the server for the number of the last signal; see [`leasehold::SignalGroup::seen`](crate::SignalGroup::seen).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn seen(&self) -> Result<u64, Error> {
        self.runtime.wait(self.group.seen())?
    }

    /// Signals these names; see [`leasehold::SignalGroup::notify`](crate::SignalGroup::notify).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    pub fn notify(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<u64, Error> {
        self.runtime.wait(self.group.notify(names))?
    }

    /// Waits until names were signalled, and returns them; see
    /// [`leasehold::SignalGroup::changed`](crate::SignalGroup::changed).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn changed(&self, seen: u64) -> Result<Changes, Error> {
        self.runtime.wait(self.group.changed(seen))?
    }

    /// Waits for a change, for at most `timeout`; see
    /// [`leasehold::SignalGroup::changed_with_timeout`](crate::SignalGroup::changed_with_timeout).
    ///
    /// # Errors
    ///
    /// The same errors, and [`Error::InAsyncContext`].
    #[track_caller]
    pub fn changed_with_timeout(&self, seen: u64, timeout: Duration) -> Result<Changes, Error> {
        self.runtime.wait(self.group.changed_with_timeout(seen, timeout))?
    }
}

impl fmt::Debug for SignalGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.group.fmt(f)
    }
}
