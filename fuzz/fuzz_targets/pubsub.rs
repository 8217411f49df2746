//! Subscriptions: messages with any payload on any channel, letters to the client's mailbox, true ones and others,
//! floods, values and pushes of any type, raw bytes, confirmations that are wrong or missing, closed connections; also
//! pushes among the answers to commands.
//!
//! Checked:
//! * A waiter is never granted the lock but by a server's answer after its release, or by a letter that grants it the lock
//!   and names its request.
//! * Once the lock is free, each waiter has it within the safety poll, whatever the subscriptions say.
//! * Messages make a waiter ask a limited number of times.
//! * Afterwards the client shuts down in its time.
//!
//! A finding again: `scripts/fuzz pubsub FILE`, with the file that libFuzzer wrote.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use arbitrary::Arbitrary;
use leasehold::Mutex;
use leasehold_fuzz::brain::{message, subscription_reply, willing};
use leasehold_fuzz::{Ask, Brain, Frame, Outlet, Script, World, bounded, run};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Clone, Debug)]
enum Channel {
    Right,
    Probe,
    Empty,
    Other(String),
    Mailbox,
}

#[derive(Arbitrary, Clone, Debug)]
enum Event {
    Message(Channel, Vec<u8>),
    Released,
    Flood(u16),
    Value(Frame),
    /// A push of RESP3 by its kind.
    Push(Kind, Vec<Frame>),
    Raw(Vec<u8>),
    Close,
    Stall(u16),
    Letter(Letter),
}

/// What is written to the mailbox about the request that asked last.
#[derive(Arbitrary, Clone, Debug)]
enum Letter {
    /// The lock is granted to it, for so long.
    Grant(u16),
    /// The same, but the server knows nothing of it.
    Lie(i64, i64, i64),
    Next(i32, String),
    Free,
    Broken(String),
    OfAnother,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Kind {
    Message,
    PMessage,
    SMessage,
    Subscribe,
    Unsubscribe,
    SUnsubscribe,
    Invalidate,
    Unknown,
}

#[derive(Arbitrary, Clone, Debug)]
enum Confirmation {
    Well,
    Twice,
    Missing,
    Refused,
    OfAnother,
    Value(Frame),
    Close,
}

#[derive(Arbitrary, Debug)]
struct Plan {
    three: bool,
    seed: u64,
    pttl: Option<u16>,
    subscribers: u8,
    release_ms: u16,
    /// The release is told.
    told: bool,
    more_waiters: u8,
    confirmations: Vec<Confirmation>,
    /// When, on which node, on the line of commands, what.
    events: Vec<(u16, u8, bool, Event)>,
}

const LOCK: &str = "m";
const CHANNEL: &str = "redisson_lock__channel:{m}";

struct Node {
    holder: Option<String>,
    /// The lock, and the mailbox, of who asked last in a way that queues.
    queued: Option<(String, String)>,
    commands: Option<Outlet>,
    subscriptions: Option<Outlet>,
    asks: usize,
}

struct Server {
    nodes: Vec<Node>,
    pttl: i64,
    subscribers: i64,
    release_at: Duration,
    /// Requests that were told of a grant which the server did not make.
    lied_to: BTreeSet<String>,
    confirmations: std::vec::IntoIter<Confirmation>,
    /// Messages sent, on any line.
    messages: usize,
    /// What broke connections or took answers away.
    harm: usize,
}

impl Brain for Server {
    fn script(&mut self, ask: Ask<'_>, script: Script) {
        let released = ask.at >= self.release_at;
        let (pttl, subscribers) = (Frame::Int(self.pttl), Frame::Int(self.subscribers));
        let node = &mut self.nodes[ask.node];
        node.commands = Some(ask.outlet.clone());
        let id = if script == Script::Status { String::new() } else { ask.request.argv(0) };
        let ours = node.holder.as_ref() == Some(&id);
        let reply = match script {
            Script::Acquire => {
                node.asks += 1;
                if !ours && (!released || node.holder.is_some()) {
                    let holder = node.holder.clone().unwrap_or(OTHER.to_owned());
                    let mut refusal = vec![Frame::Int(0), pttl, Frame::text(&holder), subscribers];
                    if let [_, _, _] = ask.request.keys() {
                        let entry = ask.request.argv(3);
                        let place = if entry.is_empty() { -1 } else { 0 };
                        if let Some(nonce) = entry.split(' ').nth(2) {
                            node.queued = Some((id, nonce.to_owned()));
                        }
                        let now = Frame::Int(server_us(ask.at));
                        refusal.extend([Frame::Int(place), now, Frame::Array(Vec::new())]);
                    }
                    Frame::Array(refusal)
                } else {
                    node.queued = None;
                    node.holder = Some(id);
                    willing(Script::Acquire)
                }
            }
            Script::Release => {
                if node.queued.as_ref().is_some_and(|(queued, _)| *queued == id) {
                    node.queued = None;
                }
                if ours {
                    node.holder = None;
                }
                Frame::Int(ours.into())
            }
            Script::Renew | Script::Raise => Frame::Int(ours.into()),
            script => willing(script),
        };
        ask.outlet.send(&reply.encode());
    }

    fn subscription(&mut self, ask: Ask<'_>) {
        self.nodes[ask.node].subscriptions = Some(ask.outlet.clone());
        let well = subscription_reply(ask.request);
        if !ask.request.is("SUBSCRIBE") {
            return ask.outlet.send(&well);
        }
        let confirmation = self.confirmations.next().unwrap_or(Confirmation::Well);
        if !matches!(confirmation, Confirmation::Well) {
            self.harm += 1;
        }
        match confirmation {
            Confirmation::Well => ask.outlet.send(&well),
            Confirmation::Twice => ask.outlet.send(&[&well[..], &well[..]].concat()),
            Confirmation::Missing => {}
            Confirmation::Refused => {
                ask.outlet.send(b"-NOPERM No permissions to access a channel\r\n")
            }
            Confirmation::OfAnother => {
                ask.outlet.send(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n");
            }
            Confirmation::Value(frame) => ask.outlet.send(&frame.encode()),
            Confirmation::Close => ask.outlet.close(),
        }
    }
}

/// What the clock of the servers shows.
fn server_us(at: Duration) -> i64 {
    1_700_000_000_000_000 + at.as_micros() as i64
}

impl Server {
    /// Writes to the mailbox of who asked last, if there is one.
    fn write(&mut self, node: usize, now: Duration, letter: Letter) {
        let Self { nodes, lied_to, .. } = self;
        let node = &mut nodes[node];
        let Some((id, nonce)) = &node.queued else { return };
        let Some(outlet) = &node.subscriptions else { return };
        let text = match letter {
            Letter::Grant(_) if node.holder.is_some() => return,
            Letter::Grant(ttl_ms) => {
                let ttl_ms = 100 + ttl_ms % 2000;
                node.holder = Some(id.clone());
                format!("grant {id} {} {ttl_ms} {BLOCK_END}", server_us(now))
            }
            Letter::Lie(at, ttl_ms, end) => {
                lied_to.insert(id.clone());
                format!("grant {id} {at} {ttl_ms} {end}")
            }
            Letter::Next(pttl, holder) => format!("next {id} {pttl} {holder}"),
            Letter::Free => format!("free {id}"),
            Letter::Broken(text) => format!("grant {id} {text}"),
            Letter::OfAnother => format!("grant {OTHER} {} 2000 {BLOCK_END}", server_us(now)),
        };
        // What is broken may be right by chance.
        if text.starts_with("grant") && !text.ends_with(&BLOCK_END.to_string()) {
            lied_to.insert(id.clone());
        }
        self.messages += 1;
        outlet
            .send(&message(format!("leasehold_mailbox:fuzz:{nonce}").as_bytes(), text.as_bytes()));
    }

    fn happen(&mut self, node: u8, on_commands: bool, event: Event, now: Duration) {
        let node = usize::from(node) % self.nodes.len();
        if let Event::Letter(letter) = event {
            return self.write(node, now, letter);
        }
        let node = &self.nodes[node];
        let outlet = if on_commands { &node.commands } else { &node.subscriptions };
        let Some(outlet) = outlet.clone() else { return };
        // Anything else is taken for the answer to a command, which is the other target's matter.
        if on_commands && !matches!(event, Event::Push(..)) {
            return;
        }
        match event {
            Event::Message(channel, payload) => {
                let channel = match channel {
                    Channel::Right => CHANNEL.to_owned(),
                    Channel::Probe => "leasehold_probe".to_owned(),
                    Channel::Empty => String::new(),
                    Channel::Other(name) => name,
                    Channel::Mailbox => {
                        let nonce = node.queued.as_ref().map_or("", |(_, nonce)| nonce);
                        format!("leasehold_mailbox:fuzz:{nonce}")
                    }
                };
                self.messages += 1;
                outlet.send(&message(channel.as_bytes(), &payload));
            }
            Event::Released => {
                self.messages += 1;
                outlet.send(&message(CHANNEL.as_bytes(), b"0"));
            }
            Event::Flood(many) => {
                let many = usize::from(many) % 3000;
                self.messages += many;
                outlet.send(&message(CHANNEL.as_bytes(), b"0").repeat(many));
            }
            Event::Push(kind, items) => {
                let kind = match kind {
                    Kind::Message => "message",
                    Kind::PMessage => "pmessage",
                    Kind::SMessage => "smessage",
                    // On a line of commands these are taken for answers.
                    Kind::Subscribe if !on_commands => "subscribe",
                    Kind::Unsubscribe if !on_commands => "unsubscribe",
                    Kind::SUnsubscribe if !on_commands => "sunsubscribe",
                    Kind::Invalidate => "invalidate",
                    _ => "hello",
                };
                self.messages += 1;
                self.harm += 1;
                let items: Vec<Vec<u8>> = items.iter().map(Frame::encode).collect();
                let head = format!(">{}\r\n${}\r\n{kind}\r\n", items.len() + 1, kind.len());
                outlet.send(&[head.into_bytes(), items.concat()].concat());
            }
            Event::Value(frame) => {
                self.harm += 1;
                outlet.send(&frame.encode());
            }
            Event::Raw(bytes) => {
                self.harm += 1;
                outlet.send(&bytes);
            }
            Event::Letter(_) => {}
            Event::Close => {
                self.harm += 1;
                outlet.close();
            }
            Event::Stall(ms) => {
                self.harm += 1;
                outlet.wait(Duration::from_millis(ms.into()));
            }
        }
    }
}

/// Who holds the lock, and the end of what is granted by letter.
const OTHER: &str = "other:01234567-89ab-4def-8123-456789abcdef";
const BLOCK_END: u64 = 1_700_000_000_500_000;
/// How long a waiter of a free lock can be kept by what it hears: a poll, and an answer.
const MOST: Duration = Duration::from_millis(4500);
const ANSWER: Duration = Duration::from_millis(500);

async fn wait(world: World<Server>, mutex: Mutex, turns: u32) {
    let release_at = world.brain().release_at;
    let limit = release_at + MOST * turns;
    let (taken, _) = bounded("lock", limit, mutex.lock_with_timeout(limit * 2)).await;
    let guard = taken.expect("a free lock");
    let majority = world.brain().nodes.len() / 2 + 1;
    let id = guard.holder().as_str().to_owned();
    let lied_to = world.brain().lied_to.contains(&id);
    let by = world.brain().nodes.iter().filter(|node| node.holder.as_ref() == Some(&id)).count();
    assert!(lied_to || by >= majority, "granted by {by} nodes");
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(lied_to || guard.is_held());
    drop(guard);
}

async fn play(plan: Plan) {
    let nodes = if plan.three { 3 } else { 1 };
    let fresh =
        || Node { holder: None, queued: None, commands: None, subscriptions: None, asks: 0 };
    let release_at = Duration::from_millis(u64::from(plan.release_ms) % 5000);
    let world = World::new(
        nodes,
        plan.seed,
        Server {
            nodes: (0..nodes).map(|_| fresh()).collect(),
            pttl: plan.pttl.map_or(-1, i64::from),
            subscribers: plan.subscribers.into(),
            release_at,
            lied_to: BTreeSet::new(),
            confirmations: plan.confirmations.into_iter(),
            messages: 0,
            harm: 0,
        },
    );
    let settings = world.client().response_timeout(ANSWER).restart_quarantine(Duration::ZERO);
    let client = settings.connect().await.expect("a client");
    let waiters = u32::from(plan.more_waiters % 3) + 1;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..waiters {
        tasks.spawn(wait(world.clone(), client.mutex(LOCK), waiters));
    }
    for (at, node, on_commands, event) in plan.events.into_iter().take(64) {
        let world = world.clone();
        tasks.spawn(async move {
            tokio::time::sleep(Duration::from_millis(u64::from(at) % 6000)).await;
            let now = world.now();
            world.brain().happen(node, on_commands, event, now);
        });
    }
    if plan.told {
        let world = world.clone();
        tasks.spawn(async move {
            tokio::time::sleep(release_at).await;
            let mut server = world.brain();
            for node in 0..server.nodes.len() {
                server.happen(node as u8, false, Event::Released, release_at);
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
    {
        let server = world.brain();
        // Polls every two seconds, the ends of the TTLs, an ask or two for a message, and some for a new connection.
        let ttls = if server.pttl >= 0 { 20_000 / (server.pttl as usize + 1).max(1) } else { 0 };
        let most = 60 + 2 * server.messages + 4 * server.harm + ttls;
        let asks: BTreeSet<usize> = server.nodes.iter().map(|node| node.asks).collect();
        assert!(asks.iter().all(|asks| *asks <= most), "{asks:?} asks, more than {most}");
    }
    bounded("shutdown", ANSWER, client.shutdown()).await;
    assert_eq!(client.stats().locks, 0);
}

fuzz_target!(|plan: Plan| run(|| play(plan)));
