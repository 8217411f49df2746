//! Lists of the locks on all servers, and of those that somebody waits for.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::{Client, Error, ListedLock, Listing, LockKind};

use crate::{
    checks::{LIMIT, setup, soon},
    support::{Cluster, Server, eventually, slot_of},
};

/// Everything that a list shows, by name.
async fn all(mut listing: Listing) -> BTreeMap<String, ListedLock> {
    let mut found = BTreeMap::new();
    while let Some(lock) = soon("the next", listing.next()).await.expect("an answer") {
        let name = lock.name.to_string();
        assert!(found.insert(name.clone(), lock).is_none(), "{name} twice");
    }
    assert_eq!(listing.progress(), 1.0);
    assert!(listing.next().await.expect("an answer").is_none(), "it stays at its end");
    found
}

fn names(found: &BTreeMap<String, ListedLock>) -> Vec<&str> {
    found.keys().map(String::as_str).collect()
}

/// Keys of another program.
async fn others(server: &Server) {
    server.keeps("user:");
    for number in 0..3000 {
        let key = format!("user:{number}");
        server.command(&["HSET", &key, "mode", "dark", "name", "x"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_shows_each_kind_of_lock_and_nothing_else() {
    let (server, [one, two]) = setup().await;
    others(&server).await;
    let mutex = one.mutex("orders:1").lock().await.expect("free");
    let election = one.election("orders:lead").campaign().await.expect("free");
    let readers = [
        one.rw_lock("orders:rw").read().await.expect("free"),
        two.rw_lock("orders:rw").read().await.expect("free"),
    ];
    let write = one.rw_lock("other{a}").write().await.expect("free");
    let semaphore = one.semaphore("orders:s").with_permits(3);
    let permits = semaphore.acquire_many(2).await.expect("free");
    let java = "0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f01:42";
    server.command(&["HSET", "orders:*", java, "2"]).await;
    server.command(&["PEXPIRE", "orders:*", "60000"]).await;

    let found = all(two.list("")).await;
    let expected = ["orders:*", "orders:1", "orders:lead", "orders:rw", "orders:s", "other{a}"];
    assert_eq!(names(&found), expected);
    let of = |name: &str| {
        let lock = &found[name];
        (lock.kind, lock.shared, lock.count, lock.holders.len())
    };
    assert_eq!(of("orders:1"), (LockKind::Mutex, false, 1, 1));
    assert_eq!(of("orders:lead"), (LockKind::Mutex, false, 1, 1));
    assert_eq!(of("orders:rw"), (LockKind::RwLock, true, 2, 2));
    assert_eq!(of("other{a}"), (LockKind::RwLock, false, 1, 1));
    assert_eq!(of("orders:s"), (LockKind::Semaphore, true, 2, 1));
    assert_eq!(found["orders:*"].holders[0].as_str(), java);
    let lock = &found["orders:1"];
    assert_eq!((&lock.holders[..], lock.last_token), (&[mutex.holder()][..], Some(mutex.token())));
    assert!(lock.since.is_some() && lock.remaining.is_some() && lock.waiting_clients == 0);

    assert_eq!(names(&all(two.list("orders:").fast()).await), expected[..5]);
    assert_eq!(names(&all(two.list("orders:*")).await), ["orders:*"], "it is no pattern");
    let shop = Client::builder().nodes([server.url()]).name_prefix("orders:");
    let shop = shop.connect().await.expect("connected");
    assert_eq!(names(&all(shop.list("r")).await), ["orders:rw"], "behind the client's prefix");

    mutex.unlock().await.expect("held");
    election.resign().await.expect("held");
    permits.release().await.expect("held");
    write.unlock().await.expect("held");
    drop(readers);
    let left = async || names(&all(two.list("")).await) == ["orders:*"];
    eventually(LIMIT, "what is free is not shown", left).await;
}

/// Listens on a channel, as Redisson's waiters do, while the connection is there.
async fn listening(server: &Server, channel: &str) -> redis::aio::MultiplexedConnection {
    let mut connection = server.raw().await;
    let listens: redis::RedisResult<redis::Value> =
        redis::cmd("SUBSCRIBE").arg(channel).query_async(&mut connection).await;
    listens.expect("subscribed");
    connection
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contended_are_those_that_somebody_waits_for() {
    let (server, [holder, waiter, looker]) = setup().await;
    others(&server).await;
    assert!(all(looker.contended()).await.is_empty());
    let mutex = holder.mutex("m").lock().await.expect("free");
    let write = holder.rw_lock("rw").write().await.expect("free");
    let semaphore = holder.semaphore("s").with_permits(1);
    let permit = semaphore.acquire().await.expect("free");
    let quiet = holder.mutex("quiet").lock().await.expect("free");
    let (one, two) = (waiter.mutex("m"), waiter.rw_lock("rw"));
    let three = waiter.semaphore("s").with_permits(1);
    let waiting = tokio::spawn(async move {
        let (mutex, read, permit) = tokio::join!(one.lock(), two.read(), three.acquire());
        (mutex.expect("free"), read.expect("free"), permit.expect("free"))
    });
    for client in [&looker, &waiter] {
        let seen = async || names(&all(client.contended()).await) == ["m", "rw", "s"];
        eventually(LIMIT, "all three are waited for", seen).await;
    }
    let found = all(looker.contended()).await;
    for lock in found.values() {
        assert_eq!((lock.waiting_clients, lock.is_held()), (1, true), "{lock:?}");
        assert_eq!(&*lock.waiting[0].client, waiter.name());
    }
    let java = "0f3a8c1e-5b7d-4e21-9c44-2a6b7d8e9f01:42";
    server.command(&["HSET", "j", java, "1"]).await;
    server.command(&["PEXPIRE", "j", "60000"]).await;
    // An `RSemaphore` does not say who has its permits.
    server.command(&["SET", "js", "0", "PX", "60000"]).await;
    let _java = [
        listening(&server, "redisson_lock__channel:{j}").await,
        listening(&server, "redisson_sc:{js}").await,
    ];
    assert_eq!(names(&all(looker.contended()).await), ["j", "js", "m", "rw", "s"], "Java's, too");
    mutex.unlock().await.expect("held");
    write.unlock().await.expect("held");
    permit.release().await.expect("held");
    drop(soon("they have them", waiting).await.expect("no panic"));
    let left = async || names(&all(looker.contended()).await) == ["j", "js"];
    eventually(LIMIT, "nobody else waits any more", left).await;
    quiet.unlock().await.expect("held");
}

/// They ask no server: what they wait for is in use in their own process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_holder_of_its_own_client_counts_too() {
    let (_server, [client]) = setup().await;
    let mutex = client.mutex("m").lock().await.expect("free");
    let write = client.rw_lock("rw").write().await.expect("free");
    let (one, two) = (client.mutex("m"), client.rw_lock("rw"));
    let waiting = tokio::spawn(async move {
        let (mutex, read) = tokio::join!(one.lock(), two.read());
        (mutex.expect("free"), read.expect("free"))
    });
    eventually(LIMIT, "both wait", async || client.stats().waiters == 2).await;
    let found = all(client.contended()).await;
    assert_eq!(names(&found), ["m", "rw"]);
    assert!(found.values().all(|lock| lock.waiting_clients == 1 && lock.is_held()), "{found:?}");
    mutex.unlock().await.expect("held");
    write.unlock().await.expect("held");
    drop(soon("they have them", waiting).await.expect("no panic"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_is_dropped_half_way_goes_on() {
    let (server, [client]) = setup().await;
    others(&server).await;
    let mut guards = Vec::new();
    for number in 0..150 {
        guards.push(client.mutex(format!("n:{number}")).lock().await.expect("free"));
    }
    let (mut listing, mut found, mut dropped) = (client.list("n:"), Vec::new(), 0);
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        assert!(tokio::time::Instant::now() < deadline, "after {} locks", found.len());
        // It gives up more and more rarely.
        let patience = Duration::from_micros(50 + 20 * dropped);
        match tokio::time::timeout(patience, listing.next()).await {
            Ok(next) => match next.expect("an answer") {
                Some(lock) => found.push(lock.name),
                None => break,
            },
            Err(_) => dropped += 1,
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 150);
    assert!(dropped > 0, "it was never dropped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_three_masters_what_a_majority_has_is_listed_while_one_is_away() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let builder = || {
        Client::builder().nodes(urls.iter().map(String::as_str)).restart_quarantine(Duration::ZERO)
    };
    let [one, two] = [
        builder().connect().await.expect("connected"),
        builder().connect().await.expect("connected"),
    ];
    let _guard = one.mutex("n").lock().await.expect("free");
    let minority = "somebody:f81d4fae-7dec-41d0-a765-00a0c91e6bf1";
    servers[1].command(&["HSET", "minority", minority, "1"]).await;
    servers[1].command(&["PEXPIRE", "minority", "60000"]).await;
    let waiter = two.mutex("n");
    let waiting = tokio::spawn(async move { waiter.lock().await });
    // A client of this server alone waits for a semaphore.
    let _other = listening(&servers[1], "redisson_sc:{s}").await;
    for away in [None, Some(0)] {
        if let Some(index) = away {
            servers[index].kill();
        }
        let found = all(two.list("")).await;
        assert_eq!(names(&found), ["n"], "{away:?}");
        let waits = async || names(&all(one.contended()).await) == ["n"];
        eventually(LIMIT, "the waiter is found", waits).await;
    }
    servers[1].kill();
    let mut listing = two.list("");
    let mut error = None;
    eventually(LIMIT, "no majority has an answer", async || {
        error = listing.next().await.err();
        error.is_some()
    })
    .await;
    assert!(matches!(error, Some(Error::Unavailable { .. })), "{error:?}");
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_shows_the_locks_of_all_masters_of_a_cluster() {
    let cluster = Cluster::start().await;
    let connect = || Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let [one, two] = [
        connect().connect().await.expect("a cluster"),
        connect().connect().await.expect("a cluster"),
    ];
    let mut guards = Vec::new();
    for number in 0..30 {
        guards.push(soon("a lock", one.mutex(format!("n:{number}")).lock()).await.expect("free"));
    }
    assert_eq!(all(two.list("n:")).await.len(), 30);
    let waiter = two.mutex("n:7");
    let waiting = tokio::spawn(async move { waiter.lock().await });
    let waits = async || names(&all(one.contended()).await) == ["n:7"];
    eventually(LIMIT, "the waiter is found", waits).await;
    waiting.abort();
    for guard in guards {
        guard.unlock().await.expect("held");
    }
}

/// The master that they come from has them no more, and the other one does not say what they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_shows_the_locks_of_slots_that_move() {
    let cluster = Cluster::start().await;
    let connect = || Client::builder().cluster(cluster.urls()).restart_quarantine(Duration::ZERO);
    let [one, two] = [
        connect().connect().await.expect("a cluster"),
        connect().connect().await.expect("a cluster"),
    ];
    let [mutex, rw] = ["m", "rw"].map(|stem| cluster.name_on(0, stem));
    let held = soon("the mutex", one.mutex(&mutex).lock()).await.expect("free");
    let writing = soon("the writer", one.rw_lock(&rw).write()).await.expect("free");
    // While one of its keys is missing, as the queue is if nobody waits, nobody can say who has a read-write lock that moves.
    let waiting = tokio::spawn(two.rw_lock(&rw).read());
    eventually(LIMIT, "it waits", async || {
        one.rw_lock(&rw).status().await.is_ok_and(|status| status.waiting.len() == 1)
    })
    .await;
    let (source, target) = (cluster.master(0), cluster.master(1));
    for name in [&mutex, &rw] {
        cluster.open(slot_of(name), source, target).await;
        cluster.migrate_all(slot_of(name), source, target).await;
    }
    let found = all(two.list("")).await;
    let kinds: Vec<_> = found.values().map(|lock| (&*lock.name, lock.kind)).collect();
    assert_eq!(kinds, [(&*mutex, LockKind::Mutex), (&*rw, LockKind::RwLock)]);
    for name in [&mutex, &rw] {
        cluster.close(slot_of(name), source, target).await;
    }
    soon("unlocking", held.unlock()).await.expect("held");
    soon("unlocking", writing.unlock()).await.expect("held");
    drop(soon("its turn", waiting).await.expect("no panic").expect("free"));
}

#[tokio::test]
async fn a_right_that_is_missing_is_named() {
    let server = Server::start().await;
    server.command(&["ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-scan"]).await;
    let url = server.url_as("u", "p");
    let client = Client::connect(&url).await.expect("locks need no such right");
    let error = client.list("").next().await.expect_err("it may not look");
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    server.command(&["ACL", "SETUSER", "u", "+scan", "-dbsize"]).await;
    let _guard = client.mutex("n").lock().await.expect("free");
    assert_eq!(names(&all(client.list("")).await), ["n"], "without the progress");
}

/// Other programs have locks on the same server.
#[tokio::test]
async fn what_this_user_may_not_read_is_left_out() {
    let server = Server::start().await;
    let other = Client::connect(&server.url()).await.expect("connected");
    let _permit = other.semaphore("stock").with_permits(1).acquire().await.expect("there is one");
    let _cfg = other.rw_lock("orders:cfg").write().await.expect("free");
    let _mutex = other.mutex("orders:1").lock().await.expect("free");
    let rules = "~orders:* ~leasehold_token:{orders:* ~leasehold_queue:{orders:* ~leasehold_probe \
                 ~leasehold_wait:{orders:* &redisson_lock__channel:{orders:* &leasehold_mailbox:* +@all";
    let rules: Vec<_> = rules.split_whitespace().collect();
    server.command(&[&["ACL", "SETUSER", "u", "on", ">p"], &rules[..]].concat()).await;
    let client = Client::connect(&server.url_as("u", "p")).await.expect("connected");
    for _ in 0..2 {
        assert_eq!(names(&all(client.list("")).await), ["orders:1"]);
    }
}

#[test]
fn threads_iterate_over_a_list() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let client = leasehold::blocking::Client::connect(&server.url()).expect("connected");
    let guards = ["a", "b"].map(|name| client.mutex(name).lock().expect("free"));
    let locks: Result<Vec<_>, Error> = client.list("").fast().collect();
    let mut names: Vec<_> = locks.expect("answers").into_iter().map(|lock| lock.name).collect();
    names.sort();
    assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(client.contended().count(), 0);
    for guard in guards {
        guard.unlock().expect("held");
    }
    drop(client);
    runtime.block_on(async { drop(server) });
}
