//! What a run has on its stage: the servers, the contenders, and who writes down what is done to them.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    checker::DRIVER,
    contender::{Face, Orders, Workload},
    deployment::{Deployment, Layout, Node},
    event::What,
    journal::Journal,
    locks::{self, SEMAPHORES},
    monitor, stalls,
};
use leasehold::Client;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

pub(crate) struct Scene {
    pub(crate) deployment: Deployment,
    pub(crate) journal: Journal,
    pub(crate) ttl: Duration,
    pub(crate) quarantine: Duration,
    slots: Vec<Mutex<Slot>>,
    pub(crate) dir: PathBuf,
    program: PathBuf,
    seed: u64,
    workload: Workload,
    /// The process ids of the servers that run.
    servers: Arc<Mutex<Vec<u32>>>,
    over: Arc<AtomicBool>,
    faults: AtomicU64,
    /// Contenders that were to end in the course of the run, and did not do so well.
    failed: Mutex<Vec<String>>,
}

/// The place of one contender, which is followed by another when it is killed.
struct Slot {
    name: String,
    generation: u64,
    process: Option<Child>,
}

impl Scene {
    /// Starts the servers and the contenders.
    pub(crate) async fn set(
        program: PathBuf,
        dir: PathBuf,
        layout: Layout,
        workload: Workload,
        seed: u64,
    ) -> Self {
        let journal = Journal::create(&dir.join(format!("{DRIVER}.log"))).expect("a journal");
        let scene = Self {
            deployment: Deployment::start(layout, CONTENDERS).await,
            journal,
            ttl: ttl(layout, workload),
            quarantine: quarantine(layout),
            slots: (0..CONTENDERS).map(|_| Mutex::new(Slot::empty())).collect(),
            dir,
            program,
            seed,
            workload,
            servers: Arc::default(),
            over: Arc::default(),
            faults: AtomicU64::new(0),
            failed: Mutex::default(),
        };
        let (journal, over) = (scene.journal.clone(), scene.over.clone());
        let pids = scene.servers.clone();
        stalls::watch_processors(&journal, &over);
        thread::spawn(move || stalls::watch(&journal, &over, || pids.lock().clone()));
        scene.note_servers();
        for node in &scene.deployment.nodes {
            let (journal, over) = (scene.journal.clone(), scene.over.clone());
            tokio::spawn(monitor::watch(node.index, node.server.port(), journal, over));
        }
        if !scene.quarantine.is_zero() {
            // Until then nobody trusts servers that have just started. It counts from the first client that meets them, which
            // writes that down for the others.
            let first = scene.first_client().await;
            tokio::time::sleep(scene.quarantine + Duration::from_secs(1)).await;
            first.shutdown().await;
        }
        if layout == Layout::Lists {
            let lists = vec![scene.deployment.list_of(&scene.deployment.masters_of(0))];
            scene.journal.write(What::Masters { lists, everywhere: true });
        }
        for slot in 0..CONTENDERS {
            scene.start_contender(slot, None);
        }
        scene
    }

    /// The servers are up, but a machine that is busy may keep them from answering in time.
    async fn first_client(&self) -> Client {
        let (orders, asked_at) = (self.orders(0, "first".to_owned(), 0, None), Instant::now());
        loop {
            match orders.builder().connect().await {
                Ok(client) => return client,
                Err(error) => assert!(asked_at.elapsed() < END_LIMIT, "{error}"),
            }
        }
    }

    /// A number for a fault.
    pub(crate) fn number(&self) -> u64 {
        self.faults.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn contenders(&self) -> usize {
        self.slots.len()
    }

    /// To be called when no server is down.
    pub(crate) fn note_servers(&self) {
        let nodes = self.deployment.nodes.iter().map(|node| &node.server);
        let sentinels = self.deployment.watchers.iter().map(|watcher| &watcher.server);
        *self.servers.lock() = nodes.chain(sentinels).map(|server| server.pid()).collect();
    }

    /// The name of the contender that has this place now.
    pub(crate) fn contender(&self, number: usize) -> String {
        self.slots[number].lock().name.clone()
    }

    fn orders(&self, number: usize, name: String, generation: u64, first: Option<&str>) -> Orders {
        let layout = self.deployment.layout;
        let keepers = if layout.is_cluster() { KEEPERS } else { 0 };
        let [crowd, keepers, hands, tanglers] = match self.workload {
            Workload::Mixed => [CROWD, keepers, HANDS, 0],
            Workload::Deadlocks => [0, 0, 0, TANGLERS],
        };
        Orders {
            name,
            dir: self.dir.clone(),
            place: self.deployment.place(number),
            // One of them waits for a replica before it believes in a grant.
            synced: u32::from(layout.is_replicated() && number == SYNCED),
            face: if number % 3 == 2 { Face::Threads } else { Face::Tasks },
            seed: self.seed ^ (number as u64) << 32 ^ generation << 48,
            ttl: self.ttl,
            quarantine: self.quarantine,
            is_by_default: layout.is_by_default(),
            first: first.map(str::to_owned),
            crowd,
            keepers,
            hands,
            tanglers,
        }
    }

    fn start_contender(&self, number: usize, first: Option<&str>) {
        let mut slot = self.slots[number].lock();
        slot.generation += 1;
        slot.name = format!("c{number}-{}", slot.generation);
        let orders = self.orders(number, slot.name.clone(), slot.generation, first);
        let orders = serde_json::to_string(&orders).expect("plain data");
        let log = self.dir.join(format!("{}.stderr", slot.name));
        let process = ending_with_us(&self.program)
            .args(["contend", &orders])
            .stdin(Stdio::piped())
            .stderr(std::fs::File::create(log).expect("a file"))
            .spawn();
        slot.process = Some(process.expect("a contender can be started"));
    }

    /// SIGKILL, and another one in its place. Others are to have what it held before long.
    pub(crate) fn kill_contender(&self, number: usize, fault: u64) {
        self.replace(number, fault, None);
    }

    /// SIGKILL in the course of another fault, because of which others may have to wait for what it held. The one in its
    /// place asks for this lock first.
    pub(crate) fn replace_contender(&self, number: usize, first: &str) {
        self.replace(number, u64::MAX, Some(first));
    }

    fn replace(&self, number: usize, fault: u64, first: Option<&str>) {
        {
            let mut slot = self.slots[number].lock();
            let name = slot.name.clone();
            let process = slot.process.as_mut().expect("it was started");
            process.kill().expect("it was ours");
            process.wait().expect("it was ours");
            self.journal.write(What::Killed { process: name, number: fault });
        }
        self.start_contender(number, first);
    }

    /// SIGSTOP, or SIGCONT.
    pub(crate) fn signal_contender(&self, number: usize, signal: Signal) {
        let slot = self.slots[number].lock();
        let process = slot.process.as_ref().expect("it was started");
        let pid = Pid::from_child(process);
        // One that has ended by itself is told of at the end of the run.
        let _ = kill_process(pid, signal);
    }

    /// Lets a contender come to its end, and starts another in its place.
    pub(crate) async fn follow_contender(&self, number: usize) {
        self.tell_to_end(number);
        if let Err(failure) = self.ended(number, Instant::now()).await {
            self.failed.lock().push(failure);
        }
        self.start_contender(number, None);
    }

    fn tell_to_end(&self, number: usize) {
        let mut slot = self.slots[number].lock();
        if let Some(input) = slot.process.as_mut().and_then(|it| it.stdin.as_mut()) {
            let _ = input.write_all(b"end\n");
        }
    }

    /// Waits until a contender has ended that was told to at `asked_at`.
    async fn ended(&self, number: usize, asked_at: Instant) -> Result<(), String> {
        // The last turns may have to wait for each other.
        let limit = END_LIMIT + self.ttl * 8;
        loop {
            let ended = self.slots[number].lock().ended(asked_at.elapsed() > limit);
            if let Some(ended) = ended {
                return ended;
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// Lets all contenders come to their end. Those that do not, or not well, are named.
    pub(crate) async fn end_contenders(&self) -> Vec<String> {
        (0..self.contenders()).for_each(|number| self.tell_to_end(number));
        let mut failed = std::mem::take(&mut *self.failed.lock());
        let asked_at = Instant::now();
        for number in 0..self.contenders() {
            failed.extend(self.ended(number, asked_at).await.err());
        }
        failed
    }

    /// What is still there of the locks, when everything has ended and every lease has had its time.
    pub(crate) async fn note_what_is_left(&self) {
        // Over several servers, so has every reservation of a writer that was killed.
        let several = self.deployment.nodes.len() > 1;
        let reserved = if several { RESERVED } else { Duration::ZERO };
        tokio::time::sleep(reserved.max(self.ttl * 2)).await;
        for node in &self.deployment.nodes {
            let keys = node.insist(&["KEYS", "*"]).await;
            let keys: Vec<String> = redis::from_redis_value(keys).expect("names of keys");
            for key in keys.into_iter().filter(|key| !locks::stays(key)) {
                self.journal.write(What::Left { node: node.index, key });
            }
            for semaphore in SEMAPHORES {
                if let Some(pool) = pool(node, semaphore).await {
                    self.journal.write(pool);
                }
            }
            if let Some(stock) = stock(node).await {
                self.journal.write(stock);
            }
        }
        self.over.store(true, Ordering::SeqCst);
    }

    /// To be called when what is known of the servers' locks may be wrong: another one has become the master.
    pub(crate) fn forget_what_servers_have(&self) {
        for node in &self.deployment.nodes {
            self.journal.write(What::Watched { node: node.index });
        }
    }
}

/// What a server has of a semaphore; `None`: nothing, or another one of its cluster has it.
async fn pool(node: &Node, semaphore: &str) -> Option<What> {
    let ends = locks::ends_of_permits(semaphore);
    let left = node.attempt(&["GET", semaphore]).await.ok()?;
    let left = redis::from_redis_value::<Option<i64>>(left).expect("a number of permits")?;
    let time = redis::from_redis_value::<(String, String)>(node.insist(&["TIME"]).await);
    let now_ms = format!("{}000", time.expect("seconds and microseconds").0);
    let count = async |from: &str, to: &str| {
        let counted = node.insist(&["ZCOUNT", &ends, from, to]).await;
        redis::from_redis_value::<i64>(counted).expect("a number of permits")
    };
    let (ended, out) = (count("-inf", &now_ms).await, count(&format!("({now_ms}"), "+inf").await);
    Some(What::Pool { node: node.index, lock: semaphore.to_owned(), left, ended, out })
}

/// The items that a server has; `None`: another one of its cluster has the queue.
async fn stock(node: &Node) -> Option<What> {
    let payloads = async |words: &[&str]| {
        let answer = node.attempt(words).await.ok()?;
        redis::from_redis_value::<Vec<Vec<u8>>>(answer).ok()
    };
    let items = |payloads: Vec<Vec<u8>>| payloads.iter().map(|it| locks::item_of(it)).collect();
    let [_, contents, dead] = locks::keys_of_queue();
    let waiting = payloads(&["LRANGE", locks::QUEUE, "0", "-1"]).await?;
    let dead = payloads(&["LRANGE", &dead, "0", "-1"]).await?;
    // Each is `number time:payload`.
    let lent = payloads(&["HVALS", &contents]).await?;
    let lent = lent.into_iter().map(|content| {
        let colon = content.iter().position(|byte| *byte == b':').map_or(0, |at| at + 1);
        content[colon..].to_vec()
    });
    let (waiting, lent, dead) = (items(waiting), items(lent.collect()), items(dead));
    Some(What::Stock { node: node.index, waiting, lent, dead })
}

/// A program that is killed when this one ends, however that ends, where the system can do that. (It goes by the
/// thread that starts it: here the main one.)
fn ending_with_us(program: &Path) -> Command {
    let [setpriv, options @ ..] = ["setpriv", "--pdeathsig", "KILL", "--"];
    let tried = Command::new(setpriv).args(options).arg("true").stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        return Command::new(program);
    }
    let mut command = Command::new(setpriv);
    command.args(options).arg(program);
    command
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        for slot in &self.slots {
            if let Some(process) = &mut slot.lock().process {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }
}

impl Slot {
    fn empty() -> Self {
        Self { name: String::new(), generation: 0, process: None }
    }

    /// Whether its contender has ended, and well; after the limit it is ended. `None`: not yet.
    fn ended(&mut self, is_late: bool) -> Option<Result<(), String>> {
        let process = self.process.as_mut()?;
        let name = &self.name;
        match process.try_wait().expect("it was ours") {
            Some(status) if status.success() => Some(Ok(())),
            Some(status) => Some(Err(format!("{name} ended with {status}"))),
            None if is_late => {
                let _ = process.kill();
                let _ = process.wait();
                Some(Err(format!("{name} did not end")))
            }
            None => None,
        }
    }
}

impl Node {
    pub(crate) fn is_down(&self, journal: &Journal) {
        journal.write(What::Down { node: self.index });
    }

    pub(crate) fn is_up(&self, journal: &Journal) {
        journal.write(What::Up { node: self.index });
    }
}

pub(crate) fn ttl(layout: Layout, workload: Workload) -> Duration {
    match layout {
        Layout::Independent(_) if workload == Workload::Deadlocks => TTL_OF_DEADLOCKS,
        Layout::Independent(_) | Layout::Lists => TTL,
        Layout::Sentinel | Layout::Unfenced | Layout::Cluster => LONG_TTL,
        Layout::Patient(seconds) => patient_ttl(seconds),
        Layout::ShortGrace(_) => SHORT_GRACE,
    }
}

pub(crate) fn quarantine(layout: Layout) -> Duration {
    match layout {
        Layout::Independent(1) | Layout::Unfenced => Duration::ZERO,
        Layout::Independent(_) | Layout::Lists => QUARANTINE,
        Layout::Sentinel | Layout::Cluster => GRACE,
        Layout::Patient(seconds) => {
            let beside = Duration::from_secs(1) + Duration::from_secs(seconds.into()) / 2;
            USUAL_GRACE.max(patient_ttl(seconds) + beside)
        }
        Layout::ShortGrace(_) => SHORT_GRACE,
    }
}

/// Two thirds of it are no shorter than a master goes on that is cut off: one and a half node timeouts and a second.
fn patient_ttl(node_timeout_seconds: u32) -> Duration {
    let goes_on = Duration::from_secs(1) + Duration::from_secs(node_timeout_seconds.into()) * 3 / 2;
    USUAL_TTL.max(goes_on * 3 / 2)
}

/// Short, so that a fault can outlast it; long enough for a busy machine to renew it.
pub(crate) const TTL: Duration = Duration::from_millis(900);
/// A process that is stopped for a while keeps its part of a deadlock, or loses it.
const TTL_OF_DEADLOCKS: Duration = Duration::from_millis(2400);
/// Longer than any lease. The time that tokens are is rounded to half of it at most, so that they rise where a
/// server has lost its counter.
const QUARANTINE: Duration = Duration::from_secs(3);
/// A reservation that nobody takes back lasts for 5 s.
const RESERVED: Duration = Duration::from_millis(5500);
/// So long that a lease renewed a third of it ago outlasts a failover.
const LONG_TTL: Duration = Duration::from_millis(4500);
/// An old master with no replicas may renew a lease for three seconds more, and the next one is known no sooner than two
/// seconds after the cut.
const GRACE: Duration = Duration::from_millis(6500);
/// The library's defaults for a cluster.
const USUAL_TTL: Duration = Duration::from_secs(30);
const USUAL_GRACE: Duration = Duration::from_secs(40);
/// As long as a lease, and not longer.
const SHORT_GRACE: Duration = Duration::from_secs(8);
const CONTENDERS: usize = 3;
/// The place of the contender that waits for a replica, where there are some.
pub(crate) const SYNCED: usize = 1;
/// Tasks or threads of each contender.
const CROWD: usize = 4;
/// Those besides that keep mutexes for long.
const KEEPERS: usize = 6;
/// Those besides that push items and work on them, of contenders with tasks.
const HANDS: usize = 2;
/// Those of each contender that take locks one under the other, where there are no others.
const TANGLERS: usize = 6;
const TICK: Duration = Duration::from_millis(10);
const END_LIMIT: Duration = Duration::from_secs(15);
