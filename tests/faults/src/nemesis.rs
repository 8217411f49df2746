//! The faults, each from its beginning until all is as before.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testkit::{Proxy, Server};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    clock::Chance,
    deployment::{Node, USER},
    event::What,
    holders::{holder, lasting_holder, lasting_lease},
    locks::MUTEXES,
    scene::Scene,
};

/// A kind of fault that locks must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A crash; every write was on the disk.
    ServerRestarted,
    /// A crash that loses everything: alone the server stays away for as long as a lease lasts, a minority is
    /// back at once, and in quarantine.
    ServerEmptied,
    /// As that, and comes back with an append-only file that is written through: the run before had none.
    PersistenceSwitched,
    /// As that, though it said that all was written through: the disk ends with the process.
    DiskLost,
    /// As that, and its clock is set forward after its start, before a client meets it: it says that it is up for hours. One
    /// of those that meet it then has known nothing of it.
    ClockSetAfterStart,
    /// Made a replica of an empty server, and a master again once it has that one's data: in the same run. Alone it is a
    /// replica of nobody.
    DemotedAndPromoted,
    ServerStopped,
    /// It comes back, and takes its time to read its data.
    ServerLoading,
    ServerReadOnly,
    OutOfMemory,
    /// It lacks replicas that it would need to take writes.
    ReplicasMissed,
    /// Somebody else's script does not end.
    ServerBusy,
    RightTaken,
    ScriptsFlushed,
    ClientsPaused,
    SubscriptionsKilled,
    CommandsKilled,
    ConnectionsCut,
    ConnectionsRefused,
    HalfClosed,
    RepliesDelayed,
    /// Kept back, and then delivered all at once.
    RepliesHeld,
    RepliesLost,
    RequestsLost,
    ContenderStopped,
    ContenderKilled,
}

impl Kind {
    pub(crate) const ALL: [Self; 26] = [
        Self::ServerRestarted,
        Self::ServerEmptied,
        Self::PersistenceSwitched,
        Self::DiskLost,
        Self::ClockSetAfterStart,
        Self::DemotedAndPromoted,
        Self::ServerStopped,
        Self::ServerLoading,
        Self::ServerReadOnly,
        Self::OutOfMemory,
        Self::ReplicasMissed,
        Self::ServerBusy,
        Self::RightTaken,
        Self::ScriptsFlushed,
        Self::ClientsPaused,
        Self::SubscriptionsKilled,
        Self::CommandsKilled,
        Self::ConnectionsCut,
        Self::ConnectionsRefused,
        Self::HalfClosed,
        Self::RepliesDelayed,
        Self::RepliesHeld,
        Self::RepliesLost,
        Self::RequestsLost,
        Self::ContenderStopped,
        Self::ContenderKilled,
    ];

    /// Those that can be on while another one is.
    pub(crate) const BESIDE_OTHERS: [Self; 4] =
        [Self::RepliesDelayed, Self::ConnectionsCut, Self::ContenderStopped, Self::ContenderKilled];

    /// What happens to those who wait for each other: a process stands still, or is gone, or is not heard.
    pub(crate) const OF_DEADLOCKS: [Self; 8] = [
        Self::ContenderStopped,
        Self::ContenderStopped,
        Self::ContenderStopped,
        Self::ConnectionsCut,
        Self::ConnectionsCut,
        Self::RequestsLost,
        Self::RequestsLost,
        Self::ContenderKilled,
    ];

    /// Whether the two would end each other.
    pub(crate) fn uses_the_same(self, other: Self) -> bool {
        self.is_of_the_network() && other.is_of_the_network()
            || self == Self::ContenderStopped && other == Self::ContenderKilled
            || self == Self::ClockSetAfterStart
                && [Self::ContenderStopped, Self::ContenderKilled].contains(&other)
            // What becomes of the locks of a killed contender is looked at in peace.
            || self == Self::ContenderKilled
    }

    /// Whether it is one only where a majority is left.
    pub(crate) fn needs_several(self) -> bool {
        self == Self::ClockSetAfterStart
    }

    /// `server-restarted`
    pub(crate) fn name(self) -> String {
        let mut name = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.extend(letter.to_lowercase());
        }
        name
    }

    /// Begins the fault, and ends it.
    pub(crate) async fn strike(self, scene: &Scene, chance: &mut Chance) {
        let number = scene.number();
        let span = chance.ms(200, scene.ttl.as_millis() as u64 * 3 / 2);
        let victim = match self {
            // Who holds a lock has most to lose.
            Self::ContenderStopped => holder(scene, chance).await,
            _ => None,
        };
        let victim = victim.unwrap_or_else(|| any_contender(scene, chance));
        let stops = (self == Self::ContenderStopped).then(|| scene.contender(victim));
        scene.journal.write(What::Fault { number, kind: self.name(), stops });
        match self {
            Self::ContenderStopped => {
                scene.signal_contender(victim, Signal::STOP);
                sleep(span).await;
                scene.signal_contender(victim, Signal::CONT);
            }
            Self::ContenderKilled => kill_holders(scene, victim, number).await,
            Self::ServerEmptied
            | Self::PersistenceSwitched
            | Self::DiskLost
            | Self::DemotedAndPromoted
                if scene.deployment.nodes.len() > 1 =>
            {
                self.empty_a_minority(scene, span / 2, chance).await;
            }
            Self::ClockSetAfterStart => set_clocks(scene, victim, chance).await,
            _ if self.is_of_the_network() => self.disturb(scene, victim, span, chance).await,
            _ => {
                let nodes = self.victims(scene, chance);
                let chances: Vec<Chance> =
                    nodes.iter().map(|_| Chance::new(chance.draw())).collect();
                let each = nodes.into_iter().zip(chances);
                let struck = each.map(|(node, chance)| self.strike_node(scene, node, span, chance));
                join_all(struck).await;
            }
        }
        scene.journal.write(What::Healed { number });
    }

    async fn strike_node(self, scene: &Scene, node: &Node, span: Duration, mut chance: Chance) {
        match self {
            Self::ServerRestarted => {
                kill(scene, node);
                sleep(span).await;
                start(scene, node, &[]).await;
            }
            Self::ServerEmptied | Self::PersistenceSwitched | Self::DiskLost => {
                kill(scene, node);
                node.wipe();
                sleep(scene.ttl + span / 4).await;
                start(scene, node, self.options()).await;
            }
            Self::ServerStopped => {
                node.server.pause();
                node.is_down(&scene.journal);
                sleep(span).await;
                node.is_up(&scene.journal);
                node.server.resume();
            }
            Self::ServerLoading => load(scene, node).await,
            Self::ServerReadOnly | Self::DemotedAndPromoted => {
                node.insist(&["REPLICAOF", "127.0.0.1", "1"]).await;
                sleep(span).await;
                node.insist(&["REPLICAOF", "NO", "ONE"]).await;
            }
            Self::OutOfMemory => {
                // Less than it has: it is full at once.
                node.insist(&["CONFIG", "SET", "maxmemory", "100kb"]).await;
                sleep(span).await;
                node.insist(&["CONFIG", "SET", "maxmemory", "0"]).await;
            }
            Self::ReplicasMissed => {
                node.insist(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
                sleep(span).await;
                node.insist(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
            }
            Self::ServerBusy => keep_busy(node, span).await,
            Self::RightTaken => {
                let (taken, given) = *chance.pick(&RIGHTS);
                node.insist(&["ACL", "SETUSER", USER, taken]).await;
                sleep(span).await;
                node.insist(&["ACL", "SETUSER", USER, given]).await;
            }
            Self::ClientsPaused => {
                let ms = span.as_millis().to_string();
                let what = *chance.pick(&["WRITE", "ALL"]);
                let _ = node.attempt(&["CLIENT", "PAUSE", &ms, what]).await;
                sleep(span).await;
            }
            Self::ScriptsFlushed => again_and_again(node, span, &["SCRIPT", "FLUSH"]).await,
            Self::SubscriptionsKilled => {
                again_and_again(node, span, &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
            }
            Self::CommandsKilled => {
                // Not who looks on.
                let words = ["CLIENT", "KILL", "TYPE", "normal", "USER", USER];
                again_and_again(node, span, &words).await;
            }
            other => unreachable!("{other:?} strikes no server"),
        }
    }

    /// How a server is started again that has forgotten everything.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::PersistenceSwitched | Self::DiskLost => WRITTEN_THROUGH,
            _ => &[],
        }
    }

    /// The classic: locks are taken on a bare majority, of which all but one forget before those come back that were
    /// away. Without a quarantine the others would be the next majority.
    async fn empty_a_minority(self, scene: &Scene, span: Duration, chance: &mut Chance) {
        let nodes = &scene.deployment.nodes;
        let (mut keeping, forgetful): (Vec<&Node>, Vec<&Node>) =
            nodes.iter().partition(|node| node.keeps_data);
        chance.shuffle(&mut keeping);
        if self == Self::DiskLost {
            for node in &forgetful {
                node.insist(&["CONFIG", "SET", "appendfsync", "always"]).await;
                node.insist(&["CONFIG", "SET", "appendonly", "yes"]).await;
            }
        }
        let source = Server::with(&["--repl-diskless-sync-delay", "0"]).await;
        let links: Vec<&Proxy> = keeping[1..].iter().flat_map(|node| &node.proxies).collect();
        links.iter().for_each(|link| link.drop_requests(true));
        sleep(span).await;
        if self == Self::DemotedAndPromoted {
            join_all(forgetful.iter().map(|node| resynchronise(scene, node, &source))).await;
        } else {
            for node in &forgetful {
                kill(scene, node);
                node.wipe();
            }
            join_all(forgetful.into_iter().map(|node| start(scene, node, self.options()))).await;
        }
        // Contenders are connected to them again.
        sleep(scene.ttl / 5).await;
        links.iter().for_each(|link| link.drop_requests(false));
    }

    /// One server, or several, or all. What only some can suffer, one of those suffers.
    fn victims<'a>(self, scene: &'a Scene, chance: &mut Chance) -> Vec<&'a Node> {
        let nodes = &scene.deployment.nodes;
        let can = |node: &&Node| match self {
            Self::ServerRestarted | Self::ServerLoading => node.keeps_data,
            _ => true,
        };
        let mut victims: Vec<&Node> = nodes.iter().filter(can).collect();
        chance.shuffle(&mut victims);
        let most = if chance.one_in(3) { victims.len() } else { (nodes.len() / 2).max(1) };
        let count = chance.between(1, most.min(victims.len()) as u64 + 1);
        victims.truncate(count as usize);
        victims
    }

    fn is_of_the_network(self) -> bool {
        matches!(
            self,
            Self::ConnectionsCut
                | Self::ConnectionsRefused
                | Self::HalfClosed
                | Self::RepliesDelayed
                | Self::RepliesHeld
                | Self::RepliesLost
                | Self::RequestsLost
        )
    }

    /// Something happens between some contenders and some servers.
    async fn disturb(self, scene: &Scene, victim: usize, span: Duration, chance: &mut Chance) {
        let nodes = Self::ConnectionsCut.victims(scene, chance);
        let everybody = chance.one_in(3);
        let slots = if everybody { 0..scene.contenders() } else { victim..victim + 1 };
        let links: Vec<&Proxy> =
            nodes.iter().flat_map(|node| &node.proxies[slots.clone()]).collect();
        let each = |act: &dyn Fn(&Proxy)| links.iter().for_each(|link| act(link));
        match self {
            Self::ConnectionsCut | Self::HalfClosed => {
                for _ in 0..chance.between(1, 4) {
                    match self {
                        Self::HalfClosed => each(&Proxy::half_close),
                        _ => each(&Proxy::cut),
                    }
                    sleep(span / 3).await;
                }
            }
            Self::ConnectionsRefused => {
                each(&|link| {
                    link.refuse(true);
                    link.cut();
                });
                sleep(span).await;
                each(&|link| link.refuse(false));
            }
            Self::RepliesDelayed => {
                let delay = chance.ms(10, 350);
                each(&|link| link.delay_replies(delay));
                // So long that leases that were granted late come to their end.
                sleep(scene.ttl + span).await;
                each(&|link| link.delay_replies(Duration::ZERO));
                // What was delayed last arrives.
                sleep(delay).await;
            }
            Self::RepliesHeld => {
                each(&Proxy::hold_replies);
                sleep(span).await;
                each(&Proxy::release_replies);
            }
            Self::RepliesLost => {
                each(&|link| link.drop_replies(true));
                sleep(span).await;
                each(&|link| link.drop_replies(false));
            }
            Self::RequestsLost => {
                each(&|link| link.drop_requests(true));
                sleep(span).await;
                each(&|link| link.drop_requests(false));
            }
            other => unreachable!("{other:?} is not of the network"),
        }
    }
}

fn any_contender(scene: &Scene, chance: &mut Chance) -> usize {
    chance.between(0, scene.contenders() as u64) as usize
}

/// SIGKILL for one that holds a lock, over and over: each time others have the time to take that lock.
async fn kill_holders(scene: &Scene, instead: usize, number: u64) {
    for kill in 0..KILLS {
        let found = timeout(scene.ttl * 2, lasting_holder(scene, kill)).await;
        let victim = found.ok().flatten().unwrap_or(instead);
        scene.kill_contender(victim, number);
        sleep(scene.ttl * 3 / 2).await;
    }
}

pub(crate) fn kill(scene: &Scene, node: &Node) {
    node.server.kill();
    node.is_down(&scene.journal);
}

pub(crate) async fn start(scene: &Scene, node: &Node, options: &[&str]) {
    node.is_up(&scene.journal);
    node.server.restart_with(options).await;
}

/// The classic again, for who meets the servers for the first time: somebody holds a lock on a bare majority, of which all but one
/// forget it and then say that they are up for long. Only a newcomer reaches them, and those that never knew of the lock:
/// if it trusts the uptime, it has the next majority.
async fn set_clocks(scene: &Scene, newcomer: usize, chance: &mut Chance) {
    let nodes = &scene.deployment.nodes;
    let (mut keeping, forgetful): (Vec<&Node>, Vec<&Node>) =
        nodes.iter().partition(|node| node.keeps_data);
    chance.shuffle(&mut keeping);
    let away: Vec<&Proxy> = keeping[1..].iter().flat_map(|node| &node.proxies).collect();
    let forgetful_links = || forgetful.iter().flat_map(|node| &node.proxies);
    let own_links = || nodes.iter().map(|node| &node.proxies[newcomer]);
    let shut = |link: &Proxy| {
        link.refuse(true);
        link.cut();
    };
    away.iter().for_each(|link| link.drop_requests(true));
    own_links().for_each(shut);
    scene.replace_contender(newcomer, MUTEXES[0]);
    // What was locked on those that are away is over then.
    sleep(scene.ttl).await;
    let _ = timeout(scene.ttl, lasting_lease(scene, MUTEXES[0])).await;
    forgetful_links().for_each(shut);
    for node in &forgetful {
        kill(scene, node);
        node.wipe();
    }
    join_all(forgetful.iter().map(|node| start(scene, node, &[]))).await;
    for node in &forgetful {
        let clock = node.clock.as_ref().expect("it loses its data");
        // Never back: what it counts from the clock stays in order.
        let ahead = clock.ahead().expect("it was written");
        clock.set_ahead(ahead + STEP).expect("it can be written");
    }
    own_links().for_each(|link| {
        link.drop_requests(false);
        link.refuse(false);
    });
    sleep(scene.ttl).await;
    forgetful_links().for_each(|link| link.refuse(false));
    away.iter().for_each(|link| link.drop_requests(false));
}

/// Becomes a replica of an empty server, and a master again once it has that one's data.
async fn resynchronise(scene: &Scene, node: &Node, source: &Server) {
    node.is_down(&scene.journal);
    let port = source.port().to_string();
    node.insist(&["REPLICAOF", "127.0.0.1", &port]).await;
    let asked_at = Instant::now();
    while !says(node, "replication", "master_link_status:up").await {
        assert!(asked_at.elapsed() < LIMIT, "it does not get the other's data");
        sleep(TICK).await;
    }
    node.insist(&["REPLICAOF", "NO", "ONE"]).await;
    node.is_up(&scene.journal);
}

/// A restart with so much data, read so slowly, that contenders are told to wait.
async fn load(scene: &Scene, node: &Node) {
    let fill = "for i = 1, 500 do redis.call('SET', 'filler:' .. i, string.rep('x', 100)) end";
    node.insist(&["EVAL", fill, "0"]).await;
    // The history of all locks would take far longer.
    node.insist(&["BGREWRITEAOF"]).await;
    let asked_at = Instant::now();
    while !is_rewritten(node).await {
        assert!(asked_at.elapsed() < LIMIT, "the append-only file is not rewritten");
        sleep(TICK).await;
    }
    kill(scene, node);
    let slowly = ["--key-load-delay", "1500", "--loading-process-events-interval-bytes", "1024"];
    start(scene, node, &slowly).await;
    let clear = "for i = 1, 500 do redis.call('DEL', 'filler:' .. i) end";
    node.insist(&["EVAL", clear, "0"]).await;
}

/// Somebody else's script runs for so long that the server tells all others that it is busy.
async fn keep_busy(node: &Node, span: Duration) {
    node.insist(&["CONFIG", "SET", "lua-time-limit", "20"]).await;
    let ends_at = Instant::now() + span;
    // It goes on, whether anybody waits for its answer or not.
    let _ = timeout(span, node.attempt(&["EVAL", "while true do end", "0"])).await;
    tokio::time::sleep_until(ends_at).await;
    // Refused when there is none any more.
    while let Err(error) = node.attempt(&["SCRIPT", "KILL"]).await
        && !error.to_string().contains("NOTBUSY")
        && ends_at.elapsed() < LIMIT
    {
        sleep(TICK).await;
    }
    node.insist(&["CONFIG", "SET", "lua-time-limit", "5000"]).await;
}

async fn is_rewritten(node: &Node) -> bool {
    says(node, "persistence", "aof_rewrite_in_progress:0").await
        && says(node, "persistence", "aof_rewrite_scheduled:0").await
}

async fn says(node: &Node, section: &str, what: &str) -> bool {
    let info = node.insist(&["INFO", section]).await;
    redis::from_redis_value::<String>(info).is_ok_and(|info| info.contains(what))
}

async fn again_and_again(node: &Node, span: Duration, words: &[&str]) {
    let ends_at = Instant::now() + span;
    while Instant::now() < ends_at {
        let _ = node.attempt(words).await;
        sleep(TICK * 3).await;
    }
}

const WRITTEN_THROUGH: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];
/// What a user may lose, and how it is given back.
const RIGHTS: [(&str, &str); 24] = [
    ("-evalsha", "+evalsha"),
    ("-pexpire", "+pexpire"),
    ("-hset", "+hset"),
    ("-hexists", "+hexists"),
    ("-pttl", "+pttl"),
    ("-set", "+set"),
    ("-time", "+time"),
    ("-hdel", "+hdel"),
    ("-publish", "+publish"),
    ("-subscribe", "+subscribe"),
    ("-hget", "+hget"),
    ("-zadd", "+zadd"),
    ("-zrem", "+zrem"),
    ("-zrange", "+zrange"),
    ("-zrank", "+zrank"),
    ("-del", "+del"),
    ("-incr", "+incr"),
    ("-hrandfield", "+hrandfield"),
    ("-lindex", "+lindex"),
    ("-lpop", "+lpop"),
    ("-rpush", "+rpush"),
    ("-pubsub", "+pubsub"),
    ("resetkeys", "~*"),
    ("resetchannels", "&*"),
];
/// How far a clock is set forward, in seconds.
const STEP: i64 = 3600;
/// How many contenders one fault kills, one after the other.
const KILLS: usize = 3;
const TICK: Duration = Duration::from_millis(10);
const LIMIT: Duration = Duration::from_secs(30);
