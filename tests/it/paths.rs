//! Each setting, on each way to a hold. What a handle asks for is the hold's, however the hold came about.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold::{
    Client, ClientBuilder, Guard, Lost, Mutex, NodeState, Owner, Permit, RwLock, Semaphore,
    WriteGuard,
};

use crate::{
    checks::{LIMIT, connect, soon},
    fair::make_heard,
    support::{Server, eventually, in_time},
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Mutex,
    Fair,
    Read,
    Write,
    Permit,
}

/// How a hold comes about.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The lock is free.
    Direct,
    /// Another client releases it.
    ByMessage,
    /// As by message, but the first who waited has given up: the next one gets what was granted to the first one's request.
    TakenOver,
    /// As by message, and the client asks once more.
    Confirmed,
    /// Another task of the client releases it.
    HandedOn,
    /// Another task of the client reads, too, and leaves.
    Joined,
    /// Its owner has it already, on other terms, and those guards go first.
    Nested,
    /// It was a writer's.
    Downgraded,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Setting {
    Ttl,
    Lease,
    MaxHold,
    MinHold,
    MinValidity,
}

const SETTINGS: [Setting; 5] =
    [Setting::Ttl, Setting::Lease, Setting::MaxHold, Setting::MinHold, Setting::MinValidity];

/// The setting's time.
const TTL: Duration = Duration::from_secs(90);
const LEASE: Duration = Duration::from_secs(6);
const RENEWED: Duration = Duration::from_secs(6);
const MAX_HOLD: Duration = Duration::from_millis(500);
/// Longer than a grant by message lasts at first.
const MIN_HOLD: Duration = Duration::from_millis(2500);
const GRACE: Duration = Duration::from_secs(8);
/// Longer than a grant by message lasts at first. No lease may be shorter than twice that.
const MIN_VALIDITY: Duration = Duration::from_millis(2500);

/// What can be asked of the handles of all kinds.
#[derive(Clone)]
enum Handle {
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Permits(Semaphore),
}

enum Held {
    Guard(Guard),
    Reader(leasehold::ReadGuard),
    Writer(WriteGuard),
    Permit(Permit),
}

macro_rules! on_handle {
    ($handle:expr, $lock:ident => $change:expr) => {
        match $handle {
            Handle::Mutex($lock) => Handle::Mutex($change),
            Handle::Read($lock) => Handle::Read($change),
            Handle::Write($lock) => Handle::Write($change),
            Handle::Permits($lock) => Handle::Permits($change),
        }
    };
}

impl Handle {
    fn of(kind: Kind, client: &Client, name: &str) -> Self {
        match kind {
            Kind::Mutex => Self::Mutex(client.mutex(name)),
            Kind::Fair => Self::Mutex(client.fair_mutex(name)),
            Kind::Read => Self::Read(client.rw_lock(name)),
            Kind::Write => Self::Write(client.rw_lock(name)),
            Kind::Permit => Self::Permits(client.semaphore(name).with_permits(1)),
        }
    }

    /// What keeps all others out.
    fn alone(kind: Kind, client: &Client, name: &str) -> Self {
        match kind {
            Kind::Read => Self::of(Kind::Write, client, name),
            kind => Self::of(kind, client, name),
        }
    }

    /// The same lease as with the setting, and nothing else of it: one waits for the other's request.
    fn like(self, setting: Setting) -> Self {
        match setting {
            Setting::Ttl => on_handle!(self, lock => lock.with_ttl(TTL)),
            Setting::Lease => on_handle!(self, lock => lock.with_lease(LEASE)),
            Setting::MaxHold => on_handle!(self, lock => lock.with_ttl(RENEWED)),
            Setting::MinHold | Setting::MinValidity => self,
        }
    }

    fn with(self, setting: Setting) -> Self {
        let handle = self.like(setting);
        match (setting, handle) {
            (Setting::MaxHold, handle) => on_handle!(handle, lock => lock.with_max_hold(MAX_HOLD)),
            (Setting::MinHold, Self::Mutex(lock)) => Self::Mutex(lock.with_min_hold(MIN_HOLD)),
            (_, handle) => handle,
        }
    }

    fn owned_by(self, owner: &Owner) -> Self {
        match self {
            Self::Mutex(lock) => Self::Mutex(lock.owned_by(owner)),
            Self::Read(lock) => Self::Read(lock.owned_by(owner)),
            Self::Write(lock) => Self::Write(lock.owned_by(owner)),
            Self::Permits(_) => panic!("permits have no owner"),
        }
    }

    async fn take(self) -> Held {
        match self {
            Self::Mutex(lock) => Held::Guard(lock.lock().await.expect("its turn comes")),
            Self::Read(lock) => Held::Reader(lock.read().await.expect("its turn comes")),
            Self::Write(lock) => Held::Writer(lock.write().await.expect("its turn comes")),
            Self::Permits(semaphore) => {
                Held::Permit(semaphore.acquire().await.expect("its turn comes"))
            }
        }
    }

    /// Waits until so many requests stand in the queue.
    async fn queued(&self, requests: usize) {
        eventually(LIMIT, "they are in the queue", async || {
            let waiting = match self {
                Self::Mutex(lock) => lock.status().await.map(|status| status.waiting.len()),
                Self::Read(lock) | Self::Write(lock) => {
                    lock.status().await.map(|status| status.waiting.len())
                }
                Self::Permits(permits) => permits.status().await.map(|status| status.waiting.len()),
            };
            waiting.is_ok_and(|waiting| waiting == requests)
        })
        .await;
    }
}

impl Held {
    fn remaining(&self) -> Duration {
        match self {
            Self::Guard(guard) => guard.remaining(),
            Self::Reader(guard) => guard.remaining(),
            Self::Writer(guard) => guard.remaining(),
            Self::Permit(permit) => permit.remaining(),
        }
    }

    fn lost(&self) -> Lost {
        match self {
            Self::Guard(guard) => guard.lost(),
            Self::Reader(guard) => guard.lost(),
            Self::Writer(guard) => guard.lost(),
            Self::Permit(permit) => permit.lost(),
        }
    }

    fn holder(&self) -> leasehold::Holder {
        match self {
            Self::Guard(guard) => guard.holder(),
            Self::Reader(guard) => guard.holder(),
            Self::Writer(guard) => guard.holder(),
            Self::Permit(permit) => permit.holder(),
        }
    }
}

struct Case {
    kind: Kind,
    way: Way,
    setting: Setting,
}

impl Case {
    /// Whether there is such a way for that kind, and whether the setting means anything there.
    fn is_possible(&self) -> bool {
        let Self { kind, way, setting } = *self;
        let has_way = match way {
            Way::Direct | Way::ByMessage | Way::Confirmed => true,
            Way::TakenOver => !matches!(kind, Kind::Fair | Kind::Permit),
            Way::HandedOn => matches!(kind, Kind::Mutex | Kind::Write),
            Way::Joined | Way::Downgraded => kind == Kind::Read,
            Way::Nested => kind != Kind::Permit,
        };
        let has_setting = match setting {
            Setting::MinHold => {
                matches!(kind, Kind::Mutex | Kind::Fair) && !matches!(way, Way::HandedOn)
            }
            // A fixed lease is not handed on.
            Setting::Lease => way != Way::HandedOn,
            Setting::MinValidity => {
                matches!(way, Way::Direct | Way::ByMessage | Way::TakenOver | Way::Confirmed)
            }
            Setting::Ttl | Setting::MaxHold => true,
        };
        has_way && has_setting
    }

    fn builder(&self, server: &Server) -> ClientBuilder {
        let builder = Client::builder().nodes([server.url()]);
        match (self.way, self.setting) {
            (Way::HandedOn | Way::Joined, _) => builder.handoff_window(Duration::from_secs(1)),
            (Way::Confirmed, _) | (_, Setting::MinValidity) => builder.min_validity(MIN_VALIDITY),
            _ => builder,
        }
    }

    async fn passes(self, server: &Server, client: Client) {
        let name = &format!("{:?} {:?} {:?}", self.kind, self.way, self.setting);
        let other = connect(server).await;
        let handle = Handle::of(self.kind, &client, name);
        let before = Instant::now();
        let held = soon(name, self.take(&client, &other, handle, name)).await;
        let theirs = Handle::alone(self.kind, &other, name);
        in_time(3 * LIMIT, name, self.check(held, before, theirs, name)).await;
    }

    async fn take(&self, client: &Client, other: &Client, handle: Handle, name: &str) -> Held {
        let Self { kind, setting, .. } = *self;
        let wanted = handle.clone().with(setting);
        match self.way {
            Way::Direct => wanted.take().await,
            Way::ByMessage | Way::Confirmed => {
                let first = Handle::alone(kind, other, name).take().await;
                let turn = tokio::spawn(wanted.clone().take());
                wanted.queued(1).await;
                drop(first);
                turn.await.expect("no panic")
            }
            Way::TakenOver => {
                let first = Handle::alone(kind, other, name).take().await;
                let gives_up = tokio::spawn(handle.like(setting).take());
                wanted.queued(1).await;
                let turn = tokio::spawn(wanted.clone().take());
                eventually(LIMIT, "both wait", async || client.stats().waiters == 2).await;
                gives_up.abort();
                eventually(LIMIT, "one waits", async || client.stats().waiters == 1).await;
                wanted.queued(1).await;
                drop(first);
                turn.await.expect("no panic")
            }
            // Only while the lease is young: a slow machine may need several.
            Way::HandedOn => loop {
                let first = Handle::alone(kind, other, name).take().await;
                let turn = tokio::spawn(handle.clone().like(setting).take());
                wanted.queued(1).await;
                let next = tokio::spawn(wanted.clone().take());
                eventually(LIMIT, "both wait", async || client.stats().waiters == 2).await;
                drop(first);
                let before = turn.await.expect("no panic");
                let holder = before.holder();
                drop(before);
                let held = next.await.expect("no panic");
                if held.holder() == holder {
                    break held;
                }
            },
            Way::Joined => {
                let first = handle.like(Setting::MaxHold).take().await;
                let held = wanted.take().await;
                assert_eq!(held.holder(), first.holder(), "{name}: it has not joined");
                drop(first);
                held
            }
            Way::Nested => {
                let owner = Owner::new();
                let outer = handle.like(Setting::MaxHold).owned_by(&owner).take().await;
                let inner = wanted.owned_by(&owner).take().await;
                drop(outer);
                inner
            }
            Way::Downgraded => {
                let writer = Handle::of(Kind::Write, client, name).with(setting).take().await;
                let Held::Writer(guard) = writer else { panic!("{name}: it is a writer") };
                Held::Reader(guard.downgrade().await.expect("held"))
            }
        }
    }

    /// `before`: a time before it was taken.
    async fn check(&self, held: Held, before: Instant, other: Handle, name: &str) {
        let left = held.remaining();
        match self.setting {
            Setting::Ttl => {
                let renewed = async || held.remaining() > TTL / 2;
                eventually(LIMIT, &format!("{name}: it lasts for its TTL"), renewed).await;
                assert!(held.remaining() <= TTL, "{name}: {:?}", held.remaining());
            }
            Setting::Lease | Setting::MaxHold => {
                assert!(left <= LEASE, "{name}: {left:?}");
                held.lost().await;
            }
            Setting::MinHold => {
                drop(held);
                drop(other.take().await);
                assert!(before.elapsed() >= MIN_HOLD, "{name}: {:?}", before.elapsed());
            }
            Setting::MinValidity => assert!(left > Duration::from_secs(5), "{name}: {left:?}"),
        }
    }
}

async fn all_ways(kind: Kind) {
    const WAYS: [Way; 8] = [
        Way::Direct,
        Way::ByMessage,
        Way::TakenOver,
        Way::Confirmed,
        Way::HandedOn,
        Way::Joined,
        Way::Nested,
        Way::Downgraded,
    ];
    let server = Server::start().await;
    let cases = WAYS.into_iter().flat_map(|way| {
        let cases = SETTINGS.into_iter().map(move |setting| Case { kind, way, setting });
        cases.filter(Case::is_possible)
    });
    let cases: Vec<Case> = cases.collect();
    assert!(cases.len() > 10, "most settings apply");
    let clients = cases.iter().map(|case| case.builder(&server).connect());
    let clients = join_all(clients).await.into_iter().map(|client| client.expect("connected"));
    let clients: Vec<Client> = clients.collect();
    make_heard(&server, &clients.iter().collect::<Vec<_>>()).await;
    let cases = cases.into_iter().zip(clients);
    join_all(cases.map(|(case, client)| case.passes(&server, client))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_settings_of_a_mutex_hold_on_all_ways() {
    all_ways(Kind::Mutex).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_settings_of_a_fair_mutex_hold_on_all_ways() {
    all_ways(Kind::Fair).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_settings_of_a_reader_hold_on_all_ways() {
    all_ways(Kind::Read).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_settings_of_a_writer_hold_on_all_ways() {
    all_ways(Kind::Write).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_settings_of_a_permit_hold_on_all_ways() {
    all_ways(Kind::Permit).await;
}

/// The server has lost them all, and they are put back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_settings_hold_when_a_lease_was_put_back() {
    let server = Server::start().await;
    let builder = Client::builder().nodes([server.url()]);
    let client = builder.ttl(GRACE).restart_quarantine(GRACE).connect().await.expect("connected");
    eventually(LIMIT, "its grants count", async || client.is_ready()).await;
    let mut all = Vec::new();
    for kind in [Kind::Mutex, Kind::Fair, Kind::Read, Kind::Write, Kind::Permit] {
        for setting in [Setting::Lease, Setting::MaxHold] {
            let name = format!("{kind:?} {setting:?}");
            let held = Handle::of(kind, &client, &name).with(setting).take().await;
            all.push((Case { kind, way: Way::Direct, setting }, held, name));
        }
    }
    server.kill();
    server.restart().await;
    let leases = all.len() as u64;
    eventually(LIMIT, "all are put back", async || {
        let lost = all.iter().find(|(_, held, _)| held.remaining().is_zero());
        assert!(lost.is_none(), "{} is lost", lost.map_or("", |(.., name)| name));
        client.stats().reclaimed == leases
    })
    .await;
    let checks = all.into_iter().map(async |(case, held, name)| {
        let other = Handle::alone(case.kind, &client, "unused");
        in_time(3 * LIMIT, &name, case.check(held, Instant::now(), other, &name)).await;
    });
    join_all(checks).await;
}

/// What they ask for in the test below: long enough for a master to come back meanwhile.
const LONG_HOLD: Duration = Duration::from_secs(10);
const SHORT_TTL: Duration = Duration::from_secs(3);

/// One of three masters has lost them all, and renewals put them back there: for no longer than elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_settings_hold_when_a_lease_was_healed() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let connect = async || {
        let builder = Client::builder().nodes(servers.iter().map(Server::url));
        let builder = builder.restart_quarantine(Duration::ZERO);
        let client = builder.connect().await.expect("a majority accepts the client");
        eventually(LIMIT, "all accept it", async || {
            client.nodes().iter().all(|node| node.state == NodeState::Up)
        })
        .await;
        client
    };
    let (client, other) = (connect().await, connect().await);
    let healed = &servers[2];
    let left_on = async |server: &Server, name: &str| match server.command(&["PTTL", name]).await {
        redis::Value::Int(ms) => u64::try_from(ms).ok().map(Duration::from_millis),
        other => panic!("no PTTL: {other:?}"),
    };
    let left_there = async |name: &str| left_on(healed, name).await;
    let mut all = Vec::new();
    for kind in [Kind::Mutex, Kind::Read, Kind::Write] {
        for setting in [Setting::Ttl, Setting::MaxHold, Setting::MinHold] {
            let name = format!("{kind:?} {setting:?}");
            let handle = match (setting, Handle::of(kind, &client, &name)) {
                (Setting::MinHold, Handle::Mutex(lock)) => {
                    Handle::Mutex(lock.with_min_hold(LONG_HOLD))
                }
                (Setting::MinHold, _) => continue,
                (Setting::MaxHold, handle) => {
                    on_handle!(handle, lock => lock.with_ttl(SHORT_TTL).with_max_hold(LONG_HOLD))
                }
                (_, handle) => handle.with(setting),
            };
            let before = Instant::now();
            all.push((kind, setting, handle.take().await, before, name));
        }
    }
    // A majority is enough for a grant. Where the third server has not got the lease yet, the loss of another one ends it.
    for server in &servers {
        for (.., name) in &all {
            eventually(LIMIT, name, async || left_on(server, name).await.is_some()).await;
        }
    }
    healed.kill();
    healed.restart().await;
    let checks = all.into_iter().map(async |(kind, setting, held, before, name)| {
        // At the latest with the next renewal: on a busy machine, the answer that shows it missing may come too late.
        let is_there = async || left_there(&name).await.is_some();
        eventually(TTL / 3 + LIMIT, &name, is_there).await;
        match setting {
            Setting::Ttl => {
                let left = left_there(&name).await.expect("it is there");
                assert!(left > TTL / 2 && left <= TTL, "{name}: {left:?}");
                assert!(held.remaining() <= TTL, "{name}: {:?}", held.remaining());
            }
            Setting::MaxHold => {
                let last = LONG_HOLD + SHORT_TTL;
                in_time(3 * LIMIT, &name, held.lost()).await;
                let (took, limit) = (before.elapsed(), healed.widened_by(4, last));
                assert!(took >= LONG_HOLD && took <= limit, "{name}: lost after {took:?}");
                eventually(LIMIT, &name, async || left_there(&name).await.is_none()).await;
                let (took, limit) = (before.elapsed(), healed.widened_by(4, last + SHORT_TTL / 2));
                assert!(took <= limit, "{name}: gone after {took:?}");
            }
            _ => {
                drop(held);
                // Given back, it lasts for the rest there, too.
                let given_back = async || {
                    let left = left_there(&name).await;
                    assert!(left.is_some() || before.elapsed() > LONG_HOLD, "{name}: it is gone");
                    left.is_none_or(|left| left <= LONG_HOLD)
                };
                eventually(LIMIT, &name, given_back).await;
                drop(in_time(3 * LIMIT, &name, Handle::of(kind, &other, &name).take()).await);
                assert!(before.elapsed() >= LONG_HOLD, "{name}: {:?}", before.elapsed());
            }
        }
    });
    join_all(checks).await;
}
