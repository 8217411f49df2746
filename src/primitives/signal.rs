//! The handle to a signal.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::subject::{Sort, Subject};
use crate::engine::gate::Engine;
use crate::error::Error;
use crate::key::{self, LockKind};
use crate::script::{self, Arg, Call, Reply, Script, ttl_ms};

/// A handle to a signal, by which one process tells all others that something has changed. The handle itself holds nothing, and
/// making one costs no I/O.
///
/// A signal is a number on the server that each [`notify_all`](Self::notify_all) raises, and the data that came with the last
/// one. So a signal is not lost while nobody listens, as a message would be: note the number that you have
/// [`seen`](Self::seen), look at what it is about, and wait until the number has [`changed`](Self::changed). What is signalled
/// between the two ends the wait at once.
///
/// * A waiter hears of it by a message. If the message is lost, the wait ends 4 s later at most.
/// * Several signals in a row may end one wait, with the data of the last. To process each of them, use a queue or a stream.
/// * Numbers are the server's microseconds, or one more than the last. So they do not repeat after a restart that loses them.
///   Such a loss ends all waits with number 0 and without data, as if there had been a signal: there may have been one.
/// * A server that takes over in a failover may lack the last signals. A waiter that had not seen them goes on waiting; one that
///   had is woken.
/// * The server keeps the number and the data for a day after the last signal, or the last wait for one.
///
/// To wake only *one* of those who wait, use a [`Semaphore`](crate::Semaphore) of no permits:
/// [`add_permits(1)`](crate::Semaphore::add_permits) wakes one, which then [forgets](crate::Permit::forget) its permit. If it
/// crashes before that, another one is woken.
///
/// Redisson has no counterpart: a message of its `RTopic` is lost if nobody listens. A signal is on one server, or on a master of
/// a cluster. With [several independent masters](crate::ClientBuilder::nodes) every call fails with [`Error::SingleServerOnly`].
///
/// # Examples
///
/// ```no_run
/// # async fn load_prices() {}
/// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
/// let changed = client.signal("prices");
/// let mut seen = changed.seen().await?;
/// loop {
///     load_prices().await; // at least as new as `seen`
///     seen = changed.changed(seen).await?.number;
/// }
/// # }
/// ```
///
/// Where a condition is about data that a lock protects, note the number under the lock:
///
/// ```no_run
/// # async fn is_there_work() -> bool { true }
/// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
/// let (lock, signal) = (client.mutex("orders"), client.signal("orders"));
/// let mut guard = lock.lock().await?;
/// while !is_there_work().await {
///     let seen = signal.seen().await?;
///     guard.unlock().await?;
///     signal.changed(seen).await?; // returns even if it came before this line
///     guard = lock.lock().await?;
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "RTopic")]
#[doc(alias = "condition")]
#[derive(Clone)]
pub struct Signal {
    subject: Subject,
    key: Arc<str>,
}

/// What a signal has come to; see [`Signal::changed`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notice {
    /// The number of the last signal: what has been seen from now on. It is 0 if the server knows of none.
    pub number: u64,
    /// What came with the last signal.
    pub data: Arc<[u8]>,
}

impl Signal {
    pub(crate) fn new(engine: &Arc<Engine>, name: Arc<str>) -> Self {
        let (key, channel) = (key::signal_key(&name), key::signal_channel(&name));
        Self { subject: Subject::new(engine, name, channel, SIGNAL), key }
    }

    /// Returns the signal's name.
    pub fn name(&self) -> &str {
        &self.subject.name
    }

    /// Asks the server for the number of the last signal; 0 if it knows of none.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], [`Error::SingleServerOnly`], [`Error::InvalidName`], [`Error::WrongType`], [`Error::Denied`],
    /// [`Error::Closed`].
    pub async fn seen(&self) -> Result<u64, Error> {
        self.subject.read(self.status(None), first_number).await
    }

    /// Gives the signal to all who wait for it or will look at it later, with `data` of 64 KiB at most. Returns how many clients
    /// listen at this moment; each of them may wait in several tasks.
    ///
    /// It is sent once, and is not repeated. You may repeat it: then some may be woken twice.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]: the signal may have been given nevertheless; [`Error::InvalidArgument`] if `data` is too long;
    /// otherwise the same as [`seen`](Self::seen).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the signal may be given or not.
    #[doc(alias = "notify")]
    #[doc(alias = "publish")]
    pub async fn notify_all(&self, data: impl AsRef<[u8]>) -> Result<u64, Error> {
        let data: Arc<[u8]> = data.as_ref().into();
        if data.len() > MOST_DATA {
            return Err(Error::argument(format!(
                "a signal's data have {} bytes; they must have at most {MOST_DATA}",
                data.len()
            )));
        }
        let mut args = vec![Arg::Bytes(data), retention()];
        args.extend(self.subject.publish());
        self.subject.read(self.call(&script::SIGNAL_NOTIFY, args), listeners).await
    }

    /// Waits until the number is not `seen` any more, and returns what it is then. If it is another one already, it returns at
    /// once; so with 0, it returns the last signal that the server knows of.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] once the server has not answered for
    /// [`unavailable_after`](crate::ClientBuilder::unavailable_after): call it again to go on. Otherwise the same as
    /// [`seen`](Self::seen).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the next call with the same number returns what is new.
    #[track_caller]
    pub fn changed(&self, seen: u64) -> impl Future<Output = Result<Notice, Error>> + Send + use<> {
        self.changed_with_timeout(seen, Duration::MAX)
    }

    /// Waits for a change like [`changed`](Self::changed), for at most `timeout`. Zero means one look, and [`Duration::MAX`] no
    /// limit.
    ///
    /// # Errors
    ///
    /// [`Error::StillWaiting`]; otherwise the same as [`changed`](Self::changed).
    ///
    /// # Cancel safety
    ///
    /// The same as [`changed`](Self::changed).
    #[track_caller]
    pub fn changed_with_timeout(
        &self,
        seen: u64,
        timeout: Duration,
    ) -> impl Future<Output = Result<Notice, Error>> + Send + use<> {
        let (signal, caller) = (self.clone(), Location::caller());
        async move {
            let call = signal.status(Some(seen));
            signal.subject.wait_for_another(seen, timeout, caller, call, Notice::read).await
        }
    }

    /// Waits until one of several signals, of one or several clients, has another number than the one that was seen of it, for
    /// at most `timeout`. Returns which of them, counted from 0, and what it has come to. Zero means one look, and
    /// [`Duration::MAX`] no limit.
    ///
    /// # Errors
    ///
    /// The same as [`changed_with_timeout`](Self::changed_with_timeout), of one of them; [`Error::InvalidArgument`] if there are
    /// none.
    ///
    /// # Cancel safety
    ///
    /// The same as [`changed`](Self::changed).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// use leasehold::Signal;
    ///
    /// let (prices, taxes) = (client.signal("prices"), client.signal("taxes"));
    /// let both = [(prices.clone(), prices.seen().await?), (taxes.clone(), taxes.seen().await?)];
    /// let (which, notice) = Signal::any_changed_with_timeout(&both, Duration::MAX).await?;
    /// println!("{} has changed: {:?}", both[which].0.name(), notice.data);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn any_changed_with_timeout(
        signals: &[(Signal, u64)],
        timeout: Duration,
    ) -> impl Future<Output = Result<(usize, Notice), Error>> + Send + use<> {
        let changes = Self::each_changed(signals, timeout);
        async move {
            if changes.is_empty() {
                return Err(Self::none_of_none());
            }
            let changes = changes.into_iter().enumerate();
            let mut changes: FuturesUnordered<_> =
                changes.map(|(which, change)| async move { (which, change.await) }).collect();
            let (mut failure, mut late) = (None, None);
            while let Some((which, change)) = changes.next().await {
                match change {
                    Ok(notice) => return Ok((which, notice)),
                    Err(error) if error.is_timeout() => late = Some(error),
                    // One look at another may show a change.
                    Err(error) if timeout.is_zero() => failure = Some(error),
                    Err(error) => return Err(error),
                }
            }
            // All have ended by now. A server that does not answer may have a change.
            Err(failure.or(late).expect("BUG: there are some"))
        }
    }

    /// Waits until each of several signals, of one or several clients, has another number than the one that was seen of it, for
    /// at most `timeout`. Returns what they have come to, in their order. Zero means one look, and [`Duration::MAX`] no limit.
    ///
    /// # Errors
    ///
    /// The same as [`changed_with_timeout`](Self::changed_with_timeout), of one of them.
    ///
    /// # Cancel safety
    ///
    /// The same as [`changed`](Self::changed).
    #[track_caller]
    pub fn all_changed_with_timeout(
        signals: &[(Signal, u64)],
        timeout: Duration,
    ) -> impl Future<Output = Result<Vec<Notice>, Error>> + Send + use<> {
        try_join_all(Self::each_changed(signals, timeout))
    }

    /// The error for who waits for any of no signals.
    pub(crate) fn none_of_none() -> Error {
        Error::argument("any of no signals is waited for, which never comes")
    }

    #[track_caller]
    fn each_changed(
        signals: &[(Signal, u64)],
        timeout: Duration,
    ) -> Vec<impl Future<Output = Result<Notice, Error>> + Send + use<>> {
        let mut changes = Vec::new();
        for (signal, seen) in signals {
            changes.push(signal.changed_with_timeout(*seen, timeout));
        }
        changes
    }

    /// `seen`: the number that is known, if the data of another one are wanted.
    fn status(&self, seen: Option<u64>) -> Call {
        let seen = seen.map_or(Arg::Word(""), Arg::Number);
        self.call(&script::SIGNAL_STATUS, vec![seen, retention()])
    }

    fn call(&self, script: &'static Script, args: Vec<Arg>) -> Call {
        Call { script, keys: vec![self.key.clone()], args }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Notice {
    /// Returns the number, and the whole.
    fn read(reply: &Reply) -> Option<(u64, Self)> {
        let (number, data) = match reply.list()? {
            [number] => (number, &[][..]),
            [number, data] => (number, data.bytes()?),
            _ => return None,
        };
        let number = unsigned(number)?;
        Some((number, Self { number, data: data.into() }))
    }
}

/// Reads the number with which each answer begins.
pub(super) fn first_number(reply: &Reply) -> Option<u64> {
    unsigned(reply.list()?.first()?)
}

/// Reads how many listen from what a notification returned: a number, and that.
pub(super) fn listeners(reply: &Reply) -> Option<u64> {
    let [_, listeners] = reply.list()? else { return None };
    unsigned(listeners)
}

pub(super) fn unsigned(reply: &Reply) -> Option<u64> {
    reply.number()?.try_into().ok()
}

/// How long the server keeps what was signalled.
pub(super) fn retention() -> Arg {
    Arg::Number(ttl_ms(RETENTION))
}

const SIGNAL: Sort = Sort { kind: LockKind::Signal, why_one_server: WHY_ONE_SERVER };
pub(super) const WHY_ONE_SERVER: &str =
    "several servers share no order, so it could not be told which signals were seen";
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
const MOST_DATA: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_has_the_bytes_as_they_are() {
        let text = |text: &str| Reply::Text(text.to_owned());
        let raw = Reply::Raw { bytes: vec![0xff, 0], shown: String::new() };
        for (reply, number, data) in [
            (vec![Reply::Number(0)], 0, &[][..]),
            (vec![Reply::Number(7), text("a")], 7, b"a"),
            (vec![Reply::Number(7), raw], 7, &[0xff, 0]),
        ] {
            let (_, notice) = Notice::read(&Reply::List(reply)).expect("it is whole");
            assert_eq!((notice.number, &*notice.data), (number, data));
        }
        for broken in [vec![], vec![Reply::Number(-1)], vec![Reply::Number(1), Reply::Nil]] {
            assert_eq!(Notice::read(&Reply::List(broken)), None);
        }
    }
}
