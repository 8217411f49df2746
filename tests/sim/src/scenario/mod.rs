//! A run: storms in which things go wrong, and calms in which everybody must come to an end, and all be clean.

mod calm;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use leasehold::seam::Seams;
use leasehold::{Client, ClientBuilder, Deadlocks, Error};
use leasehold_test::emulator::Rng;
use tokio::task::JoinHandle;

use self::calm::{LOOK_MS, Turns};
use crate::causes::{Cause, Causes, What};
use crate::checker::{Rule, Violation};
use crate::coordination::{GROUP_NAME, Memory, QUEUE, QUEUE_NAME, SIGNAL_NAMES};
use crate::host::Process;
use crate::kinds::{ELECTION, ELECTION_NAME, RW, RW_NAME, SEMAPHORE, SEMAPHORE_NAME};
use crate::nemesis::{Fault, LATCHES, Nemesis};
use crate::network::{Cables, address};
use crate::outcome::Outcome;
use crate::wishes::own_lock;
use crate::workload::{Worker, Workload, lock_name};
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
    /// The only server has a replica.
    pub replicated: bool,
    /// The servers are the masters of a cluster.
    pub cluster: bool,
    /// The servers' clocks stray from the true time alike.
    pub one_clock: bool,
    /// By how much each server's clock is ahead of that of the one before it.
    pub apart_ms: u64,
    /// The servers say that they write everything to disk at once.
    pub durable: bool,
    pub faults: &'static [(Fault, u64)],
    pub every_ms: u64,
    /// Per mille of the turns that break somebody's hold.
    pub force_unlocks: u64,
    /// Per mille of the lost holds whose guards are kept for long.
    pub keepers: u64,
    /// How many times a TTL a lease may be made to last.
    pub longer: u64,
    /// Per mille of the turns that are about locks of other kinds than mutexes.
    pub kinds: u64,
    /// Per mille of the turns that are about the queue, latches and signals.
    pub coordination: u64,
    /// Per mille of the turns that take several mutexes, one under the other, in any order.
    pub tangles: u64,
    /// Permits are among what is tangled.
    pub tangled_permits: bool,
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
    /// Since when who waits waits for what is free.
    turns: Turns,
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

    /// The locks there are, by their numbers.
    fn names(&self) -> Vec<(usize, String)> {
        let mut names: Vec<_> = (0..self.locks as usize).map(|n| (n, lock_name(n))).collect();
        if self.kinds > 0 {
            let others = [(RW, RW_NAME), (SEMAPHORE, SEMAPHORE_NAME), (ELECTION, ELECTION_NAME)];
            names.extend(others.map(|(lock, name)| (lock, name.to_owned())));
        }
        if self.tangled_permits && self.kinds == 0 {
            names.push((SEMAPHORE, SEMAPHORE_NAME.to_owned()));
        }
        if self.coordination > 0 {
            names.push((QUEUE, QUEUE_NAME.to_owned()));
        }
        names
    }

    fn is_quiet(&self) -> bool {
        self.faults.is_empty() && self.force_unlocks == 0
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
            if scenario.one_clock {
                world.nodes[node].drift_ppm = world.nodes[0].drift_ppm;
            }
            world.nodes[node].step_us = node as i64 * scenario.apart_ms as i64 * 1000;
            world.nodes[node].server.durable = scenario.durable;
            if scenario.replicated {
                world.add_replica(node);
            }
        }
        let is_cleared =
            |found: &(Fault, u64)| matches!(found.0, Fault::ClearOne | Fault::ClearAll);
        if scenario.cluster {
            world.join();
        }
        world.history.lock().checker.lenient =
            scenario.expected.contains(&Rule::Exclusion) || scenario.faults.iter().any(is_cleared);
        world.audit.all_is_heard =
            scenario.faults.iter().all(|(fault, _)| *fault == Fault::ClearSpare);
        // A queue that moves loses the places of those who wait.
        world.audit.ordered = !scenario.replicated && !scenario.cluster;
        let ttl = Duration::from_millis(scenario.ttl_ms);
        let workload = Workload {
            locks: scenario.locks,
            ttl,
            response_timeout: (ttl / 4).min(LONGEST_ANSWER),
            force_unlocks: scenario.force_unlocks,
            // Several masters share no order.
            fair: if scenario.nodes == 1 || scenario.cluster { 200 } else { 0 },
            keepers: scenario.keepers,
            longer: scenario.longer,
            several: scenario.nodes > 1 && !scenario.cluster,
            kinds: scenario.kinds,
            coordination: scenario.coordination,
            tangles: scenario.tangles,
            tangled_permits: scenario.tangled_permits,
            resting: Arc::default(),
            busy: Arc::default(),
        };
        let answer_ms = workload.response_timeout.as_millis() as u64;
        let mut history = world.history.lock();
        let majority = history.checker.majority;
        // In a cluster, what a process asks for is on one of them.
        let needed = if scenario.cluster { 1 } else { scenario.nodes + 1 - majority };
        let quarantine_ms = scenario.quarantine_ms.unwrap_or(0);
        let recovery_ms = CONNECT_MS + quarantine_ms + 4 * answer_ms + 1000;
        let longest_ms = workload.longest_lease_ms();
        history.causes = Causes::new(scenario.nodes, needed, recovery_ms, longest_ms);
        // Nobody has seen the servers before: at first there is a quarantine.
        let unknown = Cause { from: 0, to: 0, host: None, node: None, what: What::Disturbs };
        history.causes.add(unknown);
        drop(history);
        let rng = world.rng.fork();
        let mut names: Vec<_> = scenario.names().into_iter().map(|(_, name)| name).collect();
        if scenario.coordination > 0 {
            let others = SIGNAL_NAMES.into_iter().chain([GROUP_NAME, LATCHES]);
            names.extend(others.map(str::to_owned));
        }
        let nemesis = Nemesis::new(scenario.faults, scenario.every_ms, names, rng);
        Self {
            scenario,
            world,
            workload,
            nemesis,
            idle_tasks: 0,
            gone: BTreeMap::new(),
            turns: Turns::default(),
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
        if self.scenario.tangles > 0 && self.world.now.is_multiple_of(LOOK_MS) {
            self.look_for_circles();
        }
        if self.tail.is_none()
            && let [first, ..] = &*self.surprises()
        {
            let mut history = self.world.history.lock();
            history.note(format_args!("{first}"));
            self.tail = Some(history.trace.tail());
        }
    }

    /// Who waits for each other.
    fn look_for_circles(&self) {
        let nodes = self.world.nodes.len();
        let enough = if self.scenario.cluster { 1 } else { nodes / 2 + 1 };
        let has = |lock: usize, lease: &str| {
            if lock == SEMAPHORE {
                return true;
            }
            let name = lock_name(lock);
            let at = |node: &usize| self.world.lease_at(*node, name.as_bytes());
            (0..nodes).filter_map(|node| at(&node)).filter(|there| there == lease).count() >= enough
        };
        self.world.history.lock().tangles.look(has);
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
            // Without faults all of it is a calm.
            let settled_at = CONNECT_MS + self.scenario.quarantine_ms.unwrap_or(0);
            if self.scenario.is_quiet() && !self.free_is_taken(settled_at) {
                break;
            }
        }
        self.nemesis.end(&mut self.world);
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
        if self.scenario.tangles > 0 {
            let came_about = history.tangles.came_about();
            history.count("deadlocks", came_about);
        }
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

/// A process from its first moment on: one client after the other.
async fn live(scenario: Scenario, process: Arc<Process>, mut rng: Rng, workload: Workload) {
    loop {
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
        let ended = Arc::new(AtomicBool::new(false));
        let worker = |rng: Rng, number: usize| {
            let (process, client, ended) = (process.clone(), client.clone(), ended.clone());
            let own = own_lock(process.host, number);
            Worker {
                process,
                client,
                ended,
                rng,
                workload: workload.clone(),
                seen: None,
                memory: Memory::default(),
                own,
            }
        };
        let workers: Vec<_> =
            (0..scenario.workers).map(|n| tokio::spawn(worker(rng.fork(), n).work())).collect();
        process.ending.notified().await;
        ended.store(true, Ordering::Relaxed);
        process.forget_client();
        end(&process, client, workers, rng.chance(500)).await;
    }
}

/// Ends a client, in order or by dropping all that there is of it.
async fn end(process: &Process, client: Client, workers: Vec<JoinHandle<()>>, in_order: bool) {
    if in_order {
        client.shutdown().await;
        process.history.count("ended_clients");
        let left = client.holds();
        let mut history = process.history.lock();
        history.checker.checked(Rule::Leak);
        if !left.is_empty() {
            history.violated(Rule::Leak, format!("held after the shutdown: {left:?}"));
        }
    } else {
        workers.iter().for_each(JoinHandle::abort);
        process.history.count("dropped_clients");
    }
    drop(client);
    for worker in workers {
        let _ = worker.await;
    }
    process.history.lock().gone_with(process.host);
}

async fn connect(
    scenario: &Scenario,
    process: &Arc<Process>,
    workload: &Workload,
) -> Result<Client, Error> {
    let builder = match scenario.cluster {
        true => in_world(process, Client::builder().cluster((0..scenario.nodes).map(address))),
        false => builder(process, scenario.nodes),
    };
    // Who may hold something is counted by numbers that all runs of this process share, so runs that look for deadlocks
    // repeat themselves only nearly.
    let reaction = if scenario.tangles > 0 { Deadlocks::Fail } else { Deadlocks::Off };
    builder
        .deadlocks(reaction)
        .ttl(workload.ttl)
        .response_timeout(workload.response_timeout)
        .restart_quarantine(scenario.quarantine())
        .connect()
        .await
}

/// A client of a process, in this world instead of the real one.
pub fn builder(process: &Process, nodes: usize) -> ClientBuilder {
    in_world(process, Client::builder().nodes((0..nodes).map(address)))
}

fn in_world(process: &Process, builder: ClientBuilder) -> ClientBuilder {
    let network = Arc::new(Cables { desk: process.desk.clone() });
    builder
        .name(client_name(process.host, process.generation))
        .connect_timeout(Duration::from_millis(CONNECT_MS))
        .seams(Seams {
            network: Some(network),
            time: Some(process.clock.clone()),
            entropy: Some(process.entropy.clone()),
        })
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
const LONGEST_ANSWER: Duration = Duration::from_millis(500);
