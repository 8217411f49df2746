//! Semaphores behind Sentinels, on a cluster, and through the loss of a server.

use std::time::Duration;

use leasehold::Client;

use super::{MS, api, are_waiting};
use crate::checks::{LIMIT, soon};
use crate::support::{Cluster, Connects, Deployment, Outage, Server, eventually, slot_of};

#[tokio::test]
async fn permits_on_every_shard_of_a_cluster_pass_from_client_to_client() {
    let cluster = Cluster::start().await;
    let builder = || Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let one = builder().connect().await.expect("the cluster accepts the client");
    let two = builder().connect().await.expect("the cluster accepts the client");
    for shard in 0..3 {
        let name = cluster.name_on(shard, "permits");
        let (here, there) =
            [&one, &two].map(|client| client.semaphore(&name).with_permits(2)).into();
        for _ in 0..3 {
            let held = soon("two", here.acquire_many(2)).await.expect("there are two");
            let waiting = tokio::spawn(there.acquire());
            are_waiting(&here, 1).await;
            held.release().await.expect("held");
            let permit = soon("its turn", waiting).await.expect("no panic").expect("one");
            permit.release().await.expect("held");
        }
        assert_eq!(here.available_permits().await.expect("an answer"), 2, "{name}");
    }
    assert!(two.stats().grants_by_message >= 6, "{:?}", two.stats());
}

#[tokio::test]
async fn permits_outlive_their_master_and_a_waiter_gets_one_from_the_next() {
    let deployment = Deployment::start().await;
    let connect = async || {
        let builder = deployment.builder().ttl(Duration::from_secs(20));
        builder.restart_quarantine(Duration::ZERO).connect().await.expect("connected")
    };
    let (holder, waiter) = (connect().await, connect().await);
    let kept = soon("one", api(&holder, 2).acquire()).await.expect("there are two");
    let passed_on = soon("one", api(&holder, 2).acquire()).await.expect("there is one");
    let waiting = tokio::spawn(api(&waiter, 2).acquire());
    are_waiting(&waiter.semaphore("api"), 1).await;
    deployment.is_synced().await;
    deployment.master().kill();
    drop(passed_on);
    let next = soon("the next one", waiting).await.expect("no panic").expect("it was given back");
    assert!(next.is_held() && kept.is_held());
    next.release().await.expect("held");
    kept.release().await.expect("held");
    let back = async || waiter.semaphore("api").available_permits().await.is_ok_and(|n| n == 2);
    eventually(LIMIT, "both are back", back).await;
}

/// During the quarantine of a server without its data holders put their permits back.
#[tokio::test]
async fn permits_are_put_back_on_a_server_that_restarted_without_them() {
    let server = Server::start().await;
    let quarantine = 1_500 * MS;
    let connect = async || {
        let builder = Client::builder().nodes([server.url()]).ttl(Duration::from_secs(1));
        builder.restart_quarantine(quarantine).connect().await.expect("connected")
    };
    let (holder, other) = (connect().await, connect().await);
    let test = async |outage: &Outage<'_>| {
        let held = soon("two", api(&holder, 3).acquire_many(2)).await.expect("there are three");
        outage.begins();
        outage.ends().await;
        let last = soon("the last one", api(&other, 3).acquire()).await.expect("there is one");
        assert!(held.is_held(), "they were put back: {:?}", held);
        assert!(api(&other, 3).try_acquire().await.expect("an answer").is_none());
        let status = api(&other, 3).status().await.expect("an answer");
        assert_eq!((status.available, status.held), (0, 3));
        held.release().await.expect("held");
        last.release().await.expect("held");
    };
    Outage::killed([&server]).twice(test).await;
}

/// Permits are renewed however far their keys have moved. Given back in the middle, they come back when the move is over.
#[tokio::test]
async fn permits_move_with_their_slot_and_the_next_client_gets_them_at_the_new_owner() {
    const TTL: Duration = Duration::from_millis(1_500);
    let cluster = Cluster::start().await;
    let (source, target) = (cluster.master(0), cluster.master(1));
    let builder = || Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let connect =
        async || builder().ttl(TTL).connect().await.expect("the cluster accepts the client");
    let [one, two] = [connect().await, connect().await];
    for stage in 0..3 {
        let name = cluster.name_on(0, &format!("moved:{stage}"));
        let slot = slot_of(&name);
        let [here, there] = [&one, &two].map(|client| client.semaphore(&name).with_permits(2));
        let held = soon("two", here.acquire_many(2)).await.expect("there are two");
        let waiting = tokio::spawn(there.acquire());
        are_waiting(&here, 1).await;
        cluster.open(slot, source, target).await;
        match stage {
            0 => {}
            1 => cluster.migrate(&[&name], source, target).await,
            _ => cluster.migrate_all(slot, source, target).await,
        }
        // For longer than they would last without renewals.
        let lost = held.lost();
        let outlasted = tokio::time::timeout(TTL * 2, lost).await;
        assert!(outlasted.is_err() && held.is_held(), "lost at stage {stage}");
        // It may have to wait for the end of the move.
        drop(held);
        cluster.migrate_all(slot, source, target).await;
        cluster.close(slot, source, target).await;
        let permit = soon("its turn", waiting).await.expect("no panic").expect("they came back");
        soon("the release", permit.release()).await.expect("held");
        let back = async || there.available_permits().await.is_ok_and(|permits| permits == 2);
        eventually(LIMIT, "both are back", back).await;
        eventually(LIMIT, "no release is owed", async || one.stats().releases_pending == 0).await;
    }
}

/// What is left was lowered for the next holder before the server refused to write it down, in the script that took the last
/// ended permits back.
#[tokio::test]
async fn permits_that_end_while_their_slot_moves_are_not_lost() {
    let cluster = Cluster::start().await;
    let (source, target) = (cluster.master(0), cluster.master(1));
    let builder = || Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let connect = async || builder().connect().await.expect("the cluster accepts the client");
    let (one, two) = (connect().await, connect().await);
    let name = cluster.name_on(0, "ending");
    let slot = slot_of(&name);
    let [here, there] = [&one, &two].map(|client| client.semaphore(&name).with_permits(2));
    let lease = Duration::from_secs(60);
    soon("two", here.with_lease(lease).acquire_many(2)).await.expect("there are two").spend();
    let waiting = tokio::spawn(there.acquire());
    are_waiting(&here, 1).await;
    cluster.open(slot, source, target).await;
    // They end now, and not before that. The waiter asks at its next poll. From then on the key of those that are out is gone,
    // and the server looks elsewhere.
    let holders = format!("{{{name}}}:timeout");
    let members = source.command(&["ZRANGE", &holders, "0", "-1"]).await;
    let members: Vec<String> = redis::from_redis_value(members).expect("a list");
    for member in members {
        source.command(&["ZADD", &holders, "XX", "1", &member]).await;
    }
    let gone = async || source.try_command(&["EXISTS", &holders]).await.is_err();
    eventually(LIMIT, "they are taken back", gone).await;
    cluster.migrate_all(slot, source, target).await;
    cluster.close(slot, source, target).await;
    let permit = soon("its turn", waiting).await.expect("no panic").expect("they came back");
    soon("the release", permit.release()).await.expect("held");
    let back = async || there.available_permits().await.is_ok_and(|permits| permits == 2);
    eventually(LIMIT, "both are back", back).await;
}

/// The release takes the last permits out of the key of those that are out. Then that is gone, and the server looks elsewhere.
#[tokio::test]
async fn permits_given_back_before_they_move_are_no_loss() {
    let cluster = Cluster::start().await;
    let (source, target) = (cluster.master(0), cluster.master(1));
    let builder = || Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let connect = async || builder().connect().await.expect("the cluster accepts the client");
    let (one, two) = (connect().await, connect().await);
    for permits in [1, 2] {
        let name = cluster.name_on(0, &format!("back:{permits}"));
        let slot = slot_of(&name);
        let [here, there] = [&one, &two].map(|client| client.semaphore(&name).with_permits(2));
        // One more, if only one of them is given back.
        let _kept = match permits {
            1 => Some(soon("one", here.acquire()).await.expect("there are two")),
            _ => None,
        };
        let held = soon("the rest", here.acquire_many(permits)).await.expect("they are there");
        let waiting = tokio::spawn(there.acquire());
        are_waiting(&here, 1).await;
        cluster.open(slot, source, target).await;
        soon("the release", held.release()).await.expect("held");
        cluster.migrate_all(slot, source, target).await;
        cluster.close(slot, source, target).await;
        let permit = soon("its turn", waiting).await.expect("no panic").expect("one came back");
        soon("the release", permit.release()).await.expect("held");
    }
}

/// The script adds the permits, gives the only waiter one, and then looks for the queue, which is gone. It must not fail by that:
/// it would be sent again.
#[tokio::test]
async fn permits_are_added_once_while_their_slot_moves() {
    let cluster = Cluster::start().await;
    let (source, target) = (cluster.master(0), cluster.master(1));
    let builder = || Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let connect = async || builder().connect().await.expect("the cluster accepts the client");
    let [one, two] = [connect().await, connect().await];
    let name = cluster.name_on(0, "added");
    let slot = slot_of(&name);
    let [here, there] = [&one, &two].map(|client| client.semaphore(&name).with_permits(1));
    let held = soon("one", here.acquire()).await.expect("there is one");
    let waiting = tokio::spawn(there.acquire());
    are_waiting(&here, 1).await;
    cluster.open(slot, source, target).await;
    let adding = tokio::spawn({
        let here = here.clone();
        async move { here.add_permits(1).await }
    });
    let permit = soon("its turn", waiting).await.expect("no panic").expect("one was added");
    cluster.migrate_all(slot, source, target).await;
    cluster.close(slot, source, target).await;
    soon("the answer", adding).await.expect("no panic").expect("they were added");
    drop((held, permit));
    let back = async || there.status().await.is_ok_and(|it| (it.available, it.held) == (2, 0));
    eventually(LIMIT, "there are two", back).await;
}
