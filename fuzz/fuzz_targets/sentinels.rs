//! Sentinels that lie: answers of any shape about the master, its epoch and its replicas, and messages with any payload
//! about a switch, in any order; also silence, errors and closed connections.
//!
//! Checked:
//! * A guard exists only if a server granted this lease.
//! * Every call ends in its time, and nothing panics.
//! * Once all Sentinels name the same master with the same epoch, the client is there within seconds, whatever they said
//!   before, stays there, and takes a lock there.
//! * Afterwards the client shuts down in its time.
//!
//! A finding again: `scripts/fuzz sentinels FILE`, with the file that libFuzzer wrote.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use arbitrary::Arbitrary;
use leasehold::{Client, Guard};
use leasehold_fuzz::brain::{message, subscription_reply, well, willing};
use leasehold_fuzz::{Ask, Brain, Frame, Outlet, Script, World, bounded, run};
use libfuzzer_sys::fuzz_target;

/// Who is named as the master.
#[derive(Arbitrary, Clone, Debug)]
enum Named {
    /// One of the servers.
    Server(u8),
    Other(String, i64),
}

impl Named {
    fn host(&self) -> &str {
        match self {
            Self::Server(_) => "node",
            Self::Other(host, _) => host,
        }
    }

    fn port(&self) -> i64 {
        match self {
            Self::Server(number) => SENTINELS as i64 + 1 + i64::from(number % 3),
            Self::Other(_, port) => *port,
        }
    }
}

/// An answer to GET-MASTER-ADDR-BY-NAME.
#[derive(Arbitrary, Clone, Debug)]
enum Address {
    Named(Named),
    Nil,
    Value(Frame),
    Refused(String),
    Silence,
    Close,
}

/// An answer to MASTER and to SLAVES.
#[derive(Arbitrary, Clone, Debug)]
enum About {
    Epoch(u64),
    Fields(Vec<(String, i64)>),
    Value(Frame),
    Refused,
    Silence,
}

#[derive(Arbitrary, Clone, Debug)]
enum Report {
    Switch(Named, Named),
    Text(String),
    Bytes(Vec<u8>),
    Flood(u8),
    Close,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Step {
    TryLock,
    LockFor(u16),
    Check,
    Sleep(u16),
    Drop,
}

#[derive(Arbitrary, Debug)]
struct Plan {
    seed: u64,
    /// What each of the Sentinels says, over and over.
    says: [(Vec<Address>, Vec<About>); SENTINELS],
    /// When, by which Sentinel, what.
    reports: Vec<(u16, u8, Report)>,
    steps: Vec<Step>,
    /// The master in the end, and its epoch.
    last: (u8, u32),
}

struct Sentinel {
    addresses: Vec<Address>,
    abouts: Vec<About>,
    asked: [usize; 2],
    listening: Option<Outlet>,
}

struct Deployment {
    sentinels: Vec<Sentinel>,
    /// Leases that a server granted.
    granted: BTreeSet<String>,
}

impl Brain for Deployment {
    fn script(&mut self, ask: Ask<'_>, script: Script) {
        if script == Script::Acquire {
            self.granted.insert(ask.request.argv(0));
        }
        ask.outlet.send(&willing(script).encode());
    }

    fn subscription(&mut self, ask: Ask<'_>) {
        if let Some(sentinel) = self.sentinels.get_mut(ask.node) {
            sentinel.listening = Some(ask.outlet.clone());
        }
        ask.outlet.send(&subscription_reply(ask.request));
    }

    fn question(&mut self, ask: Ask<'_>) {
        let verb = ask.request.word(1);
        let sentinel = self.sentinels.get_mut(ask.node).filter(|_| ask.request.is("SENTINEL"));
        let Some(sentinel) = sentinel else {
            return ask.outlet.send(&well(ask.node, ask.request).encode());
        };
        let reply = match verb == "GET-MASTER-ADDR-BY-NAME" {
            true => match sentinel.address() {
                Address::Named(named) => {
                    let port = Frame::text(&named.port().to_string());
                    Frame::Array(vec![Frame::text(named.host()), port])
                }
                Address::Nil => Frame::Nil,
                Address::Value(frame) => frame,
                Address::Refused(text) => Frame::Error(text),
                Address::Silence => return ask.outlet.fall_silent(),
                Address::Close => return ask.outlet.close(),
            },
            false => match sentinel.about() {
                About::Epoch(epoch) => fields(&[("config-epoch".to_owned(), epoch as i64)]),
                About::Fields(all) => fields(&all),
                About::Value(frame) => frame,
                About::Refused => {
                    Frame::Error("NOPERM User x has no permissions to run the command".to_owned())
                }
                About::Silence => return ask.outlet.fall_silent(),
            },
        };
        ask.outlet.send(&reply.encode());
    }
}

fn fields(all: &[(String, i64)]) -> Frame {
    let pairs = all.iter().flat_map(|(name, value)| [Frame::text(name), Frame::Digits(*value)]);
    Frame::Array(pairs.collect())
}

impl Sentinel {
    fn address(&mut self) -> Address {
        self.asked[0] += 1;
        let turn = (self.asked[0] - 1) % self.addresses.len().max(1);
        self.addresses.get(turn).cloned().unwrap_or(Address::Named(Named::Server(0)))
    }

    fn about(&mut self) -> About {
        self.asked[1] += 1;
        let turn = (self.asked[1] - 1) % self.abouts.len().max(1);
        self.abouts.get(turn).cloned().unwrap_or(About::Epoch(1))
    }
}

impl Deployment {
    fn report(&mut self, sentinel: u8, report: Report) {
        let sentinel = &self.sentinels[usize::from(sentinel) % SENTINELS];
        let Some(outlet) = &sentinel.listening else { return };
        let send = |payload: &[u8]| outlet.send(&message(b"+switch-master", payload));
        match report {
            Report::Switch(from, to) => {
                let (from_host, to_host) = (from.host(), to.host());
                let text = format!("m {from_host} {} {to_host} {}", from.port(), to.port());
                send(text.as_bytes());
            }
            Report::Text(text) => send(format!("m {text}").as_bytes()),
            Report::Bytes(bytes) => send(&bytes),
            Report::Flood(many) => {
                (0..many).for_each(|number| send(format!("m node {number} node 4").as_bytes()));
            }
            Report::Close => outlet.close(),
        }
    }
}

const SENTINELS: usize = 3;
const TTL: Duration = Duration::from_millis(900);
const ANSWER: Duration = Duration::from_millis(200);
const CONNECT: Duration = Duration::from_millis(500);
const CALL: Duration = Duration::from_millis(400);
/// The pauses and time limits of one conversation with a Sentinel, and of one connection to a server.
const SETTLED: Duration = Duration::from_secs(6);

fn check_grant(world: &World<Deployment>, held: Option<&Guard>) {
    if let Some(guard) = held {
        let is_granted = world.brain().granted.contains(guard.holder().as_str());
        assert!(is_granted, "a guard by nobody's grant");
    }
}

async fn connect(world: &World<Deployment>) -> Result<Client, leasehold::Error> {
    let urls = (1..=SENTINELS).map(|port| format!("redis://node:{port}"));
    let builder = world.seams(Client::builder().sentinel("m", urls));
    let builder = builder.ttl(TTL).response_timeout(ANSWER).connect_timeout(CONNECT);
    let builder = builder.restart_quarantine(Duration::ZERO).unavailable_after(TTL);
    bounded("connect", CONNECT * 2, builder.connect()).await.0
}

async fn step(client: &Client, step: Step, held: &mut Option<Guard>) {
    match step {
        Step::TryLock => {
            let (taken, _) = bounded("try_lock", CALL, client.mutex("n").try_lock()).await;
            *held = taken.ok().flatten().or(held.take());
        }
        Step::LockFor(ms) => {
            let limit = Duration::from_millis(u64::from(ms) % 2000);
            let locking = client.mutex("n").lock_with_timeout(limit);
            let (taken, _) = bounded("lock_with_timeout", limit + CALL, locking).await;
            *held = taken.ok().or(held.take());
        }
        Step::Check => {
            let most = CALL + Duration::from_secs(6);
            drop(bounded("check", most, client.check()).await);
        }
        Step::Sleep(ms) => {
            tokio::time::sleep(Duration::from_millis(u64::from(ms) % 3000)).await;
        }
        Step::Drop => *held = None,
    }
}

async fn play(plan: Plan) {
    let sentinel =
        |(addresses, abouts)| Sentinel { addresses, abouts, asked: [0, 0], listening: None };
    let sentinels = plan.says.into_iter().map(sentinel).collect();
    let deployment = Deployment { sentinels, granted: BTreeSet::new() };
    let world = World::new(SENTINELS + 3, plan.seed, deployment);
    let mut reports = tokio::task::JoinSet::new();
    for (at, by, report) in plan.reports.into_iter().take(32) {
        let world = world.clone();
        reports.spawn(async move {
            tokio::time::sleep(Duration::from_millis(u64::from(at) % 6000)).await;
            world.brain().report(by, report);
        });
    }
    let client = connect(&world).await.ok();
    let mut held = None;
    for next in plan.steps.into_iter().take(12) {
        let Some(client) = &client else { break };
        step(client, next, &mut held).await;
        check_grant(&world, held.as_ref());
    }
    while let Some(reported) = reports.join_next().await {
        reported.expect("no panic");
    }
    drop(held);

    let named = Named::Server(plan.last.0);
    let address = format!("redis://node:{}", named.port());
    for sentinel in &mut world.brain().sentinels {
        sentinel.addresses = vec![Address::Named(named.clone())];
        sentinel.abouts = vec![About::Epoch(plan.last.1.into())];
    }
    let client = match client {
        Some(client) => {
            tokio::time::sleep(SETTLED).await;
            client
        }
        None => connect(&world).await.expect("all Sentinels agree"),
    };
    for _ in 0..2 {
        assert_eq!(*client.nodes()[0].address, *address);
        let locking = client.mutex("n").lock_with_timeout(CALL);
        let guard = bounded("lock", CALL, locking).await.0.expect("a free lock");
        check_grant(&world, Some(&guard));
        drop(guard);
        tokio::time::sleep(SETTLED).await;
    }
    bounded("shutdown", ANSWER, client.shutdown()).await;
    assert_eq!(client.stats().locks, 0);
}

fuzz_target!(|plan: Plan| run(|| play(plan)));
