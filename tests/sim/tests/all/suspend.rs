//! A host that is suspended: its clock goes on, its timers do not. And a runtime that ends.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold_sim::scene::Scene;

/// Whatever a lease's end was planned for: who holds is told within a second after the suspend.
#[test]
fn a_loss_during_a_suspend_is_told_within_a_second() {
    for (nodes, fixed) in [(1, false), (1, true), (3, false), (3, true)] {
        let mut scene = Scene::set(11, nodes);
        let client = scene.client(0);
        let lock = client.mutex(LOCK);
        let lock = if fixed { lock.with_lease(LONG) } else { lock.with_ttl(LONG) };
        let guard = Arc::new(scene.on(0, async move { lock.lock().await }).expect("it is free"));
        let told_at = Arc::new(AtomicU64::new(0));
        let (held, told) = (guard.clone(), told_at.clone());
        let history = scene.world.history.clone();
        scene.world.hosts[0].handle().spawn(async move {
            held.lost().await;
            told.store(history.lock().now, Ordering::Relaxed);
        });
        scene.world.run(3000);
        scene.world.hosts[0].process.clock.jump(2 * LONG);
        let resumed_at = scene.world.now;
        scene.until("told", 30_000, |_| told_at.load(Ordering::Relaxed) > 0);
        let late = told_at.load(Ordering::Relaxed) - resumed_at;
        assert!(late <= 1010, "{late} ms late with {nodes} nodes, fixed: {fixed}");
        assert!(!guard.is_held());
    }
}

/// However many locks are held: the look each second is one, and between looks nothing wakes.
#[test]
fn many_held_locks_cost_one_wake_up_a_second() {
    const HELD: usize = 500;
    const SECONDS: u64 = 20;
    let mut scene = Scene::set(12, 1);
    let client = scene.client(0);
    let guards = scene.on(0, async move {
        let mut guards = Vec::new();
        for number in 0..HELD {
            let lock = client.mutex(format!("held-{number}")).with_ttl(1000 * LONG);
            guards.push(lock.lock().await.expect("it is free"));
        }
        guards
    });
    scene.world.run(2000);
    let polls = |scene: &Scene| scene.world.hosts[0].handle().metrics().worker_poll_count(0);
    let before = polls(&scene);
    scene.world.run(SECONDS * 1000);
    let polled = polls(&scene) - before;
    println!("{polled} polls of tasks in {SECONDS} s with {HELD} locks held");
    assert!((SECONDS - 1..=SECONDS + 2).contains(&polled), "{polled} polls in {SECONDS} s");
    assert!(guards.iter().all(|guard| guard.is_held()));
}

/// Who asks only after the runtime of the client's tasks ended learns at once that nobody renews any more.
#[test]
fn a_runtime_that_ended_is_told_to_who_asks_later() {
    let mut scene = Scene::set(13, 1);
    let client = scene.client(0);
    let lock = client.mutex(LOCK).with_ttl(LONG);
    let guard = scene.on(0, async move { lock.lock().await }).expect("it is free");
    scene.world.kill(0);
    let mut nobody = Context::from_waker(Waker::noop());
    let told = pin!(guard.lost()).poll(&mut nobody);
    assert!(told.is_ready(), "nobody will ever be woken");
}

const LOCK: &str = "suspended";
const LONG: Duration = Duration::from_secs(60);
