//! A shard whose new master has lost the last writes, and slots that come to a master that was never asked about them.

use std::time::{Duration, Instant, SystemTime};

use leasehold::{Client, Error, NodeStatus};

use crate::checks::{AT_ONCE, LIMIT, soon};
use crate::support::{Cluster, Server, eventually, in_time, slot_of};

const TTL: Duration = Duration::from_secs(6);
const GRACE: Duration = Duration::from_secs(7);

async fn connect(cluster: &Cluster) -> Client {
    let builder = Client::builder().cluster(cluster.urls()).ttl(TTL).restart_quarantine(GRACE);
    builder.connect().await.expect("the cluster accepts the client")
}

/// The replica forgets everything and takes over from a master that is dead.
async fn lose_the_master(cluster: &Cluster, shard: usize) {
    let replica = cluster.replica(shard);
    replica.command(&["CONFIG", "SET", "replica-read-only", "no"]).await;
    cluster.master(shard).kill();
    replica.command(&["FLUSHALL"]).await;
    replica.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
}

fn node<'a>(nodes: &'a [NodeStatus], url: &str) -> Option<&'a NodeStatus> {
    nodes.iter().find(|node| *node.address == *url)
}

#[tokio::test]
async fn a_holder_keeps_its_lock_and_later_clients_do_not_wait() {
    let cluster = Cluster::start().await;
    let (holder, other) = (connect(&cluster).await, connect(&cluster).await);
    let newcomer = connect(&cluster).await;
    let names = [0, 1].map(|shard| cluster.name_on(shard, "n"));
    let mut guards = Vec::new();
    for name in &names {
        // The servers have just started, so this waits for a while.
        guards.push(soon("the lock", holder.mutex(name).lock()).await.expect("free"));
    }
    let tokens: Vec<u64> = guards.iter().map(|guard| guard.token()).collect();
    let waiting = {
        let lock = other.mutex(&names[0]);
        tokio::spawn(async move { (lock.lock().await, SystemTime::now()) })
    };
    eventually(LIMIT, "it waits", async || other.stats().waiters == 1).await;

    lose_the_master(&cluster, 0).await;
    let put_back = eventually(LIMIT, "it is put back", async || {
        assert!(guards[0].is_held(), "it is never lost");
        holder.stats().reclaimed == 1
    });
    // From the start, since it may have to find out first that the old master is dead.
    let told =
        eventually(LIMIT, "who tries learns that the grants do not count", async || match newcomer
            .mutex(&names[0])
            .try_lock()
            .await
        {
            Ok(guard) => panic!("{guard:?}"),
            Err(Error::Unavailable { failures, .. }) => {
                failures.iter().any(|failure| failure.to_string().contains("do not count"))
            }
            Err(error) => panic!("{error:?}"),
        });
    tokio::join!(put_back, told);
    let new = cluster.replica(0).url();
    let mut until = None;
    eventually(LIMIT, "the other has met the new master", async || {
        until = node(&other.nodes(), &new).and_then(|node| node.quarantined_until);
        until.is_some()
    })
    .await;
    let until = until.expect("seen just now");
    let tried = other.mutex(&names[0]).try_lock().await;
    assert!(!matches!(tried, Ok(Some(_))), "its own waiter comes first");
    assert!(
        guards.iter().all(|guard| guard.is_held()),
        "the other shard has nothing to do with it"
    );
    assert_eq!(tokens, guards.iter().map(|guard| guard.token()).collect::<Vec<_>>());
    guards.remove(0).unlock().await.expect("held");
    let (next, at) = soon("the grace ends", waiting).await.expect("it runs");
    let next = next.expect("free");
    assert!(at >= until, "not before its end");
    assert!(at.duration_since(until).expect("after it") < AT_ONCE, "woken at its end");
    assert!(next.token() > tokens[0]);
    next.unlock().await.expect("held");

    let over = async || SystemTime::now() > until + GRACE / 50;
    eventually(LIMIT, "it is over by any clock", over).await;
    let late = connect(&cluster).await;
    let guard = soon("an answer", late.mutex(&names[0]).try_lock()).await.expect("it counts");
    guard.expect("free").unlock().await.expect("held");
    assert!(node(&late.nodes(), &new).expect("it was used").quarantined_until.is_none());
}

/// Its grants in the lock's slot do not count yet.
async fn does_not_count(client: &Client, name: &str) {
    let mut said = String::new();
    eventually(LIMIT, "the client has met the server", async || {
        let error = client.mutex(name).try_lock().await.expect_err("nobody can say whose it is");
        assert!(matches!(&error, Error::Unavailable { .. }), "{error:?}");
        said = error.to_string();
        said.contains("do not count")
    })
    .await;
}

/// As a tool repairs a slot whose servers are dead: the master gets it without its keys.
async fn take_over(slot: u16, master: &Server) {
    // In one step: in between, its present owner would say that it has the slot.
    let script = "for _, words in ipairs({{'DELSLOTS', ARGV[1]}, {'ADDSLOTS', ARGV[1]}, {'BUMPEPOCH'}}) do \
                  redis.call('CLUSTER', unpack(words)) end";
    master.command(&["EVAL", script, "0", &slot.to_string()]).await;
}

#[tokio::test]
async fn a_slot_that_is_taken_from_dead_servers_has_a_grace_of_its_own() {
    let cluster = Cluster::start().await;
    for server in cluster.servers() {
        server.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    let (holder, other) = (connect(&cluster).await, connect(&cluster).await);
    let names = [0, 1].map(|shard| cluster.name_on(shard, "n"));
    let beside = format!("{{{}}}", names[0]);
    for client in [&holder, &other] {
        // It has known the next owner for long.
        soon("a lock", client.mutex(&names[1]).lock())
            .await
            .expect("free")
            .unlock()
            .await
            .expect("held");
    }
    let guard = soon("the lock", holder.mutex(&names[0]).lock()).await.expect("free");
    let shared = format!("{{{}}}:shared", names[0]);
    let mut written = Vec::new();
    for _ in 0..2 {
        let writing = soon("a writer", holder.rw_lock(&shared).write()).await.expect("free");
        written.push(writing.token());
        writing.unlock().await.expect("held");
    }
    cluster.replica(0).kill();
    cluster.master(0).kill();
    take_over(slot_of(&names[0]), cluster.master(1)).await;
    // The tool has a backup of this counter, from before the last writer.
    let (counter, last) = (format!("leasehold_token:{shared}"), written[0].to_string());
    cluster.master(1).command(&["SET", &counter, &last, "PX", "60000"]).await;
    let fresh = connect(&cluster).await;
    for client in [&other, &fresh] {
        does_not_count(client, &beside).await;
        let elsewhere = soon("an answer", client.mutex(&names[1]).try_lock()).await;
        elsewhere.expect("it counts").expect("free").unlock().await.expect("held");
    }
    eventually(LIMIT, "it is put back", async || {
        assert!(guard.is_held(), "it is never lost");
        holder.stats().reclaimed == 1
    })
    .await;
    for client in [&other, &fresh] {
        let next = soon("the grace ends", client.mutex(&beside).lock()).await.expect("free");
        assert!(guard.is_held());
        next.unlock().await.expect("held");
        assert!(client.mutex(&names[0]).try_lock().await.expect("it counts").is_none());
    }
    let reading = soon("a reader", other.rw_lock(&shared).read()).await.expect("free");
    assert!(reading.token() > written[1], "{reading:?} comes after {written:?}");
    reading.unlock().await.expect("held");
    guard.unlock().await.expect("held");
}

/// Nobody knows what comes with a slot before it has come. The master that it goes to has all keys of a semaphore already; in its
/// queue is one whose client is gone, whom it passes over.
#[tokio::test]
async fn a_grant_of_the_master_that_a_slot_is_on_its_way_to_does_not_count() {
    let cluster = Cluster::start().await;
    let [old, new] = [cluster.master(0), cluster.master(1)];
    let short = Duration::from_secs(2);
    let builder = Client::builder().cluster(cluster.urls()).ttl(short).restart_quarantine(short);
    let client = builder.connect().await.expect("the cluster accepts the client");
    let names = [0, 1].map(|shard| cluster.name_on(shard, "n"));
    let permits = client.semaphore(&names[0]).with_permits(2);
    // Grants of both count from then on.
    let (permit, guard) = tokio::join!(
        soon("a permit", permits.acquire()),
        soon("a lock", client.mutex(&names[1]).lock())
    );
    let permit = permit.expect("there are two");
    guard.expect("free").unlock().await.expect("held");
    let queue = format!("leasehold_permit_queue:{{{}}}", names[0]);
    old.command(&["ZADD", &queue, "1", "2000 1 0123456789abcdef a:1"]).await;
    let slot = slot_of(&names[0]);
    cluster.open(slot, old, new).await;
    cluster.migrate_all(slot, old, new).await;

    let tried = soon("an answer", permits.try_acquire()).await;
    assert!(!matches!(tried, Ok(Some(_))), "{tried:?}");
    let keys = new.command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "10"]).await;
    let keys: Vec<String> = redis::from_redis_value(keys).expect("a list of keys");
    assert!(!keys.contains(&queue), "the permit was granted: {keys:?}");
    cluster.close(slot, old, new).await;
    drop(permit);
    let back = async || permits.available_permits().await.is_ok_and(|permits| permits == 2);
    eventually(LIMIT, "both are back", back).await;
}

/// A release that is answered where the lease was taken says nothing of what put the lease back elsewhere, which may run still.
#[tokio::test]
async fn a_release_is_repeated_where_a_lease_was_first_if_it_was_put_back_elsewhere() {
    let cluster = Cluster::start().await;
    let [old, new] = [cluster.master(0), cluster.master(1)];
    let holder = connect(&cluster).await;
    let names = [0, 1].map(|shard| cluster.name_on(shard, "n"));
    for name in &names {
        soon("a lock", holder.mutex(name).lock())
            .await
            .expect("free")
            .unlock()
            .await
            .expect("held");
    }
    eventually(LIMIT, "no release is owed", async || holder.stats().releases_pending == 0).await;
    let guard = soon("the lock", holder.mutex(&names[0]).lock()).await.expect("free");
    let slot = slot_of(&names[0]);
    take_over(slot, new).await;
    eventually(LIMIT, "it is put back", async || {
        assert!(guard.is_held(), "it is never lost");
        holder.stats().reclaimed == 1
    })
    .await;
    cluster.settled(&[old, new, cluster.master(2)]).await;
    cluster.move_slot(slot, new, old).await;
    soon("unlocking", guard.unlock()).await.expect("held");
    assert_eq!(holder.stats().releases_pending, 1, "it is repeated for as long as that may be");
    eventually(LIMIT, "no release is owed", async || holder.stats().releases_pending == 0).await;
}

#[tokio::test]
async fn a_slot_that_leaves_a_new_master_has_a_grace_where_it_goes_and_later_clients_do_not_wait() {
    let cluster = Cluster::start().await;
    let first = connect(&cluster).await;
    let names = [0, 1].map(|shard| cluster.name_on(shard, "n"));
    for name in &names {
        soon("a lock", first.mutex(name).lock()).await.expect("free").unlock().await.expect("held");
    }
    lose_the_master(&cluster, 0).await;
    let (old, new) = (cluster.replica(0), cluster.master(1));
    cluster.settled(&[old, new, cluster.master(2)]).await;
    // Its own slot, and the first ones of that shard.
    let moved = slot_of(&names[0]);
    for slot in [moved, 0, 1, 2] {
        cluster.move_slot(slot, old, new).await;
    }
    let fresh = connect(&cluster).await;
    for client in [&fresh, &first] {
        does_not_count(client, &names[0]).await;
    }
    soon("the grace ends", fresh.mutex(&names[0]).lock())
        .await
        .expect("free")
        .unlock()
        .await
        .expect("held");
    // On the new master of the shard that slot came from, too.
    let stays = (0..).map(|number| format!("s:{number}")).find(|name| {
        let slot = slot_of(name);
        usize::from(slot) < 16384 / 3 && slot != moved && slot > 2
    });
    let stays = stays.expect("there are many names");
    soon("a lock", fresh.mutex(&stays).lock()).await.expect("free").unlock().await.expect("held");
    // What noted the servers' slots may leave them.
    for slot in [3, 4, 5] {
        cluster.move_slot(slot, old, new).await;
    }
    let late = connect(&cluster).await;
    for name in [&names[0], &names[1], &stays] {
        // The rest of the grace may be to come: clients allow for a server's clock that is a little slow.
        let asked_at = Instant::now();
        let guard = soon("a lock", late.mutex(name).lock()).await.expect("free");
        let took = asked_at.elapsed();
        assert!(took < GRACE / 2, "{name:?} counts after {took:?}");
        guard.unlock().await.expect("held");
    }
}

/// Its connection may have lasted. Only the next grant would show that the master has been a replica meanwhile, when its grace is over.
#[tokio::test]
async fn a_master_that_is_replaced_and_comes_back_has_one_grace() {
    let cluster = Cluster::start().await;
    let client = connect(&cluster).await;
    let name = cluster.name_on(0, "n");
    soon("a lock", client.mutex(&name).lock()).await.expect("free").unlock().await.expect("held");
    let (old, new) = (cluster.master(0), cluster.replica(0));
    let others = [cluster.master(1), cluster.master(2)];
    let follows = async |replica: &Server| {
        let up = async || {
            let info = replica.command(&["INFO", "replication"]).await;
            let info: String = redis::from_redis_value(info).expect("a text");
            info.contains("master_link_status:up")
        };
        eventually(LIMIT, "it follows its master", up).await;
    };
    follows(new).await;
    new.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
    cluster.settled(&[new, others[0], others[1]]).await;
    does_not_count(&client, &name).await;
    // The client keeps its connection for three seconds.
    follows(old).await;
    old.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
    cluster.settled(&[old, others[0], others[1]]).await;
    let began_at = Instant::now();
    let locked = in_time(3 * GRACE, "the grace ends", client.mutex(&name).lock()).await;
    let took = began_at.elapsed();
    locked.expect("free").unlock().await.expect("held");
    assert!(took < old.widened(GRACE * 3 / 2), "{took:?}");
}

/// A client that learned by a redirect that a slot has left a master does not count that master's grants when it comes back
/// without its keys.
#[tokio::test]
async fn a_slot_that_a_redirect_led_away_has_a_grace_when_it_comes_back() {
    let cluster = Cluster::start().await;
    let [old, new] = [cluster.master(0), cluster.master(1)];
    let (client, holder) = (connect(&cluster).await, connect(&cluster).await);
    let names = [0, 1].map(|shard| cluster.name_on(shard, "n"));
    let beside = format!("{{{}}}", names[0]);
    let use_once = async |client: &Client, name: &str| {
        let guard = soon("a lock", client.mutex(name).lock()).await.expect("free");
        guard.unlock().await.expect("held");
    };
    for name in &names {
        use_once(&client, name).await;
        use_once(&holder, name).await;
    }
    let slot = slot_of(&names[0]);
    cluster.move_slot(slot, old, new).await;
    use_once(&client, &beside).await;
    let masters = [old, new, cluster.master(2)];
    cluster.settled(&masters).await;
    let guard = soon("the lock", holder.mutex(&names[0]).lock()).await.expect("free");
    // The client looks at the map in the meantime.
    tokio::time::sleep(Duration::from_secs(6)).await;
    take_over(slot, old).await;
    cluster.settled(&masters).await;
    does_not_count(&client, &beside).await;
    eventually(LIMIT, "it is put back", async || {
        assert!(guard.is_held(), "it is never lost");
        holder.stats().reclaimed == 1
    })
    .await;
    guard.unlock().await.expect("held");
}

/// One of the master's marks was in that slot, and knows nothing of what happened while it was away.
#[tokio::test]
async fn a_slot_that_comes_back_with_a_mark_in_it_has_a_grace() {
    // The second in which the third master of three has a mark; the others have three that they prefer.
    const SLOT: u16 = 14336;
    let cluster = Cluster::start().await;
    let [old, new] = [cluster.master(2), cluster.master(0)];
    let masters = [new, cluster.master(1), old];
    let client = connect(&cluster).await;
    let name = (0..).map(|n| format!("n{n}")).find(|name| slot_of(name) == SLOT).expect("one is");
    let beside = format!("{{{name}}}");
    let use_once = async || {
        let guard = soon("a lock", client.mutex(&beside).lock()).await.expect("free");
        guard.unlock().await.expect("held");
    };
    use_once().await;
    cluster.move_slot(SLOT, old, new).await;
    cluster.settled(&masters).await;
    // The client looks at the map meanwhile, and notes what has changed.
    tokio::time::sleep(Duration::from_secs(6)).await;
    use_once().await;
    cluster.move_slot(SLOT, new, old).await;
    cluster.settled(&masters).await;
    does_not_count(&connect(&cluster).await, &beside).await;
}

/// The other nodes still say that it has the slot. Whoever waits asks it again and again, with pauses, and renews nothing by that.
#[tokio::test]
async fn a_wait_in_a_slot_that_its_node_does_not_have_asks_seldom() {
    let cluster = Cluster::start().await;
    for server in cluster.servers() {
        server.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    let short = Duration::from_secs(2);
    let builder = Client::builder().cluster(cluster.urls()).ttl(short).restart_quarantine(short);
    let client = builder.connect().await.expect("the cluster accepts the client");
    let owner = cluster.master(0);
    let mut guards = Vec::new();
    for number in 0..20 {
        let name = cluster.name_on(0, &format!("held:{number}"));
        guards.push(soon("a lock", client.mutex(name).lock()).await.expect("free"));
    }
    let name = cluster.name_on(0, "n");
    owner.command(&["CLUSTER", "DELSLOTS", &slot_of(&name).to_string()]).await;
    owner.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    eventually(LIMIT, "it connects again", async || client.is_ready()).await;
    let asked = async || [owner.calls("cluster|slots").await, owner.calls("evalsha").await];
    let before = asked().await;
    let wait = client.mutex(&name).lock_with_timeout(Duration::from_secs(1));
    soon("an answer", wait).await.expect_err("nobody has the slot");
    let after = asked().await;
    let more = [after[0] - before[0], after[1] - before[1]];
    // Each 50 ms it asks for the slots and for the marks, of which there are three.
    assert!(more[0] <= 60 && more[1] <= 150, "{more:?}");
    assert!(guards.iter().all(|guard| guard.is_held()));
}
