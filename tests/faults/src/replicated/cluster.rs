//! Three masters with a replica each, and a server that is added and removed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use leasehold_testkit::{Cluster, Proxy, slot_of};
use redis::from_redis_value;
use tokio::time::sleep;

use super::{LIMIT, TICK, goes_on, grace, until};
use crate::{
    clock::Chance,
    deployment::{CLUSTERED, Node, info},
    locks::{ALL, MUTEXES},
    scene::{SYNCED, Scene},
};

pub(super) const NAMES: [&str; 11] = [
    "master-killed",
    "master-stopped",
    "master-cut-off",
    "master-replaced",
    "master-taken-over",
    "replicas-stopped",
    "slot-moved",
    "slot-moved-at-once",
    "slot-moved-while-cut",
    "slot-moved-in-grace",
    "node-added",
];

/// Those of a cluster whose nodes take their time.
pub(super) const PATIENT: [&str; 2] = ["cut-off-between-pings", "slot-moved-in-grace"];

/// Those in which the old master grants locks for longer than the grace makes up for, if that is short.
pub(super) const OVERLAPS: [&str; 1] = ["cut-off-between-pings"];

pub(super) async fn strike(name: &str, scene: &Scene, chance: &mut Chance) -> u64 {
    let about_kept = ["cut-off-between-pings", "slot-moved-in-grace"].contains(&name);
    let lock = if about_kept { MUTEXES[0] } else { *chance.pick(&ALL) };
    let slot = slot_of(lock);
    let (old, replica) = shard(scene, slot).await;
    match name {
        "master-killed" => {
            old.server.kill();
            owns(replica, slot).await;
            sleep(chance.ms(0, 3000)).await;
            old.server.restart().await;
        }
        "master-stopped" => {
            let beside = contender(scene, chance);
            scene.deployment.divide(old.index, beside, true);
            old.server.pause();
            owns(replica, slot).await;
            old.server.resume();
            sleep(chance.ms(0, 3000)).await;
            scene.deployment.divide(old.index, beside, false);
        }
        "master-cut-off" => {
            let beside = contender(scene, chance);
            scene.deployment.isolate(Some(old.index));
            scene.deployment.divide(old.index, beside, true);
            owns(replica, slot).await;
            sleep(chance.ms(0, 4000)).await;
            scene.deployment.isolate(None);
            sleep(chance.ms(0, 2000)).await;
            scene.deployment.divide(old.index, beside, false);
        }
        "cut-off-between-pings" => {
            let beside = contender_that_does_not_wait(scene, chance);
            is_missed_late(scene, old).await;
            scene.deployment.isolate(Some(old.index));
            scene.deployment.divide(old.index, beside, true);
            owns(replica, slot).await;
            let promoted_at = Instant::now();
            until("the old master stops", async || !is_up(old).await).await;
            println!("    it went on for {} ms", promoted_at.elapsed().as_millis());
            // The grants of the new one count by then, and those of the old one are to be over.
            sleep(scene.quarantine + chance.ms(2000, 6000)).await;
            scene.deployment.isolate(None);
            sleep(chance.ms(0, 2000)).await;
            scene.deployment.divide(old.index, beside, false);
        }
        "slot-moved-in-grace" => {
            let beside = contender_that_does_not_wait(scene, chance);
            // The replica lacks what is granted now, and who has it hears of nothing until the end.
            scene.deployment.cut_replication(old);
            sleep(chance.ms(300, 1500)).await;
            scene.deployment.divide(old.index, beside, true);
            old.server.kill();
            // In half of the cases an operator does not wait for the others to agree.
            match chance.one_in(2) {
                true => fail_over(replica, &["TAKEOVER"], slot).await,
                false => owns(replica, slot).await,
            }
            let to = another(scene, replica).await;
            until("the next owner knows the new master", async || {
                let (Some(new), Some(heard)) = (said(replica).await, heard(to).await) else {
                    return false;
                };
                heard.masters.contains(&new.id)
            })
            .await;
            moved(scene, slot, replica, to, [Duration::ZERO; 2]).await;
            sleep(scene.quarantine + chance.ms(0, 2000)).await;
            scene.deployment.isolate(None);
            old.server.restart().await;
            scene.deployment.divide(old.index, beside, false);
            follows(old, replica).await;
        }
        "master-replaced" => fail_over(replica, &[], slot).await,
        // Without the agreement of the others, or the old master.
        "master-taken-over" => fail_over(replica, &["TAKEOVER"], slot).await,
        "replicas-stopped" => {
            replicas_stopped(scene).await;
            is_settled(scene).await;
            return 1;
        }
        "slot-moved" => {
            there_and_back(scene, slot, chance, async |from, to, chance| {
                moved(scene, slot, from, to, pauses(chance)).await;
            })
            .await;
            return 2;
        }
        "slot-moved-at-once" => return moved_at_once(scene, slot, chance).await,
        "slot-moved-while-cut" => {
            there_and_back(scene, slot, chance, async |from, to, chance| {
                while_cut(to, moved(scene, slot, from, to, pauses(chance))).await;
            })
            .await;
            return 2;
        }
        "node-added" => added(scene, slot, old, chance).await,
        other => unreachable!("there is no {other}"),
    }
    is_settled(scene).await;
    grace(scene).await;
    1
}

async fn fail_over(replica: &Node, how: &[&str], slot: u16) {
    let words = [&["CLUSTER", "FAILOVER"], how].concat();
    let asked_at = Instant::now();
    while let Err(error) = replica.attempt(&words).await {
        // On a machine that stalls, the others may have found its master dead meanwhile.
        if said(replica).await.is_some_and(|said| said.is_master) {
            break;
        }
        assert!(asked_at.elapsed() < LIMIT, "the failover is refused: {error}");
        sleep(TICK).await;
    }
    owns(replica, slot).await;
}

/// No replica answers. Contenders that do not wait for replicas go on.
async fn replicas_stopped(scene: &Scene) {
    let mut stopped = Vec::new();
    for node in members(scene) {
        if !said(node).await.is_some_and(|said| said.is_master) {
            node.server.pause();
            stopped.push(node);
        }
    }
    sleep(scene.ttl).await;
    // Each look waits for those that are stopped, so short holds are missed: this lock is held most.
    goes_on(scene, MUTEXES[0]).await;
    stopped.iter().for_each(|node| node.server.resume());
}

/// Does something from the owner of a slot to another master, and back. At each of the two the slot has a grace of its own.
async fn there_and_back(
    scene: &Scene,
    slot: u16,
    chance: &mut Chance,
    mut go: impl AsyncFnMut(&Node, &Node, &mut Chance),
) {
    let (from, _) = shard(scene, slot).await;
    let to = another(scene, from).await;
    go(from, to, chance).await;
    is_settled(scene).await;
    is_used(scene, chance).await;
    go(to, from, chance).await;
    is_settled(scene).await;
    grace(scene).await;
}

/// A slot that has come to a master stays there for a while: in half of the cases until locks are granted there.
async fn is_used(scene: &Scene, chance: &mut Chance) {
    if chance.one_in(2) {
        grace(scene).await;
    } else {
        scene.forget_what_servers_have();
    }
    sleep(chance.ms(0, 2000)).await;
}

/// Before and after the keys of a slot are moved.
fn pauses(chance: &mut Chance) -> [Duration; 2] {
    [chance.ms(0, 3000), chance.ms(0, 2000)]
}

/// One slot with its locks, key by key. For a while it has two owners.
async fn moved(scene: &Scene, slot: u16, from: &Node, to: &Node, pauses: [Duration; 2]) {
    let cluster = cluster(scene);
    cluster.open(slot, &from.server, &to.server).await;
    sleep(pauses[0]).await;
    cluster.migrate_all(slot, &from.server, &to.server).await;
    sleep(pauses[1]).await;
    cluster.migrate_all(slot, &from.server, &to.server).await;
    let id = said(to).await.expect("it answers").id;
    let slot = slot.to_string();
    let words = ["CLUSTER", "SETSLOT", &slot, "NODE", &id];
    to.insist(&words).await;
    // Who has lost its last slot may follow the new owner by then.
    until("the slot has one owner", async || {
        from.attempt(&words).await.is_ok() || said(from).await.is_some_and(|said| !said.is_master)
    })
    .await;
}

/// As Valkey 9 does it by itself.
async fn moved_at_once(scene: &Scene, slot: u16, chance: &mut Chance) -> u64 {
    for _ in 0..2 {
        let (from, _) = shard(scene, slot).await;
        let to = another(scene, from).await;
        let id = said(to).await.expect("it answers").id;
        let range = slot.to_string();
        let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &range, &range, "NODE", &id];
        if let Err(error) = from.attempt(&words).await {
            let error = error.to_string().to_lowercase();
            assert!(error.contains("unknown") || error.contains("subcommand"), "{error}");
            return 0;
        }
        owns(to, slot).await;
        is_settled(scene).await;
        is_used(scene, chance).await;
    }
    grace(scene).await;
    2
}

/// What is redirected there meanwhile is cut off.
async fn while_cut(node: &Node, done: impl Future<Output = ()>) {
    let over = AtomicBool::new(false);
    let cuts = async {
        while !over.load(Ordering::SeqCst) {
            node.proxies.iter().for_each(Proxy::cut);
            sleep(TICK * 2).await;
        }
    };
    let moves = async {
        done.await;
        // Clients hear of it now.
        sleep(Duration::from_millis(500)).await;
        over.store(true, Ordering::SeqCst);
    };
    tokio::join!(cuts, moves);
}

/// A master joins, has a slot for a while, and leaves.
async fn added(scene: &Scene, slot: u16, old: &Node, chance: &mut Chance) {
    let new = scene.deployment.nodes.last().expect("the one that is in no cluster");
    let port = new.server.port().to_string();
    old.insist(&["CLUSTER", "MEET", "127.0.0.1", &port]).await;
    until("all know the new one", async || {
        all_know(scene, CLUSTERED + 1).await && knows(new, CLUSTERED + 1).await
    })
    .await;
    moved(scene, slot, old, new, pauses(chance)).await;
    is_used(scene, chance).await;
    moved(scene, slot, new, old, pauses(chance)).await;
    let id = said(new).await.expect("it answers").id;
    until("all have forgotten it", async || {
        for node in members(scene) {
            let _ = node.attempt(&["CLUSTER", "FORGET", &id]).await;
        }
        all_know(scene, CLUSTERED).await
    })
    .await;
    // What the locks of other slots wrote there, if it has become a replica.
    let _ = new.attempt(&["FLUSHALL"]).await;
    new.insist(&["CLUSTER", "RESET", "HARD"]).await;
}

fn contender(scene: &Scene, chance: &mut Chance) -> usize {
    chance.between(0, scene.contenders() as u64) as usize
}

/// One that believes in grants which no replica has.
fn contender_that_does_not_wait(scene: &Scene, chance: &mut Chance) -> usize {
    let all: Vec<usize> = (0..scene.contenders()).filter(|number| *number != SYNCED).collect();
    *chance.pick(&all)
}

/// Waits for a moment at which the other masters have last heard of this one long ago, and it has just heard of them. If
/// it is cut off then, they miss it sooner than it misses them. Nobody can say how good the next moments are: it is one that
/// is as good as the best of some seconds, or nearly so.
async fn is_missed_late(scene: &Scene, old: &Node) {
    let (began_at, mut best) = (Instant::now(), i64::MIN);
    loop {
        let lead = lead(scene, old).await.unwrap_or(i64::MIN);
        let Some(over) = began_at.elapsed().checked_sub(LOOKED_ON) else {
            best = best.max(lead);
            sleep(TICK).await;
            continue;
        };
        if lead >= best.saturating_sub(over.as_millis() as i64 / 10) {
            println!("    cut off {lead} ms ahead of the others");
            return;
        }
        sleep(TICK).await;
    }
}

/// By how many milliseconds a master has heard of any of the others later than all of them have of it.
async fn lead(scene: &Scene, old: &Node) -> Option<i64> {
    let (own, others) = {
        let all = join_all(members(scene).iter().map(heard)).await;
        let all = members(scene).iter().zip(all).map(|(node, heard)| Some((node.index, heard?)));
        let all = all.collect::<Option<Vec<_>>>()?;
        let (own, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(index, _)| *index == old.index);
        (own.into_iter().next()?.1, others)
    };
    let others = others.into_iter().map(|(_, heard)| heard).filter(|heard| heard.is_master);
    let others: Vec<Heard> = others.collect();
    let of_others = others.iter().filter_map(|it| own.pongs.get(&it.id)).max()?;
    let of_it = others.iter().filter_map(|it| it.pongs.get(&own.id)).max()?;
    Some(of_others - of_it)
}

/// What a node has heard of all, by their ids.
struct Heard {
    id: String,
    /// Itself is.
    is_master: bool,
    masters: BTreeSet<String>,
    /// When they have last answered, in milliseconds.
    pongs: BTreeMap<String, i64>,
}

async fn heard(node: &Node) -> Option<Heard> {
    let said = said(node).await?;
    let lines = node.attempt(&["CLUSTER", "NODES"]).await.ok()?;
    let lines: String = from_redis_value(lines).ok()?;
    let (mut masters, mut pongs) = (BTreeSet::new(), BTreeMap::new());
    for line in lines.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, _, flags, _, _, pong, ..] = words[..] else { continue };
        pongs.insert(id.to_owned(), pong.parse().ok()?);
        if flags.contains("master") {
            masters.insert(id.to_owned());
        }
    }
    Some(Heard { id: said.id, is_master: said.is_master, masters, pongs })
}

fn cluster(scene: &Scene) -> &Cluster {
    scene.deployment.cluster.as_ref().expect("it is one")
}

/// The servers that are always in the cluster.
fn members(scene: &Scene) -> &[Node] {
    &scene.deployment.nodes[..CLUSTERED]
}

/// What a server says of itself in the cluster.
struct Said {
    id: String,
    is_master: bool,
    /// The id of its master.
    follows: String,
    slots: Vec<(u16, u16)>,
    /// Whether it believes that any node is out of reach.
    misses: bool,
}

async fn said(node: &Node) -> Option<Said> {
    let lines = node.attempt(&["CLUSTER", "NODES"]).await.ok()?;
    let lines: String = from_redis_value(lines).ok()?;
    let own = lines.lines().find(|line| line.contains("myself"))?;
    // Id, address, flags, master, ping, pong, epoch, link, slots.
    let words: Vec<&str> = own.split_whitespace().collect();
    let range = |word: &&str| {
        let (from, to) = word.split_once('-').unwrap_or((word, word));
        Some((from.parse().ok()?, to.parse().ok()?))
    };
    Some(Said {
        id: words[0].to_owned(),
        is_master: words[2].contains("master"),
        follows: words[3].to_owned(),
        slots: words[8..].iter().filter_map(range).collect(),
        misses: lines.lines().any(|line| line.contains("fail") || line.contains("handshake")),
    })
}

/// The owner of a slot, and its replica.
async fn shard(scene: &Scene, slot: u16) -> (&Node, &Node) {
    let all = join_all(members(scene).iter().map(said)).await;
    let all: Vec<(&Node, Said)> =
        members(scene).iter().zip(all).filter_map(|(node, said)| Some((node, said?))).collect();
    let has = |said: &Said| {
        said.is_master && said.slots.iter().any(|(from, to)| (*from..=*to).contains(&slot))
    };
    let (owner, of) = all.iter().find(|(_, said)| has(said)).expect("it has an owner");
    let (replica, _) =
        all.iter().find(|(_, said)| said.follows == of.id).expect("it has a replica");
    (owner, replica)
}

/// Some other master.
async fn another<'a>(scene: &'a Scene, than: &Node) -> &'a Node {
    for node in members(scene) {
        if node.index != than.index && said(node).await.is_some_and(|said| said.is_master) {
            return node;
        }
    }
    unreachable!("there are three");
}

/// Has a former master follow the one that has its place. By itself it follows whoever has taken its last slot, which may be
/// the owner of the slot that moved on.
async fn follows(old: &Node, new: &Node) {
    let id = said(new).await.expect("it answers").id;
    until("the old master follows the new one", async || {
        let _ = old.attempt(&["CLUSTER", "REPLICATE", &id]).await;
        said(old).await.is_some_and(|said| said.follows == id)
    })
    .await;
}

async fn owns(node: &Node, slot: u16) {
    until("it owns the slot", async || {
        said(node).await.is_some_and(|said| {
            said.is_master && said.slots.iter().any(|(from, to)| (*from..=*to).contains(&slot))
        })
    })
    .await;
}

/// Whether a node takes requests, as far as it knows of the others.
async fn is_up(node: &Node) -> bool {
    let found = node.attempt(&["CLUSTER", "INFO"]).await.ok();
    let found = found.and_then(|found| from_redis_value::<String>(found).ok());
    found.unwrap_or_default().contains("cluster_state:ok")
}

async fn knows(node: &Node, count: usize) -> bool {
    let Ok(found) = node.attempt(&["CLUSTER", "INFO"]).await else { return false };
    let found: String = from_redis_value(found).unwrap_or_default();
    found.contains(&format!("cluster_known_nodes:{count}\r")) && found.contains("cluster_state:ok")
}

async fn all_know(scene: &Scene, count: usize) -> bool {
    join_all(members(scene).iter().map(|node| knows(node, count))).await.into_iter().all(|it| it)
}

/// Waits until there are three masters with a replica each, and all servers agree on everything.
async fn is_settled(scene: &Scene) {
    until("the cluster is settled", async || {
        if !all_know(scene, CLUSTERED).await {
            return false;
        }
        let all = join_all(members(scene).iter().map(said)).await;
        let Some(all) = all.into_iter().collect::<Option<Vec<_>>>() else { return false };
        let masters: Vec<&Said> = all.iter().filter(|said| said.is_master).collect();
        let followed =
            masters.iter().all(|master| all.iter().any(|said| said.follows == master.id));
        if masters.len() * 2 != CLUSTERED || !followed || all.iter().any(|said| said.misses) {
            return false;
        }
        for node in members(scene) {
            let follows = info(&node.server, "replication").await.is_some_and(|info| {
                info.get::<String>("master_link_status").is_none_or(|status| status == "up")
            });
            if !follows {
                return false;
            }
        }
        agree(scene).await
    })
    .await;
}

/// Whether all say the same of each slot, and know each server by the address that it announces.
async fn agree(scene: &Scene) -> bool {
    let mut maps = Vec::new();
    for node in members(scene) {
        let Ok(lines) = node.attempt(&["CLUSTER", "NODES"]).await else { return false };
        let lines: String = from_redis_value(lines).unwrap_or_default();
        let mut map: Vec<String> = lines
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let slots = words[8..].iter().filter(|word| !word.starts_with('['));
                // The address may go on with a name.
                let address = words[1].split(',').next().unwrap_or_default();
                format!("{} {address} {:?}", words[0], slots.collect::<Vec<_>>())
            })
            .collect();
        map.sort();
        maps.push(map);
    }
    let announced = members(scene).iter().all(|node| {
        let [port, bus] = [0, 1].map(|at| node.junctions[at].port());
        maps[0].iter().any(|line| line.contains(&format!("127.0.0.1:{port}@{bus} ")))
    });
    announced && maps.iter().all(|map| *map == maps[0])
}

/// For so long a moment is looked for.
const LOOKED_ON: Duration = Duration::from_secs(8);
