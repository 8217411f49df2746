//! Slots that move from one master to another while their locks are held, free and waited for.

use std::time::{Duration, Instant};

use leasehold::{Client, LossReason, NodeState};
use redis::from_redis_value;

use super::{builder, is_idle};
use crate::checks::{LIMIT, soon};
use crate::support::{Cluster, Proxy, Server, eventually, slot_of};

const TTL: Duration = Duration::from_millis(1500);
const LONG: Duration = Duration::from_secs(12);
/// After the end of a move, waiters look at the map before they poll.
const WOKEN: Duration = Duration::from_secs(2);

async fn connect(cluster: &Cluster) -> Client {
    builder(cluster).ttl(TTL).connect().await.expect("the cluster accepts the client")
}

#[tokio::test]
async fn locks_are_held_freed_and_taken_while_their_slots_move() {
    let cluster = Cluster::start().await;
    let [one, two] = [connect(&cluster).await, connect(&cluster).await];
    held(&cluster, &one, &two).await;
    free(&cluster, &one).await;
    looked_at_and_forced(&cluster, &one, &two).await;
    waited_for(&cluster, &one, &two).await;
    forced_before_it_moves(&cluster, &one, &two).await;
    back_and_forth(&cluster, &one, &two).await;
    for client in [&one, &two] {
        is_idle(client).await;
    }
}

/// Neither the server that the slot leaves nor the one to which it comes takes just any key of it, but both can tell what their
/// replicas have.
#[tokio::test]
async fn a_lock_that_a_replica_must_have_is_kept_while_its_slot_moves() {
    let cluster = Cluster::start().await;
    let (source, target) = (cluster.master(0), cluster.master(1));
    let ttl = source.slowness().await * TTL;
    let client = builder(&cluster).ttl(ttl).synced(1).connect().await.expect("connected");
    let name = cluster.name_on(0, "synced");
    let slot = slot_of(&name);
    let guard = soon("the lock", client.mutex(&name).lock()).await.expect("free");
    let is_kept = async |stage: &str| {
        tokio::time::sleep(2 * ttl).await;
        assert!(guard.is_held(), "{stage}");
    };
    cluster.open(slot, source, target).await;
    is_kept("before it moves").await;
    cluster.migrate(&[&name], source, target).await;
    is_kept("when it has moved").await;
    cluster.migrate_all(slot, source, target).await;
    cluster.close(slot, source, target).await;
    is_kept("at the new owner").await;
    soon("unlocking", guard.unlock()).await.expect("held");
    is_idle(&client).await;
}

/// Waits until the client that goes has no connection to this server any more.
async fn is_left(server: &Server) {
    let is_gone = async || {
        let list = server.command(&["CLIENT", "LIST"]).await;
        !from_redis_value::<String>(list).expect("a list").contains("leasehold:goes ")
    };
    eventually(LONG + LIMIT, "no connection is left", is_gone).await;
}

/// The lock has gone to the other node, which the client has never used, and its token has not. The release finds its way,
/// although nobody needs the nodes any more, and then no connection stays.
#[tokio::test]
async fn a_lock_of_a_client_that_goes_is_free_although_its_slot_has_moved_half_way() {
    let mut cluster = Cluster::start().await;
    let added = cluster.add().await;
    let (source, target) = (cluster.master(0), &cluster.servers()[added]);
    let client = builder(&cluster).name("goes").ttl(LONG).connect().await;
    let client = client.expect("the cluster accepts the client");
    let name = cluster.name_on(0, "half-way");
    let slot = slot_of(&name);
    let guard = soon("the lock", client.mutex(&name).lock()).await.expect("free");
    cluster.open(slot, source, target).await;
    cluster.migrate(&[&name], source, target).await;
    drop((guard, client));
    let two = connect(&cluster).await;
    let is_free = async || two.mutex(&name).is_locked().await.is_ok_and(|locked| !locked);
    eventually(LONG / 2, "it is free before its TTL is over", is_free).await;
    cluster.migrate_all(slot, source, target).await;
    cluster.close(slot, source, target).await;
    let guard = soon("the lock", two.mutex(&name).lock()).await.expect("free at the new owner");
    soon("unlocking", guard.unlock()).await.expect("held");
    // A release that was sent to another node than the acquire is repeated for a TTL.
    for server in [source, target] {
        is_left(server).await;
    }
    is_idle(&two).await;
}

/// The client has used the node to which the slot goes, and that connection ends with the client: the release comes from one that is
/// out of reach until then.
#[tokio::test]
async fn a_release_that_is_owed_in_an_outage_follows_its_slot_to_a_node_that_was_done() {
    let cluster = Cluster::start().await;
    let (source, target) = (cluster.master(0), cluster.master(1));
    let proxy = Proxy::start(source.port()).await;
    let (inside, outside) = (source.port(), proxy.port());
    let builder = builder(&cluster).name("goes").ttl(LONG).address_map(move |host, port| {
        (host.to_owned(), if port == inside { outside } else { port })
    });
    let client = builder.connect().await.expect("the cluster accepts the client");
    let other = client.mutex(cluster.name_on(1, "other"));
    soon("the lock", other.lock()).await.expect("free").unlock().await.expect("held");
    let name = cluster.name_on(0, "half-way");
    let slot = slot_of(&name);
    let guard = soon("the lock", client.mutex(&name).lock()).await.expect("free");
    cluster.open(slot, source, target).await;
    cluster.migrate(&[&name], source, target).await;
    proxy.refuse(true);
    proxy.cut();
    let is_down = async || client.nodes().iter().any(|node| node.state == NodeState::Down);
    eventually(LIMIT, "the connection is gone", is_down).await;
    drop((guard, other, client));
    is_left(target).await;
    proxy.refuse(false);
    let two = connect(&cluster).await;
    let is_free = async || two.mutex(&name).is_locked().await.is_ok_and(|locked| !locked);
    eventually(LONG / 2, "it is free before its TTL is over", is_free).await;
    cluster.migrate_all(slot, source, target).await;
    cluster.close(slot, source, target).await;
}

/// A held lock is renewed, refused to others and released, however far its keys have moved.
async fn held(cluster: &Cluster, one: &Client, two: &Client) {
    let (source, target) = (cluster.master(0), cluster.master(1));
    for stage in 0..3 {
        let name = cluster.name_on(0, &format!("held:{stage}"));
        let slot = slot_of(&name);
        let lock = one.mutex(&name);
        let guard = soon("the lock", lock.lock()).await.expect("free");
        cluster.open(slot, source, target).await;
        match stage {
            0 => {}
            1 => cluster.migrate(&[&name], source, target).await,
            _ => cluster.migrate_all(slot, source, target).await,
        }
        // It lasts for longer than it would without renewals.
        let until = Instant::now() + TTL * 2;
        while Instant::now() < until {
            assert!(guard.is_held(), "lost at stage {stage}");
            let taken = two.mutex(&name).try_lock_for(Duration::from_millis(50)).await;
            assert!(!taken.is_ok_and(|taken| taken.is_some()), "two holders at stage {stage}");
        }
        soon("unlocking", guard.unlock()).await.expect("a release never fails");
        cluster.migrate_all(slot, source, target).await;
        cluster.close(slot, source, target).await;
        let guard = soon("the lock", lock.lock()).await.expect("free at the new owner");
        soon("unlocking", guard.unlock()).await.expect("held");
        eventually(TTL * 5, "no release is owed", async || one.stats().releases_pending == 0).await;
    }
}

/// A free lock is taken as soon as its slot has an owner again.
async fn free(cluster: &Cluster, one: &Client) {
    let (source, target) = (cluster.master(0), cluster.master(1));
    let name = cluster.name_on(0, "free");
    let slot = slot_of(&name);
    cluster.open(slot, source, target).await;
    let lock = one.mutex(&name);
    let taking = tokio::spawn(async move { lock.lock().await });
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!taking.is_finished(), "nobody can grant it now");
    cluster.close(slot, source, target).await;
    let closed_at = Instant::now();
    let guard = soon("the lock", taking).await.expect("no panic").expect("free");
    let took = closed_at.elapsed();
    assert!(took < cluster.master(0).widened(WOKEN), "{took:?}");
    soon("unlocking", guard.unlock()).await.expect("held");
}

/// Whoever asks is told who holds a lock, and may free it, however far its keys have moved.
async fn looked_at_and_forced(cluster: &Cluster, one: &Client, two: &Client) {
    let (source, target) = (cluster.master(0), cluster.master(1));
    for stage in 0..3 {
        let name = cluster.name_on(0, &format!("looked-at:{stage}"));
        let slot = slot_of(&name);
        let guard = soon("the lock", one.mutex(&name).lock()).await.expect("free");
        cluster.open(slot, source, target).await;
        match stage {
            0 => {}
            1 => cluster.migrate(&[&name], source, target).await,
            _ => cluster.migrate_all(slot, source, target).await,
        }
        let seen = two.mutex(&name);
        let status = soon("the status", seen.status()).await.expect("an answer");
        assert_eq!(status.holder, Some(guard.holder()), "stage {stage}");
        assert!(status.remaining.is_some_and(|left| left <= TTL), "{status:?}, stage {stage}");
        assert!(soon("an answer", seen.is_locked()).await.expect("an answer"), "stage {stage}");
        assert!(soon("freeing", seen.force_unlock()).await.expect("an answer"), "stage {stage}");
        assert!(!soon("an answer", seen.is_locked()).await.expect("an answer"), "stage {stage}");
        // Which of the two says so has not always confirmed it before.
        let lost = soon("the loss", guard.lost()).await;
        let is_gone = matches!(lost, LossReason::Gone | LossReason::Failover);
        assert!(is_gone, "{lost:?}, stage {stage}");
        drop(guard);
        cluster.migrate_all(slot, source, target).await;
        cluster.close(slot, source, target).await;
        let guard = soon("the lock", one.mutex(&name).lock()).await.expect("free");
        soon("unlocking", guard.unlock()).await.expect("held");
    }
}

/// Who waits in a queue that moves gets the lock there.
async fn waited_for(cluster: &Cluster, one: &Client, two: &Client) {
    let (source, target) = (cluster.master(0), cluster.master(1));
    for freed_while_open in [false, true] {
        let name = cluster.name_on(0, &format!("waited:{freed_while_open}"));
        let slot = slot_of(&name);
        let guard = soon("the lock", one.mutex(&name).lock()).await.expect("free");
        let lock = two.mutex(&name);
        let taking = tokio::spawn(async move { lock.lock().await });
        eventually(Duration::from_secs(5), "it waits", async || {
            one.mutex(&name).status().await.is_ok_and(|status| status.waiting.len() == 1)
        })
        .await;
        cluster.open(slot, source, target).await;
        cluster.migrate_all(slot, source, target).await;
        let freed_at = if freed_while_open {
            soon("unlocking", guard.unlock()).await.expect("a release never fails");
            // What those who wait have written meanwhile moves, too.
            cluster.migrate_all(slot, source, target).await;
            cluster.close(slot, source, target).await;
            Instant::now()
        } else {
            cluster.migrate_all(slot, source, target).await;
            cluster.close(slot, source, target).await;
            eventually(Duration::from_secs(5), "it waits there", async || {
                two.stats().waiters == 1 && crate::support::waiting(target, &name).await > 0
            })
            .await;
            soon("unlocking", guard.unlock()).await.expect("held");
            Instant::now()
        };
        let guard = soon("its turn", taking).await.expect("no panic").expect("the lock");
        let took = freed_at.elapsed();
        assert!(took < cluster.master(0).widened(WOKEN), "{took:?}, open: {freed_while_open}");
        soon("unlocking", guard.unlock()).await.expect("held");
    }
}

/// The master that has all of a lock refuses to make it anew for the next one, and says that it was freed.
async fn forced_before_it_moves(cluster: &Cluster, one: &Client, two: &Client) {
    let (source, target) = (cluster.master(0), cluster.master(1));
    for only_one in [false, true] {
        let name = cluster.name_on(0, &format!("forced:{only_one}"));
        let slot = slot_of(&name);
        let lock = one.mutex(&name);
        let guard = soon("the lock", lock.lock()).await.expect("free");
        let waiting = tokio::spawn(two.mutex(&name).lock());
        eventually(LIMIT, "it waits", async || {
            lock.status().await.is_ok_and(|status| status.waiting.len() == 1)
        })
        .await;
        cluster.open(slot, source, target).await;
        let freed = match only_one {
            true => soon("freeing", lock.force_unlock_if(&guard.holder())).await,
            false => soon("freeing", lock.force_unlock()).await,
        };
        assert!(freed.expect("an answer"), "only one: {only_one}");
        cluster.migrate_all(slot, source, target).await;
        cluster.close(slot, source, target).await;
        let next = soon("its turn", waiting).await.expect("no panic").expect("free");
        soon("unlocking", next.unlock()).await.expect("held");
    }
}

/// Nobody sees an error while slots move in both directions, and no two hold a lock at once.
async fn back_and_forth(cluster: &Cluster, one: &Client, two: &Client) {
    let name = cluster.name_on(0, "forth");
    let slot = slot_of(&name);
    let held = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut tasks = Vec::new();
    for client in [one, two] {
        let (lock, held, stopped) = (client.mutex(&name), held.clone(), stopped.clone());
        tasks.push(tokio::spawn(async move {
            let mut turns = 0;
            while !*stopped.borrow() {
                let guard = lock.lock().await.expect("no error is seen");
                assert_eq!(held.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                guard.unlock().await.expect("held");
                turns += 1;
            }
            turns
        }));
    }
    for round in 0..8 {
        let [source, target] = match round % 2 {
            0 => [cluster.master(0), cluster.master(1)],
            _ => [cluster.master(1), cluster.master(0)],
        };
        cluster.open(slot, source, target).await;
        // Keys are written until the slot is the target's: an operator's tool would repeat this, too.
        loop {
            cluster.migrate_all(slot, source, target).await;
            let count = ["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()];
            if source.command(&count).await == redis::Value::Int(0) {
                break;
            }
        }
        cluster.close(slot, source, target).await;
        cluster.settled(&[source, target]).await;
    }
    stop.send_replace(true);
    for task in tasks {
        let turns: i32 = soon("the end", task).await.expect("no panic");
        assert!(turns > 0);
    }
}
