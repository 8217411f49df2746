//! The two libraries, told what to do in the same words: each case is written once, and run in both directions.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leasehold::{Client, Error, Guard, LossReason, Lost, Owner, ReadGuard, WriteGuard};
use leasehold_testkit::{
    Server, eventually,
    java::{Call, Failure, Java, Version, hex},
    subscribers,
};

/// Which lock of a name is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// The mutex; in Java what it was connected with.
    Mutex,
    Read,
    Write,
}

impl Of {
    fn word(self, java: &Java) -> &'static str {
        match self {
            Self::Mutex => java.kind,
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Either library, connected.
pub(crate) enum Side {
    Java(Java),
    Rust(Rust),
}

/// A server, and both libraries connected to it.
pub(crate) struct Table {
    pub(crate) server: Server,
    pub(crate) java: Side,
    pub(crate) rust: Side,
}

impl Table {
    /// With `ttl` for the watchdogs of both.
    pub(crate) async fn lay(version: Version, ttl: Duration) -> Self {
        let server = Server::start().await;
        let java = Side::Java(Java::connect(version, &server.url(), ttl).await);
        let builder = Client::builder().nodes([server.url()]).ttl(ttl);
        let rust = Side::Rust(Rust::new(builder.connect().await.expect("connected")));
        Self { server, java, rust }
    }

    /// Who holds and who wants: Java and Rust, then Rust and Java.
    pub(crate) fn both_ways(&self) -> [(&Side, &Side); 2] {
        [(&self.java, &self.rust), (&self.rust, &self.java)]
    }

    pub(crate) fn java(&self) -> &Java {
        self.java.java()
    }

    pub(crate) fn rust(&self) -> &Rust {
        self.rust.rust()
    }

    /// Waits until somebody waits for the lock `name`.
    pub(crate) async fn somebody_waits(&self, name: &str) {
        self.listen(&channel(name), 1).await;
    }

    /// Waits until nobody listens for the lock `name` any more.
    pub(crate) async fn nobody_waits(&self, name: &str) {
        let is_quiet = async || subscribers(&self.server, &channel(name)).await == 0;
        eventually(LIMIT, &format!("nobody waits for {name}"), is_quiet).await;
    }

    /// Waits until at least so many processes listen there.
    pub(crate) async fn listen(&self, channel: &str, count: i64) {
        let listen = async || subscribers(&self.server, channel).await >= count;
        eventually(LIMIT, &format!("{count} listen to {channel}"), listen).await;
    }
}

/// Where those who wait for the lock `name` listen.
fn channel(name: &str) -> String {
    let braced = if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") };
    format!("redisson_lock__channel:{braced}")
}

impl Side {
    /// The side of Java, where that is known.
    pub(crate) fn java(&self) -> &Java {
        match self {
            Self::Java(java) => java,
            Self::Rust(_) => unreachable!("BUG: laid the other way round"),
        }
    }

    /// The side of Rust, where that is known.
    pub(crate) fn rust(&self) -> &Rust {
        match self {
            Self::Rust(rust) => rust,
            Self::Java(_) => unreachable!("BUG: laid the other way round"),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Java(_) => "java",
            Self::Rust(_) => "rust",
        }
    }

    /// How much later than its time a wait may end. How long Java computes on a busy machine is not ours to promise, only
    /// that its wait does end.
    pub(crate) fn lateness(&self) -> Duration {
        match self {
            Self::Java(_) => Duration::from_secs(3),
            Self::Rust(_) => Duration::from_millis(150),
        }
    }

    /// `who` takes the lock, however long that takes.
    pub(crate) fn lock(&self, who: &str, name: &str) -> Call {
        self.acquire(Of::Mutex, who, name, None, None)
    }

    /// The same, with a fixed lease.
    pub(crate) fn lock_for(&self, who: &str, name: &str, lease: Duration) -> Call {
        self.acquire(Of::Mutex, who, name, None, Some(lease))
    }

    /// 1 if `who` got it within `wait`; zero: at once.
    pub(crate) fn try_lock(&self, who: &str, name: &str, wait: Duration) -> Call {
        self.acquire(Of::Mutex, who, name, Some(wait), None)
    }

    /// The same, with a fixed lease.
    pub(crate) fn try_lock_for(
        &self,
        who: &str,
        name: &str,
        wait: Duration,
        lease: Duration,
    ) -> Call {
        self.acquire(Of::Mutex, who, name, Some(wait), Some(lease))
    }

    /// `who` takes a side of the read-write lock, however long that takes.
    pub(crate) fn take(&self, of: Of, who: &str, name: &str) -> Call {
        self.acquire(of, who, name, None, None)
    }

    /// 1 if `who` got it within `wait`; zero: at once.
    pub(crate) fn try_take(&self, of: Of, who: &str, name: &str, wait: Duration) -> Call {
        self.acquire(of, who, name, Some(wait), None)
    }

    /// `who` leaves one level of it.
    pub(crate) fn leave(&self, of: Of, who: &str, name: &str) -> Call {
        match self {
            Self::Rust(rust) => rust.unlock(who, name),
            Self::Java(java) => java.call(who, &format!("unlock {} {}", of.word(java), hex(name))),
        }
    }

    fn acquire(
        &self,
        of: Of,
        who: &str,
        name: &str,
        wait: Option<Duration>,
        lease: Option<Duration>,
    ) -> Call {
        match self {
            Self::Rust(rust) => rust.acquire(of, who, name, wait, lease),
            Self::Java(java) => {
                let ms = |time: Duration| time.as_millis();
                let (verb, times) = match (wait, lease) {
                    (None, None) => ("lock", String::new()),
                    (None, Some(lease)) => ("lock-for", format!(" {}", ms(lease))),
                    (Some(Duration::ZERO), None) => ("try-lock", String::new()),
                    (Some(wait), None) => ("try-lock-within", format!(" {}", ms(wait))),
                    (Some(wait), Some(lease)) => {
                        ("try-lock-within-for", format!(" {} {}", ms(wait), ms(lease)))
                    }
                };
                java.call(who, &format!("{verb} {} {}{times}", of.word(java), hex(name)))
            }
        }
    }

    /// `who` leaves one level.
    pub(crate) fn unlock(&self, who: &str, name: &str) -> Call {
        self.leave(Of::Mutex, who, name)
    }

    /// 1 if it was held.
    pub(crate) fn force_unlock(&self, name: &str) -> Call {
        match self {
            Self::Rust(rust) => {
                let lock = rust.client.mutex(name);
                timed(async move { Ok(lock.force_unlock().await?.into()) })
            }
            Self::Java(java) => java.call("operator", &format!("force-unlock plain {}", hex(name))),
        }
    }

    /// 1 if anybody holds it.
    pub(crate) fn is_locked(&self, name: &str) -> Call {
        match self {
            Self::Rust(rust) => {
                let lock = rust.client.mutex(name);
                timed(async move { Ok(lock.is_locked().await?.into()) })
            }
            Self::Java(java) => java.call("operator", &format!("is-locked plain {}", hex(name))),
        }
    }

    /// Milliseconds; Java's -2 where nobody holds it.
    pub(crate) fn remaining_ttl(&self, name: &str) -> Call {
        match self {
            Self::Rust(rust) => {
                let lock = rust.client.mutex(name);
                timed(async move {
                    let left = lock.remaining_ttl().await?;
                    Ok(left.map_or(-2, |left| left.as_millis() as i64))
                })
            }
            Self::Java(java) => {
                java.call("operator", &format!("remaining-ttl plain {}", hex(name)))
            }
        }
    }
}

/// Our client, with an owner for each `who`, as each has a thread in Java.
pub(crate) struct Rust {
    pub(crate) client: Client,
    owners: Mutex<HashMap<String, Owner>>,
    guards: Guards,
}

/// What each holds, the innermost last.
type Guards = Arc<Mutex<HashMap<(String, String), Vec<Held>>>>;

impl Rust {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, owners: Mutex::default(), guards: Guards::default() }
    }

    fn acquire(
        &self,
        of: Of,
        who: &str,
        name: &str,
        wait: Option<Duration>,
        lease: Option<Duration>,
    ) -> Call {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = owners.entry(who.to_owned()).or_insert_with(|| Owner::named(who)).clone();
        let (client, name) = (self.client.clone(), name.to_owned());
        let guards = Arc::clone(&self.guards);
        let key = (who.to_owned(), name.clone());
        timed(async move {
            let guard: Option<Held> = if of == Of::Mutex {
                let lock = client.mutex(name).owned_by(&owner);
                let lock = lease.map_or(lock.clone(), |lease| lock.with_lease(lease));
                match wait {
                    None => Some(Held::Guard(lock.lock().await?)),
                    Some(wait) => lock.try_lock_for(wait).await?.map(Held::Guard),
                }
            } else {
                let lock = client.rw_lock(name).owned_by(&owner);
                let lock = lease.map_or(lock.clone(), |lease| lock.with_lease(lease));
                match (of, wait) {
                    (Of::Read, None) => Some(Held::Reader(lock.read().await?)),
                    (Of::Read, Some(wait)) => lock.try_read_for(wait).await?.map(Held::Reader),
                    (_, None) => Some(Held::Writer(lock.write().await?)),
                    (_, Some(wait)) => lock.try_write_for(wait).await?.map(Held::Writer),
                }
            };
            let got = guard.is_some();
            let mut guards = guards.lock().unwrap_or_else(PoisonError::into_inner);
            guards.entry(key).or_default().extend(guard);
            Ok(got.into())
        })
    }

    fn unlock(&self, who: &str, name: &str) -> Call {
        let guard = self.innermost(who, name);
        timed(async move {
            guard.expect("it was taken").release().await?;
            Ok(1)
        })
    }

    fn innermost(&self, who: &str, name: &str) -> Option<Held> {
        let mut guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        guards.get_mut(&(who.to_owned(), name.to_owned()))?.pop()
    }

    /// Looks at the innermost guard.
    pub(crate) fn look<T>(&self, who: &str, name: &str, look: impl FnOnce(&Held) -> T) -> T {
        let guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        let held = guards.get(&(who.to_owned(), name.to_owned())).and_then(|guards| guards.last());
        look(held.expect("it is held"))
    }

    /// What tells the loss of the innermost guard.
    pub(crate) fn lost(
        &self,
        who: &str,
        name: &str,
    ) -> Pin<Box<dyn Future<Output = LossReason> + Send>> {
        self.look(who, name, |guard| Box::pin(guard.lost()))
    }
}

/// A guard of one of our locks.
pub(crate) enum Held {
    Guard(Guard),
    Reader(ReadGuard),
    Writer(WriteGuard),
}

macro_rules! of_each {
    ($held:expr, $guard:ident => $call:expr) => {
        match $held {
            Held::Guard($guard) => $call,
            Held::Reader($guard) => $call,
            Held::Writer($guard) => $call,
        }
    };
}

impl Held {
    pub(crate) fn is_held(&self) -> bool {
        of_each!(self, guard => guard.is_held())
    }

    pub(crate) fn remaining(&self) -> Duration {
        of_each!(self, guard => guard.remaining())
    }

    pub(crate) fn hold_count(&self) -> u32 {
        of_each!(self, guard => guard.hold_count())
    }

    fn lost(&self) -> Lost {
        of_each!(self, guard => guard.lost())
    }

    async fn release(self) -> Result<(), Error> {
        of_each!(self, guard => guard.release().await)
    }
}

/// How long something that has to happen may take.
const LIMIT: Duration = Duration::from_secs(20);

/// Begins a call of ours.
fn timed(call: impl Future<Output = Result<i64, Error>> + Send + 'static) -> Call {
    Call::begin(async move {
        call.await.map_err(|error| match error {
            Error::Lost { .. } => Failure::NotHeld,
            error => Failure::Other(error.to_string()),
        })
    })
}
