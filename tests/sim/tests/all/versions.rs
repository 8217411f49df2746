//! The tokens of readers show every writer, also one that a server of several has forgotten.

use std::time::Duration;

use leasehold::{ReadVersion, RwLock};
use leasehold_sim::scenario::builder;
use leasehold_sim::scene::Scene;
use leasehold_sim::world::World;

const QUARANTINE: Duration = Duration::from_secs(4);
/// Counters begin at the server's time, rounded down to this: half a quarantine.
const GRAIN_US: u64 = 2_000_000;
const LONG_MS: u64 = 60_000;

fn boot(scene: &mut Scene, host: usize) {
    let started = scene.world.boot(host, 1, 0);
    let process = started.process.clone();
    started.handle().spawn(async move {
        let builder = builder(&process, 3)
            .ttl(QUARANTINE)
            .response_timeout(Duration::from_millis(200))
            .restart_quarantine(QUARANTINE);
        process.set_client(builder.connect().await.expect("connected"));
    });
    scene.until("connected", 2000, |world| world.hosts[host].process.client().is_some());
}

fn lock(scene: &Scene, host: usize) -> RwLock {
    scene.client(host).rw_lock("rw")
}

fn read(scene: &mut Scene, host: usize) -> (u64, ReadVersion) {
    let lock = lock(scene, host);
    scene.on(host, async move {
        let guard = lock.read().await.expect("nobody writes");
        let seen = (guard.token(), guard.version().expect("it is a reader"));
        guard.unlock().await.expect("held");
        seen
    })
}

/// The token, and whether nobody is said to have written since `seen`.
fn write(scene: &mut Scene, host: usize, seen: ReadVersion) -> (u64, bool) {
    let lock = lock(scene, host);
    scene.on(host, async move {
        let guard = lock.write().await.expect("it is free");
        let result = (guard.token(), guard.unchanged_since(seen));
        guard.unlock().await.expect("held");
        result
    })
}

/// Nothing that a process sends reaches these servers any more, until [`connect`].
fn disconnect(scene: &mut Scene, host: usize, nodes: &[usize]) {
    let until = scene.world.now + LONG_MS;
    for node in nodes {
        scene.world.paths.entry((host, *node)).or_default().up_blocked_until = until;
    }
}

/// What was sent meanwhile is lost.
fn connect(scene: &mut Scene, host: usize, nodes: &[usize]) {
    let world = &mut scene.world;
    let is_lost = |host_is: usize, node: usize| host_is == host && nodes.contains(&node);
    let links = world.links.iter().filter(|(_, link)| is_lost(link.host, link.node));
    let links: Vec<_> = links.map(|(id, _)| *id).collect();
    links.into_iter().for_each(|link| world.cut(link, false));
    for node in nodes {
        world.paths.remove(&(host, *node));
    }
}

#[test]
fn a_server_that_forgets_a_writer_at_once_does_not_hide_it_from_readers() {
    let mut scene = Scene { world: World::new(1, 3), nodes: 3 };
    boot(&mut scene, 0);
    boot(&mut scene, 1);
    scene.world.run(GRAIN_US / 1000 - scene.world.node_us(0) % GRAIN_US / 1000 + 5);
    let (first, seen) = read(&mut scene, 0);

    disconnect(&mut scene, 0, &[2]);
    let (written, unchanged) = write(&mut scene, 0, seen);
    assert!(written > first && unchanged, "n0 and n1 have granted it");
    connect(&mut scene, 0, &[2]);

    // The next grant of the server that forgets is in the same step of the clock, and does not count.
    scene.world.crash(0, 1, false, true);
    scene.world.run(300);
    disconnect(&mut scene, 1, &[1, 2]);
    let asks = lock(&scene, 1);
    let result =
        scene.on(1, async move { asks.try_read_for(Duration::from_millis(100)).await.map(drop) });
    println!("while the writer is being forgotten: {result:?}");
    connect(&mut scene, 1, &[1, 2]);

    scene.world.run(QUARANTINE.as_millis() as u64 + 1000);
    scene.world.nodes[1].stopped_until = scene.world.now + LONG_MS;
    let (read_again, _) = read(&mut scene, 1);
    assert!(read_again > written, "{read_again}, though {written} wrote");
    let (next, unchanged) = write(&mut scene, 1, seen);
    assert!(next > read_again, "{next} after {read_again}");
    assert!(!unchanged, "{written} has written since {first}");
}
