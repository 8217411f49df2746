//! A process: a runtime of its own, with a clock of its own, that runs for a millisecond at a time.
//!
//! A process that is stopped is not run; when it goes on, its clock has moved and everything that came
//! meanwhile is there at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold::seam::{Entropy, TimeSource, Timestamp};
use leasehold::{Client, Guard};
use leasehold_test::emulator::Rng;
use tokio::runtime::{Builder, Handle, RngSeed, Runtime};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::checker::lease_of;
use crate::history::History;
use crate::network::Desk;
use crate::scenario::client_name;

/// The clock of a process. Each look moves it on by a nanosecond, so that no two moments are the same: what
/// happens at one moment is told apart by addresses otherwise, which differ from run to run.
pub struct HostClock {
    origin: Instant,
    looks: AtomicU64,
    /// For how long its host was suspended, in nanoseconds: timers know nothing of that time.
    suspended: AtomicU64,
    /// What it showed last, in nanoseconds.
    last: AtomicU64,
}

impl HostClock {
    fn new(origin: Instant) -> Self {
        let last = AtomicU64::new(BOOT_NANOS);
        Self { origin, looks: AtomicU64::new(0), suspended: AtomicU64::new(0), last }
    }

    fn nanos(&self) -> u64 {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        // Outside of its runtime time stands still.
        if Handle::try_current().is_ok() {
            let elapsed = Instant::now().saturating_duration_since(self.origin).as_nanos() as u64;
            let elapsed = elapsed + self.suspended.load(Ordering::Relaxed);
            self.last.store(BOOT_NANOS + elapsed + looks, Ordering::Relaxed);
        }
        self.last()
    }

    /// A look at it.
    pub fn read(&self) -> Duration {
        Duration::from_nanos(self.nanos())
    }

    /// Jumps as it does over a suspend of the host, while no timer moves.
    pub fn jump(&self, over: Duration) {
        self.suspended.fetch_add(over.as_nanos() as u64, Ordering::Relaxed);
    }

    /// What it showed last.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }
}

impl TimeSource for HostClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_origin(Duration::from_nanos(self.nanos()))
    }
}

/// The randomness of one client.
pub struct HostEntropy {
    rng: Mutex<Rng>,
}

impl Entropy for HostEntropy {
    fn bits(&self) -> u128 {
        let mut rng = self.rng.lock().expect("no panic");
        (u128::from(rng.next()) << 64) | u128::from(rng.next())
    }
}

/// What the tasks of a process share.
pub struct Process {
    pub host: usize,
    /// Which process at this host, counted from 1.
    pub generation: u64,
    pub clock: Arc<HostClock>,
    pub entropy: Arc<HostEntropy>,
    pub desk: Desk,
    pub history: History,
    /// Ends its client; another one takes its place.
    pub ending: Notify,
    /// How often the process was stopped.
    pub stops: AtomicU64,
    /// Its tasks are being dropped, in an order that no seed decides: what they say then does not count.
    pub killed: AtomicBool,
    client: Mutex<Option<Client>>,
    guards: Mutex<Vec<Watched>>,
}

/// What says that something is held.
pub trait Proof: Send + Sync + 'static {
    fn is_held(&self) -> bool;
    fn remaining(&self) -> Duration;
}

impl Proof for Guard {
    fn is_held(&self) -> bool {
        self.is_held()
    }

    fn remaining(&self) -> Duration {
        self.remaining()
    }
}

/// A guard that is asked at the end of each moment.
struct Watched {
    lock: usize,
    lease: String,
    token: u64,
    guard: Weak<dyn Proof>,
}

impl Process {
    pub fn client(&self) -> Option<Client> {
        self.client.lock().expect("no panic").clone()
    }

    /// Whether a lease is one of its client's.
    pub fn is_holder(&self, lease: &str) -> bool {
        lease.starts_with(&format!("{}:", client_name(self.host, self.generation)))
    }

    pub fn forget_client(&self) {
        *self.client.lock().expect("no panic") = None;
    }

    pub fn set_client(&self, client: Client) {
        *self.client.lock().expect("no panic") = Some(client);
    }

    pub fn watch(&self, lock: usize, guard: &Arc<Guard>) {
        let (token, lease) = (guard.token(), guard.holder().as_str().to_owned());
        let guard: Arc<dyn Proof> = guard.clone();
        self.watch_proof(lock, token, lease, Arc::downgrade(&guard));
    }

    pub fn watch_proof(&self, lock: usize, token: u64, lease: String, guard: Weak<dyn Proof>) {
        self.guards.lock().expect("no panic").push(Watched { lock, lease, token, guard });
    }

    /// Asks every guard whether it is held. By its remaining time, which has no effect on it; now and then as users do.
    fn sample(&self) {
        // Whoever looks from outside sees the clock as it stands here.
        self.clock.nanos();
        let mut guards = self.guards.lock().expect("no panic");
        guards.retain(|watched| watched.guard.strong_count() > 0);
        if guards.is_empty() {
            return;
        }
        let mut history = self.history.lock();
        let now = history.now;
        for watched in guards.iter() {
            let Some(guard) = watched.guard.upgrade() else { continue };
            let remaining = guard.remaining();
            let (lock, token, lease) = (watched.lock, watched.token, &watched.lease);
            history.checker.sampled(now, lock, token, lease, !remaining.is_zero());
            if remaining.is_zero() {
                continue;
            }
            // What several locks prove together has no lease of its own.
            if lease.contains(':') {
                let deadline = self.clock.last() + remaining.as_nanos() as u64;
                history.checker.believed(now, lease_of(lease), deadline);
            }
            if now.is_multiple_of(16) && !guard.is_held() && guard.remaining() > TICK {
                let what = format!("not held, with {remaining:?} left");
                history.violated(crate::checker::Rule::Telling, what);
            }
        }
    }
}

/// A process and what runs it.
pub struct Host {
    pub process: Arc<Process>,
    runtime: Option<Runtime>,
    /// How much faster its clock runs than the true one, in millionths.
    drift_ppm: i64,
    began_at: u64,
    local_ms: u64,
    stopped_until: u64,
    /// It is stopped because its host is suspended.
    suspended: bool,
    /// For how long it was in all: its timers are that much behind.
    suspended_ms: u64,
}

impl Host {
    pub fn start(
        host: usize,
        generation: u64,
        drift_ppm: i64,
        mut rng: Rng,
        history: History,
    ) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .rng_seed(RngSeed::from_bytes(&rng.next().to_le_bytes()))
            .build()
            .expect("a runtime");
        let origin = runtime.block_on(async { Instant::now() });
        let began_at = history.lock().now;
        let process = Process {
            host,
            generation,
            clock: Arc::new(HostClock::new(origin)),
            entropy: Arc::new(HostEntropy { rng: Mutex::new(rng.fork()) }),
            desk: Desk::default(),
            history,
            ending: Notify::new(),
            stops: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            client: Mutex::default(),
            guards: Mutex::default(),
        };
        Self {
            process: Arc::new(process),
            runtime: Some(runtime),
            drift_ppm,
            began_at,
            local_ms: 0,
            stopped_until: 0,
            suspended: false,
            suspended_ms: 0,
        }
    }

    pub fn handle(&self) -> Handle {
        self.runtime.as_ref().expect("it runs").handle().clone()
    }

    pub fn stop_until(&mut self, until: u64) {
        if self.stopped_until < until {
            self.stopped_until = until;
            self.process.stops.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// As a stop, but that only its clock goes on, and its timers do not.
    pub fn suspend_until(&mut self, until: u64) {
        self.suspended = true;
        self.stop_until(until);
    }

    pub fn go_on(&mut self) {
        self.stopped_until = 0;
    }

    /// What its clock shows at the true time `now`, in nanoseconds, whether it runs or is stopped.
    pub fn local_nanos(&self, now: u64) -> u64 {
        let looks = self.process.clock.looks.load(Ordering::Relaxed);
        BOOT_NANOS + self.local_ms_at(now) * TICK.as_nanos() as u64 + looks
    }

    fn local_ms_at(&self, now: u64) -> u64 {
        let elapsed = (now - self.began_at) as i64;
        (elapsed + elapsed * self.drift_ppm / 1_000_000) as u64
    }

    /// Runs it until the true time is `now`.
    pub fn run_to(&mut self, now: u64) {
        if self.runtime.is_none() || now < self.stopped_until {
            return;
        }
        let local = self.local_ms_at(now);
        let mut missed = local.saturating_sub(self.local_ms);
        if missed == 0 {
            return;
        }
        self.local_ms = local;
        if std::mem::take(&mut self.suspended) {
            self.suspended_ms += missed - 1;
            self.process.clock.jump(TICK * (missed as u32 - 1));
            self.process.history.lock().checker.resumed(self.process.host, now);
            missed = 1;
        }
        let target = self.process.clock.origin + Duration::from_millis(local - self.suspended_ms);
        let process = self.process.clone();
        self.runtime.as_ref().expect("it runs").block_on(async move {
            if missed > 2 {
                // It was stopped: first of all the clock is another.
                tokio::time::advance(TICK * (missed as u32 - 1)).await;
            }
            tokio::time::sleep_until(target).await;
            process.sample();
        });
    }

    /// Ends the process as a crash does: nothing of it runs any more.
    pub fn kill(&mut self) {
        self.process.killed.store(true, Ordering::Relaxed);
        for watched in self.process.guards.lock().expect("no panic").drain(..) {
            if watched.guard.strong_count() > 0 {
                let mut history = self.process.history.lock();
                history.left(watched.lock, watched.token, &watched.lease, "with its process");
            }
        }
        drop(self.runtime.take());
        let client = self.process.client.lock().expect("no panic").take();
        drop(client);
    }
}

const TICK: Duration = Duration::from_millis(1);
/// What a process's clock shows at its start.
const BOOT_NANOS: u64 = 1_000_000_000_000;
