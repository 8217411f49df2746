//! A process that contends for locks in all the ways there are, and writes down what it is told.

mod blocking;
mod kept;
mod tasks;

use std::{
    io::BufRead,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use leasehold::{Client, ClientBuilder, Deadlocks, Error, Stats};
use serde::{Deserialize, Serialize};

use self::kept::Kept;
use crate::{
    clock::Chance,
    deployment::{Layout, Place, PlaceKind},
    event::{How, What},
    journal::Journal,
    locks::{self, KEPT, MUTEXES, TANGLED},
    recorder::Recorder,
    register::Register,
    stalls::{self, TICK},
};

/// What the driver tells a contender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    pub name: String,
    /// For the journal and the registers.
    pub dir: PathBuf,
    pub place: Place,
    /// So many replicas must have a grant.
    pub synced: u32,
    pub face: Face,
    pub seed: u64,
    pub ttl: Duration,
    pub quarantine: Duration,
    /// Those two are the library's defaults.
    pub is_by_default: bool,
    /// A mutex that it asks for again and again in its first second.
    pub first: Option<String>,
    /// How many tasks or threads.
    pub crowd: usize,
    /// How many others keep mutexes for long.
    pub keepers: usize,
    /// How many tasks push items, work on them, and wait for latches and a signal.
    pub hands: usize,
    /// How many tasks or threads take locks one under the other, in any order.
    pub tanglers: usize,
}

/// What the contenders of a round do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// They take locks of all kinds.
    Mixed,
    /// They take locks one under the other, in any order, and wait for each other.
    Deadlocks,
}

/// Which of the two clients it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Face {
    Tasks,
    Threads,
}

/// The kinds of lock besides mutexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OtherKind {
    RwLock,
    Semaphore,
    MultiLock,
    Election,
}

/// What all tasks and threads of a contender share.
#[derive(Clone, Debug)]
struct Shared {
    orders: Orders,
    recorder: Recorder,
    register: Register,
    kept: Kept,
    ends: Arc<AtomicBool>,
}

/// Contends until its standard input says "end"; ends at once when that is closed.
pub fn contend(orders: Orders) {
    let journal = Journal::create(&orders.dir.join(format!("{}.log", orders.name)));
    let journal = journal.expect("the journal can be made");
    let shared = Shared {
        register: Register::new(&orders.dir),
        recorder: Recorder::new(journal.clone()),
        kept: Kept::default(),
        ends: Arc::default(),
        orders,
    };
    thread::spawn(move || stalls::watch(&journal, &AtomicBool::new(false), Vec::new));
    let ends = shared.ends.clone();
    thread::spawn(move || {
        let mut line = String::new();
        let _ = std::io::stdin().lock().read_line(&mut line);
        if line.trim() != "end" {
            // The driver is gone.
            std::process::exit(1);
        }
        ends.store(true, Ordering::SeqCst);
    });
    match shared.orders.face {
        Face::Tasks => tasks::contend(&shared),
        Face::Threads => blocking::contend(&shared),
    }
}

impl Orders {
    pub(crate) fn builder(&self) -> ClientBuilder {
        let Place { kind, urls, list, ports } = self.place.clone();
        let builder = match kind {
            // Each process has ways of its own to the servers.
            PlaceKind::Nodes if urls.len() > 1 && list.is_none() => {
                Client::builder().nodes(urls).masters_name("faults")
            }
            PlaceKind::Nodes => Client::builder().nodes(urls),
            PlaceKind::Sentinel => Client::builder().sentinel(Layout::MASTER, urls),
            PlaceKind::Cluster => Client::builder().cluster(urls),
        };
        let builder = match kind {
            PlaceKind::Nodes => builder,
            _ => builder.address_map(move |host, port| {
                (host.to_owned(), ports.get(&port).copied().unwrap_or(port))
            }),
        };
        let builder = match self.is_by_default {
            true => builder,
            false => builder.ttl(self.ttl).restart_quarantine(self.quarantine),
        };
        // Threads are told by default.
        let builder = match (self.tanglers, self.face) {
            (1.., Face::Tasks) => builder.deadlocks(Deadlocks::Fail),
            _ => builder,
        };
        builder
            .name(self.name.clone())
            .synced(self.synced)
            .connect_timeout(Duration::from_secs(2))
            .unavailable_after(Duration::from_secs(3))
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.ends.load(Ordering::SeqCst)
    }

    /// Asked to connect at `since`: whether its masters are those in use, where these change.
    fn connected<C>(&self, since: u64, answer: &Result<C, Error>) {
        let Some(list) = self.orders.place.list.clone() else { return };
        let refused = match answer {
            Ok(_) => None,
            Err(error @ Error::InvalidConfig { .. }) => Some(error.to_string()),
            Err(_) => return,
        };
        self.recorder.journal.write(What::Named { list, since, refused });
    }

    fn builder(&self) -> ClientBuilder {
        self.orders.builder()
    }

    fn chance(&self, member: usize) -> Chance {
        Chance::new(self.orders.seed ^ (member as u64 + 1).wrapping_mul(0x9e37_79b9))
    }

    fn mutex_name(&self, chance: &mut Chance) -> &'static str {
        let any = *chance.pick(&MUTEXES);
        if chance.one_in(2) { any } else { MUTEXES[0] }
    }

    /// One that is kept for long.
    fn kept_name(&self, chance: &mut Chance) -> String {
        locks::kept(chance.between(0, KEPT))
    }

    /// How long it is kept: mostly past some renewals, and often past the end of its lease if that is not renewed any more.
    fn work_of_keeper(&self, chance: &mut Chance) -> Duration {
        if chance.one_in(3) {
            return chance.ms(1, 15);
        }
        self.orders.ttl.mul_f64(chance.between(0, 150) as f64 / 100.0)
    }

    /// Two or three of the mutexes that are taken less: those who want one of them wait no longer than for the first.
    fn several_names(&self, chance: &mut Chance) -> Vec<&'static str> {
        let mut names = MUTEXES[1..].to_vec();
        chance.shuffle(&mut names);
        names.truncate(chance.between(2, 4) as usize);
        names
    }

    /// The kind of lock of a turn; `None`: a mutex.
    fn other_kind(&self, chance: &mut Chance) -> Option<OtherKind> {
        if chance.between(0, 100) >= OTHERS {
            return None;
        }
        let chosen = chance.between(0, 100);
        let place = &self.orders.place;
        Some(if place.kind == PlaceKind::Nodes && !self.is_on_one_server() {
            match chosen {
                // It does not work there, and says so.
                0..4 => OtherKind::Semaphore,
                4..50 => OtherKind::RwLock,
                50..75 => OtherKind::MultiLock,
                _ => OtherKind::Election,
            }
        } else {
            match chosen {
                0..42 => OtherKind::RwLock,
                42..66 => OtherKind::Semaphore,
                66..83 => OtherKind::MultiLock,
                _ => OtherKind::Election,
            }
        })
    }

    /// Whether there is one server, of which no replica takes the place.
    fn is_on_one_server(&self) -> bool {
        let place = &self.orders.place;
        place.kind == PlaceKind::Nodes && place.urls.len() == 1
    }

    /// Whether there are several servers that know nothing of each other.
    fn is_on_several_servers(&self) -> bool {
        let place = &self.orders.place;
        place.kind == PlaceKind::Nodes && place.urls.len() > 1
    }

    /// Two or three of the mutexes that are taken one under the other.
    fn tangled_names(&self, chance: &mut Chance) -> Vec<&'static str> {
        let mut names = chance.pick(&TANGLED).to_vec();
        chance.shuffle(&mut names);
        names.truncate(chance.between(2, 4) as usize);
        names
    }

    /// How one of those is asked for: mostly for as long as it takes.
    fn way_under_another(&self, chance: &mut Chance) -> (How, Option<Duration>) {
        match chance.one_in(7) {
            true => (How::LockWithTimeout, Some(chance.ms(500, 6000))),
            false => (How::Lock, None),
        }
    }

    /// How something is asked for, and for how long.
    fn way(&self, chance: &mut Chance) -> (How, Option<Duration>) {
        let wait = chance.ms(30, 700);
        match chance.between(0, 100) {
            0..45 => (How::Lock, None),
            45..65 => (How::LockWithTimeout, Some(wait)),
            65..80 => (How::TryLock, None),
            _ => (How::TryLockFor, Some(wait)),
        }
    }

    /// How long a fixed lease is used, sometimes past its end.
    fn work_of_fixed(&self, chance: &mut Chance) -> Duration {
        if chance.one_in(2) { self.orders.ttl + TICK * 20 } else { chance.ms(1, 15) }
    }

    /// How long a turn keeps what others may have beside it, and writers must not: longer than a mutex, so that they meet.
    fn work_beside_others(&self, chance: &mut Chance) -> Duration {
        if chance.one_in(4) { self.work(chance) } else { chance.ms(20, 200) }
    }

    /// How long a turn keeps its lock: mostly for a moment, now and then until after some renewals.
    fn work(&self, chance: &mut Chance) -> Duration {
        if chance.one_in(14) {
            return self.orders.ttl.mul_f64(1.0 + chance.between(0, 50) as f64 / 100.0);
        }
        chance.ms(1, 15)
    }

    /// What the client is still busy with, once it has had the time to end it.
    fn ended(&self, stats: impl Fn() -> Stats, holds: impl Fn() -> usize) {
        let ended = || {
            let stats = stats();
            let Stats { locks: gates, waiters, subscriptions, releases_pending: owed, .. } = stats;
            let busy = [gates, waiters, subscriptions, owed, holds()];
            (busy == [0; 5], What::Ended { gates, waiters, subscriptions, owed, holds: busy[4] })
        };
        let patience = PATIENCE + self.orders.ttl;
        // Each of these sleeps takes longer on a busy machine.
        for _ in 0..patience.as_millis() / TICK.as_millis() {
            if ended().0 {
                break;
            }
            thread::sleep(TICK);
        }
        self.recorder.journal.write(ended().1);
    }
}

impl Orders {
    /// How many tasks or threads there are.
    fn members(&self) -> usize {
        self.crowd + self.keepers + self.hands + self.tanglers
    }

    /// What one of them does.
    fn duty(&self, member: usize) -> Duty {
        let Self { crowd, keepers, hands, .. } = self;
        match member {
            _ if member < *crowd => Duty::Turns,
            _ if member < crowd + keepers => Duty::Keeps,
            _ if member < crowd + keepers + hands => Duty::Works,
            _ => Duty::Tangles,
        }
    }
}

/// What a task or thread does, over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    Turns,
    Keeps,
    Works,
    Tangles,
}

/// How often it asks for its first lock.
const FIRST_ASKS: u32 = 40;
/// So many of a hundred turns are at locks of other kinds than mutexes.
const OTHERS: u64 = 40;
const PATIENCE: Duration = Duration::from_secs(4);
