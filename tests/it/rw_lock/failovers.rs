//! Servers that replicate: leases are put back where a failover has lost them, and with `synced(1)` it loses none.

use std::time::Duration;

use leasehold::{Client, Error};
use redis::Value;

use super::{MS, queued};
use crate::{
    checks::{LIMIT, exists, nothing_left, soon},
    support::{Deployment, MASTER, Server, eventually},
    synced::{connect, replicated, synced},
};

const TTL: Duration = Duration::from_secs(6);
const GRACE: Duration = Duration::from_secs(7);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_keep_what_a_failover_has_lost() {
    let deployment = Deployment::start().await;
    let open = async || {
        let builder = Client::builder().sentinel(MASTER, deployment.sentinel_urls()).ttl(TTL);
        builder.restart_quarantine(GRACE).connect().await.expect("the master accepts the client")
    };
    let [a, b, c] = [open().await, open().await, open().await];
    // The servers have just started, so this waits for a while.
    let writing = soon("the writer", a.rw_lock("written").write()).await.expect("free");
    let reading = [&a, &b].map(|client| client.rw_lock("read").read());
    let reading = futures_util::future::join_all(reading).await;
    let reading: Vec<_> = reading.into_iter().map(|guard| guard.expect("shared")).collect();
    let writes = tokio::spawn(c.rw_lock("read").write());
    let reads = tokio::spawn(c.rw_lock("written").read());
    queued(&a.rw_lock("read"), 1).await;
    queued(&a.rw_lock("written"), 1).await;

    let replica = &deployment.servers[1];
    replica.command(&["CONFIG", "SET", "replica-read-only", "no"]).await;
    replica.command(&["FLUSHALL"]).await;
    deployment.fail_over().await;
    eventually(LIMIT, "all is put back", async || {
        assert!(
            writing.is_held() && reading.iter().all(|guard| guard.is_held()),
            "nothing is lost"
        );
        (a.stats().reclaimed, b.stats().reclaimed) == (2, 1)
    })
    .await;
    assert!(exists(replica, "read").await && exists(replica, "written").await);
    let status = soon("an answer", b.rw_lock("read").status()).await.expect("the new master's");
    assert_eq!(status.readers.len(), 2, "{status:?}");
    let status = soon("an answer", b.rw_lock("written").status()).await.expect("the new master's");
    assert_eq!(status.holder, Some(writing.holder()));
    assert!(status.last_token >= Some(writing.token()), "its tokens are, too");
    for name in ["read", "written"] {
        let taken = c.rw_lock(name).try_write().await;
        assert!(!taken.is_ok_and(|taken| taken.is_some()), "{name} is not free");
    }
    assert!(!writes.is_finished() && !reads.is_finished());

    let tokens = [writing.token(), reading[0].token()];
    writing.unlock().await.expect("held all the time");
    for guard in reading {
        guard.unlock().await.expect("held all the time");
    }
    let reads = soon("the grace ends", reads).await.expect("no panic").expect("free");
    let writes = soon("the grace ends", writes).await.expect("no panic").expect("free");
    assert!(reads.token() >= tokens[0], "{reads:?} reads what {} wrote", tokens[0]);
    assert!(writes.token() > tokens[1], "{writes:?} after {}", tokens[1]);
}

/// Whether a replica has the writer of "n", or all of these readers.
async fn has(replica: &Server, holders: &[String], side: &str) -> bool {
    for holder in holders {
        let field = if side == "write" { format!("{holder}:write") } else { holder.clone() };
        let own_end = format!("{{n}}:{holder}:rwlock_timeout:1");
        let has_field = replica.command(&["HEXISTS", "n", &field]).await == Value::Int(1);
        if !has_field || (side == "read" && !exists(replica, &own_end).await) {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn what_readers_and_writers_have_is_on_a_replica() {
    let (master, replica) = replicated().await;
    let [a, b] = [connect(synced(&master)).await, connect(synced(&master)).await];
    let (one, other) = (a.rw_lock("n"), b.rw_lock("n"));
    for round in 0..10 {
        let reading = [one.read().await.expect("free"), other.read().await.expect("shared")];
        let holders = reading.each_ref().map(|guard| guard.holder().as_str().to_owned());
        assert!(has(&replica, &holders, "read").await, "round {round}");
        let waits = tokio::spawn(one.owned_by(&leasehold::Owner::new()).write());
        queued(&other, 1).await;
        drop(reading);
        // By a message.
        let writing = soon("its turn", waits).await.expect("no panic").expect("granted");
        assert!(
            has(&replica, &[writing.holder().as_str().to_owned()], "write").await,
            "round {round}"
        );
        let waits = tokio::spawn(other.read());
        queued(&one, 1).await;
        // What follows lets others in.
        let reading = writing.downgrade().await.expect("held");
        assert!(
            has(&replica, &[reading.holder().as_str().to_owned()], "read").await,
            "round {round}"
        );
        let beside = soon("its turn", waits).await.expect("no panic").expect("granted");
        let holders = [&reading, &beside].map(|guard| guard.holder().as_str().to_owned());
        assert!(has(&replica, &holders, "read").await, "round {round}");
        reading.unlock().await.expect("held");
        beside.unlock().await.expect("held");
    }
    nothing_left(&master, &a).await;
    nothing_left(&master, &b).await;
}

#[tokio::test]
async fn what_no_replica_has_of_readers_and_writers_does_not_count() {
    let (master, replica) = replicated().await;
    let client = connect(synced(&master).ttl(1500 * MS)).await;
    let lock = client.rw_lock("n");
    let unsynced = |error: Error| {
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains("only 0 of the 1 replicas"), "{error}");
    };
    replica.pause();
    unsynced(lock.try_read().await.expect_err("no replica has it"));
    nothing_left(&master, &client).await;
    unsynced(lock.try_write().await.expect_err("no replica has it"));
    nothing_left(&master, &client).await;

    replica.resume();
    let writing = soon("the replica goes on", lock.write()).await.expect("free");
    replica.pause();
    unsynced(writing.downgrade().await.expect_err("no replica has it"));
    nothing_left(&master, &client).await;

    replica.resume();
    let reading = soon("the replica goes on", lock.read()).await.expect("free");
    replica.pause();
    soon("its renewals do not count", reading.lost()).await;
    assert!(!reading.is_held());
    replica.resume();
    drop(reading);
    nothing_left(&master, &client).await;
}
