//! Leases that are renewed together, in a network that fails: what becomes of one is nothing to the others.

use futures_util::FutureExt;
use futures_util::future::join_all;
use leasehold::{Guard, LossReason, Mutex};
use leasehold_sim::scene::{Scene, TTL_MS};

/// Process 0 holds these at once.
const LOCKS: usize = 12;

fn name(lock: usize) -> String {
    format!("n{lock}")
}

struct Play {
    scene: Scene,
    guards: Vec<Option<Guard>>,
    /// Deleted by hand while it was held, and not taken again since.
    deleted: Vec<bool>,
    losses: usize,
}

impl Play {
    fn begin(seed: u64) -> Self {
        let mut scene = Scene::set(seed, 1);
        let client = scene.client(0);
        let locks: Vec<Mutex> = (0..LOCKS).map(|lock| client.mutex(name(lock))).collect();
        let all = async move { join_all(locks.iter().map(Mutex::lock)).await };
        let guards = scene.on(0, all).into_iter().map(|guard| Some(guard.expect("free"))).collect();
        Self { scene, guards, deleted: vec![false; LOCKS], losses: 0 }
    }

    /// One fault, or something that the process or a stranger does.
    fn act(&mut self) {
        let world = &mut self.scene.world;
        let lock = world.rng.below(LOCKS as u64) as usize;
        match world.rng.below(10) {
            0 | 1 => {
                let links = world.links.iter().filter(|(_, link)| link.host == 0);
                let links: Vec<u64> = links.map(|(id, _)| *id).collect();
                let runs = world.rng.chance(500);
                links.into_iter().for_each(|link| world.cut(link, runs));
            }
            2 => {
                let until = world.now + world.rng.between(1, TTL_MS / 2);
                let path = world.paths.entry((0, 0)).or_default();
                path.up_blocked_until = until;
            }
            3 => {
                let until = world.now + world.rng.between(1, TTL_MS / 2);
                let path = world.paths.entry((0, 0)).or_default();
                path.down_blocked_until = until;
            }
            4 => world.nodes[0].server.flush_scripts(),
            5 => self.deleted[lock] |= world.clear(0, name(lock).as_bytes()).is_some(),
            // It gives one back, or takes one again.
            6..8 => match self.guards[lock].take() {
                Some(guard) => drop(guard),
                None => self.take(lock),
            },
            _ => self.stranger(lock),
        }
    }

    fn take(&mut self, lock: usize) {
        let mutex = self.scene.client(0).mutex(name(lock));
        let guard = self.scene.on(0, async move { mutex.try_lock().await });
        // The network may be down just now.
        if let Ok(Some(guard)) = guard {
            self.guards[lock] = Some(guard);
            self.deleted[lock] = false;
        }
    }

    /// Another process has it, if it can.
    fn stranger(&mut self, lock: usize) {
        let mutex = self.scene.client(1).mutex(name(lock));
        let taken = self.scene.on(1, async move { mutex.try_lock().await }).expect("it answers");
        if taken.is_some() && !self.deleted[lock] {
            let held = self.guards[lock].as_ref().is_some_and(Guard::is_held);
            assert!(!held, "two have {}", name(lock));
        }
    }

    /// Only those were found to be gone that somebody had deleted.
    fn look(&mut self) {
        for (lock, guard) in self.guards.iter_mut().enumerate() {
            let loss = guard.as_ref().and_then(|guard| guard.lost().now_or_never());
            let Some(reason) = loss else { continue };
            let had_grounds = self.deleted[lock] || reason == LossReason::NotRenewed;
            assert!(had_grounds, "{} was lost: {reason:?}", name(lock));
            *guard = None;
            self.losses += 1;
        }
    }
}

#[test]
fn what_becomes_of_one_that_is_renewed_with_others_is_nothing_to_them() {
    let (mut together, mut losses) = (0, 0);
    for seed in 1..9 {
        let mut play = Play::begin(seed);
        for _ in 0..100 {
            play.act();
            let pause = play.scene.world.rng.between(1, TTL_MS / 3);
            play.scene.world.run(pause);
            play.look();
        }
        let record = play.scene.world.history.lock();
        let violations = record.checker.violations();
        assert!(violations.is_empty(), "{violations:?}\n{}", record.trace.tail());
        together += record.counts.get("renewed_together").copied().unwrap_or(0);
        losses += play.losses;
    }
    assert!(together > 1000 && losses > 20, "{together} renewed together, {losses} lost");
}
