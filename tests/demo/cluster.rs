//! The demo of a Redis Cluster: a held lock moves to another master, and that master is killed.

use crate::deployment::{DOWN_AFTER, Deployment};
use crate::event::{ms, now_us};
use crate::failover::{hold_and_wait, pass_on};
use crate::stage::{Stage, sum_up};
use crate::{FAILOVER_TTL, Outcome, SLACK, compare_tokens, connect};

pub(crate) async fn tour() -> Outcome<()> {
    println!(
        "This starts a Redis Cluster of three masters and three replicas, and takes half a minute."
    );
    println!(
        "Its cluster-node-timeout is {DOWN_AFTER:?}. After a failover, new locks of that master wait for {FAILOVER_TTL:?}, the \
         grace.\nTimes are in ms. A token is the number of a hold, and never decreases.\n"
    );
    let mut deployment = Deployment::cluster().await?;
    let url = deployment.cluster_url();
    let client = connect(&url, "parent").await?;
    let lock = client.mutex(format!("leasehold-tour:{}", std::process::id()));
    let (owner, slot) = deployment.owner_of(lock.name()).await?;
    let next = (owner + 1) % 3;
    let mut stage = Stage::new(&lock, &url);
    for name in ["alice", "bob"] {
        stage.enter(name).await?;
    }
    // Servers that have just started may have forgotten locks, so the grace applies to them, too.
    lock.lock_with_timeout(FAILOVER_TTL * 3).await?.unlock().await?;

    stage.title("alice holds the lock, bob wants it, and its slot moves to another master");
    hold_and_wait(&mut stage, "alice", "bob").await?;
    deployment.move_slot(slot, owner, next).await?;
    stage.say("the slot is the other master's now");
    stage.pass(SLACK).await?;
    // The new owner is met for the first time, and may have forgotten locks that it granted before.
    pass_on(&mut stage, "alice", "bob").await?;
    let moved =
        "a held lock moved to another master: its holder kept it, and the next one got it there";

    stage.title("alice holds the lock, bob wants it, and that master is killed");
    hold_and_wait(&mut stage, "alice", "bob").await?;
    // The replica receives the lock a moment after the master has answered.
    stage.pass(SLACK).await?;
    deployment.servers[next].kill().await?;
    let killed_at = now_us();
    stage.say("the master is killed (SIGKILL)");
    deployment.replaced(next).await?;
    let away = ms(now_us().saturating_sub(killed_at));
    stage.say("its replica is the master now");
    stage.pass(SLACK * 4).await?;
    stage.say("alice still holds the lock, which the new master has, too");
    pass_on(&mut stage, "alice", "bob").await?;

    let outlived =
        format!("a lock outlived its master: the replica took over {away} after the kill");
    sum_up(&[moved.to_string(), outlived, compare_tokens(&stage)?]);
    client.shutdown().await;
    Ok(())
}
