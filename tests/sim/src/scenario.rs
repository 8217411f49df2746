//! A run: storms in which things go wrong, and calms in which everybody must come to an end, and all be clean.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};
use std::time::Duration;

use leasehold::{Client, ClientBuilder, Error};

use crate::checker::{Rule, Violation};
use crate::history::Ask;
use crate::host::Process;
use crate::nemesis::{Fault, Nemesis};
use crate::network::{Cables, address};
use crate::outcome::Outcome;
use crate::rng::Rng;
use crate::workload::{KEPT_MS, Worker, Workload, lock_name};
use crate::world::World;

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub nodes: usize,
    pub hosts: usize,
    pub workers: usize,
    pub locks: u64,
    pub ttl_ms: u64,
    pub quarantine_ms: Option<u64>,
    /// The servers say that they write everything to disk at once.
    pub durable: bool,
    pub faults: &'static [(Fault, u64)],
    pub every_ms: u64,
    /// Per mille of the turns that break somebody's hold.
    pub force_unlocks: u64,
    /// Per mille of the lost holds whose guards are kept for long.
    pub keepers: u64,
    /// What these faults break.
    pub expected: &'static [Rule],
}

/// A run in progress.
struct Run<'a> {
    scenario: &'a Scenario,
    world: World,
    workload: Workload,
    nemesis: Nemesis,
    /// How many tasks an idle client has.
    idle_tasks: usize,
    /// When each process that is gone went: host and which.
    gone: BTreeMap<(usize, u64), u64>,
    /// The trace up to the first violation.
    tail: Option<String>,
}

impl Scenario {
    /// Runs for `minutes` of simulated time at least, or until a promise is broken that should be kept.
    pub fn run(&self, seed: u64, minutes: u64) -> Outcome {
        let panics = panics();
        let mut run = Run::new(self, seed);
        run.start();
        while run.world.now < minutes * 60_000 && run.surprises().is_empty() {
            run.storm();
            if !run.calm() {
                break;
            }
        }
        run.shut_down();
        let new = self::panics() - panics;
        if new > 0 {
            run.world.history.lock().violated(Rule::Unexpected, format!("{new} panics"));
        }
        run.outcome(seed)
    }

    fn quarantine(&self) -> Duration {
        Duration::from_millis(self.quarantine_ms.unwrap_or(0))
    }
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, seed: u64) -> Self {
        let mut world = World::new(seed, scenario.nodes);
        for node in 0..scenario.nodes {
            world.nodes[node].drift_ppm = world.rng.between(0, 8000) as i64 - 4000;
            world.nodes[node].server.durable = scenario.durable;
        }
        let is_cleared =
            |found: &(Fault, u64)| matches!(found.0, Fault::ClearOne | Fault::ClearAll);
        world.history.lock().checker.lenient =
            scenario.expected.contains(&Rule::Exclusion) || scenario.faults.iter().any(is_cleared);
        world.audit.all_is_heard =
            scenario.faults.iter().all(|(fault, _)| *fault == Fault::ClearSpare);
        let ttl = Duration::from_millis(scenario.ttl_ms);
        let workload = Workload {
            locks: scenario.locks,
            ttl,
            response_timeout: ttl / 4,
            force_unlocks: scenario.force_unlocks,
            keepers: scenario.keepers,
            resting: Arc::default(),
            busy: Arc::default(),
        };
        let rng = world.rng.fork();
        let nemesis = Nemesis::new(scenario.faults, scenario.every_ms, rng);
        Self {
            scenario,
            world,
            workload,
            nemesis,
            idle_tasks: 0,
            gone: BTreeMap::new(),
            tail: None,
        }
    }

    fn start(&mut self) {
        for host in 0..self.scenario.hosts {
            self.boot(host, 1);
        }
        self.rest(true);
        self.world.run(1000);
        let client = self.world.hosts[0].process.client().expect("connected, without any fault");
        self.idle_tasks = client.stats().tasks;
        self.rest(false);
    }

    fn step(&mut self) {
        self.world.step();
        if self.tail.is_none()
            && let [first, ..] = &*self.surprises()
        {
            let mut history = self.world.history.lock();
            history.note(format_args!("{first}"));
            self.tail = Some(history.trace.tail());
        }
    }

    /// The violations that nobody expects.
    fn surprises(&self) -> Vec<Violation> {
        let history = self.world.history.lock();
        let expected = |found: &&Violation| !self.scenario.expected.contains(&found.rule);
        history.checker.violations().iter().filter(expected).cloned().collect()
    }

    fn boot(&mut self, host: usize, generation: u64) {
        let drift_ppm = self.world.rng.between(0, 10_000) as i64 - 5000;
        let rng = self.world.rng.fork();
        let host = self.world.boot(host, generation, drift_ppm);
        let process = host.process.clone();
        host.handle().spawn(live(self.scenario.clone(), process, rng, self.workload.clone()));
    }

    fn rest(&self, resting: bool) {
        self.workload.resting.store(resting, Ordering::Relaxed);
    }

    fn storm(&mut self) {
        let until = self.world.now + self.world.rng.between(10_000, 60_000);
        while self.world.now < until && self.tail.is_none() {
            if let Some(host) = self.nemesis.act(&mut self.world) {
                let generation = self.world.hosts[host].process.generation;
                self.gone.insert((host, generation), self.world.now);
                self.boot(host, generation + 1);
            }
            self.step();
        }
        self.nemesis.end(&mut self.world);
    }

    /// All faults end, and nobody begins anything new. False if something did not come to its end.
    fn calm(&mut self) -> bool {
        self.world.heal();
        self.rest(true);
        self.world.history.lock().note(format_args!("calm"));
        let began_at = self.world.now;
        let mut taken_at = vec![began_at; self.scenario.locks as usize];
        let limit = began_at + self.longest_wait_ms();
        while self.workload.busy.load(Ordering::Relaxed) > 0 {
            if self.world.now > limit {
                let mut history = self.world.history.lock();
                let waiting: Vec<Ask> = history.pending.values().copied().collect();
                history.violated(Rule::Stuck, format!("{} still wait: {waiting:?}", waiting.len()));
                return false;
            }
            self.step();
            if !self.free_is_taken(began_at, &mut taken_at) {
                return false;
            }
        }
        let limit = self.world.now + self.settling_ms();
        loop {
            let left = self.left_behind();
            if left.is_empty() {
                break;
            }
            if self.world.now > limit {
                let what = left.join("; ");
                self.world.history.lock().violated(Rule::Leak, what);
                return false;
            }
            self.step();
        }
        if !self.all_is_released() {
            return false;
        }
        self.world.audit.forget();
        let mut history = self.world.history.lock();
        history.checker.forget_ended();
        history.count("calms", 1);
        history.checker.checked(Rule::Stuck);
        history.checker.checked(Rule::Leak);
        history.note(format_args!("storm"));
        drop(history);
        self.rest(false);
        true
    }

    /// H: how long the last waiter waits once nothing goes wrong any more.
    fn longest_wait_ms(&self) -> u64 {
        let workers = (self.scenario.hosts * self.scenario.workers) as u64;
        // What may be held still, then a poll, connections, the quarantine, and everybody's turn.
        let kept = if self.scenario.keepers > 0 { KEPT_MS } else { 0 };
        2 * self.workload.longest_lease_ms()
            + POLL_MS
            + CONNECT_MS
            + self.scenario.quarantine_ms.unwrap_or(0)
            + workers * LONGEST_HOLD_MS
            + kept
    }

    fn settling_ms(&self) -> u64 {
        2 * self.workload.longest_lease_ms()
    }

    /// Invariant 8: who waits for a lock that is free hears of it, or asks by itself. `taken_at` is when each lock
    /// was last not free.
    fn free_is_taken(&self, began_at: u64, taken_at: &mut [u64]) -> bool {
        let now = self.world.now;
        // A look now and then is enough.
        if !now.is_multiple_of(LOOK_MS) {
            return true;
        }
        let settled_at = began_at + CONNECT_MS + self.scenario.quarantine_ms.unwrap_or(0);
        let mut history = self.world.history.lock();
        let nodes = 0..self.world.nodes.len();
        for (lock, taken_at) in taken_at.iter_mut().enumerate() {
            let name = lock_name(lock);
            let is_free = |node: &usize| self.world.lease_at(*node, name.as_bytes()).is_none();
            if nodes.clone().filter(is_free).count() < history.checker.majority {
                *taken_at = now;
                continue;
            }
            let longest = POLL_MS + 2 * self.workload.response_timeout.as_millis() as u64;
            let waits = history.pending.values().find(|ask| {
                ask.lock == lock && now > ask.since.max(*taken_at).max(settled_at) + longest
            });
            if let Some(ask) = waits.copied() {
                let what = format!("free since {taken_at}, and still waited for: {ask:?}");
                history.violated(Rule::Stuck, what);
                return false;
            }
        }
        true
    }

    /// Invariant 5: there is a release behind everything that a server granted to a process that is still there.
    fn all_is_released(&self) -> bool {
        let mut history = self.world.history.lock();
        history.checker.checked(Rule::Unreleased);
        let mut left =
            self.world.audit.unreleased().filter(|(_, lease)| self.since_end(lease).is_none());
        let Some((node, lease)) = left.next() else { return true };
        history.violated(Rule::Unreleased, format!("nobody released {lease} on n{node}"));
        false
    }

    /// How long ago the process ended that had a lease.
    fn since_end(&self, lease: &str) -> Option<u64> {
        self.gone.iter().find_map(|((host, generation), at)| {
            let name = format!("{}:", client_name(*host, *generation));
            lease.starts_with(&name).then(|| self.world.now - at)
        })
    }

    /// R1: what is there that should not be.
    fn left_behind(&self) -> Vec<String> {
        let mut left = Vec::new();
        if !self.world.is_quiet() {
            left.push("messages are on their way".to_owned());
        }
        let mut live = Vec::new();
        for host in &self.world.hosts {
            let process = &host.process;
            live.push((process.host, process.generation));
            let Some(client) = process.client() else {
                left.push(format!("h{} is not connected", process.host));
                continue;
            };
            let stats = client.stats();
            let idle = (stats.gates, stats.waiters, stats.subscriptions, stats.owed_releases)
                == (0, 0, 0, 0)
                && stats.tasks == self.idle_tasks;
            if !idle {
                left.push(format!("h{}: {stats:?}, idle: {} tasks", process.host, self.idle_tasks));
            }
        }
        for (number, node) in self.world.nodes.iter().enumerate() {
            if node.server.channels() > 0 {
                left.push(format!("n{number} has subscribers"));
            }
            let fields = node.server.keys(self.world.node_us(number), |keys| {
                let names = keys.names();
                names.iter().flat_map(|name| keys.fields(name)).collect::<Vec<_>>()
            });
            for (lease, _) in fields {
                let lease = String::from_utf8_lossy(&lease).into_owned();
                let since_end = self.since_end(&lease);
                // L1: what a dead process held ends by itself.
                let longest = self.workload.longest_lease_ms() + STALE_MS;
                if since_end.is_none_or(|ms| ms > longest) {
                    left.push(format!("n{number} has {lease}, gone for {since_end:?} ms"));
                }
            }
        }
        left
    }

    /// Every client ends in time, and nothing of it is left.
    fn shut_down(&mut self) {
        self.rest(true);
        self.world.heal();
        self.world.run(100);
        for host in 0..self.world.hosts.len() {
            let process = self.world.hosts[host].process.clone();
            let Some(client) = process.client() else { continue };
            let history = self.world.history.clone();
            self.world.hosts[host].handle().spawn(async move {
                client.shutdown().await;
                history.lock().count("shutdowns", 1);
            });
        }
        let within = self.workload.response_timeout.as_millis() as u64;
        self.world.run(within * 2 + 100);
        let connected =
            self.world.hosts.iter().filter(|host| host.process.client().is_some()).count() as u64;
        let mut history = self.world.history.lock();
        let ended = history.counts.get("shutdowns").copied().unwrap_or(0);
        if ended != connected {
            history.violated(Rule::Stuck, format!("{ended} of {connected} clients shut down"));
        }
    }

    fn outcome(mut self, seed: u64) -> Outcome {
        for host in 0..self.world.hosts.len() {
            self.world.kill(host);
        }
        let violations = self.surprises();
        let mut history = self.world.history.lock();
        Outcome {
            scenario: self.scenario.name,
            seed,
            simulated_ms: self.world.now,
            trace_hash: history.trace.hash(),
            tail: self.tail.unwrap_or_else(|| history.trace.tail()),
            violations,
            overlaps: history.checker.overlaps,
            overlaps_told: history.checker.overlaps_told,
            longest_overlap_ms: history.checker.longest_overlap_ms,
            counts: std::mem::take(&mut history.counts),
            checks: std::mem::take(&mut history.checker.checks),
        }
    }
}

/// A process from its first moment on.
async fn live(scenario: Scenario, process: Arc<Process>, mut rng: Rng, workload: Workload) {
    let client = loop {
        match connect(&scenario, &process, &workload).await {
            Ok(client) => break client,
            Err(Error::Unavailable { .. }) => process.history.count("failed_connects"),
            Err(error) => {
                let mut history = process.history.lock();
                return history.violated(Rule::Unexpected, format!("connect: {error}"));
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    process.set_client(client.clone());
    for _ in 0..scenario.workers {
        let worker = Worker {
            process: process.clone(),
            client: client.clone(),
            rng: rng.fork(),
            workload: workload.clone(),
        };
        tokio::spawn(worker.work());
    }
}

async fn connect(
    scenario: &Scenario,
    process: &Arc<Process>,
    workload: &Workload,
) -> Result<Client, Error> {
    builder(process, scenario.nodes)
        .ttl(workload.ttl)
        .response_timeout(workload.response_timeout)
        .restart_quarantine(scenario.quarantine())
        .connect()
        .await
}

/// A client of a process, in this world instead of the real one.
pub fn builder(process: &Process, nodes: usize) -> ClientBuilder {
    let network = Arc::new(Cables { desk: process.desk.clone() });
    Client::builder()
        .nodes((0..nodes).map(address))
        .name(client_name(process.host, process.generation))
        .connect_timeout(Duration::from_millis(CONNECT_MS))
        .seams(network, process.clock.clone(), process.entropy.clone())
}

pub fn client_name(host: usize, generation: u64) -> String {
    format!("h{host}.{generation}")
}

/// How many panics there were on this thread, in whatever task.
fn panics() -> u64 {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            before(panic);
        }));
    });
    PANICS.get()
}

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

const CONNECT_MS: u64 = 1500;
/// The longest of the random polls.
const POLL_MS: u64 = 4000;
/// How long a task keeps a lock at most once it has it, and what it does on the way.
const LONGEST_HOLD_MS: u64 = 6000;
const LOOK_MS: u64 = 50;
/// How long after its process a message may still arrive.
const STALE_MS: u64 = 6000;
