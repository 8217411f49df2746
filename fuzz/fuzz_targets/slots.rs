//! A cluster that tells nonsense about its slots: `CLUSTER SLOTS` and `CLUSTER INFO` of any shape, redirects to anywhere,
//! also in circles, slots that never arrive, silence, closed connections.
//!
//! Checked:
//! * A guard exists only if a server granted this lease, and `is_held` is true only within a TTL of what a server confirmed.
//! * Every call ends in its time, and nothing panics.
//! * Once the servers tell the truth, each lock can be taken within seconds; then no other address is dialled any more, no
//!   other node is kept, and nothing is owed.
//! * Afterwards the client shuts down in its time.
//!
//! A finding again: `scripts/fuzz slots FILE`, with the file that libFuzzer wrote.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use arbitrary::Arbitrary;
use leasehold::{Client, Guard};
use leasehold_fuzz::brain::{well, willing};
use leasehold_fuzz::{Ask, Brain, Frame, Script, World, bounded, run};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Clone, Debug)]
enum Host {
    Right,
    Nil,
    Empty,
    Unknown,
    Other(String),
}

impl Host {
    fn text(&self) -> &str {
        match self {
            Self::Right => "node",
            Self::Nil | Self::Empty => "",
            Self::Unknown => "?",
            Self::Other(text) => text,
        }
    }

    fn frame(&self) -> Frame {
        match self {
            Self::Nil => Frame::Nil,
            host => Frame::text(host.text()),
        }
    }
}

#[derive(Arbitrary, Clone, Debug)]
struct Range {
    first: i32,
    last: i32,
    servers: Vec<(Host, u8, Option<Frame>)>,
}

impl Range {
    fn frame(&self) -> Frame {
        let server = |(host, port, odd): &(Host, u8, Option<Frame>)| {
            let port = odd.clone().unwrap_or(Frame::Int((*port % 6).into()));
            Frame::Array(vec![host.frame(), port, Frame::text("id")])
        };
        // Most are in the range of slots, and some are not.
        let slots = [self.first, self.last].map(|slot| Frame::Int((slot % 16_400).into()));
        Frame::Array(slots.into_iter().chain(self.servers.iter().map(server)).collect())
    }
}

/// An answer to CLUSTER SLOTS.
#[derive(Arbitrary, Clone, Debug)]
enum Slots {
    Well,
    Ranges(Vec<Range>),
    /// So many servers, with a slot each.
    Many(u16),
    Value(Frame),
    /// The right answer, with another value somewhere in it.
    Other(Vec<u8>, Frame),
    Refused,
    Silence,
    Close,
}

/// An answer to CLUSTER INFO.
#[derive(Arbitrary, Clone, Debug)]
enum Info {
    Well,
    State(bool, u64),
    Text(String),
    Value(Frame),
    Refused,
}

/// An answer to a script.
#[derive(Arbitrary, Clone, Debug)]
enum Turn {
    Well,
    Moved(u16, Host, i32),
    Ask(u16, Host, i32),
    Odd(String),
    TryAgain,
    NonLocal,
    Down,
    Silence,
    Close,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Step {
    TryLock(u8),
    LockFor(u8, u16),
    Status(u8),
    Force(u8),
    Check,
    Sleep(u16),
    Unlock,
    Drop,
}

#[derive(Arbitrary, Debug)]
struct Plan {
    seed: u64,
    /// What is answered in turn, by all nodes together. At their end: the right answers.
    slots: Vec<Slots>,
    infos: Vec<Info>,
    turns: Vec<Turn>,
    steps: Vec<Step>,
}

/// One keyspace behind all nodes, as if the data were wherever they say.
struct Cluster {
    slots: std::vec::IntoIter<Slots>,
    infos: std::vec::IntoIter<Info>,
    turns: std::vec::IntoIter<Turn>,
    /// By lock: the lease, and when it ends.
    holders: BTreeMap<Vec<u8>, (String, Duration)>,
    /// When a server confirmed a lease last, by the time of the request.
    confirmed: BTreeMap<String, Duration>,
    /// Where connections were made to.
    dialled: BTreeSet<String>,
}

impl Brain for Cluster {
    fn dialled(&mut self, address: &str) {
        self.dialled.insert(address.to_owned());
    }

    fn script(&mut self, ask: Ask<'_>, script: Script) {
        let redirect = |verb: &str, slot: u16, host: Host, port: i32| {
            Frame::Error(format!("{verb} {slot} {}:{}", host.text(), port % 10))
        };
        let error = |text: &str| Frame::Error(text.to_owned());
        let reply = match self.turns.next().unwrap_or(Turn::Well) {
            Turn::Well => self.run(&ask, script),
            Turn::Moved(slot, host, port) => redirect("MOVED", slot, host, port),
            Turn::Ask(slot, host, port) => redirect("ASK", slot, host, port),
            Turn::Odd(text) => Frame::Error(format!("MOVED {text}")),
            Turn::TryAgain => error("TRYAGAIN Multiple keys request during rehashing of slot"),
            Turn::NonLocal => {
                error("ERR Script attempted to access a non local key in a cluster node")
            }
            Turn::Down => error("CLUSTERDOWN The cluster is down"),
            Turn::Silence => return ask.outlet.fall_silent(),
            Turn::Close => return ask.outlet.close(),
        };
        ask.outlet.send(&reply.encode());
    }

    fn question(&mut self, ask: Ask<'_>) {
        let refused = || Frame::Error("ERR This instance has cluster support odd".to_owned());
        let reply = match (ask.request.word(0).as_str(), ask.request.word(1).as_str()) {
            ("CLUSTER", "SLOTS") => match self.slots.next().unwrap_or(Slots::Well) {
                Slots::Well => truth(),
                Slots::Ranges(ranges) => Frame::Array(ranges.iter().map(Range::frame).collect()),
                Slots::Many(many) => {
                    let slot = |slot: i64| {
                        let server = vec![Frame::text(&format!("h{slot}")), Frame::Int(1)];
                        Frame::Array(vec![Frame::Int(slot), Frame::Int(slot), Frame::Array(server)])
                    };
                    Frame::Array((0..i64::from(many % 512)).map(slot).collect())
                }
                Slots::Value(frame) => frame,
                Slots::Other(path, with) => replaced(truth(), &path, with),
                Slots::Refused => refused(),
                Slots::Silence => return ask.outlet.fall_silent(),
                Slots::Close => return ask.outlet.close(),
            },
            ("CLUSTER", "INFO") => match self.infos.next().unwrap_or(Info::Well) {
                Info::Well => state(true, 3),
                Info::State(is_ok, epoch) => state(is_ok, epoch),
                Info::Text(text) => Frame::text(&text),
                Info::Value(frame) => frame,
                Info::Refused => refused(),
            },
            // There are plain channels only.
            ("PUBSUB", _) => refused(),
            _ => well(ask.node, ask.request),
        };
        ask.outlet.send(&reply.encode());
    }
}

impl Cluster {
    fn run(&mut self, ask: &Ask<'_>, script: Script) -> Frame {
        let Some(key) = ask.request.keys().first().cloned() else { return willing(script) };
        self.holders.retain(|_, (_, ends)| *ends > ask.at);
        let holder = self.holders.get(&key).map(|(id, _)| id.clone());
        let id = ask.request.argv(0);
        let is_holder = holder.as_ref() == Some(&id);
        match script {
            Script::Acquire if is_holder || holder.is_none() => self.hold(key, &id, ask.at),
            Script::Renew if is_holder => self.hold(key, &id, ask.at),
            Script::Release if is_holder => drop(self.holders.remove(&key)),
            Script::Force => drop(self.holders.remove(&key)),
            _ => {}
        }
        let nothing = || Frame::Array(Vec::new());
        let now = Frame::Int(ask.at.as_micros() as i64 + 1_000_000);
        match script {
            Script::Acquire if !is_holder && holder.is_some() => {
                let holder = Frame::text(&holder.unwrap_or_default());
                let refusal = vec![Frame::Int(0), Frame::Int(500), holder, Frame::Int(0)];
                Frame::Array([refusal, vec![Frame::Int(-1), now, nothing()]].concat())
            }
            Script::Renew | Script::Release | Script::Raise | Script::Reclaim => {
                Frame::Int(is_holder.into())
            }
            Script::Force => Frame::Int(holder.is_some().into()),
            script => willing(script),
        }
    }

    fn hold(&mut self, key: Vec<u8>, id: &str, at: Duration) {
        self.holders.insert(key, (id.to_owned(), at + TTL));
        self.confirmed.insert(id.to_owned(), at);
    }
}

fn state(is_ok: bool, epoch: u64) -> Frame {
    let state = if is_ok { "ok" } else { "fail" };
    Frame::text(&format!("cluster_state:{state}\r\ncluster_current_epoch:{epoch}\r\n"))
}

/// What CLUSTER SLOTS answers in truth.
fn truth() -> Frame {
    let range = |(port, first, last): (i64, i64, i64)| {
        let server = Frame::Array(vec![Frame::text("node"), Frame::Int(port), Frame::text("id")]);
        Frame::Array(vec![Frame::Int(first), Frame::Int(last), server])
    };
    let ranges = [(1, 0, 5460), (2, 5461, 10922), (3, 10923, 16383)];
    Frame::Array(ranges.into_iter().map(range).collect())
}

/// The frame with another one at the end of a path into its lists.
fn replaced(frame: Frame, path: &[u8], with: Frame) -> Frame {
    match (frame, path.split_first()) {
        (Frame::Array(mut items), Some((at, rest))) if !items.is_empty() => {
            let at = usize::from(*at) % items.len();
            let item = std::mem::replace(&mut items[at], Frame::Nil);
            items[at] = replaced(item, rest, with);
            Frame::Array(items)
        }
        _ => with,
    }
}

const TTL: Duration = Duration::from_millis(900);
const ANSWER: Duration = Duration::from_millis(200);
const CONNECT: Duration = Duration::from_millis(500);
/// How long the client looks for the cluster, and then for one of its masters.
const FOUND: Duration = Duration::from_millis(1500);
/// The waiting time of a call, and that for its answer.
const CALL: Duration = Duration::from_millis(400);
/// In this time the client has the true map, whatever it knew before, and has left all nodes that are not in it. A map with an
/// earlier change than one that was named before is not followed for 30 s.
const SETTLED: Duration = Duration::from_secs(40);

struct Case {
    world: World<Cluster>,
    client: Client,
    held: Option<Guard>,
}

impl Case {
    fn check_held(&self) {
        let Some(guard) = self.held.as_ref().filter(|guard| guard.is_held()) else { return };
        let now = self.world.now();
        let confirmed = self.world.brain().confirmed.get(guard.holder().as_str()).copied();
        let confirmed = confirmed.expect("a guard by the grant of a server");
        assert!(confirmed + TTL > now, "held at {now:?}, confirmed at {confirmed:?}");
    }

    async fn step(&mut self, step: Step) {
        self.check_held();
        let mutex = |name: u8| self.client.mutex(format!("lock:{}", name % 4));
        match step {
            Step::TryLock(name) => {
                let (taken, _) = bounded("try_lock", CALL, mutex(name).try_lock()).await;
                self.held = taken.ok().flatten().or(self.held.take());
            }
            Step::LockFor(name, ms) => {
                let limit = Duration::from_millis(u64::from(ms) % 2000);
                let locking = mutex(name).lock_with_timeout(limit);
                let (taken, _) = bounded("lock_with_timeout", limit + CALL, locking).await;
                self.held = taken.ok().or(self.held.take());
            }
            Step::Status(name) => drop(bounded("status", CALL, mutex(name).status()).await),
            Step::Force(name) => drop(bounded("force", CALL, mutex(name).force_unlock()).await),
            Step::Check => {
                let most = CALL + Duration::from_secs(6);
                drop(bounded("check", most, self.client.check()).await);
            }
            Step::Sleep(ms) => {
                tokio::time::sleep(Duration::from_millis(u64::from(ms) % 3000)).await;
            }
            Step::Unlock => {
                if let Some(guard) = self.held.take() {
                    drop(bounded("unlock", CALL, guard.unlock()).await);
                }
            }
            Step::Drop => self.held = None,
        }
        self.check_held();
    }
}

async fn connect(world: &World<Cluster>) -> Result<Client, leasehold::Error> {
    let seeds = Client::builder().cluster(["redis://node:1", "redis://node:2"]);
    let builder = world.seams(seeds).ttl(TTL).response_timeout(ANSWER).connect_timeout(CONNECT);
    let builder = builder.restart_quarantine(Duration::ZERO).unavailable_after(TTL);
    bounded("connect", FOUND, builder.connect()).await.0
}

async fn play(plan: Plan) {
    let cluster = Cluster {
        slots: plan.slots.into_iter(),
        infos: plan.infos.into_iter(),
        turns: plan.turns.into_iter(),
        holders: BTreeMap::new(),
        confirmed: BTreeMap::new(),
        dialled: BTreeSet::new(),
    };
    let world = World::new(3, plan.seed, cluster);
    let connected = connect(&world).await;
    let is_refused = connected.is_err();
    let client = match connected {
        Ok(client) => client,
        Err(_) => {
            tell_the_truth(&world);
            connect(&world).await.expect("a cluster that is in order")
        }
    };
    let mut case = Case { world: world.clone(), client: client.clone(), held: None };
    for step in plan.steps.into_iter().take(if is_refused { 0 } else { 12 }) {
        case.step(step).await;
    }
    tell_the_truth(&world);
    drop(case.held.take());
    tokio::time::sleep(SETTLED).await;
    world.brain().dialled.clear();
    for name in 0..4 {
        let lock = client.mutex(format!("lock:{name}"));
        let (guard, _) = bounded("lock", CALL, lock.lock_with_timeout(CALL)).await;
        let guard = guard.expect("a free lock");
        let (unlocked, _) = bounded("unlock", CALL, guard.unlock()).await;
        unlocked.expect("held");
    }
    tokio::time::sleep(TTL * 2).await;
    assert_eq!(client.stats().releases_pending, 0);
    let known: Vec<String> = client.nodes().iter().map(|node| node.address.to_string()).collect();
    assert_eq!(known, ["redis://node:1", "redis://node:2", "redis://node:3"]);
    let dialled = world.brain().dialled.clone();
    assert!(dialled.iter().all(|address| known.contains(address)), "{dialled:?}");
    bounded("shutdown", ANSWER, client.shutdown()).await;
    assert_eq!(client.stats().locks, 0);
}

fn tell_the_truth(world: &World<Cluster>) {
    let mut cluster = world.brain();
    cluster.slots = Vec::new().into_iter();
    cluster.infos = Vec::new().into_iter();
    cluster.turns = Vec::new().into_iter();
}

fuzz_target!(|plan: Plan| run(|| play(plan)));
