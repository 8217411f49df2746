//! `synced(n)`: a grant or a renewal counts once n replicas have it.

use std::{pin::pin, time::Duration};

use leasehold::{Client, ClientBuilder, Error};
use redis::Value;

use crate::{
    checks::{LIMIT, exists, nothing_left, soon},
    fair::make_heard,
    support::{Proxy, Server, eventually, waiting},
};

const MS: Duration = Duration::from_millis(1);

/// A master with a replica that follows it.
pub(crate) async fn replicated() -> (Server, Server) {
    let master = Server::with(&["--repl-diskless-sync-delay", "0"]).await;
    let of = format!("127.0.0.1 {}", master.port());
    let replica = Server::with(&["--replicaof", &of]).await;
    eventually(LIMIT, "the replica follows", async || {
        let info = master.command(&["INFO", "replication"]).await;
        let info: String = redis::from_redis_value(info).expect("a text");
        info.contains("state=online")
    })
    .await;
    (master, replica)
}

pub(crate) fn synced(master: &Server) -> ClientBuilder {
    Client::builder().nodes([master.url()]).synced(1)
}

pub(crate) async fn connect(builder: ClientBuilder) -> Client {
    builder.connect().await.expect("the server accepts the client")
}

async fn owner_on(server: &Server, name: &str) -> String {
    let fields = server.command(&["HKEYS", name]).await;
    let fields: Vec<String> = redis::from_redis_value(fields).expect("a list");
    fields.concat()
}

#[tokio::test]
async fn what_was_granted_is_on_areplica() {
    let (master, replica) = replicated().await;
    let client = connect(synced(&master)).await;
    for round in 0..50 {
        let guard = client.mutex("n").lock().await.expect("free");
        assert!(exists(&replica, "n").await, "round {round}");
        guard.unlock().await.expect("held");
    }
    nothing_left(&master, &client).await;
}

#[tokio::test]
async fn what_no_replica_has_is_given_back_and_the_error_says_why() {
    let (master, replica) = replicated().await;
    let client = connect(synced(&master)).await;
    replica.pause();
    let error = client.mutex("n").try_lock().await.expect_err("no replica has it");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("only 0 of the 1 replicas"), "{error}");
    nothing_left(&master, &client).await;

    replica.resume();
    let guard = soon("the replica goes on", client.mutex("n").lock()).await.expect("free");
    assert!(guard.is_held() && exists(&replica, "n").await);
}

#[tokio::test]
async fn a_lease_whose_renewals_no_replica_has_ends_when_the_replicas_lease_does() {
    let (master, replica) = replicated().await;
    let client = connect(synced(&master).ttl(1500 * MS)).await;
    let guard = client.mutex("n").lock().await.expect("free");
    replica.pause();
    let uncounted = async || {
        let Value::Int(left) = master.command(&["PTTL", "n"]).await else { panic!("no number") };
        left > guard.remaining().as_millis() as i64 + 300
    };
    eventually(LIMIT, "the server renews it, and that does not count", uncounted).await;
    soon("it is lost", guard.lost()).await;
    replica.resume();
    drop(guard);
    nothing_left(&master, &client).await;
}

#[tokio::test]
async fn a_renewal_that_a_replica_has_counts() {
    let (master, replica) = replicated().await;
    let client = connect(synced(&master).ttl(900 * MS)).await;
    let guard = client.mutex("n").lock().await.expect("free");
    let first_end = std::time::Instant::now() + guard.remaining();
    let renewed = async || std::time::Instant::now() > first_end || !guard.is_held();
    eventually(LIMIT, "the first lease would be over", renewed).await;
    assert!(guard.is_held() && exists(&replica, "n").await);
    guard.unlock().await.expect("held");
}

#[tokio::test]
async fn nothing_waits_behind_a_replica_that_hangs_but_what_needs_it() {
    let (master, replica) = replicated().await;
    let client = connect(synced(&master)).await;
    let guard = client.mutex("held").lock().await.expect("free");
    replica.pause();
    let taking = tokio::spawn({
        let lock = client.mutex("other");
        async move { lock.try_lock().await }
    });
    eventually(LIMIT, "it was granted", async || exists(&master, "other").await).await;
    guard.unlock().await.expect("held");
    let status = client.mutex("other").status().await.expect("asked");
    assert!(status.holder.is_some() && !taking.is_finished(), "they waited for the replica");
    soon("it ends", taking).await.expect("no panic").expect_err("no replica has it");
    replica.resume();
    nothing_left(&master, &client).await;
}

#[tokio::test]
async fn a_lock_that_passes_by_message_is_on_a_replica_before_it_is_used() {
    let (master, replica) = replicated().await;
    let [first, second] = [connect(synced(&master)).await, connect(synced(&master)).await];
    for round in 0..20 {
        let guard = first.mutex("n").lock().await.expect("free");
        let waiting = tokio::spawn({
            let lock = second.mutex("n");
            async move { lock.lock().await }
        });
        eventually(LIMIT, "it waits", async || {
            let status = first.mutex("n").status().await.expect("asked");
            !status.waiting.is_empty()
        })
        .await;
        let before = owner_on(&replica, "n").await;
        guard.unlock().await.expect("held");
        let guard = soon("its turn", waiting).await.expect("no panic").expect("granted");
        assert_ne!(owner_on(&replica, "n").await, before, "round {round}");
        guard.unlock().await.expect("held");
    }
    let guard = first.mutex("n").lock().await.expect("free");
    let waiting = tokio::spawn({
        let lock = second.mutex("n");
        async move { lock.lock_with_timeout(1500 * MS).await }
    });
    eventually(LIMIT, "it waits", async || {
        !first.mutex("n").status().await.expect("asked").waiting.is_empty()
    })
    .await;
    replica.pause();
    guard.unlock().await.expect("held");
    soon("its time is over", waiting).await.expect("no panic").expect_err("no replica has it");
    replica.resume();
    nothing_left(&master, &first).await;
    nothing_left(&master, &second).await;
}

#[tokio::test]
async fn one_wait_serves_all_grants_that_came_before_it() {
    let (master, replica) = replicated().await;
    let client = connect(synced(&master)).await;
    let waits = async || master.calls("wait").await;
    let before = waits().await;
    // Each acquire is answered by the master, which then waits in vain for the same replica.
    replica.pause();
    let names: Vec<String> = (0..64).map(|n| format!("n{n}")).collect();
    let locks: Vec<_> = names.iter().map(|name| client.mutex(name)).collect();
    let taken = futures_util::future::join_all(locks.iter().map(|lock| lock.try_lock())).await;
    assert!(taken.iter().all(Result::is_err));
    let waited = waits().await - before;
    assert!((1..=8).contains(&waited), "{waited} WAITs for 64 grants");
    replica.resume();
    nothing_left(&master, &client).await;
}

/// The replica receives what the master writes late. The second grant comes while the first one is waited for: the answer to
/// that wait says nothing about it.
#[tokio::test]
async fn a_wait_does_not_speak_for_a_grant_that_came_while_it_ran() {
    const LATE: Duration = Duration::from_millis(500);
    let master = Server::with(&["--repl-diskless-sync-delay", "0"]).await;
    let link = Proxy::start(master.port()).await;
    let replica = Server::with(&["--replicaof", &format!("127.0.0.1 {}", link.port())]).await;
    let info = async || {
        let info = master.command(&["INFO"]).await;
        redis::from_redis_value::<String>(info).expect("a text")
    };
    let online = async || info().await.contains("state=online");
    eventually(LIMIT, "the replica follows", online).await;
    // A third of the response timeout is how long the replica is waited for.
    let client = connect(synced(&master).response_timeout(Duration::from_secs(9))).await;
    for round in 0..3 {
        let [first, second] = ["first", "second"].map(|name| format!("{name}:{round}"));
        link.delay_replies(LATE);
        let taking = tokio::spawn(client.mutex(&first).lock());
        let waits = async || info().await.contains("blocked_clients:1");
        eventually(LIMIT, "the replica is waited for", waits).await;
        let guard = soon("a turn", client.mutex(&second).lock()).await.expect("free");
        assert!(exists(&replica, &second).await, "round {round}: the replica lacks it");
        link.delay_replies(Duration::ZERO);
        guard.unlock().await.expect("held");
        let guard = soon("a turn", taking).await.expect("no panic").expect("free");
        guard.unlock().await.expect("held");
    }
}

/// A future that asks for a lock is polled until the replica is waited for, and then not at all, as in a `select!` whose other
/// branch takes its time.
#[tokio::test]
async fn an_acquisition_that_nobody_polls_keeps_no_renewal_from_its_replica() {
    let master = Server::with(&["--repl-diskless-sync-delay", "0"]).await;
    let link = Proxy::start(master.port()).await;
    let _replica = Server::with(&["--replicaof", &format!("127.0.0.1 {}", link.port())]).await;
    let info = async || {
        let info = master.command(&["INFO"]).await;
        redis::from_redis_value::<String>(info).expect("a text")
    };
    eventually(LIMIT, "the replica follows", async || info().await.contains("state=online")).await;
    let ttl = 900 * MS * master.slowness().await;
    let client = connect(synced(&master).ttl(ttl)).await;
    let held = client.mutex("held").lock().await.expect("free");
    link.delay_replies(200 * MS);
    let other = client.mutex("other");
    let mut asking = pin!(other.lock());
    let waits = eventually(LIMIT, "the replica is waited for", async || {
        info().await.contains("blocked_clients:1") && exists(&master, "other").await
    });
    tokio::select! {
        biased;
        _ = &mut asking => panic!("the replica has it already"),
        () = waits => {}
    }
    link.delay_replies(Duration::ZERO);
    let three = std::time::Instant::now() + 3 * ttl;
    let over = async || std::time::Instant::now() > three || !held.is_held();
    eventually(LIMIT + 3 * ttl, "three leases would be over", over).await;
    assert!(held.is_held(), "its renewals waited for a future that nobody polls");
    let guard = soon("it is polled again", asking).await;
    drop((guard, held));
    nothing_left(&master, &client).await;
}

/// The process holds the lock by an answer that it looked at late, when another request of its own was in the queue. Somebody
/// frees that by force, and the server grants the lock to the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_by_message_beside_a_hold_that_is_gone_is_confirmed_at_once() {
    let (master, _replica) = replicated().await;
    let client = connect(synced(&master).response_timeout(LIMIT)).await;
    let other = connect(synced(&master)).await;
    make_heard(&master, &[&client]).await;
    let lock = client.mutex("n");
    let mut kept = Box::pin(lock.lock());
    // Otherwise the answer may be there already.
    master.pause();
    let is_over = futures_util::poll!(&mut kept).is_ready();
    master.resume();
    assert!(!is_over, "it waits for the answer");
    let next = tokio::spawn(lock.lock());
    let queued = async || waiting(&master, "n").await == 1;
    eventually(LIMIT, "the next one is in the queue", queued).await;
    let held = soon("it goes on where it was", kept).await.expect("it was granted");
    assert!(other.mutex("n").force_unlock().await.expect("an answer"));
    let freed_at = std::time::Instant::now();
    let guard = soon("its turn", next).await.expect("no panic").expect("granted");
    let took = freed_at.elapsed();
    assert!(took < master.widened(1000 * MS), "{took:?}");
    assert!(guard.is_held() && !held.is_held());
    drop((held, guard));
    nothing_left(&master, &client).await;
}

/// A server that is full grants nothing, and lengthens what it has granted.
#[tokio::test]
async fn a_server_whose_memory_is_full_goes_on_renewing() {
    let (master, replica) = replicated().await;
    let ttl = 900 * MS * master.slowness().await;
    let client = connect(synced(&master).ttl(ttl)).await;
    let guard = client.mutex("n").lock().await.expect("free");
    for server in [&master, &replica] {
        server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    }
    let three = std::time::Instant::now() + 3 * ttl;
    let over = async || std::time::Instant::now() > three || !guard.is_held();
    eventually(LIMIT + 3 * ttl, "three leases would be over", over).await;
    assert!(guard.is_held(), "no renewal counted");
    let refused = client.mutex("m").try_lock().await.expect_err("there is no memory");
    assert!(refused.to_string().contains("OOM"), "{refused}");
    replica.pause();
    soon("no replica has the renewals", guard.lost()).await;
    replica.resume();
    master.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    drop(guard);
    nothing_left(&master, &client).await;
}

/// The server closes neither of the connections, and answers on one of them.
#[tokio::test]
async fn a_connection_that_waits_for_replicas_and_is_silent_is_made_anew() {
    let (master, replica) = replicated().await;
    let way = Proxy::start(master.port()).await;
    let ttl = 6000 * MS * master.slowness().await;
    let builder = Client::builder().nodes([way.url()]).synced(1).ttl(ttl);
    let client = connect(builder.response_timeout(600 * MS)).await;
    let held = client.mutex("held").lock().await.expect("free");
    // The answers on the first connection come so much later than the questions that the time is not over with both.
    way.delay_replies(50 * MS);
    let before = command_connections(&master).await;
    way.silence_waits();
    let guard = soon("it is made anew", client.mutex("n").lock()).await.expect("free");
    assert!(exists(&replica, "n").await);
    let after = command_connections(&master).await;
    assert!(
        after.len() == 2 && after.iter().all(|id| !before.contains(id)),
        "{before:?} {after:?}"
    );
    // With no call but renewals.
    let two = std::time::Instant::now() + 2 * ttl;
    way.silence_waits();
    let over = async || std::time::Instant::now() > two || !held.is_held();
    eventually(LIMIT + 2 * ttl, "two leases would be over", over).await;
    assert!(held.is_held() && guard.is_held(), "they were not renewed");
    drop((held, guard));
    nothing_left(&master, &client).await;
}

#[tokio::test]
async fn a_connection_that_waits_for_replicas_is_made_anew_at_once_when_it_is_closed() {
    let (master, _replica) = replicated().await;
    let client = connect(synced(&master)).await;
    let guard = client.mutex("n").lock().await.expect("free");
    guard.unlock().await.expect("held");
    let before = command_connections(&master).await;
    // The second one waits for replicas.
    let id = before[1].strip_prefix("id=").expect("an id");
    master.command(&["CLIENT", "KILL", "ID", id]).await;
    eventually(LIMIT, "both are made anew", async || {
        let now = command_connections(&master).await;
        now.len() == 2 && now.iter().all(|id| !before.contains(id)) && client.is_ready()
    })
    .await;
    let guard = client.mutex("n").try_lock().await.expect("no error is seen").expect("free");
    guard.unlock().await.expect("held");
    nothing_left(&master, &client).await;
}

/// The server grants, and refuses what is written to see whether a replica has it.
#[tokio::test]
async fn a_grant_that_cannot_be_confirmed_for_lack_of_a_right_is_given_back() {
    let (master, _replica) = replicated().await;
    let rights = ["ACL", "SETUSER", "u", "on", ">p", "~n*", "~leasehold_[^s]*", "&*", "+@all"];
    assert_eq!(master.command(&rights).await, Value::Okay);
    let ttl = Duration::from_secs(20);
    let builder = Client::builder().nodes([master.url_as("u", "p")]).synced(1).ttl(ttl);
    let client = connect(builder).await;
    let error = client.mutex("n").try_lock().await.expect_err("it cannot be confirmed");
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    let began_at = std::time::Instant::now();
    let is_free = async || !exists(&master, "n").await && client.stats().releases_pending == 0;
    eventually(LIMIT, "it is given back", is_free).await;
    let took = began_at.elapsed();
    assert!(took < ttl / 2, "only its lease has ended: {took:?}");
}

/// The address leads to another server between the two connections of one attempt: that one's replicas say nothing about
/// what the first one grants.
#[tokio::test]
async fn both_connections_lead_to_one_server() {
    let (master, replica) = replicated().await;
    let (other, follower) = replicated().await;
    let address = Proxy::start(master.port()).await;
    // So that the attempt takes its time. Where it is over before the address changes, there is nothing to see.
    address.delay_replies(100 * MS);
    let connecting = tokio::spawn(Client::builder().nodes([address.url()]).synced(1).connect());
    eventually(LIMIT, "it has begun", async || address.connections() > 0).await;
    address.lead_new_ones_to(other.port());
    let client = soon("it connects", connecting).await.expect("no panic").expect("accepted");
    address.delay_replies(Duration::ZERO);
    let guard = soon("a lock", client.mutex("n").lock()).await.expect("free");
    let granted_by = if exists(&master, "n").await { &replica } else { &follower };
    // The one whose replica is asked must be the one that granted it.
    granted_by.pause();
    let error = client.mutex("m").try_lock().await.expect_err("no replica has it");
    assert!(error.to_string().contains("of the 1 replicas"), "{error}");
    granted_by.resume();
    guard.unlock().await.expect("held");
}

#[tokio::test]
async fn what_cannot_be_synced_is_refused_at_once() {
    let (master, _replica) = replicated().await;
    let three = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"];
    let quorum = Client::builder().nodes(three).synced(1).connect().await;
    assert!(matches!(quorum, Err(Error::InvalidConfig { .. })), "{quorum:?}");

    let rights = ["ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-wait"];
    assert_eq!(master.command(&rights).await, Value::Okay);
    let denied = Client::builder().nodes([master.url_as("u", "p")]).synced(1).connect().await;
    let error = denied.expect_err("it may not wait");
    assert!(matches!(error, Error::Denied { .. }) && error.to_string().contains("wait"), "{error}");
}

/// The connections for commands to a server, by their ids: only they speak RESP3.
async fn command_connections(server: &Server) -> Vec<String> {
    let clients = server.command(&["CLIENT", "LIST"]).await;
    let clients: String = redis::from_redis_value(clients).expect("a list of clients");
    let for_commands = clients.lines().filter(|line| line.contains(" resp=3"));
    for_commands.map(|line| line.split(' ').next().expect("its id").to_owned()).collect()
}

/// The server answers at once; only its replica does not.
#[tokio::test]
async fn a_server_whose_replica_is_gone_is_not_taken_for_silent() {
    let (master, replica) = replicated().await;
    let client = connect(synced(&master).ttl(3000 * MS).response_timeout(600 * MS)).await;
    let mut guards = Vec::new();
    for lock in 0..60 {
        guards.push(client.mutex(format!("n{lock}")).lock().await.expect("free"));
    }
    let connections = command_connections(&master).await;
    assert_eq!(connections.len(), 2, "one for commands, one to wait for replicas");
    replica.pause();
    for guard in &guards {
        soon("no renewal counts", guard.lost()).await;
    }
    let asking = (0..40).map(|lock| {
        let lock = client.mutex(format!("m{lock}"));
        tokio::spawn(async move { lock.lock_with_timeout(2000 * MS).await })
    });
    for asked in asking.collect::<Vec<_>>() {
        soon("an answer", asked).await.expect("no panic").expect_err("no replica has it");
    }
    assert_eq!(command_connections(&master).await, connections, "a connection was given up");
    replica.resume();
    drop(guards);
    nothing_left(&master, &client).await;
}
