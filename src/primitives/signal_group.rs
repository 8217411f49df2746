//! The handle to a group of signals.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::signal::{WHY_ONE_SERVER, first_number, listeners, retention, unsigned};
use super::subject::{Sort, Subject};
use crate::engine::gate::Engine;
use crate::error::Error;
use crate::key::{self, LockKind};
use crate::script::{self, Arg, Call, Reply, Script};

/// A handle to a group of signals, whose names stand together on the server: a waiter learns which of them were given. The handle
/// itself holds nothing, and making one costs no I/O.
///
/// It is for what Redis's `PSUBSCRIBE` is used for, invalidating the entries of a cache for example, and loses nothing while nobody
/// listens: note the number that you have [`seen`](Self::seen), and wait until the group has [`changed`](Self::changed). You get
/// all names that were signalled after that number, each once.
///
/// * A waiter hears of it by a message. If the message is lost, the wait ends 4 s later at most.
/// * The server keeps the last 100 000 names, for a day after the last signal, or the last wait for one. If a listener was away for
///   longer, or the server has lost what it had seen, [`Changes::missed`] is true: then take everything as changed.
/// * A server that takes over in a failover may lack the last names. A listener that had not seen them hears nothing of
///   them, and `missed` is false.
///
/// It is on one server, or on a master of a cluster. With [several independent masters](crate::ClientBuilder::nodes) every call
/// fails with [`Error::SingleServerOnly`].
///
/// # Examples
///
/// ```no_run
/// # use std::collections::HashMap;
/// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
/// # let mut cache: HashMap<String, String> = HashMap::new();
/// let prices = client.signal_group("prices");
/// let mut seen = prices.seen().await?; // before the first entry is read
/// loop {
///     let changes = prices.changed(seen).await?;
///     if changes.missed {
///         cache.clear();
///     }
///     for name in &changes.names {
///         cache.remove(&**name);
///     }
///     seen = changes.number;
/// }
/// # }
/// ```
///
/// A process that writes a price calls `prices.notify(["apples"])` after it.
#[doc(alias = "RPatternTopic")]
#[derive(Clone)]
pub struct SignalGroup {
    subject: Subject,
    key: Arc<str>,
}

/// What a group of signals has come to; see [`SignalGroup::changed`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// What has been seen with these names: the number of the last signal. If there are more than 1000 names, it may be an earlier
    /// one: the next call with it returns what follows.
    pub number: u64,
    /// The names that were signalled after the number that was seen, those that were signalled last at the end.
    pub names: Vec<Arc<str>>,
    /// True if there may have been others, too.
    pub missed: bool,
}

impl SignalGroup {
    pub(crate) fn new(engine: &Arc<Engine>, name: Arc<str>) -> Self {
        let (key, channel) = (key::signal_group_key(&name), key::signal_group_channel(&name));
        Self { subject: Subject::new(engine, name, channel, GROUP), key }
    }

    /// Returns the group's name.
    pub fn name(&self) -> &str {
        &self.subject.name
    }

    /// Asks the server for the number of the last signal. If it knows of none, it notes that from now on nothing is missed.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], [`Error::SingleServerOnly`], [`Error::InvalidName`], [`Error::WrongType`], [`Error::Denied`],
    /// [`Error::Closed`].
    pub async fn seen(&self) -> Result<u64, Error> {
        self.subject.read(self.status(None), first_number).await
    }

    /// Signals these names, 1 to 1000 of 1 to 1024 bytes each, to all who wait for the group or will look at it later. Returns how
    /// many clients listen at this moment.
    ///
    /// It is sent once, and is not repeated. You may repeat it: then some may get the names twice.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]: they may have been signalled nevertheless; [`Error::InvalidArgument`] for names out of range;
    /// otherwise the same as [`seen`](Self::seen).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, all names may be signalled, or none.
    pub async fn notify(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<u64, Error> {
        let names: Vec<Arc<str>> = names.into_iter().map(|name| name.as_ref().into()).collect();
        if !(1..=MOST_AT_ONCE).contains(&names.len()) {
            return Err(Error::argument(format!(
                "{} names are signalled at once; it must be from 1 to {MOST_AT_ONCE}",
                names.len()
            )));
        }
        if let Some(name) = names.iter().find(|name| !(1..=LONGEST_NAME).contains(&name.len())) {
            return Err(Error::argument(format!(
                "a name that is signalled has {} bytes; it must have from 1 to {LONGEST_NAME}",
                name.len()
            )));
        }
        let mut args = vec![retention()];
        args.extend(self.subject.publish());
        args.push(Arg::Number(MOST_NAMES));
        args.extend(names.into_iter().map(Arg::Text));
        self.subject.read(self.call(&script::GROUP_NOTIFY, args), listeners).await
    }

    /// Waits until names were signalled after the number `seen`, and returns them. If there are some already, it returns at once.
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
    pub fn changed(
        &self,
        seen: u64,
    ) -> impl Future<Output = Result<Changes, Error>> + Send + use<> {
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
    ) -> impl Future<Output = Result<Changes, Error>> + Send + use<> {
        let (group, caller) = (self.clone(), Location::caller());
        async move {
            let call = group.status(Some(seen));
            group.subject.wait_for_another(seen, timeout, caller, call, Changes::read).await
        }
    }

    /// `seen`: the number that is known, if the names after it are wanted.
    fn status(&self, seen: Option<u64>) -> Call {
        let seen = seen.map_or(Arg::Word(""), Arg::Number);
        self.call(&script::GROUP_STATUS, vec![seen, retention()])
    }

    fn call(&self, script: &'static Script, args: Vec<Arg>) -> Call {
        Call { script, keys: vec![self.key.clone()], args }
    }
}

impl fmt::Debug for SignalGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignalGroup").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Changes {
    /// Returns the number, and the whole.
    fn read(reply: &Reply) -> Option<(u64, Self)> {
        let (number, missed, names) = match reply.list()? {
            [number] => (number, false, &[][..]),
            [number, missed, names] => (number, missed.number()? == 1, names.list()?),
            _ => return None,
        };
        let names = names.iter().map(|name| Some(name.text()?.into()));
        let (number, names) = (unsigned(number)?, names.collect::<Option<_>>()?);
        Some((number, Self { number, names, missed }))
    }
}

const GROUP: Sort = Sort { kind: LockKind::SignalGroup, why_one_server: WHY_ONE_SERVER };
const MOST_NAMES: u64 = 100_000;
const MOST_AT_ONCE: usize = 1000;
const LONGEST_NAME: usize = 1024;
