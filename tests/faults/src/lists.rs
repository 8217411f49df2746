//! Other servers become the masters while clients run, as `docs/deployments.md` says under "To change the masters": one server at a
//! time, with clients of the old and of the new list side by side. Meanwhile contenders are killed, and come back with the old list
//! or the new one, servers restart, and connections are cut.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::sleep;

use crate::{
    clock::Chance,
    deployment::{FIRST_MASTERS, POOL},
    event::What,
    journal::Journal,
    nemesis::{self, Kind},
    recorder::Recorder,
    scene::Scene,
    strays::{STRAYS, Strays},
};

pub(crate) const NAMES: [&str; 2] = ["master-exchanged", "masters-grown"];

/// Who changes the masters of a round.
pub(crate) struct Operator<'a> {
    scene: &'a Scene,
    recorder: Recorder,
    masters: Vec<usize>,
}

impl<'a> Operator<'a> {
    pub(crate) fn new(scene: &'a Scene) -> Self {
        let journal = Journal::create(&scene.dir.join(format!("{STRAYS}.log")));
        let recorder = Recorder::new(journal.expect("the journal can be made"));
        Self { scene, recorder, masters: scene.deployment.masters_of(0) }
    }

    pub(crate) async fn strike(
        &mut self,
        name: &str,
        chance: &mut Chance,
        faults: &mut BTreeMap<String, u64>,
    ) {
        *faults.entry(name.to_owned()).or_default() += 1;
        match name {
            "master-exchanged" => {
                let leaves = *chance.pick(&self.masters.clone());
                self.add(chance, faults).await;
                self.leave_out(leaves, chance, faults).await;
            }
            "masters-grown" => {
                while self.masters.len() > FIRST_MASTERS {
                    let leaves = *chance.pick(&self.masters.clone());
                    self.leave_out(leaves, chance, faults).await;
                }
                self.add(chance, faults).await;
                self.add(chance, faults).await;
            }
            other => unreachable!("there is no {other}"),
        }
    }

    async fn add(&mut self, chance: &mut Chance, faults: &mut BTreeMap<String, u64>) {
        let spare: Vec<usize> = (0..POOL).filter(|index| !self.masters.contains(index)).collect();
        let new = *chance.pick(&spare);
        // A new server: it may have been one of the masters before.
        let node = &self.scene.deployment.nodes[new];
        nemesis::kill(self.scene, node);
        node.wipe();
        nemesis::start(self.scene, node, &[]).await;
        self.scene.note_servers();
        let mut masters = self.masters.clone();
        masters.push(new);
        self.change_to(masters, chance, faults).await;
    }

    async fn leave_out(
        &mut self,
        leaves: usize,
        chance: &mut Chance,
        faults: &mut BTreeMap<String, u64>,
    ) {
        let masters = self.masters.iter().copied().filter(|index| *index != leaves).collect();
        self.change_to(masters, chance, faults).await;
    }

    /// The three steps of the documentation.
    async fn change_to(
        &mut self,
        new: Vec<usize>,
        chance: &mut Chance,
        faults: &mut BTreeMap<String, u64>,
    ) {
        let (scene, old) = (self.scene, self.masters.clone());
        let strays = Strays::new(scene, &self.recorder);
        let mut all = if new.len() > old.len() { new.clone() } else { old.clone() };
        chance.shuffle(&mut all);
        let [old_list, new_list] = [&old, &new].map(|masters| scene.deployment.list_of(masters));
        let mut count = |name: &str| *faults.entry(name.to_owned()).or_default() += 1;

        // Too early.
        strays.tries(&new).await;
        let mut forgotten = strays.is_right(&old).await;
        let both = [old_list, new_list.clone()];
        if chance.one_in(2) {
            let victim = any_contender(scene, chance);
            count(&Kind::ContenderKilled.name());
            let mut pauses = Chance::new(chance.draw());
            tokio::join!(kill(scene, victim), self.types(&all, &both, &mut pauses));
        } else {
            self.types(&all, &both, chance).await;
        }

        let mut slots: Vec<usize> = (0..scene.contenders()).collect();
        chance.shuffle(&mut slots);
        for (step, slot) in slots.iter().copied().enumerate() {
            if chance.one_in(3) {
                // It comes back as it was.
                count(&Kind::ContenderKilled.name());
                kill(scene, slot).await;
            }
            scene.deployment.name_masters(slot, &new);
            if chance.one_in(2) {
                count(&Kind::ContenderKilled.name());
                kill(scene, slot).await;
            } else {
                scene.follow_contender(slot).await;
            }
            if step == 0 {
                // The new server counts from now on. Until then the others must do.
                sleep(scene.quarantine + A_WHILE).await;
            }
            if step + 1 < slots.len() {
                // Between the old and the new.
                self.disturb(&old, &new, chance, &mut count).await;
                sleep(if chance.one_in(2) { scene.ttl * 2 + A_WHILE } else { chance.ms(50, 500) })
                    .await;
            }
        }

        let number = scene.number();
        let kind = "client-forgotten";
        count(kind);
        scene.journal.write(What::Fault { number, kind: kind.to_owned(), stops: None });
        if let Some(forgotten) = &mut forgotten {
            strays.takes(forgotten).await;
        }
        self.types(&all, &[new_list], chance).await;
        if let Some(forgotten) = forgotten {
            strays.ends(forgotten).await;
        }
        // Too late.
        strays.tries(&old).await;
        // What it had is over.
        sleep(scene.ttl * 3 / 2).await;
        scene.journal.write(What::Healed { number });
        self.masters = new;
        // What waits must have its turn.
        sleep(scene.ttl * 2 + A_WHILE).await;
    }

    /// Types on one server after the other that clients may name these masters.
    async fn types(&self, servers: &[usize], lists: &[String], chance: &mut Chance) {
        let masters = |everywhere| What::Masters { lists: lists.to_vec(), everywhere };
        self.scene.journal.write(masters(false));
        for index in servers {
            let node = &self.scene.deployment.nodes[*index];
            node.insist(&["SET", KEY, &lists.join(" | ")]).await;
            sleep(chance.ms(0, 300)).await;
        }
        self.scene.journal.write(masters(true));
    }

    /// Something happens that locks survive anyway.
    async fn disturb(
        &self,
        old: &[usize],
        new: &[usize],
        chance: &mut Chance,
        count: &mut impl FnMut(&str),
    ) {
        let scene = self.scene;
        let kinds = [Kind::ServerRestarted, Kind::ConnectionsCut, Kind::ContenderStopped];
        let kind = *chance.pick(&kinds);
        if chance.one_in(3) {
            return;
        }
        count(&kind.name());
        if kind == Kind::ContenderStopped {
            return kind.strike(scene, chance).await;
        }
        let shared: Vec<usize> = old.iter().copied().filter(|index| new.contains(index)).collect();
        let node = &scene.deployment.nodes[*chance.pick(&shared)];
        let number = scene.number();
        scene.journal.write(What::Fault { number, kind: kind.name(), stops: None });
        if kind == Kind::ConnectionsCut {
            for _ in 0..chance.between(1, 4) {
                node.proxies[0].cut();
                sleep(chance.ms(50, 300)).await;
            }
            scene.journal.write(What::Healed { number });
            return;
        }
        nemesis::kill(scene, node);
        sleep(chance.ms(100, scene.ttl.as_millis() as u64)).await;
        nemesis::start(scene, node, &[]).await;
        scene.note_servers();
        scene.journal.write(What::Healed { number });
        // Another may restart only then.
        sleep(scene.quarantine + A_WHILE).await;
    }
}

/// SIGKILL. Others have the time to take what it held.
async fn kill(scene: &Scene, victim: usize) {
    let (number, kind) = (scene.number(), Kind::ContenderKilled.name());
    scene.journal.write(What::Fault { number, kind, stops: None });
    scene.kill_contender(victim, number);
    sleep(scene.ttl * 3 / 2).await;
    scene.journal.write(What::Healed { number });
}

fn any_contender(scene: &Scene, chance: &mut Chance) -> usize {
    chance.between(0, scene.contenders() as u64) as usize
}

const KEY: &str = "leasehold_masters";
const A_WHILE: Duration = Duration::from_secs(1);
