//! What happens to servers that replicate, and to who decides which of them is the master; each from its beginning until all
//! is as before, and no grace is left.

mod cluster;
mod sentinel;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::{clock::Chance, deployment::Layout, event::What, holders, nemesis::Kind, scene::Scene};

/// The faults of a kind of deployment that locks must survive, as the README explains them.
pub(crate) fn names(layout: Layout) -> &'static [&'static str] {
    match layout {
        Layout::Independent(_) | Layout::Lists => &[],
        Layout::Sentinel => &sentinel::NAMES,
        Layout::Unfenced => &sentinel::OVERLAPS,
        Layout::Cluster => &cluster::NAMES,
        Layout::Patient(_) => &cluster::PATIENT,
        Layout::ShortGrace(_) => &cluster::OVERLAPS,
    }
}

/// Begins a fault, now and then with another one beside it, and ends it. Nothing happens where the servers do not know what
/// it takes.
pub(crate) async fn strike(
    name: &'static str,
    scene: &Scene,
    chance: &mut Chance,
    faults: &mut BTreeMap<String, u64>,
) {
    let beside = *chance.pick(&[Kind::ConnectionsCut, Kind::ContenderStopped]);
    let mut others = Chance::new(chance.draw());
    let beside = chance.one_in(3).then_some(beside);
    let struck = async {
        if let Some(beside) = beside {
            beside.strike(scene, &mut others).await;
            *faults.entry(beside.name()).or_default() += 1;
        }
    };
    let number = scene.number();
    scene.journal.write(What::Fault { number, kind: name.to_owned(), stops: None });
    let (times, ()) = tokio::join!(begin_and_end(name, scene, chance), struck);
    *faults.entry(name.to_owned()).or_default() += times;
    scene.forget_what_servers_have();
    scene.journal.write(What::Healed { number });
}

/// How often it happened.
async fn begin_and_end(name: &'static str, scene: &Scene, chance: &mut Chance) -> u64 {
    match scene.deployment.layout {
        layout if layout.is_cluster() => cluster::strike(name, scene, chance).await,
        _ => sentinel::strike(name, scene, chance).await,
    }
}

/// Waits until contenders believe in a new master's grants: some hear of it late.
async fn grace(scene: &Scene) {
    scene.forget_what_servers_have();
    sleep(scene.quarantine + Duration::from_millis(1500)).await;
}

/// Waits until a lock is passed on, so locks go on.
async fn goes_on(scene: &Scene, lock: &str) {
    let before = holders::lease(scene, lock).await;
    until("locks go on", async || {
        let now = holders::lease(scene, lock).await;
        now.is_some() && now != before
    })
    .await;
}

/// # Panics
///
/// When it is not so in time: then the servers do not do what they are to be tested for.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let asked_at = Instant::now();
    while !is_so().await {
        assert!(asked_at.elapsed() < LIMIT, "not so in time: {what}");
        sleep(TICK).await;
    }
}

const TICK: Duration = Duration::from_millis(20);
const LIMIT: Duration = Duration::from_secs(120);
