//! How soon the next one gets in, and what the servers know of a hold.

use std::pin::Pin;
use std::time::Duration;

use leasehold::{Client, Error, Owner};
use leasehold_sim::checker::Rule;
use leasehold_sim::scene::{Scene, TTL_MS};
use leasehold_sim::shapes;
use leasehold_sim::workload::drop_after;

/// Process 0 holds the lock while process 1 waits. For how long after the release it waited still.
fn hand_over(scene: &mut Scene, before_release: impl FnOnce(&mut Scene)) -> u64 {
    let (holder, waiter) = (scene.client(0), scene.client(1));
    let guard = scene.on(0, async move { holder.mutex(LOCK).lock().await }).expect("it is free");
    let (told, mut ended) = tokio::sync::oneshot::channel();
    scene.world.hosts[1].handle().spawn(async move {
        let guard = waiter.mutex(LOCK).lock().await.expect("its turn comes");
        let _ = told.send(());
        guard.unlock().await.expect("it was held");
    });
    scene.world.run(300);
    assert!(ended.try_recv().is_err(), "the lock is held");
    before_release(scene);
    drop(guard);
    let released_at = scene.world.now;
    while ended.try_recv().is_err() {
        assert!(scene.world.now < released_at + 20_000, "nobody comes");
        scene.world.step();
    }
    let waited = scene.world.now - released_at;
    scene.world.run(500);
    waited
}

#[test]
fn a_release_wakes_a_waiter_at_once() {
    for (nodes, most_ms) in [(1, 50), (3, 150), (5, 150)] {
        let mut scene = Scene::set(3, nodes);
        for _ in 0..20 {
            let waited = hand_over(&mut scene, |_| {});
            assert!(waited <= most_ms, "{waited} ms with {nodes} nodes");
        }
    }
}

/// Whoever hears nothing asks when the lock would end, or at the next poll.
#[test]
fn a_waiter_that_hears_nothing_comes_all_the_same() {
    for nodes in [1, 3] {
        let mut scene = Scene::set(4, nodes);
        let waited = hand_over(&mut scene, |scene| {
            for node in 0..nodes {
                // What was on its way is heard by nobody, and the next subscription is far.
                scene.world.paths.entry((1, node)).or_default().down_blocked_until =
                    scene.world.now + 300;
            }
            let of_waiter = scene.world.links.iter().filter(|(_, link)| link.host == 1);
            let links: Vec<u64> = of_waiter.map(|(id, _)| *id).collect();
            links.into_iter().for_each(|link| scene.world.cut(link, true));
        });
        assert!(waited <= TTL_MS + 500, "{waited} ms with {nodes} nodes");
    }
}

/// S3: once nothing changes any more every server knows how many guards there are.
#[test]
fn the_servers_learn_the_hold_count() {
    for nodes in [1, 3] {
        let mut scene = Scene::set(5, nodes);
        let lock = scene.client(0).mutex(LOCK).owned_by(&Owner::new());
        let mut guards = Vec::new();
        for expected in [1_u32, 2, 3, 4, 3, 2, 1] {
            if guards.len() < expected as usize {
                let lock = lock.clone();
                guards.push(scene.on(0, async move { lock.lock().await }).expect("its own"));
            } else {
                let guard = guards.pop().expect("there are more");
                scene.on(0, guard.unlock()).expect("it was held");
            }
            scene.world.run(50);
            assert_eq!(guards[0].hold_count(), expected);
            for number in 0..nodes {
                let now_us = scene.world.node_us(number);
                let server = &scene.world.nodes[number].server;
                let fields = server.keys(now_us, |keys| keys.fields(LOCK.as_bytes()));
                let counts: Vec<_> = fields.into_iter().map(|(_, count)| count).collect();
                assert_eq!(counts, [expected.to_string().into_bytes()], "node {number}");
            }
        }
    }
}

/// L1: what a process held that is gone is free a TTL later, and a waiter has it then.
#[test]
fn a_killed_process_leaves_its_lock_for_one_ttl() {
    for nodes in [1, 3] {
        let mut scene = Scene::set(6, nodes);
        let (holder, waiter) = (scene.client(0), scene.client(1));
        let guard = scene.on(0, async move { holder.mutex(LOCK).lock().await }).expect("free");
        scene.world.run(1000);
        scene.world.kill(0);
        let killed_at = scene.world.now;
        let next = scene.on(1, async move { waiter.mutex(LOCK).lock().await }).expect("its turn");
        let waited = scene.world.now - killed_at;
        assert!((TTL_MS / 2..=TTL_MS + 50).contains(&waited), "{waited} ms with {nodes} nodes");
        drop((guard, next));
    }
}

/// A waiter that is dropped after its wake-up does not keep the lock from the one behind it.
#[test]
fn a_waiter_that_leaves_lets_the_next_one_in() {
    let mut scene = Scene::set(8, 1);
    for polls in 1..6 {
        let (one, two) = (scene.client(0), scene.client(0));
        let dropped = async move { drop_after(one.mutex(LOCK).lock(), polls).await.is_some() };
        scene.on(0, dropped);
        let limit = Duration::from_millis(TTL_MS);
        let got = scene.on(0, async move { two.mutex(LOCK).lock_with_timeout(limit).await });
        scene.on(0, got.expect("the next one gets in").unlock()).expect("it was held");
    }
}

/// Waits of a few round trips each, more than ever get in: each is refused by an answer.
#[test]
fn short_waits_on_a_busy_lock_of_a_healthy_server_never_end_as_unavailable() {
    short_waits(|client: Client, limit| {
        Box::pin(async move {
            let guard = client.mutex(LOCK).try_lock_for(limit).await?;
            let Some(guard) = guard else { return Ok(false) };
            tokio::time::sleep(Duration::from_millis(60)).await;
            guard.unlock().await.map(|()| true)
        })
    });
}

/// A lock of several may come so late that the wait ends before the answer about the next one.
#[test]
fn nor_do_those_on_several_locks() {
    short_waits(|client: Client, limit| {
        Box::pin(async move {
            let guard =
                client.multi_lock(["lock-a", "lock-b", "lock-c"]).try_lock_for(limit).await?;
            let Some(guard) = guard else { return Ok(false) };
            tokio::time::sleep(Duration::from_millis(60)).await;
            guard.unlock().await.map(|()| true)
        })
    });
}

/// The first of several locks may come after a wait for longer than an answer may take, and at the last moment.
#[test]
fn nor_do_those_who_have_the_first_of_several_at_the_last_moment() {
    let mut refused = 0;
    for after in 690..700 {
        let mut scene = Scene::set(after, 1);
        let (holder, waiter) = (scene.client(0), scene.client(1));
        let guard = scene.on(0, async move { holder.mutex("lock-a").lock().await }).expect("free");
        let limit = Duration::from_millis(700);
        let waits =
            async move { waiter.multi_lock(["lock-a", "lock-b"]).try_lock_for(limit).await };
        let waits = scene.world.hosts[1].handle().spawn(waits);
        scene.world.run(after);
        scene.on(0, guard.unlock()).expect("it was held");
        let outcome = scene.on(1, waits).expect("no panic").expect("the server answers");
        refused += u32::from(outcome.is_none());
    }
    assert!(refused > 0, "none came too late");
}

/// While a writer becomes a reader, its client knows of no hold, and of no refusal.
#[test]
fn nor_do_those_who_wait_beside_a_downgrade() {
    let mut refused = 0;
    for after in 340..350 {
        let mut scene = Scene::set(after, 3);
        let (writer, reader) = (scene.client(0), scene.client(0));
        let writing = scene.on(0, async move { writer.rw_lock(LOCK).write().await }).expect("free");
        let limit = Duration::from_millis(350);
        let waits = async move { reader.rw_lock(LOCK).try_read_for(limit).await };
        let waits = scene.world.hosts[0].handle().spawn(waits);
        scene.world.run(after);
        let reading = scene.on(0, writing.downgrade()).expect("it was held");
        let outcome = scene.on(0, waits).expect("no panic").expect("the servers answer");
        refused += u32::from(outcome.is_none());
        drop(reading);
    }
    assert!(refused > 0, "none came too late");
}

type Attempt = Pin<Box<dyn Future<Output = Result<bool, Error>> + Send>>;

/// Twelve tasks of two processes try again and again, each for a short time.
fn short_waits(attempt: fn(Client, Duration) -> Attempt) {
    for seed in 9..19 {
        let mut scene = Scene::set(seed, 1);
        let ends_at = scene.world.now + 20_000;
        let (tell, mut outcomes) = tokio::sync::mpsc::unbounded_channel();
        for n in 0..12 {
            let (client, tell) = (scene.client(n % 2), tell.clone());
            let limit = Duration::from_millis(100 + 10 * n as u64);
            scene.world.hosts[n % 2].handle().spawn(async move {
                while !tell.is_closed() {
                    let _ = tell.send(attempt(client.clone(), limit).await);
                }
            });
        }
        let (mut held, mut refused) = (0, 0);
        while scene.world.now < ends_at {
            scene.world.step();
            while let Ok(outcome) = outcomes.try_recv() {
                match outcome.expect("the server answers") {
                    true => held += 1,
                    false => refused += 1,
                }
            }
        }
        assert!(held > 50 && refused > 100, "{held} held, {refused} refused");
    }
}

/// A poll repairs what a wake-up has missed, some seconds later. While nothing goes wrong, nobody needs one.
#[test]
fn nobody_gets_a_lock_by_a_poll_while_nothing_goes_wrong() {
    for name in [
        "quiet",
        "kinds-in-quiet",
        "three-servers-in-quiet",
        "cluster-in-quiet",
        "coordination-in-quiet",
    ] {
        let outcome = shapes::named(name).expect("there is one").run(300, 2);
        outcome.expect_no_surprise();
        let counted = |what: &str| outcome.counts.get(what).copied().unwrap_or(0);
        assert_eq!(counted("turns_by_poll"), 0, "{}", outcome.line());
        assert!(counted("slowest_turn_ms") < 1000, "{}", outcome.line());
        assert!(counted("slowest_news_ms") < 1000, "{}", outcome.line());
        assert!(outcome.checks[&Rule::Stuck] > 5, "{}", outcome.line());
    }
}

const LOCK: &str = "waited-for";
