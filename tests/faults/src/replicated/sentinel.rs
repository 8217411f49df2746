//! A master, two replicas and five Sentinels.

use futures_util::future::join_all;
use leasehold_testkit::MASTER;
use redis::{Value, from_redis_value};
use tokio::time::sleep;

use super::{goes_on, grace, until};
use crate::{
    clock::Chance,
    deployment::{Node, Watcher},
    locks::MUTEXES,
    scene::Scene,
};

pub(super) const NAMES: [&str; 8] = [
    "master-killed",
    "master-killed-ahead",
    "master-stopped",
    "master-cut-off",
    "master-replaced",
    "master-handed-over",
    "sentinels-fail",
    "sentinels-gone",
];

/// Those in which the old master lives on.
pub(super) const OVERLAPS: [&str; 2] = ["master-stopped", "master-cut-off"];

pub(super) async fn strike(name: &str, scene: &Scene, chance: &mut Chance) -> u64 {
    // Now and then the Sentinels take their time, as outside of tests, before they demote a master that comes back.
    demote_slowly(scene, OVERLAPS.contains(&name) && chance.one_in(2)).await;
    match name {
        "master-killed" => killed(scene, chance).await,
        "master-killed-ahead" => killed_ahead(scene, chance).await,
        "master-stopped" => stopped(scene, chance).await,
        "master-cut-off" => cut_off(scene, chance).await,
        "master-replaced" => return replaced(scene).await,
        "master-handed-over" => return handed_over(scene).await,
        "sentinels-fail" => sentinels_fail(scene, chance).await,
        "sentinels-gone" => return gone(scene).await,
        other => unreachable!("there is no {other}"),
    }
    is_settled(scene).await;
    grace(scene).await;
    1
}

async fn killed(scene: &Scene, chance: &mut Chance) {
    let old = master(scene).await;
    old.server.kill();
    is_replaced(scene, old).await;
    sleep(chance.ms(0, 3000)).await;
    old.server.restart().await;
}

/// The replicas lack what was granted last.
async fn killed_ahead(scene: &Scene, chance: &mut Chance) {
    let old = master(scene).await;
    scene.deployment.cut_replication(old);
    // It stops granting after one to three seconds.
    sleep(chance.ms(300, 1500)).await;
    old.server.kill();
    is_replaced(scene, old).await;
    scene.deployment.isolate(None);
    sleep(chance.ms(0, 3000)).await;
    old.server.restart().await;
}

/// It goes on after the failover, and one contender is still there.
async fn stopped(scene: &Scene, chance: &mut Chance) {
    let old = master(scene).await;
    let beside = contender(scene, chance);
    scene.deployment.divide(old.index, beside, true);
    old.server.pause();
    is_replaced(scene, old).await;
    sleep(chance.ms(0, 1000)).await;
    old.server.resume();
    sleep(chance.ms(1000, 4000)).await;
    scene.deployment.divide(old.index, beside, false);
}

/// With one contender on its side, which hears of nothing until the end.
async fn cut_off(scene: &Scene, chance: &mut Chance) {
    let old = master(scene).await;
    let beside = contender(scene, chance);
    scene.deployment.isolate(Some(old.index));
    scene.deployment.divide(old.index, beside, true);
    is_replaced(scene, old).await;
    // So long that both sides take locks, if they can.
    sleep(chance.ms(3000, 7000)).await;
    scene.deployment.isolate(None);
    // Servers and clients need not be back at the same time.
    sleep(chance.ms(0, 2000)).await;
    scene.deployment.divide(old.index, beside, false);
}

/// As an operator does, although the master is well.
async fn replaced(scene: &Scene) -> u64 {
    for _ in 0..REPLACEMENTS {
        let old = master(scene).await;
        let [first, ..] = &scene.deployment.watchers[..] else { unreachable!("there are some") };
        until("a failover can begin", async || {
            first.server.try_command(&["SENTINEL", "FAILOVER", MASTER]).await.is_ok()
        })
        .await;
        is_replaced(scene, old).await;
        is_settled(scene).await;
        grace(scene).await;
    }
    REPLACEMENTS
}

/// The old master stops before the next one begins. Only Valkey 9 can do that.
async fn handed_over(scene: &Scene) -> u64 {
    let old = master(scene).await;
    let [first, ..] = &scene.deployment.watchers[..] else { unreachable!("there are some") };
    let mut can = false;
    until("a failover can begin", async || {
        let words = ["SENTINEL", "FAILOVER", MASTER, "COORDINATED"];
        match first.server.try_command(&words).await {
            Ok(_) => can = true,
            Err(error) => {
                let error = error.to_string().to_lowercase();
                return error.contains("argument") || error.contains("subcommand");
            }
        }
        can
    })
    .await;
    if can {
        is_replaced(scene, old).await;
        is_settled(scene).await;
        grace(scene).await;
    }
    u64::from(can)
}

/// One is dead, another hangs, a third one always lies: the others replace a master that dies.
async fn sentinels_fail(scene: &Scene, chance: &mut Chance) {
    let old = master(scene).await;
    let mut watchers: Vec<&Watcher> = scene.deployment.watchers.iter().collect();
    chance.shuffle(&mut watchers);
    watchers[0].server.kill();
    watchers[1].server.pause();
    old.server.kill();
    is_replaced(scene, old).await;
    watchers[1].server.resume();
    watchers[0].server.restart().await;
    old.server.restart().await;
}

/// All are dead. The master is not, so locks go on, and nobody need wait for a grace.
async fn gone(scene: &Scene) -> u64 {
    scene.deployment.watchers.iter().for_each(|watcher| watcher.server.kill());
    sleep(scene.ttl).await;
    for lock in MUTEXES {
        goes_on(scene, lock).await;
    }
    join_all(scene.deployment.watchers.iter().map(|watcher| watcher.server.restart())).await;
    is_settled(scene).await;
    1
}

fn contender(scene: &Scene, chance: &mut Chance) -> usize {
    chance.between(0, scene.contenders() as u64) as usize
}

async fn demote_slowly(scene: &Scene, slowly: bool) {
    let [info, publish] = if slowly { ["10000", "2000"] } else { ["300", "300"] };
    for watcher in &scene.deployment.watchers {
        let words = ["SENTINEL", "DEBUG", "INFO-PERIOD", info, "PUBLISH-PERIOD", publish];
        // Servers before 7.0 do not know it, and always take their time.
        let _ = watcher.server.try_command(&words).await;
    }
}

/// The server that the Sentinels name.
async fn master(scene: &Scene) -> &Node {
    let [first, ..] = &scene.deployment.watchers[..] else { unreachable!("there are some") };
    let port = named_by(first).await.expect("it answers");
    let master = scene.deployment.nodes.iter().find(|node| node.announced() == port);
    master.expect("one of the deployment's")
}

async fn named_by(watcher: &Watcher) -> Option<u16> {
    let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER];
    let named = watcher.server.try_command(&words).await.ok()?;
    from_redis_value::<(String, u16)>(named).ok().map(|(_, port)| port)
}

async fn is_replaced(scene: &Scene, old: &Node) {
    until("another one is the master", async || {
        for node in &scene.deployment.nodes {
            if node.index != old.index && role(node).await.is_some_and(|(name, _)| name == "master")
            {
                return true;
            }
        }
        false
    })
    .await;
}

/// Waits until one server is the master, the others follow it, and all Sentinels say so.
async fn is_settled(scene: &Scene) {
    until("one is the master, and the others follow it", async || {
        let nodes = &scene.deployment.nodes;
        let roles = join_all(nodes.iter().map(role)).await;
        let masters = nodes.iter().zip(&roles).filter(|(_, role)| {
            role.as_ref().is_some_and(|(name, well)| name == "master" && *well)
        });
        let [(master, _)] = masters.collect::<Vec<_>>()[..] else { return false };
        let follow = |role: &&Option<(String, bool)>| {
            role.as_ref().is_some_and(|(name, well)| name == "slave" && *well)
        };
        if roles.iter().filter(follow).count() + 1 < nodes.len() {
            return false;
        }
        let named = join_all(scene.deployment.watchers.iter().map(named_by)).await;
        named.iter().all(|port| *port == Some(master.announced()))
    })
    .await;
}

/// What a server says it is, and whether it has all its replicas or is connected to its master.
async fn role(node: &Node) -> Option<(String, bool)> {
    let Ok(Value::Array(parts)) = node.attempt(&["ROLE"]).await else { return None };
    let name = from_redis_value(parts.first()?.clone()).ok()?;
    let well = match parts.get(3) {
        Some(state) => *state == Value::BulkString(b"connected".into()),
        None => matches!(parts.get(2), Some(Value::Array(replicas)) if replicas.len() == 2),
    };
    Some((name, well))
}

const REPLACEMENTS: u64 = 3;
