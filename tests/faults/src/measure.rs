//! Two situations at a size that tests do not have, and what they cost: for a quiet machine.
//!
//! * `stopped`: a process with many places in the queue of a fair mutex stands still. Its places may delay the others once, by the
//!   2 s of a grant that nobody takes up.
//! * `down`: clients hold many locks beside a shard of a cluster, or one of three masters, that is down. Beyond what they send when
//!   all is well, each may send ten requests a second to each server that is left, and keeps its connections there.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use futures_util::{StreamExt, future::join_all, stream};
use leasehold::{Client, ClientBuilder, Guard};
use leasehold_testkit::{Cluster, Server, Watch, eventually};
use serde_json::json;
use tokio::time::{sleep, timeout};

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Places of the stopped process.
    pub entries: usize,
    pub clients: usize,
    /// Of each client.
    pub locks: usize,
    pub ttl: Duration,
}

impl Size {
    pub const FULL: Self =
        Self { entries: 30, clients: 50, locks: 2000, ttl: Duration::from_secs(30) };
}

/// Measures one of them, and prints its figures, the last line in JSON. Returns whether they are as they should be.
pub fn measure(what: &str, size: Size, program: &std::path::Path) -> Option<bool> {
    Watch::allow(LONGEST);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match what {
        "stopped" => Some(runtime.block_on(stopped(size, program))),
        "down" => {
            Some(runtime.block_on(async { shard_down(size).await & master_down(size).await }))
        }
        _ => None,
    }
}

/// What the process that will stand still does: it waits with so many tasks, and says so.
pub fn wait_in_line(url: &str, entries: usize) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = Client::connect(url).await.expect("connected");
        for _ in 0..entries {
            let lock = client.fair_mutex(LOCK);
            tokio::spawn(async move { drop(lock.lock().await) });
        }
        let queued = async || {
            let status = client.fair_mutex(LOCK).status().await;
            client.stats().waiters >= entries && status.is_ok_and(|it| it.waiting_clients > 0)
        };
        eventually(LIMIT, "they wait", queued).await;
        println!("waits");
        std::io::stdout().flush().expect("it is read");
        std::future::pending::<()>().await;
    });
}

/// The process, which ends with this one.
struct InLine(Child);

impl InLine {
    fn start(program: &std::path::Path, url: &str, entries: usize) -> Self {
        let entries = entries.to_string();
        let mut child = Command::new(program)
            .args(["wait-in-line", url, &entries])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("it says that it waits");
        assert_eq!(line.trim(), "waits");
        Self(child)
    }

    fn stop(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is ours");
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn stopped(size: Size, program: &std::path::Path) -> bool {
    let server = Server::start().await;
    let holder = Client::connect(&server.url()).await.expect("connected");
    let held = holder.fair_mutex(LOCK).lock().await.expect("free");
    let in_line = InLine::start(program, &server.url(), size.entries);
    let queue = format!("leasehold_queue:{{{LOCK}}}");
    let places = async || {
        let places = server.command(&["ZCARD", &queue]).await;
        redis::from_redis_value::<usize>(places).expect("a number")
    };
    eventually(LIMIT, "all have their places", async || places().await >= size.entries).await;
    // Whom nobody can tell yet would be passed over at once.
    let can_be_told = async |clients: usize| {
        let mailboxes = server.command(&["PUBSUB", "CHANNELS", "leasehold_mailbox:*"]).await;
        redis::from_redis_value::<Vec<String>>(mailboxes).expect("names").len() >= clients
    };
    eventually(LIMIT, "it can be told", async || can_be_told(1).await).await;
    // Behind it, so that all of its places are before theirs.
    let mut others = Vec::new();
    for _ in 0..OTHERS {
        others.push(Client::connect(&server.url()).await.expect("connected"));
    }
    let began_at = Instant::now();
    let waits = others.iter().map(|client| {
        let lock = client.fair_mutex(LOCK);
        tokio::spawn(async move { turns(lock, began_at).await })
    });
    let waits: Vec<_> = waits.collect();
    eventually(LIMIT, "they wait, too", async || places().await >= size.entries + OTHERS).await;
    eventually(LIMIT, "they can be told", async || can_be_told(1 + OTHERS).await).await;
    in_line.stop();
    let (freed_at, places) = (began_at.elapsed(), places().await);
    held.unlock().await.expect("held");
    let turns = join_all(waits).await.into_iter().flat_map(|turns| turns.expect("no panic"));
    let mut turns: Vec<Duration> = turns.collect();
    turns.push(freed_at);
    turns.sort_unstable();
    let from = turns.iter().position(|at| *at == freed_at).unwrap_or(0);
    let mut gaps: Vec<f64> =
        turns[from..].windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    let first = gaps.first().copied().unwrap_or_default();
    gaps.remove(0);
    let longest_later = gaps.iter().copied().fold(0.0, f64::max);
    let delays = gaps.iter().filter(|gap| **gap > NOTABLE).count() + usize::from(first > NOTABLE);
    let is_good = delays <= 1 && first < ONCE;
    println!(
        "{places} places, {} of them of a stopped process: the first turn of another after {first:.2} s; {} turns after it, the \
         longest pause {longest_later:.2} s",
        size.entries,
        gaps.len()
    );
    let sum = json!({
        "measured": "stopped", "entries": size.entries, "first_s": first, "turns": gaps.len() + 1,
        "longest_later_s": longest_later, "delays": delays, "good": is_good,
    });
    println!("{sum}");
    is_good
}

/// When each turn began, some of one client.
async fn turns(lock: leasehold::Mutex, began_at: Instant) -> Vec<Duration> {
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        let guard = timeout(LONGEST, lock.lock()).await.expect("its turn comes").expect("a turn");
        turns.push(began_at.elapsed());
        sleep(A_TURN).await;
        guard.unlock().await.expect("held");
    }
    turns
}

/// Clients with their locks.
struct Crowd {
    clients: Vec<Client>,
    guards: Vec<Guard>,
}

impl Crowd {
    async fn of(size: Size, builder: ClientBuilder, name: impl Fn(usize, usize) -> String) -> Self {
        let began_at = Instant::now();
        let (mut clients, mut guards) = (Vec::new(), Vec::new());
        let builder = builder.ttl(size.ttl).restart_quarantine(Duration::ZERO);
        for number in 0..size.clients {
            let client = builder.clone().connect().await.expect("connected");
            let locks = (0..size.locks).map(|lock| client.mutex(name(number, lock)));
            let taken =
                stream::iter(locks).map(|lock| async move { lock.lock().await.expect("free") });
            guards.extend(taken.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await);
            clients.push(client);
        }
        println!(
            "{} clients with {} locks each after {:.1} s",
            size.clients,
            size.locks,
            began_at.elapsed().as_secs_f64()
        );
        Self { clients, guards }
    }

    fn connections(&self) -> u64 {
        self.clients.iter().map(|client| client.stats().connections_made).sum()
    }

    fn held(&self) -> usize {
        self.guards.iter().filter(|guard| guard.is_held()).count()
    }
}

async fn shard_down(size: Size) -> bool {
    let cluster = Cluster::start().await;
    // Names on the first two shards: found once, and then told apart by what is behind their tags.
    let tags = [cluster.name_on(0, "t"), cluster.name_on(1, "t")];
    let name = |client, lock: usize| format!("{{{}}}:{client}:{lock}", tags[lock % 2]);
    let crowd = Crowd::of(size, Client::builder().cluster(cluster.urls()), name).await;
    let healthy = [cluster.master(0), cluster.master(1)];
    let before = per_second(size, &healthy, period(size)).await;
    let connections = crowd.connections();
    cluster.master(2).kill();
    cluster.replica(2).kill();
    for server in healthy {
        eventually(LIMIT, "the cluster is down", async || {
            let info = server.command(&["CLUSTER", "INFO"]).await;
            let info = redis::from_redis_value::<String>(info).expect("a text");
            info.contains("cluster_state:fail")
        })
        .await;
    }
    // Within this no lease ends: then there would be less to ask for.
    let down = per_second(size, &healthy, size.ttl / 2).await;
    tell("shard", size, &crowd, connections, &before, &down)
}

async fn master_down(size: Size) -> bool {
    let servers = join_all((0..3).map(|_| Server::start())).await;
    let builder = Client::builder().nodes(servers.iter().map(Server::url));
    let crowd = Crowd::of(size, builder, |client, lock| format!("n:{client}:{lock}")).await;
    let healthy = [&servers[0], &servers[1]];
    let before = per_second(size, &healthy, period(size)).await;
    let connections = crowd.connections();
    servers[2].kill();
    let down = per_second(size, &healthy, period(size)).await;
    tell("master", size, &crowd, connections, &before, &down)
}

/// In so long each lock is renewed once.
fn period(size: Size) -> Duration {
    size.ttl / 3
}

fn tell(
    what: &str,
    size: Size,
    crowd: &Crowd,
    connections: u64,
    before: &[f64],
    down: &[f64],
) -> bool {
    let more: Vec<f64> = down.iter().zip(before).map(|(down, before)| down - before).collect();
    let lost = crowd.connections() - connections;
    let (held, all) = (crowd.held(), crowd.guards.len());
    let is_good = more.iter().all(|more| *more <= MOST_MORE) && lost == 0;
    let shown = |numbers: &[f64]| {
        let numbers: Vec<String> = numbers.iter().map(|it| format!("{it:.2}")).collect();
        numbers.join(" and ")
    };
    println!(
        "a {what} is down: requests of each client a second to the two that are left: {} before, {} then; {lost} new connections; \
         {held} of {all} locks held",
        shown(before),
        shown(down)
    );
    let sum = json!({
        "measured": format!("{what}-down"), "clients": size.clients, "locks": size.locks, "before": before,
        "down": down, "more": more, "connections": lost, "held": held, "good": is_good,
    });
    println!("{sum}");
    is_good
}

/// How many requests each client sends to each of the servers in a second.
async fn per_second(size: Size, servers: &[&Server], span: Duration) -> Vec<f64> {
    let (mut before, began_at) = (Vec::new(), Instant::now());
    for server in servers {
        before.push(server.requests(&OF_OTHERS).await);
    }
    sleep(span).await;
    let mut rates = Vec::new();
    for (server, before) in servers.iter().zip(before) {
        let more = server.requests(&OF_OTHERS).await - before;
        rates.push(more as f64 / began_at.elapsed().as_secs_f64() / size.clients as f64);
    }
    rates
}

const LOCK: &str = "n";
/// Clients that wait behind the stopped process, and how often each has its turn.
const OTHERS: usize = 3;
const TURNS: usize = 40;
const A_TURN: Duration = Duration::from_millis(20);
/// A pause that is a delay, in seconds, and how long the one that there may be is at most: a grant that nobody takes up lasts for 2 s.
const NOTABLE: f64 = 0.5;
const ONCE: f64 = 3.0;
/// What its replica sends, and whoever looks on.
const OF_OTHERS: [&str; 7] = ["hello", "info", "client", "replconf", "psync", "ping", "cluster"];
/// Requests a second.
const MOST_MORE: f64 = 10.0;
/// How many locks a client takes at the same time.
const AT_ONCE: usize = 50;
const LIMIT: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(1800);
