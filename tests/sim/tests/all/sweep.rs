//! Every public future, dropped after every poll, whatever state the lock and the servers are in: nothing of
//! it stays behind, and the next one gets in.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Client, Error, Guard};
use leasehold_sim::lines::{id_of, is_mailbox};
use leasehold_sim::scenario::client_name;
use leasehold_sim::scene::{Scene, TTL_MS, connect};
use leasehold_sim::workload::drop_after;

type Using = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// What is done with a client, and with a guard where it needs one.
struct Use {
    name: &'static str,
    guarded: bool,
    /// The client is of no use afterwards.
    ends_client: bool,
    start: fn(Client, Option<Guard>) -> Using,
}

const fn plain(name: &'static str, start: fn(Client, Option<Guard>) -> Using) -> Use {
    Use { name, guarded: false, ends_client: false, start }
}

const fn guarded(name: &'static str, start: fn(Client, Option<Guard>) -> Using) -> Use {
    Use { name, guarded: true, ends_client: false, start }
}

const fn ending(name: &'static str, start: fn(Client, Option<Guard>) -> Using) -> Use {
    Use { name, guarded: false, ends_client: true, start }
}

const USES: &[Use] = &[
    plain("lock", |client, _| {
        Box::pin(async move { client.mutex(LOCK).lock().await?.unlock().await })
    }),
    plain("lock_with_timeout", |client, _| {
        let limit = Duration::from_millis(700);
        Box::pin(async move { client.mutex(LOCK).lock_with_timeout(limit).await?.unlock().await })
    }),
    plain("try_lock", |client, _| {
        Box::pin(async move { client.mutex(LOCK).try_lock().await.map(drop) })
    }),
    plain("try_lock_for", |client, _| {
        let limit = Duration::from_millis(700);
        Box::pin(async move { client.mutex(LOCK).try_lock_for(limit).await.map(drop) })
    }),
    plain("fixed lease", |client, _| {
        let lock = client.mutex(LOCK).with_lease(Duration::from_millis(900));
        Box::pin(async move { lock.lock().await?.unlock().await })
    }),
    plain("nested", |client, _| {
        let lock = client.mutex(LOCK).owned_by(&leasehold::Owner::new());
        Box::pin(async move {
            let outer = lock.lock().await?;
            let inner = lock.with_ttl(Duration::from_secs(3)).lock().await?;
            drop(outer);
            inner.unlock().await
        })
    }),
    plain("run", |client, _| {
        let work = Duration::from_millis(5);
        Box::pin(async move {
            client.mutex(LOCK).run(async |_: &Guard| tokio::time::sleep(work).await).await
        })
    }),
    plain("status", |client, _| {
        Box::pin(async move { client.mutex(LOCK).status().await.map(drop) })
    }),
    plain("holder", |client, _| {
        Box::pin(async move { client.mutex(LOCK).holder().await.map(drop) })
    }),
    plain("check", |client, _| Box::pin(async move { client.check().await.map(drop) })),
    guarded("unlock", |_, guard| {
        Box::pin(async move { guard.expect("it is held").unlock().await })
    }),
    guarded("extend", |_, guard| {
        Box::pin(
            async move { guard.expect("it is held").extend(Duration::from_millis(2500)).await },
        )
    }),
    guarded("run_until_lost", |_, guard| {
        let work = tokio::time::sleep(Duration::from_millis(5));
        Box::pin(async move { guard.expect("it is held").run_until_lost(work).await })
    }),
    guarded("force_unlock", |client, guard| {
        Box::pin(async move {
            let _guard = guard;
            client.mutex(LOCK).force_unlock().await.map(drop)
        })
    }),
    guarded("force_unlock_if", |client, guard| {
        Box::pin(async move {
            let holder = guard.as_ref().expect("it is held").holder();
            client.mutex(LOCK).force_unlock_if(&holder).await.map(drop)
        })
    }),
    ending("drain", |client, _| {
        Box::pin(async move {
            let guard = client.mutex(LOCK).try_lock().await;
            let _ = client.drain(Duration::from_millis(100)).await;
            drop(guard);
            Ok(())
        })
    }),
    ending("shutdown", |client, _| {
        Box::pin(async move {
            let _guard = client.mutex(LOCK).try_lock().await;
            client.shutdown().await;
            Ok(())
        })
    }),
];

/// In what state the world is when the future begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    HeldElsewhere,
    Slow,
    Dead,
}

/// Brings the world into a state.
fn begin(scene: &mut Scene, state: State) {
    match state {
        State::Free => {}
        State::HeldElsewhere => {
            let client = scene.client(1);
            let guard = scene.on(1, async move { client.mutex(LOCK).lock().await });
            let guard = guard.expect("it is free");
            scene.world.hosts[1].handle().spawn(async move {
                tokio::time::sleep(Duration::from_millis(400)).await;
                guard.unlock().await.expect("it was held");
            });
        }
        State::Slow => {
            for node in 0..scene.nodes {
                scene.world.paths.entry((0, node)).or_default().slow_until = u64::MAX;
            }
        }
        // All of them: a minority more or less is for the scenarios.
        State::Dead => {
            for node in 0..scene.nodes {
                scene.world.crash(node, 1_000_000, true, true);
            }
        }
    }
}

/// Nothing of process 0 is left, and the lock can be had.
fn check(scene: &mut Scene, state: State, idle_tasks: Option<usize>, generation: u64) {
    // Up, one round trip is enough to clean up; down, the lease's end.
    let limit = match state {
        State::Free => 60,
        State::HeldElsewhere => 500,
        State::Slow => 3_000,
        State::Dead => TTL_MS + 3_000,
    };
    let client = scene.client(0);
    let prefix = format!("{}:", client_name(0, generation));
    scene.until("clean", limit, |world| {
        let stats = client.stats();
        let idle = (stats.locks, stats.waiters, stats.subscriptions, stats.releases_pending)
            == (0, 0, 0, 0);
        let tasks = idle_tasks.is_none_or(|tasks| stats.tasks == tasks);
        let clean = world.nodes.iter().enumerate().all(|(number, node)| {
            let fields =
                node.server.keys(world.node_us(number), |keys| keys.fields(LOCK.as_bytes()));
            let queue =
                node.server.keys(world.node_us(number), |keys| keys.ranked(QUEUE.as_bytes()));
            let nobody_listens = node.server.channels().iter().all(|channel| is_mailbox(channel));
            fields.iter().all(|(lease, _)| !lease.starts_with(prefix.as_bytes()))
                && queue.iter().all(|entry| !id_of(entry).starts_with(&prefix))
                && nobody_listens
        });
        idle && tasks && clean
    });
    let other = scene.client(1);
    let lock = other.mutex(LOCK);
    let guard = scene.on(1, async move { lock.lock_with_timeout(Duration::from_secs(10)).await });
    let guard = guard.expect("the next one gets in");
    scene.on(1, guard.unlock()).expect("it was held");
}

/// Drops a use after its first poll, its second, and so on, until it ends by itself. How often it was dropped.
fn sweep(nodes: usize, state: State, using: &Use) -> usize {
    let mut scene = Scene::set(7, nodes);
    scene.world.run(50);
    let idle_tasks = scene.client(0).stats().tasks;
    for polls in 0..500 {
        let generation = scene.world.hosts[0].process.generation;
        let client = scene.client(0);
        let guard = using.guarded.then(|| {
            let client = client.clone();
            scene.on(0, async move { client.mutex(LOCK).lock().await }).expect("it is free")
        });
        begin(&mut scene, state);
        let start = using.start;
        let future = async move { drop_after(start(client, guard), polls).await.is_some() };
        let ended = scene.on(0, future);
        scene.world.heal();
        check(&mut scene, state, (!using.ends_client).then_some(idle_tasks), generation);
        if ended {
            return polls;
        }
        if using.ends_client {
            scene.world.kill(0);
            scene.boot(0, generation + 1);
            scene.world.run(50);
        }
    }
    panic!("{} does not end", using.name);
}

fn sweep_all(nodes: usize, state: State) {
    for using in USES {
        if using.guarded && state == State::HeldElsewhere {
            continue;
        }
        let drops = sweep(nodes, state, using);
        println!("{nodes} nodes, {state:?}, {}: dropped after 0 to {drops} polls", using.name);
    }
}

#[test]
fn a_free_lock_survives_a_drop_after_every_poll() {
    sweep_all(1, State::Free);
    sweep_all(3, State::Free);
}

#[test]
fn a_lock_held_elsewhere_survives_a_drop_after_every_poll() {
    sweep_all(1, State::HeldElsewhere);
    sweep_all(3, State::HeldElsewhere);
}

#[test]
fn slow_servers_survive_a_drop_after_every_poll() {
    sweep_all(1, State::Slow);
    sweep_all(3, State::Slow);
}

#[test]
fn dead_servers_survive_a_drop_after_every_poll() {
    sweep_all(1, State::Dead);
    sweep_all(3, State::Dead);
}

/// The sweep finds what stays behind.
#[test]
#[should_panic(expected = "not clean")]
fn a_guard_that_is_never_given_back_is_found() {
    let leak = plain("leak", |client, _| {
        Box::pin(async move {
            std::mem::forget(client.mutex(LOCK).lock().await?);
            Ok(())
        })
    });
    sweep(1, State::Free, &leak);
}

/// Dropped half-way a connect leaves no connection, and no task.
#[test]
fn connecting_survives_a_drop_after_every_poll() {
    for (nodes, state) in [(1, State::Free), (3, State::Free), (1, State::Slow), (3, State::Dead)] {
        let mut scene = Scene::set(9, nodes);
        scene.until("over", 2000, |world| world.is_quiet());
        let mut drops = 0;
        loop {
            let links = scene.world.links.len();
            begin(&mut scene, state);
            let process = scene.world.hosts[0].process.clone();
            let tasks = Arc::new(AtomicU64::new(0));
            let counted = tasks.clone();
            let polls = drops;
            let ended = scene.on(0, async move {
                let metrics = tokio::runtime::Handle::current().metrics();
                let before = metrics.num_alive_tasks();
                let ended = drop_after(connect(&process, nodes), polls).await;
                let ended = match ended {
                    Some(Ok(client)) => {
                        client.shutdown().await;
                        true
                    }
                    other => other.is_some(),
                };
                tokio::time::sleep(Duration::from_millis(8000)).await;
                let after = metrics.num_alive_tasks();
                counted.store(after.saturating_sub(before) as u64, Ordering::Relaxed);
                ended
            });
            scene.world.heal();
            scene.until("without connections", 4000, |world| world.links.len() <= links);
            assert_eq!(tasks.load(Ordering::Relaxed), 0, "tasks after {drops} polls, {state:?}");
            if ended {
                break;
            }
            drops += 1;
        }
        println!("{nodes} nodes, {state:?}, connect: dropped after 0 to {drops} polls");
    }
}

const LOCK: &str = "swept";
const QUEUE: &str = "leasehold_queue:{swept}";
